"""Image search over binary codes, and over codes that give the individual image away no more than epsilon allows."""

from blindsight.search.central import CentralHasher
from blindsight.search.discrete import SDH
from blindsight.search.function import HashFunction
from blindsight.search.functionfile import load_function, save_function
from blindsight.search.index import HammingIndex
from blindsight.search.itq import ITQ
from blindsight.search.kernel import KSH
from blindsight.search.localmode import LocalHasher
from blindsight.search.lsh import LSH
from blindsight.search.phashing import PHashing
from blindsight.search.pitq import PITQ
from blindsight.search.postgres import PostgresIndex
from blindsight.search.private import PrivateHasher
from blindsight.search.spectral import SH

__all__ = [
    "ITQ",
    "KSH",
    "LSH",
    "PITQ",
    "SDH",
    "SH",
    "CentralHasher",
    "HammingIndex",
    "HashFunction",
    "LocalHasher",
    "PHashing",
    "PostgresIndex",
    "PrivateHasher",
    "load_function",
    "save_function",
]
