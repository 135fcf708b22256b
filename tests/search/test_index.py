"""The embedded indexes: conformance, lists that are tuned to a recall, files that are whole or refused."""

import threading

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexconformance import BITS, RECALL, IndexConformance, IndexMachine, Oracle, assert_answers, clustered

from blindsight.errors import CorruptFileError, InputError, StorageError
from blindsight.files import write_arrays
from blindsight.search import index as index_module
from blindsight.search.codes import hamming, pack, unpack
from blindsight.search.index import HammingIndex, SymbolIndex
from blindsight.search.rows import Ids, Rows


@pytest.mark.parametrize("exact", [True, False])
class TestIndex(IndexConformance):
    @pytest.fixture
    def index(self, exact):
        return HammingIndex(BITS) if exact else HammingIndex(BITS, kind="ivf", recall=RECALL)


class Machine(IndexMachine):
    @staticmethod
    def make():
        return HammingIndex(BITS)


TestAnySequenceOfChanges = Machine.TestCase
TestAnySequenceOfChanges.settings = settings(deadline=None, max_examples=20, stateful_step_count=15)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 140), st.integers(1, 60), st.integers(0, 10**6))
def test_codes_of_any_length_are_searched_as_faiss_and_numpy_do(bits, rows, seed):
    rng = np.random.default_rng(seed)
    codes, queries = (pack(rng.random((count, bits)) < 0.3) for count in (rows, 4))
    index = HammingIndex(bits)
    index.add(np.arange(rows), codes)
    hits = index.search(queries, rows)
    distances = hamming(queries, codes).astype(np.int32)
    order = np.argsort(distances, axis=1, kind="stable")
    assert np.array_equal(hits.ids, order)
    assert np.array_equal(hits.distances, np.take_along_axis(distances, order, axis=1))
    flat = faiss.IndexBinaryFlat(8 * codes.shape[1])
    flat.add(codes)
    assert np.array_equal(flat.search(queries, rows)[0], hits.distances)


# --- ids ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(-50, 50), unique=True, max_size=12), max_size=8), st.integers(0, 10**6))
def test_integers_are_found_however_they_were_sorted(batches, seed):
    rng = np.random.default_rng(seed)
    table, expected = Ids(np.empty(0, dtype=np.int64)), []
    for batch in batches:
        new = [key for key in batch if key not in expected]
        if new:
            table.append(np.array(new))
            expected += new
        if rng.random() < 0.3:
            table.keep(kept := rng.random(len(expected)) < 0.7)
            expected = [key for key, stays in zip(expected, kept, strict=True) if stays]
        if rng.random() < 0.3:
            table._sort()
    wanted = np.arange(-60, 60)
    places = {key: place for place, key in enumerate(expected)}
    assert table.positions(wanted).tolist() == [places.get(key, -1) for key in wanted.tolist()]


# --- lists -------------------------------------------------------------------------------------------------------


def recall_of(index, queries, k):
    codes = index.codes
    limit = np.sort(hamming(queries, codes), axis=1)[:, k - 1 : k]
    return float(np.mean(index.search(queries, k).distances <= limit))


@pytest.fixture
def small(monkeypatch):
    """Lists are made beyond 2,000 codes instead of a million."""
    monkeypatch.setattr(index_module, "_EXACT_ROWS", 2_000)


def clean(seed, rows):
    return clustered(seed, rows, bits=64, centres=60, spread=0.08)


def test_lists_appear_when_there_are_many_codes_and_reach_the_recall_on_other_queries(small):
    index = HammingIndex(64, recall=0.95)
    index.add(np.arange(2_000), clean(0, 2_000))
    index.build()
    assert index.plan.startswith("exact: ")
    index.add(np.arange(2_000, 4_000), clean(1, 2_000))
    assert "at the first search" in index.plan
    # 100 queries x 100 hits; the measured recall exceeds .95 by two standard errors, so .93 is four or more away
    assert recall_of(index, clean(2, 100), 100) >= 0.93
    assert "recall@100 0.9" in index.plan
    assert opened(index) <= 20
    assert recall_of(index, clean(2, 50), 900) >= 0.93  # many hits are measured apart
    assert "up to 1,600 hits" in index.plan


def opened(index):
    return int(index.plan.split(": ")[1].split()[0])


def test_codes_without_structure_are_compared_one_by_one(small):
    rng = np.random.default_rng(0)
    index = HammingIndex(64)
    index.add(np.arange(2_500), rng.integers(0, 256, (2_500, 8), dtype=np.uint8))
    assert recall_of(index, rng.integers(0, 256, (20, 8), dtype=np.uint8), 50) == 1.0
    assert "all codes are compared" in index.plan


