"""Was this picture among those a model was trained on? Membership inference, by the fit and by shadow models.

*What a figure means.* A coin decides which rows are trained on, so members and others differ in nothing else: whatever
tells them apart was learned. An attack at chance finds as many members as it suspects others, which proves nothing
about other attacks. A model that is epsilon, delta private per record admits no attack with TPR > e^epsilon FPR + delta
(for "replace" neighbours too: a member and a row left out trade places), so a measured TPR beyond that refutes it.

An attack that names a few members and is always right is worse than one that is right about everyone a little more
often than a coin; averages hide it (Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022).
So the figure is the share of members found (TPR) while at most 0.1% or 1% of the others are suspected (FPR).

*Why the intervals hold.* A row is suspected if its score is above the (k + 1)-th largest of n others' scores, k being
the others that may be suspected. That threshold knows nothing of the members, so their count above it is binomial. The
true FPR behind it has a Beta(k + 1, n - k) distribution (smaller where scores are equal), of which the upper end of
Clopper-Pearson's interval for k in n is the very quantile. The interval of the AUC is that of DeLong, DeLong and
Clarke-Pearson (Biometrics 1988) on the scale of log odds, where it is nearly exact from some dozen rows on; scores that
tell perfectly, or never, have no spread, and then min(members, others) disjoint pairs give an exact limit. Scores *tell
members* if that interval is above 0.5 and the rank test of Mann and Whitney (1947), which needs no more than that
members and others could have been exchanged, says so too. All take rows for independent draws.

*The fit.* A model is anything that scores how well it fits labelled rows, larger for better. Of a linear classifier it
is the margin, the score of the true class above the best other one: hinge and logistic loss fall as it grows, so it
orders rows as the loss does (of two classes, exactly), and it is nearly normal, which a loss is not. Of a hash function
it is minus the quantisation error mean_j (1 - |s_j|)^2 of the scores whose signs are the code: what ITQ minimises over
its rows, and SDH's codes are fitted to be such scores.

- `loss_threshold`: members fit better. S. Yeom et al., "Privacy Risk in Machine Learning: Analyzing the Connection to
  Overfitting", CSF 2018, suspect rows whose loss is below the mean training loss; here that threshold is moved, which
  gives the whole curve. It needs the model alone.
- `likelihood_ratio` (LiRA, Carlini et al.): a row that every model fits well says little about membership by being
  fitted well; one that only its owners' models fit gives them away. For each row the fit is taken for normal in
  *shadow* models, trained as the target was, with the row (in) and without (out). *Online*, each row is in a random
  half of the shadows, which are drawn from the rows under attack; the score is log N(fit; in) - log N(fit; out). The
  stronger attack, for an attacker who can train after it knows whom to look for. *Offline*, shadows are trained on
  `reference` rows, none of which is under attack; the score is how far the fit lies above that of the out models, in
  deviations. Below 32 models of a kind one deviation serves all rows, as the paper advises for few models.
- RMIA (`shadow_attacks`, with the same shadows): S. Zarifzadeh, P. Liu and R. Shokri, "Low-Cost High-Power Membership
  Inference Attacks", ICML 2024. Its score is the share of population rows z with (Pr(x | model) / Pr(x)) /
  (Pr(z | model) / Pr(z)) >= gamma, where Pr(x) is the mean over the shadows. That share grows with the ratio of x and
  with nothing else of it, so the ratio itself, which is taken here, has the same ROC curve. It needs a mean where the
  first needs a distribution, and so fewer shadows.

    Carlini et al.              here
    Q_in, Q_out                 `_Normal`
    N shadow models             `shadows`
    phi, the logit confidence   whatever the `Scorer` gives
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import mannwhitneyu, rankdata
from sklearn.metrics import roc_curve

from blindsight.audit.finding import Finding, Interval, Verdict, rate, tail
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining, train
from blindsight.learn.model import Classes, LinearModel
from blindsight.metrics.classification import finite
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.search.function import HashFunction, HashLearner
from blindsight.statement import PrivacyStatement

Scores = NDArray[np.float64]

LOW_FPRS = (0.001, 0.01)


@dataclass(frozen=True)
class OperatingPoint:
    """What is found at one threshold: members with a score above it, while the FPR may be `allowed`."""

    allowed: float
    threshold: float
    tpr: Interval
    fpr: Interval


@dataclass(frozen=True, eq=False)
class Roc:
    """The scores of members and others (larger: rather a member) and what they are worth."""

    members: Scores
    others: Scores
    auc: Interval
    p_value: float
    """Of the rank test: how likely scores that tell nothing of membership have so large an AUC."""
    points: tuple[OperatingPoint, ...]

    def tells(self) -> bool:
        """Whether members score higher than others; by luck alone with probability (1 - confidence) / 2 at most."""
        return self.p_value <= tail(self.auc.confidence) and self.auc.low > 0.5

    def __repr__(self) -> str:
        return f"Roc({len(self.members)} members, {len(self.others)} others, AUC {self.auc})"

    def curve(self) -> tuple[Scores, Scores]:
        """Return FPR and TPR at every threshold that makes a difference, from (0, 0) to (1, 1)."""
        marks = np.repeat([1, 0], [len(self.members), len(self.others)])
        fpr, tpr, _ = roc_curve(marks, np.concatenate([self.members, self.others]), drop_intermediate=False)
        return fpr, tpr


def measure(
    members: ArrayLike, others: ArrayLike, *, fprs: Sequence[float] = LOW_FPRS, confidence: float = 0.95
) -> Roc:
    """Return AUC and TPR at each of `fprs`; too few others for one of them are refused before anything is said."""
    inside, outside = (_scores(group, name) for group, name in ((members, "members"), (others, "non-members")))
    for allowed in fprs:
        if len(outside) < fewest_others(allowed):
            raise InputError(
                f"TPR at {allowed:.3g} FPR needs at least {fewest_others(allowed):,} non-members, of whom one is then "
                f"suspected; got {len(outside):,}. Hold more rows out, or ask for a larger FPR."
            )
    points = tuple(_operating_point(inside, outside, allowed, confidence) for allowed in fprs)
    return Roc(inside, outside, _area(inside, outside, confidence), _rank_test(inside, outside), points)


def fewest_others(fpr: float) -> int:
    """Return how many non-members a figure at this FPR needs: with fewer, the share is less than one of them.

    >>> fewest_others(0.001), fewest_others(0.01)
    (1000, 100)
    """
    if not 0 < fpr < 1:
        raise InputError(f"FPR must be in (0, 1); got {fpr}. Write 0.1% as 0.001.")
    return math.ceil(1 / fpr - 1e-9)


def _operating_point(members: Scores, others: Scores, allowed: float, confidence: float) -> OperatingPoint:
    n, most = len(others), math.floor(allowed * len(others) + 1e-9)
    threshold = float(np.sort(others)[::-1][most])
    suspected = int(np.sum(others > threshold))
    fpr = replace(
        rate(suspected, n, confidence=confidence), high=rate(most, n, confidence=confidence).high, counts=None
    )
    found = rate(int(np.sum(members > threshold)), len(members), confidence=confidence)
    return OperatingPoint(allowed, threshold, found, fpr)


def _area(members: Scores, others: Scores, confidence: float) -> Interval:
    """Return the chance that a member's score is above another's, a draw counting half, with DeLong's interval."""
    m, n = len(members), len(others)
    ranks = rankdata(np.concatenate([members, others]))
    above = (ranks[:m] - rankdata(members)) / n  # of each member: the share of others below it
    below = 1 - (ranks[m:] - rankdata(others)) / m
    area = float(above.mean())
    spread = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (above, below))
    if area in (0, 1):
        limit = tail(confidence) ** (1 / min(m, n))  # so many disjoint pairs, all the same way
        return Interval(area, limit if area else 0.0, 1.0 if area else 1 - limit, confidence)
    if not spread:  # all scores are equal
        return Interval(area, 0.0, 1.0, confidence)
    odds, reach = float(logit(area)), float(ndtri(1 - tail(confidence))) * math.sqrt(spread) / (area * (1 - area))
    return Interval(area, float(expit(odds - reach)), float(expit(odds + reach)), confidence)


