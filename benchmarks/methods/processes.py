"""What methods are measured with: CPU seconds by step, a process of one's own, and processes seen from outside."""

import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Clock:
    """CPU time of this process by step."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Count the block."""
        begun = time.process_time()
        try:
            yield
        finally:
            self.seconds[step] += time.process_time() - begun


def alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method run in a process of its own."""

    @wraps(method)
    def call(given: Any, **arguments: Any) -> Any:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            return pool.submit(_inside, method.__module__, method.__name__, given, arguments).result()

    return call


def _inside(module: str, name: str, given: Any, arguments: dict[str, Any]) -> Any:
    return getattr(import_module(module), name).__wrapped__(given, **arguments)


@dataclass(frozen=True)
class Processes:
    """All processes of the machine: children, CPU seconds with those of children that ended, and bytes of each."""

    children: dict[int, list[int]]
    seconds: dict[int, float]
    bytes: dict[int, int]

    @classmethod
    def now(cls) -> "Processes":
        """Look around once."""
        found = cls({}, {}, {})
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text(errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            pid = int(path.parent.name)
            found.children.setdefault(int(fields[1]), []).append(pid)
            found.seconds[pid], found.bytes[pid] = sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE
        return found

    def below(self, pid: int) -> list[int]:
        """Return all that descend from a process."""
        found = list(self.children.get(pid, ()))
        for each in found:
            found.extend(self.children.get(each, ()))
        return found

    def cpu(self, pid: int) -> float:
        """Return the CPU seconds so far of a process with all that descends from it."""
        return sum(self.seconds.get(each, 0.0) for each in (pid, *self.below(pid)))

    def memory(self, pid: int) -> int:
        """Return the bytes of a process with all that descends from it; what they share counts for each."""
        return sum(self.bytes.get(each, 0) for each in (pid, *self.below(pid)))
