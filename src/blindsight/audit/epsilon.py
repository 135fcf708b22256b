"""A lower bound on epsilon from running a mechanism: what it cannot be better than, with a stated confidence.

*The guarantee.* If a mechanism is (epsilon, delta)-differentially private, the bound exceeds epsilon with probability
at most 1 - `confidence`. It holds for every mechanism, every number of runs and every way to score what is released;
only how close the bound comes to the truth depends on them. A low bound proves nothing.

*How.* The mechanism is run on two neighbouring inputs, many times and independently. Privacy says of every event A

    P(A | first) <= e^epsilon P(A | second) + delta,    hence    epsilon >= ln((P(A | first) - delta) / P(A | second)),

and the same with the inputs exchanged. The first half of the runs chooses an event for either direction: of all
releases with a score above some threshold (below it for the exchanged inputs) those that promise most. Where the score
grows with the likelihood ratio, no event does better (Neyman and Pearson 1933). The second half counts how often the
chosen event happens. Four binomial rates are bounded (two events, two inputs), each by the exact limit of Clopper and
Pearson (Biometrika 1934) with a quarter of the allowed error. This is the test of Ding et al. ("Detecting violations of
differential privacy", CCS 2018) and of Jagielski, Ullman and Oprea ("Auditing differentially private machine learning",
NeurIPS 2020), the latter with both directions.

*Scores.* Any score gives a valid bound; one that grows with the likelihood ratio gives the best. Where the mechanism is
known so is its ratio, and nothing has to be learned (`known`). Otherwise a score is learned from releases:
`by_frequency` where there are few different ones, `by_coordinate` where there are many numbers or bits in each.

*What limits it.* n evaluated runs of each input cannot show more than about ln(n / ln(4 / (1 - confidence))), however
bad the mechanism is: see `runs_needed`.

*Gaussian noise* (`gaussian_bound`). At a small delta the telling events are rare, and the bound above stays far below
the truth. Of a mechanism whose noise is Gaussian, of unknown deviation, more is known: it is mu-GDP for some mu (Dong,
Roth and Su 2022), so the false alarms a and misses b of every test obey a + b >= 2 Phi(-mu / 2). A threshold is fixed
on a fifth of the runs. The errors of the n other runs of each input are a sum of 2n independent events of mean rate
(a + b) / 2; of all such sums the binomial one is likeliest to be small (Hoeffding 1956, Theorem 5, for counts one or
more below the mean), so the exact upper limit of Clopper and Pearson holds for (a + b) / 2 and gives mu >= -2 Phi^-1 of
it, hence the epsilon at delta (Balle and Wang 2018). Nothing is lost to a second rate or direction. If the mechanism is
mu-GDP the bound exceeds its epsilon with probability at most 1 - `confidence`; of other mechanisms it says that they
are not mu-GDP, which does not contradict an (epsilon, delta): use it where noise is Gaussian (Nasr et al. 2023).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from blindsight.audit.finding import clopper_pearson
from blindsight.dp.accounting import gaussian_epsilon
from blindsight.errors import InputError

CONFIDENCE = 0.999
"""The default. A true claim is refuted with probability 0.1% at most; some of n true ones, with n times that: 3% for a
table of thirty."""

Draws = NDArray[Any]
"""What was released in each run, one row per run."""

Score = Callable[[Draws], NDArray[np.float64]]
"""Tells for each release how much it speaks for the first input and against the second."""

Scorer = Callable[[Draws, Draws], Score]
"""Learns a score from releases of the two inputs; see `blindsight.audit.epsilon`."""

_CHOOSING = 5  # every fifth run chooses the threshold of a Gaussian bound
_TAILS = 4  # binomial rates that are bounded: two events, each under two inputs
_THRESHOLDS = 400


@dataclass(frozen=True, kw_only=True)
class Bound(ABC):
    """With this confidence the mechanism is not (epsilon, delta)-private for any epsilon below `lower`."""

    lower: float
    confidence: float
    delta: float

    @property
    @abstractmethod
    def most(self) -> float:
        """The largest bound that as many runs or guesses could have given."""

    @property
    @abstractmethod
    def attack(self) -> str:
        """How it was measured, in words."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return asdict(self) | {"most": self.most}