def _rank_test(members: Scores, others: Scores) -> float:
    """Return the p-value of Mann and Whitney: exact for few scores without draws, else with their normal limit."""
    if np.ptp(np.concatenate([members, others])) == 0:
        return 1.0
    return float(mannwhitneyu(members, others, alternative="greater").pvalue)


def _scores(group: ArrayLike, name: str) -> Scores:
    array: NDArray[Any] = finite(group, f"scores of {name}", 1)
    return array.astype(np.float64)


Fit = NDArray[np.float64]
Scorer = Callable[[NDArray[Any], NDArray[Any]], Fit]
"""How well a trained model fits rows X with labels y, (n,): larger is better."""

Trainer = Callable[[NDArray[Any], NDArray[Any], int], Scorer]
"""Called as ``train(X, y, seed)``, returns the scorer of a model trained on these rows."""


@dataclass(frozen=True, eq=False)
class Game:
    """Rows, their labels, and which of them are members: trained on."""

    X: NDArray[Any]
    y: NDArray[Any]
    member: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.X.ndim < 2 or not len(self.X) == len(self.y) == len(self.member) or self.member.ndim != 1:
            raise InputError(
                f"a game needs a label and a mark per row; got {self.X.shape}, {self.y.shape}, {self.member.shape}."
            )
        if self.member.all() or not self.member.any():
            raise InputError("a game needs rows that were trained on and rows that were not; got one kind.")

    def __repr__(self) -> str:
        return f"Game({int(self.member.sum())} members of {len(self.member)})"

    def train(self, train: Trainer, seed: int) -> Scorer:
        """Train the target: on the members, and nothing else."""
        return train(self.X[self.member], self.y[self.member], seed)

    def fit_of(self, scorer: Scorer) -> Fit:
        """Return how well a model fits every row."""
        fit = np.asarray(scorer(self.X, self.y), dtype=np.float64)
        if fit.shape != (len(self.X),) or not np.isfinite(fit).all():
            raise InputError(f"a scorer gives one finite number per row, ({len(self.X)},); got shape {fit.shape}.")
        return fit


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """What one attack found out about one model."""

    attack: str
    roc: Roc


