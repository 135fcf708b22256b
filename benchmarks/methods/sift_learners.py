"""The library's own makers of sifts."""

import numpy as np

from benchmarks.methods.sifting import Released, SiftingData, key, released_by_each
from blindsight.sift.adversarial import AdversarialSift
from blindsight.sift.leace import LeacePLS
from blindsight.sift.ppls import PPLS
from blindsight.sift.symbols import SymbolLearner, fit_posteriors

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


def more_symbols(given: SiftingData, *, seed: int, symbols: str) -> Released:
    """Release one of so many symbols, each number of them in turn; several private attributes are capped jointly."""
    names = list(dict.fromkeys(name for policy in given.policies for part in policy for name in part.split("+")))
    pairs = dict.fromkeys(tuple(private.split("+")) for _, private in given.policies if "+" in private)
    learned = {name: given.labels[name] for name in names}
    learned |= {"+".join(pair): given.labels[pair[0]] ^ given.labels[pair[1]] for pair in pairs}
    columns = np.stack(list(learned.values()), axis=1)
    posteriors = fit_posteriors(given.features, columns, names=list(learned), networks=False, random_state=seed)
    answer = Released()
    for public, private in given.policies:
        hidden = private.split("+")
        wanted = [public, *hidden, *([private] if len(hidden) > 1 else [])]
        chosen = posteriors.select([list(learned).index(name) for name in wanted])
        sides = given.labels[public], np.stack([given.labels[name] for name in hidden], axis=1)
        for count in map(int, symbols.split()):
            learner = SymbolLearner(count, leak=0.10, rows=len(given.judged), random_state=seed)
            answer[key((public, private), str(count))] = learner.fit_posteriors(chosen, *sides).sift_.symbols(
                given.judged
            )
    return answer
