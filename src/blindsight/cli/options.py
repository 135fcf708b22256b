"""What all commands share: options that are defined once, and how results, progress and errors are shown."""

import json
import math
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO, get_args

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from blindsight.cli.command import Declaration, Settings, argument, flag, grouped, option
from blindsight.errors import InputError
from blindsight.files import atomic_writer, check_writable, storage_errors
from blindsight.progress import Progress

if TYPE_CHECKING:
    from blindsight.data import Dataset


def to_positive(value: float | None) -> float | None:
    """Refuse what is not a positive, finite number."""
    if value is not None and not 0 < value < math.inf:
        raise click.BadParameter(f"expected a positive, finite number; got {value}.")
    return value


def to_delta(value: float | None) -> float | None:
    """Refuse what is no probability of a guarantee that fails."""
    if value is not None and not 0 < value < 1:
        raise click.BadParameter(f"expected a number in (0, 1); got {value}.")
    return value


def to_features(kind: str) -> str:
    """Refuse features that cannot be made here."""
    if kind not in ("auto", "pixels", "thumbnail"):
        from blindsight.data.features import check_pipeline

        check_pipeline(kind)
    return kind


def to_scheme(name: str | None) -> str | None:
    """Refuse a scheme whose library is not installed."""
    if name == "bfv":
        from blindsight.extras import check_installed

        check_installed("tenseal", extra="he", purpose="lattice encryption (BFV)")
    return name


def to_folder(folder: Path | None) -> Path | None:
    """Refuse a folder into which nothing can be written."""
    if folder is not None:
        check_writable(folder)
    return folder


def to_file(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written."""
    if file is not None:
        if file.is_dir():
            raise click.BadParameter(f"expected a file; {file} is a folder.")
        check_writable(file.parent)
    return file


# Which pictures, and what a method sees of them
path = option("--path", type=Path, help="Where the collection lies, if it is read from a path.")
count = option("-n", "--count", type=int, min=1, help="At most this many pictures.")
seed = option("--seed", default=0, min=0, help="Seed of splits, pictures and initial weights.")
features = option(
    "--features",
    default="pixels",
    check=to_features,
    help="pixels, embedding, thumbnail, or the path of an ONNX model.",
)
check_only = flag("--check", help="Only check options, extras and where is written; no picture is read.")
methods = option("--methods", default="", help="Only these, separated by semicolons.")


def components(default: int) -> Declaration:
    return option("--components", default=default, min=1, help="Principal components of pixels at most.")


def report_folder(default: str) -> Declaration:
    return option("--out", default=Path(default), check=to_folder, help="Folder of the report.")


# Learning together
owners = option("--owners", default=5, min=1, help="How many owners share the data out.")
rounds = option("--rounds", default=10, min=1, help="How many rounds.")
scheme = option("--scheme", default="masks", check=to_scheme, help="masks, bfv, dphe, block-dphe or plain.")
key_bits = option(
    "--key-bits",
    choices=("2048", "3072", "4096"),
    default="3072",
    check=int,
    help="Length of the Paillier key (dphe, block-dphe).",
)
optimiser = option("--optimiser", choices=("sgd", "rmsprop", "adam"), default="sgd", help="How members descend.")
resume = flag("--resume", help="Keep checkpoints there, and go on from the last one.")


def sparsity(default: float | None) -> Declaration:
    meaning = "Share of weights an owner does not send; default: 0.9 for dphe and block-dphe, else 0.8."
    return option("--sparsity", type=float, default=default, help=meaning)


def model_folder(default: str) -> Declaration:
    return option("--out", default=Path(default), check=to_folder, help="Folder of model, statement and report.")


# Searching
index = argument("index", "Folder that `search build` wrote.", type=Path)
central_delta = option("--delta", default=1e-6, check=to_delta, help="Delta of the central mode.")
answers = option("-k", default=10, min=1, help="How many answers.")


def bits(default: int) -> Declaration:
    return option("--bits", default=default, min=1, help="Length of a code; local mode releases symbols.")


# Sifting
Attackers = Literal["paper", "modern", "quick"]
sift = argument("sift", "Folder that `sift fit` wrote, or a sift's file inside it.", type=Path)
numbers = option("--components", default=5, min=1, help="Numbers let out; the paper's K.")
privacy = option("--privacy", type=float, help="Weight of hiding, the paper's lambda; default 1, or inf.")


def attackers(
    default: Attackers, who: str = "Who tries to read what is private: the paper's five, fifteen, or a quick three."
) -> Declaration:
    return option("--attackers", choices=get_args(Attackers), default=default, help=who)


# Parties and services
home = option("--home", type=Path, required=True, help="The party's own folder, which nobody else may read.")
folder = option("--folder", default=Path("out/service"), help="Folder of everything the service keeps.")
database = option(
    "--database", envvar="BLINDSIGHT_DATABASE", help="URL of its database; default: SQLite in the folder."
)
token_days = option("--days", type=int, min=1, max=3650, help="How long the token opens anything; default: for ever.")


@dataclass(frozen=True)
class Collected:
    """Which pictures, by the options of a command."""

    standard: ClassVar[str] = "digits"
    data: str | None
    path: Path | None
    count: int | None
    seed: int

    @property
    def name(self) -> str:
        return self.data or (self.standard if self.path is None else kind_of(self.path))

    def to_dict(self) -> dict[str, Any]:
        """Return all that finds the same pictures again."""
        return asdict(self) | {"data": self.name, "path": None if self.path is None else str(self.path.absolute())}

    def check(self) -> None:
        """Refuse a collection that is not known or not there, before any picture is read."""
        from blindsight.data.catalogue import reader_options

        register_collections()
        reader_options(self.name, self.path)
        if self.path is not None:
            with storage_errors("read", self.path):
                self.path.stat()

    def load(self, progress: Progress, *, keep_copies: bool = False) -> "Dataset":
        from blindsight.data import load
        from blindsight.data.catalogue import reader_options

        register_collections()
        more: dict[str, Any] = (
            {"keep_copies": True} if keep_copies and "keep_copies" in reader_options(self.name, self.path) else {}
        )
        found = load(self.name, path=self.path, count=self.count, random_state=self.seed, progress=progress, **more)
        return tell_skipped(found)


def register_collections() -> None:
    """Make the papers' collections known to `load`."""
    from blindsight.cli import papers  # which imports this module

    papers.register_collections()


which = (
    option("--data", help="A collection of `blindsight data list`; default: what --path holds, or a bundled one."),
    path,
    count,
    seed,
)
"""The options of `Collected`."""
collected = grouped("collected", Collected, *which)


def kind_of(path: Path) -> str:
    """Return the collection that a path is of, where none is named: a table (.csv) or a folder of pictures."""
    return "csv" if path.suffix.lower() == ".csv" else "folder"


def split_names(text: str, separator: str = ",") -> list[str]:
    return [name.strip() for name in text.split(separator) if name.strip()]


def split_numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in split_names(text)]
    except ValueError:
        raise InputError(f"epsilons are numbers separated by commas, such as 1,2,4; got {text!r}.") from None


