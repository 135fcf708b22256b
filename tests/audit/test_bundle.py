"""A signed bundle: whole, or refused with a sentence that says what is wrong with it."""

import json
import zipfile
from hashlib import sha256

import pytest

from blindsight.audit.bundle import AUDIT, MANIFEST, SIGNED, auditor_key, verify_bundle, write_bundle
from blindsight.audit.checks import Audit, Evidence
from blindsight.audit.finding import Finding, not_run, rate
from blindsight.audit.mechanisms import gaussian, gaussian_run, laplace, summed_noise
from blindsight.errors import CorruptFileError, InputError


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
    audit = Audit(subject="x", sections={"a": Evidence(findings)}, notes=(), effort=1.0, seed=7, seconds=1.0)
    key = auditor_key(tmp_path / "auditor.key")
    path = write_bundle(
        tmp_path / "out.zip", audit, key=key, command="blindsight audit x", artefact=artefact, pages={"facts.md": b"#"}
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
    with zipfile.ZipFile(path, "w") as bundle:
        for name, body in content.items():
            if body is not None:
                bundle.writestr(name, body)


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
    path, key, artefact = made
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

    figures = [(0, "low", 0.4), (0, "value", 0.4), (0, "high", 0.6), *((row, "low", 0.1) for row in (2, 3, 4, 5))]
    for number, name, figure in figures:

        def better(audit, manifest, number=number, name=name, figure=figure):
            audit["findings"][number]["measured"][name] = figure

        signed_again(path, key, better)
        refused("does not follow from its outcomes")

    def acquit(audit, manifest):
        (refuted,) = (row for row in audit["findings"] if row["verdict"] == "refuted")
        refuted["verdict"] = "not refuted"

    signed_again(path, key, acquit)
    refused("does not follow from its figure")
    path.unlink()
    with pytest.raises(InputError, match="not there"):
        verify_bundle(path)


def test_a_key_that_is_none(tmp_path):
    (tmp_path / "key").write_text("no key")
    with pytest.raises(CorruptFileError, match="64 hexadecimal"):
        auditor_key(tmp_path / "key")
