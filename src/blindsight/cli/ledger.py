"""`blindsight ledger`: what was spent, by whom, and what is left. It only reads: no file is made or changed."""

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from blindsight.cli.terminal import DebugOption, JsonOption, show, table
from blindsight.errors import StorageError

app = typer.Typer(help="Read a privacy ledger.", no_args_is_help=True)


@app.command("show")
def show_ledger(
    path: Annotated[Path, typer.Argument(help="The ledger's file.")],
    delta: Annotated[
        float, typer.Option("--delta", help="Delta at which to add up where no budget names one.", min=0.0, max=1.0)
    ],
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
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
    notice = [f"[yellow]{escape(ledger.recovered)}[/]"] if ledger.recovered else []
    show(document, *notice, table(f"Ledger {escape(str(path))}", columns, cells, numbers=numbers))


def _plain(epsilon: float) -> float | str:
    """Return a number as strict JSON can hold it, as a `PrivacyStatement` does: infinity by its name."""
    return "infinity" if epsilon == math.inf else epsilon
