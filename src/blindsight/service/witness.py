"""The platform's records become entries of the audit log before they take effect.

*The guarantee.* Whatever the platform decides or releases has its entry in the log first (`Platform.attest`): a kill
between the two leaves an entry for something that did not happen, never something that happened without its entry; and
where the log cannot be written the platform does nothing. Evidence is too long for the log: its SHA-256 stands there,
and ties the evidence that the platform keeps to the entry.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from blindsight.service.log import AuditLog
from blindsight.service.principals import Principal

PLATFORM = "platform"
"""Who acts where nobody asked for it just now; no principal has this id."""


@dataclass(frozen=True)
class Acting:
    """Who acts, what about, and what the platform recorded meanwhile."""

    actor: str = PLATFORM
    about: Mapping[str, Any] = field(default_factory=dict)
    records: list[Mapping[str, Any]] = field(default_factory=list)


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


@contextmanager
def acting(principal: Principal | None, **about: Any) -> Iterator[Acting]:
    """Attribute what the platform records in this block to somebody; `about` goes into the entries."""
    now = Acting(PLATFORM if principal is None else principal.id, about)
    mark = _acting.set(now)
    try:
        yield now
    finally:
        _acting.reset(mark)


@dataclass(frozen=True)
class Witness:
    """Writes an entry for every record it is told of."""

    log: AuditLog

    def __call__(self, record: Mapping[str, Any]) -> None:
        """Append the record to the log, and only then let it happen."""
        now = _acting.get() or Acting()
        details = {key: value for key, value in record.items() if key not in ("kind", "time", "report", "together")}
        evidence = {key: record[key] for key in ("report", "together") if key in record}
        if evidence:
            details["evidence"] = digest(evidence)
        self.log.append(now.actor, str(record["kind"]), {**now.about, **details})
        now.records.append(record)


def digest(evidence: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(evidence, sort_keys=True, allow_nan=False).encode()).hexdigest()
