"""What every test stands on: repeatable Hypothesis examples, and a cache of its own."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's cache out of the tests, and the tests out of the user's cache."""
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path / "cache"))
