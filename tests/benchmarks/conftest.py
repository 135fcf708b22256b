"""Make the `benchmarks` folder importable, however pytest was started, and its processes threads where a test asks."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


@pytest.fixture
def in_process(monkeypatch):
    """Methods that measure in a process of their own do so in this one, which saves starting Python."""
    from benchmarks.methods import engines, scale

    def thread(workers, mp_context):
        return ThreadPoolExecutor(workers)

    for module in (engines, scale):
        monkeypatch.setattr(module, "ProcessPoolExecutor", thread)
