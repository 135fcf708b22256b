"""Was this picture among those a model was trained on? Membership inference, by the fit and by the likelihood ratio.

*What a figure means.* A coin decides which rows are trained on, so members and others differ in nothing else: whatever
tells them apart was learned. An attack at chance finds as many members as it suspects others, which proves nothing
about other attacks. A model that is epsilon, delta private per record admits no attack with TPR > e^epsilon FPR + delta
(for "replace" neighbours too: a member and a row left out trade places), so a measured TPR beyond that refutes it.

- `loss_threshold`: members fit better. S. Yeom et al., "Privacy Risk in Machine Learning: Analyzing the Connection to
  Overfitting", CSF 2018, suspect rows whose loss is below the mean training loss; here that threshold is moved, which
  gives the whole curve. It needs the model alone.
- `likelihood_ratio` (`shadow`): the fit is compared with that of the same row in models trained with and without it.
  N. Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022. It needs the way of training.

A model is anything that scores how well it fits labelled rows, larger for better (`fits` makes such scorers of linear
classifiers and of hash functions): only its order matters to the first attack, its distribution also to the second.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Verdict
from blindsight.audit.roc import LOW_FPRS, OperatingPoint, Roc, measure
from blindsight.errors import InputError

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
    row = Finding(
        claim=f"{target}: who was trained on does not show on average",
        source="nobody",
        proven="nothing about averages",
        measure=f"AUC of members against others (chance: 0.5; p = {result.roc.p_value:.2g} by ranks)",
        measured=area,
        verdict=verdict,
        attack=result.attack,
        details=_sizes(result) | {"p-value": result.roc.p_value},
    )
    return (*rows, row)


def _point_finding(
    result: MembershipResult, point: OperatingPoint, target: str, source: str, epsilon: float | None, delta: float
) -> Finding:
    most = 1.0 if point.fpr.high is None else point.fpr.high  # the FPR may truly be that high
    if epsilon is None:
        claim, proven = f"{target}: who was trained on does not show", "nothing"
        verdict: Verdict = "leaks" if point.tpr.low > most else "at chance"
    else:
        claim = f"{target}: epsilon = {epsilon:g}, delta = {delta:g} per record"
        limit = largest_tpr(most, epsilon, delta)
        proven = f"TPR is at most {largest_tpr(point.allowed, epsilon, delta):.3g} at {point.allowed:.1%} FPR"
        verdict = "refuted" if point.tpr.low > limit else "not refuted"
    return Finding(
        claim=claim,
        source=source,
        proven=proven,
        measure=f"TPR at {point.allowed:.1%} FPR",
        measured=point.tpr,
        verdict=verdict,
        attack=result.attack,
        details=_sizes(result) | {"FPR": str(point.fpr)},
    )


def largest_tpr(fpr: float, epsilon: float, delta: float) -> float:
    """Return the most members that any attack on an (epsilon, delta)-private model finds at this FPR.

    >>> round(largest_tpr(0.01, epsilon=1.0, delta=1e-6), 4)
    0.0272
    """
    if not epsilon >= 0 or not 0 <= delta < 1:
        raise InputError(f"epsilon must be >= 0 and delta in [0, 1); got {epsilon} and {delta}.")
    return min(1.0, math.exp(min(epsilon, 700.0)) * fpr + delta)


def _sizes(result: MembershipResult) -> dict[str, Any]:
    return {"members": len(result.roc.members), "others": len(result.roc.others)}
