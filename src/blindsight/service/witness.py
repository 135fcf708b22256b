"""The platform's records become entries of the audit log before they take effect.

*The guarantee.* Whatever the platform decides or releases has its entry in the log first (`Platform.attest`): a kill
between the two leaves an entry for something that did not happen, never something that happened without its entry; and
where the log cannot be written the platform does nothing. Evidence is too long for the log: its SHA-256 stands there,
and ties the evidence that the platform keeps to the entry.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from blindsight.service.log import AuditLog, Draft
from blindsight.service.principals import Principal

PLATFORM = "platform"
"""Who acts where nobody asked for it just now; no principal has this id."""


@dataclass(frozen=True)
class Acting:
    """Who acts, what about, and the ids of apps that act beside them, by their names."""

    actor: str = PLATFORM
    about: Mapping[str, Any] = field(default_factory=dict)
    apps: Mapping[str, str] = field(default_factory=dict)

    def actor_of(self, record: Mapping[str, Any]) -> str:
        """Return whose doing a record is."""
        return self.apps.get(str(record.get("app")), self.actor)


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


@contextmanager
def acting(principal: Principal | None, **about: Any) -> Iterator[None]:
    """Attribute what the platform records in this block to somebody; `about` goes into the entries."""
    with _as(Acting(PLATFORM if principal is None else principal.id, about)):
        yield


@contextmanager
def acting_together(apps: Iterable[Principal]) -> Iterator[None]:
    """Attribute what the platform records in this block to the app that each record names."""
    with _as(Acting(apps={app.name: app.id for app in apps})):
        yield


@contextmanager
def _as(now: Acting) -> Iterator[None]:
    mark = _acting.set(now)
    try:
        yield
    finally:
        _acting.reset(mark)


@dataclass(frozen=True)
class Witness:
    """Writes an entry for every record it is told of; those told together are on disk together."""

    log: AuditLog

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Append the records to the log, in one transaction, and only then let them happen."""
        now = _acting.get() or Acting()
        self.log.append_all(
            [Draft(now.actor_of(one), str(one["kind"]), {**now.about, **_details(one)}) for one in records]
        )


def _details(record: Mapping[str, Any]) -> dict[str, Any]:
    details = {key: value for key, value in record.items() if key not in ("kind", "time", "report", "together")}
    evidence = {key: record[key] for key in ("report", "together") if key in record}
    return {**details, "evidence": digest(evidence)} if evidence else details


def digest(evidence: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(evidence, sort_keys=True, allow_nan=False).encode()).hexdigest()
