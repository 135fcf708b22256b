"""The five attackers of SensorSift as our verifier runs them."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.sift_attacks import ReleasedNumbers
from blindsight.sift.attackers import PAPER

_ATTACKERS = {attacker.name: attacker for attacker in PAPER}
for _attacker in PAPER:
    _attacker.make(0)  # so that libraries are imported before the clock starts


def run(given: ReleasedNumbers, *, seed: int, attacker: str) -> NDArray[np.int8]:
    """Guess the private label of every test row."""
    return _ATTACKERS[attacker].attack(given.train, given.labels, given.test, seed=seed)
