"""The audit log: every decision and release, in order, in a chain that shows what was done to it.

*The guarantee.* An entry whose `AuditLog.append` returned (and whose transaction ended) is on disk. Each entry's hash
is the SHA-256 of the hash before it and of the entry, so an entry that was edited, removed, inserted or moved is found
by `AuditLog.verify`, though the database itself refuses such changes already (`blindsight.service.migrations`). Entries
that were cut off at the end are found by whoever noted an earlier `head`. The chain is no signature: who owns the
database and knows of no noted head can write another history.

*What is in it.* Who, what, when and small facts. Pictures, features and private labels are the caller's to keep out; an
entry is too small for the former two, and one that holds a token is refused.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any

from sqlalchemy import insert, select, true
from sqlalchemy.orm import Session

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.service.database import Database
from blindsight.service.principals import TOKEN, check_name
from blindsight.service.schema import log

GENESIS = "0" * 64  # what stands before the first entry
DETAILS_LENGTH = 16_384
_LINE_LENGTH = 4 * DETAILS_LENGTH
_BATCH = 1_000
_LAST = select(log.c.position, log.c.hash).order_by(log.c.position.desc()).limit(1)
_ADD = insert(log)


@dataclass(frozen=True)
class Draft:
    """What is to be logged: a principal's id, what it does, and what JSON can hold, at most 16,384 characters."""

    actor: str
    action: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One entry: where it stands, when (UTC), who did what, and the hash that stands for all up to it."""

    position: int
    time: str
    actor: str
    action: str
    details: Mapping[str, Any]
    hash: str


@dataclass(frozen=True)
class LogCheck:
    """What a check of the chain found: how many entries hold, their head, and where it breaks and why if it does."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None = None
    reason: str = ""


