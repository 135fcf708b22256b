"""Where the service keeps its rows: SQLite by default, PostgreSQL by URL, and the same behaviour on both.

*The guarantee.* What a `Database.session` block wrote is on disk when the block ends, whole; a block that raises
leaves nothing. Writers take turns, in this process and over all others, so that each sees everything before it: the
audit log's chain and "only the first" rest on that. A block inside a block belongs to the outer one's transaction (and
is undone alone if it alone fails); readers wait for nobody.

What drivers say can quote the URL or the values, so none of their words are passed on.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from blindsight.errors import InputError, StorageError
from blindsight.extras import require
from blindsight.files import storage_errors
from blindsight.service.migrations import migrate
from blindsight.service.settings import check_database

_PATIENCE = 30  # seconds to wait for another process's transaction
_WRITERS = 0x626C696E64736572  # the advisory lock that writers of a PostgreSQL database take in turn


class Database:
    """One engine with its transactions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._readers = engine.execution_options(reading=True)
        self._turn = threading.Lock()  # fairer between threads than SQLite's polling
        self._open: ContextVar[Session | None] = ContextVar("open session", default=None)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Run a block as one transaction that may write; inside another block it is part of that one's."""
        outer = self._open.get()
        if outer is not None:
            with outer.begin_nested():
                yield outer
            return
        with self._turn, storage_sentences(), Session(self.engine) as session, session.begin():
            mark = self._open.set(session)
            try:
                yield session
            finally:
                self._open.reset(mark)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Run a block that only reads; inside a `session` block it sees what that one wrote."""
        outer = self._open.get()
        if outer is not None:
            yield outer
            return
        with storage_sentences(), Session(self._readers) as session:
            yield session

    def close(self) -> None:
        self.engine.dispose()


def open_database(url: str) -> Database:
    """Open the database at `url`, made (a SQLite file, for its owner only) and migrated if need be."""
    check_database(url)
    try:
        address = make_url(url)
    except ArgumentError:
        raise InputError("the database's URL cannot be read.") from None
    engine = _sqlite(address) if address.get_backend_name() == "sqlite" else _postgresql(address)
    try:
        with storage_sentences():
            migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return Database(engine)


@contextmanager
def storage_sentences() -> Iterator[None]:
    """Turn what a database raises into one sentence without its words; broken constraints stay for the caller."""
    try:
        yield
    except IntegrityError:
        raise
    except SQLAlchemyError as error:
        kind = type(getattr(error, "orig", None) or error).__name__
        raise StorageError(
            f"the database could not be reached, was busy for too long or refused ({kind}). A change happened whole or "
            "not at all. Try again."
        ) from None


def _sqlite(url: URL) -> Engine:
    if url.database is None or url.database in ("", ":memory:") or url.query:
        raise InputError("a SQLite database must be a file, named without options: 'sqlite:////path/service.db'.")
    path = Path(url.database)
    with storage_errors("create", path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    engine = create_engine(url, hide_parameters=True, pool_size=8, max_overflow=32)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        connection.isolation_level = None  # the driver opens no transactions of its own
        connection.text_factory = lambda raw: raw.decode(errors="replace")  # so that a damaged log can be read and told
        for pragma in (f"busy_timeout={_PATIENCE * 1000}", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def take_turn(connection: Connection) -> None:
        kind = "DEFERRED" if connection.get_execution_options().get("reading") else "IMMEDIATE"
        connection.exec_driver_sql(f"BEGIN {kind}")

    return engine


def _postgresql(url: URL) -> Engine:
    require("psycopg", extra="service", purpose="a service on PostgreSQL")
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=8,
        max_overflow=32,
        connect_args={"connect_timeout": _PATIENCE},
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, record: object) -> None:
        connection.execute(f"SET lock_timeout = '{_PATIENCE}s'")
        connection.commit()

    @event.listens_for(engine, "begin")
    def take_turn(connection: Connection) -> None:
        if not connection.get_execution_options().get("reading"):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")

    return engine
