"""How commands and their options are declared, and the pages that --help shows: click, by its public interfaces alone.

A command is a function below decorators, one for each option or argument::

    @command(app, "query", example="search query index me.jpg -k 5")
    @argument("index", "Folder that `search build` wrote.", type=Path)
    @option("-k", default=10, min=1, help="How many answers.")
    def query(index: Path, k: int) -> None: ...

Every command has --json, --debug and --help. An option that holds one value is given once, a path may begin with ``~``,
and no number is "nan". Several options can arrive as one dataclass (`grouped`).
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from inspect import getdoc
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from blindsight.errors import InputError
from blindsight.files import as_path, storage_errors

Declaration = Callable[[Callable[..., Any]], Callable[..., Any]]

PROGRAM = "blindsight"
_COMPLETE = "_BLINDSIGHT_COMPLETE"
_COMPLETED_FROM = {
    "bash": (".bashrc", f'eval "$({_COMPLETE}=bash_source {PROGRAM})"'),
    "zsh": (".zshrc", f'eval "$({_COMPLETE}=zsh_source {PROGRAM})"'),
    "fish": (f".config/fish/completions/{PROGRAM}.fish", f"{_COMPLETE}=fish_source {PROGRAM} | source"),
}
"""Where each shell reads the line that makes it complete commands."""


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


class _Argument(click.Argument):
    """An argument with a meaning of its own in the help, which click has only since 8.5."""

    def __init__(self, *names: Any, meaning: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.meaning = meaning


class _Line(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Text; of an environment variable all of it, not its words."""

    name = "text"
    envvar_list_splitter = "\n"


def group(name: str, about: str, *options: Declaration) -> click.Group:
    """Return a group of commands; without one of them it shows its help."""

    @click.pass_context
    def alone(context: click.Context, /, **given: Any) -> None:
        if context.invoked_subcommand is None:
            _show_help(context)
            context.exit(2)

    for add in reversed(options):
        alone = add(alone)
    made = click.group(
        name, help=about, invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...", add_help_option=False
    )(alone)
    made.params.append(_help_option())
    return made


