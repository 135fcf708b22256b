"""`blindsight audit papers` as a stranger meets it: a table, a document, a private report, and sentences."""

import json
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from blindsight.audit import checks, inversion, papers
from blindsight.audit.attacks import ATTACKS
from blindsight.audit.checks import Check, Evidence, run_checks
from blindsight.audit.mechanisms import SelfTest, flipped_bit
from blindsight.audit.subject import audit_subjects
from blindsight.errors import MissingExtraError, StorageError
from blindsight.rng import seeded_bytes


def missing(effort):
    raise MissingExtraError("this needs torch.")


@pytest.fixture
def few_checks(monkeypatch):
    """The auditor, two claims of a paper, the pictures, and a check that cannot be made; all but keys is seeded."""
    monkeypatch.setattr(checks, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(papers, "RUNS", 20_000)
    monkeypatch.setattr(papers, "_FACES", 300)
    monkeypatch.setattr(papers, "audit_subjects", partial(audit_subjects, source=seeded_bytes(1)))
    monkeypatch.setattr(papers, "self_test", partial(papers.self_test, source=seeded_bytes(2)))
    monkeypatch.setattr(papers, "portraits", partial(papers.portraits, scheme="masks"))
    monkeypatch.setattr(papers, "published_hashing", lambda: (flipped_bit(0.3), flipped_bit(1.0)))
    monkeypatch.setattr(inversion, "_PROBES", 12)
    monkeypatch.setattr(inversion, "_COMPONENTS", 40)
    whole = papers.glance
    monkeypatch.setattr(papers, "glance", lambda *arguments: whole(*arguments)[:3])
    monkeypatch.setattr(papers, "thorough", lambda *_: (Check("networks", 1, missing),))


def test_audit_writes_a_document_and_a_private_report(few_checks, tmp_path, blindsight):
    out = tmp_path / "new" / "audit"
    said = blindsight("audit", "papers", "--minutes", 0.3, "--seed", 4, "--out", out, "--json")
    document = said.document
    assert json.loads((out / "audit.json").read_text()) == document
    assert (document["schema"], document["subject"], document["seed"]) == ("blindsight/audit", "papers", 4)
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
    asked = ["audit", "papers", "--minutes", 0.3, "--seed", 4]
    blindsight(*asked, "--fail-on", "refuted", code=1)
    assert Path("out/audit/papers/audit.json").exists()  # each audit has a folder of its own
    monkeypatch.setattr(papers, "glance", lambda *_: ())
    assert "Nothing could be tested" in blindsight(*asked, code=1).out


def test_people_read_a_table_per_check(few_checks, tmp_path, blindsight, monkeypatch):
    whole = papers.glance
    monkeypatch.setattr(papers, "glance", lambda *arguments: whole(*arguments)[:2])
    monkeypatch.setenv("COLUMNS", "80")
    said = blindsight("audit", "papers", "--minutes", 0.3, "--out", tmp_path).out
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
        (["--data", "faces"], 2, "got --data"),
        (["--path", "here"], 2, "got no --data"),
        (["--out", "file/audit"], 1, "a part of the path is a file"),
    ],
)
def test_wrong_options_get_a_sentence_before_a_face_is_drawn(
    arguments, code, sentence, tmp_path, blindsight, monkeypatch
):
    monkeypatch.setattr(papers, "load", lambda *_, **__: pytest.fail("faces were drawn"))
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert sentence in blindsight("audit", "papers", *arguments, code=code).err
    assert not list(tmp_path.rglob("*.json"))


def test_an_auditor_that_fails_its_own_test_writes_nothing(few_checks, tmp_path, blindsight, monkeypatch):
    sound = papers.self_test(runs=5000).sound
    monkeypatch.setattr(papers, "self_test", lambda runs: SelfTest(sound, sound))
    assert "the auditor failed its own test" in blindsight("audit", "papers", "--out", tmp_path, code=1).err
    assert list(tmp_path.glob("*.json")) + list(tmp_path.glob("*.html")) == []


def test_attacks_are_listed_and_their_outcomes_written_into_the_documentation(tmp_path, blindsight, monkeypatch):
    listed = blindsight("audit", "attacks", "--json").document["attacks"]
    assert [one["name"] for one in listed] == [attack.name for attack in ATTACKS]
    monkeypatch.setattr("blindsight.audit.attacks.ATTACKS", ATTACKS[:1])
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- attacks -->\nold\n<!-- end of attacks -->\nafter\n")
    said = blindsight("audit", "attacks", "--run", "--out", page)
    assert "fails on the repair" in said.out
    before, after = page.read_text().split("| neighbouring inputs |")
    assert before.startswith("before\n")
    assert after.endswith("<!-- end of attacks -->\nafter\n")
    assert "old" not in after
    monkeypatch.setattr(
        "blindsight.audit.attacks.ATTACKS", (replace(ATTACKS[0], trial=lambda weak: ATTACKS[0].trial(False)),)
    )
    assert "Not shown: neighbouring inputs" in blindsight("audit", "attacks", "--run", code=1).out
    page.write_text("nothing")
    assert "end of attacks" in blindsight("audit", "attacks", "--run", "--out", page, code=2).err


@pytest.fixture
def one_check(monkeypatch):
    """One claim of a paper, which falls."""
    check = Check("hashing", 1, partial(papers._epsilons, (flipped_bit(0.3),)))
    monkeypatch.setattr(papers, "RUNS", 5000)
    monkeypatch.setattr(papers, "_FACES", 20)
    monkeypatch.setattr(papers, "glance", lambda *_: (check,))
    monkeypatch.setattr(papers, "thorough", lambda *_: ())


