"""What Blindsight's index adds to faiss: the same queries, by turns, with the same lists and probes."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import faiss
import numpy as np

from benchmarks.methods.engines import Codes, Questions
from blindsight.search.codes import blocks
from blindsight.search.index import HammingIndex


def run(given: Questions, *, seed: int, turns: int) -> dict[str, float]:
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
    asked = [given.queries[span] for span in blocks(len(given.queries), size)]
    calls = [partial(_ask, index, asked, given.k) for index in (ours, raw)]
    times = [[_seconds(call) for call in calls] for _ in range(turns)]
    return statistics.median(mine for mine, _ in times) / statistics.median(theirs for _, theirs in times)


def _ask(index: Any, asked: Sequence[Codes], k: int) -> None:
    for queries in asked:
        index.search(queries, k)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun
