"""A mechanism on trial: what is said of it, two neighbouring inputs that tell most, and the verdict of running it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

from blindsight.audit.epsilon import (
    CONFIDENCE,
    Draws,
    EpsilonBound,
    GaussianBound,
    Scorer,
    check_runs,
    epsilon_bound,
    gaussian_bound,
    runs_needed,
)
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.onerun import OneRunBound
from blindsight.dp.accounting import check_positive
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes

Draw = Callable[[int, ByteSource], Draws]
"""Runs a mechanism on one input so many times, independently, with this randomness; returns one row per run."""

_TIMED_RUNS = 2000  # cheap ones; of expensive mechanisms as many fewer


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is said of a mechanism: (epsilon, delta)-privacy per `unit`, by `source`; and what is proven, in words."""

    name: str
    epsilon: float
    delta: float
    unit: str
    source: str
    proven: str

    def __post_init__(self) -> None:
        """Refuse what cannot be refuted."""
        check_positive("the claimed epsilon", self.epsilon)

    def __str__(self) -> str:
        delta = f", delta = {self.delta:g}" if self.delta else ""
        return f"{self.name}: epsilon = {self.epsilon:g}{delta} per {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A claim that can be put to the test on two neighbouring inputs.

    An expensive mechanism is run once where a cheap one is run `expense` times. Noise that is `gaussian`, of whatever
    deviation, is bounded by its trade-off function.
    """

    claim: Claim
    first: Draw
    second: Draw
    scorer: Scorer
    expense: int = 1
    gaussian: bool = False

    def affordable(self, runs: int, confidence: float = CONFIDENCE) -> int:
        """Return how often to run where a cheap mechanism is run `runs` times: enough at least to refute the claim."""
        if self.expense == 1:
            return runs
        needed = runs_needed(self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        return max(runs // self.expense, needed)

    def runs_within(self, seconds: float, most: int) -> int:
        """Return how many runs of each input fit into so many seconds, by timing a few; at most so many."""
        tried = max(1, min(_TIMED_RUNS // self.expense, most))
        begun = perf_counter()
        for draw in (self.first, self.second):
            draw(tried, system_bytes)
        return min(most, int(tried * seconds / max(perf_counter() - begun, 1e-9)))

    def audit(self, runs: int, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> "EpsilonAudit":
        """Run the mechanism so many times on each of the inputs, and bound its epsilon from below.

        The claim is refuted though it is true with probability at most 1 - confidence.
        """
        check_runs(runs, self.claim.epsilon, confidence=confidence, delta=self.claim.delta)
        first, second = self.first(runs, source), self.second(runs, source)
        lower_bound = gaussian_bound if self.gaussian else epsilon_bound
        bound = lower_bound(first, second, delta=self.claim.delta, scorer=self.scorer, confidence=confidence)
        return EpsilonAudit(self.claim, bound)


@dataclass(frozen=True)
class EpsilonAudit:
    """What running a mechanism showed about a claim."""

    claim: Claim
    bound: EpsilonBound | GaussianBound | OneRunBound

    @property
    def refuted(self) -> bool:
        """Whether the mechanism loses more than is claimed, with the confidence of the bound."""
        return self.bound.lower > self.claim.epsilon

    def finding(self) -> Finding:
        """Return the line for the table of an audit."""
        lower = self.bound.lower
        blind = "" if lower > 0 else "; too few to tell the inputs apart"
        return Finding(
            claim=str(self.claim),
            source=self.claim.source,
            proven=self.claim.proven,
            measure=f"epsilon per {self.claim.unit}",
            measured=Interval(lower, lower, None, self.bound.confidence),
            verdict="refuted" if self.refuted else "not refuted" if lower > 0 else "undecided",
            attack=self.bound.attack + blind,
            details=self.to_dict(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {"claimed": self.claim.epsilon, "refuted": self.refuted} | self.bound.to_dict()


class OnTrial(Protocol):
    """What can be audited: a `Subject`, or a `CanarySubject` where one run is enough."""

    @property
    def claim(self) -> Claim:
        """What is said of the mechanism."""

    def affordable(self, runs: int, confidence: float = CONFIDENCE) -> int:
        """Return what to call `audit` with where a cheap mechanism is run `runs` times."""

    def audit(
        self, number: int, /, *, confidence: float = CONFIDENCE, source: ByteSource = system_bytes
    ) -> EpsilonAudit:
        """Put the claim to the test with so many runs, or canaries."""


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
        number = subject.affordable(runs, confidence)
        audits.append(subject.audit(number, confidence=confidence, source=source))
    progress("epsilon", len(on_trial), len(on_trial))
    return tuple(audits)


def self_test_finding(audit: EpsilonAudit, *, planted: bool) -> Finding:
    """Return the row of a test of the auditor itself: that it notices noise which was made too small, or acquits."""
    verdict: Verdict = "as stated" if audit.refuted else "undecided"
    return replace(
        audit.finding(),
        claim=f"self-test: {audit.claim.name} {'is found out' if planted else 'is acquitted'}",
        source="the auditor",
        proven="planted: it loses more than it says" if planted else audit.claim.proven,
        verdict=verdict if planted else "refuted" if audit.refuted else "not refuted",
    )


def findings(audits: Iterable[EpsilonAudit]) -> tuple[Finding, ...]:
    """Return the lines for the table of an audit."""
    return tuple(audit.finding() for audit in audits)
