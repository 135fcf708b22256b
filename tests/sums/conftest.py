"""What makes tests of sums quick: no disk is waited for, no key is made twice, and one on disk is read once."""

import os
from functools import lru_cache
from itertools import cycle

import pytest

from blindsight.crypto import bfv
from blindsight.sums import bfv as lattice
from tests.keys import bfv_key

_read_context = lru_cache(maxsize=64)(bfv._read_context)
_numbers = cycle(range(100, 108))  # none of which a test names


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Processes die here, and no machine does; of fixed keys, each that is asked for is another than the last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(bfv, "_read_context", _read_context)
        patch.setattr(lattice, "generate_keys", lambda *, max_sum: bfv_key(next(_numbers), max_sum=max_sum))
        yield
