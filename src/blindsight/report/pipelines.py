"""An audit for pipelines: JUnit for test reports, SARIF 2.1.0 for code scanning."""

from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from blindsight.audit.checks import Audit
from blindsight.audit.finding import MEANINGS, WORKS, Verdict
from blindsight.report.facts import cell

_LEVELS: dict[Verdict, str] = {"refuted": "error", "leaks": "warning", "undecided": "note", "not run": "note"}


def to_junit(audit: Audit) -> bytes:
    """Return a test case per claim: what fell is a failure, what could not be decided is skipped."""
    broken: tuple[Verdict, ...] = WORKS[:2]
    unknown: tuple[Verdict, ...] = ("undecided", "not run")
    counts = {
        "tests": len(audit.claims),
        "failures": sum(audit.count(verdict) for verdict in broken),
        "skipped": sum(audit.count(verdict) for verdict in unknown),
        "time": round(audit.seconds, 1),
    }
    suite = Element(
        "testsuite", {"name": f"blindsight audit of {audit.subject}"} | {k: str(v) for k, v in counts.items()}
    )
    for name, evidence in audit.sections.items():
        for row in evidence.findings if evidence.claims else ():
            case = SubElement(suite, "testcase", {"classname": name, "name": row.claim})
            if row.verdict in (*broken, *unknown):
                kind = "failure" if row.verdict in broken else "skipped"
                SubElement(case, kind, {"message": f"{row.verdict}: {cell(row)}"})
    return bytes(tostring(suite, encoding="utf-8", xml_declaration=True))


def to_sarif(audit: Audit, *, artefact: str) -> dict[str, Any]:
    """Return what fell, leaks or is unknown as results of a code scan, each at the artefact that was audited."""
    where = [{"physicalLocation": {"artifactLocation": {"uri": artefact}}}]
    results = [
        {
            "ruleId": name,
            "level": _LEVELS[row.verdict],
            "message": {"text": f"{row.claim}: {row.verdict}. {cell(row)}"},
            "locations": where,
        }
        for name, evidence in audit.sections.items()
        for row in (evidence.findings if evidence.claims else ())
        if row.verdict in _LEVELS
    ]
    rules = [{"id": name, "shortDescription": {"text": name}} for name in audit.sections]
    driver = {"name": "blindsight audit", "rules": rules, "properties": {"verdicts": dict(MEANINGS)}}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
