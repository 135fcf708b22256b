"""Small runs of DPHE with a short fixed key."""

import numpy as np
import pytest

from blindsight.learn.dphe import Terms, set_up
from tests.keys import paillier_key


@pytest.fixture(scope="session")
def make_terms():
    """Return a function that makes the terms of a small run, with changes."""
    settings = {
        "run": "test",
        "users": ("anna", "bert", "cleo", "dora"),
        "dimension": 24,
        "capacity": 6,
        "fraction_bits": 8,
        "key_bits": 1024,
        "insecure": True,
    }
    return lambda **changes: Terms(**(settings | changes))


@pytest.fixture(scope="session")
def key():
    return paillier_key()


@pytest.fixture(scope="session")
def new_run(make_terms, key):
    """Return a function that sets up a run on `make_terms(**changes)`."""
    return lambda **changes: set_up(make_terms(**changes), key=key)


@pytest.fixture(scope="session")
def sparse_update():
    """Return a function that makes an update which changes every weight of so many blocks."""

    def make(terms, seed, *, blocks):
        rng = np.random.default_rng(seed)
        rows = np.zeros((terms.blocks, terms.slots), dtype=np.int64)
        changed = rng.choice(terms.blocks, blocks, replace=False)
        rows[changed] = rng.integers(1, terms.max_integer, (blocks, terms.slots)) * rng.choice([-1, 1], (blocks, 1))
        return rows.ravel()[: terms.dimension]

    return make
