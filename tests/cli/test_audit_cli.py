"""`blindsight audit` as a stranger meets it: bundles, options that mean nothing, and what cannot be written."""

import json
import zipfile

import pytest

from blindsight.audit.checks import Check, Evidence, run_checks
from blindsight.audit.subject import audit_subjects
from blindsight.errors import StorageError
from blindsight.papers.hashing.mechanisms import flipped_bit
from blindsight.rng import seeded_bytes


@pytest.fixture
def audited_once(monkeypatch):
    """Replace the audit of any artefact by one row, which falls; `meanwhile` is called in between."""
    row = audit_subjects((flipped_bit(0.3),), runs=5000, source=seeded_bytes(1))[0].finding()
    between = []

    def found(*_, **__):
        for meanwhile in between:
            meanwhile()
        return run_checks("x", [Check("hashing", 1, lambda _: Evidence((row,)))], minutes=1.0, seed=0)

    monkeypatch.setattr("blindsight.audit.artefacts.audit_artefact", found)
    return between


@pytest.fixture
def folder(tmp_path):
    """What is said to be audited."""
    made = tmp_path / "index"
    made.mkdir()
    return made


def test_a_bundle_is_written_and_verified(audited_once, folder, tmp_path, blindsight):
    bundle, key, out = tmp_path / "out.zip", tmp_path / "auditor.key", tmp_path / "out"
    said = blindsight("audit", folder, "--out", out, "--bundle", bundle, "--key", key).out
    public = said.split("signed by ")[1].split(".")[0].strip()
    told = blindsight("audit", "verify-bundle", bundle, "--auditor", public).out
    assert "1 of 1 figures were computed again" in " ".join(told.split())
    for name in ("facts.html", "facts.md", "junit.xml", "audit.sarif"):
        assert (out / name).stat().st_size
    assert "expected" in blindsight("audit", "verify-bundle", bundle, "--auditor", "00", code=1).err
    assert "takes the file" in blindsight("audit", "verify-bundle", code=2).err
    assert "second name" in blindsight("audit", folder, bundle, code=2).err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["x", "--auditor", "00"], "--auditor"),
        (["x", "--artefact", "x"], "--artefact"),
        (["x", "-n", "5"], "-n"),
        (["x", "--path", "here"], "--path"),
        (["verify-bundle", "x.zip", "--out", "x"], "--out"),
        (["verify-bundle", "x.zip", "--fail-on", "refuted"], "--fail-on"),
    ],
)
def test_no_option_is_silently_ignored(words, option, blindsight):
    assert option in blindsight("audit", *words, code=2).err


def test_what_a_bundle_takes_is_looked_at_before_any_attack(audited_once, folder, tmp_path, blindsight):
    audited_once.append(lambda: pytest.fail("it was attacked"))
    key = tmp_path / "key"
    key.write_text("no key")
    key.chmod(0o600)
    asked = ["audit", folder, "--out", tmp_path / "out", "--bundle"]
    assert "64 hexadecimal" in blindsight(*asked, tmp_path / "x.zip", "--key", key, code=1).err
    assert "got the folder" in blindsight(*asked, tmp_path, "--key", tmp_path / "new", code=2).err
    assert "is a file" in blindsight(*asked, key / "x.zip", "--key", tmp_path / "new", code=1).err
    inside = blindsight("audit", folder, "--bundle", folder / "x.zip", "--key", tmp_path / "new", code=2)
    assert "lies in what is audited" in inside.err


def test_a_bundle_tells_how_it_was_made_but_not_where(audited_once, tmp_path, blindsight):
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


def test_what_changes_while_it_is_audited_gets_no_bundle(audited_once, folder, tmp_path, blindsight):
    bundle = tmp_path / "x.zip"
    audited_once.append(lambda: (folder / "codes").write_text("others"))
    said = blindsight("audit", folder, "--bundle", bundle, "--key", tmp_path / "key", "--out", tmp_path / "o", code=1)
    assert "codes" in said.err
    assert "1 refuted" in said.out
    assert not bundle.exists()


@pytest.mark.parametrize("error", [StorageError("the disk is full."), RuntimeError("a bug")])
def test_what_was_found_is_shown_though_it_cannot_be_written(
    audited_once, folder, tmp_path, blindsight, monkeypatch, error
):
    def full(*_, **__):
        raise error

    monkeypatch.setattr("blindsight.report.write_report", full)
    said = blindsight("audit", folder, "--out", tmp_path / "out", code=1)
    assert str(error) in said.err
    assert "Random Flipping" in said.out
    document = blindsight(
        "audit", folder, "--out", tmp_path / "out", "--json", code=1
    ).document  # one, whatever happens
    assert (document["error"], document["exit_code"]) == (str(error), 1)
    assert document["verdicts"]["refuted"] == 1


def test_nobody_writes_on_the_terminal_but_we(tmp_path, blindsight):
    for name in ("\x1b[2Jx.zip", "\x9b31mx.zip"):
        said = blindsight("audit", "verify-bundle", tmp_path / name, code=2).err
        assert "x.zip is not there" in " ".join(said.split())
        assert not {"\x1b", "\x9b"} & set(said)


def test_a_folder_that_is_not_there_is_named(tmp_path, blindsight):
    said = blindsight("audit", tmp_path / "gone", "--out", tmp_path / "out", code=2).err
    assert "is not there" in " ".join(said.split())
