"""The tables in PostgreSQL, version by version.

A database moves from version to version in order, each inside one transaction and under one lock, so that any number of
processes may open it at once. A database that is newer than this code is refused rather than misread. What has been
released is never edited: a change is a new entry at the end of `MIGRATIONS`.

Everything lives in the schema "blindsight". The codes of collection number n are in the table codes_n, made when its
first code says whether ids are integers or text.
"""

from collections.abc import Sequence
from typing import Any

from blindsight.errors import StorageError

_LOCK = 0x626C696E64  # the same for everyone who migrates this database

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE EXTENSION IF NOT EXISTS vector;
    CREATE TABLE blindsight.collection (
        number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text COLLATE "C" NOT NULL UNIQUE,
        bits integer NOT NULL CHECK (bits > 0),
        ids text CHECK (ids IN ('integers', 'text'))
    );
    """,
    """
    CREATE TABLE blindsight.tuned (
        collection integer NOT NULL REFERENCES blindsight.collection ON DELETE CASCADE,
        kind text NOT NULL CHECK (kind IN ('ivfflat', 'hnsw')),
        lists integer NOT NULL,
        effort integer NOT NULL,
        recall double precision NOT NULL,
        PRIMARY KEY (collection, kind)
    );
    """,
)


def migrate(connection: Any, migrations: Sequence[str] = MIGRATIONS) -> int:
    """Bring the database to the newest version inside the caller's transaction; return how many steps that took."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    version = _version(connection)
    if version > len(migrations):
        raise StorageError(
            f"the database has tables of version {version}; this Blindsight knows version {len(migrations)}. "
            "Upgrade Blindsight."
        )
    for number, statements in enumerate(migrations[version:], start=version + 1):
        connection.execute(statements)
        connection.execute("INSERT INTO blindsight.migration (version) VALUES (%s)", (number,))
    return len(migrations) - version


def _version(connection: Any) -> int:
    """Return the version of the tables, 0 if there are none yet."""
    if connection.execute("SELECT to_regclass('blindsight.migration')").fetchone()[0] is None:
        connection.execute("CREATE SCHEMA IF NOT EXISTS blindsight")
        connection.execute(
            "CREATE TABLE blindsight.migration (version integer PRIMARY KEY, applied timestamptz DEFAULT now())"
        )
    version: int = connection.execute("SELECT coalesce(max(version), 0) FROM blindsight.migration").fetchone()[0]
    return version