def loss_threshold(
    scorer: Scorer, game: Game, *, fprs: Sequence[float] = LOW_FPRS, confidence: float = 0.95
) -> MembershipResult:
    """Suspect the rows that the model fits best."""
    return result_of("loss threshold", game.fit_of(scorer), game, fprs=fprs, confidence=confidence)


def result_of(attack: str, scores: Fit, game: Game, *, fprs: Sequence[float], confidence: float) -> MembershipResult:
    """Return what an attack's scores are worth."""
    roc = measure(scores[game.member], scores[~game.member], fprs=fprs, confidence=confidence)
    return MembershipResult(attack, roc)


def findings(
    result: MembershipResult, target: str, *, source: str, epsilon: float | None = None, delta: float = 0.0
) -> tuple[Finding, ...]:
    """Return a row per operating point and one for the AUC; `target` names the model, `source` who speaks for it.

    With `epsilon` and `delta` (per record) the claim is that no attack does better than they allow. A row of a model
    that leaks nothing, or no more than it claims, says otherwise with probability at most 1 - confidence.
    """
    rows = [_point_finding(result, point, target, source, epsilon, delta) for point in result.roc.points]
    area = result.roc.auc
    verdict: Verdict = "leaks" if result.roc.tells() else "at chance"
    claim, proven = f"{target}: who was trained on does not show on average", "nothing about averages"
    if epsilon is None:
        source = "nobody"
    else:
        most = largest_auc(epsilon, delta)
        claim, proven = _exchanged(target, epsilon, delta), f"AUC is at most {most:.4g}"
        verdict = "refuted" if area.low > most else "not refuted" if result.roc.tells() else "at chance"
    row = Finding(
        claim=claim,
        source=source,
        proven=proven,
        measure=f"AUC of members against others (chance: 0.5; p = {result.roc.p_value:.2g} by ranks)",
        measured=area,
        verdict=verdict,
        chance=0.5,
        attack=result.attack,
        details=_sizes(result) | {"p-value": result.roc.p_value},
    )
    return (*rows, row)


