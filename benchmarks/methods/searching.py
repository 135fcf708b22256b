"""What search methods are given, and what they answer, as raw as it comes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

Found = dict[str, NDArray[Any]]
"""Either codes of `queries` and `items`, or one of k `symbols` per item and the queries' `scores` of them, (q, k).

`chosen` may tell how many cells and symbols the method decided on.
"""

CLAIMED_EPSILONS = (1, 2, 4)
"""Those of PHashing in the paper's Table 1."""

RECORD_EPSILONS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Searchable:
    """Features to hash: all that are searched, those that ask, and the few with labels to learn from."""

    database: Floats
    queries: Floats
    labelled: tuple[Floats, Labels]


@dataclass(frozen=True)
class Unlabelled:
    """Rows to learn from, rows to search and rows that ask."""

    train: Floats
    database: Floats
    queries: Floats


@dataclass(frozen=True)
class PrivateCollection:
    """Public rows with their labels, private rows to be found, and rows that ask, all of unit length.

    `lengths` are those that private rows and queries had.
    """

    public: Floats
    labels: Labels
    private: Floats
    queries: Floats
    lengths: tuple[Floats, Floats]


def by_codes(queries: NDArray[np.uint8], items: NDArray[np.uint8]) -> Found:
    """Answer with packed codes: the nearest item comes first."""
    return {"queries": queries, "items": items}


def by_symbols(scores: NDArray[Any], symbols: NDArray[np.int64]) -> Found:
    """Answer with one symbol per item: that with the highest score comes first."""
    return {"scores": scores, "symbols": symbols}
