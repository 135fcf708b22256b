"""The likelihood ratio attack: how a row fits, against how it fits models that had it and models that had not.

N. Carlini et al., "Membership Inference Attacks From First Principles", S&P 2022 (LiRA). A row that every model fits
well says little about membership by being fitted well; one that only its owners' models fit gives them away. For each
row the fit is taken for normal in *shadow* models, trained as the target was, with the row (in) and without (out):

- *online*: each row is in a random half of the shadows, which are drawn from the rows under attack; the score is
  log N(fit; in) - log N(fit; out). The stronger attack, for an attacker who can train after it knows whom to look for.
- *offline*: shadows are trained on `reference` rows, none of which is under attack; the score is how far the fit lies
  above that of the out models, in deviations.

With few shadows the deviations of single rows are poorly known. Below 32 models of a kind one deviation serves all
rows, as the paper advises for few models.

    paper                       here
    Q_in, Q_out                 `_Normal`
    N shadow models             `shadows`
    phi, the logit confidence   whatever the `Scorer` gives
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.membership import Fit, Game, MembershipResult, Scorer, Trainer, result_of
from blindsight.audit.roc import LOW_FPRS
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science

FEWEST_SHADOWS = 4
_OWN_DEVIATION = 32
_SMALLEST = 1e-12


def likelihood_ratio(
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
) -> MembershipResult:
    """Attack `target` with so many shadow models: online, or offline where `reference` rows (X, y) are given.

    Shadows of an online attack have about half of the game's rows each, those of an offline attack half of the
    reference: give twice as many reference rows as the target has members, for models that are alike.
    """
    if shadows < FEWEST_SHADOWS or shadows % 2:
        raise InputError(f"shadows must be an even number, at least {FEWEST_SHADOWS}; got {shadows}.")
    generator, fit = science(random_state), game.fit_of(target)
    if reference is None:
        chosen = _halves(shadows, len(game.X), generator)
        fits = _fits(train, (game.X, game.y), chosen, game, generator, progress)
        inside, outside = _Normal.of(fits, chosen), _Normal.of(fits, ~chosen)
        return result_of(
            f"likelihood ratio, online, {shadows} shadows",
            inside.log_density(fit) - outside.log_density(fit),
            game,
            fprs=fprs,
            confidence=confidence,
        )
    rows = np.asarray(reference[0]), np.asarray(reference[1])
    fits = _fits(train, rows, _halves(shadows, len(rows[0]), generator), game, generator, progress)
    outside = _Normal.of(fits, np.ones_like(fits, dtype=np.bool_))
    scores = (fit - outside.mean) / outside.deviation
    attack = f"likelihood ratio, offline, {shadows} shadows"
    return result_of(attack, scores, game, fprs=fprs, confidence=confidence)


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
