"""Engines that search binary codes, each in a process of its own, and ways to ask them without being heard."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import faiss
import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from benchmarks.methods.own_postgres import own_postgres
from benchmarks.methods.processes import Clock, Processes, alone
from blindsight.search import postgres
from blindsight.search.codes import blocks, unpack
from blindsight.search.encrypted_query import EncryptedQuery, EncryptedScan, most_of
from blindsight.search.gallery import Gallery
from blindsight.search.index import HammingIndex, Kind, SymbolIndex
from blindsight.search.localmode import LocalHasher

Codes = NDArray[np.uint8]


@dataclass(frozen=True)
class Questions:
    """Packed codes of a multiple of 8 bits, queries of the same length, and how many hits each wants."""

    codes: Codes
    queries: Codes
    k: int

    @property
    def bits(self) -> int:
        """Length of a code."""
        return 8 * int(self.codes.shape[1])


class EngineAnswer(TypedDict):
    """Positions of the hits, (queries, k); CPU seconds to build and to search; bytes in memory and on disk.

    `memory` is by how much building made the process grow; engines that run elsewhere leave it out.
    """

    positions: NDArray[np.int64]
    build: float
    search: float
    disk: int
    memory: NotRequired[int]


class Meter(Clock):
    """CPU seconds of this process by step, and how much it has grown since the meter was made."""

    def __init__(self) -> None:
        super().__init__()
        self._before = _resident()

    @property
    def growth(self) -> int:
        """By how many bytes the process is larger now."""
        return max(0, _resident() - self._before)

    def answer(self, positions: NDArray[np.int64], memory: int, save: Callable[[Path], object]) -> EngineAnswer:
        """Return the answer of an engine that took the steps "build" and "search" and can save itself to a file."""
        with tempfile.TemporaryDirectory() as folder:
            save(path := Path(folder) / "index")
            disk = path.stat().st_size
        build, search = self.seconds["build"], self.seconds["search"]
        return {"positions": positions, "build": build, "search": search, "memory": memory, "disk": disk}


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@alone
def faiss_codes(given: Questions, *, seed: int, probes: int | None = None) -> EngineAnswer:
    """Measure the flat index, or the inverted file if there are probes."""
    faiss.omp_set_num_threads(1)
    meter = Meter()
    with meter("build"):
        index = _inverted_file(given, probes) if probes else faiss.IndexBinaryFlat(given.bits)
        index.add(given.codes)
    memory = meter.growth
    with meter("search"):
        _, positions = index.search(given.queries, given.k)
    return meter.answer(positions, memory, lambda path: faiss.write_index_binary(index, str(path)))


def _inverted_file(given: Questions, probes: int) -> Any:
    rows = len(given.codes)
    lists = math.isqrt(rows)
    index = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(given.bits), given.bits, lists)
    index.cp.niter = 10
    index.nprobe = probes
    index.train(given.codes[np.random.default_rng(0).choice(rows, min(rows, 40 * lists), replace=False)])
    return index


@alone
def hamming_index(given: Questions, *, seed: int, kind: Kind) -> EngineAnswer:
    """Measure the index; the seed has no say."""
    ids = np.arange(len(given.codes))
    meter = Meter()
    index = HammingIndex(given.bits, kind=kind, threads=1)
    with meter("build"):
        index.add(ids, given.codes)
        index.build()
    memory = meter.growth
    with meter("search"):
        hits = index.search(given.queries, given.k)
    return meter.answer(hits.ids, memory, index.save)


@alone
def usearch_codes(given: Questions, *, seed: int) -> EngineAnswer:
    """Measure a graph with the library's own parameters."""
    meter = Meter()
    index = Index(ndim=given.bits, metric="hamming", dtype="b1")
    with meter("build"):
        index.add(np.arange(len(given.codes)), given.codes, threads=1)
    memory = meter.growth
    with meter("search"):
        matches = index.search(given.queries, given.k, threads=1)
    positions = np.asarray(matches.keys).astype(np.int64).reshape(len(given.queries), given.k)
    return meter.answer(positions, memory, lambda path: index.save(str(path)))


def pgvector_codes(given: Questions, *, seed: int, kind: postgres.Kind) -> EngineAnswer:
    """Load by COPY, build and tune the index, search in batches."""
    ids = np.arange(len(given.codes))
    with (
        own_postgres() as server,
        postgres.PostgresIndex(server.dsn, "codes", given.bits, kind=kind, connections=1) as index,
    ):

        def cpu() -> float:
            return Processes.now().cpu(server.pid) + time.process_time()

        begun = cpu()
        index.add(ids, given.codes)
        index.build()
        built = cpu()
        hits = index.search(given.queries, given.k)
        searched = cpu()
        import psycopg

        with psycopg.connect(server.dsn) as connection:
            row = connection.execute("SELECT pg_total_relation_size('blindsight.codes_1')").fetchone()
    assert row is not None
    return {"positions": hits.ids, "build": built - begun, "search": searched - built, "disk": row[0]}


