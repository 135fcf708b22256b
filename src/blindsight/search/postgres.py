"""Binary codes in PostgreSQL with pgvector: one store for several machines, searched by Hamming distance.

*What is promised.* Every change is one transaction: whole or not at all, even with other writers. Without an index, and
with kind "exact", searches are exact. `build` makes an ivfflat (or hnsw) index and measures how many lists a search
must open (how many candidates it must keep) to reach the wanted recall@100 on the collection's own codes; what it
measured is stored in the database, for everyone who searches. Where that takes more than half of the lists, or more
candidates than pgvector keeps, as with codes that carry much noise, searches compare all codes, as in `HammingIndex`. A
radius is always answered exactly. hnsw takes far longer to build and loses recall where many codes are equal.

*Statements.* Everything lives in the schema "blindsight", the codes of collection number n in the table codes_n, made
when its first code says whether ids are integers or text. So nothing that a person named becomes part of a statement;
all else is passed as values. PostgreSQL writes bit 0 of a code leftmost.

*Errors.* Connections come back by themselves. What libpq says can quote the connection string, so none of its words are
passed on; what the server says about a statement is.

*Versions.* A database moves from version to version in order, each inside one transaction and under one lock, so that
any number of processes may open it at once. A newer database is refused rather than misread. What has been released is
never edited: a change is a new entry at the end of `MIGRATIONS`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, StorageError, UnknownNameError
from blindsight.extras import require
from blindsight.search.codes import Codes, blocks, check_bits, check_codes, unpack
from blindsight.search.index import fewest, measured_recall
from blindsight.search.rows import (
    Hits,
    IdArray,
    IdKind,
    Neighbourhoods,
    check_ids,
    check_k,
    check_radius,
    check_recall,
    check_unique,
    kind_of,
)

T = TypeVar("T")
Connection = Any
Kind = Literal["ivfflat", "hnsw", "exact"]

_ATTEMPTS = 5  # at work that PostgreSQL broke off because of other writers
_ROWS = 65_536  # rows that are written at once
_QUERIES_AT_ONCE = 256
_EXACT = 0  # effort that stands for comparing all codes
_K, _QUERIES = 100, 64  # hits whose recall `build` measures, and codes it measures with
_MOST_LISTS, _MOST_CANDIDATES = 32_768, 1_000  # pgvector's bounds
_SEQUENTIAL = {"enable_seqscan": "on", "enable_indexscan": "off"}
_INDEXED = {"enable_seqscan": "off", "enable_indexscan": "on"}
_ESCAPED = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


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


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Return codes as PostgreSQL writes them, bit 0 first.

    >>> bit_strings(np.array([[0b011]], dtype=np.uint8), 3)
    ['110']
    """
    digits = unpack(codes, bits).astype(np.uint8) + ord("0")
    return [row.tobytes().decode("ascii") for row in digits]