def _exchanged(target: str, epsilon: float, delta: float) -> str:
    return f"{target}, one record exchanged for another: epsilon = {epsilon:.4g}, delta = {delta:.3g}"


def _point_finding(
    result: MembershipResult, point: OperatingPoint, target: str, source: str, epsilon: float | None, delta: float
) -> Finding:
    most = 1.0 if point.fpr.high is None else point.fpr.high  # the FPR may truly be that high
    if epsilon is None:
        claim, proven = f"{target}: who was trained on does not show", "nothing"
        verdict: Verdict = "leaks" if point.tpr.low > most else "at chance"
    else:
        claim = _exchanged(target, epsilon, delta)
        limit, said = (largest_tpr(fpr, epsilon, delta) for fpr in (most, point.allowed))
        proven = f"TPR is at most {said:.3g} at {point.allowed:.1%} FPR" if said < 1 else "nothing at so low an FPR"
        verdict = "refuted" if point.tpr.low > limit else "not refuted"
    return Finding(
        claim=claim,
        source=source,
        proven=proven,
        measure=f"TPR at {point.allowed:.1%} FPR (truly {most:.1%} at most)",
        measured=point.tpr,
        verdict=verdict,
        attack=result.attack,
        details=_sizes(result) | {"FPR": str(point.fpr)},
    )


def of_exchange(statement: PrivacyStatement | None) -> tuple[float | None, float]:
    """Return the epsilon and delta of exchanging a record for another: twice "one is there or not".

    Of members and others in fixed numbers one trades places with another. None: nothing is stated.
    """
    if statement is None or statement.guarantee != "differential privacy" or statement.epsilon is None:
        return None, 0.0
    epsilon, delta = statement.epsilon, statement.delta or 0.0
    if statement.neighbours == "replace":
        return epsilon, delta
    return 2 * epsilon, min((1 + math.exp(min(epsilon, 50.0))) * delta, 1 - 1e-12)


def largest_tpr(fpr: float, epsilon: float, delta: float) -> float:
    """Return the most members that any attack on an (epsilon, delta)-private model finds at this FPR.

    >>> round(largest_tpr(0.01, epsilon=1.0, delta=1e-6), 4)
    0.0272
    """
    if not epsilon >= 0 or not 0 <= delta < 1:
        raise InputError(f"epsilon must be >= 0 and delta in [0, 1); got {epsilon} and {delta}.")
    return min(1.0, math.exp(min(epsilon, 700.0)) * fpr + delta)


def largest_auc(epsilon: float, delta: float) -> float:
    """Return the area under the curve that no attack on an (epsilon, delta)-private model is above.

    >>> round(largest_auc(1.0, 0.0), 4), largest_auc(0.0, 0.0)
    (0.7311, 0.5)
    """
    corner = (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))  # FPR, and 1 - TPR, where the two limits meet
    return corner * (delta + 1 - corner) / 2 + (1 - delta - corner) * (2 - corner) / 2 + delta


def _sizes(result: MembershipResult) -> dict[str, Any]:
    return {"members": len(result.roc.members), "others": len(result.roc.others)}


Rows = NDArray[Any]


def margin_fit(model: LinearModel) -> Scorer:
    """Return a scorer by the margin of a classifier of one class per row."""
    labels = model.labels
    if not isinstance(labels, Classes):
        raise InputError("margins are those of a classifier that tells classes apart; got one of attributes.")

    def fit(X: Rows, y: Rows) -> Fit:
        scores, truth = np.asarray(model.decision_function(X), dtype=np.float64), labels.numbers(y)
        if scores.ndim == 1:
            return np.where(truth == 1, scores, -scores)
        own = np.take_along_axis(scores, truth[:, None], axis=1)[:, 0]
        others = np.where(np.arange(scores.shape[1]) == truth[:, None], -np.inf, scores)
        return np.asarray(own - others.max(axis=1))

    return fit


