"""Image search over binary codes, and over codes that give the individual image away no more than epsilon allows."""

from blindsight.search.central import CentralHasher
from blindsight.search.function import HashFunction, load_function, save_function
from blindsight.search.hashers import ITQ, KSH, LSH, SDH, SH
from blindsight.search.index import HammingIndex
from blindsight.search.localmode import LocalHasher
from blindsight.search.postgres import PostgresIndex
from blindsight.search.private import PrivateHasher
from blindsight.search.published import PITQ, PHashing

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