def command(where: click.Group, name: str, *, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Return what makes a function a command of a group; its help ends with an example."""

    def added(function: Callable[..., None]) -> click.Command:
        epilog = f"Example: {PROGRAM} {example}"
        made = where.command(name, help=getdoc(function), epilog=epilog, add_help_option=False)(function)
        eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": Settings.take}
        made.params += [
            click.Option(["--json"], help="One JSON document on standard output.", **eager),
            click.Option(["--debug"], help="Show where an error comes from.", **eager),
            _help_option(),
        ]
        return made

    return added


def option(
    *names: str,
    help: str,
    type: Any = None,
    default: Any = None,
    choices: Sequence[str] = (),
    min: float | None = None,
    max: float | None = None,
    check: Callable[[Any], Any] | None = None,
    required: bool = False,
    envvar: str | None = None,
) -> Declaration:
    """Declare an option with one value, of the type of its default; it is given once, and a default is shown."""

    def one(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
        if len(values) > 1:
            raise click.UsageError(
                f"{sorted(parameter.opts, key=len)[-1]} takes one value; it was given twice.", context
            )
        value = _checked(values[0]) if values else None
        return check(value) if check else value

    shown: dict[str, Any] = {} if default is None else {"default": (default,), "show_default": True}
    if envvar:
        shown |= {"envvar": envvar, "show_envvar": True}
    kind = _Line() if envvar else _type_of(type or (str if default is None else default.__class__), choices, min, max)
    return click.option(*names, help=help, type=kind, multiple=True, callback=one, required=required, **shown)


def several(*names: str, help: str, type: Any = str, required: bool = False) -> Declaration:
    """Declare an option that may be repeated; its values arrive as a tuple."""
    return click.option(*names, help=help, type=_type_of(type), multiple=True, required=required, callback=_all_checked)


def flag(*names: str, help: str, default: bool = False) -> Declaration:
    """Declare an option without a value: ``--name``, or ``--name/--no-name``."""
    return click.option(*names, help=help, is_flag=True, default=default, show_default=default)


def argument(
    name: str,
    meaning: str,
    *,
    type: Any = str,
    choices: Sequence[str] = (),
    required: bool = True,
    many: bool = False,
    metavar: str | None = None,
    default: Any = None,
) -> Declaration:
    """Declare an argument: a word without dashes; many of them arrive as a tuple."""
    kind = _type_of(type, choices)
    settings: dict[str, Any] = {"nargs": -1} if many else {} if default is None else {"default": default}
    return click.argument(
        name,
        cls=_Argument,
        meaning=meaning,
        type=kind,
        required=required,
        metavar=metavar,
        callback=_all_checked,
        **settings,
    )


def grouped(name: str, kind: Callable[..., Any], *options: Declaration) -> Declaration:
    """Declare several options whose values arrive as one dataclass, in the argument `name`."""
    taken = [part.name for part in fields(kind)]  # type: ignore[arg-type]

    def added(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(**given: Any) -> Any:
            made = kind(**{part: given.pop(part) for part in taken})
            return function(**given, **{name: made})

        declared: Callable[..., Any] = called
        for add in reversed(options):
            declared = add(declared)
        return declared

    return added


def completion(name: str, about: str) -> Declaration:
    """Declare --show-completion or --install-completion."""

    def done(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if not value or context.resilient_parsing:
            return
        shell = Path(os.environ.get("SHELL", "")).name
        kind = get_completion_class(shell)
        if kind is None or shell not in _COMPLETED_FROM:
            raise InputError(f"commands are completed by {', '.join(_COMPLETED_FROM)}; $SHELL names {shell or 'none'}.")
        file, line = Path.home() / _COMPLETED_FROM[shell][0], _COMPLETED_FROM[shell][1]
        if name == "--show-completion":
            click.echo(kind(context.command, {}, PROGRAM, _COMPLETE).source())
        else:
            with storage_errors("write", file):
                file.parent.mkdir(parents=True, exist_ok=True)
                before = file.read_text() if file.exists() else ""
                if line not in before:
                    file.write_text(f"{before}{'' if before.endswith(chr(10)) or not before else chr(10)}{line}\n")
            click.echo(f"{shell} completes the commands of {PROGRAM} by a line in {file}. Open another terminal.")
        context.exit()

    return click.option(name, help=about, is_flag=True, is_eager=True, expose_value=False, callback=done)


def help_records(context: click.Context) -> list[tuple[click.Parameter, str, str]]:
    """Return a command's arguments and options with their names and meanings, in their order."""
    records: list[tuple[click.Parameter, str, str]] = []
    for item in context.command.get_params(context):
        if isinstance(item, _Argument):
            meaning = f"{item.meaning}  [required]" if item.required else item.meaning
            records.append((item, item.human_readable_name, meaning))
        elif found := item.get_help_record(context):
            records.append((item, *found))
    return records


def _checked(value: Any) -> Any:
    """Return a value with ~ expanded; what is not a number is refused."""
    if isinstance(value, float) and math.isnan(value):
        raise click.BadParameter("expected a number; got nan.")
    return as_path(value) if isinstance(value, Path) else value


def _all_checked(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    return tuple(map(_checked, value)) if isinstance(value, tuple) else _checked(value)


def _type_of(kind: Any, choices: Sequence[str] = (), least: float | None = None, most: float | None = None) -> Any:
    if choices:
        return click.Choice(list(choices))
    if isinstance(kind, type) and issubclass(kind, Path):
        return click.Path(path_type=Path)
    if least is None and most is None:
        return kind
    return click.IntRange(least, most) if kind is int else click.FloatRange(least, most)  # type: ignore[arg-type]


def _help_option() -> click.Option:
    def shown(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value and not context.resilient_parsing:
            _show_help(context)
            context.exit()

    eager: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
    return click.Option(["-h", "--help"], help="Show this message and exit.", callback=shown, **eager)


def _show_help(context: click.Context) -> None:
    """Print how a command is called, what it does, and panels of its arguments, options and commands."""
    command = context.command
    usage = f"Usage: {context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    records = help_records(context)
    panels = {
        "Arguments": [found[1:] for found in records if isinstance(found[0], click.Argument)],
        "Options": [found[1:] for found in records if not isinstance(found[0], click.Argument)],
    }
    if isinstance(command, click.Group):
        panels["Commands"] = [(name, _opening(one)) for name, one in command.commands.items()]
    parts: list[Any] = [Text(usage, style="bold"), "", Text((command.help or "").strip()), ""]
    for title, rows in panels.items():
        if rows:
            grid = Table.grid(padding=(0, 2, 0, 0))
            grid.add_column(max_width=34, style="cyan", overflow="fold")
            grid.add_column()
            for names, meaning in rows:
                grid.add_row(Text(names), Text(" ".join(meaning.split())))
            parts.append(Panel(grid, title=title, title_align="left", border_style="dim"))
    if command.epilog:
        parts += ["", Text(command.epilog)]
    Console(highlight=False).print(Padding(Group(*parts), (1, 1, 1, 1)))


def _opening(command: click.Command) -> str:
    """Return the first paragraph of a command's help."""
    return (command.help or "").strip().partition("\n\n")[0]