@dataclass(frozen=True)
class _Table:
    """The codes of a collection, inside one transaction."""

    connection: Connection
    number: int
    bits: int
    ids: IdKind

    def run(self, text: str, values: Sequence[Any] | None = None, **parts: Any) -> Any:
        return self.connection.execute(self.statement(text, **parts), values, binary=True)

    def statement(self, text: str, **parts: Any) -> Any:
        sql = require("psycopg.sql", extra="postgres", purpose="an index in PostgreSQL")
        return sql.SQL(text).format(
            table=sql.Identifier("blindsight", f"codes_{self.number}"),
            id=sql.SQL("bigint" if self.ids == "integers" else "text"),
            code=sql.SQL(f"bit({self.bits})"),
            **{name: sql.Identifier(part) for name, part in parts.items()},
        )

    def count(self) -> int:
        return int(self.run("SELECT count(*) FROM {table}").fetchone()[0])

    def known(self, ids: IdArray, *, lock: bool = False) -> set[Any]:
        """Return which of these ids exist; with `lock`, nobody else may change them."""
        query = "SELECT id FROM {table} WHERE id = ANY(%s::{id}[])"
        query += " ORDER BY id FOR UPDATE" if lock else ""
        return {row[0] for row in self.run(query, (ids.tolist(),))}

    def create(self) -> None:
        """Make the empty table; `age` grows with every row that is added."""
        columns = "id {id} PRIMARY KEY, age bigint GENERATED ALWAYS AS IDENTITY, code {code} NOT NULL"
        self.run(f"CREATE TABLE {{table}} ({columns})")

    def add(self, ids: IdArray, codes: Codes) -> None:
        """Load codes in bulk; psycopg's UniqueViolation says that an id exists already."""
        statement = self.statement("COPY {table} (id, code) FROM STDIN")
        with self.connection.cursor() as cursor, cursor.copy(statement) as stream:
            for span in blocks(len(ids), _ROWS):
                keys = [str(key).translate(_ESCAPED) for key in ids[span].tolist()]
                pairs = zip(keys, bit_strings(codes[span], self.bits), strict=True)
                stream.write("".join(f"{key}\t{code}\n" for key, code in pairs))

    def update(self, ids: IdArray, codes: Codes) -> None:
        """Give existing ids other codes, or raise if one does not exist; rows are locked in the order of their ids."""
        found = self.known(ids, lock=True)
        if strangers := [key for key in ids.tolist() if key not in found]:
            raise InputError(f"id {strangers[0]!r} is not in the index; nothing was changed. Use add().")
        statement = """
            UPDATE {table} AS row SET code = new.code FROM unnest(%s::{id}[], %s::{code}[]) AS new (id, code)
            WHERE row.id = new.id
        """
        self.run(statement, (ids.tolist(), bit_strings(codes, self.bits)))

    def index(self, kind: str, options: str = "") -> None:
        """Make the index of this kind again; writers wait until the transaction ends."""
        name = f"codes_{self.number}_{kind}"
        self.run("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        self.run("DROP INDEX IF EXISTS blindsight.{name}", name=name)
        self.run(f"CREATE INDEX {{name}} ON {{table}} USING {kind} (code bit_hamming_ops) {options}", name=name)

    def sample(self, size: int) -> tuple[IdArray, Codes]:
        """Return ids and codes of up to `size` rows from all ages."""
        statement = "SELECT id, code::text FROM {table} WHERE age %% %s = 0 ORDER BY age LIMIT %s"
        rows = self.run(statement, (max(1, self.count() // size), size)).fetchall()
        digits = np.array([list(code) for _, code in rows]) == "1"
        return self.id_array([key for key, _ in rows]), np.packbits(digits, axis=1, bitorder="little")

    def search(self, queries: Codes, k: int, index: Mapping[str, str] | None = None) -> Hits:
        settings = {"jit": "off", **(_SEQUENTIAL if index is None else {**_INDEXED, **index})}
        for name, value in settings.items():
            self.connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        statement = f"""
            SELECT query.number, hit.id, hit.distance::integer
            FROM unnest(%s::integer[], %s::{{code}}[]) AS query (number, code)
            CROSS JOIN LATERAL (
                SELECT id, age, code <~> query.code AS distance
                FROM {{table}} ORDER BY code <~> query.code{"" if index else ", age"} LIMIT %s
            ) AS hit
            ORDER BY query.number, hit.distance, hit.age
        """  # noqa: S608 - an index knows no second key, so there ties are sorted afterwards
        ids, distances = empty_ids((len(queries), k), self.ids), np.full((len(queries), k), -1, dtype=np.int32)
        for span in blocks(len(queries), _QUERIES_AT_ONCE):
            rows = self.run(statement, (*self._questions(queries[span]), k)).fetchall()
            numbers = np.array([row[0] for row in rows], dtype=np.int64)
            ranks = np.arange(len(rows)) - np.searchsorted(numbers, numbers)
            ids[span.start + numbers, ranks] = [row[1] for row in rows]
            distances[span.start + numbers, ranks] = _distances(rows)
        return Hits(ids, distances)

    def within(self, queries: Codes, radius: int) -> Neighbourhoods:
        statement = """
            SELECT query.number, row.id, (row.code <~> query.code)::integer AS distance
            FROM unnest(%s::integer[], %s::{code}[]) AS query (number, code)
            JOIN {table} AS row ON row.code <~> query.code <= %s ORDER BY query.number, distance, row.age
        """
        rows = self.run(statement, (*self._questions(queries), radius)).fetchall()
        bounds = np.searchsorted([row[0] for row in rows], np.arange(len(queries) + 1)).astype(np.int64)
        return Neighbourhoods(self.id_array([row[1] for row in rows]), _distances(rows), bounds)

    def id_array(self, ids: list[Any]) -> IdArray:
        array = empty_ids((len(ids),), self.ids)
        array[:] = ids
        return array

    def _questions(self, queries: Codes) -> tuple[list[int], list[str]]:
        return list(range(len(queries))), bit_strings(queries, self.bits)


def empty_ids(shape: tuple[int, ...], kind: IdKind | None) -> IdArray:
    return np.full(shape, None, dtype=object) if kind == "text" else np.full(shape, -1, dtype=np.int64)


def _distances(rows: Sequence[tuple[Any, ...]]) -> NDArray[np.int32]:
    return np.array([row[2] for row in rows], dtype=np.int32)


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
        self.bits, self.collection, self.kind, self.recall = int(bits), collection, kind, check_recall(recall)
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
        return self._read("a count", 0, _Table.count)

    def __contains__(self, key: Any) -> bool:
        try:
            wanted = check_ids([key])
        except InputError:
            return False
        return self._read("a lookup", False, lambda table: table.ids == kind_of(wanted) and bool(table.known(wanted)))

    @property
    def ids(self) -> IdArray:
        """All ids, oldest first."""

        def listed(table: _Table) -> IdArray:
            return table.id_array([row[0] for row in table.run("SELECT id FROM {table} ORDER BY age")])

        return self._read("a listing", empty_ids((0,), None), listed)

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
            if (ids := self._known(connection, lock=True).ids) is not None:
                self._table(connection, ids).run("DROP TABLE {table}")
            connection.execute("DELETE FROM blindsight.collection WHERE number = %s", (self._number,))

        self._database.run("a deletion", work)
        self.close()

    def add(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Add codes under new ids; an id that exists already is refused."""
        packed = check_codes(codes, self.bits)
        new = check_unique(check_ids(ids), len(packed))
        exists = require("psycopg.errors", extra="postgres", purpose="an index in PostgreSQL").UniqueViolation

        def work(connection: Connection) -> bool:
            table = self._table_for(connection, new)
            try:
                table.add(new, packed)
            except exists:
                connection.rollback()
                return False
            return True

        if len(new) and not self._database.run("an addition", work):
            none: set[Any] = set()
            known = self._read("a lookup", none, lambda table: table.known(new))
            which = next((f"id {key!r}" for key in new.tolist() if key in known), "one of the ids")
            raise InputError(f"{which} is in the index already; nothing was added. Use update().")

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were."""
        wanted = check_ids(ids)

        def work(table: _Table) -> int:
            values = (check_ids(wanted, table.ids).tolist(),)
            return int(table.run("DELETE FROM {table} WHERE id = ANY(%s::{id}[])", values).rowcount)

        return self._read("a removal", 0, work)

    def update(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Give ids that exist other codes; they keep their age."""
        packed = check_codes(codes, self.bits)
        wanted = check_unique(check_ids(ids), len(packed))
        if len(wanted):
            self._database.run("an update", lambda link: self._table_for(link, wanted).update(wanted, packed))

    def build(self) -> None:
        """Make the index of this kind again from the codes that are there, and measure it; other writers wait."""
        if self.kind != "exact":
            self._database.run("the building of an index", self._build)

    def search(self, codes: ArrayLike, k: int, *, effort: int | None = None) -> Hits:
        """Return the k nearest of each query, filled up with -1; `effort` replaces the measured lists or candidates."""
        queries, k = check_codes(codes, self.bits, "queries"), check_k(k)
        if effort is not None and effort < 1:
            raise InputError(f"effort is a number of lists or candidates >= 1; got {effort!r}.")

        def work(connection: Connection) -> Hits:
            known = self._known(connection)
            if known.ids is None:
                return Hits(empty_ids((len(queries), k), None), np.full((len(queries), k), -1, dtype=np.int32))
            wanted = 0 if known.effort is None else effort or known.effort
            settings = self._settings(wanted, k) if wanted else None
            return self._table(connection, known.ids).search(queries, k, settings)

        return self._database.run("a search", work)

    def within(self, codes: ArrayLike, radius: int) -> Neighbourhoods:
        """Return all codes that differ from a query in at most `radius` bits; always exact."""
        queries, radius = check_codes(codes, self.bits, "queries"), check_radius(radius)
        bounds = np.zeros(len(queries) + 1, dtype=np.int64)
        nothing = Neighbourhoods(empty_ids((0,), None), np.empty(0, dtype=np.int32), bounds)
        return self._read("a search", nothing, lambda table: table.within(queries, radius))

    def _open(self, connection: Connection) -> int:
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
            raise StorageError(f"the collection {self.collection!r} was deleted. Open it again to start over.")
        return _Collection(*row)

    def _read(self, doing: str, nothing: T, work: Callable[[_Table], T]) -> T:
        """Work with the table in one transaction, or return `nothing` if there has never been a code."""

        def with_table(connection: Connection) -> T:
            ids = self._known(connection).ids
            return nothing if ids is None else work(self._table(connection, ids))

        return self._database.run(doing, with_table)

    def _table(self, connection: Connection, ids: IdKind) -> _Table:
        return _Table(connection, self._number, self.bits, ids)

    def _table_for(self, connection: Connection, ids: IdArray) -> _Table:
        known = self._known(connection).ids or self._known(connection, lock=True).ids
        table = self._table(connection, known or kind_of(ids))
        if known is None:
            table.create()
            connection.execute("UPDATE blindsight.collection SET ids = %s WHERE number = %s", (table.ids, self._number))
        check_ids(ids, table.ids)
        return table

    def _build(self, connection: Connection) -> None:
        ids = self._known(connection, lock=True).ids
        table = None if ids is None else self._table(connection, ids)
        if table is None or not (rows := table.count()):
            return
        lists, listed = min(math.isqrt(rows), _MOST_LISTS), self.kind == "ivfflat"
        table.index(self.kind, f"WITH (lists = {lists})" if listed else "")
        effort, recall = self._tune(table, max(1, lists // 2) if listed else _MOST_CANDIDATES)
        connection.execute(
            """
            INSERT INTO blindsight.tuned (collection, kind, lists, effort, recall) VALUES (%s, %s, %s, %s, %s)
            ON CONFLICT (collection, kind) DO UPDATE
            SET lists = excluded.lists, effort = excluded.effort, recall = excluded.recall
            """,
            (self._number, self.kind, lists, effort, recall),
        )

    def _tune(self, table: _Table, most: int) -> tuple[int, float]:
        own, queries = table.sample(_QUERIES)
        truth = table.search(queries, _K + 1)

        def measure(effort: int) -> tuple[float, float]:
            hits = table.search(queries, _K + 1, self._settings(effort, _K + 1))
            return measured_recall((hits.distances, hits.ids), (truth.distances, truth.ids), own, _K)

        effort, recall, enough = fewest(measure, self.recall, most)
        if self.kind == "hnsw":
            effort = max(effort, _K + 1)  # fewer candidates than hits were never measured: see _settings
        return effort if enough else _EXACT, recall

    def _settings(self, effort: int, k: int) -> dict[str, str]:
        """Return what tells pgvector how far to look; it goes on looking until k are found."""
        if self.kind == "ivfflat":
            return {"ivfflat.probes": str(min(effort, _MOST_LISTS)), "ivfflat.iterative_scan": "relaxed_order"}
        return {
            "hnsw.ef_search": str(min(max(effort, k), _MOST_CANDIDATES)),
            "hnsw.iterative_scan": "relaxed_order",
            "hnsw.max_scan_tuples": str(2**31 - 1),
        }
