"""The tables become what the code reads, once, on both databases; a newer database is left alone."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Text, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from blindsight.errors import InputError, StorageError
from blindsight.service import store as schema
from blindsight.service.principals import Principals
from blindsight.service.store import MIGRATIONS, migrate, open_database


def test_the_baseline_makes_what_the_code_reads(database):
    seen = inspect(database.engine)
    assert set(seen.get_table_names()) == set(schema.metadata.tables)
    for name, table in schema.metadata.tables.items():
        assert [(one["name"], one["nullable"]) for one in seen.get_columns(name)] == [
            (column.name, bool(column.nullable)) for column in table.columns
        ]
        indexes = {one["name"] for one in seen.get_indexes(name) if not one.get("duplicates_constraint")}
        assert indexes == {index.name for index in table.indexes}


def test_migrating_again_does_nothing_and_keeps_everything(database):
    principal, _ = Principals(database).create("Ann", "owner")
    assert migrate(database.engine) == 0
    assert Principals(database).list() == (principal,)


def test_older_database_gets_the_missing_steps(database):
    def add_note(connection):
        connection.execute(text("ALTER TABLE frames ADD COLUMN note TEXT"))

    assert migrate(database.engine, (*MIGRATIONS, add_note)) == 1
    assert migrate(database.engine, (*MIGRATIONS, add_note)) == 0
    assert isinstance(inspect(database.engine).get_columns("frames")[-1]["type"], Text)


@pytest.mark.parametrize("version", [99, 6, 1])
def test_databases_of_other_versions_are_refused_unchanged(database_url, version):
    database = open_database(database_url)
    with database.session() as session:
        session.execute(text("DELETE FROM service_version"))
        session.execute(schema.versions.insert().values(version=version))
        session.execute(text("ALTER TABLE frames DROP COLUMN pipeline"))
    before = inspect(database.engine).get_columns("frames")
    with pytest.raises(StorageError, match=str(version)):
        open_database(database_url)
    assert repr(inspect(database.engine).get_columns("frames")) == repr(before)
    database.close()


def test_tables_of_another_program_are_left_alone(database_url):
    database = open_database(database_url)
    with database.session() as session:
        session.execute(text("DROP TABLE service_version"))
    with pytest.raises(StorageError, match="another program"):
        open_database(database_url)
    assert "service_version" not in inspect(database.engine).get_table_names()
    database.close()


def test_step_that_fails_leaves_the_old_version(database):
    def broken(connection):
        connection.execute(text("CREATE TABLE half (id TEXT)"))
        connection.execute(text("CREATE NONSENSE"))

    with pytest.raises(DBAPIError):
        migrate(database.engine, (*MIGRATIONS, broken))
    assert not inspect(database.engine).has_table("half")
    assert migrate(database.engine) == 0


def test_many_may_open_a_new_database_at_once(database_url):
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: open_database(database_url), range(6)))
    for database in opened:
        database.close()
    assert len(opened) == 6


def test_block_is_whole_or_nothing_and_inner_blocks_belong_to_it(database):
    people = Principals(database)
    seen = []

    def interrupted():
        with database.session():
            people.create("Ann", "owner")
            seen.extend(person.name for person in people.list())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert (seen, people.list()) == (["Ann"], ())
    with database.session():
        people.create("Bea", "owner")
        with pytest.raises(InputError, match="taken"):
            people.create("Bea", "app")  # only this inner block is undone
        people.create("Cas", "owner")
    assert [person.name for person in people.list()] == ["Bea", "Cas"]


def test_broken_constraints_reach_the_caller(database):
    with pytest.raises(IntegrityError), database.session() as session:
        session.execute(
            text("INSERT INTO principals (id, name, role, token_hash, created) VALUES ('1','a','king','',0)")
        )


def test_driver_errors_become_a_sentence_without_its_words(database):
    with pytest.raises(StorageError) as caught, database.session() as session:
        session.execute(text("SELECT * FROM nowhere WHERE secret = :value"), {"value": "hunter2"})
    assert "nowhere" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_server_that_cannot_be_reached_is_told_without_the_password(tmp_path):
    with pytest.raises(StorageError) as caught:
        open_database(f"postgresql://someone:hunter2@/service?host={tmp_path}")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_sqlite_is_private_durable_and_in_a_file(tmp_path):
    path = tmp_path / "state" / "service.db"
    database = open_database(f"sqlite:///{path}")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with database.session() as session:
        pragmas = {name: session.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous")}
        assert pragmas == {"journal_mode": "wal", "synchronous": 2}
        assert session.execute(text("PRAGMA foreign_keys")).scalar() == 1
        session.execute(text("DELETE FROM jobs"))
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    database.close()


def test_databases_that_would_lose_everything_are_refused():
    for url in ("sqlite://", "sqlite:///:memory:", "mysql://host/name", "service.db", ""):
        with pytest.raises(InputError, match="database"):
            open_database(url)


def test_readers_do_not_wait_for_a_writer(database):
    people = Principals(database)
    found = []
    with database.session():
        people.create("Ann", "owner")
        reader = threading.Thread(target=lambda: found.append(people.list()))
        reader.start()
        reader.join(120)
        assert found == [()]  # and do not see what is not committed


def test_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "service.db"
    path.write_bytes(b"this is a diary, not a database\n" * 200)
    with pytest.raises(StorageError):
        open_database(f"sqlite:///{path}")
    assert path.read_bytes().startswith(b"this is a diary")
