"""What all processes below this one take together, sampled while they run (Linux: /proc)."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
_PERIOD = 0.5  # seconds


@dataclass(frozen=True)
class Sample:
    """CPU seconds so far: of all that descends from this process (`ours`), of the machine (`all`); memory now."""

    ours: float
    all: float
    bytes: int


def sample() -> Sample:
    """Look around once; what ended is counted with its parent. Memory that processes share counts for each of them."""
    children, ticks, pages = _processes()
    found, ended = _below(os.getpid(), children), os.times()
    ours = sum(ticks[pid] for pid in found) / _TICKS + ended.children_user + ended.children_system
    busy = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    idle, guests = int(busy[3]) + int(busy[4]), sum(map(int, busy[8:10]))  # guests count as user time already
    return Sample(ours, (sum(map(int, busy)) - idle - guests) / _TICKS, sum(pages[pid] for pid in found) * _PAGE)


def cpu_seconds(processes: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds so far of each of these processes by name, with all that descends from it."""
    children, ticks, _ = _processes()
    return {
        name: sum(ticks.get(each, 0) for each in [pid, *_below(pid, children)]) / _TICKS
        for name, pid in processes.items()
    }


def _below(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    found = list(children.get(pid, ()))
    for each in found:
        found.extend(children.get(each, ()))
    return found


def _processes() -> tuple[dict[int, list[int]], dict[int, int], dict[int, int]]:
    """Return by process: its children, its ticks with those of children that ended, and its pages."""
    children: dict[int, list[int]] = {}
    ticks, pages = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            pid = int(folder.name)
            children.setdefault(int(fields[1]), []).append(pid)
            ticks[pid], pages[pid] = sum(map(int, fields[11:15])), int(fields[21])
    return children, ticks, pages


class Watch:
    """Samples in a thread of its own; `laps` holds a sample for each time that `lap()` returned something new."""

    def __init__(self, lap: Callable[[], object]) -> None:
        self._lap, self._seen = lap, lap()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.laps: list[Sample] = []
        self.peak_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(_PERIOD):
            now = sample()
            self.peak_bytes = max(self.peak_bytes, now.bytes)
            if (seen := self._lap()) != self._seen:
                self._seen = seen
                self.laps.append(now)
