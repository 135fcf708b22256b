"""A signed bundle: whole, or refused with a sentence that says what is wrong with it."""

import json
import warnings
import zipfile
from hashlib import sha256

import pytest

from blindsight.audit.bundle import (
    AUDIT,
    MANIFEST,
    SIGNED,
    _packed,
    artefact_digests,
    auditor_key,
    verify_bundle,
    write_bundle,
)
from blindsight.audit.checks import Audit, Evidence
from blindsight.audit.finding import Finding, not_run, rate
from blindsight.audit.subject import laplace
from blindsight.errors import CorruptFileError, InputError, StorageError
from tests.audit.mechanisms import gaussian, gaussian_run, summed_noise


def counted():
    words = {"claim": "it holds", "source": "us", "proven": "nothing", "measure": "share", "attack": "asking"}
    return Finding(**words, measured=rate(5, 10), verdict="not refuted", details={"trials": 10})


@pytest.fixture(scope="module")
def findings():
    subjects = (laplace(1.0), gaussian(1.0, 1e-6), summed_noise(4.0, 1e-12), gaussian_run(1.0, 1e-10))
    audits = [one.audit(5000) for one in (*subjects, laplace(0.25, noise_share=0.25))]  # the last is refuted
    rows = (*(audit.finding() for audit in audits), audits[-1].self_test(planted=True))
    return (counted(), not_run("pictures", "no time."), *rows)


@pytest.fixture
def made(tmp_path, findings):
    """Return the bundle, its key and what was audited."""
    artefact = tmp_path / "index"
    artefact.mkdir()
    (artefact / "codes.npz").write_bytes(b"codes")
    sections = {"a": Evidence(findings[:-1]), "self-test": Evidence(findings[-1:], claims=False)}
    audit = Audit(subject="x", sections=sections, notes=(), effort=1.0, seed=7, seconds=1.0)
    key = auditor_key(tmp_path / "auditor.key")
    path = write_bundle(
        tmp_path / "out.zip",
        audit,
        key=key,
        command="blindsight audit x",
        artefact=artefact_digests(artefact),
        pages={"facts.md": b"#"},
    )
    return path, key, artefact


def test_a_bundle_tells_what_was_audited_and_by_whom_and_its_figures_follow_from_the_outcomes(made, tmp_path):
    path, key, artefact = made
    found = verify_bundle(path, auditor=key.public.hex(), artefact=artefact)
    manifest = found.manifest
    assert manifest["artefact"] == {"codes.npz": sha256(b"codes").hexdigest()}
    assert (manifest["seed"], manifest["effort"], manifest["verdicts"]["not run"]) == (7, 1.0, 1)
    assert {"python", "numpy"} <= set(manifest["versions"])
    assert manifest["machine"]["cores"] >= 1
    assert found.recomputed == 7  # of eight rows one was not run
    assert path.stat().st_mode & 0o077 == (tmp_path / "auditor.key").stat().st_mode & 0o077 == 0
    assert auditor_key(tmp_path / "auditor.key").public == key.public


def changed(path, **members):
    """Write a bundle again with other members; None leaves one out."""
    with zipfile.ZipFile(path) as bundle:
        content = {name: bundle.read(name) for name in bundle.namelist()}
    content |= {name.replace("_", "."): body for name, body in members.items()}
    path.write_bytes(_packed({name: body for name, body in content.items() if body is not None}))


def signed_again(path, key, alter):
    """Let a dishonest auditor change figures and sign them."""
    with zipfile.ZipFile(path) as bundle:
        audit, manifest = (json.loads(bundle.read(name)) for name in (AUDIT, MANIFEST))
    alter(audit, manifest)
    body = json.dumps(audit).encode()
    manifest["files"][AUDIT] = sha256(body).hexdigest()
    stated = json.dumps(manifest).encode()
    changed(path, audit_json=body, manifest_json=stated, manifest_signed=key.sign(stated, author="auditor"))


