"""Cameras of owners: tokens that can only bring frames, and how long frames are kept.

*The guarantee.* Only an owner makes and revokes the tokens of their own devices. A device may add frames of its owner
and do nothing else: not look at one, not count them. Its token ends when it expires, when it is revoked, or with its
owner's token. Only the token's SHA-256 is kept.

*Retention* is the owner's choice: the newest N frames, those of the last T days, or both. Older frames are deleted with
every new frame, at the start and once a minute; the log says each time how many and why. What was released of a frame
before cannot be taken back.
"""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Row, bindparam

from blindsight.data.readers import visible_files
from blindsight.errors import BlindsightError, CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors
from blindsight.progress import Progress, silent
from blindsight.service.frames import MOST_FRAMES, FrameStore
from blindsight.service.log import MACHINE, PLATFORM, AuditLog
from blindsight.service.principals import TOKEN, Principal, Principals, Token, check_name, token_hash
from blindsight.service.rows import sealed
from blindsight.service.store import Database, devices, retention

logger = logging.getLogger(__name__)

MOST_DEVICES = 32  # of one owner, not counting revoked ones
MOST_DAYS = 3650
_MINUTE = 60.0

_BY_TOKEN = sealed(devices).where(
    devices.c.token_hash == bindparam("digest"),
    devices.c.revoked.is_(None),
    (devices.c.expires.is_(None)) | (devices.c.expires > bindparam("now", type_=devices.c.expires.type)),
)
_OF = sealed(devices).where(devices.c.person == bindparam("person")).order_by(devices.c.created, devices.c.id)


@dataclass(frozen=True)
class Device:
    """A camera of a person; the moments tell how its token stands."""

    id: str
    person: str
    name: str
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None


@dataclass(frozen=True)
class Retention:
    """How long frames are kept: the newest `frames`, and those of the last `days`; None is no limit."""

    frames: int | None = None
    days: int | None = None

    def __post_init__(self) -> None:
        for name, value, most in (("frames", self.frames, MOST_FRAMES), ("days", self.days, MOST_DAYS)):
            if value is not None and not 1 <= value <= most:
                raise InputError(f"{name} to keep must be in [1, {most}]; got {value}.")


def revoke_devices(database: Database, person: str, now: datetime) -> int:
    """Make the tokens of all devices of a person worthless; return the number of those that were not."""
    live = [one for one in database.rows.fetch(devices, _OF, {"person": person}) if one.revoked is None]
    for one in live:
        database.rows.change(devices, one, revoked=now)
    return len(live)


def _device(row: Row[Any]) -> Device:
    return Device(**{part.name: getattr(row, part.name) for part in fields(Device)})


def _mark(path: Path) -> list[int]:
    with storage_errors("read", path):
        status = path.stat()
    return [status.st_size, status.st_mtime_ns]