def linear_trainer(
    training: LinearTraining | None = None, *, classes: ArrayLike, standardiser: Standardiser, passes: int = 50
) -> Trainer:
    """Return a trainer of `learn`'s linear classifiers; `standardiser` was fitted on public rows, as there."""
    settings, labels = training or LinearTraining(), Classes(np.unique(np.asarray(classes)))

    def fitted(X: Rows, y: Rows, seed: int) -> Scorer:
        features = standardiser.apply(X)
        weights = train(features, labels.signs(y), settings, passes=passes, random_state=seed)
        return margin_fit(LinearModel(weights, standardiser, labels))

    return fitted


def federated_trainer(
    protocol: Mapping[str, Any], *, owners: int, public: tuple[Rows, Rows], classes: ArrayLike
) -> Trainer:
    """Return a trainer that replays a run of `learn classifier`: rounds, sparsity and noise of the `protocol`.

    Rows are dealt out to so many owners. Sums are added up in the clear, as every scheme leads to the same model.
    """
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.rounds import Privacy, Sums

    sums = Sums.sending("plain", sparsity=protocol["sparsity"])
    privacy = Privacy(**protocol["privacy"]) if "privacy" in protocol else None
    rounds, known = protocol["rounds"], np.asarray(classes)

    def fitted(X: Rows, y: Rows, seed: int) -> Scorer:
        parts = np.array_split(science(seed).permutation(len(X)), owners)
        learner = FederatedClassifier(sums, rounds=rounds, privacy=privacy, classes=known, random_state=seed)
        learner.fit([(X[part], y[part]) for part in parts], public=public)
        return margin_fit(learner.model_)

    return fitted


def code_fit(function: HashFunction) -> Scorer:
    """Return a scorer by the quantisation error of codes; labels are not looked at."""

    def fit(X: Rows, y: Rows) -> Fit:
        return np.asarray(-np.mean((1 - np.abs(function.scores(X).astype(np.float64))) ** 2, axis=1))

    return fit


def hash_trainer(make: Callable[[int], HashLearner]) -> Trainer:
    """Return a trainer of hash functions; `make` is given a seed and returns a learner to be fitted."""

    def fitted(X: Rows, y: Rows, seed: int) -> Scorer:
        return code_fit(make(seed).fit(X, y).function_)

    return fitted


FEWEST_SHADOWS = 4
_OWN_DEVIATION = 32
_SMALLEST = 1e-12
_OFFLINE = 1 / 3  # the paper's a: how far models that had a row are taken to fit it better than those that had not


def likelihood_ratio(target: Scorer, game: Game, train: Trainer, **options: Any) -> MembershipResult:
    """Return the first of `shadow_attacks`."""
    return shadow_attacks(target, game, train, **options)[0]


