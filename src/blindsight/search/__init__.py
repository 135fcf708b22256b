"""Image search over binary codes, and over codes that give the individual image away no more than epsilon allows."""

from blindsight.search.central import CentralHasher
from blindsight.search.function import HashFunction, load_function, save_function
from blindsight.search.index import HammingIndex
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.search.postgres import PostgresIndex
from blindsight.search.private import PrivateHasher

__all__ = [
    "ITQ",
    "CentralHasher",
    "HammingIndex",
    "HashFunction",
    "LocalHasher",
    "PostgresIndex",
    "PrivateHasher",
    "load_function",
    "save_function",
]
