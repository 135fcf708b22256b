"""What is known after a round, and when to stop: plain records that a table, a report or a checkpoint can keep."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from blindsight.errors import InputError, UnknownNameError
from blindsight.sums.costs import Cost
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

Criterion = Literal["score", "step"]
"""Stop when the validation score no longer rises, or when the model no longer moves."""


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """One finished round.

    `score` is the accuracy averaged over classes (attributes; for clusters the adjusted mutual information) on the
    validation data, None without any. `sparsity` is the mean share of zeros in what owners sent, `step` how far the
    model moved relative to its length. `seconds` of CPU and `sent` bytes are by role: "members" together, "aggregator",
    "key generator"; `seconds` also has "training", all owners' local learning. `absent` says why an owner sent nothing
    and `refused` why what it sent did not count. `withheld` weights were not revealed, `clipped` ones were out of
    range of the fixed point.
    """

    round: int
    score: float | None
    sparsity: float
    step: float
    seconds: Mapping[str, float]
    sent: Mapping[str, int]
    contributors: tuple[str, ...]
    absent: Mapping[str, str]
    refused: Mapping[str, str]
    withheld: int
    clipped: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return what `to_dict` described."""
        return cls(**{**data, "contributors": tuple(data["contributors"])})


def seconds_by_role(cost: Cost) -> dict[str, float]:
    """Return the CPU seconds of all members together and of each service."""
    members = sum(cost.seconds(party=member) for member in cost.members)
    return {"members": members} | {service: cost.seconds(party=service) for service in (AGGREGATOR, KEY_GENERATOR)}


def bytes_by_role(cost: Cost) -> dict[str, int]:
    """Return the bytes sent by all members together and by each service."""
    return {"members": sum(map(cost.sent, cost.members))} | {
        service: cost.sent(service) for service in (AGGREGATOR, KEY_GENERATOR)
    }


@dataclass(frozen=True)
class EarlyStopping:
    """Stop once `patience` rounds in a row brought less than `tolerance`: of score above the best, or of step."""

    criterion: Criterion
    patience: int
    tolerance: float

    def __post_init__(self) -> None:
        if self.criterion not in get_args(Criterion):
            raise UnknownNameError("early stopping", str(self.criterion), get_args(Criterion))
        if self.patience < 1 or not self.tolerance >= 0:
            raise InputError(
                f"patience must be at least 1 and tolerance at least 0; got {self.patience} and {self.tolerance}."
            )

    def reached(self, history: Sequence[RoundReport]) -> bool:
        """Tell whether the last of these rounds was the last one worth making."""
        if self.criterion == "step":
            recent = history[-self.patience :]
            return len(recent) == self.patience and all(report.step < self.tolerance for report in recent)
        scores = [report.score for report in history if report.score is not None]
        before, recently = scores[: -self.patience], scores[-self.patience :]
        return bool(before) and max(recently) < max(before) + self.tolerance
