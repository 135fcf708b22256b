"""Binary codes in PostgreSQL with pgvector: one store for several machines, searched by Hamming distance.

*What is promised.* Every change is one transaction: whole or not at all, whoever else writes. Without an index, and
with kind "exact", searches are exact. `build` makes an ivfflat (or hnsw) index and measures how many lists a search
must open (how many candidates it must keep) to reach the wanted recall@100 on the collection's own codes; what it
measured is stored beside the codes, for everyone who searches. Where that takes more than half of the lists, or more
candidates than pgvector keeps, as with codes that carry much noise, searches compare all codes, as in `HammingIndex`. A
radius is always answered exactly.

ivfflat is the default: hnsw takes far longer to build and loses recall where many codes are equal. Each collection has
its table, several share a database.

Connections to PostgreSQL that come back by themselves, and errors in one sentence that tell no secret.

What libpq says can quote the connection string, so none of its words are passed on; what the server says about a
statement is.

The tables in PostgreSQL, version by version.

A database moves from version to version in order, each inside one transaction and under one lock, so that any number of
processes may open it at once. A database that is newer than this code is refused rather than misread. What has been
released is never edited: a change is a new entry at the end of `MIGRATIONS`.

Everything lives in the schema "blindsight". The codes of collection number n are in the table codes_n, made when its
first code says whether ids are integers or text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from blindsight.errors import InputError, StorageError, UnknownNameError
from blindsight.extras import require
from blindsight.search.codes import Codes, check_bits, check_codes
from blindsight.search.codetable import CodeTable, Connection, empty_ids
from blindsight.search.hits import Hits, IdArray, Neighbourhoods, check_k, check_radius, check_recall
from blindsight.search.index import fewest, measured_recall
from blindsight.search.rows import IdKind, check_ids, check_unique, kind_of

T = TypeVar("T")

_ATTEMPTS = 5  # at work that PostgreSQL broke off because of other writers


class Database:
    """A pool of up to `connections` connections; `patience` is how many seconds to wait for one."""

    def __init__(self, dsn: str, *, connections: int = 4, patience: float = 30.0) -> None:
        self._psycopg = require("psycopg", extra="postgres", purpose="an index in PostgreSQL")
        pool = require("psycopg_pool", extra="postgres", purpose="an index in PostgreSQL")
        if connections < 1 or not patience > 0:
            raise InputError(f"connections must be >= 1 and patience > 0; got {connections!r} and {patience!r}.")
        try:
            self._psycopg.conninfo.conninfo_to_dict(dsn)
        except (self._psycopg.Error, AttributeError, TypeError):
            raise InputError(
                "the connection string cannot be read. It looks like 'postgresql://user@host/name' or "
                "'host=... dbname=... user=...'."
            ) from None
        self._pool = pool.ConnectionPool(
            dsn,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=patience,
            reconnect_timeout=patience,  # then it rests, and the next operation knocks again at once
            check=pool.ConnectionPool.check_connection,
            kwargs={"connect_timeout": math.ceil(patience), "prepare_threshold": None},
        )
        self._pool.open()

    def run(self, doing: str, work: Callable[[Any], T]) -> T:
        """Do `work` with a connection inside one transaction; `doing` names it in errors ("a search")."""
        for _ in range(_ATTEMPTS):
            try:
                with self._pool.connection() as connection:
                    return work(connection)
            except (self._psycopg.errors.DeadlockDetected, self._psycopg.errors.SerializationFailure):
                continue
            except (self._psycopg.OperationalError, self._psycopg.InterfaceError):
                raise StorageError(
                    f"PostgreSQL could not be reached, or went away during {doing}. A change happened whole or not at "
                    "all. Try again when it is back."
                ) from None
            except self._psycopg.Error as error:
                raise StorageError(f"PostgreSQL refused {doing}: {error.diag.message_primary}.") from None
        raise StorageError(f"PostgreSQL broke off {doing} {_ATTEMPTS} times because of other writers. Try again.")

    def close(self) -> None:
        self._pool.close()


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


Kind = Literal["ivfflat", "hnsw", "exact"]

_EXACT = 0  # effort that stands for comparing all codes
_K = 100  # hits whose recall `build` measures
_QUERIES = 64  # codes it measures with
_MOST_LISTS = 32_768  # pgvector's bounds
_MOST_CANDIDATES = 1_000


@dataclass(frozen=True)
class _Collection:
    """What the database knows about a collection: the kind of its ids (None: never a code) and its measured index."""

    ids: IdKind | None
    lists: int | None
    effort: int | None
    recall: float | None


class PostgresIndex:
    """The codes of one `collection` in the database that `dsn` names; opened if it exists, else made.

    `kind` is how searches are answered: "ivfflat", "hnsw" or "exact". `connections` is how many are opened at most,
    `patience` how many seconds an operation waits for one. Threads and processes may share a collection freely.
    """

    def __init__(
        self,
        dsn: str,
        collection: str,
        bits: int,
        *,
        kind: Kind = "ivfflat",
        recall: float = 0.99,
        connections: int = 4,
        patience: float = 30.0,
    ) -> None:
        if kind not in get_args(Kind):
            raise UnknownNameError("kind of index", str(kind), get_args(Kind))
        if not isinstance(collection, str) or not 1 <= len(collection) <= 200 or "\0" in collection:
            raise InputError("a collection needs a name of 1 to 200 characters, NUL not among them.")
        check_bits(bits)
        self._bits, self.collection, self.kind, self.recall = int(bits), collection, kind, check_recall(recall)
        self._database = Database(dsn, connections=connections, patience=patience)
        try:
            self._database.run("the preparation of its tables", migrate)
            self._number = self._database.run("the opening of a collection", self._open)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PostgresIndex({self.collection!r}, bits={self.bits}, kind={self.kind!r})"

    def __len__(self) -> int:
        return self._read("a count", 0, lambda table, connection: table.count(connection))

    def __contains__(self, key: Any) -> bool:
        try:
            wanted = check_ids([key])
        except InputError:
            return False
        return self._read("a lookup", False, lambda table, connection: _holds(table, connection, wanted))

    @property
    def bits(self) -> int:
        """Length of a code."""
        return self._bits

    @property
    def ids(self) -> IdArray:
        """All ids, oldest first."""
        return self._read("a listing", empty_ids((0,), None), lambda table, connection: table.all_ids(connection))

    @property
    def plan(self) -> str:
        """How searches are answered now, in words, with the measured recall."""
        known = self._database.run("a look at its plan", self._known)
        if known.effort == _EXACT:
            what = f"half of {known.lists} lists" if self.kind == "ivfflat" else f"{_MOST_CANDIDATES} candidates"
            return f"exact: all codes are compared; {self.kind} gave only recall@{_K} {known.recall:.3f} with {what}."
        if known.effort is None:
            return f"exact: all codes are compared{'' if self.kind == 'exact' else ' until build() is called'}."
        how = f"{known.effort} of {known.lists} lists are opened"
        if self.kind == "hnsw":
            how = f"at least {known.effort} candidates are kept"
        return f"{self.kind}: {how}, recall@{_K} {known.recall:.3f} measured."

    def close(self) -> None:
        """Close the connections; the collection stays."""
        self._database.close()

    def drop(self) -> None:
        """Delete the collection and all its codes, and close the connections."""

        def work(connection: Connection) -> None:
            known = self._known(connection, lock=True)
            if known.ids is not None:
                self._table(known.ids).drop(connection)
            connection.execute("DELETE FROM blindsight.collection WHERE number = %s", (self._number,))

        self._database.run("a deletion", work)
        self.close()

    def add(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Add codes under new ids; an id that exists already is refused."""
        packed = check_codes(codes, self.bits)
        new = _one_each(check_ids(ids), packed)
        exists = require("psycopg.errors", extra="postgres", purpose="an index in PostgreSQL").UniqueViolation

        def work(connection: Connection) -> bool:
            table = self._table_for(connection, kind_of(new))
            check_ids(new, table.ids)
            try:
                table.add(connection, new, packed)
            except exists:
                connection.rollback()
                return False
            return True

        if len(new) and not self._database.run("an addition", work):
            none: set[Any] = set()
            known = self._read("a lookup", none, lambda table, connection: table.known(connection, new))
            which = next((f"id {key!r}" for key in new.tolist() if key in known), "one of the ids")
            raise InputError(f"{which} is in the index already; nothing was added. Use update().")

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were."""
        wanted = check_ids(ids)
        return self._read(
            "a removal", 0, lambda table, connection: table.remove(connection, check_ids(wanted, table.ids))
        )

    def update(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Give ids that exist other codes; they keep their age."""
        packed = check_codes(codes, self.bits)
        wanted = _one_each(check_ids(ids), packed)

        def work(connection: Connection) -> None:
            table = self._table_for(connection, kind_of(wanted))
            table.update(connection, check_ids(wanted, table.ids), packed)

        if len(wanted):
            self._database.run("an update", work)

    def build(self) -> None:
        """Make the index of this kind anew from the codes that are there, and measure it; other writers wait."""
        if self.kind != "exact":
            self._database.run("the building of an index", self._build)

    def search(self, codes: ArrayLike, k: int, *, effort: int | None = None) -> Hits:
        """Return the k nearest of each query, filled up with -1 if there are fewer.

        `effort` replaces what `build` measured: how many lists to open (ivfflat) or candidates to keep (hnsw).
        """
        queries, k = check_codes(codes, self.bits, "queries"), check_k(k)
        if effort is not None and effort < 1:
            raise InputError(f"effort is a number of lists or candidates >= 1; got {effort!r}.")

        def work(connection: Connection) -> Hits:
            known = self._known(connection)
            if known.ids is None:
                return Hits(empty_ids((len(queries), k), None), np.full((len(queries), k), -1, dtype=np.int32))
            wanted = 0 if known.effort is None else effort or known.effort
            settings = self._settings(wanted, k) if wanted else None
            return self._table(known.ids).search(connection, queries, k, settings)

        return self._database.run("a search", work)

    def within(self, codes: ArrayLike, radius: int) -> Neighbourhoods:
        """Return all codes that differ from a query in at most `radius` bits; always exact."""
        queries, radius = check_codes(codes, self.bits, "queries"), check_radius(radius)
        nothing = Neighbourhoods(
            empty_ids((0,), None), np.empty(0, dtype=np.int32), np.zeros(len(queries) + 1, dtype=np.int64)
        )
        return self._read("a search", nothing, lambda table, connection: table.within(connection, queries, radius))

    def _open(self, connection: Connection) -> int:
        """Return the number of the collection; register it if it is new."""
        connection.execute(
            "INSERT INTO blindsight.collection (name, bits) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
            (self.collection, self.bits),
        )
        query = "SELECT number, bits FROM blindsight.collection WHERE name = %s"
        number, bits = connection.execute(query, (self.collection,)).fetchone()
        if bits != self.bits:
            raise InputError(f"the collection {self.collection!r} holds codes of {bits} bits; {self.bits} were asked.")
        return int(number)

    def _known(self, connection: Connection, *, lock: bool = False) -> _Collection:
        """Return what the database knows now; with `lock`, nobody else may change it until the transaction ends."""
        query = """
            SELECT ids, lists, effort, recall FROM blindsight.collection
            LEFT JOIN blindsight.tuned ON tuned.collection = collection.number AND tuned.kind = %s
            WHERE collection.number = %s
        """
        locking = " FOR UPDATE OF collection" if lock else ""
        row = connection.execute(query + locking, (self.kind, self._number)).fetchone()
        if row is None:
            raise StorageError(f"the collection {self.collection!r} was deleted. Open it again to begin anew.")
        return _Collection(*row)

    def _read(self, doing: str, nothing: T, work: Callable[[CodeTable, Connection], T]) -> T:
        """Work with the table in one transaction, or return `nothing` if there has never been a code."""

        def with_table(connection: Connection) -> T:
            ids = self._known(connection).ids
            return nothing if ids is None else work(self._table(ids), connection)

        return self._database.run(doing, with_table)

    def _table(self, ids: IdKind) -> CodeTable:
        return CodeTable(self._number, self.bits, ids)

    def _table_for(self, connection: Connection, ids: IdKind) -> CodeTable:
        """Return the table; make it for ids of this kind if it does not exist."""
        known = self._known(connection).ids or self._known(connection, lock=True).ids
        if known is None:
            self._table(ids).create(connection)
            connection.execute("UPDATE blindsight.collection SET ids = %s WHERE number = %s", (ids, self._number))
        return self._table(known or ids)

    def _build(self, connection: Connection) -> None:
        ids = self._known(connection, lock=True).ids
        rows = 0 if ids is None else self._table(ids).count(connection)
        if ids is None or not rows:
            return
        table, lists = self._table(ids), min(math.isqrt(rows), _MOST_LISTS)
        table.build(connection, self.kind, f"WITH (lists = {lists})" if self.kind == "ivfflat" else "")
        effort, recall = self._tune(
            connection, table, max(1, lists // 2) if self.kind == "ivfflat" else _MOST_CANDIDATES
        )
        connection.execute(
            """
            INSERT INTO blindsight.tuned (collection, kind, lists, effort, recall) VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (collection, kind) DO UPDATE
            SET lists = excluded.lists, effort = excluded.effort, recall = excluded.recall
            """,
            (self._number, self.kind, lists, effort, recall),
        )

    def _tune(self, connection: Connection, table: CodeTable, most: int) -> tuple[int, float]:
        """Return the least effort that reaches the recall on codes of the collection itself, and what it reaches."""
        own, queries = table.sample(connection, _QUERIES)
        truth = table.search(connection, queries, _K + 1)

        def measure(effort: int) -> tuple[float, float]:
            hits = table.search(connection, queries, _K + 1, self._settings(effort, _K + 1))
            return measured_recall((hits.distances, hits.ids), (truth.distances, truth.ids), own, _K)

        effort, recall, enough = fewest(measure, self.recall, most)
        if not enough:
            return _EXACT, recall
        if self.kind == "hnsw":
            effort = max(effort, _K + 1)  # fewer candidates than hits were never measured: see _settings
        return effort, recall

    def _settings(self, effort: int, k: int) -> dict[str, str]:
        """Return what tells pgvector how far to look; it goes on looking until k are found."""
        if self.kind == "ivfflat":
            return {"ivfflat.probes": str(min(effort, _MOST_LISTS)), "ivfflat.iterative_scan": "relaxed_order"}
        candidates = str(min(max(effort, k), _MOST_CANDIDATES))
        return {
            "hnsw.ef_search": candidates,
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.max_scan_tuples": str(2**31 - 1),
        }


def _holds(table: CodeTable, connection: Connection, ids: IdArray) -> bool:
    return table.ids == kind_of(ids) and bool(table.known(connection, ids))


def _one_each(ids: IdArray, codes: Codes) -> IdArray:
    if len(ids) != len(codes):
        raise InputError(f"every row needs an id of its own; got {len(ids)} ids for {len(codes)} rows.")
    check_unique(ids)
    return ids
