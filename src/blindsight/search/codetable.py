"""The codes of one collection in PostgreSQL: every statement about them, inside the caller's transaction.

A table's name is made from the collection's number, so nothing that a person named becomes part of a statement; all
else is passed as values.

Codes and ids in the formats of PostgreSQL: bit strings, and the binary format of COPY for bulk loads.

PostgreSQL writes bit 0 of a code leftmost: in every byte of ours the bits are turned round.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.extras import require
from blindsight.search.codes import Codes, blocks, unpack
from blindsight.search.hits import Hits, IdArray, Neighbourhoods
from blindsight.search.rows import IdKind

_OPENING = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = struct.pack(">h", -1)
_TURNED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), axis=1, bitorder="little").ravel()
_ROWS = 65_536  # rows that are written at once


def bit_strings(codes: Codes, bits: int) -> list[str]:
    """Return codes as PostgreSQL writes them, bit 0 first.

    >>> bit_strings(np.array([[0b011]], dtype=np.uint8), 3)
    ['110']
    """
    digits = unpack(codes, bits).astype(np.uint8) + ord("0")
    return [row.tobytes().decode("ascii") for row in digits]


def copy_stream(ids: IdArray, codes: Codes, bits: int) -> Iterator[bytes]:
    """Yield rows of id (bigint or text) and code (bit) in the binary format of COPY."""
    yield _OPENING
    for span in blocks(len(ids), _ROWS):
        part, turned = ids[span], _TURNED[codes[span]]
        yield _integer_rows(part, turned, bits) if part.dtype == np.int64 else _text_rows(part, turned, bits)
    yield _END


def _integer_rows(ids: IdArray, codes: Codes, bits: int) -> bytes:
    width = codes.shape[1]
    layout = [("fields", ">i2"), ("id size", ">i4"), ("id", ">i8"), ("size", ">i4"), ("bits", ">i4")]
    rows = np.empty(len(ids), dtype=[*layout, ("code", "u1", (width,))])
    rows["fields"], rows["id size"], rows["id"] = 2, 8, ids
    rows["size"], rows["bits"], rows["code"] = 4 + width, bits, codes
    return rows.tobytes()


def _text_rows(ids: IdArray, codes: Codes, bits: int) -> bytes:
    tail = struct.pack(">ii", 4 + codes.shape[1], bits)
    texts = [key.encode() for key in ids]
    pairs = zip(texts, codes, strict=True)
    return b"".join(struct.pack(">hi", 2, len(text)) + text + tail + code.tobytes() for text, code in pairs)


Connection = Any
Row = tuple[Any, ...]

_QUERIES_AT_ONCE = 256
_TYPES: dict[IdKind, str] = {"integers": "bigint", "text": "text"}
_SEQUENTIAL = {"enable_seqscan": "on", "enable_indexscan": "off"}
_INDEXED = {"enable_seqscan": "off", "enable_indexscan": "on"}


@dataclass(frozen=True)
class CodeTable:
    """The table of collection `number`, whose codes have `bits` bits and whose ids are of one kind."""

    number: int
    bits: int
    ids: IdKind

    def create(self, connection: Connection) -> None:
        """Make the empty table; `age` grows with every row that is added."""
        columns = "id {id} PRIMARY KEY, age bigint GENERATED ALWAYS AS IDENTITY, code {code} NOT NULL"
        self._run(connection, f"CREATE TABLE {{table}} ({columns})")

    def drop(self, connection: Connection) -> None:
        """Delete the table with all codes."""
        self._run(connection, "DROP TABLE {table}")

    def count(self, connection: Connection) -> int:
        """Return how many codes there are."""
        return int(self._rows(connection, "SELECT count(*) FROM {table}")[0][0])

    def all_ids(self, connection: Connection) -> IdArray:
        """Return all ids, oldest first."""
        return self._id_array([row[0] for row in self._rows(connection, "SELECT id FROM {table} ORDER BY age")])

    def known(self, connection: Connection, ids: IdArray) -> set[Any]:
        """Return which of these ids exist."""
        rows = self._rows(connection, "SELECT id FROM {table} WHERE id = ANY(%s::{id}[])", (ids.tolist(),))
        return {row[0] for row in rows}

    def add(self, connection: Connection, ids: IdArray, codes: Codes) -> None:
        """Load codes in bulk; psycopg's UniqueViolation says that an id exists already."""
        statement = self._statement("COPY {table} (id, code) FROM STDIN (FORMAT BINARY)")
        with connection.cursor() as cursor, cursor.copy(statement) as stream:
            for part in copy_stream(ids, codes, self.bits):
                stream.write(part)

    def remove(self, connection: Connection, ids: IdArray) -> int:
        """Delete the rows of these ids; return how many there were."""
        return int(self._run(connection, "DELETE FROM {table} WHERE id = ANY(%s::{id}[])", (ids.tolist(),)).rowcount)

    def update(self, connection: Connection, ids: IdArray, codes: Codes) -> None:
        """Give existing ids other codes, or raise if one does not exist; rows are locked in the order of their ids."""
        wanted = ids.tolist()
        lock = "SELECT id FROM {table} WHERE id = ANY(%s::{id}[]) ORDER BY id FOR UPDATE"
        found = {row[0] for row in self._rows(connection, lock, (wanted,))}
        strangers = [key for key in wanted if key not in found]
        if strangers:
            raise InputError(f"id {strangers[0]!r} is not in the index; nothing was changed. Use add().")
        statement = """
            UPDATE {table} AS row SET code = new.code FROM unnest(%s::{id}[], %s::{code}[]) AS new (id, code)
            WHERE row.id = new.id
        """
        self._run(connection, statement, (wanted, bit_strings(codes, self.bits)))

    def build(self, connection: Connection, kind: str, options: str = "") -> None:
        """Make the index of this kind anew; writers wait until the transaction ends."""
        name = require("psycopg.sql", extra="postgres", purpose="an index").Identifier(f"codes_{self.number}_{kind}")
        self._run(connection, "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        self._run(connection, "DROP INDEX IF EXISTS blindsight.{name}", name=name)
        self._run(
            connection, f"CREATE INDEX {{name}} ON {{table}} USING {kind} (code bit_hamming_ops) {options}", name=name
        )

    def sample(self, connection: Connection, size: int) -> tuple[IdArray, Codes]:
        """Return ids and codes of up to `size` rows from all ages."""
        step = max(1, self.count(connection) // size)
        statement = "SELECT id, code::text FROM {table} WHERE age %% %s = 0 ORDER BY age LIMIT %s"
        rows = self._rows(connection, statement, (step, size))
        digits = np.array([list(code) for _, code in rows]) == "1"
        return self._id_array([key for key, _ in rows]), np.packbits(digits, axis=1, bitorder="little")

    def search(self, connection: Connection, queries: Codes, k: int, index: Mapping[str, str] | None = None) -> Hits:
        """Return the k nearest of each query by comparing all codes, or by an index with these settings."""
        settings = {"jit": "off", **(_SEQUENTIAL if index is None else {**_INDEXED, **index})}
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        ids, distances = empty_ids((len(queries), k), self.ids), np.full((len(queries), k), -1, dtype=np.int32)
        for span in blocks(len(queries), _QUERIES_AT_ONCE):
            rows = self._nearest(connection, queries[span], k, indexed=index is not None)
            numbers = np.array([row[0] for row in rows], dtype=np.int64)
            ranks = np.arange(len(rows)) - np.searchsorted(numbers, numbers)
            ids[span.start + numbers, ranks] = [row[1] for row in rows]
            distances[span.start + numbers, ranks] = _distances(rows)
        return Hits(ids, distances)

    def within(self, connection: Connection, queries: Codes, radius: int) -> Neighbourhoods:
        """Return all codes that differ from a query in at most `radius` bits, by comparing all."""
        statement = """
            SELECT query.number, row.id, (row.code <~> query.code)::integer AS distance
            FROM unnest(%s::integer[], %s::{code}[]) AS query (number, code)
            JOIN {table} AS row ON row.code <~> query.code <= %s ORDER BY query.number, distance, row.age
        """
        rows = self._rows(connection, statement, (*self._questions(queries), radius))
        bounds = np.searchsorted([row[0] for row in rows], np.arange(len(queries) + 1)).astype(np.int64)
        return Neighbourhoods(self._id_array([row[1] for row in rows]), _distances(rows), bounds)

    def _nearest(self, connection: Connection, queries: Codes, k: int, *, indexed: bool) -> list[Row]:
        """Return (query, id, distance) in order; an index knows no second key, so there ties are sorted afterwards."""
        ties = "" if indexed else ", age"
        statement = f"""
            SELECT query.number, hit.id, hit.distance::integer
            FROM unnest(%s::integer[], %s::{{code}}[]) AS query (number, code)
            CROSS JOIN LATERAL (
                SELECT id, age, code <~> query.code AS distance
                FROM {{table}} ORDER BY code <~> query.code{ties} LIMIT %s
            ) AS hit
            ORDER BY query.number, hit.distance, hit.age
        """  # noqa: S608
        return self._rows(connection, statement, (*self._questions(queries), k))

    def _questions(self, queries: Codes) -> tuple[list[int], list[str]]:
        return list(range(len(queries))), bit_strings(queries, self.bits)

    def _statement(self, text: str, **parts: Any) -> Any:
        """Fill in the table, the types of ids and codes, and other parts."""
        sql = require("psycopg.sql", extra="postgres", purpose="an index in PostgreSQL")
        return sql.SQL(text).format(
            table=sql.Identifier("blindsight", f"codes_{self.number}"),
            id=sql.SQL(_TYPES[self.ids]),
            code=sql.SQL(f"bit({self.bits})"),
            **parts,
        )

    def _run(self, connection: Connection, text: str, values: Sequence[Any] | None = None, **parts: Any) -> Any:
        return connection.execute(self._statement(text, **parts), values)

    def _rows(self, connection: Connection, text: str, values: Sequence[Any] | None = None) -> list[Row]:
        rows: list[Row] = connection.execute(self._statement(text), values, binary=True).fetchall()
        return rows

    def _id_array(self, ids: list[Any]) -> IdArray:
        array = empty_ids((len(ids),), self.ids)
        array[:] = ids
        return array


def empty_ids(shape: tuple[int, ...], kind: IdKind | None) -> IdArray:
    """Return an array of missing ids of this kind."""
    return np.full(shape, None, dtype=object) if kind == "text" else np.full(shape, -1, dtype=np.int64)


def _distances(rows: Sequence[Row]) -> NDArray[np.int32]:
    return np.array([row[2] for row in rows], dtype=np.int32)
