"""The index in PostgreSQL, on a real server: conformance, other writers, other versions, a server that goes away."""

import sys
import threading

import numpy as np
import pytest
from indexconformance import BITS, RECALL, IndexConformance, SearchConformance, clustered

from blindsight.errors import InputError, MissingExtraError, StorageError
from blindsight.search.codes import hamming, pack
from blindsight.search.postgres import MIGRATIONS, PostgresIndex, bit_strings, migrate

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("psycopg_pool")


@pytest.fixture
def opened(dsn):
    """A function that opens collections and closes them after the test."""
    indexes = []

    def open_index(collection="photos", bits=BITS, *, where=dsn, **options):
        indexes.append(PostgresIndex(where, collection, bits, recall=RECALL, **options))
        return indexes[-1]

    yield open_index
    for index in indexes:
        index.close()


class TestExact(IndexConformance):
    @pytest.fixture
    def exact(self):
        return True

    @pytest.fixture
    def index(self, opened):
        return opened(kind="exact")


@pytest.mark.parametrize("kind", ["ivfflat", "hnsw"])
class TestApproximate(SearchConformance):
    @pytest.fixture
    def exact(self):
        return False

    @pytest.fixture
    def index(self, opened, kind):
        return opened(kind=kind)


def plan_of(dsn, index, settings):
    """PostgreSQL's own words about how a search is executed."""
    with psycopg.connect(dsn) as connection:
        table = index._table(connection, "integers")
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        query = table.statement("EXPLAIN SELECT id FROM {table} ORDER BY code <~> %s::{code} LIMIT 3")
        return "\n".join(row[0] for row in connection.execute(query, ("0" * BITS,)))


@pytest.mark.parametrize("kind", ["ivfflat", "hnsw"])
def test_a_built_index_is_used_measured_and_seen_by_everyone(opened, dsn, kind):
    index = opened(kind=kind)
    index.add(np.arange(2_000), clustered(0, 2_000))
    assert "build()" in index.plan
    for _ in range(2):  # again, over the old one
        index.build()
        assert index.plan.startswith(f"{kind}: ")
        assert "recall@100 " in index.plan
    assert opened(kind=kind).plan == index.plan
    assert opened(kind="exact").plan.startswith("exact: ")
    used = plan_of(dsn, index, {"enable_seqscan": "off"} | index._settings(1, 3))
    assert f"Index Scan using codes_1_{kind}" in used
    if kind == "hnsw":  # a search for one hit keeps as many candidates as were measured
        assert int(index._settings(index._database.run("a test", index._known).effort, 1)["hnsw.ef_search"]) >= 101


def test_noisy_codes_are_compared_one_and_all(opened, dsn):
    """Uniform codes have no neighbourhoods: lists miss most of them, and searches stay exact."""
    index = opened(bits=64)
    codes = np.random.default_rng(0).integers(0, 256, (2_000, 8), dtype=np.uint8)
    index.add(np.arange(2_000), codes)
    for _ in range(2):
        index.build()
        assert index.plan.startswith("exact: ")
        assert "half of 44 lists" in index.plan
    queries = np.random.default_rng(1).integers(0, 256, (20, 8), dtype=np.uint8)
    far = np.sort(hamming(queries, codes), axis=1)[:, :10]
    np.testing.assert_array_equal(index.search(queries, 10).distances, far)


def test_effort_buys_recall(opened):
    index = opened(bits=64)
    codes, queries = (clustered(seed, rows, bits=64, centres=300, spread=0.15) for seed, rows in ((0, 3_000), (1, 30)))
    index.add(np.arange(3_000), codes)
    index.build()
    limit = np.sort(hamming(queries, codes), axis=1)[:, 49:50]
    found = [float(np.mean(index.search(queries, 50, effort=effort).distances <= limit)) for effort in (1, 5, 54)]
    assert found[0] < found[1] < found[2] == 1.0
    with pytest.raises(InputError, match="effort"):
        index.search(queries, 1, effort=0)


