"""One short key for all tests: 1024 bits are refused without the flag, and quick."""

import pytest

from blindsight.crypto.privatekey import PrivateKey, generate_keys
from blindsight.rng import seeded_bytes


@pytest.fixture(scope="session")
def private() -> PrivateKey:
    return generate_keys(1024, insecure=True, source=seeded_bytes(1))
