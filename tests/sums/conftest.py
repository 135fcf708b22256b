"""What makes tests of sums quick: processes die here and no machine does, and a key that lies on disk is read once."""

import os
from functools import lru_cache

import pytest

from blindsight.crypto import bfv

_read_context = lru_cache(maxsize=64)(bfv._read_context)


@pytest.fixture(scope="module", autouse=True)
def quick_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(bfv, "_read_context", _read_context)
        yield