def write_json(path: Path, document: Any, *, private: bool = False) -> None:
    """Write plain data as JSON, whole or not at all."""
    with atomic_writer(path, private=private) as stream:
        stream.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode())


_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def plain(text: str) -> str:
    """Return text that moves no cursor and hides nothing: names and bundles of strangers are shown on a terminal."""
    return text.translate(_CONTROLS)


def show_error(error: BaseException | None, sentence: str, *, code: int) -> int:
    """Print one sentence (with --json one document), with --debug the traceback, and return the exit code."""
    if Settings.debug and error is not None:
        sys.stderr.write("".join(traceback.format_exception(error)))
    if Settings.json:
        sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}, ensure_ascii=False) + "\n")
    else:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(plain(sentence))}", highlight=False)
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
    warn(str(message))


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    Console(stderr=True, soft_wrap=True).print(f"[bold yellow]warning:[/] {escape(plain(sentence))}", highlight=False)


def hint(*words: object) -> str:
    """Return a command of this program that can be pasted into a shell."""
    return shlex.join(["blindsight", *map(str, words)])


def tell_skipped(dataset: "Dataset") -> "Dataset":
    """Say which pictures could not be read, on standard error, and return the others."""
    if dataset.skipped:
        some = "; ".join(dataset.skipped[:3])
        more = f"; and {len(dataset.skipped) - 3:,} more" if len(dataset.skipped) > 3 else ""
        warn(f"{len(dataset.skipped):,} of the files of {dataset.name} could not be read: {some}{more}.")
    return dataset


def show(document: Mapping[str, Any], *parts: str | Text | Table) -> None:
    """Show a result: the JSON document to a program, or the parts (lines as they are, tables) to a person."""
    if Settings.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return
    console = Console(soft_wrap=True)
    for part in parts:
        console.print(plain(part) if isinstance(part, str) else part, highlight=False, markup=False)


def end_check(check: bool) -> None:
    """End a command that was given --check."""
    if check:
        show({"checked": True}, "Options, extras and places to write are in order. No picture was read.")
        raise click.exceptions.Exit(0)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> Table:
    """Return a table for the terminal; the columns named in `numbers` are set right."""
    drawn = Table(
        title=escape(title), title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False
    )
    for name in columns:
        drawn.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(plain(cell)) for cell in row))
    return drawn


class LiveTable:
    """A table whose rows appear as they are found: on standard output, or with --json on standard error."""

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self._columns = columns
        self._begun = False
        self._print(f"[bold]{escape(title)}[/]")

    def row(self, cells: Sequence[str]) -> None:
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
    from rich import progress

    parts = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"), progress.BarColumn())
    with progress.Progress(
        *parts, progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), console=console, transient=True
    ) as bars:
        tasks: dict[str, progress.TaskID] = {}

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
