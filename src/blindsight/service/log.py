"""The audit log: the one record of every decision and release, a Merkle tree whose signed heads are handed out.

*The guarantee.* What the platform decides or releases *is* its entry here: the platform remembers nothing else
(`LogRecords`), so no second record can disagree. An entry whose `AuditLog.append` returned (and whose transaction
ended) is on disk. Entries are the leaves of a Merkle tree as in RFC 6962 (`crypto.merkle`), so an entry that was
edited, removed, inserted or moved is found by `AuditLog.verify` and at every start. Every commit ends with a signed
head, which every app gets with its release (`AuditLog.receipts`) and every witness before the release is answered: a
file in the service's folder, files elsewhere, other services at most a second later (`witnesses`). A log that lacks
what a witness saw, because rows were cut off or rewritten or an old folder was put back, is refused at start; so is one
whose database lost its guards. A running service goes on from the newest head that it or, as far as it knows, a witness
saw, whichever of its processes signed that, or not at all: every further entry is refused, so that nothing is decided
or released, before anything is written. Only `blindsight restore` may give up entries: it says so in the log, signed.

*What it cannot do.* Who runs the machine can keep the log from its witnesses, or replace all of it together with those
in reach. Who holds a receipt or a head still proves it: `blindsight verify-log --head`.

*What is in it.* Who, what, when and small facts; evidence is stored with the entry, which holds its SHA-256. Pictures,
features and private labels are the caller's to keep out; an entry is too small for the former two, and one that holds a
token is refused. Times never go back, whatever the clock does: `AuditLog.now` is the latest moment ever seen, so that a
clock that jumps back opens no token that had expired.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from time import monotonic
from typing import IO, Any

from sqlalchemy import bindparam, insert, select
from sqlalchemy.orm import Session

from blindsight.crypto.merkle import (
    EMPTY,
    Stored,
    Tree,
    TreeHead,
    consistent,
    extend,
    leaf_hash,
    new_inclusions,
    peaks_at,
    root_of,
)
from blindsight.crypto.signing import SigningKey, verify
from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    StorageError,
)
from blindsight.files import AnyPath, as_path, atomic_writer, folder_lock, storage_errors
from blindsight.service.principals import SECRET, Principal, check_name
from blindsight.service.rows import SEAL, Rows, Seal, names_seals, waiting
from blindsight.service.store import Database, leaf_of, log, record_of
from blindsight.service.store import log_key as log_keys
from blindsight.service.witnesses import HeadFile, Witness

logger = logging.getLogger(__name__)

DETAILS_LENGTH = 16_384
_LINE_LENGTH = 4 * DETAILS_LENGTH
_BATCH = 1_000
_JUMP = timedelta(days=1)  # of the clock, within one process
_ENTRY = (log.c.position, log.c.time, log.c.actor, log.c.action, log.c.details, log.c.hash, log.c.signature)
_LAST = select(log.c.position, log.c.time, log.c.hash, log.c.signature).order_by(log.c.position.desc()).limit(1)
_AT = select(*_ENTRY).where(log.c.position.in_(bindparam("positions", expanding=True)))
_HASHES = select(log.c.position, log.c.hash).where(log.c.position.in_(bindparam("positions", expanding=True)))
_BEHIND = (
    select(*_ENTRY, log.c.evidence)
    .where(log.c.position > bindparam("after"))
    .order_by(log.c.position)
    .limit(bindparam("batch"))
)
_ADD = {  # in one round trip
    "sqlite": (
        "INSERT INTO log (position, time, actor, action, details, hash, evidence, signature, person) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "postgresql": (
        "INSERT INTO log (position, time, actor, action, details, hash, evidence, signature, person) "
        "SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], "
        "%s::text[], %s::text[])"
    ),
}

PLATFORM = "platform"  # acts where nobody asked just now; no principal has this id
MACHINE = "machine"  # somebody on the machine itself, without a token; no principal has this id
RESTORED, SEALING = "restore", "seal rows"
_SEALS = 100  # in one entry


# --- who acts ---


@dataclass(frozen=True)
class Acting:
    """Who acts, what about, and the ids of apps that act with them, by their names."""

    actor: str = PLATFORM
    about: Mapping[str, Any] = field(default_factory=dict)
    apps: Mapping[str, str] = field(default_factory=dict)
    recorded: list[str] = field(default_factory=list)  # the kinds of records so far

    def actor_of(self, record: Mapping[str, Any]) -> str:
        return self.apps.get(str(record.get("app")), self.actor)


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


def acting(principal: Principal | None, **about: Any) -> AbstractContextManager[Acting]:
    """Attribute what the platform records in this block to somebody; `about` goes into the entries."""
    return _as(Acting(PLATFORM if principal is None else principal.id, about))


def acting_together(apps: Iterable[Principal]) -> AbstractContextManager[Acting]:
    """Attribute what the platform records in this block to the app that each record names."""
    return _as(Acting(apps={app.name: app.id for app in apps}))


@contextmanager
def _as(now: Acting) -> Iterator[Acting]:
    mark = _acting.set(now)
    try:
        yield now
    finally:
        _acting.reset(mark)


# --- entries ---


@dataclass(frozen=True)
class Draft:
    """What is to be logged: a principal's id, what it does, and what JSON can hold, at most 16,384 characters."""

    actor: str
    action: str
    details: Mapping[str, Any] = field(default_factory=dict)
    evidence: str | None = None


