"""Rows of the database that count only as this service wrote them.

*The guarantee.* Who may do what, for whom pictures are sealed and which frames there are stands in ordinary tables, and
whoever writes to the database could change them. So the entry of the log that makes, changes or removes such a row
names its seal: HMAC-SHA256 over table and all columns, under a key that is derived from the log's and never in the
database. A row counts only if its seal is the newest that the log names for its table, group and primary key. A forged
row, one of another table or person, and an old one that was put back are as if they were not there; the log itself is
followed only as far as this service signed it (`log`).

*What it cannot do.* A deleted row is missing (`Rows.check` names it); with the log's key rows can be forged.

Seals are in memory, about 200 bytes for each row, and follow what other processes log.
"""

import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy import Row, Select, Table, delete, func, insert, select, update
from sqlalchemy.orm import Session

from blindsight.service.store import (
    Database,
    Moment,
    devices,
    enrolments,
    epochs,
    frames,
    log,
    microseconds,
    principals,
    retention,
)

logger = logging.getLogger(__name__)

SEALED: Mapping[str, tuple[Table, str]] = {
    table.name: (table, group)
    for table, group in (
        (principals, ""),
        (enrolments, "principal"),
        (devices, "person"),
        (epochs, "person"),
        (frames, "person"),
        (retention, "person"),
    )
}
"""Tables whose rows count only under a seal, and the column that groups their seals."""

_REMEMBERED = 20_000
SEAL = "seals"  # the name of the seals in the details of an entry
Key = tuple[str, str, str]
"""Table, group and primary key of a row."""
Seal = tuple[str, str, str, str | None]
"""The same and its seal as hex; None once the row is removed."""

_UPTO = select(func.max(log.c.position)).scalar_subquery().label("upto")


def sealed(table: Table) -> Select[Any]:
    """Return the query of a table's rows that `Rows.fetch` completes with conditions."""
    return select(table, _UPTO)


