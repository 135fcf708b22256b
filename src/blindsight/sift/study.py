"""What one policy comes to: attackers before and after sifting, the trade-off, regions, the matrix of policies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, FeaturePipeline, PixelFeatures
from blindsight.errors import InputError
from blindsight.metrics import Interval
from blindsight.progress import Progress, silent
from blindsight.sift.adversarial import AdversarialSift
from blindsight.sift.analysis import PixelRegions, PolicyMatrix, attribute_regions, policy_matrix, sift_regions
from blindsight.sift.consent import consent_sentence, readings
from blindsight.sift.fitted import FittedSift, fingerprint
from blindsight.sift.harden import prepare
from blindsight.sift.labels import label_columns
from blindsight.sift.leace import LeacePLS
from blindsight.sift.personal import PersonalSift, drawn
from blindsight.sift.policy import Policy, PolicyReport
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.sift import LinearSift, Sift
from blindsight.sift.symbols import SymbolLearner, fit_posteriors
from blindsight.sift.trial import QUICK, Sifted, TradeOff, Trial, divide_rows, trade_off
from blindsight.sift.union import certifiable
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier, rows_in_words

Released = NDArray[np.float32] | NDArray[np.int64]

MethodName = Literal["ppls", "leace", "symbol", "adversarial"]
METHODS: Mapping[MethodName, str] = {
    "ppls": "PPLS",
    "leace": "LEACE and PLS",
    "symbol": "Symbols",
    "adversarial": "Adversarial network",
}

_AVERAGED = 300  # pictures of the average face
_DIMENSIONS = 100  # features of the demo: of principal components the first, which carry more than noise
_MOST_EVEN = 6  # attributes of a matrix where nobody names them


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
    average: NDArray[np.uint8] | None = field(default=None, repr=False)
    regions: Mapping[str, PixelRegions] = field(default_factory=dict)
    trade_off: TradeOff | None = None
    matrix: PolicyMatrix | None = None

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
    def of(
        cls,
        trial: Trial,
        policy: Policy,
        sifted: Sequence[Sifted],
        dataset: Dataset,
        *,
        regions: Mapping[str, PixelRegions] | None = None,
        trade_off: TradeOff | None = None,
        matrix: PolicyMatrix | None = None,
    ) -> Self:
        check = policy.check(trial.data.labels, leak_cap=trial.verifier.threshold)
        faces, received, average = None, [], None
        if dataset.images is not None:
            _, judged = divide_rows(len(dataset), dataset.persons, trial.verifier.random_state)
            rows = _telling(dataset, policy, judged)
            faces = dataset.images[rows]
            received = [one.sift.apply(trial.data.features[rows]) for one in sifted if one.sift is not None]
            average = np.rint(dataset.images[judged[:_AVERAGED]].mean(axis=0)).astype(np.uint8)
        raw, before = trial.raw(policy.public), trial.before(policy.private)
        gathered = (policy, check, raw, before, tuple(sifted), faces, received, average)
        return cls(*gathered, regions or {}, trade_off, matrix)


def make_learner(
    method: MethodName, pipeline: FeaturePipeline, *, components: int, privacy: float | None, verifier: Verifier
) -> SiftLearner:
    """`privacy` is by default 1. Principal components keep their own scale, or little more than two would exist."""
    scale, seed = not isinstance(pipeline, PixelFeatures), verifier.random_state
    if method in ("leace", "symbol"):
        if privacy is not None:
            raise InputError(f"privacy weighs hiding in ppls and adversarial sifts; {method} has no such weight.")
        if method == "leace":
            return LeacePLS(components, scale=scale)
        return SymbolLearner(leak=verifier.threshold, confidence=verifier.confidence, random_state=seed)
    weight = 1.0 if privacy is None else privacy
    if method == "ppls":
        return PPLS(components, weight, scale=scale)
    return AdversarialSift(components, weight, random_state=seed)


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


def study_sift(
    dataset: Dataset,
    trial: Trial,
    policy: Policy,
    found: Sifted,
    learner: SiftLearner,
    pipeline: FeaturePipeline,
    *,
    progress: Progress = silent,
) -> SiftResult:
    """Measure the trade-off of PPLS, and where in a picture attributes are seen."""
    data, curves, regions = trial.data, None, {}
    if isinstance(learner, PPLS):
        numbers = sorted({1, 2, 5, learner.n_components, 2 * learner.n_components})
        weights = sorted({0.0, learner.privacy, math.inf})
        curves = trade_off(trial, policy, components=numbers, privacies=weights, method=learner, progress=progress)
    if dataset.images is not None and isinstance(pipeline, PixelFeatures):
        regions = attribute_regions(data.features, data.labels, policy.public + policy.private, pipeline)
        if isinstance(found.sift, LinearSift):
            regions["where the sift looks"] = sift_regions(found.sift, pipeline)
    return SiftResult.of(trial, policy, [found], dataset, regions=regions, trade_off=curves)


def sift_demo(
    dataset: Dataset,
    features: NDArray[np.float32],
    *,
    pipeline: PixelFeatures | None = None,
    public: str = "smiling",
    private: str = "male",
    others: Sequence[str] = ("youth", "beard", "hat"),
    random_state: int = 0,
    progress: Progress = silent,
) -> SiftResult:
    """Try one policy with PPLS and with certified symbols, in a few seconds, on features that are there already.

    `features` are principal components, the strongest first; with the `pipeline` they come from, maps show where the
    attributes are seen. `others` join the two attributes in the matrix of policies.
    """
    policy = Policy((public,), (private,), name="Smile camera")
    names = (public, private, *others)
    labels = {name: dataset.attribute(name) for name in names}
    data = VerificationSet(features[:, :_DIMENSIONS], labels, dataset.persons)
    progress("sifting", 0, 4)
    trial, light = (
        Trial(data, verifier=Verifier(attackers, random_state=random_state, stop_early=False, cross_fitted=0))
        for attackers in (QUICK, QUICK[:2])
    )
    makers = {"PPLS": trial.fit(PPLS(5, math.inf, scale=False), policy), "Symbols": _symbols(trial, policy)}
    sifted = [trial.measure(name, sift, policy) for name, sift in makers.items()]
    progress("sifting", 1, 4)
    method, weights = PPLS(scale=False), (0.0, 1.0, math.inf)
    curves = trade_off(light, policy, components=(1, 2, 3, 5, 8), privacies=weights, method=method)
    progress("sifting", 2, 4)
    matrix = policy_matrix(light, names, method=method)
    progress("sifting", 3, 4)
    regions = {} if pipeline is None else attribute_regions(features, labels, names, pipeline)
    result = SiftResult.of(trial, policy, sifted, dataset, regions=regions, trade_off=curves, matrix=matrix)
    progress("sifting", 4, 4)
    return result


def most_even(dataset: Dataset) -> tuple[str, ...]:
    """Return the six attributes with most pictures on their rarer side, in the order of the collection."""
    counts = {
        name: min(int((dataset.attribute(name) == value).sum()) for value in (0, 1)) for name in dataset.attribute_names
    }
    chosen = sorted(counts, key=lambda name: -counts[name])[:_MOST_EVEN]
    return tuple(name for name in dataset.attribute_names if name in chosen)


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
