"""The command line: parse, call one library function, show its result.

Exit codes: 0 done, 1 it could not be done, 2 the command was given wrongly. Results go to standard output (a table,
or one JSON document with --json), progress and errors to standard error. Errors are one sentence; --debug shows where
they come from.
"""

import sys
import warnings
from typing import Annotated

import click
import typer

from blindsight.cli import audit, data, demo, federation, learn, ledger, search, serve, sift
from blindsight.cli.terminal import Settings, show_error, show_version, show_warning
from blindsight.errors import BlindsightError, InputError

_INTERRUPTED = 130  # what typer makes of Ctrl-C

app = typer.Typer(
    name="blindsight",
    help="Learn from, search through and share images that nobody may see.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.add_typer(learn.app, name="learn")
app.add_typer(search.app, name="search")
app.add_typer(sift.app, name="sift")
app.command("audit")(audit.audit)
app.add_typer(ledger.app, name="ledger")
app.add_typer(federation.app, name="federation")
app.command("serve")(serve.serve)
app.command("verify-log")(serve.verify_log)
app.add_typer(serve.tokens, name="token")


@app.callback()
def blindsight(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Learn from, search through and share images that nobody may see."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; every error becomes one sentence."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    Settings.reset()
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="blindsight", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.format_message())
        return 2
    except click.UsageError as error:
        where = f" See: {error.ctx.command_path} --help" if error.ctx else ""
        return show_error(error, f"{error.format_message()}{where}", code=2)
    except click.Abort:
        code = _INTERRUPTED
    except InputError as error:
        return show_error(error, str(error), code=2)
    except BlindsightError as error:
        return show_error(error, " ".join([str(error), *getattr(error, "__notes__", ())]), code=1)
    except Exception as error:
        return show_error(error, f"unexpected {type(error).__name__}: {error} (--debug shows where)", code=1)
    if code == _INTERRUPTED:
        return show_error(None, "interrupted; what was already written is whole.", code=1)
    return code or 0
