"""What becomes of an app's sift on the platform: attacked as it is, made the platform's own, reduced to few symbols."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.sifting import Labels
from benchmarks.suites.sift_matrix.pictures import People
from benchmarks.suites.sift_matrix.scores import CONFIDENCE, THRESHOLD
from blindsight.metrics import balanced_accuracy, priv_loss
from blindsight.sift.attackers import LOOKUP, Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.cheats import Cheat
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift
from blindsight.sift.trial import QUICK
from blindsight.sift.verify import Verifier

NUMBERS, LEVELS = 3, 2
"""Of the sift that is certified: so many numbers of a sift at most, of so many levels each."""

Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Platform:
    """People to verify with, the public and the private attribute, and attackers: the paper's, and everybody."""

    people: People
    policy: tuple[str, str]
    published: Sequence[Attacker]
    everybody: Sequence[Attacker]

    def __call__(self, cheat: Cheat) -> dict[str, float]:
        """Return what is read off the cheat as the app wrote it, and off what the platform makes of it."""
        released = cheat.release(self._features)
        scores = {"decoded": self._decoded(cheat, released), "serves": self._serves(released)}
        for kind, attackers in (("paper", self.published), ("all", self.everybody)):
            scores |= self._attacked(kind, attackers, released)
        if cheat.sift is not None:
            return scores | self._hardened(cheat, cheat.sift)
        return scores | (self._counted(released) if released.dtype.kind in "iu" else {})

    @property
    def _features(self) -> NDArray[np.float32]:
        return self.people.features[self.people.developers :]

    def _labels(self, role: int) -> Labels:
        return self.people.labels[self.policy[role]][self.people.developers :]

    def _hardened(self, cheat: Cheat, sift: LinearSift) -> dict[str, float]:
        """Return what is read off the platform's own version, and what its symbols can tell at most."""
        own = harden(sift, self._features)
        released = own.apply(self._features)
        table = (LOOKUP,) if own.width == 1 else ()
        scores = self._attacked("hardened", (*table, *self.everybody), released)
        scores |= {"hardened/numbers": own.width, "hardened/serves": self._serves(released)}
        if own.width == sift.width:
            scores["hardened/decoded"] = self._decoded(cheat, released)
        few = replace(own, matrix=own.matrix[:, :NUMBERS], quantiser=None)
        apart = self.people.features[: self.people.developers]  # levels must not be chosen on rows that are counted
        return scores | self._counted(with_few_levels(few, apart, LEVELS).apply(self._features))

    def _attacked(self, kind: str, attackers: Sequence[Attacker], released: Array) -> dict[str, float]:
        verifier = Verifier(attackers, THRESHOLD, CONFIDENCE, stop_early=False)
        found = verifier.verify(released, {self.policy[1]: self._labels(1)})
        low = max(result.interval.low for result in found.results) - 0.5
        return {f"{kind}/reads": found.priv_loss, f"{kind}/low": low, f"{kind}/limit": found.bound}

    def _decoded(self, cheat: Cheat, released: Array) -> float:
        return priv_loss(balanced_accuracy(self._labels(1), cheat.decode(released)))

    def _serves(self, released: Array) -> float:
        """Return the balanced accuracy of the public attribute, as a tuned linear classifier reads it."""
        return Verifier(QUICK[:1]).verify(released, {self.policy[0]: self._labels(0)}).best.balanced_accuracy

    def _counted(self, symbols: Array) -> dict[str, float]:
        found = certify(symbols, self._labels(1), confidence=CONFIDENCE)
        return {"symbols/count": found.symbols, "symbols/estimate": found.estimate, "symbols/bound": found.bound}
