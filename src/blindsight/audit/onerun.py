"""A lower bound on epsilon from a single run, into which many canaries fit.

*The guarantee.* Each of m canaries is in the data or out of it (or is one record or another) by a fair coin of its own.
The mechanism runs once; from what it releases the auditor guesses r of the coins and abstains from the others. If it is
(epsilon, delta)-differentially private in each canary, at least v guesses are right with probability at most

    P(W >= v) + (1 - q) delta m / r * (b_0 + ... + b_(r-1)),    q = e^epsilon / (1 + e^epsilon), W ~ Binomial(r, q),

where b_j is the largest probability of Binomial(j, q). The bound on epsilon is how far that stays below 1 - confidence.
m, r, v are `canaries`, `guesses`, `correct`. With delta = 0 the limit cannot be improved, as randomised response on
every coin attains it, and r may depend on the release. With delta > 0 it must be fixed before, and nothing can be shown
unless m delta / sqrt(r) is well below 1 - confidence.

*The paper.* Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023. With delta = 0 the
limit is theirs. With delta > 0 their term is 2 m delta max over i of P(v > W >= v - i) / i (`published_p_value`), which
is not a limit for every v: of 3 coins guess each of the 8 answers equally often, but the one that is wrong in all three
less often by 7 delta / 8, the others more by delta / 8. That is (0, delta)-private, and at least one guess is right
with probability 7/8 + 7 delta / 8 instead of 7/8 + 6 delta / 8. So ours is another. Bounds from it
were no lower wherever they were compared.

*Proof*, and a program that finds the mechanism above: docs/audit.md, "One run with delta above zero".

*What limits it.* m canaries that are all guessed right show about ln(m / ln(1 / (1 - confidence))): as much as that
many runs on neighbouring inputs. But a mechanism whose canaries disturb each other shows less than it could.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc, gammaln, xlog1py, xlogy

from blindsight.audit.epsilon import CONFIDENCE, Bound, check_parameters
from blindsight.errors import InputError

_MOST = 60.0  # an epsilon that no number of canaries reaches
_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class OneRunBound(Bound):
    """A bound by one run: of `canaries` coins, `guesses` were guessed and `correct` of them right."""

    canaries: int
    guesses: int
    correct: int

    @property
    def most(self) -> float:
        return largest_epsilon(self.canaries, self.guesses, self.guesses, self.delta, 1 - self.confidence)

    @property
    def attack(self) -> str:
        counts = f"{self.correct:,} of {self.guesses:,} guesses right"
        return f"one run with {self.canaries:,} canaries, {counts} (at most {self.most:.2f} can be shown)"


def one_run_bound(coins: ArrayLike, guesses: ArrayLike, *, delta: float, confidence: float = CONFIDENCE) -> OneRunBound:
    """Return a lower bound on epsilon from the coins of the canaries and guesses of them.

    `coins` are truth values from fair, independent coins; guesses are +1 (true), -1 (false) or 0 (none).

    >>> coins = np.arange(1000) % 2 == 0
    >>> guesses = np.where(np.arange(1000) < 900, 1, -1) * np.where(coins, 1, -1)  # nine of ten right
    >>> round(one_run_bound(coins, guesses, delta=1e-6, confidence=0.95).lower, 2)
    2.02
    """
    truth, said = np.asarray(coins), np.asarray(guesses)
    if truth.dtype != np.bool_ or truth.ndim != 1 or truth.shape != said.shape or not truth.size:
        raise InputError(
            f"there must be a coin, true or false, and a guess for each canary; got {truth.dtype} {truth.shape} and "
            f"{said.shape}."
        )
    if not np.isin(said, (-1, 0, 1)).all():
        raise InputError("a guess is +1 (true), -1 (false) or 0 (none).")
    check_parameters(confidence, delta)
    made = int(np.count_nonzero(said))
    correct = int(np.sum(np.where(truth, said > 0, said < 0)))
    return OneRunBound(
        lower=largest_epsilon(truth.size, made, correct, delta, 1 - confidence),
        confidence=confidence,
        delta=delta,
        canaries=truth.size,
        guesses=made,
        correct=correct,
    )


def surest_guesses(scores: ArrayLike, guesses: int) -> NDArray[np.int64]:
    """Return the signs of so many scores that are furthest from 0, and 0 (no guess) for the others.

    A score of exactly 0 is never guessed. So where delta > 0, scores must not be 0 with any notable probability.

    >>> surest_guesses([0.1, 5.0, -3.0, 0.2], 2)
    array([ 0,  1, -1,  0])
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or not 1 <= guesses <= values.size or np.isnan(values).any():
        raise InputError(f"there must be a score for each canary and 1 to {values.size} guesses; got {guesses}.")
    surest = np.argsort(-np.abs(values), kind="stable")[:guesses]
    said = np.zeros(values.size, dtype=np.int64)
    said[surest] = np.sign(values[surest])
    return said


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return a limit of how likely so many guesses are right if the mechanism is (epsilon, delta)-private.

    >>> one_run_p_value(canaries=100, guesses=10, correct=10, epsilon=0.0, delta=0.0) == 2.0**-10
    True
    """
    if not 0 <= correct <= guesses <= canaries:
        raise InputError(f"correct <= guesses <= canaries must hold; got {correct}, {guesses} and {canaries}.")
    check_parameters(0.5, delta)
    if not epsilon >= 0:
        raise InputError(f"epsilon must be at least 0; got {epsilon}.")
    if not correct:
        return 1.0
    truth = 1 / (1 + math.exp(-epsilon))
    likely = float(bdtrc(correct - 1, guesses, truth))
    if delta == 0:
        return likely
    left = np.arange(guesses)  # j
    largest = _binomial(left, np.floor((left + 1) * truth).clip(max=left), truth)  # b_j
    return min(1.0, likely + delta * canaries * (1 - truth) * float(largest.mean()))


def published_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Return the paper's p-value, to compare with; where delta > 0 it is not one for every number of right guesses."""
    pure = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=0.0)
    if not correct:
        return pure
    windows = np.arange(1, correct + 1)  # i
    within = np.cumsum(_binomial(guesses, correct - windows, 1 / (1 + math.exp(-epsilon))))  # P(v > W >= v - i)
    return min(1.0, pure + 2 * canaries * delta * float(np.max(within / windows)))


