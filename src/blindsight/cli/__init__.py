"""The command line: parse, call one library function, show its result.

Exit codes: 0 done, 1 it could not be done, 2 the command was given wrongly, 130 Ctrl-C. Results go to standard output
(a table, or one JSON document with --json), progress and errors to standard error. Errors are one sentence; --debug
shows where they come from.
"""

import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import click
from rich.text import Text

from blindsight.cli import audit, data, federation, learn, options, papers, search, serve, sift
from blindsight.cli.command import PROGRAM, Settings, argument, command, completion, group, option
from blindsight.cli.options import show, show_error, show_warning, table, terminal_progress
from blindsight.errors import BlindsightError, InputError, StorageError

_INTERRUPTED = 130  # as a shell reports Ctrl-C

app = group(
    PROGRAM,
    "Learn from, search through and share images that nobody may see.",
    click.version_option(
        package_name="blindsight-vision", message=f"{PROGRAM} %(version)s", help="Print the version and stop."
    ),
    completion("--install-completion", "Complete commands in this shell ($SHELL: bash, zsh or fish)."),
    completion("--show-completion", "Print the script that completes commands, to copy it."),
)
ledgers = group("ledger", "Read a privacy ledger.")


@command(app, "demo", example="demo --out out")
@options.report_folder("out")
@option("--pictures", default=4000, help="How many faces to draw.", min=600)
@options.seed
def run_demo(out: Path, pictures: int, seed: int) -> None:
    """Run every part on bundled data and write one self-contained report."""
    from blindsight import demo

    size = replace(demo.FULL, pictures=pictures)
    with terminal_progress() as progress:
        result = demo.run_demo(out, size, random_state=seed, progress=progress)
    page = result.report.resolve()
    show(
        {"report": str(result.report), **result.findings},
        f"The report is in {result.report} ({page.stat().st_size / 1e6:.1f} MB, {result.findings['seconds']:.0f} s).",
        f"Open it in a browser: {page.as_uri()}",
        "To try it yourself, run `blindsight serve` and open http://127.0.0.1:8420 (needs the extra 'service').",
    )


@command(ledgers, "show", example="ledger show privacy.ledger --delta 1e-6")
@argument("path", "The ledger's file.", type=Path)
@option(
    "--delta", type=float, required=True, help="Delta at which to add up where no budget names one.", min=0.0, max=1.0
)
def show_ledger(path: Path, delta: float) -> None:
    """Show what was spent on every scope, in its unit, against its budget."""
    from blindsight.dp import Ledger

    if not path.is_file():
        raise StorageError(f"there is no ledger at {path}.")
    ledger = Ledger(path, readonly=True)
    rows = ledger.table(delta=delta)
    document = {
        "ledger": str(path),
        "recovered": ledger.recovered,
        "scopes": [
            {
                "scope": row.scope,
                "unit": row.unit,
                "neighbours": row.neighbours,
                "releases": row.releases,
                "epsilon_basic": _plain(row.spent.basic),
                "epsilon": _plain(row.spent.epsilon),
                "budget": None if row.budget is None else row.budget.epsilon,
            }
            for row in rows
        ],
    }
    cells = [
        (
            *(row.scope, row.unit, row.neighbours, str(row.releases)),
            *(f"{row.spent.basic:.4g}", f"{row.spent.epsilon:.4g}"),
            "none" if row.budget is None else f"{row.budget.epsilon:.4g}",
        )
        for row in rows
    ]
    columns = ("scope", "unit", "neighbours", "releases", "basic", "epsilon", "budget")
    numbers = ("releases", "basic", "epsilon", "budget")
    notice = [Text(ledger.recovered, style="yellow")] if ledger.recovered else []
    show(document, *notice, table(f"Ledger {path}", columns, cells, numbers=numbers))


def _plain(epsilon: float) -> float | str:
    """Return a number as strict JSON can hold it, as a `PrivacyStatement` does: infinity by its name."""
    return "infinity" if epsilon == math.inf else epsilon


app.add_command(data.app)
app.add_command(learn.app)
app.add_command(search.app)
app.add_command(sift.app)
command(app, "audit", example="audit out/learn --fail-on refuted")(audit.audit)
app.add_command(ledgers)
app.add_command(papers.app)
app.add_command(federation.app)
command(app, "serve", example="serve --folder out/service --port 8420")(serve.serve)
command(app, "verify-log", example="verify-log --folder out/service")(serve.verify_log)
command(app, "backup", example="backup service.backup --folder out/service")(serve.backup)
command(app, "restore", example="restore service.backup --folder out/new")(serve.restore)
command(app, "enrol", example="enrol https://example.org:8420 CODE --identity ann.identity")(serve.enrol)
app.add_command(serve.tokens)
app.add_command(serve.owners)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; every error becomes one sentence."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    Settings.reset()
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    try:
        return app.main(arguments, prog_name=PROGRAM, standalone_mode=False) or 0
    except click.UsageError as error:
        where = f" See: {error.ctx.command_path} --help" if error.ctx else ""
        return show_error(error, f"{error.format_message()}{where}", code=2)
    except click.Abort:
        return show_error(None, "interrupted; what was already written is whole.", code=_INTERRUPTED)
    except BlindsightError as error:
        sentence = " ".join([str(error), *filter(None, getattr(error, "__notes__", ()))])
        return show_error(error, sentence, code=2 if isinstance(error, InputError) else 1)
    except Exception as error:
        return show_error(error, f"unexpected {type(error).__name__}: {error} (--debug shows where)", code=1)
