"""What a round costs: CPU seconds by party and step, bytes and ciphertexts by sender, receiver and step.

A `Meter` measures while the roles work, a `Cost` is what it found. Seconds are CPU time of this process with all its
threads and of its child processes (`cpu_seconds`), so a process pool hides nothing.
"""

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal

Step = Literal["set up", "share", "encrypt", "aggregate", "decrypt", "read"]
"""What a party does in a round; a message belongs to the step in which it was made. Masks `share` keys first."""

_STEPS: dict[str, Step] = {
    "set-up": "set up",
    "advertise": "share",
    "share": "share",
    "contribute": "encrypt",
    "consistency": "aggregate",
    "unmask": "decrypt",
    "open": "decrypt",
    "settle": "read",
}


def step_of(kind: str) -> Step:
    return _STEPS.get(kind, "set up")


@dataclass(frozen=True)
class Work:
    """CPU seconds that one party spent in one step."""

    party: str
    step: Step
    seconds: float


@dataclass(frozen=True)
class Transfer:
    """What one party sent to another in one step."""

    sender: str
    receiver: str
    step: Step
    bytes: int
    ciphertexts: int


@dataclass(frozen=True)
class Cost:
    """What a round, or the set-up of a run, took; parties not in `members` are services."""

    members: tuple[str, ...]
    work: tuple[Work, ...]
    transfers: tuple[Transfer, ...]

    def seconds(self, *steps: Step, party: str | None = None) -> float:
        """Return the CPU seconds of these steps (none named: of all), of one party or all."""
        return sum(
            item.seconds
            for item in self.work
            if (not steps or item.step in steps) and (party is None or item.party == party)
        )

    def sent(self, party: str) -> int:
        return sum(item.bytes for item in self.transfers if item.sender == party)

    def received(self, party: str) -> int:
        return sum(item.bytes for item in self.transfers if item.receiver == party)

    def ciphertexts(self, sender: str) -> int:
        return sum(item.ciphertexts for item in self.transfers if item.sender == sender)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Measures a round."""

    def __init__(self, members: tuple[str, ...]) -> None:
        self._members = members
        self._seconds: defaultdict[tuple[str, Step], float] = defaultdict(float)
        self._bytes: defaultdict[tuple[str, str, Step], int] = defaultdict(int)
        self._ciphertexts: defaultdict[tuple[str, str, Step], int] = defaultdict(int)

    @contextmanager
    def working(self, party: str, step: Step) -> Iterator[None]:
        """Count the CPU time of the block as this party's; steps do not nest."""
        begun = cpu_seconds()
        try:
            yield
        finally:
            self._seconds[party, step] += cpu_seconds() - begun

    def carried(self, sender: str, receiver: str, step: Step, size: int, ciphertexts: int = 0) -> None:
        self._bytes[sender, receiver, step] += size
        self._ciphertexts[sender, receiver, step] += ciphertexts

    def cost(self) -> Cost:
        work = [Work(party, step, seconds) for (party, step), seconds in self._seconds.items()]
        sizes = [Transfer(*link, size, self._ciphertexts[link]) for link, size in self._bytes.items()]
        return Cost(self._members, tuple(work), tuple(sizes))


def cpu_seconds() -> float:
    """Return the CPU time of this process, its threads and its children, living or finished."""
    finished = os.times()
    living = sum(_child_seconds(child.pid) for child in multiprocessing.active_children() if child.pid)
    return time.process_time() + finished.children_user + finished.children_system + living


def _child_seconds(pid: int) -> float:
    """Return a living child's CPU time; Linux gives every process a clock, numbered as clock_getcpuclockid(3) does."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it has just ended
        return 0.0