def shadow_attacks(
    target: Scorer,
    game: Game,
    train: Trainer,
    *,
    shadows: int = 16,
    reference: tuple[ArrayLike, ArrayLike] | None = None,
    fprs: Sequence[float] = LOW_FPRS,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[MembershipResult, MembershipResult]:
    """Attack `target` by likelihood ratio and by RMIA with so many shadow models: online, or offline with `reference`.

    Shadows of an online attack have about half of the game's rows each, those of an offline attack half of the
    reference rows (X, y): give twice as many as the target has members, for models that are alike.
    """
    if shadows < FEWEST_SHADOWS or shadows % 2:
        raise InputError(f"shadows must be an even number, at least {FEWEST_SHADOWS}; got {shadows}.")
    generator, fit = science(random_state), game.fit_of(target)
    if reference is None:
        chosen = _halves(shadows, len(game.X), generator)
        fits = _fits(train, (game.X, game.y), chosen, game, generator, progress)
        inside, outside = _Normal.of(fits, chosen), _Normal.of(fits, ~chosen)
        ratios = inside.log_density(fit) - outside.log_density(fit)
        known = _likelihoods(fits, fits).mean(axis=0)
    else:
        rows = np.asarray(reference[0]), np.asarray(reference[1])
        fits = _fits(train, rows, _halves(shadows, len(rows[0]), generator), game, generator, progress)
        outside = _Normal.of(fits, np.ones_like(fits, dtype=np.bool_))
        ratios = (fit - outside.mean) / outside.deviation
        known = ((1 + _OFFLINE) * _likelihoods(fits, fits).mean(axis=0) + 1 - _OFFLINE) / 2
    relative = np.log(np.maximum(_likelihoods(fit, fits), 1e-300)) - np.log(np.maximum(known, 1e-300))
    way = f"{'online' if reference is None else 'offline'}, {shadows} shadows"
    lira, rmia = (
        result_of(f"{name}, {way}", scores, game, fprs=fprs, confidence=confidence)
        for name, scores in (("likelihood ratio", ratios), ("relative likelihood (RMIA)", relative))
    )
    return lira, rmia


def _likelihoods(fit: Fit, fits: NDArray[np.float64]) -> Fit:
    """Return the probability of the true label behind a fit, which is taken for its log odds, in deviations."""
    return np.asarray(expit(fit / (float(fits.std()) or 1.0)))


def _halves(shadows: int, rows: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Return who has which row, (shadows, rows): every row is in half of the shadows."""
    return np.asarray(np.argsort(generator.random((shadows, rows)), axis=0) < shadows // 2)


def _fits(
    train: Trainer,
    rows: tuple[NDArray[Any], NDArray[Any]],
    chosen: NDArray[np.bool_],
    game: Game,
    generator: np.random.Generator,
    progress: Progress,
) -> NDArray[np.float64]:
    """Return how well each shadow fits the rows of the game, (shadows, rows)."""
    X, y = rows
    fits = np.empty((len(chosen), len(game.X)))
    for shadow, mine in enumerate(chosen):
        progress("training shadow models", shadow, len(chosen))
        fits[shadow] = game.fit_of(train(X[mine], y[mine], int(generator.integers(2**31))))
    progress("training shadow models", len(chosen), len(chosen))
    return fits


@dataclass(frozen=True, eq=False)
class _Normal:
    """The fits of each row, as a normal distribution."""

    mean: Fit
    deviation: Fit

    @classmethod
    def of(cls, fits: NDArray[np.float64], counted: NDArray[np.bool_]) -> "_Normal":
        """Estimate it from the models that count for a row, as many for every row."""
        models = int(counted[:, 0].sum())
        mean = np.where(counted, fits, 0.0).sum(axis=0) / models
        variance = np.where(counted, (fits - mean) ** 2, 0.0).sum(axis=0) / (models - 1)
        if models < _OWN_DEVIATION:
            variance = np.full_like(variance, variance.mean())
        return cls(mean, np.sqrt(np.maximum(variance, _SMALLEST)))

    def log_density(self, fit: Fit) -> Fit:
        standardised = (fit - self.mean) / self.deviation
        return np.asarray(-(standardised**2) / 2 - np.log(self.deviation) - math.log(2 * math.pi) / 2)


_SHADOWS = 16  # at effort 1
_ERROR = 0.05  # of all rows together


def audit_members(
    scorer: Scorer,
    game: Game,
    train: Trainer,
    target: str,
    *,
    effort: float,
    seed: int,
    source: str = "nobody",
    epsilon: float | None = None,
    delta: float = 0.0,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Look for members by all three attacks, with more shadows the greater the effort, at the FPRs that rows can show.

    Where there are too few others for any of them, it is said which is the nearest. Some row of a model that leaks
    nothing, or no more than it claims, says otherwise with probability at most 5%, of which each has its share.
    """
    others = int((~game.member).sum())
    fprs = tuple(fpr for fpr in LOW_FPRS if others >= fewest_others(fpr)) or LOW_FPRS[-1:]
    how: dict[str, Any] = {"fprs": fprs, "confidence": 1 - _ERROR / (3 * len(fprs) + 3)}
    by_loss = loss_threshold(scorer, game, **how)
    shadows = max(FEWEST_SHADOWS, 2 * round(_SHADOWS * effort / 2))
    by_shadows = shadow_attacks(scorer, game, train, shadows=shadows, random_state=seed, progress=progress, **how)
    claim: dict[str, Any] = {"source": source, "epsilon": epsilon, "delta": delta}
    return tuple(row for found in (by_loss, *by_shadows) for row in findings(found, target, **claim))