def test_what_was_altered_is_named(made):
    path, _, artefact = made
    whole = path.read_bytes()

    def refused(words, **given):
        with pytest.raises((CorruptFileError, InputError), match=words):
            verify_bundle(path, **given)
        path.write_bytes(whole)

    changed(path, audit_json=b"{}")
    refused("audit.json .* altered")
    changed(path, facts_md=b"all is well")
    refused("facts.md .* altered")
    changed(path, facts_md=None)
    refused("lacks facts.md")
    changed(path, more=b"")
    refused("more, which nobody signed")
    changed(path, manifest_signed=None)
    refused(f"lacks {SIGNED}")
    changed(path, manifest_json=json.dumps({"schema": "blindsight/audit-bundle", "version": 2}))
    refused("version 2; this Blindsight reads version 1")
    changed(path, manifest_json=b"[]")
    refused("damaged")
    with zipfile.ZipFile(path) as bundle:
        manifest = json.loads(bundle.read(MANIFEST))
    changed(path, manifest_json=json.dumps(manifest | {"seed": 8}).encode())
    refused("manifest.json .* altered")
    changed(path, manifest_json=json.dumps(manifest | {"auditor": "00" * 32}).encode())
    refused("signature")
    path.write_bytes(whole[: len(whole) // 2])
    refused("part of one")
    refused("was expected", auditor="ab" * 32)
    (artefact / "codes.npz").write_bytes(b"other codes")
    refused("codes.npz changed", artefact=artefact)

    path.unlink()
    with pytest.raises(InputError, match="not there"):
        verify_bundle(path)


def test_no_byte_of_a_bundle_can_be_changed(made):
    path, key, _ = made
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):  # in every header, name, content and directory entry
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        with pytest.raises(CorruptFileError):
            verify_bundle(path, auditor=key.public.hex())


def repacked(path, first=(), compression=zipfile.ZIP_STORED):
    """Write a bundle as another program would, perhaps with something before it."""
    with zipfile.ZipFile(path) as bundle:
        content = [(name, bundle.read(name)) for name in bundle.namelist()]
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "w", compression) as bundle:
        for name, body in (*first, *content):
            bundle.writestr(name, body)


@pytest.mark.parametrize("name", [AUDIT, MANIFEST, SIGNED, "facts.md"])
def test_a_second_member_of_a_name_is_refused(made, name):
    path = made[0]
    repacked(path, first=[(name, b"all is well")])  # which is what some programs unpack
    with pytest.raises(CorruptFileError, match="twice"):
        verify_bundle(path)


@pytest.mark.parametrize("before", [b"#!/bin/sh\n", b""])
def test_bytes_around_a_bundle_are_refused(made, before):
    path = made[0]
    path.write_bytes(before + path.read_bytes() + (b"" if before else b"more"))
    with pytest.raises(CorruptFileError, match="altered"):
        verify_bundle(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_nothing_is_decompressed(made, compression):
    path = made[0]
    repacked(path, first=[("zeros", bytes(1 << 20))], compression=compression)
    with pytest.raises(CorruptFileError, match="compressed"):
        verify_bundle(path)


def test_a_bundle_that_is_too_large_is_not_read(made):
    path = made[0]
    with path.open("ab") as stream:
        stream.truncate(1 << 27)  # sparse
    with pytest.raises(CorruptFileError, match="64 MiB"):
        verify_bundle(path)


@pytest.mark.parametrize(
    ("row", "figure", "value"),
    [
        *((0, *part) for part in (("low", 0.4), ("high", 0.6), ("value", 0.4), ("counts", [1, 0]), ("low", "x"))),
        *((row, "low", 0.1) for row in (2, 3, 4, 5)),  # bounds by events, Gaussian noise and canaries
    ],
)
def test_every_end_of_a_figure_is_computed_again(made, row, figure, value):
    path, key, _ = made

    def alter(audit, manifest):
        audit["findings"][row]["measured"][figure] = value

    signed_again(path, key, alter)
    with pytest.raises(CorruptFileError, match=r"does not follow from its outcomes|no audit"):
        verify_bundle(path)


def acquitted(audit, manifest):
    row = next(row for row in audit["findings"] if "claimed" in row["details"])
    row["details"]["claimed"] = row["measured"]["low"] / 2


def counted_otherwise(audit, manifest):
    manifest["verdicts"]["not run"] = 0


def bound_of_noise(audit, manifest):
    row = next(row for row in audit["findings"] if "mu" in row["details"])
    row["measured"]["low"] = row["measured"]["value"] = 0.0


def nothing_at_all(audit, manifest):
    audit.clear()


def no_verdicts(audit, manifest):
    del manifest["verdicts"]


def other_artefact(audit, manifest):
    manifest["artefact"] = 3


@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (acquitted, "verdict on .* does not follow"),
        (counted_otherwise, "other verdicts"),
        (bound_of_noise, "does not follow from its outcomes"),
        (nothing_at_all, "no audit"),
        (no_verdicts, "damaged"),
        (other_artefact, "damaged"),
    ],
)
def test_a_signature_is_no_excuse(made, alter, words):
    path, key, artefact = made
    signed_again(path, key, alter)
    with pytest.raises(CorruptFileError, match=words):
        verify_bundle(path, artefact=artefact)


def test_an_artefact_that_is_not_there_is_no_other_artefact(made, tmp_path):
    with pytest.raises(InputError, match="is not there"):
        verify_bundle(made[0], artefact=tmp_path / "gone")


def test_a_key_that_is_none_or_that_others_can_read(tmp_path):
    key = tmp_path / "key"
    key.write_text("no key")
    key.chmod(0o600)
    with pytest.raises(CorruptFileError, match="64 hexadecimal"):
        auditor_key(key)
    key.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        auditor_key(key)
