"""Backup and restore of a service: one file with all its state, and a restore that cannot hide what it gave up.

*The guarantee.* A backup is whole (one transaction, a signed head, every file) and as secret as the service's folder. A
restore puts back exactly the log of the backup, or raises. It is logged with every head that witnesses saw and the
restored log lacks: so a start accepts what the restore gave up, and everybody can read that it did. What happened
after the backup is no longer known; unless a witness shows that nothing did, all live grants end with their budgets
used up, all open codes and cameras end, and so do all tokens but the operators': everybody is enrolled again. Where the
log that is given up can still be read, who was revoked or erased since stays so. Grants made after the backup are gone,
and what went out through them is forgotten.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert, select, text

from blindsight.crypto.merkle import TreeHead
from blindsight.errors import BlindsightError, CorruptFileError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, atomic_writer, storage_errors
from blindsight.service.cameras import revoke_devices
from blindsight.service.log import AuditLog, LogRecords, open_log
from blindsight.service.principals import Principals
from blindsight.service.store import (
    NEWEST,
    Database,
    FolderLock,
    Moment,
    check_guards,
    devices,
    epochs,
    frames,
    metadata,
    migrate,
    open_database,
    retention,
    storage_sentences,
)
from blindsight.service.witnesses import HeadFile, witness_at

_LEFT_OUT = ("service.db", "service.db-wal", "service.db-shm", "log.head", "cache")
"""Of the folder: what the tables hold, and what can be computed."""
_MADE = ("log_key", "service_version")  # follow from the folder and this program
_ABOUT, _ROWS = "backup.json", "tables.jsonl"


@dataclass(frozen=True)
class Restored:
    """What a restore did: the number of entries that are back, the later heads that were given up, the number of grants
    that ended, and the names of people who stay erased.
    """

    entries: int
    given_up: tuple[str, ...]
    used_up: int
    erased: tuple[str, ...] = ()


def back_up(target: AnyPath, folder: Path, url: str) -> TreeHead:
    """Write everything of the service in `folder` to one file, whole or not at all; the service may run meanwhile."""
    target = as_path(target)
    database = open_database(url)
    try:
        log = open_log(folder, database)
        check = log.verify()
        if not check.ok:
            raise CorruptFileError(f"the log was altered and is no state to keep: {check.reason}")
        with database.session(), atomic_writer(target, private=True) as stream:  # nobody writes meanwhile
            head = log.head()
            with tarfile.open(fileobj=stream, mode="w") as archive:
                _add(archive, _ABOUT, json.dumps({"version": NEWEST, "head": asdict(head)}).encode())
                _add(archive, _ROWS, "".join(_rows(database)).encode())
                for path in sorted(folder.rglob("*")):
                    name = path.relative_to(folder)
                    if path.is_file() and name.parts[0] not in _LEFT_OUT and path.suffix not in (".lock", ".part"):
                        archive.add(path, f"folder/{name}", recursive=False)
        return head
    finally:
        database.close()


def restore(
    source: AnyPath, folder: Path, url: str, *, witnesses: Sequence[str] = (), replace: bool = False
) -> Restored:
    """Put the state of a backup back, in place of what is there if `replace` says so (the folder is kept aside)."""
    source = as_path(source)
    heads = [HeadFile(folder / "log.head"), *map(witness_at, witnesses)]
    with storage_errors("read", source), _archive(source) as archive:
        about = json.loads(_member(archive, _ABOUT))
        head = TreeHead.from_dict(about["head"])
        if about["version"] != NEWEST:
            raise StorageError(
                f"{source} is of version {about['version']}; restore it with the Blindsight that made it."
            )
        seen = [one for one in (witness.last(head.key) for witness in heads) if one is not None]
        lock = FolderLock(folder)
        try:
            gone = _gone_since(head, folder, url) if replace else _Gone()
            _clear(folder, url, replace=replace)
            members = [one for one in archive.getmembers() if one.name.startswith("folder/")]
            for member in members:
                member.name = member.name.removeprefix("folder/")
            archive.extractall(folder, members, filter="data")
            return _refilled(_member(archive, _ROWS), folder, url, head, seen, gone, witnesses)
        finally:
            lock.release()


@dataclass(frozen=True)
class _Gone:
    """Whom the given-up part of a log ended for ever: ids of principals that were revoked, names of erased people."""

    revoked: frozenset[str] = frozenset()
    erased: frozenset[str] = frozenset()


def _gone_since(head: TreeHead, folder: Path, url: str) -> _Gone:
    """Return who was revoked or erased after a head, by the log that is about to be given up, if it can be read."""
    try:
        database = open_database(url)
    except StorageError:
        return _Gone()
    try:
        log = open_log(folder, database)
        if log.key != head.key or not log.includes(head.size, head.root):
            return _Gone()
        later = [row.entry() for row in log.rows(head.size) if row.action in ("revoke principal", "erase person")]
    except BlindsightError:  # cut, altered, of another key: that is why it is given up
        return _Gone()
    finally:
        database.close()
    erased = (one.details["person"] for one in later if one.action == "erase person")
    return _Gone(frozenset(one.details["principal"] for one in later), frozenset(erased))


def _refilled(
    rows: bytes,
    folder: Path,
    url: str,
    head: TreeHead,
    seen: Sequence[TreeHead],
    gone: _Gone,
    witnesses: Sequence[str],
) -> Restored:
    """Fill the tables, and log what that gave up."""
    database = open_database(url)
    try:
        with database.session() as session:
            for line in rows.decode().splitlines():
                name, values = json.loads(line)
                session.execute(insert(metadata.tables[name]).values(**_read(metadata.tables[name], values)))
        check_guards(database.engine)
        log = open_log(folder, database)  # witnesses hold what is given up here, and are told once the log says so
        check = log.verify(known_heads=[str(head)])
        if not check.ok or check.entries != head.size:
            raise CorruptFileError("the log in the backup is not the one whose head it names. Use another backup.")
        given_up = tuple(sorted({str(one) for one in seen if not log.includes(one.size, one.root)}))
        newest = any(one.size == head.size for one in seen) and not given_up
        with database.session():
            used_up = 0 if newest else _end_all(log, database, folder, gone)
            about = {"backup": str(head), "used_up": used_up, "erased": sorted(gone.erased)}
            entry = log.add_restore(given_up, about)
        log = open_log(folder, database, [witness_at(one) for one in witnesses])
        log.tell_witnesses()
        log.close()
        return Restored(entry.position, given_up, used_up, tuple(sorted(gone.erased)))
    finally:
        database.close()


def _end_all(log: AuditLog, database: Database, folder: Path, gone: _Gone) -> int:
    """End what may have ended after the backup: grants (what is left of their budgets is booked, since it may have gone
    out), cameras, codes, and all tokens but the operators'; and what is known to have. Return the number of grants.
    """
    from blindsight.sift.register import Register, SiftStore

    people, register = Principals(database, clock=log.now), Register(LogRecords(log, database), log.now)
    with register.current():
        live = [grant for grant in register.grants.values() if grant.live]
        left = [(one, one.budget.frames - register.frames_to(one.person, one.app)) for one in live]
        told = [
            {"grant": one.number, "person": one.person, "app": one.app, "sift": one.sift, "frames": frames}
            for one, frames in left
            if frames > 0
        ]
        register.record_all(
            "release", ({**one, "repeated": 0, "width": 0, "size": 0, "restored": True} for one in told)
        )
        for grant in live:
            register.revoke(grant, "an earlier state was restored", leaks=False)
        mine = {name: [one.number for one in register.of(name)] for name in gone.erased}
    people.end_codes()
    for one in people.list():
        if one.id in gone.revoked:
            people.revoke(one.id)
        elif one.role != "operator" and one.revoked is None:
            people.rotate(one.id, renewed=False)
        revoke_devices(database, one.name, log.now())
    for name, grants in mine.items():
        for table in (frames, epochs, devices, retention):
            database.rows.remove_all(table, name)
        SiftStore(folder / "platform").forget(name, grants)
    return len(live)


def _rows(database: Database) -> Iterator[str]:
    with database.reading() as session:
        for table in metadata.sorted_tables:
            if table.name in _MADE:
                continue
            order = table.c.position if table.name == "log" else None
            for row in session.execute(select(table).order_by(order)):
                yield json.dumps([table.name, {name: _written(value) for name, value in row._mapping.items()}]) + "\n"


def _written(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _read(table: Table, values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if value is not None and isinstance(table.c[name].type, Moment) else value
        for name, value in values.items()
    }


def _clear(folder: Path, url: str, *, replace: bool) -> None:
    """Make room for the backup: an empty folder and empty tables, or a refusal."""
    filled = [path for path in folder.iterdir() if path.name != "service.lock"]
    if filled and not replace:
        raise StorageError(f"{folder} is in use. Restore into an empty folder, or say --replace.")
    if filled:
        aside = folder.with_name(f"{folder.name}-before-restore-{len(list(folder.parent.iterdir()))}")
        with storage_errors("create", aside):
            aside.mkdir(mode=0o700)
            for path in filled:
                path.rename(aside / path.name)
    database = open_database(url)
    try:
        with storage_sentences(), database.engine.begin() as connection:
            tables = [table for table in metadata.sorted_tables if table.name not in _MADE]
            used = any(connection.execute(select(table).limit(1)).first() for table in tables)
            if used and not replace:
                raise StorageError("the database is in use. Restore into an empty one, or say --replace.")
            if used:
                metadata.drop_all(connection)
                lite = database.engine.dialect.name == "sqlite"
                for name in () if lite else ("refuse_log_change", "refuse_log_gap"):
                    connection.execute(text(f"DROP FUNCTION {name}"))
        with storage_sentences():
            migrate(database.engine)
    finally:
        database.close()


def _archive(source: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(source, "r:")
    except tarfile.TarError:
        raise CorruptFileError(f"{source} is no backup, or is cut off.") from None


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        found = archive.extractfile(name)
        assert found is not None
        return found.read()
    except (KeyError, tarfile.TarError, AssertionError):
        raise MessageError(f"the backup has no {name}: it is no backup of a service.") from None


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    archive.addfile(member, io.BytesIO(content))
