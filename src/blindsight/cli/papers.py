"""`blindsight papers`: what the documents behind Blindsight claim, and what it comes to."""

from pathlib import Path
from typing import Literal

from blindsight.cli import options
from blindsight.cli.audit import fail_on_option, show_audit
from blindsight.cli.command import command, group, option
from blindsight.cli.options import terminal_progress
from blindsight.files import check_writable

app = group("papers", "Reproduce and attack what the documents behind Blindsight say.")


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
