"""faiss as it is: a flat binary index, or an inverted file of sqrt(n) lists with a fixed number of probes."""

import math
from typing import Any

import faiss
import numpy as np

from benchmarks.methods.engines import EngineAnswer, Meter, Questions, alone


def run(given: Questions, *, seed: int, probes: int | None = None) -> EngineAnswer:
    """Measure the flat index, or the inverted file if there are probes."""
    return alone(_run, given, probes=probes)


def _run(given: Questions, probes: int | None) -> EngineAnswer:
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
