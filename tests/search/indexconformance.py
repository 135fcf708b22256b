"""What every index of codes must do, whoever keeps them: one class of tests, given an `index` fixture by its users.

An index is judged by a table of its own (`Oracle`): a dictionary, and numpy's comparison of all codes. Kinds that are
exact must give the very same hits in the same order; others must reach the recall they were asked for.
"""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from blindsight.errors import InputError
from blindsight.search.codes import hamming, pack

BITS = 20
RECALL = 0.95  # what indexes are asked for
# What a test's queries must show. pgvector draws its lists at random: over 60 builds the recall@100 of 25 queries had a
# mean of .985 and a standard deviation of .007, so a false alarm is more than 30 of those away.
LEAST = 0.75


def clustered(seed, rows, bits=BITS, centres=12, spread=0.1):
    """Codes around common centres, the same for every seed: some equal, many ties."""
    middle = np.random.default_rng(99).random((centres, bits)) < 0.5
    rng = np.random.default_rng(seed)
    return pack(middle[rng.integers(0, centres, rows)] ^ (rng.random((rows, bits)) < spread))


class Oracle:
    """Ids and codes in the order of their arrival, searched by comparing everything."""

    def __init__(self):
        self.rows = {}

    def add(self, ids, codes):
        self.rows.update(zip(ids, codes, strict=True))

    def remove(self, ids):
        for key in ids:
            self.rows.pop(key, None)

    def ranked(self, query):
        """All (id, distance), nearest first, the oldest first among equals."""
        if not self.rows:
            return []
        distances = hamming(query[None], np.stack(list(self.rows.values())))[0].astype(int)
        return sorted(zip(self.rows, distances.tolist(), strict=True), key=lambda row: row[1])


def assert_answers(index, oracle, queries, k, *, exact):
    """The search's answers are right: identical to the oracle's, or of distances that reach the recall."""
    hits = index.search(queries, k)
    assert hits.ids.shape == hits.distances.shape == (len(queries), k)
    good = wanted = 0
    for query, ids, distances in zip(queries, hits.ids.tolist(), hits.distances.tolist(), strict=True):
        ranked = oracle.ranked(query)
        count = min(k, len(ranked))
        found, far = list(zip(ids, distances, strict=True)), [distance for _, distance in ranked[:count]]
        assert all(distance == -1 and key in (-1, None) for key, distance in found[count:])
        assert set(found[:count]) <= set(ranked)
        assert len(set(ids[:count])) == count
        assert distances[:count] == sorted(distances[:count])
        assert not exact or found[:count] == ranked[:count]
        good += sum(distance <= far[-1] for distance in distances[:count])
        wanted += count
    assert good >= LEAST * wanted


class SearchConformance:
    """Right answers after every change. A user provides `index` (empty, of BITS bits, wanting RECALL) and `exact`."""

    @pytest.fixture(params=["integers", "text"])
    def ids(self, request):
        """120 ids in no order; integers reach the ends of int64 and hold -1."""
        numbers = np.random.default_rng(5).permutation(120) - 60
        if request.param == "text":
            return [f"holiday/{number} ✓'\"%s" for number in numbers]
        return [-(2**63), 2**63 - 1, *numbers.tolist()[2:]]

    @pytest.fixture
    def filled(self, index, ids):
        """The index with 120 codes, prepared, and its oracle."""
        codes, oracle = clustered(0, 120), Oracle()
        index.add(ids[:80], codes[:80])
        index.add(ids[80:], codes[80:])
        index.build()
        oracle.add(ids, codes)
        return index, oracle

    def test_an_empty_index_answers_with_nothing(self, index):
        queries = clustered(1, 3)
        hits = index.search(queries, 4)
        assert (hits.distances == -1).all()
        assert (hits.ids == -1).all()
        assert hits.ids.shape == (3, 4)
        assert index.within(queries, BITS).ids.size == 0
        assert (len(index), 7 in index, "a" in index) == (0, False, False)
        assert index.remove([1, 2]) == index.remove(["a"]) == 0
        index.build()
        assert index.plan

    def test_a_search_finds_the_nearest_in_order_and_all_within_a_radius(self, filled, ids, exact):
        index, oracle = filled
        queries = clustered(1, 20)
        for k in (1, 10, 60, 130):  # more than there are: filled up
            assert_answers(index, oracle, queries, k, exact=exact)
        assert index.search(clustered(1, 0), 3).ids.shape == (0, 3)
        together = index.search(queries, 7)
        for number in (0, 11):  # a batch answers like single queries
            alone = index.search(queries[number : number + 1], 7)
            assert alone.ids.tolist() == together.ids[number : number + 1].tolist()
            assert alone.distances.tolist() == together.distances[number : number + 1].tolist()
        for radius in (0, 4, BITS, 10**6):
            found = index.within(queries[:6], radius)
            assert len(found) == 6
            for number, query in enumerate(queries[:6]):
                pairs = zip(*(part.tolist() for part in found.of(number)), strict=True)
                assert list(pairs) == [row for row in oracle.ranked(query) if row[1] <= radius]
        assert index.ids.tolist() == ids
        assert len(index) == 120
        assert all(key in index for key in ids[::50])
        for stranger in (10**6, "nobody", 2**70, 1.5, None, b"x", True):
            assert stranger not in index

    def test_removed_codes_are_not_found_again_until_they_come_back(self, filled, ids, exact):
        index, oracle = filled
        gone = [*ids[3:40], ids[3], *ids[100:110]]
        strangers = [10**6, 10**7] if isinstance(ids[0], int) else ["x", "y"]
        assert index.remove(gone + strangers) == 47
        oracle.remove(gone)
        assert len(index) == 73
        assert ids[3] not in index
        code = clustered(8, 1)
        index.add(ids[3:4], code)
        oracle.add(ids[3:4], code)
        assert index.ids.tolist() == list(oracle.rows)
        assert_answers(index, oracle, np.r_[code, clustered(1, 10)], 10, exact=exact)
        assert index.remove(ids) == 74
        assert (index.search(clustered(1, 2), 3).distances == -1).all()

    def test_an_update_changes_codes_and_keeps_ages(self, filled, ids, exact):
        index, oracle = filled
        codes = clustered(9, 40)
        index.update(ids[20:60], codes)
        oracle.add(ids[20:60], codes)
        assert index.ids.tolist() == ids
        assert_answers(index, oracle, codes[:20], 10, exact=exact)