def test_noise_in_the_queries_needs_more_lists(small):
    index = HammingIndex(64, recall=0.9)
    index.add(np.arange(6_000), clean(0, 6_000))
    noise = pack(np.random.default_rng(3).random((200, 64)) < 0.2)
    counts = []
    for asked in ({}, {"flips": 0.2}, {"queries": clean(5, 200) ^ noise}):
        index.build(**asked)
        counts.append(opened(index))
    assert counts[0] < min(counts[1:])
    assert recall_of(index, clean(6, 200) ^ noise, 100) >= 0.88  # measured above .9 by two standard errors


def test_lists_follow_every_change():
    index = HammingIndex(64, kind="ivf", recall=1.0)  # all that was measured must be found
    codes, other = clean(0, 1_000), clean(1, 400)
    index.add(np.arange(1_000), codes)
    index.build()
    lists = index._lists
    index.add(np.arange(1_000, 1_200), other[:200])
    index.remove(np.arange(0, 1_200, 5))
    index.update(np.arange(1, 1_001, 5), other[200:])
    assert index._lists is lists
    table = dict(enumerate([*codes, *other[:200]]))
    table.update(zip(range(1, 1_001, 5), other[200:], strict=True))
    table = {key: code for key, code in table.items() if key % 5}
    assert index.ids.tolist() == list(table)
    assert np.array_equal(index.codes, np.stack(list(table.values())))
    distances, positions = lists.search(index.codes, 1, len(lists))
    assert (distances == 0).all()
    assert np.array_equal(index.codes[positions[:, 0]], index.codes)
    nearest = hamming(index.codes, lists.centroids)
    assert np.array_equal(nearest[np.arange(960), lists.assignment], nearest.min(axis=1))
    index.remove(np.arange(600))
    assert index._lists is None  # half are gone


def test_searches_of_several_threads_agree_and_threads_are_given_back():
    index, before = HammingIndex(64, kind="ivf", recall=0.9, threads=1), faiss.omp_get_max_threads()
    index.add(np.arange(1_000), clean(0, 1_000))
    queries = clean(2, 30)
    expected = {k: HammingIndex.search(index, queries, k).distances for k in (5, 600)}
    results = []
    threads = [
        threading.Thread(target=lambda k=k: results.append((k, index.search(queries, k).distances)))
        for k in (5, 600) * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(np.array_equal(found, expected[k]) for k, found in results)
    tiny = HammingIndex(8, threads=before + 1)
    tiny.add([1], pack(np.ones((1, 8))))
    tiny.search(pack(np.ones((1, 8))), 1)
    assert faiss.omp_get_max_threads() == before


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: HammingIndex(0), "bits"),
        (lambda: HammingIndex(8, recall=0), "recall"),
        (lambda: HammingIndex(8, recall=1.1), "recall"),
        (lambda: HammingIndex(8, threads=0), "threads"),
        (lambda: HammingIndex(8, kind="exat"), "'exact'"),
        (lambda: HammingIndex(8).build(flips=0.6), "flips"),
        (lambda: HammingIndex(8).build(np.empty((0, 1), dtype=np.uint8)), "queries"),
    ],
)
def test_an_impossible_index_is_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()


# --- real-valued queries and symbols -----------------------------------------------------------------------------


def test_real_valued_queries_rank_by_inner_product(monkeypatch):
    monkeypatch.setattr("blindsight.search.codes._ROWS", 100)
    rng = np.random.default_rng(0)
    codes = pack(rng.random((450, 36)) < 0.5)
    index = HammingIndex(36)
    assert (index.search_scores(np.zeros((2, 36)), 3).scores == -np.inf).all()
    index.add(np.arange(450) + 7, codes)
    scores = rng.standard_normal((6, 36))
    hits = index.search_scores(scores, 30)
    products = scores @ (2.0 * unpack(codes, 36) - 1).T
    found = np.take_along_axis(products, hits.ids - 7, axis=1)  # by value: rounding may exchange neighbours
    np.testing.assert_allclose(found, -np.sort(-products, axis=1)[:, :30], atol=1e-4)
    np.testing.assert_allclose(hits.scores, found, atol=1e-4)
    signs = pack(rng.random((5, 36)) < 0.5)  # signs as scores rank as the Hamming distance does
    exact, scored = index.search(signs, 460), index.search_scores(2.0 * unpack(signs, 36) - 1, 460)
    assert np.array_equal(scored.scores[:, :450], 36 - 2 * exact.distances[:, :450])
    assert (scored.scores[:, 450:] == -np.inf).all()
    assert np.array_equal(scored.ids, exact.ids)
    for wrong in (np.zeros((2, 7)), np.zeros(36), np.full((1, 36), np.nan), np.array([["a"] * 36])):
        with pytest.raises(InputError, match="score"):
            index.search_scores(wrong, 1)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 40), st.integers(0, 10**6))
