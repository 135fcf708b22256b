"""The examples of README and documentation run and keep what they assert; commands exist, and links lead somewhere."""

import ast
import re
import shlex
from pathlib import Path

import click
import pytest

from blindsight.cli import app, run
from tools.docs import dead_links, pages
from tools.notebooks import TUTORIALS, cells

ROOT = Path(__file__).parent.parent
README, MAKEFILE = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
PAGES = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").glob("*.md")))]
EXAMPLES = [
    (page, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
]
SLOW = {"audit": pytest.mark.slow, "sift": pytest.mark.slow}


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_example_runs(page, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "assert" in example
    if "import torch" in example or "from torch" in example:
        pytest.importorskip("torch")
    exec(compile(example, page, "exec"), {})


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=SLOW.get(page.stem, ()), id=page.stem) for page in TUTORIALS]
)
def test_tutorial_runs(page, tmp_path, monkeypatch, capsys):
    """Every block in order, in one empty folder; commands in this process."""
    monkeypatch.chdir(tmp_path)
    text, names = page.read_text(), {}
    if "from torch" in text:
        pytest.importorskip("torch")
    for kind, block in cells(text):
        if kind == "python":
            exec(compile(block, str(page), "exec"), names)
        for line in block.splitlines() if kind == "sh" else ():
            assert run(shlex.split(line)[1:]) == 0, f"{line}\n{capsys.readouterr()}"


def test_users_scripts_have_no_type_errors(tmp_path):
    """Lines of README and tutorials, as scripts of a user who has `mypy --strict` look at them."""
    api = pytest.importorskip("mypy.api")
    scripts = []
    for page in [ROOT / "README.md", *TUTORIALS]:
        code = "\n".join(block for kind, block in cells(page.read_text()) if kind == "python")
        scripts.append(tmp_path / f"{page.stem.lower()}.py")
        scripts[-1].write_text(f"{code}\n")
    settings = tmp_path / "mypy.ini"
    # The package's own errors are shown where it is checked; torch takes a minute to read.
    ours, torch = "[mypy-blindsight.*]\nignore_errors = True", "[mypy-torch.*]\nfollow_imports = skip"
    settings.write_text(f"[mypy]\nstrict = True\nmypy_path = {ROOT / 'src'}\n{ours}\n{torch}\n")
    asked = ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache")]
    found, trouble, code = api.run([*asked, *map(str, scripts)])
    assert (code, trouble) == (0, ""), found
    assert f"in {len(scripts)} source files" in found


def test_make_targets_exist():
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", MAKEFILE, flags=re.MULTILINE), target


def test_commands_can_be_typed():
    """Every command of README and documentation has the verbs, arguments and options that the command line knows."""
    typed = [
        words
        for page in PAGES
        if page != "docs/cli.md"
        for line in re.findall(r"^ *(blindsight .*)", (ROOT / page).read_text().replace("\\\n", " "), re.MULTILINE)
        for words in line.split("&&")
    ]
    assert len(typed) > 35
    for line in typed:
        command, words = app, shlex.split(line, comments=True)[1:]
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context(line, words)


def test_benchmarks_that_figures_name_exist():
    """Every `make bench NAME=x`, `benchmarks/run.py x` and table is of a benchmark; the list of them is complete."""
    from benchmarks.command import suite_names

    text = "\n".join((ROOT / page).read_text() for page in (*PAGES, "benchmarks/README.md"))
    named = re.findall(
        r"make bench NAME=([\w-]+)|benchmarks/run\.py ([a-z][\w-]*)|tables/([\w-]+)\.md|benchmark `([\w-]+)`", text
    )
    assert len(named) > 20
    assert {"".join(names).removesuffix("-full") for names in named} <= set(suite_names())
    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "benchmarks/README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(suite_names()))


def test_tests_that_pages_name_exist():
    """`tests/FILE.py::NAME` and, in tables, `FILE::NAME` or `::NAME` in the same file; a name alone is in one file."""
    files = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")}
    defined = {
        file: {
            one.name for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef | ast.ClassDef)
        }
        for file, path in files.items()
    }
    named = 0
    for page in (*PAGES, "SECURITY.md", "CONTRIBUTING.md"):
        last = ""
        for text in re.findall(
            r"`((?:[\w/]*/test_\w+(?:\.py)?)?(?:::)?(?:test_\w+|Test\w+)?)`", (ROOT / page).read_text()
        ):
            file, _, name = text.rpartition("::") if "::" in text else (text, "", "") if "/" in text else ("", "", text)
            if file:
                last = f"tests/{file.removeprefix('tests/').removesuffix('.py')}.py"
                assert last in files, text
            if name:
                where = [last] if "::" in text else [one for one in files if name in defined[one]]
                assert len(where) == 1, text
                assert name in defined[where[0]], text
                named += 1
    assert named > 60


def test_links_inside_the_repository_lead_somewhere():
    assert dead_links(pages()) == []