class IndexConformance(SearchConformance):
    """The same, and a sentence for everything that cannot be."""

    def test_double_ids_and_wrong_codes_are_refused_and_nothing_changes(self, filled, ids, exact):
        index, oracle = filled
        new = [10**6, 10**7] if isinstance(ids[0], int) else ["x", "y"]
        for change, keys, named in [
            (index.add, [new[0], ids[7], new[1]], "already"),
            (index.add, [new[0], new[0]], "twice"),
            (index.update, [ids[0], ids[0]], "twice"),
            (index.update, [ids[0], new[0]], "not in the index"),
            (index.add, new[:1], "1 ids for 2 rows"),
        ]:
            with pytest.raises(InputError, match=named):
                change(keys, clustered(4, max(2, len(keys))))
        for wrong in (clustered(0, 1, bits=28), clustered(0, 1).astype(np.int64), clustered(0, 1)[0]):
            for call in (lambda code: index.add(new[:1], code), lambda code: index.search(code, 1)):
                with pytest.raises(InputError, match="uint8"):
                    call(wrong)
        with pytest.raises(InputError, match="beyond the 20"):
            index.add(new[:1], np.full((1, 3), 255, dtype=np.uint8))
        assert index.ids.tolist() == ids
        assert_answers(index, oracle, clustered(1, 10), 5, exact=exact)

    def test_what_can_be_no_id_is_refused(self, index):
        for wrong in ([1.5], [None], [True], [1, "a"], "a", 7, [2**63], [[1]], ["a\0"], ["\ud800"], np.array([[1]])):
            with pytest.raises(InputError, match="ids"):
                index.add(wrong, clustered(0, 1))
        assert len(index) == 0
        index.add([1], clustered(0, 1))
        for call in (index.add, index.update, lambda ids, codes: index.remove(ids)):
            with pytest.raises(InputError, match="integers; got text"):
                call(["1"], clustered(1, 1))
        assert "1" not in index
        assert index.ids.tolist() == [1]

    def test_impossible_k_and_radius_are_refused_and_nothing_may_be_added(self, index):
        for wrong in (0, -1, 1.5, True, "3"):
            with pytest.raises(InputError, match="k, "):
                index.search(clustered(0, 1), wrong)
            if wrong is True or wrong != 0:
                with pytest.raises(InputError, match="radius"):
                    index.within(clustered(0, 1), wrong)
        none = clustered(0, 0)
        index.add([], none)
        index.update([], none)
        assert index.remove([]) == 0
        index.add(np.array([4], dtype=np.uint8), clustered(0, 1))
        index.add([], none)
        assert index.ids.tolist() == [4]


class IndexMachine(RuleBasedStateMachine):
    """Any sequence of changes leaves an exact index as the oracle says; `make` returns an empty index."""

    keys = st.integers(-5, 15)

    @staticmethod
    def make():
        raise NotImplementedError

    @initialize()
    def begin(self):
        self.index, self.oracle = self.make(), Oracle()

    @rule(ids=st.lists(keys, max_size=6), seed=st.integers(0, 99))
    def add(self, ids, seed):
        codes = clustered(seed, len(ids))
        if len(set(ids)) < len(ids) or set(ids) & set(self.oracle.rows):
            with pytest.raises(InputError):
                self.index.add(ids, codes)
        else:
            self.index.add(ids, codes)
            self.oracle.add(ids, codes)

    @rule(ids=st.lists(keys, max_size=6))
    def remove(self, ids):
        assert self.index.remove(ids) == len(set(ids) & set(self.oracle.rows))
        self.oracle.remove(ids)

    @rule(ids=st.lists(keys, max_size=4, unique=True), seed=st.integers(0, 99))
    def update(self, ids, seed):
        codes = clustered(seed, len(ids))
        if set(ids) <= set(self.oracle.rows):
            self.index.update(ids, codes)
            self.oracle.add(ids, codes)
        else:
            with pytest.raises(InputError):
                self.index.update(ids, codes)

    @invariant()
    def agrees(self):
        if hasattr(self, "index"):
            assert self.index.ids.tolist() == list(self.oracle.rows)
            assert_answers(self.index, self.oracle, clustered(7, 2), 5, exact=True)
