"""The service's database: its tables, their versions, and transactions, in SQLite (the default) or PostgreSQL by URL.

*The guarantee.* What a `Database.session` block wrote is on disk when the block ends, whole; a block that raises leaves
nothing. Writers take turns, in this process and over all others, so that each sees everything before it: the log's tree
and "only the first" rest on that. A block inside a block belongs to the outer one's transaction (and is undone alone if
it alone fails); readers wait for nobody.

*The tables.* Pictures, features, private labels, keys and tokens are in none: of a picture the row says whose it is and
when it came, of a token only its SHA-256 is kept, the secret of an epoch only as its owner alone can open it. Moments
are aware datetimes in UTC. The table `log` is the only record of what was decided and released (`log`): the database
refuses to change or remove its rows, and a new one only goes after the last. Who owns the database can remove these
guards: that is noticed at the next start (`check_guards`), and what was done meanwhile by the log's tree and by those
who know an earlier head.

*Versions.* A database moves from version to version in order, all in one transaction under the writers' lock, so that
any number of processes may open it at once and a crash leaves the old version. One newer than this code is refused, and
so is one of a snapshot before 0.2, unchanged. `metadata` is the only schema: a change edits it and adds a step to
`MIGRATIONS` that brings databases of before to it.

What drivers say can quote the URL or the values, so none of their words are passed on.
"""

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    JSON,
    URL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Dialect,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from blindsight.crypto.merkle import leaf_hash
from blindsight.errors import CorruptFileError, InputError, StorageError
from blindsight.extras import require
from blindsight.files import storage_errors
from blindsight.service.settings import check_database

if TYPE_CHECKING:
    from blindsight.service.rows import Rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(value: datetime | None) -> int | None:
    return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)


class Moment(TypeDecorator[datetime]):
    """An aware datetime, kept as whole microseconds since 1970 so that both databases keep and order it alike."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


metadata = MetaData()

principals = Table(
    "principals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("skeleton", Text, nullable=False, unique=True),  # what names that look alike have in common
    Column("role", Text, CheckConstraint("role IN ('owner', 'app', 'operator')"), nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("revoked", Moment),
    Column("public_key", Text),  # of an owner, in hexadecimal; pictures are sealed for it
)

enrolments = Table(
    "enrolments",
    metadata,
    Column("code_hash", Text, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("expires", Moment, nullable=False),
    Column("redeemed", Moment),
)

epochs = Table(
    "epochs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("person", Text, nullable=False),
    Column("public_key", Text, nullable=False),  # features are sealed for it
    Column("owner_key", Text, nullable=False),  # for which its secret is sealed
    Column("sealed", Text, nullable=False),
    Column("began", Moment, nullable=False),
    Column("ended", Moment),
    Index("epochs_by_person", "person", "began"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("payload", JSON, nullable=False),
    Column(
        "state",
        Text,
        CheckConstraint("state IN ('queued', 'running', 'done', 'failed', 'cancelled', 'timed out')"),
        nullable=False,
    ),
    Column("done", Float, nullable=False, default=0.0),  # the fraction of the work
    Column("doing", Text, nullable=False, default=""),  # the present step, in words
    Column("cancel", Boolean, nullable=False, default=False),  # someone asked for it to stop
    Column("attempts", Integer, nullable=False, default=0),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    Column("submitted", Moment, nullable=False),
    Column("started", Moment),
    Column("heartbeat", Moment),
    Column("worker", Text),  # who does it, as long as it is heard of
    Column("finished", Moment),
    Index("jobs_by_state", "state", "submitted"),
    Index("jobs_by_owner", "owner", "submitted"),
)

log = Table(
    "log",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("details", Text, nullable=False),  # canonical JSON
    Column("hash", Text, nullable=False),  # of the largest complete subtree that the entry ends (`crypto.merkle`)
    Column("evidence", Text),  # canonical JSON, whose SHA-256 stands in the details
    Column("signature", Text),  # of the head that the entry ends, with the last entry of what was added together
    Column("person", Text),  # whom the details name, to be found by
    Index("log_by_person", "person", "position"),
)
Index(
    "log_by_owner",
    log.c.actor,
    log.c.position,
    sqlite_where=log.c.actor.like("owner-%"),
    postgresql_where=log.c.actor.like("owner-%"),
)

witnessed = Table(
    "witnessed",
    metadata,
    Column("key", Text, primary_key=True),  # of the service whose log this is about
    Column("head", JSON, nullable=False),
    Column("principal", Text, nullable=False),  # who brought the first one
)

frames = Table(
    "frames",
    metadata,
    Column("id", Text, primary_key=True),
    Column("person", Text, nullable=False),
    Column("added", Moment, nullable=False),
    Column("sha256", Text, nullable=False),  # of the picture's file
    Column("bytes", BigInteger, nullable=False),
    Column("epoch", Text, nullable=False),  # for whose key its features are sealed
    Column("pipeline", Text, nullable=False),  # that made the features
    Index("frames_by_person", "person", "added"),
)

devices = Table(
    "devices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("person", Text, nullable=False),  # whose frames it may bring
    Column("name", Text, nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("created", Moment, nullable=False),
    Column("expires", Moment),
    Column("revoked", Moment),
    Index("devices_by_person", "person", "created"),
)

retention = Table(
    "retention",
    metadata,
    Column("person", Text, primary_key=True),
    Column("frames", Integer),  # kept, the newest
    Column("days", Integer),  # for which they are kept
)


log_key = Table("log_key", metadata, Column("key", Text, primary_key=True))  # that the log's heads are signed with


versions = Table("service_version", metadata, Column("version", Integer, primary_key=True))


# --- versions ---

Migration = Callable[[Connection], None]

_GUARDS_SQLITE: tuple[str, ...] = (
    """CREATE TRIGGER log_keeps_rows BEFORE DELETE ON log
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
    """CREATE TRIGGER log_keeps_content BEFORE UPDATE ON log
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
    """CREATE TRIGGER log_grows_at_its_end BEFORE INSERT ON log
    WHEN NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM log)
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
)

