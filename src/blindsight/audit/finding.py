"""One line of an audit: what is claimed, by whom, what is proven, what an attack measured, and what follows.

A verdict says no more than its evidence: an attack that fails proves nothing, so the best it can give is *not refuted*.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from blindsight.errors import InputError

Verdict = Literal["refuted", "not refuted", "leaks", "at chance", "as stated"]
"""*refuted*: measured beyond the claim, at the stated confidence. *not refuted*: measured below it. *leaks*: the attack
succeeds where nobody claimed that it would not. *at chance*: it does no better than guessing. *as stated*: it succeeds
exactly as far as the statement of the result admits."""


@dataclass(frozen=True)
class Interval:
    """A measured figure with its confidence interval; `high` is None for a lower bound."""

    value: float
    low: float
    high: float | None
    confidence: float

    def __str__(self) -> str:
        if self.high is None:
            return f">= {self.low:.3g}"
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one attack found about one claim.

    `claim` is a sentence, `source` who says so, `proven` what is proven of it in words, `measure` names the measured
    figure, `details` holds whatever else a program may want to read.
    """

    claim: str
    source: str
    proven: str
    measure: str
    measured: Interval
    verdict: Verdict
    attack: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a verdict that does not exist."""
        if self.verdict not in get_args(Verdict):
            raise InputError(f"a verdict is one of {', '.join(get_args(Verdict))}; got {self.verdict!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return asdict(self) | {"details": dict(self.details)}
