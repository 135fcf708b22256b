"""`blindsight audit`: attack a run, an index or a sift, and say what is proven and measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Literal, Self

from click.exceptions import Exit

from blindsight.cli import options
from blindsight.cli.command import Settings, argument, option
from blindsight.cli.options import hint, show, table, terminal_progress, write_json
from blindsight.errors import InputError, StorageError
from blindsight.files import as_path, atomic_writer, check_writable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from blindsight.audit.checks import Audit
    from blindsight.audit.finding import Finding
    from blindsight.crypto.signing import SigningKey

VERIFY = "verify-bundle"
"""What the check of a bundle is called."""


fail_on_option = option(
    "--fail-on",
    choices=("refuted", "leak"),
    help="Exit with 1 if a claim is refuted; leak: also if an attack works that nobody promised to stop.",
)


@argument(
    "what",
    "A folder that Blindsight wrote, or `verify-bundle`.",
    metavar="RUN|INDEX|SIFT|verify-bundle",
)
@argument("file", "The file that `verify-bundle` looks at.", type=Path, required=False, metavar="[BUNDLE]")
@option("--data", help="Labelled collection to attack a sift with; see `blindsight data list`.")
@options.path
@options.count
@option("--minutes", default=5.0, help="How long it may take, about: more finds more.")
@option(
    "--out",
    type=Path,
    help="Folder of audit.json, report.html, facts.html, facts.md, junit.xml and audit.sarif; default: "
    "out/audit/ and the name of what is audited.",
)
@fail_on_option
@option("--bundle", type=Path, help="Write a signed ZIP file of everything: digests, versions, outcomes, verdicts.")
@option(
    "--key",
    default=Path("~/.blindsight/auditor.key"),
    help="The auditor's secret key for --bundle, made if it is not there.",
)
@option("--auditor", help="With verify-bundle: the public key that must have signed it.")
@option("--artefact", type=Path, help="With verify-bundle: what was audited, to compare with.")
@options.seed
def audit(
    what: str,
    file: Path | None,
    data: str | None,
    path: Path | None,
    count: int | None,
    minutes: float,
    out: Path | None,
    fail_on: Literal["refuted", "leak"] | None,
    bundle: Path | None,
    key: Path,
    auditor: str | None,
    artefact: Path | None,
    seed: int,
) -> None:
    """Attack what claims to be private: what is claimed, by whom, what is proven, what was measured, what follows.

    If nothing could be tested the exit code is 1, and it is with --fail-on if a claim fell. In a pipeline:
    blindsight audit out/learn --fail-on refuted --bundle out/audit.zip
    """
    if what != VERIFY and file is not None:
        raise InputError(f"a second name is that of a bundle to verify; got {file}. Leave it out.")
    asked = {"--data": data, "--path": path, "-n": count, "--fail-on": fail_on, "--bundle": bundle, "--out": out}
    asked |= {"--auditor": auditor, "--artefact": artefact}
    takes = tuple(asked)[6:] if what == VERIFY else tuple(asked)[:6]
    if meaningless := [name for name, value in asked.items() if value is not None and name not in takes]:
        raise InputError(f"`{hint('audit', what)}` takes no {' and no '.join(meaningless)}. Leave it out.")
    if what == VERIFY:
        _verify(file, auditor, artefact)
        return
    from blindsight.audit.artefacts import audit_artefact
    from blindsight.audit.checks import check_minutes
    from blindsight.data import load

    if data is None and (path is not None or count is not None):
        raise InputError("--path and -n are about the collection of --data; got no --data. Name it, or leave them out.")
    check_minutes(minutes)
    options.register_collections()
    folder = as_path(what)
    out = Path("out/audit") / folder.resolve().name if out is None else out
    check_writable(out)
    evidence = None if bundle is None else _Signed.prepare(bundle, key, folder, out)
    with terminal_progress() as progress:
        judged = None if data is None else load(data, path=path, count=count, random_state=seed, progress=progress)
        found = audit_artefact(folder, data=judged, minutes=minutes, random_state=seed, progress=progress)
    named = _named(folder)
    given = {"--data": data, "--path": path and _named(path), "-n": count, "--minutes": f"{minutes:g}", "--seed": seed}
    command = hint("audit", named, *(word for pair in given.items() if pair[1] is not None for word in pair))
    show_audit(
        found,
        out,
        title=f"Audit of {found.subject}",
        name=named,
        fail_on=fail_on,
        sign=None if evidence is None else partial(evidence.write, command),
    )


def show_audit(
    found: "Audit",
    out: Path,
    *,
    title: str,
    name: str,
    fail_on: Literal["refuted", "leak"] | None,
    sign: "Sign | None" = None,
) -> None:
    """Write an audit into a folder and show it; exit with 1 as `--fail-on` asks, and if nothing could be tested."""
    from blindsight.audit.finding import MEANINGS

    failed: Exception | None = None
    try:
        signed = _write(found, out, title, name, sign)
    except Exception as error:  # what was found is shown all the same
        signed, failed = (), error
    tables = [
        _table(f"\n{check[:1].upper()}{check[1:]}", evidence.findings)
        for check, evidence in found.sections.items()
        if evidence.findings
    ]
    counts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in MEANINGS)
    met = {finding.verdict for finding in found.findings}
    legend = [f"{verdict}: {meaning}." for verdict, meaning in MEANINGS.items() if verdict in met]
    if not found.tested:
        legend.append("Nothing could be tested: that is no success. Give more pictures or time (--minutes).")
    if len(found.claims) < len(found.findings):
        counts += " (self-tests of the auditor are not counted)"
    where = () if failed else (f"Report: {out / 'report.html'}",)
    document = found.to_dict() | ({"error": str(failed), "exit_code": 1} if failed else {})
    show(document, *tables, "", *legend, "", *found.remarks, f"{counts}.", *where, *signed)
    if failed and not Settings.json:
        raise failed
    fallen = {None: 0, "refuted": found.count("refuted"), "leak": found.count("refuted") + found.count("leaks")}
    if failed or not found.tested or fallen[fail_on]:
        raise Exit(1)


def _named(path: str | Path) -> str:
    """Return a path as others may read it: from here, or its name alone, but not where somebody keeps it."""
    path = Path(path)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return here.name if here.is_absolute() or ".." in here.parts else str(here)


@dataclass(frozen=True)
class _Signed:
    """What a bundle takes, looked at before any attack: a place, a key, and the digests of what is audited."""

    bundle: Path
    key: "SigningKey"
    artefact: Path
    digests: Mapping[str, str]

    @classmethod
    def prepare(cls, bundle: Path, key: Path, artefact: Path, out: Path) -> Self:
        from blindsight.audit.bundle import artefact_digests, auditor_key

        check_writable(bundle.parent)
        if bundle.is_dir():
            raise InputError(f"--bundle is a file; got the folder {bundle}.")
        for path in (bundle, out, key):
            if as_path(path).resolve().is_relative_to(artefact.resolve()):
                raise InputError(f"{path} lies in what is audited, which it would change. Name another place.")
        return cls(bundle, auditor_key(key), artefact, artefact_digests(artefact))

    def write(self, command: str, found: "Audit", pages: Mapping[str, bytes]) -> tuple[str, ...]:
        from blindsight.audit.bundle import artefact_digests, changed_files, write_bundle

        if changed := changed_files(self.digests, artefact_digests(self.artefact)):
            raise StorageError(f"no bundle: {self.artefact} changed while it was audited ({changed}). Audit it again.")
        write_bundle(self.bundle, found, key=self.key, command=command, artefact=self.digests, pages=pages)
        return (f"Bundle: {self.bundle}, signed by {self.key.public.hex()}.",)


def _table(title: str, findings: "Sequence[Finding]") -> "Table":
    """Return the rows of a check. No word is broken; where the terminal is narrow, all about a claim is one column."""
    narrow = get_terminal_size().columns < _NARROW
    columns = ("claim, who says so, proven", "measured", "verdict") if narrow else _COLUMNS
    *rows, last = [_cells(row, narrow=narrow) for row in findings]
    apart = [tuple(f"{cell}\n" for cell in row) for row in rows]  # each is many lines
    drawn = table(title, columns, [*apart, last])
    for column in drawn.columns:
        column.width = _WIDTHS.get(str(column.header))
    return drawn


_COLUMNS, _NARROW = ("claim", "who says so", "proven", "measured", "verdict"), 100
_WIDTHS = {"who says so": 12, "proven": 18, "verdict": 11}  # as wide as the longest words of these columns


def _cells(finding: "Finding", *, narrow: bool) -> tuple[str, ...]:
    measured = f"{finding.figure}: {finding.measure}; {finding.attack}" if finding.measured else finding.measure
    told: tuple[str, ...] = (finding.claim, finding.source, finding.proven)
    if narrow:
        told = ("{}\n({}; proven: {})".format(*told) if finding.measured else finding.claim,)
    return (*told, measured, finding.verdict)


def _write(found: "Audit", out: Path, title: str, name: str, sign: "Sign | None") -> tuple[str, ...]:
    """Write everything; return what to say of the bundle."""
    from blindsight.audit.bundle import circumstances
    from blindsight.report import write_report
    from blindsight.report.auditing import PrivacyFacts, audit_chapter, to_junit, to_sarif

    facts = {"Command": "blindsight audit", "Subject": found.subject, "Seed": str(found.seed)}
    write_report(out / "report.html", title, [audit_chapter(found)], facts=facts, private=True)
    write_json(out / "audit.json", found.to_dict(), private=True)
    write_json(out / "audit.sarif", to_sarif(found, artefact=name), private=True)
    page = PrivacyFacts(found, circumstances())
    pages = {"facts.html": page.to_html().encode(), "facts.md": page.to_markdown().encode()}
    for file, body in (pages | {"junit.xml": to_junit(found)}).items():
        with atomic_writer(out / file, private=True) as stream:
            stream.write(body)
    return () if sign is None else sign(found, pages)


Sign = Callable[["Audit", Mapping[str, bytes]], tuple[str, ...]]
"""Writes a signed bundle of an audit and its pages; returns what to say of it."""


def _verify(file: Path | None, auditor: str | None, artefact: Path | None) -> None:
    from blindsight.audit.bundle import verify_bundle

    if file is None:
        raise InputError("verify-bundle takes the file that `blindsight audit --bundle` wrote; got none.")
    found = verify_bundle(file, auditor=auditor, artefact=artefact)
    manifest = found.manifest
    counts = ", ".join(f"{count} {verdict}" for verdict, count in manifest["verdicts"].items() if count)
    whose = "the expected key" if auditor else "the key it names; --auditor says which key you expect"
    told = {"auditor": found.auditor, "recomputed": found.recomputed, "manifest": dict(manifest)}
    show(
        told,
        f"{file} is whole and signed by {found.auditor} ({whose}).",
        f"Audit of {manifest['subject']}, {manifest['made']}: {counts}.",
        f"{found.recomputed} of {len(found.audit['findings'])} figures were computed again from their raw outcomes.",
        "What lies there now is what was audited." if artefact else "Give --artefact to compare with what was audited.",
    )
