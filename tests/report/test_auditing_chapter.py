"""The chapter of an audit tells every finding, every note and every verdict's meaning, and shows the pictures first."""

from typing import Any, get_args

import numpy as np
import pytest

from blindsight.audit.checks import Audit, Evidence
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.inversion.pictures import PictureRow
from blindsight.report import Picture, Table, Text, render_report
from blindsight.report.auditing import audit_chapter


def finding(claim: str, verdict: Verdict = "refuted", interval: Interval | None = None) -> Finding:
    return Finding(
        claim=claim,
        source="A & B 2020",
        proven="nothing",
        measure="epsilon per record",
        measured=interval or Interval(2.5, 2.5, None, 0.999),
        verdict=verdict,
        attack="many runs",
    )


def row(*similarity: float) -> PictureRow:
    shades = [np.full((6, 6, 3), shade, dtype=np.uint8) for shade in (10, 20, 30, 40)]
    return PictureRow(*shades, similarity=(similarity[0], similarity[1], similarity[2]), blind=0.3)


def audit(**changes: Any) -> Audit:
    sections = {
        "the auditor itself": Evidence((finding("planted"),)),
        "pictures": Evidence((finding("drawn", "leaks"),), (row(0.8, 0.1, 0.4), row(0.6, 0.3, 0.4))),
        "silence": Evidence(()),
        "rounds": Evidence(tuple(finding(f"<{verdict}>", verdict) for verdict in get_args(Verdict))),
    }
    return Audit(
        **(
            {"subject": "papers", "sections": sections, "notes": (), "effort": 1.0, "seed": 0, "seconds": 61.4}
            | changes
        )
    )


def test_pictures_first_then_a_table_per_check_with_findings() -> None:
    blocks = audit_chapter(audit()).blocks
    assert [type(block) for block in blocks] == [Picture, Table, Table, Table, Text]
    tables = [block for block in blocks if isinstance(block, Table)]
    assert [table.title for table in tables] == ["The auditor itself", "Pictures", "Rounds"]
    assert all(table.columns == ("claim", "who says so", "proven", "measured", "verdict") for table in tables)
    assert [cells[-1] for cells in tables[2].rows] == list(get_args(Verdict))


def test_pictures_have_means_in_words() -> None:
    picture = audit_chapter(audit()).blocks[0]
    assert isinstance(picture, Picture)
    assert "plain update 0.70, from what the aggregator holds 0.20, from a sift 0.40" in picture.alt
    assert picture.image.height > picture.image.width / 4  # two rows of four


def test_without_pictures_there_is_none() -> None:
    assert not [block for block in audit_chapter(audit(sections={})).blocks if isinstance(block, Picture)]


def test_every_verdict_is_counted_and_explained() -> None:
    chapter = audit_chapter(audit())
    for part in ("8 claims, the papers' and ours", "61 s", "Refuted: 2; withstood: 2; undecided: 1", "admits: 1"):
        assert part in chapter.lead
    legend = chapter.blocks[-1]
    assert isinstance(legend, Text)
    assert all(verdict in legend.text.lower() for verdict in get_args(Verdict))


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (Interval(2.5, 2.5, None, 0.999), "epsilon per record: >= 2.5, 99.9% sure. Attack: many runs"),
        (Interval(0.5, 0.25, 0.75, 0.95), "epsilon per record: 0.5 (0.25 to 0.75), 95% sure. Attack: many runs"),
        (Interval(1.0, 1.0, 1.0, 1.0), "epsilon per record: 1 (1 to 1). Attack: many runs"),
    ],
)
def test_what_was_measured_is_told_with_its_confidence(interval: Interval, said: str) -> None:
    table = audit_chapter(audit(sections={"one": Evidence((finding("x", interval=interval),))})).blocks[0]
    assert isinstance(table, Table)
    assert table.rows == (("x", "A & B 2020", "nothing", said, "refuted"),)


def test_notes_are_told_and_names_escaped() -> None:
    chapter = audit_chapter(audit(subject="<run>", notes=("<b> was left out.", "torch is missing.")))
    assert "about <run>" in chapter.lead
    page = render_report("Audit", [chapter], facts={})
    assert "&lt;b&gt; was left out." in page
    assert "torch is missing." in page
    assert "A &amp; B 2020" in page
    assert "about &lt;run&gt;" in page
    assert "<run>" not in page