_GUARDS_POSTGRESQL: tuple[str, ...] = (
    """CREATE FUNCTION refuse_log_change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'the log only grows'; END $$""",
    """CREATE TRIGGER log_keeps_rows BEFORE UPDATE OR DELETE OR TRUNCATE ON log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_log_change()""",
    """CREATE FUNCTION refuse_log_gap() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NEW.position IS DISTINCT FROM (SELECT coalesce(max(position), 0) + 1 FROM log) THEN
            RAISE EXCEPTION 'the log only grows';
        END IF;
        RETURN NEW;
    END $$""",
    """CREATE TRIGGER log_grows_at_its_end BEFORE INSERT ON log
    FOR EACH ROW EXECUTE FUNCTION refuse_log_gap()""",
)


def leaf_of(*entry: Any) -> bytes:
    """Return the hash of a log entry (position, time, actor, action, details) as it is stored."""
    return leaf_hash(record_of(*entry).encode())


def record_of(*entry: Any) -> str:
    """Return the text of a log entry that is hashed; what was put there instead of text has one too."""
    return json.dumps(entry, default=repr)


def _baseline(connection: Connection) -> None:
    tables = [table for table in metadata.sorted_tables if table is not versions]
    metadata.create_all(connection, tables, checkfirst=False)
    for guard in _GUARDS_SQLITE if connection.dialect.name == "sqlite" else _GUARDS_POSTGRESQL:
        connection.exec_driver_sql(guard)


FIRST = 7  # the version that the baseline makes; earlier ones are of snapshots before 0.2
MIGRATIONS: tuple[Migration, ...] = (_baseline,)
NEWEST = FIRST + len(MIGRATIONS) - 1