def index_overhead(given: Questions, *, seed: int, turns: int) -> dict[str, float]:
    """Return by how much ours takes longer: the ratio of median CPU times, exact, with lists, and query by query."""
    faiss.omp_set_num_threads(1)
    exact, lists = (HammingIndex(given.bits, kind=kind, threads=1) for kind in ("exact", "ivf"))
    for index in (exact, lists):
        index.add(np.arange(len(given.codes)), given.codes)
        index.build()
    flat = faiss.IndexBinaryFlat(given.bits)
    flat.add(given.codes)
    held = lists._lists
    assert held is not None
    ivf = faiss.IndexBinaryIVF(quantizer := faiss.IndexBinaryFlat(given.bits), given.bits, len(held))
    quantizer.add(held.centroids)
    ivf.is_trained = True
    ivf.add(given.codes)
    ivf.nprobe = next(iter(held.plans.values())).probes
    return {
        "exact": _ratio(exact, flat, given, turns),
        "lists": _ratio(lists, ivf, given, turns),
        "lists, one query": _ratio(lists, ivf, given, turns, size=1),
    }


def _ratio(ours: HammingIndex, raw: Any, given: Questions, turns: int, size: int = 1_000) -> float:
    times = []
    for _ in range(turns):
        clock = Clock()
        for name, index in (("ours", ours), ("raw", raw)):
            with clock(name):
                for span in blocks(len(given.queries), size):
                    index.search(given.queries[span], given.k)
        times.append(clock.seconds)
    return statistics.median(time["ours"] for time in times) / statistics.median(time["raw"] for time in times)


@dataclass(frozen=True)
class Album:
    """How many records there are, and of how many dimensions their features are."""

    records: int
    dimensions: int


@alone
def encrypted(given: Questions, *, seed: int, number_bits: int = 0) -> Any:
    """Ask every query under encryption: of codes, or of numbers, 2 and -2 in place of bits, which rank the same."""
    meter, most = Meter(), most_of(number_bits) if number_bits else 0
    records, asked = (
        np.where(unpack(codes, given.bits), 2, -2) if most else codes for codes in (given.codes, given.queries)
    )
    with meter("build"):
        scan = EncryptedScan(records, given.bits, most=most)
    memory, positions, sent, answered = meter.growth, [], [], []
    for one in asked:
        with meter("encrypt"):
            query = EncryptedQuery.of_embedding(one, most) if most else EncryptedQuery.of_code(one, given.bits)
        with meter("answer"):
            answer = scan.answer(scan.read(query.message))
        with meter("decrypt"):
            distances = -query.products(answer) if most else query.distances(answer)
            positions.append(np.argsort(distances, kind="stable")[: given.k])
        sent.append(len(query.message))
        answered.append(len(answer))
    return _asked(given, meter, positions, memory, max(sent), max(answered))


@alone
def plain(given: Questions, *, seed: int) -> Any:
    """Ask faiss in the clear."""
    faiss.omp_set_num_threads(1)
    meter = Meter()
    with meter("build"):
        index = faiss.IndexBinaryFlat(given.bits)
        index.add(given.codes)
    memory = meter.growth
    with meter("answer"):
        positions = [index.search(code[None], given.k)[1][0] for code in given.queries]
    return _asked(given, meter, positions, memory, given.bits // 8, 12 * given.k)  # ids and distances


def _asked(given: Questions, meter: Meter, positions: list[Any], memory: int, up: int, down: int) -> Any:
    """Return what was found, what it weighs, and seconds: once to build, all others by query."""
    seconds = {s: spent / (1 if s == "build" else len(given.queries)) for s, spent in meter.seconds.items()}
    return {"positions": np.array(positions, dtype=np.int64), "memory": memory, "up": up, "down": down} | seconds


@alone
def pull(given: Album, *, seed: int, epsilon: float) -> Any:
    """Take an index of random releases home and rank there."""
    rng = np.random.default_rng(seed)
    public = rng.standard_normal((2000, given.dimensions)).astype(np.float32)
    hasher = LocalHasher(epsilon).fit(public)
    index = SymbolIndex(hasher.outputs_)
    symbols: NDArray[np.int64] = rng.integers(0, index.outputs, given.records)
    index.add(np.arange(given.records), symbols)
    gallery = Gallery("local", "thumbnail", 8, hasher.statement(), hasher, index, {"epsilon": epsilon})
    meter = Meter()
    with meter("give"):
        content = gallery.given_away(numbers=False)
    with tempfile.TemporaryDirectory() as folder, meter("receive"):
        mine = Gallery.receive(content, folder)
    assert isinstance(mine.index, SymbolIndex)
    with meter("first"):  # sorts the records by symbol
        mine.index.search(hasher.symbol_scores(public[:1]), 100)
    with meter("rank"):
        mine.index.search(hasher.symbol_scores(public[1:2]), 100)
    same = np.array_equal(np.sort(mine.index.symbols), np.sort(symbols))
    return {"same": same, "bytes": len(content), "symbols": index.outputs} | meter.seconds
