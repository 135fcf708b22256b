"""Make the `benchmarks` folder importable, however pytest was started, and its processes threads where a test asks."""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def tables(benchmark, results):
    """Return the benchmark's tables of these results: by title, its rows by name."""
    from benchmarks.table import shown

    return {grid.title: {row[0]: tuple(row[1:]) for row in grid.rows} for grid in shown(benchmark, results)}


def rows(benchmark, results, title):
    """Return the rows, by name, of the first table whose title begins so."""
    return next((found for said, found in tables(benchmark, results).items() if said.startswith(title)), {})


def posed(tasks, name, seed=0, **settings):
    """Return a quick problem of this task."""
    from benchmarks.harness import Settings

    return next(task for task in tasks(Settings(quick=True, **settings)) if task.dataset == name).pose(seed)


@pytest.fixture
def in_process(monkeypatch):
    """Methods that measure in a process of their own do so in this one, which saves starting Python."""
    from benchmarks.methods import processes

    monkeypatch.setattr(processes, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))


@pytest.fixture(autouse=True)
def flower_logs_as_before():
    """Give Flower's logger its level back: benchmarks of its strategies silence it for their process."""
    logger = logging.getLogger("flwr")
    level = logger.level
    yield
    logger.setLevel(level)
