"""How searches are judged: mean average precision over the whole ranking, the mean over all orders of tied items."""

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata

from benchmarks.methods.searching import Found, Labels
from blindsight.errors import InputError
from blindsight.search.evaluation import evaluate_codes, evaluate_distances


def score(wanted: Labels, offered: Labels, answer: Mapping[str, Found]) -> dict[str, float]:
    """Return the mean average precision of each ranking; `wanted` are the labels of queries, `offered` of items."""
    if not answer:
        raise InputError("an answer is at least one ranking; got none.")
    return {name: _precision(wanted, offered, found) for name, found in answer.items()}


def _precision(wanted: Labels, offered: Labels, found: Found) -> float:
    if "items" in found:
        bits = 8 * found["items"].shape[1]  # zeros that fill the last byte are the same everywhere
        return evaluate_codes(found["queries"], found["items"], wanted, offered, bits=bits).mean_average_precision
    scores, symbols = found["scores"], found["symbols"]
    if scores.shape[:1] != wanted.shape or symbols.shape != offered.shape:
        raise InputError(
            f"{len(wanted)} queries must score and {len(offered)} items have a symbol; got {scores.shape} and "
            f"{symbols.shape}."
        )
    places = rankdata(-scores, method="dense", axis=1).astype(np.int64)
    return evaluate_distances(lambda queries: places[queries][:, symbols], wanted, offered).mean_average_precision