class Cameras:
    """The devices of all owners, photos of theirs, and what becomes of old frames; `taken` names photos' files."""

    def __init__(
        self,
        principals: Principals,
        frames: FrameStore,
        log: AuditLog,
        taken: Path,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._taken, self._clock = taken, clock
        self._principals, self._database, self._frames, self._log = principals, principals.database, frames, log
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    # --- devices ---

    def authenticate(self, token: str) -> Principal | None:
        """Return a device as a principal with its owner's name, or None."""
        if TOKEN.fullmatch(token) is None:
            return None
        now = self._log.now()
        for found in self._database.rows.fetch(devices, _BY_TOKEN, {"digest": token_hash(token), "now": now}):
            owner = self._principals.named(found.person)
            if owner is not None and owner.role == "owner" and owner.active(now):
                return Principal(found.id, found.person, "device", public_key=owner.public_key)
        return None

    def add(self, owner: Principal, name: str, days: int | None = None) -> tuple[Device, Token]:
        """Return a new device of an owner and its token, which is shown once."""
        check_name(name)
        token, now = self._principals.new_token(), self._log.now()
        if days is not None and not 1 <= days <= MOST_DAYS:
            raise InputError(f"days must be in [1, {MOST_DAYS}]; got {days}.")
        until = None if days is None else now + timedelta(days=days)
        with self._database.session():
            mine = [one for one in self.of(owner.name) if one.revoked is None]
            if name in {one.name for one in mine}:
                raise InputError(
                    f"a device of yours is called {name} already. Choose another name, or revoke that one."
                )
            if len(mine) >= MOST_DEVICES:
                raise InputError(f"a person has at most {MOST_DEVICES} devices. Revoke one first.")
            made = Device(f"device-{token_hash(token)[:16]}", owner.name, name, now, until)
            self._database.rows.insert(devices, **vars(made), token_hash=token_hash(token))
            self._log.append(owner.id, "add device", {"person": owner.name, "device": made.id, "name": name})
        return made, token

    def of(self, person: str) -> tuple[Device, ...]:
        return tuple(map(_device, self._database.rows.fetch(devices, _OF, {"person": person})))

    def revoke(self, owner: Principal, id: str) -> Device:
        rows = self._database.rows
        with self._database.session():
            known = next((one for one in rows.fetch(devices, _OF, {"person": owner.name}) if one.id == id), None)
            if known is None:
                raise UnknownNameError("device", id, ())
            if known.revoked is None:
                rows.change(devices, known, revoked=self._log.now())
                self._log.append(owner.id, "revoke device", {"person": owner.name, "device": id, "name": known.name})
        return next(one for one in self.of(owner.name) if one.id == id)

    def revoke_all(self, person: str, by: str, *, erase: bool = False) -> None:
        """Make the tokens of all devices of a person worthless; to erase also deletes what is known of them."""
        with self._database.session():
            live = revoke_devices(self._database, person, self._log.now())
            if erase:
                self._database.rows.remove_all(devices, person)
                self._database.rows.remove_all(retention, person)
                known = self._read_taken()
                self._write_taken({name: mark for name, mark in known.items() if Path(name).parent.name != person})
            if live:
                self._log.append(by, "revoke devices", {"person": person, "devices": live})

    # --- photos of one's own ---

    def take_in(self, folder: AnyPath, *, progress: Progress = silent) -> tuple[str, ...]:
        """Take in photos, a folder per owner's name, each file once (a list of those taken is kept with the frames, so
        that one deleted here does not come back); return messages for the user.
        """
        folder = as_path(folder)
        owners = {one.name: one for one in self._principals.list() if one.role == "owner" and one.revoked is None}
        with storage_errors("read", folder):
            people = sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))
        if not people:
            raise InputError(f"{folder} holds no folders: it needs one for each owner, by their names.")
        said = []
        for person in people:
            if person.name not in owners:
                said.append(f"{person.name} is no owner here, so no photo in {person} was taken in. Enrol them first.")
                continue
            said += self._take_in_of(owners[person.name], person, progress)
        return tuple(said)

    def _take_in_of(self, owner: Principal, folder: Path, progress: Progress) -> list[str]:
        known = self._read_taken()
        files = {str(folder / name): folder / name for name in visible_files(folder)}
        new = {name: mark for name, path in files.items() if known.get(name) != (mark := _mark(path))}
        taken, refused = 0, []
        for number, name in enumerate(new):
            progress(f"taking in photos of {owner.name}", number, len(new))
            try:
                with storage_errors("read", files[name]):
                    content = files[name].read_bytes()
                self._frames.add(owner.name, content, logged=lambda frame: self.note_frame(MACHINE, owner.name, frame))
            except InputError as error:
                refused.append(f"{files[name].name}: {error}")
                continue
            taken += 1
            known[name] = new[name]
            self._write_taken(known)
        self.forget(owner.name)
        said = [f"{owner.name}: {taken} new photo{'s' if taken > 1 else ''} taken in."] if taken else []
        if refused:
            named = "1 file is" if len(refused) == 1 else f"{len(refused)} files are"
            said.append(f"{owner.name}: {named} not used, such as {refused[0]}")
        return said

    def _write_taken(self, known: dict[str, Any]) -> None:
        if known or self._taken.exists():
            with atomic_writer(self._taken, private=True) as stream:
                stream.write(json.dumps(known).encode())

    def _read_taken(self) -> dict[str, Any]:
        if not self._taken.exists():
            return {}
        with storage_errors("read", self._taken):
            text = self._taken.read_text()
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError):
            raise CorruptFileError(f"{self._taken} does not say which photos were taken in. Delete it.") from None

    # --- retention ---

    def retention(self, person: str) -> Retention:
        found = self._database.rows.fetch(retention, sealed(retention).where(retention.c.person == person))
        return Retention(found[0].frames, found[0].days) if found else Retention()

    def set_retention(self, owner: Principal, wanted: Retention) -> int:
        """Note how long a person's frames are kept, and forget those that are over; return how many these were."""
        with self._database.session():
            self._database.rows.remove_all(retention, owner.name)
            self._database.rows.insert(retention, person=owner.name, **vars(wanted))
            self._log.append(owner.id, "set retention", {"person": owner.name, **vars(wanted)})
        return self.forget(owner.name)

    def forget(self, person: str) -> int:
        """Forget a person's frames that are over; return how many. A clock that is ahead for a while forgets none."""
        chosen = self.retention(person)
        now = min(self._clock(), self._log.now())
        before = None if chosen.days is None else now - timedelta(days=chosen.days)
        over = self._frames.over(person, newest=chosen.frames, since=before)
        details: dict[str, Any] = {"person": person, "frames": len(over), "kept": vars(chosen)}
        with suppress(UnknownNameError):  # others forgot them just now
            if over:
                self._frames.delete(person, over, logged=lambda: self._log.append(PLATFORM, "forget frames", details))
        return len(over)

    def note_frame(self, actor: str, person: str, frame: str) -> None:
        self._log.append(actor, "add frame", {"person": person, "frame": frame})

    def forget_all(self) -> int:
        chosen = self._database.rows.fetch(retention, sealed(retention).order_by(retention.c.person))
        return sum(self.forget(one.person) for one in chosen)

    def start(self, every: float = _MINUTE) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(every,), name="blindsight retention", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, every: float) -> None:
        while True:
            try:
                self.forget_all()
            except BlindsightError as error:  # tried again a minute later
                logger.error("frames that are over could not be forgotten: %s", error)
            if self._closing.wait(every):
                return
