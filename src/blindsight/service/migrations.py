"""The service's tables, version by version, in SQLite and PostgreSQL.

A database moves from version to version in order, all in one transaction under the writers' lock, so that any number
of processes may open it at once and a crash leaves the old version. A database that is newer than this code is refused
rather than misread. What has been released is never edited: a change is a new entry at the end of `MIGRATIONS`.

The audit log is guarded by the database itself: its rows can neither be changed nor removed, and a new one only goes
behind the last. Who owns the database can take the guards away; `blindsight.service.log` notices what is done then.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine, inspect, text

from blindsight.errors import StorageError

Statements = tuple[str, ...]
Migration = Mapping[str, Statements]
"""The statements of one step for each kind of database."""

_TABLES: Statements = (
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

_GUARDS_SQLITE: Statements = (
    """CREATE TRIGGER log_keeps_rows BEFORE DELETE ON log
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
    """CREATE TRIGGER log_keeps_content BEFORE UPDATE ON log
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
    """CREATE TRIGGER log_grows_at_its_end BEFORE INSERT ON log
    WHEN NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM log)
    BEGIN SELECT RAISE(ABORT, 'the log only grows'); END""",
)

_GUARDS_POSTGRESQL: Statements = (
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

MIGRATIONS: tuple[Migration, ...] = (
    {"sqlite": _TABLES, "postgresql": _TABLES},
    {"sqlite": _GUARDS_SQLITE, "postgresql": _GUARDS_POSTGRESQL},
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
            for statement in migration[engine.dialect.name]:
                connection.exec_driver_sql(statement)
            connection.execute(text("INSERT INTO service_version (version) VALUES (:number)"), {"number": number})
    return len(migrations) - version


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table("service_version"):
        connection.exec_driver_sql("CREATE TABLE service_version (version INTEGER NOT NULL PRIMARY KEY)")
    return int(connection.execute(text("SELECT coalesce(max(version), 0) FROM service_version")).scalar_one())