@dataclass(frozen=True)
class Entry:
    """One entry: where it stands, when (UTC), who did what, and what the tree keeps with it."""

    position: int
    time: str
    actor: str
    action: str
    details: Mapping[str, Any]
    hash: str


@dataclass(frozen=True)
class LogCheck:
    """What a check of the log found: how many entries hold, their root, and where it breaks and why if it does."""

    ok: bool
    entries: int
    head: str
    broken_at: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Row:
    """An entry as it is stored, with the details as canonical JSON."""

    position: int
    time: str
    actor: str
    action: str
    details: str
    hash: str
    signature: str | None = None  # of the head that ends with it
    evidence: str | None = None
    told: Any = None  # the details as plain data, where somebody has read them already

    @property
    def text(self) -> tuple[Any, ...]:
        return self.position, self.time, self.actor, self.action, self.details

    @property
    def person(self) -> str | None:
        named = self.told.get("person") if isinstance(self.told, Mapping) else None
        return named if isinstance(named, str) else None

    @cached_property
    def hashed(self) -> str:
        """The text that is hashed."""
        return record_of(*self.text)

    @cached_property
    def leaf(self) -> bytes:
        return leaf_hash(self.hashed.encode())

    def entry(self) -> Entry:
        try:
            details = json.loads(self.details) if self.told is None else self.told
            return Entry(self.position, self.time, self.actor, self.action, details, self.hash)
        except (ValueError, TypeError):
            raise CorruptFileError(f"the log was altered: entry {self.position} cannot be read.") from None

    def line(self) -> str:
        return json.dumps(vars(self.entry())) + "\n"

    def record(self) -> dict[str, Any]:
        details = dict(self.entry().details)
        told = {"kind": self.action, "time": details.pop("at", self.time[:19] + self.time[-6:])}
        if (digest := details.pop("evidence", None)) is not None:
            if self.evidence is None or hashlib.sha256(self.evidence.encode()).hexdigest() != digest:
                raise CorruptFileError(f"the log was altered: the evidence of entry {self.position} is another.")
            details |= json.loads(self.evidence)
        return {**details, **told, "position": self.position}


@dataclass(frozen=True)
class _Tail:
    """What one transaction added to the log, and the tree before and after it."""

    size: int
    peaks: Sequence[bytes]
    time: str
    before: Sequence[bytes]
    rows: tuple[_Row, ...] = ()
    head: TreeHead | None = None


_Seen = tuple[tuple[int, bytes], Mapping[str, TreeHead]]  # size and root here, and the heads that witnesses hold


class _Walk:
    """Follows the tree from its first entry on."""

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size, self._peaks = size, list(peaks)

    @property
    def root(self) -> bytes:
        return root_of(self._peaks)

    def take(self, row: _Row | None) -> bool:
        """Tell whether a row is the next entry, and go on to it; None is a row that cannot be read."""
        if row is None or row.position != self.size + 1:
            return False
        peaks = self._peaks.copy()
        if extend(peaks, self.size, row.leaf).hex() != row.hash:
            return False
        self.size, self._peaks = row.position, peaks
        return True


