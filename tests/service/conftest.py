"""Databases for the service's tests, new SQLite files or databases of a real PostgreSQL."""

import sys
from pathlib import Path

import pytest

from blindsight.service.log import AuditLog
from blindsight.service.store import open_database
from blindsight.sift.register import verifier_name
from blindsight.sift.union import examine

sys.path.insert(0, str(Path(__file__).resolve().parent))  # what several test files, and the processes they kill, share

from smallservice import LOG_KEY


@pytest.fixture(scope="session")
def new_postgresql(postgres):
    """What makes an empty database of a name, in place of the one that had it, and returns its URL."""
    import psycopg

    def make(name):
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={postgres.folder}"

    return make


@pytest.fixture
def sqlite_url(tmp_path):
    return f"sqlite:///{tmp_path / 'service.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request):
    """The URL of an empty database, once of each kind."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    return request.getfixturevalue("new_postgresql")("service")


@pytest.fixture
def database(database_url):
    """A migrated database, once of each kind."""
    opened = open_database(database_url)
    AuditLog(opened, key=LOG_KEY)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_database(sqlite_url):
    """A migrated SQLite database, for tests that do not depend on its kind."""
    opened = open_database(sqlite_url)
    AuditLog(opened, key=LOG_KEY)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def known_verdicts():
    """Each question is judged once: for tests of what surrounds a verification, which ask the same again and again."""
    known = {}

    def once(part, others, private, data, verifier, **more):
        others = list(others)
        asked = part.named, tuple(one.named for one in others), private, data.digest
        asked += verifier_name(verifier, certified=False), verifier.share
        if asked not in known:
            known[asked] = examine(part, others, private, data, verifier, **more)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.sift.platform.examine", once)
        yield
