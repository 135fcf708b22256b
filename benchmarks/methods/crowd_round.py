"""Block DPHE in a process of its own, to see how much memory a round of many users takes.

The users' contributions are made one after another, added up and dropped. All roles live in the one process, so its
peak is more than the aggregator's.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from benchmarks.machine import measured
from benchmarks.methods import sparse_round
from benchmarks.methods.rounds import Round, RoundAnswer


def run(given: Round, *, seed: int) -> RoundAnswer:
    """Play a round and report the peak memory of its process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_round, given, seed).result()


def _round(given: Round, seed: int) -> RoundAnswer:
    with measured() as cost:
        answer = sparse_round.run(given, seed=seed, blocks=True)
    answer["peak_bytes"] = cost.peak_memory_bytes
    return answer
