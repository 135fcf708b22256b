"""Every way to sift side by side under one policy, and the one that serves the app best among those that are accepted.

All sifts are made from the same rows and judged on the same others, by the same attackers (`trial`). Whoever takes the
best of many verdicts takes the luckiest as well, so each is given with so much confidence that *all* of them hold
together (Bonferroni): the best row may be chosen by looking.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from numpy.typing import ArrayLike

from blindsight.errors import InputError, MissingExtraError, UnknownNameError
from blindsight.metrics import Interval
from blindsight.progress import Progress, silent
from blindsight.sift.adversarial import AdversarialSift
from blindsight.sift.attackers import Attacker
from blindsight.sift.harden import harden
from blindsight.sift.labels import Labelled, check_persons, label_columns
from blindsight.sift.leace import LeacePLS
from blindsight.sift.learner import FewerComponentsWarning
from blindsight.sift.lossbench import SiftLearner
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift, Sift
from blindsight.sift.symbollearner import Posteriors, SymbolLearner, fit_posteriors
from blindsight.sift.trial import Trial
from blindsight.sift.verdict import Verdict, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.validation import check_shape

Method = Callable[[Trial], Sift]
"""Makes a sift from the developer's rows of a trial."""

RAW = "raw features"


@dataclass(frozen=True, eq=False)
class SiftRow:
    """What one method costs and leaks; where it gave no sift, figures are NaN and `problem` says why."""

    method: str
    sift: Sift | None = None
    accuracies: Mapping[str, float] = field(default_factory=dict)
    """Balanced accuracy of the best classifier on each public attribute."""
    pub_loss: float = math.nan
    """Mean over the public attributes, from the best classifier on raw features."""
    verification: Verification | None = None
    cpu_seconds: float = math.nan
    """To make the sift."""
    problem: str = ""

    @property
    def numbers(self) -> int | None:
        """How many numbers are let out, None for the raw features."""
        return None if self.sift is None else self.sift.width

    @property
    def alphabet(self) -> int | None:
        """How many different releases there can be; None where they are real numbers."""
        return None if self.sift is None else self.sift.alphabet

    @property
    def verdict(self) -> Verdict | None:
        """What may be done with the sift."""
        return None if self.verification is None else self.verification.verdict

    @property
    def priv_loss(self) -> float:
        """What the best attacker gained over a blind guess, by balanced accuracy."""
        return math.nan if self.verification is None else self.verification.priv_loss

    @property
    def interval(self) -> Interval:
        """Of `priv_loss`; the intervals of all attackers and methods hold together."""
        if self.verification is None:
            return Interval(math.nan, math.nan)
        low, high = self.verification.best.interval
        return Interval(low - 0.5, high - 0.5)

    @property
    def paper_priv_loss(self) -> float:
        """The most that an attacker gained by the paper's Eq. 5."""
        if self.verification is None:
            return math.nan
        return max(result.mean_precision for result in self.verification.results) - 0.5

    @property
    def bound(self) -> float:
        """Upper limit of PrivLoss: of every attacker there can be where `certified`, else of those on the list."""
        return math.nan if self.verification is None else self.verification.bound

    @property
    def certified(self) -> bool:
        """Whether `bound` is a certificate's."""
        return self.verification is not None and self.verification.certified

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for strict JSON; what does not exist is None."""
        names = ("method", "numbers", "alphabet", "pub_loss", "priv_loss", "paper_priv_loss", "bound", "certified")
        figures = {name: getattr(self, name) for name in (*names, "verdict", "cpu_seconds", "problem")}
        plain = {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()
        }
        interval = None if self.verification is None else list(self.interval)
        return plain | {"accuracies": dict(self.accuracies), "interval": interval}


def compare_sifts(
    X: ArrayLike,
    labels: Labelled,
    policy: Policy,
    *,
    methods: Mapping[str, Method] | Iterable[str] | None = None,
    threshold: float = 0.10,
    confidence: float = 0.95,
    attackers: Literal["paper", "modern"] | Sequence[Attacker] = "modern",
    persons: ArrayLike | None = None,
    scale: bool = True,
    pipeline: str = "",
    random_state: int = 0,
    progress: Progress = silent,
) -> list[SiftRow]:
    """Make a sift by every method and measure it; the first row is that of the raw features.

    `methods` are some names of `standard_methods`, or other functions by name; all standard ones without it. `scale`
    is that of the linear learners (False for principal components). A method that cannot be used keeps its sentence.
    """
    known = standard_methods(policy, threshold=threshold, scale=scale, random_state=random_state)
    chosen = _chosen(methods, known)
    each = 1 - (1 - confidence) / len(chosen)
    verifier = Verifier(attackers, threshold, each, random_state=random_state, stop_early=False)
    names, features = policy.public + policy.private, check_shape(X)
    columns = dict(zip(names, label_columns(labels, names).T, strict=True))
    who = check_persons(persons, features.shape[0])
    trial = Trial(VerificationSet(features, columns, who, pipeline), policy, verifier=verifier)
    rows = [SiftRow(RAW, None, dict(trial.raw), 0.0, trial.before, 0.0)]
    for done, (name, method) in enumerate(chosen.items()):
        progress("comparing sifts", done, len(chosen))
        rows.append(_row(name, method, trial))
    progress("comparing sifts", len(chosen), len(chosen))
    return rows


def best(rows: Iterable[SiftRow]) -> SiftRow | None:
    """Return the accepted sift of the lowest PubLoss, of equals the one that lets out least; None if there is none."""
    accepted = [row for row in rows if row.sift is not None and row.verdict == "accept"]
    return min(accepted, key=lambda row: (row.pub_loss, row.alphabet or math.inf, row.numbers), default=None)


def standard_methods(
    policy: Policy, *, threshold: float = 0.10, scale: bool = True, random_state: int = 0
) -> dict[str, Method]:
    """Return all methods by name; what symbols need to know of the attributes is learned once for all of them."""

    @cache
    def posteriors(trial: Trial) -> Posteriors:
        made_from, names = trial.developer, policy.public + policy.private
        columns = label_columns(made_from.labels, names)
        return fit_posteriors(
            made_from.features, columns, names=names, persons=made_from.persons, random_state=random_state
        )

    def symbols(leak: float) -> Method:
        def make(trial: Trial) -> Sift:
            made_from = trial.developer
            sides = (label_columns(made_from.labels, side) for side in (policy.public, policy.private))
            learner = SymbolLearner(leak=leak, confidence=trial.verifier.confidence, random_state=random_state)
            sift = learner.fit_posteriors(posteriors(trial), *sides, persons=made_from.persons).sift_
            return replace(sift, pipeline=trial.data.pipeline, name=str(policy))

        return make

    return {
        "PLS 5": _by(PPLS(5, 0.0, scale=scale)),
        "PPLS 5, lambda 1": _by(PPLS(5, 1.0, scale=scale)),
        "PPLS 5, lambda 10": _by(PPLS(5, 10.0, scale=scale)),
        "PPLS 5, lambda inf": _by(PPLS(5, math.inf, scale=scale)),
        "PPLS 1, lambda inf": _by(PPLS(1, math.inf, scale=scale)),
        "PPLS 5, lambda inf, hardened": _hardened(PPLS(5, math.inf, scale=scale)),
        "LEACE + PLS 5": _by(LeacePLS(5, scale=scale)),
        "adversarial 5": _by(AdversarialSift(5, random_state=random_state)),
        "adversarial 1": _by(AdversarialSift(1, random_state=random_state)),
        "label": symbols(0.5),
        "parity": symbols(0.0),
        "symbol": symbols(threshold),
    }


def _by(learner: SiftLearner) -> Method:
    return lambda trial: trial.fit(learner)


def _hardened(learner: SiftLearner) -> Method:
    def make(trial: Trial) -> Sift:
        sift = trial.fit(learner)
        assert isinstance(sift, LinearSift)
        return harden(sift, trial.developer.features)

    return make


def _chosen(methods: Mapping[str, Method] | Iterable[str] | None, known: dict[str, Method]) -> dict[str, Method]:
    if methods is None:
        return known
    if isinstance(methods, Mapping):
        chosen = dict(methods)
    else:
        names = list(methods)
        for name in names:
            if name not in known:
                raise UnknownNameError("method", name, known)
        chosen = {name: known[name] for name in names}
    if not chosen:
        raise InputError("there is no method to compare; name at least one.")
    return chosen


def _row(name: str, method: Method, trial: Trial) -> SiftRow:
    begun = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerComponentsWarning)  # the row says how many numbers there are
            sift = method(trial)
        seconds = time.process_time() - begun
        losses = trial.measure(name, sift).losses
    except (InputError, MissingExtraError) as error:
        return SiftRow(name, problem=str(error))
    return SiftRow(name, sift, losses.accuracies, losses.pub_loss, losses.verification, seconds)
