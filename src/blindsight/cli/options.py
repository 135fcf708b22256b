"""What all commands share: options that are defined once, and how results, progress and errors are shown.

Every command has --json and --debug. A path may begin with ``~``; an option that holds one value is given once; where
nothing can be written is found before any work. A command may take dataclasses: their fields are its options.
"""

import json
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TextIO, TypeVar

import click
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typer import Argument, Option
from typer.core import TyperCommand, TyperOption
from typer.models import CommandFunctionType

from blindsight.errors import InputError
from blindsight.files import as_path, atomic_writer, check_writable
from blindsight.progress import Progress

if TYPE_CHECKING:
    from blindsight.data import Dataset

T = TypeVar("T")


def to_folder(folder: Path | None) -> Path | None:
    """Refuse a folder into which nothing can be written."""
    if folder is not None:
        check_writable(folder)
    return folder


def to_file(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written."""
    if file is not None:
        check_writable(file.parent)
    return file


# Which pictures, and what a method sees of them
PathOption = Annotated[Path | None, Option(help="Where the collection lies, if it is read from a path.")]
CountOption = Annotated[int | None, Option("-n", "--count", help="At most this many pictures.", min=1)]
SeedOption = Annotated[int, Option(help="Seed of splits, pictures and initial weights.", min=0)]
FeaturesOption = Annotated[str, Option(help="pixels, embedding, thumbnail, or the path of an ONNX model.")]
ComponentsOption = Annotated[int, Option(help="Principal components of pixels at most.", min=1)]
OnlyMethodsOption = Annotated[str, Option("--methods", help="Only these, separated by semicolons.")]
ReportOption = Annotated[Path, Option("--out", help="Folder of the report.", callback=to_folder)]

# Learning together
OwnersOption = Annotated[int, Option(help="How many owners share the data out.", min=1)]
RoundsOption = Annotated[int, Option(help="How many rounds.", min=1)]
SchemeOption = Annotated[str, Option(help="masks, bfv, dphe, block-dphe or plain.")]
HiddenOption = Annotated[str | None, Option("--scheme", help="Add uploads up unseen: block-dphe, dphe, bfv or masks.")]
KeyOption = Annotated[int, Option("--key-bits", help="Length of the Paillier key: 2048, 3072 or 4096.")]
SparsityOption = Annotated[
    float | None,
    Option(help="Share of weights an owner does not send; default: 0.9 for dphe and block-dphe, else 0.8."),
]
OptimiserOption = Annotated[Literal["sgd", "rmsprop", "adam"], Option(help="How participants descend.")]
ModelOutOption = Annotated[Path, Option("--out", help="Folder of model, statement and report.", callback=to_folder)]
ResumeOption = Annotated[bool, Option("--resume", help="Keep checkpoints there, and go on from the last one.")]

# Searching
IndexArgument = Annotated[Path, Argument(help="Folder that `search build` wrote.")]
BitsOption = Annotated[int, Option(help="Length of a code; local mode releases symbols.", min=1)]
CentralDeltaOption = Annotated[float, Option("--delta", help="Delta of the central mode.")]
AnswersOption = Annotated[int, Option("-k", help="How many answers.", min=1)]

# Sifting
Attackers = Literal["paper", "modern", "quick"]
SiftArgument = Annotated[Path, Argument(help="Folder that `sift fit` wrote, or a sift's file inside it.")]
NumbersOption = Annotated[int, Option("--components", help="Numbers let out; the paper's K.", min=1)]
PrivacyOption = Annotated[float | None, Option(help="Weight of hiding, the paper's lambda; default 1, or inf.")]
AttackersOption = Annotated[
    Attackers, Option(help="Who tries to read what is private: the paper's five, fifteen, or a quick three.")
]

# Parties and services
HomeOption = Annotated[Path, Option(help="The party's own folder, which nobody else may read.")]
FolderOption = Annotated[Path, Option(help="Folder of everything the service keeps.")]
DatabaseOption = Annotated[
    str | None, Option(help="URL of its database; default: SQLite in the folder.", envvar="BLINDSIGHT_DATABASE")
]
TokenDaysOption = Annotated[
    int | None, Option("--days", help="How long the token opens anything; default: for ever.", min=1, max=3650)
]


@dataclass(frozen=True)
class Collected:
    """Which pictures, by the options of a command."""

    standard: ClassVar[str] = "digits"
    data: Annotated[
        str | None, Option(help="A collection of `blindsight data list`; default: what --path holds, or a bundled one.")
    ] = None
    path: PathOption = None
    count: CountOption = None
    seed: SeedOption = 0

    @property
    def name(self) -> str:
        return self.data or (self.standard if self.path is None else kind_of(self.path))

    def to_dict(self) -> dict[str, Any]:
        """Return all that finds the same pictures again."""
        return asdict(self) | {"data": self.name, "path": None if self.path is None else str(self.path.absolute())}

    def load(self, progress: Progress) -> "Dataset":
        from blindsight.data import load

        found = load(self.name, path=self.path, count=self.count, random_state=self.seed, progress=progress)
        return tell_skipped(found)


def kind_of(path: Path) -> str:
    """Return the collection that a path is of, where none is named: a table (.csv) or a folder of pictures."""
    return "csv" if path.suffix.lower() == ".csv" else "folder"


class Settings:
    """What --json and --debug asked for in this run."""

    json = False
    debug = False

    @classmethod
    def reset(cls) -> None:
        """Forget the last run's options (several runs in one process: tests, notebooks)."""
        cls.json = cls.debug = False

    @classmethod
    def take(cls, context: click.Context, option: click.Parameter, value: bool) -> None:
        """Note one of the two; they are read before the others, so that errors in these are shown as asked for."""
        if value and option.name:
            setattr(cls, option.name, True)


class Command(TyperCommand):
    """A command with --json and --debug; it expands ~ in paths and refuses a second value where one is meant."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **settings)
        for flag, text in (
            ("--json", "One JSON document on standard output."),
            ("--debug", "Show where an error comes from."),
        ):
            eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
            self.params.append(TyperOption(param_decls=[flag], help=text, callback=Settings.take, **eager))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = self.make_parser(ctx).parse_args(list(args))[2]
        rest = super().parse_args(ctx, args)
        for option in given:
            if isinstance(option, click.Option) and given.count(option) > 1 and not (option.is_flag or option.multiple):
                raise click.UsageError(f"{max(option.opts, key=len)} takes one value; it was given twice.", ctx)
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if isinstance(parameter.type, click.Path) and isinstance(value, str):
                ctx.params[parameter.name or ""] = str(as_path(value))
        return rest


class Commands(typer.Typer):
    """A group of commands; without one of them it shows its help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(no_args_is_help=True, **settings)

    def command(  # type: ignore[override]
        self, name: str, *, example: str, **settings: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        add = super().command(name, cls=Command, epilog=f"Example: blindsight {example}", **settings)

        def added(function: CommandFunctionType) -> CommandFunctionType:
            add(_flat(function))
            return function

        return added


def _flat(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its dataclasses as options of its own, in their places."""
    taken = signature(function).parameters.values()
    groups: dict[str, Any] = {one.name: one.annotation for one in taken if is_dataclass(one.annotation)}
    if not groups:
        return function
    flat: list[Parameter] = []
    for one in taken:
        options = (
            [(part.name, part.default, part.type) for part in fields(groups[one.name])] if one.name in groups else []
        )
        options = options or [(one.name, one.default, one.annotation)]
        flat += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=value, annotation=kind) for name, value, kind in options
        ]

    def called(**given: Any) -> None:
        made = {
            name: kind(**{part.name: given.pop(part.name) for part in fields(kind)}) for name, kind in groups.items()
        }
        function(**made, **given)

    called.__doc__, called.__name__ = function.__doc__, function.__name__
    called.__annotations__ = {one.name: one.annotation for one in flat}
    called.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    return called


def chosen(kind: Callable[..., T], given: Mapping[str, Any], **others: Any) -> T:
    """Make what takes options of a command by their names, and `others`."""
    takes = signature(kind).parameters
    return kind(**{name: value for name, value in given.items() if name in takes} | others)


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
    _warn(str(message))


def _warn(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[bold yellow]warning:[/] {escape(plain(sentence))}", highlight=False)


def hint(*words: object) -> str:
    """Return a command of this program that can be pasted into a shell."""
    return shlex.join(["blindsight", *map(str, words)])


def tell_skipped(dataset: "Dataset") -> "Dataset":
    """Say which pictures could not be read, on standard error, and return the others."""
    if dataset.skipped:
        some = "; ".join(dataset.skipped[:3])
        more = f"; and {len(dataset.skipped) - 3:,} more" if len(dataset.skipped) > 3 else ""
        _warn(f"{len(dataset.skipped):,} of the files of {dataset.name} could not be read: {some}{more}.")
    return dataset


def show(document: Mapping[str, Any], *parts: str | Text | Table) -> None:
    """Show a result: the JSON document to a program, or the parts (lines as they are, tables) to a person."""
    if Settings.json:
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n")
        return
    console = Console(soft_wrap=True)
    for part in parts:
        console.print(plain(part) if isinstance(part, str) else part, highlight=False, markup=False)


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
