"""`blindsight papers` as a stranger meets it: a table, a document, a private report, and sentences."""

import json
from functools import partial
from pathlib import Path

import pytest

from blindsight.audit import checks
from blindsight.audit.checks import Check
from blindsight.audit.subject import SelfTest, audit_subjects
from blindsight.errors import MissingExtraError
from blindsight.papers import claims, portraits
from blindsight.papers.hashing.mechanisms import flipped_bit
from blindsight.rng import seeded_bytes


def missing(effort):
    raise MissingExtraError("this needs torch.")


@pytest.fixture
def few_checks(monkeypatch):
    """The auditor, two claims of a paper, the pictures, and a check that cannot be made; all but keys is seeded."""
    monkeypatch.setattr(checks, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(claims, "RUNS", 20_000)
    monkeypatch.setattr(claims, "_FACES", 300)
    monkeypatch.setattr(claims, "audit_subjects", partial(audit_subjects, source=seeded_bytes(1)))
    monkeypatch.setattr(claims, "self_test", partial(claims.self_test, source=seeded_bytes(2)))
    monkeypatch.setattr(claims, "portraits", partial(claims.portraits, scheme="masks"))
    monkeypatch.setattr(claims, "published_hashing", lambda: (flipped_bit(0.3), flipped_bit(1.0)))
    monkeypatch.setattr(portraits, "_PROBES", 12)
    monkeypatch.setattr(portraits, "_COMPONENTS", 40)
    whole = claims.glance
    monkeypatch.setattr(claims, "glance", lambda *arguments: whole(*arguments)[:3])
    monkeypatch.setattr(claims, "thorough", lambda *_: (Check("networks", 1, missing),))


def test_audit_writes_a_document_and_a_private_report(few_checks, tmp_path, blindsight):
    out = tmp_path / "new" / "audit"
    said = blindsight("papers", "claims", "--minutes", 0.3, "--seed", 4, "--out", out, "--json")
    document = said.document
    assert json.loads((out / "audit.json").read_text()) == document
    assert (document["schema"], document["subject"], document["seed"]) == ("blindsight/audit", claims.SUBJECT, 4)
    told = {row["claim"]: row for row in document["findings"]}
    wrong = told["Random Flipping, Theorem 4: epsilon = 0.3 per bit"]
    assert (wrong["verdict"], wrong["check"]) == ("refuted", "private hashing as published")
    assert wrong["measured"]["low"] > 0.9
    assert told["Random Flipping, Theorem 4: epsilon = 1 per bit"]["verdict"] == "not refuted"
    assert len(document["pictures"]) == 3
    unknown, untried = document["notes"]
    assert "does not recognise the originals either" in unknown  # of 12 persons on drawn faces
    assert untried == "networks could not be tried: this needs torch."
    assert "drawing faces" in said.err
    page = (out / "report.html").read_text()
    for part in ("Attacked by ourselves", "who says so", "data:image/", "Random Flipping", "this needs torch"):
        assert part in page
    for name in ("report.html", "audit.json"):
        assert (out / name).stat().st_mode & 0o077 == 0


def test_a_pipeline_fails_on_what_fell_and_on_what_could_not_be_tested(few_checks, tmp_path, blindsight, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["papers", "claims", "--minutes", 0.3, "--seed", 4]
    blindsight(*asked, "--fail-on", "refuted", code=1)
    assert Path("out/papers/claims/audit.json").exists()
    monkeypatch.setattr(claims, "glance", lambda *_: ())
    assert "Nothing could be tested" in blindsight(*asked, code=1).out


def test_people_read_a_table_per_check(few_checks, tmp_path, blindsight, monkeypatch):
    whole = claims.glance
    monkeypatch.setattr(claims, "glance", lambda *arguments: whole(*arguments)[:2])
    monkeypatch.setenv("COLUMNS", "80")
    said = blindsight("papers", "claims", "--minutes", 0.3, "--out", tmp_path).out
    words = " ".join(said.split())
    for part in (
        *("The auditor itself", "Private hashing as published", "who says so", "networks", "1 not run"),
        *("1 refuted", "undecided", "99.9%", "refuted: measured beyond the claim", str(tmp_path / "report.html")),
        *("neighbouring", "epsilon"),  # no column is so narrow that words break
    ):
        assert part in words, part


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--minutes", "0"], 2, "got 0.0 minutes"),
        (["--minutes", "nan"], 2, "got nan"),
        (["--minutes", "soon"], 2, "'soon'"),
        (["--seed", "-1"], 2, "-1 is not in the range"),
        (["--out", "file/audit"], 1, "a part of the path is a file"),
    ],
)
def test_wrong_options_get_a_sentence_before_a_face_is_drawn(
    arguments, code, sentence, tmp_path, blindsight, monkeypatch
):
    monkeypatch.setattr(claims, "load", lambda *_, **__: pytest.fail("faces were drawn"))
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert sentence in blindsight("papers", "claims", *arguments, code=code).err
    assert not list(tmp_path.rglob("*.json"))


def test_an_auditor_that_fails_its_own_test_writes_nothing(few_checks, tmp_path, blindsight, monkeypatch):
    sound = claims.self_test(runs=5000).sound
    monkeypatch.setattr(claims, "self_test", lambda runs: SelfTest(sound, sound))
    assert "the auditor failed its own test" in blindsight("papers", "claims", "--out", tmp_path, code=1).err
    assert list(tmp_path.glob("*.json")) + list(tmp_path.glob("*.html")) == []


def test_dphe_is_compared_with_its_baselines(tmp_path, blindsight):
    few = ["-n", 300, "--components", 15, "--owners", 3, "--rounds", 2, "--key-bits", 2048]
    asked = ["papers", "dphe", "compare", *few, "--epsilon", 0.2, "--delta", 0.05, "--out", tmp_path / "out", "--json"]
    found = blindsight(*asked).document
    methods = {row["method"]: row for row in found["methods"]}
    assert {"plain", "dphe", "block-dphe", "bfv", "masks", "pooled", "local", "prr10", "ra12"} == set(methods)
    assert methods["prr10"]["statement"]["claim"]["why_it_fails"]
    assert {row["scheme"] for row in found["costs"]} == {"plain", "dphe", "block-dphe", "bfv", "masks"}
    page = Path(found["report"]).read_text()
    for part in ("DPHE and its baselines", "prr10", "nobody holds a key"):
        assert part in page
