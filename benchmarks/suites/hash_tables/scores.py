"""How searches are judged: mean average precision over the whole ranking and precision among the first ten, the mean
over all orders of tied items.
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata

from benchmarks.methods.searching import Found, Labels
from blindsight.errors import InputError
from blindsight.search.evaluation import Ranking, evaluate_codes, evaluate_distances


def score(wanted: Labels, offered: Labels, answer: Mapping[str, Found]) -> dict[str, float]:
    """Return the mean average precision of each ranking; `wanted` are the labels of queries, `offered` of items."""
    if not answer:
        raise InputError("an answer is at least one ranking; got none.")
    return {name: _ranking(wanted, offered, found).mean_average_precision for name, found in answer.items()}


def score_first(wanted: Labels, offered: Labels, answer: Mapping[str, Found]) -> dict[str, float]:
    """Return the same with the precision among the first ten, and what was chosen where a method says it."""
    scores: dict[str, float] = {}
    for name, found in answer.items():
        ranking = _ranking(wanted, offered, found)
        scores |= {name: ranking.mean_average_precision, f"P@10 {name}": ranking.precision_at_10}
        if "chosen" in found:
            scores |= {f"cells {name}": float(found["chosen"][0]), f"symbols {name}": float(found["chosen"][1])}
    return scores


def _ranking(wanted: Labels, offered: Labels, found: Found) -> Ranking:
    if "items" in found:
        bits = 8 * found["items"].shape[1]  # zeros that fill the last byte are the same everywhere
        return evaluate_codes(found["queries"], found["items"], wanted, offered, bits=bits)
    scores, symbols = found["scores"], found["symbols"]
    if scores.shape[:1] != wanted.shape or symbols.shape != offered.shape:
        raise InputError(
            f"{len(wanted)} queries must score and {len(offered)} items have a symbol; got {scores.shape} and "
            f"{symbols.shape}."
        )
    places = rankdata(-scores, method="dense", axis=1).astype(np.int64)
    return evaluate_distances(lambda queries: places[queries][:, symbols], wanted, offered)
