"""A showcase of few pictures, computed once for all tests of a session; each test gets a copy of its files."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from blindsight.service.exhibits.stock import Size
from blindsight.service.showcase import Showcase

SIZE = Size(pictures=500, components=40, queries=60, rounds=2, key_bits=2048)
NAMES = ("sift-smiling-male", "search", "audit", "learn")


@cache
def _computed() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="blindsight-showcase-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    showcase = Showcase(folder, SIZE)
    showcase.start()
    stages = {name: showcase.wait(name) for name in NAMES}
    showcase.close()
    assert all(state.stage == "ready" for state in stages.values()), stages
    return folder


def tiny_showcase(folder: Path) -> Showcase:
    """Return a finished showcase in a new folder; the caller closes it."""
    shutil.copytree(_computed(), folder)
    return Showcase(folder, SIZE)
