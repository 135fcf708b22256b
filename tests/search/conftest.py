"""A PostgreSQL database emptied for each test that asks, and what tests of this folder share."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture
def few_cells(monkeypatch):
    """Local hashers tell fewer regions of meaning apart than they would: choosing among them takes time."""
    monkeypatch.setattr("blindsight.search.codebook.CELLS_PER_KIND", 0.8)


@pytest.fixture
def dsn(postgres):
    """The connection string of a database without any trace of Blindsight."""
    import psycopg

    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("DROP SCHEMA IF EXISTS blindsight CASCADE; DROP EXTENSION IF EXISTS vector")
    return postgres.dsn
