"""`blindsight(...)` runs the command line in this process and tells what it said."""

import json
import re
import shlex
from dataclasses import dataclass

import pytest

from blindsight.cli import run


@dataclass(frozen=True)
class Said:
    """Standard output and standard error of one command."""

    out: str
    err: str

    @property
    def document(self):
        return json.loads(self.out)

    @property
    def hints(self):
        """The commands that it names, as the words that a shell would make of them."""
        return [shlex.split(found)[1:] for found in re.findall(r"blindsight [^\n;(]+", self.out)]


@pytest.fixture
def blindsight(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words, code=0):
        capsys.readouterr()
        left = run([str(word) for word in words])
        said = Said(*capsys.readouterr())
        assert left in (code if isinstance(code, tuple) else (code,)), said
        return said

    return call