class AuditLog:
    """The log in a database."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock

    def append(
        self, actor: str, action: str, details: Mapping[str, Any] | None = None, *, session: Session | None = None
    ) -> Entry:
        """Add an entry, in the transaction of `session` or of the `Database.session` block around, or in its own."""
        (entry,) = self.append_all([Draft(actor, action, details or {})], session=session)
        return entry

    def append_all(self, drafts: Sequence[Draft], *, session: Session | None = None) -> list[Entry]:
        """Add entries in this order, all or none, in a transaction as `append` has it."""
        for draft in drafts:
            check_name(draft.actor)
            check_name(draft.action)
        texts = [_canonical(draft.details) for draft in drafts]
        if session is not None:
            return self._append(session, drafts, texts)
        with self._database.session() as own:
            return self._append(own, drafts, texts)

    def head(self) -> tuple[int, str]:
        """Return how many entries there are and the hash that stands for them: to be noted elsewhere."""
        with self._database.reading() as session:
            return _last(session)

    def entries(self, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        """Return up to `limit` entries behind position `after`, oldest first, as they stand: `verify` judges them."""
        if not 0 <= after < 2**63 or not 1 <= limit <= _BATCH:
            raise InputError(f"after must be >= 0 and limit in [1, {_BATCH}]; got {after} and {limit}.")
        return tuple(row.entry() for row in islice(self._rows(after), limit))

    def verify(self, *, known_head: str | None = None) -> LogCheck:
        """Walk the whole chain; with a `known_head`, noted earlier, the chain must also include it."""
        return _walk(self._rows(None), known_head)

    def export(self, stream: IO[str]) -> LogCheck:
        """Write the log as JSON lines, one per entry and a last one with the head; return what was written.

        A log that does not verify is not exported.
        """
        check = self.verify()
        if not check.ok:
            raise CorruptFileError(f"the log was altered and cannot be exported: {check.reason}")
        for row in islice(self._rows(None), check.entries):
            stream.write(row.line())
        stream.write(_end(check.entries, check.head))
        return check

    def _append(self, session: Session, drafts: Sequence[Draft], texts: Sequence[str]) -> list[Entry]:
        last, before = _last(session)
        time = self._clock().astimezone(UTC).isoformat(timespec="microseconds")
        rows: list[_Row] = []
        for position, (draft, text) in enumerate(zip(drafts, texts, strict=True), start=last + 1):
            row = _Row(position, time, draft.actor, draft.action, text, "")
            rows.append(replace(row, hash=row.continuing(rows[-1].hash if rows else before)))
        session.execute(_ADD, [asdict(row) for row in rows])
        return [row.entry() for row in rows]

    def _rows(self, after: int | None) -> "Iterator[_Row]":
        """Yield the rows behind `after` (all if None) in order, in batches, so that a long log needs little memory."""
        while True:
            behind = true() if after is None else log.c.position > after
            with self._database.reading() as session:
                found = session.execute(select(log).where(behind).order_by(log.c.position).limit(_BATCH)).all()
            yield from (_Row(*row) for row in found)
            if len(found) < _BATCH:
                return
            after = found[-1].position


def verify_export(path: AnyPath, *, known_head: str | None = None) -> LogCheck:
    """Check an exported log as `AuditLog.verify` checks the log itself; one that was cut off lacks its last line.

    Every line must be what `AuditLog.export` writes, byte for byte: a name that occurs twice in it says two things.
    """
    path = as_path(path)
    closing: dict[str, Any] = {}
    with storage_errors("read", path), path.open("rb") as stream:
        check = _walk(_exported(stream, closing), known_head)
    if check.ok and json.dumps(closing) + "\n" != _end(check.entries, check.head):
        return replace(check, ok=False, broken_at=check.entries + 1, reason="the export's end is missing.")
    return check


@dataclass(frozen=True)
class _Row:
    """An entry as it is stored, with the details as canonical JSON."""

    position: int
    time: str
    actor: str
    action: str
    details: str
    hash: str

    def continuing(self, before: str) -> str:
        """Return the hash that this row must have behind one with the hash `before`."""
        body = json.dumps([before, self.position, self.time, self.actor, self.action, self.details], default=repr)
        return hashlib.sha256(body.encode()).hexdigest()

    def entry(self) -> Entry:
        """Return the entry for a reader."""
        try:
            return Entry(**asdict(self) | {"details": json.loads(self.details)})
        except ValueError:
            raise CorruptFileError(f"the log was altered: entry {self.position} cannot be read.") from None

    def line(self) -> str:
        """Return the one line of an export that stands for this row."""
        return json.dumps(vars(self.entry())) + "\n"


def _end(entries: int, head: str) -> str:
    """Return the last line of an export."""
    return json.dumps({"entries": entries, "head": head}) + "\n"


def _walk(rows: Iterable[_Row | None], known_head: str | None) -> LogCheck:
    """Follow the chain up to where it breaks; None is a row that cannot be read."""
    count, head, met = 0, GENESIS, known_head in (None, GENESIS)
    for row in rows:
        if row is None or row.position != count + 1 or row.hash != row.continuing(head):
            return LogCheck(False, count, head, count + 1, f"entry {count + 1} was altered, removed or moved.")
        count, head = row.position, row.hash
        met = met or head == known_head
    if not met:
        return LogCheck(False, count, head, count + 1, "entries that were known before are missing.")
    return LogCheck(True, count, head)


def _exported(stream: IO[bytes], closing: dict[str, Any]) -> Iterator[_Row | None]:
    """Yield the rows of an export and put its last line into `closing`; nothing may follow that."""
    while line := stream.readline(_LINE_LENGTH):
        try:
            record = json.loads(line)
            if not closing and record.keys() == {"entries", "head"}:
                _require(line, _end(**record))
                closing |= record
                continue
            row = _Row(**record | {"details": _dumped(record["details"])})
            _require(line, row.line())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            yield None
            return
        yield None if closing else row


def _require(line: bytes, written: str) -> None:
    if line != written.encode():
        raise ValueError


def _last(session: Session) -> tuple[int, str]:
    row = session.execute(_LAST).one_or_none()
    return (0, GENESIS) if row is None else (row.position, row.hash)


def _canonical(details: Mapping[str, Any]) -> str:
    """Return details as the one text that stands for them, or refuse what does not belong into the log."""
    try:
        text = _dumped(dict(details))
        faithful = _dumped(json.loads(text)) == text
    except (ValueError, TypeError, RecursionError):
        faithful = False
    if not faithful:
        raise InputError("details must be what JSON can hold: text, finite numbers, lists and objects named by text.")
    if len(text) > DETAILS_LENGTH:
        raise InputError(f"details must have at most {DETAILS_LENGTH} characters as JSON; got {len(text)}.")
    if TOKEN.search(text):
        raise InputError("details must not hold a token, which is a secret. Log its principal's id.")
    return text


def _dumped(details: Any) -> str:
    return json.dumps(details, sort_keys=True, allow_nan=False, separators=(",", ":"))