@dataclass(frozen=True, kw_only=True)
class EpsilonBound(Bound):
    """A bound by an event that one of two inputs shows more often.

    `runs` were made of each. Of those `evaluated`, the event happened in `hits` under the input where it is likelier
    and in `false_alarms` under the other.
    """

    runs: int
    evaluated: int
    hits: int
    false_alarms: int

    @property
    def most(self) -> float:
        return most_certifiable(self.runs, confidence=self.confidence, delta=self.delta)

    @property
    def attack(self) -> str:
        return f"neighbouring inputs, {self.runs:,} runs of each (at most {self.most:.2f} can be shown)"


def epsilon_bound(
    first: ArrayLike, second: ArrayLike, *, delta: float, scorer: Scorer, confidence: float = CONFIDENCE
) -> EpsilonBound:
    """Return a lower bound on epsilon from independent releases of two neighbouring inputs, one row per run.

    >>> from blindsight.audit.epsilon import by_frequency
    >>> lies = np.arange(4000) % 5 == 0  # every fifth answer: epsilon is ln 4 = 1.386
    >>> bound = epsilon_bound(lies, ~lies, delta=0.0, scorer=by_frequency)
    >>> round(bound.lower, 2), round(bound.most, 2), bound.hits, bound.false_alarms
    (1.19, 5.48, 1600, 400)
    """
    check_parameters(confidence, delta)
    scores = _scores(first, second, scorer, parts=2)
    runs, tail = len(scores[0]), (1 - confidence) / _TAILS
    half = runs // 2
    either = (scores, (-scores[1], -scores[0]))
    events = [_counts(likely, unlikely, half, delta, tail) for likely, unlikely in either]
    lowers = [float(loss_limit(*counts, runs - half, delta=delta, tail=tail)) for counts in events]
    best = int(np.argmax(lowers))
    hits, false_alarms = events[best]
    return EpsilonBound(
        lower=lowers[best],
        confidence=confidence,
        delta=delta,
        runs=runs,
        evaluated=runs - half,
        hits=hits,
        false_alarms=false_alarms,
    )


@dataclass(frozen=True, kw_only=True)
class GaussianBound(Bound):
    """A bound of Gaussian noise: with this confidence it is not `mu`-GDP for any smaller mu, and `lower` follows.

    `runs` were made of each of two inputs. Of those `evaluated`, `errors` of both were taken for the other input.
    """

    mu: float
    runs: int
    evaluated: int
    errors: int

    @property
    def most(self) -> float:
        return gaussian_loss(least_mu(0, self.evaluated, self.confidence), self.delta)

    @property
    def attack(self) -> str:
        return f"neighbouring inputs, {self.runs:,} runs of each, Gaussian trade-off (mu >= {self.mu:.3g})"


def gaussian_bound(
    first: ArrayLike, second: ArrayLike, *, delta: float, scorer: Scorer, confidence: float = CONFIDENCE
) -> GaussianBound:
    """Return a lower bound on the epsilon of Gaussian noise from independent releases of two neighbouring inputs.

    >>> noise = np.random.default_rng(0).standard_normal((2, 5000))  # mu = 1: epsilon is 4.89 at 1e-6
    >>> bound = gaussian_bound(noise[0] + 1, noise[1], delta=1e-6, scorer=known(np.asarray))
    >>> round(bound.mu, 2), round(bound.lower, 2)
    (0.84, 4.0)
    """
    check_parameters(confidence, delta)
    if not delta:
        raise InputError("Gaussian noise has no epsilon at delta 0. Name a delta.")
    likely, unlikely = _scores(first, second, scorer, parts=_CHOOSING)
    chosen = len(likely) // _CHOOSING
    threshold = np.median(np.concatenate([likely[:chosen], unlikely[:chosen]]))  # as many misses as false alarms
    errors = int(np.sum(likely[chosen:] < threshold) + np.sum(unlikely[chosen:] >= threshold))
    evaluated = len(likely) - chosen
    mu = least_mu(errors, evaluated, confidence)
    return GaussianBound(
        lower=gaussian_loss(mu, delta),
        mu=mu,
        confidence=confidence,
        delta=delta,
        runs=len(likely),
        evaluated=evaluated,
        errors=errors,
    )


