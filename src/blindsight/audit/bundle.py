"""A signed bundle of an audit: what was audited, by what, on which machine, what came out, and who vouches for it.

A ZIP file without compression, packed in one way only: no byte of it can be changed, added or said twice.
`manifest.json` names the audited artefact's files and the bundle's own by their SHA-256, versions, machine,
seed, effort and verdicts; `manifest.signed` is the same in an Ed25519 envelope (`crypto.signing`), so that whoever has
the auditor's public key finds any change. `audit.json` holds the raw outcomes (hits, runs, canaries, guesses) with the
figures that follow from them, and verification computes these again. What cannot be repeated is the noise that was
attacked, as it comes from the operating system: with the same seed and effort everything else is.
"""

import json
import os
import platform
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import Any

from blindsight.audit.checks import Audit
from blindsight.audit.epsilon import gaussian_loss, least_mu, loss_limit
from blindsight.audit.finding import MEANINGS, rate
from blindsight.audit.onerun import largest_epsilon
from blindsight.crypto.signing import SigningKey, verify
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, atomic_writer, sha256_of, storage_errors

SCHEMA, VERSION = "blindsight/audit-bundle", 1
AUDIT, MANIFEST, SIGNED = "audit.json", "manifest.json", "manifest.signed"
_AUTHOR = "auditor"
_PACKAGES = ("blindsight-vision", "numpy", "scipy", "scikit-learn", "cryptography", "gmpy2", "tenseal", "torch")
_MOST_BYTES = 1 << 26
_EARLIEST, _UNIX = (1980, 1, 1, 0, 0, 0), 3  # of members: the same content gives the same bytes
_FIELDS = {"auditor": str, "subject": str, "made": str, "verdicts": dict, "artefact": dict, "files": dict}
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, InputError)
_TOLERANCE = 1e-9


def auditor_key(path: AnyPath) -> SigningKey:
    """Return the auditor's key, which is made if the file is not there (mode 0600)."""
    path = as_path(path)
    if not path.exists():
        with atomic_writer(path, private=True) as stream:
            stream.write(SigningKey.generate().secret_bytes().hex().encode())
    with storage_errors("read", path), path.open("rb") as stream:
        mode, text = os.fstat(stream.fileno()).st_mode, stream.read(4097)
    if mode & 0o077:
        raise StorageError(f"others can read the auditor's key {path}. Run: chmod 600 {path}")
    try:
        return SigningKey(bytes.fromhex(text.decode("ascii").strip()))
    except (ValueError, InputError):
        raise CorruptFileError(f"{path} holds no auditor's key (64 hexadecimal digits). Name another file.") from None