def test_a_bulk_load_is_whole_or_not_at_all_and_can_be_read_in_sql(opened, dsn, monkeypatch):
    monkeypatch.setattr("blindsight.search.postgres._ROWS", 3_000)
    index = opened()
    codes = clustered(0, 7_000)
    index.add(np.arange(7_000), codes)  # more than are written at once
    assert len(index) == 7_000
    assert index.search(codes[-1:], 1).distances[0, 0] == 0
    more = np.arange(7_000) + 7_000
    more[-1] = 0
    with pytest.raises(InputError, match="id 0"):
        index.add(more, codes)
    assert len(index) == 7_000
    code = pack(np.array([[1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1]]))
    assert bit_strings(code, 11) == ["11010000001"]
    opened("eleven", bits=11).add([5], code)
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT id, code::text FROM blindsight.codes_2").fetchall() == [(5, "11010000001")]


# --- collections -------------------------------------------------------------------------------------------------


def test_collections_share_a_database_and_nothing_else(opened, dsn):
    names = ["photos", "Photos", 'x"; DROP SCHEMA blindsight CASCADE; --', "'); DELETE FROM x", "%s {table} ✓"]
    for number, name in enumerate(names):
        opened(name, bits=8 * (number + 1)).add([number], np.zeros((1, number + 1), dtype=np.uint8))
    for number, name in enumerate(names):
        assert opened(name, bits=8 * (number + 1)).ids.tolist() == [number]
    opened("Photos", bits=16).drop()
    assert len(opened("photos", bits=8)) == 1
    assert len(opened("Photos", bits=24)) == 0


def test_a_deleted_collection_and_another_length_of_codes_are_told(opened):
    index, other = opened(), opened()
    with pytest.raises(InputError, match="20 bits; 24"):
        opened(bits=24)
    index.add([1], clustered(0, 1))
    other.drop()
    for call in (lambda: index.search(clustered(0, 1), 1), lambda: index.add([2], clustered(0, 1)), index.build):
        with pytest.raises(StorageError, match="'photos'"):
            call()
    assert len(opened()) == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"collection": ""}, "name"),
        ({"collection": "a\0b"}, "name"),
        ({"collection": "x" * 201}, "name"),
        ({"bits": 0}, "bits"),
        ({"kind": "ivf"}, "'ivfflat'"),
        ({"connections": 0}, "connections"),
        ({"patience": 0}, "patience"),
    ],
)
def test_an_impossible_index_is_refused(opened, arguments, named, monkeypatch):
    with pytest.raises(InputError, match=named):
        opened(**arguments)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match="postgres"):
        PostgresIndex("host=nowhere", "photos", 8)


# --- versions ----------------------------------------------------------------------------------------------------


def test_an_older_database_is_brought_up_step_by_step(dsn, opened):
    with psycopg.connect(dsn) as connection:
        assert migrate(connection, MIGRATIONS[:1]) == 1
    with psycopg.connect(dsn) as connection:
        assert migrate(connection) == len(MIGRATIONS) - 1
        assert migrate(connection) == 0
        applied = connection.execute("SELECT version FROM blindsight.migration ORDER BY version").fetchall()
    assert applied == [(number + 1,) for number in range(len(MIGRATIONS))]
    opened().add([1], clustered(0, 1))


def test_a_newer_database_is_refused_and_a_migration_that_fails_leaves_no_trace(dsn, opened):
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.errors.SyntaxError):
        migrate(connection, (MIGRATIONS[0], "CREATE NONSENSE"))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('blindsight.migration')").fetchone() == (None,)
        assert migrate(connection, (*MIGRATIONS, "SELECT 1")) == len(MIGRATIONS) + 1
    with pytest.raises(StorageError, match=f"version {len(MIGRATIONS) + 1}"):
        opened()


def test_many_may_open_a_new_database_at_once(dsn, opened):
    indexes = together([lambda: opened(connections=1)] * 6)
    assert len({index._number for index in indexes}) == 1


# --- other writers -----------------------------------------------------------------------------------------------


def together(calls):
    """Run the calls in a thread each, let them begin at the same moment, return results or errors in order."""
    results, gate = [None] * len(calls), threading.Barrier(len(calls))

    def run(number, call):
        gate.wait()
        try:
            results[number] = call()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_writers_lose_nothing_and_add_nothing_twice(opened):
    index, other = opened(connections=4), opened(connections=4)
    first = together([lambda: index.add([1], clustered(0, 1)), lambda: other.add(["1"], clustered(0, 1))])
    assert sum(result is None for result in first) == 1  # and the other kind of ids is refused
    index.remove(index.ids)
    numbers = first[0] is None
    own = [np.arange(50) + 1_000 * (number + 1) for number in range(6)]
    contested = [np.append(ids, 7) for ids in own]  # id 7 is everyone's: one writer wins
    keys = [ids if numbers else [str(key) for key in ids] for ids in contested]
    calls = [lambda ids=ids, at=at: (index, other)[at % 2].add(ids, clustered(at, 51)) for at, ids in enumerate(keys)]
    results = together(calls)
    (winner,) = [at for at, result in enumerate(results) if result is None]
    assert all(at == winner or isinstance(result, InputError) for at, result in enumerate(results))
    assert sorted(index.ids.tolist()) == sorted(keys[winner])


