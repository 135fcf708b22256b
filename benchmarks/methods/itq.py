"""Iterative quantisation by this library and by faiss: learn from rows, hash others."""

from dataclasses import dataclass

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.found import Floats, Found, by_codes
from blindsight.search.codes import pack
from blindsight.search.itq import ITQ


@dataclass(frozen=True)
class Rows:
    """Rows to learn from, rows to search and rows that ask."""

    train: Floats
    database: Floats
    queries: Floats


def blindsight(given: Rows, *, seed: int, bits: int) -> dict[str, Found]:
    """Learn by our ITQ with its defaults: 50 iterations over all rows."""
    function = ITQ(bits, random_state=seed).fit(given.train).function_
    return {"codes": by_codes(function(given.queries), function(given.database))}


def by_faiss(given: Rows, *, seed: int, bits: int) -> dict[str, Found]:
    """Learn by faiss's ITQTransform with its defaults: 50 iterations over a sample of the rows; the seed is its own."""
    transform = faiss.ITQTransform(given.train.shape[1], bits, True)
    transform.train(given.train)

    def codes(rows: Floats) -> NDArray[np.uint8]:
        return pack(transform.apply(rows) >= 0)

    return {"codes": by_codes(codes(given.queries), codes(given.database))}
