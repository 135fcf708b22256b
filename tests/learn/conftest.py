"""No test of learning searches for primes; those of networks compute in one thread."""

import pytest

from tests.keys import fixed_primes


@pytest.fixture(autouse=True, scope="module")
def _fixed_primes():
    with fixed_primes():
        yield


@pytest.fixture
def one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