def test_updates_in_opposite_order_both_happen(opened):
    index, ids = opened(), np.arange(200)
    index.add(ids, clustered(0, 200))
    codes = [clustered(seed, 200) for seed in (1, 2, 3, 4)]
    orders = [ids, ids[::-1], np.roll(ids, 100), ids]
    calls = [lambda at=at: index.update(orders[at], codes[at][orders[at]]) for at in range(4)]
    results = together([*calls, lambda: index.search(codes[0][:5], 3)])
    assert results[:4] == [None] * 4
    found = [all(at in index.within(code[at : at + 1], 0).of(0)[0] for at in range(0, 200, 40)) for code in codes]
    assert any(found)  # the last one's codes, whole


def test_a_deadlock_is_tried_again_and_what_the_server_refuses_is_told(opened):
    index, tries = opened(), []
    assert "photos" in repr(index)

    def work(connection):
        tries.append(None)
        if len(tries) < 3:
            raise psycopg.errors.DeadlockDetected
        return "done"

    def always(connection):
        raise psycopg.errors.SerializationFailure

    assert index._database.run("a test", work) == "done"
    for refused, named in ((always, "5 times"), (lambda c: c.execute("SELECT * FROM nowhere"), "nowhere")):
        with pytest.raises(StorageError, match=named):
            index._database.run("a test", refused)
    with index as same:
        assert same is index
    with pytest.raises(StorageError, match="reached"):
        len(index)  # closed


# --- a server that goes away -------------------------------------------------------------------------------------


def test_a_connection_that_is_cut_during_a_search_is_told_and_replaced(opened, dsn):
    index = opened(connections=1)
    index.add([1, 2], clustered(0, 2))
    result = []

    def search():
        try:
            index.search(clustered(0, 1), 1)
        except StorageError as error:
            result.append(str(error))

    searcher = threading.Thread(target=search)
    waiting = """
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()
    """
    with psycopg.connect(dsn) as blocker, psycopg.connect(dsn, autocommit=True) as killer:
        blocker.execute("LOCK TABLE blindsight.codes_1 IN ACCESS EXCLUSIVE MODE")
        searcher.start()
        while not killer.execute(waiting).fetchall():
            assert searcher.is_alive()
        searcher.join()
    assert "went away during a search" in result[0]
    assert index.search(clustered(0, 1), 1).distances[0, 0] == 0


def test_a_server_that_stops_is_told_and_found_again(postgres, opened):
    index = opened(patience=0.3)
    codes = clustered(0, 3)
    index.add([1, 2, 3], codes)
    postgres.stop()
    try:
        for call in (lambda: index.search(codes, 1), lambda: index.add([4], codes[:1]), lambda: len(index)):
            with pytest.raises(StorageError, match="could not be reached"):
                call()
        with pytest.raises(StorageError, match="could not be reached"):
            opened("other", patience=0.3)
    finally:
        postgres.start()
    for _ in range(300):  # until it is back; each attempt waits a little
        try:
            assert index.ids.tolist() == [1, 2, 3]
            break
        except StorageError:
            continue
    assert index.search(codes, 1).distances.tolist() == [[0], [0], [0]]


# --- secrets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "postgresql://keeper:swordfish@127.0.0.1:1/x",
        "host=127.0.0.1 port=1 user=keeper password=swordfish",
        "keeper:swordfish@nowhere",
        "postgresql://keeper:swordfish@host:notaport:x/",
        None,
    ],
)
def test_a_connection_string_is_never_repeated(opened, where):
    with pytest.raises((InputError, StorageError)) as caught:
        opened(where=where, patience=0.2)
    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert "swordfish" not in str(error)
    assert "keeper" not in str(error)