class AuditLog:
    """The log in a database. Heads are signed with `key`; `witnesses` are told of every head."""

    def __init__(
        self,
        database: Database,
        *,
        key: SigningKey,
        witnesses: Sequence[Witness] = (),
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = monotonic,
    ) -> None:
        self._monotonic = ticks
        self._database, self._clock, self._witnesses = database, clock, tuple(witnesses)
        self._key = key
        self._reached, self._followed = (0, EMPTY), dict[str, TreeHead]()
        self._reaching = threading.Lock()
        self._given_up = set[TreeHead]()
        self._latest: datetime | None = None
        self._ticks = 0.0
        self._clock_mutex = threading.Lock()
        self.ahead: timedelta | None = None
        """How far the clock jumped ahead while this process ran; such a jump is not followed."""
        self.problems: dict[str, str] = {}  # why a witness did not take the newest head, by its name
        self._signed: tuple[int, bytes, str] | None = None  # the head that was checked last
        self._tail: _Tail | None = None  # the end of the log, as it was last read or written
        self._rows = Rows(database, self._key.secret_bytes(), self._follow_rows)
        database.logged, database.ending = self._publish, self._seal

    @property
    def key(self) -> str:
        return self._key.public.hex()

    def now(self) -> datetime:
        """Return the clock's time, or the latest moment that was ever logged or returned where that is later. A clock
        that jumps ahead by more than a day while the process runs is not followed: until it is right again, or the
        process is started anew, time goes on by the seconds that pass.
        """
        with self._clock_mutex:
            now, ticks = self._clock().astimezone(UTC), self._monotonic()
            if self._latest is None:
                with self._database.reading() as session:
                    last = session.execute(_LAST).one_or_none()
                self._latest = now if last is None else max(now, _moment(last.time))
            else:
                expected = self._latest + timedelta(seconds=ticks - self._ticks)
                self.ahead = now - expected if now > expected + _JUMP else None
                self._latest = max(self._latest, expected if self.ahead else now)
            self._ticks = ticks
            return self._latest

    def append(
        self, actor: str, action: str, details: Mapping[str, Any] | None = None, *, session: Session | None = None
    ) -> Entry:
        """Add an entry, in the transaction of `session` or of the `Database.session` block around, or in its own."""
        (entry,) = self.append_all([Draft(actor, action, details or {})], session=session)
        return entry

    def append_all(self, drafts: Sequence[Draft], *, session: Session | None = None) -> list[Entry]:
        """Add entries in this order, all or none, in a transaction as `append` has it."""
        return [row.entry() for row in self.add(drafts, session)]

    def add(self, drafts: Sequence[Draft], session: Session | None = None) -> "list[_Row]":
        """Add entries as `append_all` does, and return them as they are stored."""
        for draft in drafts:
            check_name(draft.actor)
            check_name(draft.action)
            assert SEAL not in draft.details, "seals are named by the log itself"
        if session is None:
            with self._database.session() as own:
                return self.add(drafts, own)
        if drafts:
            first, *rest = drafts
            drafts = [replace(first, details={**first.details, **_some(waiting(session, _SEALS))}), *rest]
        rows = self._add(session, drafts, [_checked(draft.details) for draft in drafts])
        self._seal(session)
        return rows

    def _seal(self, session: Session) -> None:
        """Name the seals of rows that no entry names yet."""
        while seals := waiting(session, _SEALS):
            self._add(session, [Draft(PLATFORM, SEALING)], [_checked(_some(seals))])

    def head(self) -> TreeHead:
        """Return the newest head; a log that lacks what somebody saw before is refused, and so are entries behind the
        last one that this service signed.
        """
        seen = self._seen()  # before the log is read: others may add to both meanwhile
        with self._database.reading() as session:
            assert session.info.get("log") is None, "what is not on disk yet has no head"
            tail = self._end(session)
        if not self._follow(tail, seen):
            return self.head()
        return tail.head or TreeHead.sign(self._key, 0, EMPTY, _written(self.now()))

    def entries(self, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        """Return up to `limit` entries after position `after`, oldest first, if the last one is signed; `verify` judges
        each of them.
        """
        if not 0 <= after < 2**63 or not 1 <= limit <= _BATCH:
            raise InputError(f"after must be >= 0 and limit in [1, {_BATCH}]; got {after} and {limit}.")
        self.head()
        return tuple(row.entry() for row in self.rows(after, limit=limit))

    def entries_about(self, person: str, actor: str, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        """Return entries that name a person, or that an owner made, as `entries` does."""
        self.head()
        owners = (log.c.actor == actor) & log.c.actor.like("owner-%")
        found = [row for only in (owners, log.c.person == person) for row in self.rows(after, only=only, limit=limit)]
        several = {row.position: row.entry() for row in found}
        mine = (several[place] for place in sorted(several))
        return tuple(islice((one for one in mine if one.actor == actor or one.details.get("person") == person), limit))

    def verify(self, *, known_heads: Sequence[str] = ()) -> LogCheck:
        """Walk the whole log, which must end with a signed head and continue all `known_heads`, noted earlier as
        ``size:root`` or as the root alone, and what this process and witnesses saw of it.
        """
        check = _walk(self.rows(None), known_heads)
        try:
            if not check.ok or self.includes(check.entries, check.head):
                return check
            reason = "the log changed while it was read."
        except CorruptFileError as error:
            reason = str(error)
        return replace(check, ok=False, broken_at=check.entries + 1, reason=reason)

    def export(self) -> Iterator[str]:
        """Return the log as JSON lines, one per entry and a last one with the signed head, made as they are taken. One
        that does not verify is not exported.
        """
        check = self.verify()
        if not check.ok:
            raise CorruptFileError(f"the log was altered and cannot be exported: {check.reason}")
        head = TreeHead.sign(self._key, check.entries, bytes.fromhex(check.head), _written(self.now()))
        return chain((row.line() for row in islice(self.rows(None), check.entries)), (_end(head),))

    # --- heads and proofs ---

    def consistency(self, first: int, second: int) -> list[str]:
        """Return the proof that the first `first` entries are the beginning of the first `second`."""
        self._check_size(second)
        return [part.hex() for part in self._tree.consistency(first, second)]

    def includes(self, size: int, root: str) -> bool:
        """Tell whether the log continues the one that had this head."""
        head = self.head()
        return self._continues((size, bytes.fromhex(root)), (head.size, bytes.fromhex(head.root)))

    def followed(self, head: TreeHead) -> bool:
        """Tell whether the log was found to continue this head of a witness, without reading it again."""
        return head in self._followed.values()

    @staticmethod
    def head_of(session: Session) -> TreeHead | None:
        """Return the head that a transaction ended with, if it added to the log."""
        tail: _Tail | None = session.info.get("log")
        return None if tail is None else tail.head

    @staticmethod
    def receipts(session: Session) -> dict[int, dict[str, Any]]:
        """Return record, proof of inclusion and signed head of each entry of an ended transaction, by position."""
        if session.info.get("log") is None:
            return {}
        tail = session.info["log"]
        head = asdict(tail.head)
        proofs = new_inclusions(tail.before, tail.size - len(tail.rows), [row.leaf for row in tail.rows])
        return {
            row.position: {"position": row.position, "record": row.hashed, "proof": proof, "head": head}
            for row, proof in zip(tail.rows, proofs, strict=True)
        }

    def check_witnesses(self, *, new: bool = False) -> None:
        """Refuse a log that lacks what a witness saw, unless a restore gave it up; then tell all of the newest head. A
        witness at an address that knows nothing of a log with entries must be said to be `new`.
        """
        size = self.head().size
        for witness in self._witnesses:  # one that cannot be asked is an error here
            if witness.last(self.key) is None and witness.remote and size and not new:
                raise StorageError(
                    f"{witness.name} knows no head of this log, which has {size} entries: it may have forgotten them, "
                    "and would not notice an old state. If it was never told of this log, say that it is new."
                )
        self.tell_witnesses()

    def tell_witnesses(self) -> None:
        """Tell all of the newest head; those that do not take it are in `problems`."""
        self._tell(self.head())

    def gave_up(self, seen: TreeHead) -> bool:
        """Tell whether a restore gave up what a witness saw, in an entry that names it under the log's key."""
        if seen not in self._given_up:
            with self._database.reading() as session:
                restored = session.scalars(select(log.c.details).where(log.c.action == RESTORED)).all()
            if not any(str(seen) in self._given_up_by(details) for details in restored):
                return False
            self._given_up.add(seen)
        return True

    def add_restore(self, given_up: Sequence[str], about: Mapping[str, Any]) -> Entry:
        """Log that heads are given up, signed: a row that somebody else puts into the log gives up nothing."""
        body = json.dumps(["blindsight restore 1", *given_up]).encode()
        signed = {"given_up": list(given_up), "signed": self._key.sign(body, author=RESTORED).hex()}
        return self.append(MACHINE, RESTORED, {**about, **signed})

    def _given_up_by(self, details: str) -> list[str]:
        try:
            _, body = verify(bytes.fromhex(json.loads(details)["signed"]), {RESTORED: self._key.public})
            purpose, *given_up = json.loads(body)
        except (ValueError, TypeError, KeyError, MessageError):
            return []
        return given_up if purpose == "blindsight restore 1" else []

    def close(self) -> None:
        """Let witnesses that are told in the background know the newest head, if they can be reached at once."""
        for witness in self._witnesses:
            witness.close()

    def _check_size(self, size: int) -> None:
        if not 0 <= size <= self.head().size:
            raise InputError(f"the size of a head must be in [0, {self.head().size}], as the log has it; got {size}.")

    def _seen(self) -> "_Seen":
        """Return what the log must continue, as far as it is known without asking over a network."""
        told = ((witness.name, witness.known(self.key)) for witness in self._witnesses)
        return self._reached, {name: head for name, head in told if head is not None}

    def _follow(self, tail: _Tail, seen: "_Seen") -> bool:
        """Refuse a log that ends like this unless it continues what was seen of it, whichever process wrote that; False
        if more was seen meanwhile.
        """
        (before, heads), now = seen, (tail.size, root_of(tail.peaks))
        if not self._continues(before, now):
            raise _cut("this process", before[0], tail.size)
        followed = {}
        for name, head in heads.items():
            known = self._followed.get(name) == head
            if known or self._continues((head.size, bytes.fromhex(head.root)), now):
                followed[name] = head
            elif not self.gave_up(head):
                raise _cut(name, head.size, tail.size)
        with self._reaching:  # all that was followed is in what was reached
            if self._reached != before:
                return False
            self._reached, self._followed = now, {**self._followed, **followed}
        return True

    def _continues(self, before: tuple[int, bytes], now: tuple[int, bytes]) -> bool:
        """Tell whether one size and root continue another; it reads nothing where nobody wrote in between."""
        if before[0] >= now[0]:
            return before == now
        try:
            return consistent(*before, *now, self._tree.consistency(before[0], now[0]))
        except CorruptFileError:
            return False

    @property
    def _tree(self) -> Tree:
        def fetch(positions: Iterable[int]) -> dict[int, Stored]:
            with self._database.reading() as session:
                rows = [_Row(*row) for row in session.execute(_AT, {"positions": list(positions)})]
            if len(rows) != len(set(positions)):
                raise CorruptFileError("the log was altered: entries are missing.")
            return {row.position: (leaf_of(*row.text), _hash(row.hash)) for row in rows}

        return Tree(fetch)

    def _publish(self, session: Session) -> None:
        tail: _Tail = session.info["log"]
        head = tail.head
        assert head is not None, "what is added together ends with a head"
        with self._reaching:
            if self._reached[0] <= head.size:
                self._reached = (head.size, bytes.fromhex(head.root))
                self._tail = _Tail(tail.size, tail.peaks, tail.time, tail.peaks, head=head)
        named = [(row.position, row.details) for row in tail.rows if names_seals(row.details)]
        self._rows.take(tail.size - len(tail.rows) + 1, tail.size, named)
        self._tell(head)

    def _tell(self, head: TreeHead) -> None:
        for witness in self._witnesses:
            try:
                witness.note(head, self)
                self.problems.pop(witness.name, None)
            except BlindsightError as error:  # the entries are on disk already, and the next head will tell of them too
                if witness.name not in self.problems:
                    logger.warning("%s does not take the log's head: %s", witness.name, error)
                self.problems[witness.name] = str(error)

    def _add(self, session: Session, drafts: Sequence[Draft], texts: Sequence[tuple[str, Any]]) -> list[_Row]:
        tail = session.info.get("log")
        if tail is None:  # what is cut or rewritten is refused here, before anything is built on it
            tail = self._end(session)
            while not self._follow(tail, self._seen()):
                pass
        size, peaks, time = tail.size, list(tail.peaks), max(tail.time, _written(self.now()))
        rows: list[_Row] = []
        for draft, (details, told) in zip(drafts, texts, strict=True):
            row = _Row(size + 1, time, draft.actor, draft.action, details, "", None, draft.evidence, told)
            object.__setattr__(row, "hash", extend(peaks, size, row.leaf).hex())
            rows.append(row)
            size += 1
        if rows:
            head = TreeHead.sign(self._key, size, root_of(peaks), time)
            self._signed = size, root_of(peaks), head.signature
            signatures = [*[None] * (len(rows) - 1), head.signature]
            values = [
                (*row.text, row.hash, row.evidence, one, row.person) for row, one in zip(rows, signatures, strict=True)
            ]
            connection = session.connection()
            sqlite, columns = connection.dialect.name == "sqlite", tuple(map(list, zip(*values, strict=True)))
            connection.exec_driver_sql(_ADD[connection.dialect.name], values if sqlite else columns)
            session.info["log"] = _Tail(size, peaks, time, tail.before, (*tail.rows, *rows), head)
        return rows

    def _end(self, session: Session) -> _Tail:
        last = session.execute(_LAST).one_or_none()
        if last is None:
            return _Tail(0, (), "", ())
        known = self._tail
        same = known is not None and known.head is not None and known.head.signature == last.signature
        if same and known is not None and (known.size, known.time) == (last.position, last.time):
            return known
        peaks = self._peaks(session, last.position)
        found = _Tail(last.position, peaks, last.time, peaks, head=self._head_at(last, root_of(peaks)))
        self._tail = found
        return found

    @staticmethod
    def _peaks(session: Session, size: int) -> list[bytes]:
        at = session.execute(_HASHES, {"positions": peaks_at(size)})
        return [_hash(hash) for _, hash in sorted((row.position, row.hash) for row in at)]

    def _head_at(self, last: Any, root: bytes) -> TreeHead:
        """Return the head that ends with a row, or refuse one that this service did not sign."""
        signed = last.position, root, last.signature
        try:
            head = TreeHead(last.position, root.hex(), last.time, self.key, str(last.signature))
            if signed != self._signed:
                TreeHead.from_dict(asdict(head))
        except MessageError:
            raise CorruptFileError(
                f"the log ends with entries that this service did not write: there are {last.position}, and the last "
                "one carries no head signed with its key. Restore a backup with `blindsight restore`."
            ) from None
        self._signed = signed
        return head

    def follow(self, walk: _Walk, take: "Callable[[_Row], None]") -> None:
        """Pass on the entries behind those that `walk` followed, in order, if the log holds up to the newest head; else
        what was passed on must not be used.
        """
        first, last, named = walk.size + 1, None, list[tuple[int, str]]()
        for row in self.rows(walk.size):
            if not walk.take(row):
                raise CorruptFileError(
                    f"the log was altered: entry {walk.size + 1} was changed, removed or moved. Restore a backup "
                    "with `blindsight restore`."
                )
            take(row)
            if names_seals(row.details):
                named.append((row.position, row.details))
            last = row
        if last is not None:
            self._head_at(last, walk.root)
            if not self._database.logging:
                self._rows.take(first, walk.size, named)

    def _follow_rows(self) -> None:
        """Take in the seals that other processes logged; peaks and entries are right if they lead to a signed head."""
        with self._database.reading() as session:
            peaks = self._peaks(session, size := self._rows.size)
        self.follow(_Walk(size, peaks), lambda row: None)

    def rows(self, after: int | None, *, only: Any = None, limit: int | None = None) -> Iterator[_Row]:
        """Yield the rows after position `after` (None: all) in order, in batches: a long log needs little memory."""
        batch = _BATCH if limit is None else min(limit, _BATCH)
        query = _BEHIND if only is None else _BEHIND.where(only)
        while True:
            with self._database.reading() as session:
                place = -(2**62) if after is None else after
                found = session.execute(query, {"after": place, "batch": batch}).all()
            yield from (_Row(*row) for row in found)
            if len(found) < batch or limit is not None:
                return
            after = found[-1].position


class LogRecords:
    """The platform's records, which are entries of the log: a register of `sift.register` reads and adds them."""

    recovered = None

    def __init__(self, log: AuditLog, database: Database) -> None:
        from blindsight.sift.register import KINDS  # brings what a check of the log alone does not need

        self._log, self._database, self._kinds = log, database, KINDS
        self._begin()

    @property
    def stale(self) -> bool:
        """Whether entries that were taken in have been undone with their transaction."""
        return self._undone != self._database.undone

    def locked(self) -> AbstractContextManager[object]:
        """Hold the database's writers still; what is added is committed at the end of the block."""
        return self._database.session()

    def catch_up(self, apply: Callable[[dict[str, Any]], None]) -> None:
        """Pass on the platform's entries since the last call, if the log holds up to them."""
        if self.stale:
            self._begin()
        try:
            self._log.follow(self._walk, lambda row: apply(row.record()) if row.action in self._kinds else None)
        except BlindsightError:
            self._undone = -1  # what was passed on must not be used
            raise

    def append_all(self, records: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
        now = _acting.get() or Acting()
        now.recorded.extend(str(one["kind"]) for one in records)
        rows = self._log.add([_draft(one, now.actor_of(one), now.about) for one in records])
        for row in rows if rows[0].position == self._walk.size + 1 else self._log.rows(self._walk.size):
            assert self._walk.take(row)
        return [row.record() for row in rows]

    def _begin(self) -> None:
        self._walk, self._undone = _Walk(), self._database.undone


def _draft(record: Mapping[str, Any], actor: str, about: Mapping[str, Any]) -> Draft:
    details = {key: value for key, value in record.items() if key not in ("kind", "time", "report", "together")}
    proof = {key: record[key] for key in ("report", "together") if key in record}
    if not proof:
        return Draft(actor, str(record["kind"]), {**about, **details})
    text = json.dumps(proof, sort_keys=True, allow_nan=False)
    evidence = hashlib.sha256(text.encode()).hexdigest()
    return Draft(actor, str(record["kind"]), {**about, **details, "evidence": evidence}, text)


def digest(evidence: Mapping[str, Any]) -> str:
    """Return the SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(evidence, sort_keys=True, allow_nan=False).encode()).hexdigest()


# --- opening ---


def log_key(folder: Path) -> SigningKey:
    """Return the key that the heads of a service are signed with, made if need be: mode 0600, in its folder."""
    path = folder / "log.key"
    with storage_errors("use", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder_lock(folder):
        if not path.exists():
            with atomic_writer(path, private=True) as stream:
                stream.write(SigningKey.generate().secret_bytes().hex().encode())
        with storage_errors("read", path):
            text = path.read_text()
    try:
        return SigningKey(bytes.fromhex(text))
    except (ValueError, InputError):
        raise CorruptFileError(f"{path} holds no key. Restore it from a backup.") from None


def open_log(folder: Path, database: Database, witnesses: Sequence[Witness] = ()) -> AuditLog:
    """Return the log of the service in a folder, where its newest head is kept too; a log of another folder's key is
    refused.
    """
    key = log_key(folder)
    with database.session() as session:
        known = session.scalar(select(log_keys.c.key))
        if known is None:
            session.execute(insert(log_keys).values(key=key.public.hex()))
        elif known != key.public.hex():
            raise StorageError(
                f"the database belongs to a service with another folder than {folder}. Services on one database share "
                "one folder: pictures, sifts and the log's key are in it."
            )
    return AuditLog(database, key=key, witnesses=(HeadFile(folder / "log.head"), *witnesses))


# --- checks of what was exported ---


def verify_export(path: AnyPath, *, known_heads: Sequence[str] = ()) -> LogCheck:
    """Check an exported log as `AuditLog.verify` checks the log itself; one that was cut off lacks its last line. Every
    line must be what `AuditLog.export` writes, byte for byte: a name that occurs twice in it says two things.
    """
    path = as_path(path)
    closing: list[TreeHead] = []
    with storage_errors("read", path), path.open("rb") as stream:
        check = _walk(_exported(stream, closing), known_heads)
    if check.ok and [str(head) for head in closing] != [f"{check.entries}:{check.head}"]:
        return replace(check, ok=False, broken_at=check.entries + 1, reason="the export's end is missing.")
    return check


def _end(head: TreeHead) -> str:
    return json.dumps(asdict(head)) + "\n"


def _walk(rows: Iterable[_Row | None], known_heads: Sequence[str]) -> LogCheck:
    """Follow the tree up to where it breaks, and look for heads that were known before."""
    walk = _Walk()
    missing = {head for head in known_heads if head.rpartition(":")[2] != EMPTY.hex()}
    for row in rows:
        if row is None or not walk.take(row):
            place = walk.size + 1
            return LogCheck(False, walk.size, walk.root.hex(), place, f"entry {place} was altered, removed or moved.")
        if missing:
            root = walk.root.hex()
            missing -= {root, f"{walk.size}:{root}"}
    if missing:
        reason = f"entries that were known before are missing: those of {', '.join(sorted(missing))}."
        return LogCheck(False, walk.size, walk.root.hex(), walk.size + 1, reason)
    return LogCheck(True, walk.size, walk.root.hex())


def _exported(stream: IO[bytes], closing: list[TreeHead]) -> Iterator[_Row | None]:
    """Yield the rows of an export and put its last line into `closing`; nothing may follow that."""
    while line := stream.readline(_LINE_LENGTH):
        try:
            record = json.loads(line)
            if not closing and "signature" in record:
                head = TreeHead.from_dict(record)
                _require(line, _end(head))
                closing.append(head)
                continue
            row = _Row(**record | {"details": _dumped(record["details"])})
            _require(line, row.line())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MessageError):
            yield None
            return
        yield None if closing else row


def _some(seals: Sequence[Seal]) -> dict[str, Any]:
    return {SEAL: seals} if seals else {}


def _require(line: bytes, written: str) -> None:
    if line != written.encode():
        raise ValueError


def _checked(details: Mapping[str, Any]) -> tuple[str, Any]:
    """Return details as the one text that stands for them and as its reader gets them, or refuse what does not belong
    into the log.
    """
    try:
        text = _dumped(dict(details))
        told = json.loads(text)
        faithful = _dumped(told) == text
    except (ValueError, TypeError, RecursionError):
        faithful = False
    if not faithful:
        raise InputError("details must be what JSON can hold: text, finite numbers, lists and objects named by text.")
    if len(text) > DETAILS_LENGTH:
        raise InputError(f"details must have at most {DETAILS_LENGTH} characters as JSON; got {len(text)}.")
    if SECRET.search(text):
        raise InputError("details must not hold a token, which is a secret. Log its principal's id.")
    return text, told


def _dumped(details: Any) -> str:
    return json.dumps(details, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _hash(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except (ValueError, TypeError):
        raise CorruptFileError("the log was altered: the hash of an entry cannot be read.") from None


def _cut(witness: str, seen: int, there: int) -> CorruptFileError:
    return CorruptFileError(
        f"the log was cut, rewritten or put back to an older state: {witness} saw {seen} entries, there are {there}, "
        "and they do not continue what it saw. Nothing is logged or released until the newest state is put back; if "
        "that is lost, use `blindsight restore`, which says so in the log."
    )


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, TypeError):
        raise CorruptFileError("the log was altered: the time of its last entry cannot be read.") from None