def migrate(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the database to the newest version; return the number of steps."""
    with engine.begin() as connection:
        version, newest = _version(connection), FIRST + len(migrations) - 1
        if 0 < version < FIRST:
            raise StorageError(
                f"the database has tables of version {version}, which this Blindsight does not read; they are "
                "unchanged. Name a new database and folder, or use the Blindsight that made them."
            )
        if version > newest:
            raise StorageError(
                f"the database has tables of version {version}; this Blindsight knows version {newest}. "
                "Upgrade Blindsight."
            )
        done = 0 if version == 0 else version - FIRST + 1
        for number, migration in enumerate(migrations[done:], start=FIRST + done):
            migration(connection)
            connection.execute(insert(versions).values(version=number))
    return len(migrations) - done


def check_guards(engine: Engine) -> None:
    """Refuse a database whose log is not guarded as `MIGRATIONS` left it: somebody took the guards away."""
    if engine.dialect.name == "sqlite":
        found = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'log'"
        wanted = set(_GUARDS_SQLITE)
    else:
        found = (
            "SELECT t.tgname || ' ' || t.tgenabled::text || ' ' || t.tgtype::text || p.prosrc FROM pg_trigger t "
            "JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = 'log'::regclass AND NOT t.tgisinternal"
        )
        refuse, gap = (one.split("$$")[1] for one in _GUARDS_POSTGRESQL if one.startswith("CREATE FUNCTION"))
        wanted = {f"log_keeps_rows O 58{refuse}", f"log_grows_at_its_end O 7{gap}"}  # 58: update, delete, truncate
    with engine.connect().execution_options(reading=True) as connection:
        if not wanted <= set(connection.exec_driver_sql(found).scalars()):
            raise CorruptFileError(
                "the guards of the log were taken away or changed: its rows could be altered. Restore a backup with "
                "`blindsight restore`, which puts them back and logs it."
            )


def _version(connection: Connection) -> int:
    found = set(inspect(connection).get_table_names())
    if versions.name not in found:
        if found & set(metadata.tables):
            raise StorageError("the database has tables of another program. Name an empty one.")
        versions.create(connection)
    return int(connection.execute(select(func.coalesce(func.max(versions.c.version), 0))).scalar_one())


# --- transactions ---

_PATIENCE = 30  # seconds to wait for another process's transaction
_WRITERS = 0x626C696E64736572  # the advisory lock that writers of a PostgreSQL database take in turn


class Database:
    """One engine with its transactions."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._readers = engine.execution_options(reading=True)
        self._turn = threading.Lock()  # fairer than SQLite's polling, as is the file's lock between processes
        sqlite = engine.dialect.name == "sqlite"
        self._file = os.open(f"{engine.url.database}.lock", os.O_RDWR | os.O_CREAT, 0o600) if sqlite else None
        self._open: ContextVar[Session | None] = ContextVar("open session", default=None)
        self.logged: Callable[[Session], None] | None = None
        """Called when entries of the log are on disk, before anybody learns of it."""
        self.ending: Callable[[Session], None] | None = None
        """Called before a transaction is committed."""
        self._rows: Rows | None = None
        self.undone = 0  # how often log entries were undone with their transaction: readers must read again

    @property
    def logging(self) -> bool:
        """Whether the transaction of the block around has added to the log already."""
        outer = self._open.get()
        return outer is not None and outer.info.get("log") is not None

    @property
    def rows(self) -> "Rows":
        """The rows that count, by the log that was opened for this database."""
        assert self._rows is not None, "rows count by the log: open it first"
        return self._rows

    @rows.setter
    def rows(self, rows: "Rows") -> None:
        self._rows = rows

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Run a block as one transaction that may write; inside another block it is part of that one's."""
        outer = self._open.get()
        if outer is not None:
            with self._noting_undone(outer), outer.begin_nested():
                yield outer
            return
        with self._turn, self._file_turn(), storage_sentences(), Session(self.engine) as session:
            with self._noting_undone(session), session.begin():
                mark = self._open.set(session)
                try:
                    yield session
                    if self.ending is not None:
                        self.ending(session)
                finally:
                    self._open.reset(mark)
            if self.logged is not None and session.info.get("log") is not None:
                self.logged(session)

    @contextmanager
    def _file_turn(self) -> Iterator[None]:
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._file is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextmanager
    def _noting_undone(self, session: Session) -> Iterator[None]:
        before, sealed = session.info.get("log"), session.info.get("rows")
        try:
            yield
        except BaseException:
            if session.info.get("log") is not before:
                self.undone += 1
            session.info |= {"log": before, "rows": sealed}
            raise

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
        if self._file is not None:
            os.close(self._file)
            self._file = None


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


class FolderLock:
    """Keeps a second service out of a folder, or lets in several that share it; a killed one frees it. Of those that
    share it, the first is `alone` until it lets the others in.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        with storage_errors("use", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
            self._descriptor = os.open(folder / "service.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.alone = True
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.alone = False
            if shared:
                fcntl.flock(self._descriptor, fcntl.LOCK_SH)  # waits for one that starts just now
                return
            os.close(self._descriptor)
            raise StorageError(f"another service uses {folder}. Stop it first, or choose another folder.") from None

    def share(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def release(self) -> None:
        os.close(self._descriptor)
