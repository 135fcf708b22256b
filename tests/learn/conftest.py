"""No test of learning searches for primes."""

import pytest

from tests.keys import fixed_primes


@pytest.fixture(autouse=True, scope="module")
def _fixed_primes():
    with fixed_primes():
        yield
