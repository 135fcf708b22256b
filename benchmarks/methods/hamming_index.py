"""Blindsight's own index in this process: add with ids, build, search a batch, save."""

import numpy as np

from benchmarks.methods.engines import EngineAnswer, Meter, Questions, alone
from blindsight.search.index import HammingIndex, Kind


def run(given: Questions, *, seed: int, kind: Kind) -> EngineAnswer:
    """Measure the index; the seed has no say."""
    return alone(_run, given, kind=kind)


def _run(given: Questions, kind: Kind) -> EngineAnswer:
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
