"""A mechanism on trial in a single run: many records, each of which is one of two by a secret coin.

Where neighbouring inputs would need thousands of runs, one run on thousands of records is as good (`onerun`), and it
puts to the test what is really done: learning from all records and releasing all of them together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.onerun import canaries_needed, one_run_bound, surest_guesses
from blindsight.audit.subject import Claim, EpsilonAudit
from blindsight.errors import InputError
from blindsight.rng import ByteSource, random_words, system_bytes

Run = Callable[[NDArray[np.bool_], ByteSource], NDArray[np.float64]]
"""Runs a mechanism once on records chosen by these coins; scores each coin, positive where it seems to be true and
further from 0 the surer that is."""


@dataclass(frozen=True, kw_only=True)
class CanarySubject:
    """A claim that can be put to the test in one run.

    Only the `share` of the coins that are surest is guessed. It is fixed beforehand.
    """

    claim: Claim
    run: Run
    share: float = 1.0
    expense: int = 1

    def affordable(self, runs: int, confidence: float = CONFIDENCE) -> int:
        """Return how many canaries to take where a cheap mechanism is run `runs` times: enough to refute the claim."""
        return runs if self.expense == 1 else max(runs // self.expense, self._needed(confidence))

    def audit(
        self, canaries: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes
    ) -> EpsilonAudit:
        """Run the mechanism once with so many canaries, and bound its epsilon from below.

        The claim is refuted though it is true with probability at most 1 - confidence.
        """
        needed = self._needed(confidence)
        if canaries < needed:
            raise InputError(
                f"to refute epsilon = {self.claim.epsilon:g} with {100 * confidence:.10g}% confidence in one run at "
                f"least {needed:,} canaries are needed; got {canaries:,}. Ask for more canaries or less confidence."
            )
        coins = random_words(canaries, source) % 2 == 1
        guesses = surest_guesses(self.run(coins, source), max(1, int(canaries * self.share)))
        bound = one_run_bound(coins, guesses, delta=self.claim.delta, confidence=confidence)
        return EpsilonAudit(self.claim, bound)

    def _needed(self, confidence: float) -> int:
        guessed = canaries_needed(self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        return math.ceil(guessed / self.share)
