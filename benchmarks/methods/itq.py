"""Iterative quantisation by this library and by faiss: learn from rows, hash others."""

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.searching import Floats, Found, Unlabelled, by_codes
from blindsight.search.codes import pack
from blindsight.search.hashers import ITQ


def blindsight(given: Unlabelled, *, seed: int, bits: int) -> dict[str, Found]:
    """Learn by our ITQ with its defaults: 50 iterations over all rows."""
    function = ITQ(bits, random_state=seed).fit(given.train).function_
    return {"codes": by_codes(function(given.queries), function(given.database))}


def by_faiss(given: Unlabelled, *, seed: int, bits: int) -> dict[str, Found]:
    """Learn by faiss's ITQTransform with its defaults: 50 iterations over a sample of the rows; the seed is its own."""
    transform = faiss.ITQTransform(given.train.shape[1], bits, True)
    transform.train(given.train)

    def codes(rows: Floats) -> NDArray[np.uint8]:
        return pack(transform.apply(rows) >= 0)

    return {"codes": by_codes(codes(given.queries), codes(given.database))}
