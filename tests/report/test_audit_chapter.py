"""The chapter of an audit tells every finding, every note and every verdict's meaning, and shows the pictures first."""

import math
from dataclasses import replace
from typing import Any, get_args
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

from blindsight.audit.checks import Audit, Evidence
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.inversion import PictureRow
from blindsight.report import Picture, Table, Text, render_report
from blindsight.report.auditing import PrivacyFacts, audit_chapter, to_junit, to_sarif
from blindsight.statement import PrivacyStatement

SURE = Interval(2.5, 2.5, None, 0.999)


def finding(claim, verdict="refuted", interval=SURE):
    told = {"source": "A & B 2020", "proven": "nothing", "measure": "epsilon per record", "attack": "many runs"}
    return Finding(claim=claim, measured=None if verdict == "not run" else interval, verdict=verdict, **told)


def row(*similarity):
    shades = [np.full((6, 6, 3), shade, dtype=np.uint8) for shade in (10, 20, 30, 40)]
    return PictureRow(np.stack(shades), similarity=(similarity[0], similarity[1], similarity[2]), blind=0.3)


SECTIONS = {
    "the auditor itself": Evidence((finding("planted"),)),
    "pictures": Evidence((finding("drawn", "leaks"),), (row(0.8, 0.1, 0.4), row(0.6, 0.3, 0.4))),
    "silence": Evidence(()),
    "rounds": Evidence(tuple(finding(f"<{verdict}>", verdict) for verdict in get_args(Verdict))),
}


def audit(sections=SECTIONS, **changes):
    settings: dict[str, Any] = {"subject": "papers", "notes": (), "effort": 1.0, "seed": 0, "seconds": 61.4}
    return Audit(sections=sections, **settings | changes)


def test_pictures_first_then_a_table_per_check_with_findings():
    blocks = audit_chapter(audit()).blocks
    assert [type(block) for block in blocks] == [Picture, Table, Table, Table, Text]
    picture, *tables, legend = blocks
    assert "plain update 0.70, from what the aggregator holds 0.20, from a sift 0.40" in picture.alt
    assert picture.image.height > picture.image.width / 4  # two rows of four
    assert [table.title for table in tables] == ["The auditor itself", "Pictures", "Rounds"]
    assert all(table.columns == ("claim", "who says so", "proven", "measured", "verdict") for table in tables)
    assert [cells[-1] for cells in tables[2].rows] == list(get_args(Verdict))
    assert all(verdict in legend.text.lower() for verdict in get_args(Verdict))
    assert not any(isinstance(block, Picture) for block in audit_chapter(audit({})).blocks)


def test_every_verdict_is_counted():
    lead = audit_chapter(audit()).lead
    for part in ("8 claims about papers", "61 s", "Refuted: 2; withstood: 2; undecided: 1", "admits: 1"):
        assert part in lead


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (SURE, "epsilon per record: >= 2.5, 99.9% sure. Attack: many runs"),
        (Interval(0.5, 0.25, 0.75, 0.95), "epsilon per record: 0.5 (0.25 to 0.75), 95% sure. Attack: many runs"),
        (Interval(1.0, 1.0, 1.0, 1.0), "epsilon per record: 1. Attack: many runs"),
    ],
)
def test_what_was_measured_is_told_with_its_confidence(interval, said):
    table = audit_chapter(audit({"one": Evidence((finding("x", interval=interval),))})).blocks[0]
    assert isinstance(table, Table)
    assert table.rows == (("x", "A & B 2020", "nothing", said, "refuted"),)


def test_on_a_phone_every_cell_of_a_row_says_what_it_is():
    page = render_report("Audit", [audit_chapter(audit())], facts={})
    assert '<table class="wordy">' in page
    assert '<td class="mark bad" data-column="verdict">refuted</td>' in page


def test_notes_are_told_and_names_escaped():
    chapter = audit_chapter(audit(subject="<run>", notes=("<b> was left out.", "torch is missing.")))
    page = render_report("Audit", [chapter], facts={})
    for part in ("&lt;b&gt; was left out.", "torch is missing.", "A &amp; B 2020", "about &lt;run&gt;"):
        assert part in page
    assert "<run>" not in page


MADE = {"made": "today", "versions": {"python": "3"}, "machine": {"system": "L", "processor": "x", "cores": 2}}
STATEMENT = PrivacyStatement(
    guarantee="differential privacy",
    mechanism="noise",
    unit="record",
    epsilon=2.0,
    delta=1e-6,
    randomness="operating system",
    who_sees={"server": "<sums>"},
    not_protected=("that a run took place",),
    assumptions=("nobody lies",),
    accountant="pld",
    neighbours="add/remove",
)


