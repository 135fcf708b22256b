"""A policy on trial: sifts for it are made from one part of the pictures, attacked and measured on the other.

The parts are those of `lossbench`: two fifths of the rows are the developer's, nobody is on two sides. What attackers
read off raw features stands beside what a sift leaves them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from blindsight.progress import Progress, silent
from blindsight.sift.lossbench import DEVELOPER, QUICK_VERIFIER, LossBench, Losses, SiftLearner
from blindsight.sift.policy import Policy
from blindsight.sift.publicclassifier import RAW_CLASSIFIERS
from blindsight.sift.sift import Sift
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Sifted:
    """A sift by a name people understand, with what it costs and leaks."""

    name: str
    sift: Sift
    losses: Losses


class Trial:
    """One policy on the rows of `data`, judged by `verifier`, whose `random_state` also divides the rows."""

    def __init__(self, data: VerificationSet, policy: Policy, *, verifier: Verifier = QUICK_VERIFIER) -> None:
        self.data, self.policy, self.verifier = data, policy, verifier
        names = policy.public + policy.private
        self._bench = LossBench(data.features, data.labels, names, verifier=verifier, persons=data.persons)

    @cached_property
    def judged(self) -> VerificationSet:
        """The rows that no sift is made from."""
        return self.data.divide(DEVELOPER, random_state=self.verifier.random_state)[1]

    @cached_property
    def raw(self) -> Mapping[str, float]:
        """Balanced accuracy of the best classifier on each public attribute, from raw features."""
        return {name: self._bench.raw_accuracy(name) for name in self.policy.public}

    def before(self) -> Verification:
        """Attack raw features: what an app could guess if nothing were sifted."""
        verifier = replace(self.verifier, attackers=RAW_CLASSIFIERS, stop_early=False)
        private = self.judged.private(self.policy.private)
        return verifier.verify(self.judged.features, private, persons=self.judged.persons)

    def sifted(self, name: str, learner: SiftLearner, *, progress: Progress = silent) -> Sifted:
        """Fit a sift to the developer's rows and measure it on the others."""
        sift = self._bench.fit(learner, self.policy)
        return Sifted(name, sift, self._bench.losses(sift, self.policy, progress=progress))
