"""Proposals on disk: what was verified waits for the person's answer, over every restart.

A folder per proposal, named by its job: the sift that the app sent, and, once that is verified, the sift that would be
applied and all that its verification found. What is read back is what was written, or is refused: files carry
checksums, and the verdict is computed anew from the evidence.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from blindsight.errors import CorruptFileError
from blindsight.files import read_arrays, write_arrays
from blindsight.metrics import Interval
from blindsight.sift.certificate import Certificate
from blindsight.sift.consent import Proposal, Situation
from blindsight.sift.register import App
from blindsight.sift.sift import Sift, load_sift, save_sift
from blindsight.sift.stream import ReleaseBudget
from blindsight.sift.union import Examination
from blindsight.sift.verdict import AttackResult, Setting, Verification

_KIND = "blindsight/proposal.1"
_SENT, _APPLIED, _FOUND = "sent.npz", "applied.npz", "found.npz"


class Proposals:
    """The proposals of a service, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep_sent(self, job: str, sift: Sift) -> None:
        """Keep what an app sent, until it is verified."""
        save_sift(sift, self._folder / job / _SENT)

    def sent(self, job: str) -> Sift:
        """Return what an app sent."""
        return load_sift(self._folder / job / _SENT)

    def keep(self, job: str, proposal: Proposal) -> None:
        """Keep a verified proposal; what the app sent is not needed any more."""
        save_sift(proposal.sift, self._folder / job / _APPLIED)
        write_arrays(self._folder / job / _FOUND, _KIND, _described(proposal), {}, private=True)

    def get(self, job: str) -> Proposal:
        """Return a proposal as it was verified."""
        path = self._folder / job / _FOUND
        document, _ = read_arrays(path, _KIND)
        sift = load_sift(self._folder / job / _APPLIED)
        try:
            proposal = _restored(document, sift)
        except (KeyError, TypeError, ValueError):
            raise CorruptFileError(f"{path} holds no usable proposal.") from None
        if sift.digest != document["sift"] or _described(proposal) != document:
            raise CorruptFileError(f"{path} holds another proposal than it says.")
        return proposal


def _described(proposal: Proposal) -> dict[str, Any]:
    together = proposal.examination.together
    described = {
        "person": proposal.person,
        "app": proposal.app,
        "mode": proposal.mode,
        "sift": proposal.sift.digest,
        "budget": asdict(proposal.budget),
        "situation": asdict(proposal.situation),
        "alone": proposal.examination.alone.to_dict(),
        "together": None if together is None else together.to_dict(),
        "confidence": proposal.confidence,
        "promised": proposal.promised,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described, allow_nan=False))  # as a reader will see it
    return plain


def _restored(document: Mapping[str, Any], sift: Sift) -> Proposal:
    together = document["together"]
    return Proposal(
        document["person"],
        document["app"],
        document["mode"],
        sift,
        ReleaseBudget(**document["budget"]),
        _situation(document["situation"]),
        Examination(_verification(document["alone"]), None if together is None else _verification(together)),
        document["confidence"],
        document["promised"],
    )


def _situation(data: Mapping[str, Any]) -> Situation:
    app = App(tuple(data["app"]["public"]), data["app"]["version"])
    others = tuple((int(number), int(frames)) for number, frames in data["others"])
    rest = {key: data[key] for key in ("verifier", "verification_set")}
    return Situation(tuple(data["private"]), app, others, tuple(data["apps"]), **rest)


def _verification(data: Mapping[str, Any]) -> Verification:
    results = (_fields(AttackResult, row) | {"interval": Interval(*row["interval"])} for row in data["results"])
    certificates = (Certificate(**_fields(Certificate, row)) for row in data["certificates"])
    attacks = tuple(AttackResult(**row) for row in results)
    return Verification(Setting(**data["setting"]), attacks, data["ending"], tuple(certificates), {})


def _fields(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {part.name: row[part.name] for part in fields(kind) if part.name in row}
