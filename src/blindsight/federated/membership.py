"""Who takes part: names and fingerprints, agreed before the run in a way everybody trusts, and nobody else gets in.

The file is TOML and has no secrets in it; it must only come from the right hands::

    [members]
    "aggregator" = "SHA256:..."
    "ann" = "SHA256:..."
    "key generator" = "SHA256:..."
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blindsight.errors import CorruptFileError, InputError, PrivacyError
from blindsight.federated.identity import PublicIdentity, check_name
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@dataclass(frozen=True)
class Members:
    """Every party of a federation by name, with the fingerprint of its keys."""

    fingerprints: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprints", dict(sorted(self.fingerprints.items())))
        owners: dict[str, str] = {}
        for name, fingerprint in self.fingerprints.items():
            check_name(name)
            check_fingerprint(fingerprint)
            if fingerprint in owners:
                raise InputError(f"{owners[fingerprint]!r} and {name!r} have the same fingerprint; each needs its own.")
            owners[fingerprint] = name

    @classmethod
    def read(cls, path: AnyPath) -> "Members":
        """Read a members file."""
        path = as_path(path)
        with storage_errors("read", path):
            blob = path.read_bytes()
        try:
            return cls(_table(tomllib.loads(blob.decode("utf-8"))))
        except ValueError as error:  # no text, no TOML, or an InputError about what it says
            raise CorruptFileError(f"{path} is no members file: {error}") from None

    @property
    def users(self) -> tuple[str, ...]:
        """Everybody but the aggregator and the key generator, sorted by name."""
        return tuple(name for name in self.fingerprints if name not in (AGGREGATOR, KEY_GENERATOR))

    def check(self, identity: PublicIdentity) -> None:
        """Refuse a party that is no member, or that has other keys than the member of that name."""
        if identity.name not in self.fingerprints:
            raise PrivacyError(f"{identity.name!r} does not take part: the members file does not name it.")
        expected = self.fingerprints[identity.name]
        if identity.fingerprint != expected:
            raise PrivacyError(
                f"{identity.name!r} shows keys with the fingerprint {identity.fingerprint}; the members file says "
                f"{expected}. Somebody else may be speaking in its name."
            )

    def to_toml(self) -> str:
        """Return the text of a members file."""
        return "[members]\n" + "".join(f"{_quoted(name)} = {_quoted(of)}\n" for name, of in self.fingerprints.items())


def check_fingerprint(fingerprint: str) -> None:
    """Refuse what is no fingerprint, before it is compared with one."""
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise InputError(f"a fingerprint is 'SHA256:' and 43 characters of base64; got {fingerprint!r}.")


def _table(document: dict[str, Any]) -> dict[str, str]:
    """Return the one table of a members file."""
    members = document.get("members")
    if set(document) != {"members"} or not isinstance(members, dict):
        raise InputError("it has one table, [members], and nothing else.")
    wrong = [name for name, fingerprint in members.items() if not isinstance(fingerprint, str)]
    if wrong:
        raise InputError(f"the fingerprint of {wrong[0]!r} is a text in quotes.")
    return members


def _quoted(text: str) -> str:
    """Return a TOML string; the text is printable, so two characters need care."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
