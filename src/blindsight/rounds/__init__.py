"""The one loop: what a run agrees on (`task`), a member's side of it (`member`), and the rounds (`run`)."""

from blindsight.data.sites import MIN_MEMBERS
from blindsight.rounds.member import Learner, Member, Memory, Update
from blindsight.rounds.run import (
    ClippedWarning,
    EarlyStopping,
    LocalSums,
    RoundReport,
    RoundSum,
    Run,
    RunState,
    SumBackend,
    run_here,
)
from blindsight.rounds.task import Privacy, Sums, Task, register_learner

__all__ = [
    "MIN_MEMBERS",
    "ClippedWarning",
    "EarlyStopping",
    "Learner",
    "LocalSums",
    "Member",
    "Memory",
    "Privacy",
    "RoundReport",
    "RoundSum",
    "Run",
    "RunState",
    "SumBackend",
    "Sums",
    "Task",
    "Update",
    "register_learner",
    "run_here",
]
