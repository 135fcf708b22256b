"""`blindsight audit`: attack a run, an index, a sift or the papers' claims, and say what is proven and measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Exit, Option

from blindsight.cli import options
from blindsight.cli.options import show, table, terminal_progress, write_json
from blindsight.errors import InputError
from blindsight.files import as_path, check_writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from blindsight.audit.checks import Audit
    from blindsight.audit.finding import Finding

PAPERS = "papers"
"""What an audit of the documents is called."""


def audit(
    what: Annotated[
        str, Argument(metavar="RUN|INDEX|SIFT|papers", help="A folder that Blindsight wrote, or `papers`.")
    ],
    data: Annotated[
        str | None, Option(help="Labelled collection to attack a sift with; see `blindsight data list`.")
    ] = None,
    path: options.PathOption = None,
    count: options.CountOption = None,
    minutes: Annotated[float, Option(help="How long it may take, about: more finds more.")] = 3.0,
    out: Annotated[
        Path | None,
        Option(help="Folder of audit.json and report.html; default: out/audit/ and the name of what is audited."),
    ] = None,
    fail_on: Annotated[
        Literal["refuted", "leak"] | None,
        Option(help="Exit with 1 if a claim is refuted; leak: also if an attack works that nobody promised to stop."),
    ] = None,
    seed: options.SeedOption = 0,
) -> None:
    """Attack what claims to be private: what is claimed, by whom, what is proven, what was measured, what follows.

    If nothing could be tested the exit code is 1, and it is with --fail-on if a claim fell. In a pipeline:
    blindsight audit out/learn --fail-on refuted
    """
    from blindsight.audit.checks import check_minutes
    from blindsight.audit.finding import MEANINGS
    from blindsight.data import load

    if what == PAPERS and data is not None:
        raise InputError("the papers are audited on bundled pictures; got --data. Leave it out.")
    if path is not None and data is None:
        raise InputError("--path says where the collection of --data lies; got no --data. Name it, or leave both out.")
    check_minutes(minutes)
    out = Path("out/audit") / as_path(what).resolve().name if out is None else out
    check_writable(out)
    with terminal_progress() as progress:
        if what == PAPERS:
            from blindsight.audit.papers import audit_papers

            found = audit_papers(minutes=minutes, random_state=seed, progress=progress)
        else:
            from blindsight.audit.artefacts import audit_artefact

            judged = None if data is None else load(data, path=path, count=count, random_state=seed, progress=progress)
            found = audit_artefact(as_path(what), data=judged, minutes=minutes, random_state=seed, progress=progress)
    _write(found, out)
    tables = [
        _table(f"\n{name[:1].upper()}{name[1:]}", evidence.findings)
        for name, evidence in found.sections.items()
        if evidence.findings
    ]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in MEANINGS)
    met = {finding.verdict for finding in found.findings}
    legend = [f"{verdict}: {meaning}." for verdict, meaning in MEANINGS.items() if verdict in met]
    if not found.tested:
        legend.append("Nothing could be tested: that is no success. Give more data (-n) or time (--minutes).")
    show(found.to_dict(), *tables, "", *legend, "", *found.notes, f"{counts}. Report: {out / 'report.html'}")
    fallen = {None: 0, "refuted": found.count("refuted"), "leak": found.count("refuted") + found.count("leaks")}
    if not found.tested or fallen[fail_on]:
        raise Exit(1)


def _table(title: str, findings: "Sequence[Finding]") -> "Table":
    """Return the rows of a check: claims and figures share what the terminal has left, and no word is broken."""
    drawn = table(title, ("claim", "who says so", "proven", "measured", "verdict"), [_cells(row) for row in findings])
    for column, width in zip(drawn.columns, _WIDTHS, strict=True):
        column.width = width
    return drawn


_WIDTHS = (None, 11, 18, None, 11)  # as wide as the longest words of these columns


def _cells(finding: "Finding") -> tuple[str, ...]:
    measured = f"{finding.measured.sure}: {finding.measure}; {finding.attack}"
    return (finding.claim, finding.source, finding.proven, measured, finding.verdict)


def _write(found: "Audit", out: Path) -> None:
    from blindsight.report import write_report
    from blindsight.report.auditing import audit_chapter

    facts = {"Command": "blindsight audit", "Subject": found.subject, "Seed": str(found.seed)}
    title = "The papers' claims, attacked" if found.subject == PAPERS else f"Audit of {found.subject}"
    write_report(out / "report.html", title, [audit_chapter(found)], facts=facts, private=True)
    write_json(out / "audit.json", found.to_dict(), private=True)