class Rows:
    """The sealed rows of a database. `follow` takes in what the log names since it was called last."""

    def __init__(self, database: Database, secret: bytes, follow: Callable[[], None]) -> None:
        self._database, self._follow = database, follow
        self._key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"blindsight rows 1").derive(secret)
        self._named: dict[tuple[str, str], dict[str, bytes]] = {}
        self._good: dict[Key, tuple[str, tuple[Any, ...]]] = {}  # rows that counted, and their seals
        self._mutex = threading.Lock()
        self.size = 0
        """The number of entries that were taken in."""
        database.rows = self

    # --- writing ---

    def insert(self, table: Table, **values: Any) -> None:
        """Add a row, in the transaction of the block around or in its own."""
        row = {column.name: values.get(column.name) for column in table.c}
        with self._database.session() as session:
            session.execute(insert(table).values(row))
            self._note(session, table, row, self._seal(table, row))

    def change(self, table: Table, row: Row[Any], **changes: Any) -> None:
        """Change a row that was fetched, in the transaction of the block around or in its own."""
        known = {column.name: row._mapping[column.name] for column in table.c}
        new = known | changes
        with self._database.session() as session:
            session.execute(update(table).where(_key_column(table) == known[_key_column(table).name]).values(new))
            self._note(session, table, new, self._seal(table, new))

    def remove(self, table: Table, row: Row[Any]) -> bool:
        """Delete a row that was fetched; return False if it was not there any more."""
        key = _key_column(table)
        with self._database.session() as session:
            gone = session.execute(delete(table).where(key == row._mapping[key.name]).returning(key)).all()
            self._note(session, table, dict(row._mapping), None)
        return bool(gone)

    def remove_all(self, table: Table, group: str) -> None:
        """Delete all rows of a group."""
        with self._database.session() as session:
            session.execute(delete(table).where(table.c[SEALED[table.name][1]] == group))
            own, waiting = _written(session)
            rest = {key: seal for key, seal in own.items() if key[:2] != (table.name, group)}
            gone = (table.name, group, "")
            session.info["rows"] = {**rest, gone: None}, (*waiting, (*gone, None))

    # --- reading ---

    def fetch(self, table: Table, query: Select[Any], parameters: Mapping[str, Any] | None = None) -> list[Row[Any]]:
        """Return the rows of a `sealed` query of a table that count."""
        while True:
            with self._database.reading() as session:
                found = session.execute(query, dict(parameters or {})).all()
                own, before, fresh = _written(session)[0], self.size, not self._database.logging
            if not found:
                return []
            if fresh and (found[0].upto or 0) > before:
                self._follow()
            good = [row for row in found if self._counts(table, row, own)]
            if len(good) == len(found):
                return good
            if fresh:
                self._follow()
            if self.size == before:
                logger.error("%d row(s) of %s were not written by this service", len(found) - len(good), table.name)
                return good

    def check(self) -> list[str]:
        """Return what is wrong with the tables: rows that do not count, and rows that are missing."""
        problems = []
        self._follow()
        for table, _ in SEALED.values():
            seen = bad = 0
            with self._database.reading() as session:
                for row in session.execute(select(table).execution_options(yield_per=1000)):
                    good = self._counts(table, row, {})
                    seen, bad = seen + good, bad + (not good)
            with self._mutex:
                wanted = sum(len(some) for (name, _), some in self._named.items() if name == table.name)
            if bad:
                problems.append(f"{bad} row(s) of the table {table.name} were not written by this service")
            if seen < wanted:
                problems.append(f"{wanted - seen} row(s) of the table {table.name} are missing")
        return problems

    def count(self, table: Table, group: str) -> int:
        """Return the number of rows of a group, by what the log names."""
        return len(self._named.get((table.name, group), ()))

    def named(self, table: Table) -> list[tuple[str, str]]:
        """Return group and primary key of all rows of a table that the log names."""
        self._follow()
        with self._mutex:
            return [(group, key) for (name, group), some in self._named.items() if name == table.name for key in some]

    def _counts(self, table: Table, row: Row[Any], own: Mapping[Key, str | None]) -> bool:
        found = tuple(row)[: len(table.c)]
        values = dict(zip(table.c.keys(), found, strict=True))
        key = _place(table, values)
        whole = (*key[:2], "")
        known = own[key] if key in own else None if whole in own else self._known(key)
        if known is None:
            return False
        if self._good.get(key) == (known, found):  # the same as before: no need to compute it again
            return True
        if not hmac.compare_digest(known, self._seal(table, values)):
            return False
        if len(self._good) >= _REMEMBERED:
            self._good.clear()
        self._good[key] = known, found
        return True

    def _known(self, key: Key) -> str | None:
        found = self._named.get(key[:2], {}).get(key[2])
        return None if found is None else found.hex()

    # --- what the log names ---

    def take(self, first: int, upto: int, named: Iterable[tuple[int, str]]) -> None:
        """Take in entries `first` to `upto`, which a signed head covers; `named` are the details that name seals."""
        with self._mutex:
            if not first - 1 <= self.size < upto:
                return  # known already, or some are missing before
            fresh = [details for position, details in named if position > self.size]
            for table, group, key, seal in chain.from_iterable(json.loads(one).get(SEAL, ()) for one in fresh):
                some = self._named.setdefault((table, group), {})
                if seal is not None:
                    some[key] = bytes.fromhex(seal)
                elif key:
                    some.pop(key, None)
                    self._good.pop((table, group, key), None)
                else:
                    some.clear()
                    self._good.clear()
                if not some:
                    del self._named[table, group]
            self.size = upto

    def _note(self, session: Session, table: Table, row: Mapping[str, Any], seal: str | None) -> None:
        own, waiting = _written(session)
        key = _place(table, row)
        earlier = (one for one in waiting if one[:3] != key)
        session.info["rows"] = {**own, key: seal}, (*earlier, (*key, seal))

    def _seal(self, table: Table, row: Mapping[str, Any]) -> str:
        text = json.dumps([table.name, *(_plain(column, row[column.name]) for column in table.c)])
        return hmac.digest(self._key, text.encode(), "sha256")[:16].hex()


def waiting(session: Session, most: int) -> tuple[Seal, ...]:
    """Return seals that no entry names yet; who takes them must log them in the same transaction."""
    own, seals = _written(session)
    if seals:
        session.info["rows"] = own, seals[most:]
    return seals[:most]


def names_seals(details: str) -> bool:
    return f'"{SEAL}":[' in details


def _written(session: Session) -> tuple[Mapping[Key, str | None], tuple[Seal, ...]]:
    """Return the seals of a transaction, and those of them that no entry names yet."""
    return session.info.get("rows") or ({}, ())


def _plain(column: Any, value: Any) -> Any:
    """Return a value as the database keeps it."""
    return microseconds(value) if isinstance(column.type, Moment) else value


def _key_column(table: Table) -> Any:
    (column,) = table.primary_key.columns
    return column


def _place(table: Table, row: Mapping[str, Any]) -> Key:
    group = SEALED[table.name][1]
    return table.name, row[group] if group else "", row[_key_column(table).name]
