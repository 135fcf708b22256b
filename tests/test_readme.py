"""The README's example runs and keeps what it asserts; its commands exist."""

import re
from pathlib import Path

import pytest
import typer

from blindsight.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text()
MAKEFILE = (Path(__file__).parent.parent / "Makefile").read_text()


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL))
def test_example_runs(example: str) -> None:
    assert "assert" in example
    exec(compile(example, "README.md", "exec"), {})


def test_make_targets_exist() -> None:
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_commands_exist() -> None:
    commands = re.findall(r"^    blindsight ([a-z]+)(?: ([a-z]+))?", README, flags=re.MULTILINE)
    assert commands
    tree = typer.main.get_command(app)
    for verb, sub in commands:
        assert verb in tree.commands, verb
        assert not sub or sub in tree.commands[verb].commands, sub
