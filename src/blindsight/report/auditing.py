"""An audit as a chapter of the report, as one page of privacy facts, as JUnit and as SARIF 2.1.0.

Nothing that speaks against what was audited is left out.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, get_args
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring

from blindsight import __version__
from blindsight.audit.checks import Audit
from blindsight.audit.finding import MEANINGS, WORKS, Finding, Verdict
from blindsight.audit.inversion import picture_strip
from blindsight.report.page import Block, Chapter, Picture, Table, Text, environment
from blindsight.statement import PrivacyStatement, rounded_up

_COLUMNS = ("claim", "who says so", "proven", "measured", "verdict")

_VERDICTS = " ".join(f"{verdict.capitalize()}: {meaning}." for verdict, meaning in MEANINGS.items())


def audit_chapter(audit: Audit) -> Chapter:
    blocks: list[Block] = []
    if audit.pictures:
        blocks.append(_pictures(audit))
    for name, evidence in audit.sections.items():
        if evidence.findings:
            rows = tuple(_cells(row) for row in evidence.findings)
            blocks.append(Table(_COLUMNS, rows, caption="", title=f"{name[:1].upper()}{name[1:]}"))
    blocks += [Text(note) for note in audit.remarks]
    blocks.append(Text(_VERDICTS))
    return Chapter(title="Attacked by ourselves", lead=_lead(audit), blocks=tuple(blocks))


def _lead(audit: Audit) -> str:
    told = len(audit.claims) - audit.count("not run")
    withstood = audit.count("not refuted") + audit.count("at chance")
    return (
        f"{told} claims about {audit.subject} were attacked for {audit.seconds:.0f} s. Refuted: "
        f"{audit.count('refuted')}; withstood: {withstood}; undecided: {audit.count('undecided')}; "
        f"not run: {audit.count('not run')}; attacks that work where nothing was promised: "
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


_SILENT = "Nothing: its maker promised nothing that could be broken."


@dataclass(frozen=True)
class Fact:
    """Rows of one verdict, in the order of their gravity."""

    verdict: Verdict
    tone: str
    meaning: str
    rows: Sequence[Finding]


@dataclass(frozen=True)
class PrivacyFacts:
    """What the page shows of an audit; `made` tells when, by which versions and on which machine."""

    audit: Audit
    made: Mapping[str, Any]

    @property
    def statement(self) -> PrivacyStatement | None:
        return self.audit.statement

    @property
    def verdict(self) -> tuple[str, str]:
        counts = (self.audit.count(each) for each in ("refuted", "leaks", "undecided", "not run"))
        refuted, leaks, undecided, missing = counts
        more = f" {_count(undecided, 'claim')} could not be decided." if undecided else ""
        more += f" {missing} {'check was' if missing == 1 else 'checks were'} not run." if missing else ""
        if not self.audit.tested:
            return "warn", f"Nothing could be tested.{more}"
        if refuted:
            return "bad", f"{_count(refuted, 'promise')} broken by attacks.{more}"
        if leaks:
            return "bad", f"No promise was broken; {_count(leaks, 'attack')} worked where nothing was promised.{more}"
        return "good", f"No attack broke a promise. That proves nothing beyond the attacks that were made.{more}"

    @property
    def headline(self) -> tuple[tuple[str, str], ...]:
        said = self.statement
        if said is None:
            return (("guarantee", "none stated"),)
        figures: list[tuple[str, str]] = [("guarantee", said.guarantee)]
        if said.epsilon is not None:
            figures.append(("epsilon", rounded_up(said.epsilon)))
        if said.delta:
            figures.append(("delta", rounded_up(said.delta)))
        if said.unit is not None and said.epsilon is not None:
            figures.append(("protects one", said.unit))
        return tuple(figures)

    @property
    def promise(self) -> str:
        return _SILENT if self.statement is None else self.statement.headline()

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The findings about claims, the worst first."""
        order = get_args(Verdict)
        rows = sorted(self.audit.claims, key=lambda row: order.index(row.verdict))
        return tuple(
            Fact(verdict, Table.mark(verdict), MEANINGS[verdict], tuple(group))
            for verdict, group in groupby(rows, key=lambda row: row.verdict)
        )

    @property
    def circumstances(self) -> dict[str, str]:
        machine = self.made["machine"]
        return {
            "Audited": f"{self.made['made']}, for {self.audit.seconds:.0f} s",
            "By": ", ".join(f"{name} {number}" for name, number in self.made["versions"].items()),
            "On": f"{machine['system']} {machine['processor']}, {machine['cores']} cores",
            "Seed": f"{self.audit.seed}, effort {self.audit.effort:.3g}",
        }

    def to_html(self) -> str:
        """Return the page as one file, without script or network."""
        return environment().get_template("facts.html").render(page=self)

    def to_markdown(self) -> str:
        """Return the page as Markdown, for a repository or a model card."""
        lines = [f"# Privacy facts: {self.audit.subject}", "", f"**{self.verdict[1]}**", "", "| | |", "| --- | --- |"]
        lines += [f"| {name} | {value} |" for name, value in self.headline]
        lines += ["", "## What is promised", "", self.promise]
        if self.statement is not None:
            lines += ["", "## Who sees what", ""]
            lines += [f"- **{role}**: {sees}" for role, sees in self.statement.who_sees.items()]
            lines += ["", "## Not protected", "", *(f"- {text}" for text in self.statement.not_protected)]
            lines += ["", "## Assumed", "", *(f"- {text}" for text in self.statement.assumptions)]
        lines += ["", "## What attackers found"]
        for fact in self.facts:
            lines += ["", f"### {fact.verdict.capitalize()} ({len(fact.rows)}): {fact.meaning}", ""]
            lines += [f"- {row.claim}. {cell(row)}" for row in fact.rows]
        if self.audit.remarks:
            lines += ["", "### Also", "", *(f"- {note}" for note in self.audit.remarks)]
        lines += ["", "## How it was measured", "", *(f"- {key}: {text}" for key, text in self.circumstances.items())]
        return "\n".join(lines) + "\n"