def test_symbols_are_ranked_by_the_scores_of_their_lists(symbols, k, seed):
    scores = np.random.default_rng(seed).integers(0, 4, (3, 6)) / 4
    index = SymbolIndex(6)
    index.add([f"r{number}" for number in range(len(symbols))], np.array(symbols, dtype=np.int64))
    hits = index.search(scores, k)
    for row, ids, values in zip(scores, hits.ids.tolist(), hits.scores.tolist(), strict=True):
        order = sorted(range(len(symbols)), key=lambda at: (-row[symbols[at]], symbols[at], at))[:k]
        filling = k - len(order)
        assert ids == [f"r{at}" for at in order] + ([None] if symbols else [-1]) * filling
        assert values == [row[symbols[at]] for at in order] + [-np.inf] * filling


def test_symbols_are_changed_checked_and_saved(tmp_path):
    index = SymbolIndex(4)
    index.add([5, 6, 7], [0, 3, 3])
    for ids, symbols in (([8, 5], [1, 1]), ([8], [4]), ([8], [0.5])):
        with pytest.raises(InputError):
            index.add(ids, symbols)
    with pytest.raises(InputError, match="outputs"):
        SymbolIndex(0)
    index.update([7], [0])
    assert index.remove([6, 9]) == 1
    index.add([9], [2])
    assert (len(index), 7 in index, 6 in index, index.ids.tolist()) == (3, True, False, [5, 7, 9])
    index.save(tmp_path / "symbols")
    hits = SymbolIndex.load(tmp_path / "symbols").search([[0.1, 0.2, 0.6, 0.1]], 4)
    assert hits.ids.tolist() == [[9, 5, 7, -1]]
    with pytest.raises(CorruptFileError, match="symbol-index"):
        HammingIndex.load(tmp_path / "symbols")


# --- files -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["integers", "text", "lists", "empty"])
def saved(request, tmp_path):
    index = HammingIndex(BITS, kind="ivf" if request.param == "lists" else "auto", recall=0.8)
    if request.param != "empty":
        rows = 100
        ids = [f"é{row}" for row in range(rows)] if request.param == "text" else np.arange(rows)[::-1] - 3
        index.add(ids, clustered(0, rows))
    index.search(clustered(1, 1), 10)
    path = tmp_path / "index"
    index.save(path)
    return index, path


@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_gives_back_the_same_index(saved, mmap):
    index, path = saved
    index.save(path, private=True)
    assert path.stat().st_mode & 0o777 == 0o600  # its owner's alone
    for verify in (False, True):
        again = HammingIndex.load(path, mmap=mmap, verify=verify)
        queries = clustered(1, 10)
        assert (again.bits, again.kind, again.recall, again.plan) == (index.bits, index.kind, index.recall, index.plan)
        assert again.ids.tolist() == index.ids.tolist()
        assert np.array_equal(again.codes, index.codes)
        assert np.array_equal(again.search(queries, 10).distances, index.search(queries, 10).distances)
        assert again.search(queries, 10).ids.tolist() == index.search(queries, 10).ids.tolist()
    codes = again.codes
    while isinstance(codes.base, np.ndarray):
        codes = codes.base
    assert (type(codes.base).__name__ in ("mmap", "memoryview")) or not mmap  # not in memory


def test_a_mapped_index_can_be_changed_and_its_file_stays(saved):
    index, path = saved
    before = path.read_bytes()
    again = HammingIndex.load(path, mmap=True)
    text = len(index) and isinstance(index.ids.tolist()[0], str)
    again.add(["new"] if text else [1_000], clustered(3, 1))
    again.update(["new"] if text else [1_000], clustered(4, 1))
    if len(index):
        again.update(index.ids[:1], clustered(5, 1))
        assert again.remove(index.ids[1:3]) == 2
    assert path.read_bytes() == before
    again.save(path)  # replaces the file that others have mapped
    assert HammingIndex.load(path).ids.tolist() == again.ids.tolist()