def least_mu(errors: int, evaluated: int, confidence: float) -> float:
    """Return the least mu at which so few errors of 2n have a probability above 1 - confidence; 0 if there is none."""
    upper = float(clopper_pearson(errors, 2 * evaluated, 1 - confidence)[1])
    share = max(upper, (errors + 1) / (2 * evaluated))  # from there on Hoeffding's theorem holds
    return float(-2 * ndtri(share)) if share < 0.5 else 0.0


def gaussian_loss(mu: float, delta: float) -> float:
    """Return the epsilon of mu-GDP at a delta."""
    return gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0


def _scores(first: ArrayLike, second: ArrayLike, scorer: Scorer, *, parts: int) -> tuple[NDArray[np.float64], ...]:
    """Return the scores of all releases, learned from the first of so many parts of them."""
    releases = np.asarray(first), np.asarray(second)
    runs = len(releases[0])
    if len(releases[1]) != runs or runs < parts:
        raise InputError(f"both inputs need as many runs, at least {parts}; got {runs} and {len(releases[1])}.")
    score = scorer(releases[0][: runs // parts], releases[1][: runs // parts])
    scores = tuple(np.asarray(score(released), dtype=np.float64) for released in releases)
    if any(values.shape != (runs,) or np.isnan(values).any() for values in scores):
        raise InputError("a score must be one number, not NaN, for each release.")
    return scores


def runs_needed(epsilon: float, *, confidence: float = CONFIDENCE, delta: float = 0.0) -> int:
    """Return the fewest runs of each input with which a bound of `epsilon` can come out at all.

    The best that can happen is an event that all runs of one input show and none of the other.

    >>> runs_needed(1.0), runs_needed(8.0)
    (53, 49457)
    """
    check_parameters(confidence, delta)
    if not 0 <= epsilon <= 30:
        raise InputError(f"an epsilon to be certified by running must be in [0, 30]; got {epsilon}. More takes years.")
    share = (1 - delta) / (1 + math.exp(epsilon))  # 1 - tail^(1/n) must not exceed it
    evaluated = math.ceil(math.log((1 - confidence) / _TAILS) / math.log1p(-share))
    return max(2 * evaluated - 1, 2)


def most_certifiable(runs: int, *, confidence: float = CONFIDENCE, delta: float = 0.0) -> float:
    """Return the largest bound that so many runs of each input can give.

    >>> round(most_certifiable(100_000), 2)
    8.7
    """
    check_parameters(confidence, delta)
    evaluated = max(runs - runs // 2, 1)
    return float(loss_limit(evaluated, 0, evaluated, delta=delta, tail=(1 - confidence) / _TAILS))


def check_runs(runs: int, epsilon: float, *, confidence: float = CONFIDENCE, delta: float = 0.0) -> None:
    """Raise unless so many runs of each input can show more than this epsilon."""
    needed = runs_needed(epsilon, confidence=confidence, delta=delta)
    if runs < needed:
        most = most_certifiable(runs, confidence=confidence, delta=delta)
        raise InputError(
            f"to refute epsilon = {epsilon:g} with {100 * confidence:.10g}% confidence at least {needed:,} runs of "
            f"each input are needed; got {runs:,}, which show {most:.2f} at most. Ask for more runs or less confidence."
        )


def loss_limit(
    hits: ArrayLike, false_alarms: ArrayLike, trials: ArrayLike, *, delta: float, tail: float
) -> NDArray[np.float64]:
    """Return ln((rate of hits, at least - delta) / (rate of false alarms, at most)), or 0 where that is negative.

    It exceeds the true epsilon with a probability of at most twice `tail`.
    """
    surely = clopper_pearson(hits, trials, tail)[0] - delta
    at_most = clopper_pearson(false_alarms, trials, tail)[1]
    return np.asarray(np.log(np.maximum(surely / at_most, 1.0)))


def _counts(
    likely: NDArray[np.float64], unlikely: NDArray[np.float64], half: int, delta: float, tail: float
) -> tuple[int, int]:
    """Choose a threshold by the first half of the scores; count how often the other half reaches it."""
    threshold = _best_threshold(likely[:half], unlikely[:half], delta, tail)
    return int(np.sum(likely[half:] >= threshold)), int(np.sum(unlikely[half:] >= threshold))


def _best_threshold(likely: NDArray[np.float64], unlikely: NDArray[np.float64], delta: float, tail: float) -> float:
    """Return the score above which these runs alone would give the largest bound.

    Of all scores some hundred are tried, more closely spaced the rarer it is to exceed them.
    """
    pooled = np.sort(np.concatenate([likely, unlikely]))[::-1]
    ranks = np.unique(np.geomspace(1, pooled.size, _THRESHOLDS).astype(np.int64)) - 1
    thresholds = np.unique(pooled[ranks])
    reached = [values.size - np.searchsorted(np.sort(values), thresholds, side="left") for values in (likely, unlikely)]
    limits = loss_limit(reached[0], reached[1], likely.size, delta=delta, tail=tail)
    if limits.any():
        return float(thresholds[np.argmax(limits)])
    rates = reached[0] - reached[1]  # too few runs for a bound: the event that tells most apart
    return float(thresholds[np.argmax(rates)])


def check_parameters(confidence: float, delta: float) -> None:
    """Raise unless these are a confidence and a delta."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be in (0, 1); got {confidence}. Write 95% as 0.95.")
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in [0, 1); got {delta}.")


def known(score: Score) -> Scorer:
    """Return a scorer that learns nothing: the score is known beforehand."""
    return lambda first, second: score


def by_frequency(first: Draws, second: Draws) -> Score:
    """Score each release by the logarithm of how much more often it was seen from the first input.

    For releases (single values or rows) of which there are far fewer than runs. Half a sighting is added to each count,
    and releases that were never seen speak for neither input.
    """
    kinds, places = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
    seen = [np.bincount(part, minlength=len(kinds)) for part in np.split(places.ravel(), [len(first)])]
    ratios = np.log(seen[0] + 0.5) - np.log(seen[1] + 0.5)
    table = {kind.tobytes(): float(ratio) for kind, ratio in zip(kinds, ratios, strict=True)}

    def score(released: Draws) -> NDArray[np.float64]:
        found, where = np.unique(released, axis=0, return_inverse=True)
        return np.array([table.get(kind.tobytes(), 0.0) for kind in found])[where.ravel()]

    return score


def by_coordinate(first: Draws, second: Draws) -> Score:
    """Score rows of numbers or bits by the direction that tells the inputs apart, each coordinate by itself.

    Weights are the differences of the means over the mean variance (Fisher's discriminant with a diagonal covariance):
    the likelihood ratio of independent Gaussians, and of independent bits flipped with one probability.
    """
    rows = [np.reshape(part, (len(part), -1)).astype(np.float64) for part in (first, second)]
    gap = rows[0].mean(axis=0) - rows[1].mean(axis=0)
    spread = (rows[0].var(axis=0) + rows[1].var(axis=0)) / 2
    weights = gap / np.maximum(spread, max(float(spread.max()), 1e-30) * 1e-6)
    return lambda released: np.asarray(np.reshape(released, (len(released), -1)) @ weights)
