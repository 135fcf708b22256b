"""pgvector through Blindsight's index, on a PostgreSQL of its own. CPU time is the server's and ours."""

import os
import time
from pathlib import Path

import numpy as np
import psycopg

from benchmarks.methods.engines import EngineAnswer, Questions
from benchmarks.methods.own_postgres import OwnPostgres, own_postgres
from blindsight.search.postgres import Kind, PostgresIndex


def run(given: Questions, *, seed: int, kind: Kind) -> EngineAnswer:
    """Load by COPY, build and tune the index, search in batches."""
    ids = np.arange(len(given.codes))
    with own_postgres() as server, PostgresIndex(server.dsn, "codes", given.bits, kind=kind, connections=1) as index:
        begun = _cpu(server)
        index.add(ids, given.codes)
        index.build()
        built = _cpu(server)
        hits = index.search(given.queries, given.k)
        searched = _cpu(server)
        with psycopg.connect(server.dsn) as connection:
            row = connection.execute("SELECT pg_total_relation_size('blindsight.codes_1')").fetchone()
    assert row is not None
    return {"positions": hits.ids, "build": built - begun, "search": searched - built, "disk": row[0]}


def _cpu(server: OwnPostgres) -> float:
    """Return the CPU seconds of this process, of the server and of all its children, those that ended included."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        own, parent = int(path.parent.name), int(fields[1])
        if server.pid == own:
            ticks += sum(map(int, fields[11:15]))
        elif server.pid == parent:
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()
