"""Blindsight's dense schemes through their common door: `plain`, `bfv`, `masks`."""

import numpy as np

from benchmarks.methods.rounds import FRACTION_BITS, Measured, Round, RoundAnswer
from blindsight.learn.comparison import compare
from blindsight.sums import open_session


def run(given: Round, *, seed: int, scheme: str, rounds: int) -> RoundAnswer:
    """Play so many rounds with the same updates and take the mean cost; the seed has no say in keys and masks."""
    session = open_session(scheme, members=given.users, dimension=given.weights, fraction_bits=FRACTION_BITS)
    updates = {user: given.update(user) for user in given.users}
    results = [session.round(updates, number) for number in range(rounds)]
    costs = [row for result in results for row in compare({scheme: result.cost})]
    return RoundAnswer(
        total=results[-1].values,
        places=np.arange(given.weights),
        seconds={
            "encrypt": Measured(sum(cost.encrypt_seconds for cost in costs) / rounds),
            "aggregate": Measured(sum(cost.aggregate_seconds for cost in costs) / rounds),
            "decrypt": Measured(sum(cost.decrypt_seconds for cost in costs) / rounds),
        },
        sent=Measured(1e6 * costs[-1].megabytes_sent),
        peak_bytes=0,
    )
