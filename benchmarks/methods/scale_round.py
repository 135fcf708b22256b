"""A round of very many owners in a process of its own, one owner at a time."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import measured
from benchmarks.methods.costmodel import Scheme, measure
from benchmarks.methods.rounds import FRACTION_BITS, Round
from benchmarks.methods.simulated_members import SimulatedRound, simulated_round
from blindsight.crypto import bfv, paillier
from blindsight.sums import Terms
from blindsight.sums.terms import KEY_GENERATOR


class ScaleAnswer(TypedDict):
    """The exact sum, and what the round took: the figures of `costmodel`.

    `setup` are CPU seconds: of one owner, and of the key generator for all owners (without making its key). `seconds`
    are those of all parties in the round.
    """

    total: NDArray[np.float64]
    measured: dict[str, float]
    setup: tuple[float, float]
    seconds: float
    peak_bytes: int


def run(given: Round, *, seed: int, scheme: Scheme) -> ScaleAnswer:
    """Play the round in a child; the seed has no say in keys, permutations and masks."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run, given, scheme).result()


def _run(given: Round, scheme: Scheme) -> ScaleAnswer:
    with measured() as memory:
        played = _play(given, scheme)
    owners, figures = played.cost.members, measure(played)[1]
    return ScaleAnswer(
        total=np.ldexp(played.integers.astype(np.float64), -FRACTION_BITS),
        measured=figures,
        setup=(
            sum(played.setup.seconds(party=owner) for owner in owners) / len(owners),
            played.setup.seconds(party=KEY_GENERATOR),
        ),
        seconds=played.cost.seconds() + (len(owners) - len(played.readers)) * figures["read"],
        peak_bytes=memory.peak_memory_bytes,
    )


def _play(given: Round, scheme: Scheme) -> SimulatedRound:
    sparse: dict[str, Any] = {}
    key: Any = bfv.generate_keys(max_sum=2**31 - 1) if scheme == "bfv" else None
    if key is None:
        sparse = {"capacity": given.capacity, "key_bits": given.key_bits, "insecure": given.insecure}
        key = paillier.generate_keys(given.key_bits, insecure=given.insecure)
    terms = Terms(
        scheme=scheme,
        run="benchmark",
        members=given.users,
        dimension=given.weights,
        fraction_bits=FRACTION_BITS,
        **sparse,
    )
    return simulated_round(terms, given.update, key=key)
