"""`blindsight(...)` runs the command line in this process and tells what it said."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from blindsight.cli import run


@dataclass(frozen=True)
class Said:
    """Standard output and standard error of one command."""

    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def blindsight(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object, code: int | tuple[int, ...] = 0) -> Said:
        capsys.readouterr()
        left = run([str(word) for word in words])
        said = Said(*capsys.readouterr())
        assert left in (code if isinstance(code, tuple) else (code,)), said
        return said

    return call
