"""A round of very many owners in a process of its own, one owner at a time."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.machine import measured
from benchmarks.methods.rounds import FRACTION_BITS, Round
from blindsight.crypto import bfv, paillier
from blindsight.federated.costmodel import Scheme, measure
from blindsight.federated.crowd import CrowdRound, lattice_round, sparse_round
from blindsight.learn.dphe.terms import KEY_GENERATOR
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms


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
        crowd = _play(given, scheme)
    owners, figures = crowd.cost.members, measure(crowd)[1]
    return ScaleAnswer(
        total=np.ldexp(crowd.integers.astype(np.float64), -FRACTION_BITS),
        measured=figures,
        setup=(
            sum(crowd.setup.seconds(party=owner) for owner in owners) / len(owners),
            crowd.setup.seconds(party=KEY_GENERATOR),
        ),
        seconds=crowd.cost.seconds() + (len(owners) - len(crowd.readers)) * figures["read"],
        peak_bytes=memory.peak_memory_bytes,
    )


def _play(given: Round, scheme: Scheme) -> CrowdRound:
    sums = SumTerms(run="benchmark", users=given.users, dimension=given.weights, fraction_bits=FRACTION_BITS)
    if scheme == "bfv":
        return lattice_round(sums, given.update, key=bfv.generate_keys(max_sum=2**31 - 1))
    sparse = sparse_terms(
        sums,
        blocks=True,
        capacity=given.capacity,
        key_bits=given.key_bits,
        minimum_per_position=1,
        insecure=given.insecure,
    )
    return sparse_round(sparse, given.update, key=paillier.generate_keys(given.key_bits, insecure=given.insecure))