def canaries_needed(epsilon: float, *, confidence: float = CONFIDENCE, delta: float = 0.0) -> int:
    """Return the fewest canaries with which a bound of `epsilon` can come out: all of them guessed right.

    >>> canaries_needed(1.0, confidence=0.95), canaries_needed(8.0)
    (10, 20596)
    """
    check_parameters(confidence, delta)
    if not 0 <= epsilon <= 30:
        raise InputError(f"an epsilon to be certified in one run must be in [0, 30]; got {epsilon}.")
    wanted = 1 - confidence

    def enough(number: int) -> bool:
        return one_run_p_value(canaries=number, guesses=number, correct=number, epsilon=epsilon, delta=delta) <= wanted

    fewest = math.ceil(math.log(wanted) / -math.log1p(math.exp(-epsilon)) - 1e-9)
    if delta == 0 or enough(fewest):
        return fewest
    few, many = fewest, 2 * fewest
    if not enough(many):
        raise InputError(
            f"no number of canaries certifies epsilon = {epsilon:g} at delta = {delta:g} with {100 * confidence:.10g}% "
            "confidence in one run: delta counts for each canary. Ask for a smaller delta."
        )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if enough(middle) else (middle, many)
    return many


def largest_epsilon(canaries: int, guesses: int, correct: int, delta: float, wanted: float) -> float:
    """Return the largest epsilon that so many right guesses rule out, or 0."""

    def ruled_out(epsilon: float) -> bool:
        p = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return p <= wanted

    low, high = 0.0, _MOST
    if not ruled_out(low):
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if ruled_out(middle) else (low, middle)
    return low


def _binomial(trials: ArrayLike, successes: ArrayLike, rate: float) -> NDArray[np.float64]:
    """Return probabilities of numbers of successes."""
    n, k = np.asarray(trials, dtype=np.float64), np.asarray(successes, dtype=np.float64)
    chooses = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(chooses + xlogy(k, rate) + xlog1py(n - k, -rate)))
