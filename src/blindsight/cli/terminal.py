"""What all commands share: their common options, and how results, progress and errors reach a person or a program."""

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as ProgressBars
from rich.table import Table

from blindsight.progress import Progress


class Settings:
    """What --json and --debug asked for in this run."""

    json = False
    debug = False

    @classmethod
    def reset(cls) -> None:
        """Forget the last run's options (several runs in one process: tests, notebooks)."""
        cls.json = cls.debug = False


def _want_json(value: bool) -> bool:
    Settings.json |= value
    return value


def _want_debug(value: bool) -> bool:
    Settings.debug |= value
    return value


JsonOption = Annotated[
    bool,
    typer.Option("--json", help="One JSON document on standard output.", callback=_want_json, is_eager=True),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show where an error comes from.", callback=_want_debug, is_eager=True)
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of splits, pictures and initial weights.", min=0)]


def show_version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        sys.stdout.write(f"blindsight {version('blindsight-vision')}\n")
        raise typer.Exit


def show_error(error: BaseException | None, sentence: str, *, code: int) -> int:
    """Print one sentence (with --json one document), with --debug the traceback, and return the exit code."""
    if Settings.debug and error is not None:
        sys.stderr.write("".join(traceback.format_exception(error)))
    if Settings.json:
        sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}, ensure_ascii=False) + "\n")
    else:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(sentence)}", highlight=False)
    return code


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning as one sentence: takes the place of `warnings.showwarning` while a command runs."""
    Console(stderr=True, soft_wrap=True).print(f"[bold yellow]warning:[/] {escape(str(message))}", highlight=False)


def show(document: Mapping[str, Any], *parts: str | Table) -> None:
    """Show a result: the JSON document to a program, or the parts (lines, tables) to a person."""
    if Settings.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return
    console = Console(soft_wrap=True)
    for part in parts:
        console.print(part, highlight=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> Table:
    """Return a table for the terminal; the columns named in `numbers` are set right."""
    drawn = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(cell) for cell in row))
    return drawn


class LiveTable:
    """A table whose rows appear as they are found: on standard output, or with --json on standard error."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        """Print the title; the heading comes with the first row."""
        self._columns = columns
        self._begun = False
        self._print(f"[bold]{escape(title)}[/]")

    def row(self, cells: Sequence[str]) -> None:
        """Print one row, each cell set right under its heading."""
        if not self._begun:
            self._begun = True
            self._print(f"[bold]{'  '.join(self._columns)}[/]")
        self._print("  ".join(cell.rjust(len(name)) for name, cell in zip(self._columns, cells, strict=True)))

    def _print(self, line: str) -> None:
        Console(stderr=Settings.json, soft_wrap=True).print(line, highlight=False)


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """Show progress bars on standard error while a block runs; off a terminal, one line when each step begins."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_progress()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with ProgressBars(*columns, console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(escape(what), total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report


def _line_progress() -> Progress:
    begun: set[str] = set()

    def report(what: str, done: int, total: int | None) -> None:
        if what not in begun:
            begun.add(what)
            sys.stderr.write(f"{what} ...\n")

    return report
