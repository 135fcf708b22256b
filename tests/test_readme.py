"""The examples of README and documentation run and keep what they assert; the commands they name exist."""

import re
import shlex
from pathlib import Path

import click
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
    if "import torch" in example or "from torch" in example:
        pytest.importorskip("torch")
    exec(compile(example, page, "exec"), {})


def test_make_targets_exist():
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_commands_can_be_typed():
    """Every command of README and documentation has the verbs, arguments and options that the command line knows."""
    pages = [ROOT / page for page in PAGES if page != "docs/cli.md"]
    text = "\n".join(page.read_text().replace("\\\n", " ") for page in pages)
    typed = [words for line in re.findall(r"^ *(blindsight .*)", text, re.MULTILINE) for words in line.split("&&")]
    assert len(typed) > 35
    for line in typed:
        command, words = typer.main.get_command(app), shlex.split(line, comments=True)[1:]
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context(line, words)
