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
any number of processes may open it at once and a crash leaves the old version. One newer than this code is refused.
Released versions are never edited: a change is a new entry at the end of `MIGRATIONS`.

What drivers say can quote the URL or the values, so none of their words are passed on.
"""

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from blindsight.crypto.merkle import extend, leaf_hash
from blindsight.errors import CorruptFileError, InputError, StorageError
from blindsight.extras import require
from blindsight.files import storage_errors
from blindsight.service.settings import check_database

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(TypeDecorator[datetime]):
    """An aware datetime, kept as whole microseconds since 1970 so that both databases keep and order it alike."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // timedelta(microseconds=1)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


metadata = MetaData()

principals = Table(
    "principals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
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
)

witnessed = Table(
    "witnessed",
    metadata,
    Column("key", Text, primary_key=True),  # of the service whose log this is about
    Column("head", JSON, nullable=False),
)

frames = Table(
    "frames",
    metadata,
    Column("id", Text, primary_key=True),
    Column("person", Text, nullable=False),
    Column("added", Moment, nullable=False),
    Column("sha256", Text, nullable=False),  # of the picture's file
    Column("bytes", BigInteger, nullable=False),
    Column("epoch", Text),  # for whose key its features are sealed; none: a plain file of an earlier version
    Column("pipeline", Text),  # that made the features
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


# --- versions ---

Step = str | Callable[[Connection], None]  # a statement, or what statements cannot say
Migration = Mapping[str, tuple[Step, ...]]  # steps by kind of database

_TABLES: tuple[str, ...] = (
    """CREATE TABLE principals (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        role TEXT NOT NULL CHECK (role IN ('owner', 'app', 'operator')),
        token_hash TEXT NOT NULL UNIQUE,
        created BIGINT NOT NULL,
        expires BIGINT,
        revoked BIGINT
    )""",
    """CREATE TABLE jobs (
        id TEXT NOT NULL PRIMARY KEY,
        kind TEXT NOT NULL,
        owner TEXT NOT NULL,
        payload JSON NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled', 'timed out')),
        done FLOAT NOT NULL,
        doing TEXT NOT NULL,
        cancel BOOLEAN NOT NULL,
        attempts INTEGER NOT NULL,
        result JSON,
        error TEXT,
        submitted BIGINT NOT NULL,
        started BIGINT,
        heartbeat BIGINT,
        finished BIGINT
    )""",
    "CREATE INDEX jobs_by_state ON jobs (state, submitted)",
    "CREATE INDEX jobs_by_owner ON jobs (owner, submitted)",
    """CREATE TABLE log (
        position BIGINT NOT NULL PRIMARY KEY,
        time TEXT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        details TEXT NOT NULL,
        hash TEXT NOT NULL
    )""",
    """CREATE TABLE frames (
        id TEXT NOT NULL PRIMARY KEY,
        person TEXT NOT NULL,
        added BIGINT NOT NULL,
        sha256 TEXT NOT NULL,
        bytes BIGINT NOT NULL
    )""",
    "CREATE INDEX frames_by_person ON frames (person, added)",
)

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

_NO_GUARDS_SQLITE = tuple(
    f"DROP TRIGGER {name}" for name in ("log_keeps_rows", "log_keeps_content", "log_grows_at_its_end")
)
_NO_GUARDS_POSTGRESQL = (
    *(f"DROP TRIGGER {name} ON log" for name in ("log_keeps_rows", "log_grows_at_its_end")),
    *(f"DROP FUNCTION {name}" for name in ("refuse_log_change", "refuse_log_gap")),
)


def leaf_of(*entry: Any) -> bytes:
    """Return the hash of a log entry (position, time, actor, action, details) as it is stored."""
    return leaf_hash(record_of(*entry).encode())


def record_of(*entry: Any) -> str:
    """Return the text of a log entry that is hashed; what was put there instead of text has one too."""
    return json.dumps(entry, default=repr)


def chain_hash(before: str, position: Any, time: Any, actor: Any, action: Any, details: Any) -> str:
    """Return the hash of a log entry after the one with hash `before`, as version 0.1 chained them."""
    body = json.dumps([before, position, time, actor, action, details], default=repr)
    return hashlib.sha256(body.encode()).hexdigest()


CHAIN_START = "0" * 64
MIGRATED = "migrate log"  # after the entries of version 0.1; its details name the head of their chain


def _plant_tree(connection: Connection) -> None:
    """Turn the chain of version 0.1 into a tree, if the chain holds, and log its head."""
    chain, size, peaks = CHAIN_START, 0, list[bytes]()
    for *row, found in connection.execute(
        text("SELECT position, time, actor, action, details, hash FROM log ORDER BY position")
    ).all():
        chain = chain_hash(chain, *row)
        if row[0] != size + 1 or chain != found:
            raise CorruptFileError(f"the log was altered before this version: entry {size + 1}. Restore a backup.")
        change = text("UPDATE log SET hash = :hash WHERE position = :position")
        connection.execute(change, {"hash": extend(peaks, size, leaf_of(*row)).hex(), "position": row[0]})
        size += 1
    if size:
        details = json.dumps({"chain": chain, "entries": size}, separators=(",", ":"))
        time = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = {"position": size + 1, "time": time, "actor": "machine", "action": MIGRATED, "details": details}
        hash = extend(peaks, size, leaf_of(*entry.values())).hex()
        add = "INSERT INTO log (position, time, actor, action, details, hash) VALUES "
        connection.execute(text(add + "(:position, :time, :actor, :action, :details, :hash)"), entry | {"hash": hash})


_TREE: tuple[Step, ...] = (
    "ALTER TABLE log ADD COLUMN evidence TEXT",
    "CREATE TABLE witnessed (key TEXT NOT NULL PRIMARY KEY, head JSON NOT NULL)",
    _plant_tree,
)

_CAMERAS: tuple[Step, ...] = (
    """CREATE TABLE devices (
        id TEXT NOT NULL PRIMARY KEY,
        person TEXT NOT NULL,
        name TEXT NOT NULL,
        token_hash TEXT NOT NULL UNIQUE,
        created BIGINT NOT NULL,
        expires BIGINT,
        revoked BIGINT
    )""",
    "CREATE INDEX devices_by_person ON devices (person, created)",
    "CREATE TABLE retention (person TEXT NOT NULL PRIMARY KEY, frames INTEGER, days INTEGER)",
)

_OWNERS: tuple[Step, ...] = (
    "ALTER TABLE principals ADD COLUMN public_key TEXT",
    """CREATE TABLE enrolments (
        code_hash TEXT NOT NULL PRIMARY KEY,
        principal TEXT NOT NULL,
        expires BIGINT NOT NULL,
        redeemed BIGINT
    )""",
    """CREATE TABLE epochs (
        id TEXT NOT NULL PRIMARY KEY,
        person TEXT NOT NULL,
        public_key TEXT NOT NULL,
        owner_key TEXT NOT NULL,
        sealed TEXT NOT NULL,
        began BIGINT NOT NULL,
        ended BIGINT
    )""",
    "CREATE INDEX epochs_by_person ON epochs (person, began)",
    "ALTER TABLE frames ADD COLUMN epoch TEXT",
    "ALTER TABLE frames ADD COLUMN pipeline TEXT",
)

_SHARING: tuple[Step, ...] = (
    "ALTER TABLE jobs ADD COLUMN worker TEXT",
    "CREATE TABLE log_key (key TEXT NOT NULL PRIMARY KEY)",
)

MIGRATIONS: tuple[Migration, ...] = (
    {"sqlite": _TABLES, "postgresql": _TABLES},
    {"sqlite": _GUARDS_SQLITE, "postgresql": _GUARDS_POSTGRESQL},
    {
        "sqlite": (*_NO_GUARDS_SQLITE, *_TREE, *_GUARDS_SQLITE),
        "postgresql": (*_NO_GUARDS_POSTGRESQL, *_TREE, *_GUARDS_POSTGRESQL),
    },
    {"sqlite": _CAMERAS, "postgresql": _CAMERAS},
    {"sqlite": _OWNERS, "postgresql": _OWNERS},
    {"sqlite": _SHARING, "postgresql": _SHARING},
)


def migrate(engine: Engine, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the database to the newest version; return how many steps that took."""
    with engine.begin() as connection:
        version = _version(connection)
        if version > len(migrations):
            raise StorageError(
                f"the database has tables of version {version}; this Blindsight knows version {len(migrations)}. "
                "Upgrade Blindsight."
            )
        for number, migration in enumerate(migrations[version:], start=version + 1):
            for step in migration[engine.dialect.name]:
                connection.exec_driver_sql(step) if isinstance(step, str) else step(connection)
            connection.execute(text("INSERT INTO service_version (version) VALUES (:number)"), {"number": number})
    return len(migrations) - version


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
    if not inspect(connection).has_table("service_version"):
        connection.exec_driver_sql("CREATE TABLE service_version (version INTEGER NOT NULL PRIMARY KEY)")
    return int(connection.execute(text("SELECT coalesce(max(version), 0) FROM service_version")).scalar_one())


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
        self.undone = 0  # how often log entries were undone with their transaction: readers must read again

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
        before = session.info.get("log")
        try:
            yield
        except BaseException:
            if session.info.get("log") is not before:
                self.undone += 1
                session.info["log"] = before
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