def circumstances() -> dict[str, Any]:
    """Return when, by which versions and on which machine."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    machine = {"system": platform.system(), "release": platform.release(), "processor": platform.machine()}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"made": now, "versions": versions, "machine": machine | {"cores": os.cpu_count()}}


def artefact_digests(path: AnyPath) -> dict[str, str]:
    """Return the SHA-256 of every file of what is audited."""
    path = as_path(path)
    if path.is_file():
        return {path.name: sha256_of(path)}
    return {str(one.relative_to(path)): sha256_of(one) for one in sorted(path.rglob("*")) if one.is_file()}


def write_bundle(
    path: AnyPath,
    audit: Audit,
    *,
    key: SigningKey,
    command: str,
    artefact: Mapping[str, str],
    pages: Mapping[str, bytes],
) -> Path:
    """Write the bundle of an audit of what had the digests `artefact` before it, with `pages` for people."""
    path, content = as_path(path), {AUDIT: _json(audit.to_dict()), **pages}
    manifest = {
        "schema": SCHEMA,
        "version": VERSION,
        "subject": audit.subject,
        "auditor": key.public.hex(),
        "command": command,
        "seed": audit.seed,
        "effort": audit.effort,
        "seconds": audit.seconds,
        "verdicts": {verdict: audit.count(verdict) for verdict in MEANINGS},
        **circumstances(),
        "artefact": dict(artefact),
        "files": {name: sha256(body).hexdigest() for name, body in content.items()},
    }
    body = _json(manifest)
    content |= {MANIFEST: body, SIGNED: key.sign(body, author=_AUTHOR)}
    with atomic_writer(path, private=True) as stream:
        stream.write(_packed(content))
    return path


def _packed(content: Mapping[str, bytes]) -> bytes:
    """Return the one ZIP file with this content."""
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w") as bundle:
        for name in sorted(content):
            member = zipfile.ZipInfo(name, _EARLIEST)
            member.create_system = _UNIX
            bundle.writestr(member, content[name])
    return stream.getvalue()


@dataclass(frozen=True)
class VerifiedBundle:
    """A bundle whose signature, digests and figures are right; `recomputed` figures were computed again."""

    manifest: Mapping[str, Any]
    audit: Mapping[str, Any]
    recomputed: int

    @property
    def auditor(self) -> str:
        """The public key that signed it, in hexadecimal digits."""
        return str(self.manifest["auditor"])


def verify_bundle(path: AnyPath, *, auditor: str | None = None, artefact: AnyPath | None = None) -> VerifiedBundle:
    """Check signature, digests and figures of a bundle, and refuse it with a sentence.

    `auditor` is the public key that it must be signed by; without it the bundle is only consistent with the key that it
    names. With `artefact` the files that were audited must be those that lie there now.
    """
    path = as_path(path)
    whole = _whole(path)
    content = _members(path, whole)
    manifest = _manifest(path, content)
    if auditor is not None and auditor.strip().lower() != manifest["auditor"]:
        raise CorruptFileError(
            f"{path} is signed by {manifest['auditor']}; {auditor} was expected. Ask the auditor for the right key."
        )
    try:
        body = verify(content[SIGNED], {_AUTHOR: bytes.fromhex(manifest["auditor"])})[1]
    except (MessageError, ValueError):
        raise CorruptFileError(f"{path} does not bear the signature of the auditor it names: it was altered.") from None
    if body != content[MANIFEST]:
        raise CorruptFileError(f"{MANIFEST} in {path} is not the one that was signed: it was altered.")
    _check_digests(path, content, manifest["files"])
    if _packed(content) != whole:
        raise CorruptFileError(f"{path} holds more than what was signed, or something twice: it was altered.")
    if artefact is not None:
        _check_artefact(as_path(artefact), manifest["artefact"])
    try:
        audit = json.loads(content[AUDIT])
        _check_verdicts(path, manifest["verdicts"], audit)
        recomputed = sum(_check_figure(path, row) for row in audit["findings"])
    except _NONSENSE:
        raise CorruptFileError(f"{path} is signed, but what it says is no audit of this Blindsight.") from None
    return VerifiedBundle(manifest, audit, recomputed)


def _whole(path: Path) -> bytes:
    if not path.exists():
        raise InputError(f"{path} is not there. Give the file that `blindsight audit --bundle` wrote.")
    with storage_errors("read", path), path.open("rb") as stream:
        found = stream.read(_MOST_BYTES + 1)
    if len(found) > _MOST_BYTES:
        raise CorruptFileError(f"{path} holds more than {_MOST_BYTES >> 20} MiB: it is no bundle of an audit.")
    return found


def _members(path: Path, whole: bytes) -> dict[str, bytes]:
    """Return what a ZIP file holds; nothing is unpacked that is larger than it says, as nothing is compressed."""
    try:
        with zipfile.ZipFile(BytesIO(whole)) as bundle:
            items = bundle.infolist()
            if any(item.compress_type != zipfile.ZIP_STORED or item.flag_bits & 1 for item in items):
                raise CorruptFileError(f"{path} is compressed or encrypted: of another version, or no bundle.")
            if sum(item.file_size for item in items) > _MOST_BYTES:
                raise CorruptFileError(f"{path} holds more than {_MOST_BYTES >> 20} MiB: it is no bundle of an audit.")
            content = {item.filename: bundle.read(item) for item in items}
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError, struct.error):
        raise CorruptFileError(f"{path} is no bundle, or only a part of one. Copy it again.") from None
    missing = {AUDIT, MANIFEST, SIGNED} - set(content)
    if missing:
        raise CorruptFileError(f"{path} is no bundle of an audit: it lacks {', '.join(sorted(missing))}.")
    return content


def _manifest(path: Path, content: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(content[MANIFEST])
        kind, number = manifest["schema"], manifest["version"]
    except (ValueError, KeyError, TypeError):
        kind, number = None, None
    if kind == SCHEMA and number != VERSION:
        raise CorruptFileError(
            f"{path} is a bundle of version {number}; this Blindsight reads version {VERSION}. Verify it by the "
            "Blindsight that wrote it."
        )
    if kind != SCHEMA or any(not isinstance(manifest.get(name), sort) for name, sort in _FIELDS.items()):
        raise CorruptFileError(f"{MANIFEST} in {path} is damaged, or of something else than an audit.")
    return manifest


def _check_digests(path: Path, content: Mapping[str, bytes], signed: Mapping[str, str]) -> None:
    for name, body in content.items():
        if name in (MANIFEST, SIGNED):
            continue
        if name not in signed:
            raise CorruptFileError(f"{path} holds {name}, which nobody signed.")
        if sha256(body).hexdigest() != signed[name]:
            raise CorruptFileError(f"{name} in {path} is not the one that was signed: it was altered.")
    if missing := set(signed) - set(content):
        raise CorruptFileError(f"{path} lacks {', '.join(sorted(missing))}, which was signed.")


def _check_artefact(path: Path, signed: Mapping[str, str]) -> None:
    if not path.exists():
        raise InputError(f"{path} is not there. Give what was audited.")
    if changed := changed_files(signed, artefact_digests(path)):
        raise CorruptFileError(f"{path} is not what was audited: {changed} changed since.")


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the names of some files of which the digests differ; "" where none do."""
    changed = sorted(name for name in {*now, *before} if now.get(name) != before.get(name))
    more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    return ", ".join(changed[:5]) + more


