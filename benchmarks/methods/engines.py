"""What engines that search binary codes share: codes and queries come in, positions and what they took go out.

Every engine runs in a process of its own, so that its memory is its own.
"""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Questions:
    """Packed codes of a multiple of 8 bits, queries of the same length, and how many hits each wants."""

    codes: Codes
    queries: Codes
    k: int

    @property
    def bits(self) -> int:
        """Length of a code."""
        return 8 * int(self.codes.shape[1])


class EngineAnswer(TypedDict):
    """Positions of the hits, (queries, k); CPU seconds to build and to search; bytes in memory and on disk.

    `memory` is by how much building made the process grow; engines that run elsewhere leave it out.
    """

    positions: NDArray[np.int64]
    build: float
    search: float
    disk: int
    memory: NotRequired[int]


@dataclass
class Meter:
    """CPU seconds of this process by step, and how much it has grown since it was made."""

    seconds: dict[str, float] = field(default_factory=dict)
    before: int = field(default_factory=lambda: _resident())

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        """Count the block."""
        begun = time.process_time()
        yield
        self.seconds[step] = time.process_time() - begun

    @property
    def growth(self) -> int:
        """By how many bytes the process is larger now."""
        return max(0, _resident() - self.before)

    def answer(self, positions: NDArray[np.int64], memory: int, save: Callable[[Path], object]) -> EngineAnswer:
        """Return the answer of an engine that took the steps "build" and "search" and can save itself to a file."""
        with tempfile.TemporaryDirectory() as folder:
            save(path := Path(folder) / "index")
            disk = path.stat().st_size
        build, search = self.seconds["build"], self.seconds["search"]
        return {"positions": positions, "build": build, "search": search, "memory": memory, "disk": disk}


def alone(engine: Callable[..., EngineAnswer], given: Questions, **arguments: object) -> EngineAnswer:
    """Run an engine in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(engine, given, **arguments).result()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
