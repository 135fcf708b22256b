"""The report's chapter on an audit: what was claimed, proven and measured."""

from blindsight.audit.attacks import ATTACKS, COLUMNS
from blindsight.audit.checks import Audit
from blindsight.audit.finding import MEANINGS, Finding
from blindsight.audit.inversion import picture_strip
from blindsight.report.page import Block, Chapter, Picture, Table, Text

_COLUMNS = ("claim", "who says so", "proven", "measured", "verdict")

_VERDICTS = " ".join(f"{verdict.capitalize()}: {meaning}." for verdict, meaning in MEANINGS.items())

_LIST = (
    "Every attack there is, whether it fits what was audited or not. Each works on the weakness and fails on the "
    "repair that it is shown on: blindsight audit attacks --run."
)


def audit_chapter(audit: Audit) -> Chapter:
    blocks: list[Block] = []
    if audit.pictures:
        blocks.append(_pictures(audit))
    for name, evidence in audit.sections.items():
        if evidence.findings:
            rows = tuple(_cells(row) for row in evidence.findings)
            blocks.append(Table(_COLUMNS, rows, caption="", title=f"{name[:1].upper()}{name[1:]}"))
    blocks += [Text(note) for note in audit.remarks]
    blocks += [Text(_VERDICTS), Table(COLUMNS, tuple(one.cells for one in ATTACKS), caption=_LIST, title="Attacks")]
    return Chapter(title="Attacked by ourselves", lead=_lead(audit), blocks=tuple(blocks))


def _lead(audit: Audit) -> str:
    told = len(audit.claims) - audit.count("not run")
    what = "the papers' and ours" if audit.subject == "papers" else f"about {audit.subject}"
    withstood = audit.count("not refuted") + audit.count("at chance")
    return (
        f"{told} claims, {what}, were attacked for {audit.seconds:.0f} s. Refuted: {audit.count('refuted')}; "
        f"withstood: {withstood}; undecided: {audit.count('undecided')}; not run: {audit.count('not run')}; "
        f"attacks that work where nothing was promised: "
        f"{audit.count('leaks')}; as the statement admits: {audit.count('as stated')}."
    )


def _cells(finding: Finding) -> tuple[str, ...]:
    measured = f"{finding.measure}: {finding.figure}. Attack: {finding.attack}" if finding.measured else finding.measure
    return (finding.claim, finding.source, finding.proven, measured, finding.verdict)


def _pictures(audit: Audit) -> Picture:
    rows = audit.pictures
    means = [sum(row.similarity[view] for row in rows) / len(rows) for view in range(3)]
    return Picture(
        picture_strip(rows),
        caption="Original; drawn from one plain update; drawn from what the aggregator really holds; drawn from what a "
        "sift lets through. Under each its structural similarity with the original (SSIM); beside the original, that "
        "of the average public picture, which is no reconstruction at all.",
        alt="Rows of four pictures. Mean SSIM from a plain update "
        f"{means[0]:.2f}, from what the aggregator holds {means[1]:.2f}, from a sift {means[2]:.2f}.",
    )
