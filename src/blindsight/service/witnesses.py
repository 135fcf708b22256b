"""Witnesses: who remembers the newest head of a log, so that one that was cut or put back is noticed.

A file keeps two places written in turn, another Blindsight service a row in its database. Neither takes a head that
does not continue what it holds, and before anything is logged the log must continue what they are known to hold.
`remember_head` is the other side: this service as the witness of another's log, which must prove that each head
continues the one before.
"""

import fcntl
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from blindsight.crypto.merkle import TreeHead, consistent
from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.service.store import Database, witnessed

if TYPE_CHECKING:
    from blindsight.service.log import AuditLog


class Witness(Protocol):
    """Somebody who remembers the newest head of a log."""

    remote: bool
    """Whether it is asked over a network."""

    @property
    def name(self) -> str:
        """Where it is."""

    def last(self, key: str) -> TreeHead | None:
        """Return the newest head it has seen of the log with this key."""

    def known(self, key: str) -> TreeHead | None:
        """Return the same as far as it is known without asking over a network; None where it cannot be read."""

    def note(self, head: TreeHead, log: "AuditLog") -> None:
        """Tell it of a head; `log` proves that it continues earlier ones."""

    def close(self) -> None:
        """Tell it what it does not know yet, if there is something."""


class HeadFile:
    """A file that keeps the newest head: two places, written in turn, so that a crash leaves the one before."""

    _PLACE = 2048  # bytes
    remote = False

    def __init__(self, path: AnyPath) -> None:
        self._path = as_path(path)
        self.name = str(path)
        self._known: dict[bytes, TreeHead | None] = {}  # what was read or written, since signatures cost time

    def last(self, key: str) -> TreeHead | None:
        """Return the newest head; a file that holds none, or one of another log, is refused."""
        with storage_errors("read", self._path):
            if not self._path.exists():
                return None
            found = [head for head in self._places(self._path.read_bytes()) if head is not None]
        if not found or found[0].key != key:
            held = "no whole head" if not found else f"the head of another log, signed with {found[0].key}"
            raise CorruptFileError(f"{self._path} holds {held}. Name another file as witness.")
        return max(found, key=lambda head: head.size)

    def known(self, key: str) -> TreeHead | None:
        """Return the newest head; None if there is none that can be read."""
        try:
            return self.last(key)
        except StorageError:
            return None

    def note(self, head: TreeHead, log: "AuditLog") -> None:
        """Write a head through to the disk, unless a newer one is there; several processes may do so. One that the log
        does not continue stays, unless a restore gave it up.
        """
        with storage_errors("write", self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                places = self._places(os.pread(descriptor, 2 * self._PLACE, 0))
                newest = max((one for one in places if one is not None), key=lambda one: one.size, default=None)
                continued = newest is None or log.followed(newest)
                if newest is not None and not continued:
                    continued = newest.key == head.key and log.includes(newest.size, newest.root)
                if newest is not None and not continued and not log.gave_up(newest):
                    raise CorruptFileError(f"{self._path} holds the head {newest}, which this log does not continue.")
                if newest is not None and newest.size >= head.size and continued:
                    return
                text = json.dumps(asdict(head)).encode().ljust(self._PLACE)
                for place in [1 - places.index(newest)] if continued else [0, 1]:
                    os.pwrite(descriptor, text, self._PLACE * place)
                    os.fdatasync(descriptor)
                self._known = {text: head, **{old: one for old, one in self._known.items() if one is newest}}
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Do nothing: a head that was noted is on disk."""

    def _places(self, content: bytes) -> list[TreeHead | None]:
        texts = [content[begin : begin + self._PLACE] for begin in (0, self._PLACE)]
        known = self._known
        self._known = known = {text: known[text] if text in known else _head(text) for text in texts}
        return [known[text] for text in texts]


def _head(line: bytes) -> TreeHead | None:
    try:
        return TreeHead.from_dict(json.loads(line))
    except (ValueError, MessageError, RecursionError):
        return None


class HeadService:
    """Another Blindsight service that keeps the newest head; it is told in the background, at most once a second."""

    _PAUSE = 1.0  # seconds
    remote = True

    def __init__(self, url: str, token: str) -> None:
        from blindsight.client import Client

        self.name = url
        self._client = Client(url, token)
        self._newest: tuple[TreeHead, AuditLog] | None = None
        self._seen: TreeHead | None = None
        self._told: TreeHead | None = None
        self._problem: BlindsightError | None = None
        self._arrived, self._ending = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def last(self, key: str) -> TreeHead | None:
        """Return the newest head the service has seen; one that does not answer is an error."""
        found = self._client.witnessed_head(key)
        return None if found is None else self._answered(found, key)

    def known(self, key: str) -> TreeHead | None:
        """Return the head of its last answer."""
        return self._seen

    def _answered(self, found: Mapping[str, Any], key: str) -> TreeHead:
        head = TreeHead.from_dict(dict(found))
        if head.key != key:
            raise MessageError(f"{self.name} answers with the head of another log, signed with {head.key}.")
        self._seen = head
        return head

    def note(self, head: TreeHead, log: "AuditLog") -> None:
        """Have it told; raise what happened the last time."""
        self._newest = head, log
        self._arrived.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="blindsight witness", daemon=True)
            self._thread.start()
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """Tell it of the newest head, within a few seconds, and stop."""
        self._ending.set()
        self._arrived.set()
        if self._thread is not None:
            self._thread.join(5)
        self._client.close()

    def _work(self) -> None:
        while not self._ending.is_set():
            self._arrived.wait()
            self._arrived.clear()
            self._push()
            self._ending.wait(self._PAUSE)
        self._push()

    def _push(self) -> None:
        head, log = self._newest or (None, None)
        if head is None or log is None or head == self._told:
            return
        try:
            known = self.last(head.key)
            proof = [] if known is None or known.size > head.size else log.consistency(known.size, head.size)
            known = self._answered(self._client.witness_head(asdict(head), proof), head.key)
            if not log.includes(known.size, known.root):
                raise PrivacyError(
                    f"{self.name} holds the head {known}, which this log does not continue: it takes no other any more."
                )
            self._told, self._problem = head, None
        except BlindsightError as error:
            self._problem = error


def witness_at(place: str) -> Witness:
    """Return the witness at a path or, with a token in $BLINDSIGHT_WITNESS_TOKEN, the service at an address."""
    if place.startswith(("http://", "https://")):
        return HeadService(place, os.environ.get("BLINDSIGHT_WITNESS_TOKEN", ""))
    return HeadFile(place)


MOST_WITNESSED = 4  # logs of which one principal may have heads remembered


def remember_head(database: Database, head: TreeHead, proof: Sequence[str], principal: str) -> TreeHead:
    """Keep the newest head of another service's log, if it continues the one that is known; return the newest. Who
    brings the first head of a log has it counted.
    """
    with database.session() as session:
        known = _known(session, head.key)
        if known is None:
            mine = select(func.count()).select_from(witnessed).where(witnessed.c.principal == principal)
            if (session.scalar(mine) or 0) >= MOST_WITNESSED:
                raise InputError(f"heads of {MOST_WITNESSED} logs are remembered for you already.")
            session.execute(insert(witnessed).values(key=head.key, head=asdict(head), principal=principal))
            return head
        if known.size > head.size or (known.size, known.root) == (head.size, head.root):
            return known
        parts = [bytes.fromhex(part) for part in proof]
        if not consistent(known.size, bytes.fromhex(known.root), head.size, bytes.fromhex(head.root), parts):
            raise PrivacyError(
                f"this head is not proven to continue {known}, which is known of the same log. Prove it, or the log "
                "was rewritten."
            )
        session.execute(update(witnessed).where(witnessed.c.key == head.key).values(head=asdict(head)))
        return head


def remembered_head(database: Database, key: str) -> TreeHead:
    with database.reading() as session:
        known = _known(session, key)
    if known is None:
        raise UnknownNameError("head", key, ())
    return known


def _known(session: Session, key: str) -> TreeHead | None:
    found = session.scalar(select(witnessed.c.head).where(witnessed.c.key == key))
    return None if found is None else TreeHead.from_dict(found)
