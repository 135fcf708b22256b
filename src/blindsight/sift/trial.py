"""A policy on trial: sifts for it are made from one part of the pictures, attacked and measured on the other.

The parts are those of `lossbench`: two fifths of the rows are the developer's, nobody is on two sides. What attackers
read off raw features stands beside what a sift leaves them.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.data.partition import Indices, split
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent
from blindsight.sift.fitted import fingerprint
from blindsight.sift.labels import label_columns
from blindsight.sift.lossbench import DEVELOPER, QUICK_VERIFIER, LossBench, Losses, SiftLearner
from blindsight.sift.policy import Policy
from blindsight.sift.publicclassifier import RAW_CLASSIFIERS
from blindsight.sift.sift import Sift
from blindsight.sift.symbollearner import SymbolLearner
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Sifted:
    """A sift by a name people understand, with what it costs and leaks."""

    name: str
    sift: Sift
    losses: Losses


def divide_rows(rows: int, persons: ArrayLike | None, random_state: int) -> tuple[Indices, Indices]:
    """Return the rows that sifts (and features that learn) are made from, and those that they are judged by."""
    shares = (DEVELOPER, 1 - DEVELOPER)
    develop, judge = split(np.zeros(rows), shares, persons=persons, stratify=False, random_state=random_state)
    return develop, judge


def prepare_data(
    dataset: Dataset,
    pipeline: FeaturePipeline,
    *,
    random_state: int = 0,
    cache: AnyPath | None = None,
    progress: Progress = silent,
) -> VerificationSet:
    """Make features of a labelled collection; a pipeline that learns is fitted to the developer's pictures alone."""
    developer, _ = divide_rows(len(dataset), dataset.persons, random_state)
    features = extract(dataset, pipeline, fit_to=developer, cache=cache, progress=progress)
    labels = {name: dataset.attribute(name) for name in dataset.attribute_names}
    return VerificationSet(features, labels, dataset.persons, fingerprint(dataset, pipeline))


class Trial:
    """One policy on the rows of `data`, judged by `verifier`, whose `random_state` also divides the rows."""

    def __init__(self, data: VerificationSet, policy: Policy, *, verifier: Verifier = QUICK_VERIFIER) -> None:
        self.data, self.policy, self.verifier = data, policy, verifier
        self.developer, self.judged = data.divide(DEVELOPER, random_state=verifier.random_state)
        names = policy.public + policy.private
        self._bench = LossBench(data.features, data.labels, names, verifier=verifier, persons=data.persons)

    @cached_property
    def raw(self) -> Mapping[str, float]:
        """Balanced accuracy of the best classifier on each public attribute, from raw features."""
        return {name: self._bench.raw_accuracy(name) for name in self.policy.public}

    @cached_property
    def before(self) -> Verification:
        """Attacks on raw features: what an app could guess if nothing were sifted."""
        verifier = replace(self.verifier, attackers=RAW_CLASSIFIERS, stop_early=False)
        private = self.judged.private(self.policy.private)
        return verifier.verify(self.judged.features, private, persons=self.judged.persons)

    def fit(self, learner: SiftLearner) -> Sift:
        """Return the sift that a fresh copy of the learner makes from the developer's rows, named by the policy."""
        made_from, fresh = self.developer, copy.deepcopy(learner)
        sides = [label_columns(made_from.labels, side) for side in (self.policy.public, self.policy.private)]
        if isinstance(fresh, SymbolLearner):
            fresh.fit(made_from.features, *sides, persons=made_from.persons)
        else:
            fresh.fit(made_from.features, *sides)
        sift: Sift = replace(fresh.sift_, pipeline=self.data.pipeline, name=str(self.policy))
        return sift

    def measure(self, name: str, sift: Sift, *, progress: Progress = silent) -> Sifted:
        """Return what a sift costs and leaks on the rows that it was not made from."""
        return Sifted(name, sift, self._bench.losses(sift, self.policy, progress=progress))