def test_every_altered_byte_and_every_shorter_file_is_refused_or_harmless(saved):
    index, path = saved
    whole = path.read_bytes()
    refused = 0
    places = np.random.default_rng(0).integers(0, len(whole), 40).tolist()
    for damaged in [
        *(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in [*range(64), *places]),
        *(whole[:at] for at in (0, 1, 16, 59, 60, 61, len(whole) // 2, len(whole) - 1)),
        whole + b"\0",
        whole + whole,
        b"PK\3\4" + whole,
    ]:
        path.write_bytes(damaged)
        try:
            again = HammingIndex.load(path)
        except CorruptFileError:
            refused += 1
        else:  # a byte that says nothing about the content
            assert again.ids.tolist() == index.ids.tolist()
            assert np.array_equal(again.codes, index.codes)
    assert refused > 30


def test_a_file_of_another_nature_is_refused(tmp_path):
    (tmp_path / "picture").write_bytes(b"GIF89a")
    with pytest.raises(CorruptFileError):
        HammingIndex.load(tmp_path / "picture")
    for nothing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(StorageError):
            HammingIndex.load(nothing)


@pytest.mark.parametrize("kind", [HammingIndex, SymbolIndex])
def test_an_index_of_an_older_version_is_refused_and_stays(tmp_path, kind):
    path = tmp_path / "index"
    path.write_bytes(b"blindsight index\1\0\0\0" + bytes(200))
    before = path.read_bytes()
    with pytest.raises(CorruptFileError, match="index"):
        kind.load(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("document", "changes", "match"),
    [
        ({"bits": 19}, {}, "bits beyond the 19"),
        ({"bits": 64}, {}, "must be uint8"),
        ({"kind": "hnsw"}, {}, "unknown kind of index"),
        ({"recall": "much"}, {}, "usable"),
        ({}, {"ids": np.zeros(200, dtype=np.int64)}, "occurs twice"),
        ({}, {"ids": np.arange(3)}, "200 codes and 3 ids"),
        ({}, {"lists": np.full(200, 99, dtype=np.int32)}, "lists do not fit"),
        ({}, {"lists": np.zeros(3, dtype=np.int32)}, "lists do not fit"),
        ({"plans": [{"k": 3}]}, {}, "usable"),
        ({"plans": [{"k": 100, "lists": 14, "probes": 15, "recall": 0.9}]}, {}, "plans do not fit"),
        ({"plans": None}, {}, "usable"),
    ],
)
def test_a_sealed_file_that_makes_no_sense_is_refused(tmp_path, document, changes, match):
    index = HammingIndex(BITS, kind="ivf", recall=0.8)
    index.add(np.arange(200), clustered(0, 200) | 0x08)  # bit 19 is set
    index.build()
    sections = {
        "codes": index.codes,
        "ids": index.ids,
        "centroids": index._lists.centroids,
        "lists": index._lists.assignment.astype(np.int32),
    }
    plans = [{"k": 100, "lists": 14, "probes": 3, "recall": 0.9}]
    words = {"bits": BITS, "kind": "ivf", "recall": 0.8, "plans": plans} | document
    write_arrays(tmp_path / "index", "blindsight/code-index.1", words, sections | changes)
    with pytest.raises(CorruptFileError, match=match):
        HammingIndex.load(tmp_path / "index")


def test_a_file_that_cannot_be_written_leaves_the_old_one(saved, monkeypatch):
    index, path = saved
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="the disk is full"):
        index.save(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["exact", "ivf"])
def test_removing_one_by_one_moves_the_codes_once_in_a_while(kind, monkeypatch):
    """2,500 single removals from 10,000 codes close the gaps a few dozen times, and answers stay right in between."""
    closed = []
    real = Rows.close_gaps
    monkeypatch.setattr(Rows, "close_gaps", lambda rows: closed.append(len(rows.gone)) or real(rows))
    index, oracle, codes = HammingIndex(BITS, kind=kind, recall=1.0), Oracle(), clustered(0, 10_000)
    ids = np.random.default_rng(3).permutation(10_000).tolist()
    index.add(ids, codes)
    oracle.add(ids, codes)
    index.build()
    for step, key in enumerate(ids[::4]):
        assert index.remove([key]) == 1
        oracle.remove([key])
        if step % 500 == 77:  # with tombstones among the nearest, for those of a cluster are equal
            assert_answers(index, oracle, codes[:6], 30, exact=kind == "exact")
            near = index.within(codes[:1], 2)
            assert near.ids.tolist() == [key for key, far in oracle.ranked(codes[0]) if far <= 2]
            assert index.ids.tolist() == list(oracle.rows)
            assert index.remove([key]) == 0
            assert key not in index
    assert sum(map(bool, closed)) < 60
    back = ids[-4]
    with pytest.raises(InputError, match="already"):
        index.add([ids[1]], codes[:1])
    index.add([back], codes[:1]) if back not in index else index.update([back], codes[:1])
    assert index.search(codes[:1], 1).distances[0, 0] == 0
    assert len(index) == len(index.ids) == len(index.codes)


def test_an_id_that_was_removed_may_come_back():
    index, codes = HammingIndex(BITS), clustered(1, 100)
    index.add(list(range(100)), codes)
    for _ in range(3):
        index.remove([7])
        index.add([7], codes[7:8])
    assert index.ids.tolist() == [*range(7), *range(8, 100), 7]
    index.remove([3])
    scores = np.where(np.unpackbits(codes[:1], axis=1, bitorder="little")[:, :BITS], 1.0, -1.0)
    assert 3 not in index.search_scores(scores, 99).ids