def test_privacy_facts_tell_promise_and_findings_and_what_was_not_run():
    facts = PrivacyFacts(audit(statement=STATEMENT), MADE)
    page, text = facts.to_html(), facts.to_markdown()
    for part in ("Privacy facts", "2 promises broken", "1 check was not run", "nobody lies", "that a run took place"):
        assert part in page
        assert part in text
    assert "&lt;sums&gt;" in page
    assert "<script" not in page
    assert [fact.verdict for fact in facts.facts] == list(get_args(Verdict))
    silent = PrivacyFacts(audit({"one": Evidence((finding("x", "not run"),))}), MADE)
    assert silent.verdict == ("warn", "Nothing could be tested. 1 check was not run.")
    assert "promised nothing" in silent.to_html()
    held = PrivacyFacts(audit({"one": Evidence((finding("x", "not refuted"),))}), MADE)
    leaky = PrivacyFacts(audit({"one": Evidence((finding("x", "leaks"),))}), MADE)
    assert (held.verdict[0], leaky.verdict[0]) == ("good", "bad")


def test_a_result_that_proves_nothing_has_facts_too():
    unbounded = PrivacyStatement(
        guarantee="none",
        mechanism="none",
        unit="person",
        epsilon=math.inf,
        delta=None,
        randomness="none",
        who_sees={"server": "everything"},
        not_protected=("everything",),
    )
    facts = PrivacyFacts(audit(statement=unbounded), MADE)
    assert ("epsilon", "infinite") in facts.headline
    assert "infinite" in facts.to_html()
    assert "| epsilon | infinite |" in facts.to_markdown()


def test_facts_tell_what_is_undecided_and_every_note():
    rows = Evidence((finding("x", "not refuted"), finding("y", "undecided")))
    facts = PrivacyFacts(audit({"one": rows}, notes=("no weight was changed by one owner alone.",)), MADE)
    assert "1 claim could not be decided." in facts.verdict[1]
    for page in (facts.to_html(), facts.to_markdown()):
        assert "no weight was changed by one owner alone." in page
    cryptographic = replace(STATEMENT, guarantee="cryptographic", epsilon=None, delta=None, accountant=None)
    told = PrivacyFacts(audit(statement=cryptographic), MADE).headline
    assert "protects one" not in dict(told)  # who is protected is what epsilon is about


def test_confidence_is_rounded_down():
    shared = Interval(0.5, 0.25, 0.75, 1 - 0.05 / 6)
    facts = PrivacyFacts(audit({"one": Evidence((finding("x", "not refuted", shared),))}), MADE)
    for page in (facts.to_html(), facts.to_markdown()):
        assert "99.16% sure" in page
        assert "99.1667" not in page


def test_names_that_xml_cannot_hold_are_replaced():
    strange = audit({"one": Evidence((finding("a\x1b[31m\x00 b\ufffe", "leaks"),))}, subject="\x07")
    (case,) = fromstring(to_junit(strange)).findall("testcase")  # which refuses control characters
    assert case.get("name") == "a\ufffd[31m\ufffd b\ufffd"


def test_every_result_of_a_scan_has_a_place_and_a_name_of_its_own():
    (run,) = to_sarif(audit(), artefact="my runs/100%")["runs"]
    assert run["tool"]["driver"]["version"]
    places = [row["locations"][0]["physicalLocation"] for row in run["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {"my%20runs/100%25"}  # a URI
    assert {place["region"]["startLine"] for place in places} == {1}
    names = [row["partialFingerprints"]["primaryLocationLineHash"] for row in run["results"]]
    assert len(set(names)) == len(names)

    def fingerprint(attack):
        row = replace(finding("x", "leaks"), attack=attack)
        found = to_sarif(audit({"one": Evidence((row,))}), artefact="x")["runs"][0]["results"][0]
        return found["partialFingerprints"]

    assert fingerprint("1,200 runs") == fingerprint("900 runs") != fingerprint("900 canaries")


def test_pipelines_read_failures_and_what_was_skipped():
    suite = fromstring(to_junit(audit()))
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["9", "4", "2"]
    assert len(suite.findall("testcase/failure")) == 4
    assert len(suite.findall("testcase/skipped")) == 2
    (run,) = to_sarif(audit(), artefact="out/index")["runs"]
    assert [row["level"] for row in run["results"]].count("error") == 2
    assert {row["ruleId"] for row in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