def test_a_bundle_is_written_and_verified(one_check, tmp_path, blindsight):
    bundle, key = tmp_path / "out.zip", tmp_path / "auditor.key"
    said = blindsight("audit", "papers", "--out", tmp_path, "--bundle", bundle, "--key", key).out
    public = said.split("signed by ")[1].split(".")[0].strip()
    told = blindsight("audit", "verify-bundle", bundle, "--auditor", public).out
    assert "1 of 1 figures were computed again" in " ".join(told.split())
    for name in ("facts.html", "facts.md", "junit.xml", "audit.sarif"):
        assert (tmp_path / name).stat().st_size
    assert "expected" in blindsight("audit", "verify-bundle", bundle, "--auditor", "00", code=1).err
    assert "takes the file" in blindsight("audit", "verify-bundle", code=2).err
    assert "second name" in blindsight("audit", "papers", bundle, code=2).err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["papers", "--run"], "--run"),
        (["papers", "--auditor", "00"], "--auditor"),
        (["papers", "--artefact", "x"], "--artefact"),
        (["papers", "-n", "5"], "-n"),
        (["attacks", "--fail-on", "leak"], "--fail-on"),
        (["attacks", "--bundle", "x.zip"], "--bundle"),
        (["verify-bundle", "x.zip", "--out", "x"], "--out"),
        (["verify-bundle", "x.zip", "--fail-on", "refuted"], "--fail-on"),
    ],
)
def test_no_option_is_silently_ignored(words, option, blindsight):
    assert option in blindsight("audit", *words, code=2).err


def test_what_a_bundle_takes_is_looked_at_before_any_attack(tmp_path, blindsight, monkeypatch):
    monkeypatch.setattr(papers, "load", lambda *_, **__: pytest.fail("faces were drawn"))
    key, folder = tmp_path / "key", tmp_path / "index"
    key.write_text("no key")
    key.chmod(0o600)
    asked = ["audit", "papers", "--out", tmp_path / "out", "--bundle"]
    assert "64 hexadecimal" in blindsight(*asked, tmp_path / "x.zip", "--key", key, code=1).err
    assert "got the folder" in blindsight(*asked, tmp_path, "--key", tmp_path / "new", code=2).err
    assert "is a file" in blindsight(*asked, key / "x.zip", "--key", tmp_path / "new", code=1).err
    folder.mkdir()
    inside = blindsight("audit", folder, "--bundle", folder / "x.zip", "--key", tmp_path / "new", code=2)
    assert "lies in what is audited" in inside.err


def audited_once(monkeypatch, meanwhile=lambda: None):
    """Replace the audit of any artefact by one row."""
    row = audit_subjects((flipped_bit(0.3),), runs=5000, source=seeded_bytes(1))[0].finding()

    def found(*_, **__):
        meanwhile()
        return run_checks("x", [Check("hashing", 1, lambda _: Evidence((row,)))], minutes=1.0, seed=0)

    monkeypatch.setattr("blindsight.audit.artefacts.audit_artefact", found)


def test_a_bundle_tells_how_it_was_made_but_not_where(tmp_path, blindsight, monkeypatch):
    audited_once(monkeypatch)
    artefact = tmp_path / "home of ann" / "index"
    artefact.mkdir(parents=True)
    (artefact / "codes").write_text("codes")
    bundle, out = tmp_path / "x.zip", tmp_path / "out"
    asked = ["audit", artefact, "--bundle", bundle, "--key", tmp_path / "key", "--out", out, "--data", "digits"]
    blindsight(*asked, "-n", "50", "--minutes", "2")
    with zipfile.ZipFile(bundle) as packed:
        told = b"".join(packed.read(name) for name in packed.namelist()).decode(errors="replace")
        manifest = json.loads(packed.read("manifest.json"))
    assert manifest["command"] == "blindsight audit index --data digits -n 50 --minutes 2 --seed 0"
    assert "home of ann" not in told
    assert "home of ann" not in (out / "audit.sarif").read_text()
    checked = ["audit", "verify-bundle", bundle, "--artefact", artefact]
    assert "is what was audited" in blindsight(*checked).out
    (artefact / "more").write_text("")
    assert "more changed since" in blindsight(*checked, code=1).err


def test_what_changes_while_it_is_audited_gets_no_bundle(tmp_path, blindsight, monkeypatch):
    artefact, bundle = tmp_path / "index", tmp_path / "x.zip"
    artefact.mkdir()
    audited_once(monkeypatch, meanwhile=lambda: (artefact / "codes").write_text("others"))
    said = blindsight("audit", artefact, "--bundle", bundle, "--key", tmp_path / "key", "--out", tmp_path / "o", code=1)
    assert "codes" in said.err
    assert "1 refuted" in said.out
    assert not bundle.exists()


@pytest.mark.parametrize("error", [StorageError("the disk is full."), RuntimeError("a bug")])
def test_what_was_found_is_shown_though_it_cannot_be_written(one_check, tmp_path, blindsight, monkeypatch, error):
    def full(*_, **__):
        raise error

    monkeypatch.setattr("blindsight.report.write_report", full)
    said = blindsight("audit", "papers", "--out", tmp_path, code=1)
    assert str(error) in said.err
    assert "Random Flipping" in said.out
    document = blindsight("audit", "papers", "--out", tmp_path, "--json", code=1).document  # one, whatever happens
    assert (document["error"], document["exit_code"]) == (str(error), 1)
    assert document["verdicts"]["refuted"] == 1


def test_nobody_writes_on_the_terminal_but_we(tmp_path, blindsight):
    for name in ("\x1b[2Jx.zip", "\x9b31mx.zip"):
        said = blindsight("audit", "verify-bundle", tmp_path / name, code=2).err
        assert "x.zip is not there" in " ".join(said.split())
        assert not {"\x1b", "\x9b"} & set(said)