def _check_verdicts(path: Path, stated: Mapping[str, int], audit: Mapping[str, Any]) -> None:
    """Refuse counts that are not those of the rows, and a row that acquits what its own figure refutes."""
    rows = [row for row in audit["findings"] if row["check"] not in audit["self_tests"]]
    if stated != {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in MEANINGS}:
        raise CorruptFileError(f"{MANIFEST} in {path} counts other verdicts than {AUDIT} holds.")
    for row in rows:
        claimed = row["details"].get("claimed")
        if claimed is not None and (row["measured"]["low"] > claimed) != (row["verdict"] == "refuted"):
            raise CorruptFileError(f"in {path} the verdict on {row['claim']!r} does not follow from its figure.")


def _check_figure(path: Path, row: Mapping[str, Any]) -> bool:
    """Compute a figure again from its raw outcomes, where it has some; refuse another."""
    again = _again(row["measured"] or {}, row["details"])
    for stated, found in again:
        if stated != found and not abs(stated - found) <= _TOLERANCE:
            raise CorruptFileError(
                f"in {path} the figure of {row['claim']!r} does not follow from its outcomes: {stated:.6g} is stated, "
                f"{found:.6g} comes out."
            )
    return bool(again)


def _again(measured: Mapping[str, Any], details: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return stated figures and those that follow from the outcomes, if there are some."""
    if not measured:
        return []
    low, value = measured["low"], measured["value"]
    if measured["counts"]:
        found = rate(*measured["counts"], confidence=measured["confidence"])
        return [(value, found.value), (low, found.low), (measured["high"], found.high or 0.0)]
    if details.keys() >= {"hits", "false_alarms", "evaluated"}:
        counts = (details[name] for name in ("hits", "false_alarms", "evaluated"))
        tail = (1 - details["confidence"]) / 4  # two events, each under two inputs
        return [(value, low), (low, float(loss_limit(*counts, delta=details["delta"], tail=tail)))]
    if details.keys() >= {"mu", "errors", "evaluated"}:
        mu = least_mu(details["errors"], details["evaluated"], details["confidence"])
        return [(value, low), (details["mu"], mu), (low, gaussian_loss(mu, details["delta"]))]
    if details.keys() >= {"canaries", "guesses", "correct"}:
        outcomes = {name: details[name] for name in ("canaries", "guesses", "correct", "delta")}
        return [(value, low), (low, largest_epsilon(**outcomes, wanted=1 - details["confidence"]))]
    return []


def _json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True, allow_nan=False).encode()
