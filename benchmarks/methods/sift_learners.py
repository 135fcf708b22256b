"""The library's own makers of sifts."""

import numpy as np

from benchmarks.methods.sifting import Released, SiftingData, key, released_by_each
from blindsight.sift.adversarial import AdversarialSift
from blindsight.sift.leace import LeacePLS
from blindsight.sift.ppls import PPLS
from blindsight.sift.symbollearner import SymbolLearner, fit_posteriors

LEAKS = {"label": 0.5, "capped": 0.10, "parity": 0.0}
"""Kinds of one-bit releases by the leak that is allowed."""


def ppls(given: SiftingData, *, seed: int, components: int, privacy: float | str) -> Released:
    """Release numbers of PPLS; an infinite `privacy` is the text "inf"."""
    return released_by_each(given, lambda: PPLS(components, float(privacy), scale=given.scale))


def leace(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release numbers of linear erasure and partial least squares."""
    return released_by_each(given, lambda: LeacePLS(components, scale=given.scale))


def adversarial(given: SiftingData, *, seed: int, components: int) -> Released:
    """Release numbers of an encoder trained against adversaries; needs torch."""
    return released_by_each(given, lambda: AdversarialSift(components, random_state=seed))


def symbols(given: SiftingData, *, seed: int, kinds: str) -> Released:
    """Release one bit of each of the `kinds`, names with spaces between; every attribute is learned once."""
    names = list(dict.fromkeys(name for policy in given.policies for name in policy))
    columns = np.stack([given.labels[name] for name in names], axis=1)
    posteriors = fit_posteriors(given.features, columns, names=names, random_state=seed)
    wanted, answer = kinds.split(), Released()
    for policy in given.policies:
        pair, sides = posteriors.select([names.index(name) for name in policy]), [given.labels[name] for name in policy]
        for kind in wanted:
            learner = SymbolLearner(leak=LEAKS[kind], rows=len(given.judged), random_state=seed)
            sift = learner.fit_posteriors(pair, *sides).sift_
            answer[key(policy, kind if len(wanted) > 1 else "")] = sift.apply(given.judged)
    return answer
