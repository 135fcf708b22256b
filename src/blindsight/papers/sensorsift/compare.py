"""Sifts compared (section 6.2): the trade-off of PPLS (Figure 3), and sifts for one policy by every method.

`trade_off` draws Figure 3: accuracies of public and private attributes as K grows, for each lambda. The PPLS sift of K
numbers is the first K columns of any longer one, so one fit per lambda is enough. The verdicts of `compare_sifts` hold
*all* together (Bonferroni), so the best row may be chosen by looking.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.sensorsift.adversarial import AdversarialSift
from blindsight.progress import Progress, silent
from blindsight.sift.harden import harden
from blindsight.sift.labels import label_columns
from blindsight.sift.leace import LeacePLS
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS, FewerComponentsWarning
from blindsight.sift.sift import LinearSift, Sift
from blindsight.sift.symbols import Posteriors, SymbolLearner, fit_posteriors
from blindsight.sift.trial import RAW, Method, Sifted, Trial, by_learner, ignoring
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Sifts of one policy by lambda, in order of K; those of more components than the features hold are missing."""

    policy: Policy
    raw: Mapping[str, float]  # from raw features: the dashed line of Figure 3
    curves: Mapping[float, tuple[Sifted, ...]]  # one panel of Figure 3 for each lambda
    problems: Mapping[float, str]  # why there is no sift at some lambda

    @property
    def best(self) -> tuple[float, Sifted] | None:
        """The accepted sift that costs least and its lambda, or None if none was accepted."""
        every = ((privacy, one) for privacy, curve in self.curves.items() for one in curve)
        accepted = [pair for pair in every if pair[1].verdict == "accept"]
        return min(accepted, key=lambda pair: (pair[1].pub_loss, pair[1].numbers), default=None)

    def to_dict(self) -> dict[str, Any]:
        curves = [(str(privacy), one.to_dict()) for privacy, curve in self.curves.items() for one in curve]
        points = [{"privacy": privacy, "components": one["numbers"]} | one for privacy, one in curves]
        problems = [{"privacy": str(privacy), "problem": problem} for privacy, problem in self.problems.items()]
        names = {"public": list(self.policy.public), "private": list(self.policy.private)}
        return names | {"raw": dict(self.raw), "points": points, "problems": problems}


def trade_off(
    trial: Trial,
    policy: Policy,
    *,
    components: Sequence[int] = (1, 2, 5, 10, 15),
    privacies: Sequence[float] = (0.0, 0.1, 1.0, 10.0, math.inf),
    method: PPLS | None = None,
    progress: Progress = silent,
) -> TradeOff:
    """Measure PPLS for every K in `components` and every lambda in `privacies`; `method` holds its other settings."""
    if not components or not privacies or min(components) < 1:
        raise InputError(f"name at least one lambda and one number of components, 1 or more; got {list(components)}.")
    settings = {} if method is None else method.get_params()
    curves: dict[float, tuple[Sifted, ...]] = {}
    problems: dict[float, str] = {}
    for done, privacy in enumerate(privacies):
        progress("trade-off", done, len(privacies))
        learner = PPLS(**settings | {"n_components": max(components), "privacy": privacy})
        try:
            with ignoring(FewerComponentsWarning):
                sift = trial.fit(learner, policy)
        except InputError as error:
            problems[privacy] = str(error)
            continue
        assert isinstance(sift, LinearSift)
        counts = sorted({count for count in components if count <= sift.width})
        shorter = (replace(sift, matrix=sift.matrix[:, :count]) for count in counts)
        curves[privacy] = tuple(trial.measure(f"K = {one.width}", one, policy) for one in shorter)
    progress("trade-off", len(privacies), len(privacies))
    return TradeOff(policy, trial.raw(policy.public), curves, problems)


def compare_sifts(
    data: VerificationSet,
    policy: Policy,
    *,
    methods: Mapping[str, Method] | Iterable[str] | None = None,
    verifier: Verifier | None = None,
    scale: bool = True,
    progress: Progress = silent,
) -> list[Sifted]:
    """Make a sift by every method and measure it; the first row is that of the raw features.

    `methods` are some names of `standard_methods` (default: all), or other functions by name. All verdicts together
    have the confidence of the `verifier` (default: modern attackers). `scale` is that of the linear learners (False for
    principal components). A method that cannot be used keeps its error sentence.
    """
    judge = Verifier() if verifier is None else verifier
    known = standard_methods(threshold=judge.threshold, scale=scale, random_state=judge.random_state)
    chosen = known if methods is None else dict(methods) if isinstance(methods, Mapping) else _by_name(methods, known)
    if not chosen:
        raise InputError("there is no method to compare; name at least one.")
    label_columns(data.labels, policy.public + policy.private)
    each = 1 - (1 - judge.confidence) / len(chosen)
    trial = Trial(data, verifier=replace(judge, confidence=each, stop_early=False))
    rows = [Sifted(RAW, None, trial.raw(policy.public), 0.0, trial.before(policy.private), 0.0)]
    for done, (name, method) in enumerate(chosen.items()):
        progress("comparing sifts", done, len(chosen))
        rows.append(trial.attempt(name, method, policy))
    progress("comparing sifts", len(chosen), len(chosen))
    return rows


def _by_name(names: Iterable[str], known: Mapping[str, Method]) -> dict[str, Method]:
    asked = list(names)
    for name in asked:
        if name not in known:
            raise UnknownNameError("method", name, known)
    return {name: known[name] for name in asked}


def standard_methods(*, threshold: float = 0.10, scale: bool = True, random_state: int = 0) -> dict[str, Method]:
    """Return all methods by name; posteriors for symbols are learned once for all of them."""

    @cache
    def posteriors(trial: Trial, policy: Policy) -> Posteriors:
        rows, names = trial.developer, policy.public + policy.private
        columns = label_columns(rows.labels, names)
        return fit_posteriors(rows.features, columns, names=names, persons=rows.persons, random_state=random_state)

    def symbols(leak: float) -> Method:
        def make(trial: Trial, policy: Policy) -> Sift:
            learner = SymbolLearner(leak=leak, confidence=trial.verifier.confidence, random_state=random_state)
            known, persons = posteriors(trial, policy), trial.developer.persons
            return trial.named(learner.fit_posteriors(known, *trial.sides(policy), persons=persons).sift_, policy)

        return make

    def hardened(trial: Trial, policy: Policy) -> Sift:
        sift = trial.fit(PPLS(5, math.inf, scale=scale), policy)
        assert isinstance(sift, LinearSift)
        return harden(sift, trial.developer.features)

    return {
        "PLS 5": by_learner(PPLS(5, 0.0, scale=scale)),
        "PPLS 5, lambda 1": by_learner(PPLS(5, 1.0, scale=scale)),
        "PPLS 5, lambda 10": by_learner(PPLS(5, 10.0, scale=scale)),
        "PPLS 5, lambda inf": by_learner(PPLS(5, math.inf, scale=scale)),
        "PPLS 1, lambda inf": by_learner(PPLS(1, math.inf, scale=scale)),
        "PPLS 5, lambda inf, hardened": hardened,
        "LEACE + PLS 5": by_learner(LeacePLS(5, scale=scale)),
        "adversarial 5": by_learner(AdversarialSift(5, random_state=random_state)),
        "adversarial 1": by_learner(AdversarialSift(1, random_state=random_state)),
        "label": symbols(0.5),
        "parity": symbols(0.0),
        "symbol": symbols(threshold),
    }
