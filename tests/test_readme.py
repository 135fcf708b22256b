"""The examples of README and documentation run and keep what they assert; the commands they name exist."""

import re
from pathlib import Path

import pytest
import typer

from blindsight.cli import app

ROOT = Path(__file__).parent.parent
README, MAKEFILE = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
PAGES = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md")))]
EXAMPLES = [
    (page, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_example_runs(page, example):
    assert "assert" in example
    exec(compile(example, page, "exec"), {})


def test_make_targets_exist():
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_commands_exist():
    commands = re.findall(r"^    blindsight ([a-z]+)(?: ([a-z]+))?", README, flags=re.MULTILINE)
    assert commands
    tree = typer.main.get_command(app)
    for verb, sub in commands:
        assert verb in tree.commands, verb
        below = getattr(tree.commands[verb], "commands", None)  # a command without others takes arguments
        assert not sub or below is None or sub in below, sub
