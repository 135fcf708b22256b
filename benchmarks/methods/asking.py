"""Asking without being heard: a scan under encryption, a scan in the clear, and an index that is taken home."""

import tempfile
import time
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.engines import Meter, Questions, alone
from blindsight.search.codes import unpack
from blindsight.search.encrypted_query import EncryptedQuery, EncryptedScan, most_of
from blindsight.search.gallery import Gallery
from blindsight.search.index import SymbolIndex
from blindsight.search.localmode import LocalHasher


@dataclass(frozen=True)
class Album:
    """How many records there are, and of how many dimensions their features are."""

    records: int
    dimensions: int


def encrypted(given: Questions, *, seed: int, number_bits: int = 0) -> Any:
    """Ask every query under encryption: of codes, or of numbers, 2 and -2 in place of bits, which rank the same."""
    return alone(_encrypted, given, number_bits=number_bits)


def plain(given: Questions, *, seed: int) -> Any:
    """Ask faiss in the clear."""
    return alone(_plain, given)


def pull(given: Album, *, seed: int, epsilon: float) -> Any:
    """Take an index of random releases home and rank there."""
    return alone(_pull, given, seed=seed, epsilon=epsilon)  # type: ignore[arg-type]


def _encrypted(given: Questions, *, number_bits: int) -> Any:
    meter, most = Meter(), most_of(number_bits) if number_bits else 0
    records, asked = (
        np.where(unpack(codes, given.bits), 2, -2) if most else codes for codes in (given.codes, given.queries)
    )
    with meter("build"):
        scan = EncryptedScan(records, given.bits, most=most)
    memory = meter.growth
    positions, sent, answered = [], [], []
    seconds = dict.fromkeys(("encrypt", "answer", "decrypt"), 0.0)
    for one in asked:
        begun = time.process_time()
        query = EncryptedQuery.of_embedding(one, most) if most else EncryptedQuery.of_code(one, given.bits)
        made = time.process_time()
        answer = scan.answer(scan.read(query.message))
        done = time.process_time()
        distances = -query.products(answer) if most else query.distances(answer)
        positions.append(np.argsort(distances, kind="stable")[: given.k])
        for step, spent in (
            ("encrypt", made - begun),
            ("answer", done - made),
            ("decrypt", time.process_time() - done),
        ):
            seconds[step] += spent / len(given.queries)
        sent.append(len(query.message))
        answered.append(len(answer))
    return {
        "positions": np.array(positions, dtype=np.int64),
        "build": meter.seconds["build"],
        "memory": memory,
        "up": max(sent),
        "down": max(answered),
    } | seconds


def _plain(given: Questions) -> Any:
    faiss.omp_set_num_threads(1)
    meter = Meter()
    with meter("build"):
        index = faiss.IndexBinaryFlat(given.bits)
        index.add(given.codes)
    memory = meter.growth
    with meter("search"):
        positions = [index.search(code[None], given.k)[1][0] for code in given.queries]
    return {
        "positions": np.array(positions, dtype=np.int64),
        "build": meter.seconds["build"],
        "memory": memory,
        "up": given.bits // 8,
        "down": 12 * given.k,  # ids and distances
        "answer": meter.seconds["search"] / len(given.queries),
    }


def _pull(given: Album, seed: int, epsilon: float) -> Any:
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
