"""Fit a sift by a named method, verify it on rows that it was not made from, and say what it costs and leaks.

`METHODS` is a registry of learners to which other modules add (`register_method`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures
from blindsight.errors import InputError, UnknownNameError
from blindsight.metrics import Interval
from blindsight.progress import Progress, silent
from blindsight.sift.consent import consent_sentence, readings
from blindsight.sift.fitted import FittedSift, fingerprint
from blindsight.sift.harden import prepare
from blindsight.sift.labels import label_columns
from blindsight.sift.leace import LeacePLS
from blindsight.sift.personal import PersonalSift, drawn
from blindsight.sift.policy import Policy, PolicyReport
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.sift import Sift
from blindsight.sift.symbols import SymbolLearner, fit_posteriors
from blindsight.sift.trial import QUICK, Sifted, Trial, divide_rows
from blindsight.sift.union import certifiable
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier, rows_in_words

Released = NDArray[np.float32] | NDArray[np.int64]

_DIMENSIONS = 100  # features of the demo: of principal components the first, which carry more than noise


@dataclass(frozen=True)
class Settings:
    """What a learner is made of: numbers let out, weight of privacy, scaling of features, and who judges."""

    components: int
    privacy: float
    scale: bool
    verifier: Verifier


@dataclass(frozen=True)
class SiftMethod:
    """A way to make a sift, by its title; `weighs` where it takes a weight of privacy."""

    title: str
    learner: Callable[[Settings], SiftLearner]
    weighs: bool = False


METHODS: dict[str, SiftMethod] = {}


def register_method(name: str, method: SiftMethod) -> None:
    """Make a method known to `make_learner`; a name has one meaning."""
    if METHODS.setdefault(name, method) != method:
        raise InputError(f"a method called {name!r} is registered already. Choose another name.")


def words(attribute: str) -> str:
    return attribute.replace("_", " ")


class Guess(NamedTuple):
    """A guess of a private attribute: by whom, its balanced accuracy and interval."""

    who: str
    accuracy: float
    interval: Interval


def guesses(found: Verification, *, several: bool = False) -> list[Guess]:
    """Return a row per attacker, and one for all attackers where that is certified."""
    rows = [
        Guess(f"{r.attacker}: {words(r.attribute)}" if several else r.attacker, r.balanced_accuracy, r.interval)
        for r in found.results
    ]
    for one in found.certificates:
        name = f"anybody: {words(one.attribute)}" if several else "anybody, certified"
        rows.append(Guess(name, 0.5 + one.estimate, Interval(0.5 + one.estimate, 0.5 + one.bound)))
    return rows


def best_guess(found: Verification) -> float:
    """Of those that were tried, or of anybody where that is certified."""
    return 0.5 + max([found.priv_loss, *(one.estimate for one in found.certificates)])


@dataclass(frozen=True, eq=False)
class SiftResult:
    """One policy, what attackers read before and after sifting, and what else was measured."""

    policy: Policy
    check: PolicyReport
    raw: Mapping[str, float]  # balanced accuracy on each public attribute from raw features
    before: Verification
    sifted: Sequence[Sifted]
    faces: NDArray[np.uint8] | None = field(default=None, repr=False)
    """Some pictures that no sift was made from: with and without the public attribute, the private one first."""
    received: Sequence[Released] = field(default=(), repr=False)
    """What an app receives of those pictures, from each of `sifted`."""

    @property
    def threshold(self) -> float:
        return self.before.setting.threshold

    def to_dict(self) -> dict[str, Any]:
        """Return policy, ceilings and what the first sift costs and leaks, as plain data for JSON."""
        one = self.sifted[0]
        seen = one.found
        return {
            "digest": None if one.sift is None else one.sift.digest,
            "policy": {"public": list(self.policy.public), "private": list(self.policy.private)},
            "ceilings": dict(self.check.ceilings),
            "raw_accuracy": dict(self.raw),
            "raw_guess": self.before.best.balanced_accuracy,
            "accuracy": dict(one.accuracies),
            "pub_loss": one.pub_loss,
            "priv_loss": seen.priv_loss,
            "bound": seen.bound,
            "verdict": seen.verdict,
            "certificates": [certificate.to_dict() for certificate in seen.certificates],
            "statement": seen.statement.to_dict(),
        }

    def consent(self, one: Sifted) -> str:
        found = one.found
        return consent_sentence(
            self.policy.name or "X",
            [words(name) for name in self.policy.public],
            [words(name) for name in self.policy.private],
            readings(found),
            (),
            (),
            verdict=found.verdict,
            confidence=found.setting.confidence,
        )

    @classmethod
    def of(cls, trial: Trial, policy: Policy, sifted: Sequence[Sifted], dataset: Dataset) -> Self:
        check = policy.check(trial.data.labels, leak_cap=trial.verifier.threshold)
        faces, received = None, []
        if dataset.images is not None:
            _, judged = divide_rows(len(dataset), dataset.persons, trial.verifier.random_state)
            rows = _telling(dataset, policy, judged)
            faces = dataset.images[rows]
            received = [one.sift.apply(trial.data.features[rows]) for one in sifted if one.sift is not None]
        raw, before = trial.raw(policy.public), trial.before(policy.private)
        return cls(policy, check, raw, before, tuple(sifted), faces, received)


def make_learner(
    method: str, pipeline: FeaturePipeline, *, components: int, privacy: float | None, verifier: Verifier
) -> SiftLearner:
    """Return the learner of a method; `privacy` is by default 1.

    Principal components keep their own scale, or little more than two would exist.
    """
    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    if privacy is not None and not METHODS[method].weighs:
        weighing = " and ".join(name for name, one in METHODS.items() if one.weighs)
        raise InputError(f"privacy weighs hiding in {weighing} sifts; {method} has no such weight.")
    weight, scale = 1.0 if privacy is None else privacy, not isinstance(pipeline, PixelFeatures)
    return METHODS[method].learner(Settings(components, weight, scale, verifier))


def verify_fitted(
    given: FittedSift,
    dataset: Dataset,
    private: Sequence[str],
    verifier: Verifier,
    *,
    as_is: bool = False,
    personal: float | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> tuple[Sift, Verification]:
    """Attack a sift on those rows that it was not made from; return the version that was judged, and what was found.

    Judged is the platform's version (`harden.prepare`), or the sift `as_is`. A version that is hardened is fitted to a
    fifth of these rows, which then do not judge it. With `personal` its symbols are drawn by
    randomised response with this epsilon whenever it is applied (`PersonalSift`).
    """
    label_columns(dataset, private)  # an unknown attribute is named before any work is done
    unseen = dataset.take(given.unseen(dataset))
    features = given.extract(unseen, cache=cache, progress=progress)
    labels = {name: unseen.attribute(name) for name in unseen.attribute_names}
    rows = VerificationSet(features, labels, unseen.persons, fingerprint(unseen, given.pipeline))
    if not as_is and not certifiable([given.sift.alphabet], rows.private(private)):
        rows = rows.with_reference()  # to harden it on rows that do not judge it
    hidden = rows.private(private)
    judged = given.sift if as_is else prepare(given.sift, hidden, rows)
    public = {name: rows.labels[name] for name in given.policy.public if name in labels}
    progress(rows_in_words(judged, hidden, verifier), 0, None)
    drawing = None if personal is None else PersonalSift(judged, personal)  # or it is refused before any work
    found = verifier.verify((judged, rows.features), hidden, persons=rows.persons, public=public, progress=progress)
    if drawing is None:
        return judged, found
    return drawing, drawn(found, drawing.kept, drawing.epsilon)


def sift_demo(
    dataset: Dataset,
    features: NDArray[np.float32],
    *,
    public: str = "smiling",
    private: str = "male",
    random_state: int = 0,
    progress: Progress = silent,
) -> SiftResult:
    """Try one policy with PPLS and with certified symbols, in a few seconds, on features that are there already.

    `features` are principal components, the strongest first.
    """
    policy = Policy((public,), (private,), name="Smile camera")
    labels = {name: dataset.attribute(name) for name in (public, private)}
    data = VerificationSet(features[:, :_DIMENSIONS], labels, dataset.persons)
    progress("sifting", 0, 2)
    trial = Trial(data, verifier=Verifier(QUICK, random_state=random_state, stop_early=False, cross_fitted=0))
    makers = {"PPLS": trial.fit(PPLS(5, math.inf, scale=False), policy), "Symbols": _symbols(trial, policy)}
    progress("sifting", 1, 2)
    sifted = [trial.measure(name, sift, policy) for name, sift in makers.items()]
    progress("sifting", 2, 2)
    return SiftResult.of(trial, policy, sifted, dataset)


def _symbols(trial: Trial, policy: Policy) -> Sift:
    made_from, sides, seed = trial.developer, trial.sides(policy), trial.verifier.random_state
    posteriors = fit_posteriors(
        made_from.features, np.hstack(sides), persons=made_from.persons, networks=False, random_state=seed
    )
    judges = trial.judged.features if trial.judged.persons is None else np.unique(trial.judged.persons)
    return SymbolLearner(rows=len(judges), random_state=seed).fit_posteriors(posteriors, *sides).sift_


def _telling(dataset: Dataset, policy: Policy, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """A row with each combination of the first public and private attribute, as far as there are such rows."""
    told, hidden = (dataset.attribute(side[0])[rows] for side in (policy.public, policy.private))
    found = [np.flatnonzero((told == a) & (hidden == b)) for a in (1, 0) for b in (1, 0)]
    return np.array([rows[places[len(places) // 2]] for places in found if places.size], dtype=np.int64)


for _name, _method in {
    "ppls": SiftMethod("PPLS", lambda made: PPLS(made.components, made.privacy, scale=made.scale), weighs=True),
    "leace": SiftMethod("LEACE and PLS", lambda made: LeacePLS(made.components, scale=made.scale)),
    "symbol": SiftMethod(
        "Symbols",
        lambda made: SymbolLearner(
            leak=made.verifier.threshold,
            confidence=made.verifier.confidence,
            random_state=made.verifier.random_state,
        ),
    ),
}.items():
    register_method(_name, _method)