def cell(row: Finding) -> str:
    return row.measure if row.measured is None else f"{row.figure}: {row.measure}. Attack: {row.attack}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_LEVELS: dict[Verdict, str] = {"refuted": "error", "leaks": "warning", "undecided": "note", "not run": "note"}


def to_junit(audit: Audit) -> bytes:
    """Return a test case per claim: what fell is a failure, what could not be decided is skipped."""
    broken: tuple[Verdict, ...] = WORKS[:2]
    unknown: tuple[Verdict, ...] = ("undecided", "not run")
    counts = {
        "tests": len(audit.claims),
        "errors": 0,
        "failures": sum(audit.count(verdict) for verdict in broken),
        "skipped": sum(audit.count(verdict) for verdict in unknown),
        "time": round(audit.seconds, 1),
    }
    suite = Element(
        "testsuite", {"name": _xml(f"blindsight audit of {audit.subject}")} | {k: str(v) for k, v in counts.items()}
    )
    for name, evidence in audit.sections.items():
        for row in evidence.findings if evidence.claims else ():
            case = SubElement(suite, "testcase", {"classname": name, "name": _xml(row.claim)})
            if row.verdict in (*broken, *unknown):
                kind = "failure" if row.verdict in broken else "skipped"
                SubElement(case, kind, {"message": _xml(f"{row.verdict}: {cell(row)}")})
    return bytes(tostring(suite, encoding="utf-8", xml_declaration=True))


def _xml(text: str) -> str:
    """Return text as XML may hold it: names of attributes and collections are anybody's."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_sarif(audit: Audit, *, artefact: str) -> dict[str, Any]:
    """Return what fell, leaks or is unknown as results of a code scan, each at the artefact that was audited."""
    place = {"artifactLocation": {"uri": quote(artefact)}, "region": {"startLine": 1}}
    results = [
        {
            "ruleId": name,
            "level": _LEVELS[row.verdict],
            "message": {"text": f"{row.claim}: {row.verdict}. {cell(row)}"},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"primaryLocationLineHash": _fingerprint(name, row)},
        }
        for name, evidence in audit.sections.items()
        for row in (evidence.findings if evidence.claims else ())
        if row.verdict in _LEVELS
    ]
    rules = [{"id": name, "shortDescription": {"text": name}} for name in audit.sections]
    tool = {"name": "blindsight audit", "version": __version__, "rules": rules}
    driver = tool | {"properties": {"verdicts": dict(MEANINGS)}}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _fingerprint(check: str, row: Finding) -> str:
    """Return what tells the claims of one place apart, and is the same in the next audit."""
    attack = re.sub(r"[\d.,]+", "", row.attack)  # without the runs that the time allowed
    return sha256(f"{check}\n{row.claim}\n{attack}".encode()).hexdigest()[:16]
