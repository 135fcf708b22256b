"""Signed integers in as few bytes as their sums need: residues modulo 2^b, whose addition wraps and loses nothing.

b is the smallest of 8, 16, 32 and 64 that holds a run's sums with their sign: any two sums within the terms differ by
less than 2^b, so the residue tells which it is.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import MessageError
from blindsight.learn.sumterms import SumTerms

Residues = NDArray[np.unsignedinteger[Any]]
"""Numbers modulo 2^b in numpy's unsigned type of b bits."""


def residue_type(terms: SumTerms) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the unsigned type in which sums of these terms are told apart.

    >>> residue_type(SumTerms(run="a", users=("ann", "bob", "cem"), dimension=3, fraction_bits=4, slot_bits=24)).str
    '<u4'
    """
    size = next(size for size in (1, 2, 4, 8) if 8 * size >= terms.slot_bits)
    return np.dtype(f"<u{size}")


def to_residues(integers: NDArray[np.int64], terms: SumTerms) -> Residues:
    """Reduce signed integers modulo 2^b."""
    return integers.astype(residue_type(terms))


def to_integers(residues: Residues) -> NDArray[np.int64]:
    """Return the integers in [-2^(b-1), 2^(b-1)) that leave these residues."""
    return residues.view(residues.dtype.str.replace("u", "i")).astype(np.int64)


def beyond(integers: NDArray[np.int64], most: int) -> bool:
    """Tell whether an absolute value exceeds `most`; none is taken, because that of -2^63 is itself.

    >>> beyond(np.array([-(2**63)]), 5), beyond(np.array([-5, 5]), 5)
    (True, False)
    """
    return bool(((integers > most) | (integers < -most)).any())


def read_residues(data: bytes, terms: SumTerms) -> Residues:
    """Return one residue per weight from what somebody sent; `MessageError` if it is too long or too short."""
    kind = residue_type(terms)
    if len(data) != terms.dimension * kind.itemsize:
        raise MessageError(f"a vector of {terms.dimension} weights takes {terms.dimension * kind.itemsize} bytes.")
    return np.frombuffer(data, dtype=kind)
