"""A mechanism on trial: what is said of it, two neighbouring inputs that tell most, and the verdict of running it.

Where neighbouring inputs would need thousands of runs, one run on thousands of records, each of which is one of two by
a secret coin, is as good (`onerun`), and it puts to the test what is really done: learning from all records and
releasing all of them together.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import (
    CONFIDENCE,
    Bound,
    Draws,
    Scorer,
    check_runs,
    epsilon_bound,
    gaussian_bound,
    known,
    runs_needed,
)
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.onerun import canaries_needed, one_run_bound, surest_guesses
from blindsight.dp.accounting import check_positive
from blindsight.dp.mechanisms import LaplaceMechanism
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, random_words, system_bytes
from blindsight.sums.noise import NoisePlan

Release = Callable[[Any, int, ByteSource], Draws]
"""Runs a mechanism on one input so many times, independently, with this randomness; returns one row per run."""

Run = Callable[[NDArray[np.bool_], ByteSource], NDArray[np.float64]]
"""Runs a mechanism once on records chosen by these coins; scores each coin, positive where it seems to be true and
further from 0 the surer that is."""

AUDITOR = "the auditor"
"""The source of what is said of the auditor itself."""

RUNS = 100_000
"""Of a cheap mechanism at effort 1."""

_TIMED_RUNS = 2000  # cheap ones; of expensive mechanisms as many fewer


@dataclass(frozen=True)
class Claim:
    """What is said of a mechanism: (epsilon, delta)-privacy per `unit`, by `source`; and what is proven, in words."""

    name: str
    epsilon: float
    delta: float = 0.0
    unit: str = "record"
    source: str = "Blindsight"
    proven: str = ""
    """By default the claim itself."""

    def __post_init__(self) -> None:
        """Refuse what cannot be refuted."""
        check_positive("the claimed epsilon", self.epsilon)
        if not self.proven:
            object.__setattr__(self, "proven", self._loss)

    @property
    def _loss(self) -> str:
        return f"epsilon = {self.epsilon:g}{f', delta = {self.delta:g}' if self.delta else ''} per {self.unit}"

    def __str__(self) -> str:
        return f"{self.name}: {self._loss}"


@dataclass(frozen=True)
class EpsilonAudit:
    """What running a mechanism showed about a claim."""

    claim: Claim
    bound: Bound

    @property
    def refuted(self) -> bool:
        """Whether the mechanism loses more than is claimed, with the confidence of the bound."""
        return self.bound.lower > self.claim.epsilon

    def finding(self) -> Finding:
        """Return the line for the table of an audit."""
        lower = self.bound.lower
        return Finding(
            claim=str(self.claim),
            source=self.claim.source,
            proven=self.claim.proven,
            measure=f"epsilon per {self.claim.unit}",
            measured=Interval(lower, lower, None, self.bound.confidence),
            verdict="refuted" if self.refuted else "not refuted" if lower > 0 else "undecided",
            attack=self.bound.attack + ("" if lower > 0 else "; too few to tell the inputs apart"),
            details={"claimed": self.claim.epsilon, "refuted": self.refuted} | self.bound.to_dict(),
        )

    def self_test(self, *, planted: bool) -> Finding:
        """Return the row of a test of the auditor itself: that it notices noise which was made too small, or acquits.

        No claim of anybody's falls with it.
        """
        noticed: Verdict = "as stated" if self.refuted else "undecided"
        return replace(
            self.finding(),
            claim=f"self-test: {self.claim.name} {'is found out' if planted else 'is acquitted'}",
            source=AUDITOR,
            proven="planted: it loses more than it says" if planted else self.claim.proven,
            verdict=noticed if planted else "refuted" if self.refuted else "not refuted",
        )


@dataclass(frozen=True, kw_only=True)
class OnTrial(ABC):
    """What can be audited. An expensive mechanism is run once where a cheap one is run `expense` times."""

    claim: Claim
    expense: int = 1

    @abstractmethod
    def needed(self, confidence: float) -> int:
        """Return how many runs, or canaries, it takes at least to refute the claim."""

    @abstractmethod
    def audit(self, number: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> EpsilonAudit:
        """Bound the mechanism's epsilon from below with so many runs of each input, or canaries.

        The claim is refuted though it is true with probability at most 1 - confidence.
        """

    def affordable(self, runs: int, confidence: float = CONFIDENCE) -> int:
        """Return what to call `audit` with where a cheap mechanism is run `runs` times."""
        return runs if self.expense == 1 else max(runs // self.expense, self.needed(confidence))


@dataclass(frozen=True, kw_only=True)
class Subject(OnTrial):
    """A claim that can be put to the test on two neighbouring `inputs`.

    Noise that is `gaussian`, of whatever deviation, is bounded by its trade-off function.
    """

    release: Release
    inputs: tuple[Any, Any]
    scorer: Scorer
    gaussian: bool = False

    def needed(self, confidence: float) -> int:
        return runs_needed(self.claim.epsilon, confidence=confidence, delta=self.claim.delta)

    def runs_within(self, seconds: float, most: int) -> int:
        """Return how many runs of each input fit into so many seconds, by timing a few; at most so many."""
        tried = max(1, min(_TIMED_RUNS // self.expense, most))
        begun = perf_counter()
        for given in self.inputs:
            self.release(given, tried, system_bytes)
        return min(most, int(tried * seconds / max(perf_counter() - begun, 1e-9)))

    def audit(self, number: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> EpsilonAudit:
        check_runs(number, self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        first, second = (self.release(given, number, source) for given in self.inputs)
        lower_bound: Callable[..., Bound] = gaussian_bound if self.gaussian else epsilon_bound
        bound = lower_bound(first, second, delta=self.claim.delta, scorer=self.scorer, confidence=confidence)
        return EpsilonAudit(self.claim, bound)


@dataclass(frozen=True, kw_only=True)
class CanarySubject(OnTrial):
    """A claim that can be put to the test in one run.

    Only the `share` of the coins that are surest is guessed. It is fixed beforehand.
    """

    run: Run
    share: float = 1.0

    def needed(self, confidence: float) -> int:
        guessed = canaries_needed(self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        return math.ceil(guessed / self.share)

    def audit(self, number: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> EpsilonAudit:
        if number < (needed := self.needed(confidence)):
            raise InputError(
                f"to refute epsilon = {self.claim.epsilon:g} with {100 * confidence:.10g}% confidence in one run at "
                f"least {needed:,} canaries are needed; got {number:,}. Ask for more canaries or less confidence."
            )
        coins = random_words(number, source) % 2 == 1
        guesses = surest_guesses(self.run(coins, source), max(1, int(number * self.share)))
        return EpsilonAudit(self.claim, one_run_bound(coins, guesses, delta=self.claim.delta, confidence=confidence))


def audit_subjects(
    subjects: Iterable[OnTrial],
    *,
    runs: int,
    confidence: float = CONFIDENCE,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> tuple[EpsilonAudit, ...]:
    """Audit one subject after the other: `runs` of each input (or canaries), and fewer where they are expensive.

    No fewer, though, than it takes to refute the claim. Each claim that is true is refuted with probability at most
    1 - confidence.
    """
    on_trial = tuple(subjects)
    audits = []
    for done, subject in enumerate(on_trial):
        progress(subject.claim.name, done, len(on_trial))
        audits.append(subject.audit(subject.affordable(runs, confidence), confidence=confidence, source=source))
    progress("epsilon", len(on_trial), len(on_trial))
    return tuple(audits)


def as_released(values: Draws) -> NDArray[np.float64]:
    return values.astype(np.float64)


def repeated(mechanism: Any) -> Release:
    """Return the releases of one row, again and again."""
    return lambda row, runs, source: mechanism.release(np.repeat(row, runs, axis=0), source=source)


def short_of_noise(noise_share: float) -> str:
    return "" if noise_share == 1 else f" with {noise_share:g} of the noise that it takes"


def laplace(epsilon: float, *, noise_share: float = 1.0) -> Subject:
    """Return Laplace noise; with a `noise_share` below 1 it is less than epsilon needs: a planted violation.

    All runs are drawn in one release, the grid of which is finer and the noise of which larger (by less than one part
    in 30,000) than for a single value.
    """
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=epsilon / noise_share)
    proven = f"epsilon = {mechanism.epsilon:g}"
    return Subject(
        claim=Claim(f"Laplace noise{short_of_noise(noise_share)}", epsilon, 0.0, "unit", proven=proven),
        release=repeated(mechanism),
        inputs=(np.ones(1), np.zeros(1)),
        scorer=known(as_released),
    )


def planned_noise(plan: NoisePlan, delta: float, *, noise_share: float = 1.0) -> Subject:
    """Return the sums of a run with noise, of a unit as long as may be or of none; every place is a run of its own.

    Only the shares that the plan counts on are in the sums: the server has taken off what colluders told it. It looks
    at the mean of all rounds. With a `noise_share` below 1 shares are smaller than they should be.
    """
    less = replace(plan, sigma=max(1, round(plan.sigma * noise_share)))

    def summed(length: float, runs: int, source: ByteSource) -> Draws:
        sums, unit = replace(less, dimension=runs), np.full(runs, length)
        total = np.zeros(runs, dtype=np.int64)
        for _ in range(plan.rounds):
            for member in range(plan.honest):
                total += sums.contribution([unit] if member == 0 else [], source)
        return sums.values(total)

    name = f"noise inside {plan.rounds} sums{short_of_noise(noise_share)}"
    return Subject(
        claim=Claim(name, plan.epsilon(delta), delta, plan.unit),
        release=summed,
        inputs=(plan.clip, 0.0),
        scorer=known(as_released),
        expense=max(1, plan.rounds * plan.honest // 4),
        gaussian=True,
    )


class SelfTest(NamedTuple):
    """What the auditor found about a mechanism with half the noise that it needs, and about one with enough."""

    planted: EpsilonAudit
    sound: EpsilonAudit

    @property
    def passed(self) -> bool:
        """Whether it found the first and acquitted the second."""
        return self.planted.refuted and not self.sound.refuted


def self_test(*, runs: int = RUNS, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> SelfTest:
    """Put the auditor to the test. It fails, though nothing is wrong, with probability at most 1 - confidence.

    Added to that is the probability of missing the violation, which is negligible from some thousand runs on.
    """
    half, whole = (laplace(1.0, noise_share=share) for share in (0.5, 1.0))
    return SelfTest(*(one.audit(runs, confidence=confidence, source=source) for one in (half, whole)))
