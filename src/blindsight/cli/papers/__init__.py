"""`blindsight papers`: the five documents behind Blindsight, what reproduces them, and what their claims come to."""

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from blindsight.cli import options
from blindsight.cli.audit import fail_on_option, show_audit
from blindsight.cli.command import argument, command, group, option
from blindsight.cli.options import show, terminal_progress
from blindsight.cli.papers import dphe, hashing, selective, sensorsift
from blindsight.files import check_writable

app = group("papers", "Reproduce and attack what the documents behind Blindsight say.")
for _document in (dphe.app, selective.app, hashing.app, sensorsift.app):
    app.add_command(_document)


def register_collections() -> None:
    """Make the papers' collections known to `load`."""
    import blindsight.papers.collections  # noqa: F401


@command(app, "list", example="papers list")
def list_documents() -> None:
    """Show the five documents: what each proposes, and what to run."""
    from blindsight.papers import DOCUMENTS

    lines = [
        line
        for number, one in enumerate(DOCUMENTS, 1)
        for line in (f"{number}. {one.name} ({one.published}): {one.summary}.", *(f"     {run}" for run in one.run))
    ]
    document = [asdict(one) for one in DOCUMENTS]
    show({"documents": document}, *lines, "What their claims come to under attack: blindsight papers claims")


@command(app, "fetch", example="papers fetch cifar10")
@argument("name", "Name of the collection; `blindsight data list` shows those that are fetched.")
def fetch_collection(name: str) -> None:
    """Download a collection into the cache: verified against its checksum, complete or not at all."""
    from blindsight.papers.collections import fetch

    with terminal_progress() as progress:
        folder = fetch(name, progress=progress)
    show({"name": name, "folder": str(folder)}, f"{name} is in {folder}")


@command(app, "claims", example="papers claims --minutes 5")
@option("--minutes", default=5.0, help="How long it may take, about: more finds more.")
@options.report_folder("out/papers/claims")
@fail_on_option
@options.seed
def claims(minutes: float, out: Path, fail_on: Literal["refuted", "leak"] | None, seed: int) -> None:
    """Attack the claims of the documents: what is claimed, by whom, what is proven, what was measured, what follows."""
    from blindsight.papers.claims import audit_claims

    check_writable(out)
    with terminal_progress() as progress:
        found = audit_claims(minutes=minutes, random_state=seed, progress=progress)
    show_audit(found, out, title="The documents' claims, attacked", name="papers", fail_on=fail_on)
