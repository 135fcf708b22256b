"""usearch's graph (HNSW) over binary codes, as it comes."""

import numpy as np
from usearch.index import Index

from benchmarks.methods.engines import EngineAnswer, Meter, Questions, alone


def run(given: Questions, *, seed: int) -> EngineAnswer:
    """Measure a graph with the library's own parameters."""
    return alone(_run, given)


def _run(given: Questions) -> EngineAnswer:
    meter = Meter()
    index = Index(ndim=given.bits, metric="hamming", dtype="b1")
    with meter("build"):
        index.add(np.arange(len(given.codes)), given.codes, threads=1)
    memory = meter.growth
    with meter("search"):
        matches = index.search(given.queries, given.k, threads=1)
    positions = np.asarray(matches.keys).astype(np.int64).reshape(len(given.queries), given.k)
    return meter.answer(positions, memory, lambda path: index.save(str(path)))
