"""One short key for all tests: 1024 bits are refused without the flag, and quick."""

import pytest

from blindsight.crypto.paillier import PrivateKey
from tests.keys import paillier_key


@pytest.fixture(scope="session")
def private() -> PrivateKey:
    return paillier_key()
