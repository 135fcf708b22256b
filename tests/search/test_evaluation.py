"""Streaming evaluation against the metrics on whole matrices, and against random orders of tied items."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.metrics import query_average_precision, radius_precision_recall
from blindsight.search import evaluation
from blindsight.search.codes import hamming, pack
from blindsight.search.evaluation import evaluate_codes, evaluate_distances

BITS = 13


@pytest.fixture
def collection():
    rng = np.random.default_rng(0)
    queries, items = (pack(rng.random((n, BITS)) < 0.5) for n in (23, 200))
    return queries, items, rng.integers(0, 4, 23), rng.integers(0, 4, 200)


@pytest.fixture
def _small_blocks(monkeypatch):
    """Make the tests' collections large: several blocks of queries, several of distances in each."""
    monkeypatch.setattr(evaluation, "_PAIRS", 600)
    monkeypatch.setattr(evaluation, "_QUERIES", 10)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize("ties", ["expected", "optimistic", "pessimistic", "stable"])
@pytest.mark.parametrize("top", [None, 17])
def test_blocks_give_what_the_metrics_say_of_the_whole_matrix(collection, ties, top):
    queries, items, query_labels, labels = collection
    distances, relevant = hamming(queries, items), query_labels[:, None] == labels
    found = evaluate_codes(queries, items, query_labels, labels, bits=BITS, top=top, ties=ties)
    expected = query_average_precision(distances, relevant, top=top, ties=ties)
    precision, recall = radius_precision_recall(distances, relevant, BITS)
    np.testing.assert_allclose(found.per_query, expected)
    assert found.mean_average_precision == pytest.approx(expected.mean())
    np.testing.assert_allclose(found.precision, precision.mean(axis=0))
    np.testing.assert_allclose(found.recall, recall.mean(axis=0))
    assert (found.queries, found.items) == (23, 200)
    ranked = evaluate_distances(lambda span: distances[span] / 7, query_labels, labels, top=top, ties=ties)
    np.testing.assert_allclose(ranked.per_query, expected)
    assert (ranked.queries, ranked.items, ranked.mean_average_precision) == (23, 200, pytest.approx(expected.mean()))


@pytest.mark.usefixtures("_small_blocks")
def test_rows_that_share_a_label_are_relevant(collection):
    queries, items, _, _ = collection
    rng = np.random.default_rng(1)
    wanted, offered = rng.random((23, 5)) < 0.3, rng.random((200, 5)) < 0.3
    wanted[:, 0] |= ~wanted.any(axis=1)
    relevant = np.array([[bool(set(np.flatnonzero(a)) & set(np.flatnonzero(b))) for b in offered] for a in wanted])
    found = evaluate_codes(queries, items, wanted.astype(int), offered, bits=BITS)
    np.testing.assert_allclose(found.per_query, query_average_precision(hamming(queries, items), relevant))


def test_names_are_as_good_as_numbers(collection):
    queries, items, query_labels, labels = collection
    names = np.array(["shirt", "bag", "coat", "boot with laces"])
    by_name = evaluate_codes(queries, items, names[query_labels], names[labels], bits=BITS)
    by_number = evaluate_codes(queries, items, query_labels, labels, bits=BITS)
    np.testing.assert_array_equal(by_name.per_query, by_number.per_query)


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 2**32 - 1))
def test_expected_ties_are_the_mean_over_random_orders(seed):
    rng = np.random.default_rng(seed)
    items, labels = pack(rng.random((12, 2)) < 0.5), rng.integers(0, 2, 12)
    labels[0] = 1
    found = evaluate_codes(items[:1], items, [1], labels, bits=2).mean_average_precision
    distances, draws = hamming(items[:1], items)[0], 2_000
    scores = np.empty(draws)
    for draw in range(draws):
        hits = labels[np.lexsort((rng.random(12), distances))] == 1
        scores[draw] = np.mean((np.cumsum(hits) / np.arange(1, 13))[hits])
    # Scores lie in [0, 1]: by Hoeffding's inequality the mean of 2,000 is off by 0.07 with probability < 7e-9.
    assert found == pytest.approx(scores.mean(), abs=0.07)


@pytest.mark.usefixtures("_small_blocks")
def test_progress_is_told_and_blocks_are_as_large_as_asked(collection):
    queries, items, query_labels, labels = collection
    told, asked = [], []

    def distances(span):
        asked.append(span.stop - span.start)
        return hamming(queries[span], items)

    evaluate_codes(queries, items, query_labels, labels, bits=BITS, progress=lambda *report: told.append(report))
    assert told == [("evaluating codes", done, 23) for done in (10, 20, 23)]
    evaluate_distances(distances, query_labels, labels, block=8)
    assert asked == [8, 8, 7]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"bits": 24}, "24 bits"),
        ({"query_labels": [1, 2]}, "2 labels"),
        ({"labels": [1]}, "2 codes"),
        ({"query_labels": [3]}, "query 0"),
        ({"query_labels": [[1, 0]], "labels": [[0, 1], [0, 0]]}, "query 0"),
        ({"query_labels": [[1, 0]]}, r"\(1, 2\)"),
        ({"query_labels": [[1, 5]], "labels": [[0, 1], [0, 0]]}, "got 5"),
        ({"query_labels": ["1"]}, "<U1"),
        ({"query_labels": [1.5]}, "float64"),
        ({"query_labels": 1}, r"\(\)"),
        ({"query_labels": [], "query_codes": np.zeros((0, 1), np.uint8)}, r"\(0,\)"),
        ({"top": 0}, "top"),
        ({"ties": "random"}, "'random'"),
    ],
)
def test_bad_input_is_refused(change, named):
    codes = pack([[1, 0], [0, 1]])
    arguments = {"query_codes": codes[:1], "codes": codes, "query_labels": [1], "labels": [1, 2], "bits": 2}
    with pytest.raises(InputError, match=named):
        evaluate_codes(**(arguments | change))


def test_distances_of_another_shape_are_refused():
    for refuse, named in [
        (lambda: evaluate_distances(lambda span: np.zeros((2, 2)), [0, 1], [0, 1, 1]), r"\(2, 3\)"),
        (lambda: evaluate_distances(lambda span: np.zeros((2, 3)), [0, 1], [0, 1, 1], block=0), "block"),
    ]:
        with pytest.raises(InputError, match=named):
            refuse()
