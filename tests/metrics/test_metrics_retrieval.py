"""Rankings and retrieval against their definitions and against every possible order of tied items."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.metrics import (
    average_precision,
    mean_average_precision,
    query_average_precision,
    radius_precision_recall,
    recall_at_k,
)
from blindsight.metrics.retrieval import average_precision_of_counts


def ranked_precision(relevant, top):
    """Average precision of one fixed order, written as its definition reads."""
    precisions = [sum(relevant[: j + 1]) / (j + 1) for j in range(min(top, len(relevant))) if relevant[j]]
    return sum(precisions) / min(sum(relevant), top)


def every_order(distances, relevant, top):
    """Average precision of each order of the items that the distances allow."""
    orders = permutations(range(len(distances)))
    sorted_orders = [o for o in orders if all(distances[a] <= distances[b] for a, b in pairwise(o))]
    return [ranked_precision([relevant[i] for i in order], top) for order in sorted_orders]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6), st.integers(1, 7))
def test_ties_against_all_orders(items, top):
    distances, relevant = (list(part) for part in zip(*items, strict=True))
    assume(any(relevant))
    scores = every_order(distances, relevant, top)
    got = {
        rule: query_average_precision([distances], [relevant], top=top, ties=rule)[0]
        for rule in ("expected", "optimistic", "pessimistic", "stable")
    }
    stable = [relevant[i] for i in sorted(range(len(items)), key=lambda i: distances[i])]
    assert got["expected"] == pytest.approx(np.mean(scores))
    assert got["optimistic"] == pytest.approx(max(scores))
    assert got["pessimistic"] == pytest.approx(min(scores))
    assert got["stable"] == pytest.approx(ranked_precision(stable, top))


@pytest.mark.parametrize("change", [float, lambda d: d - 9, lambda d: d * 10**6, np.uint8])
def test_only_the_order_of_distances_matters(change):
    rng = np.random.default_rng(1)
    distances, relevant = rng.integers(0, 5, (4, 30)), rng.random((4, 30)) < 0.4
    changed = np.vectorize(change)(distances)
    expected = query_average_precision(distances, relevant)
    np.testing.assert_allclose(query_average_precision(changed, relevant), expected)


def test_blocks_of_queries_give_what_all_queries_give():
    rng = np.random.default_rng(2)
    distances, relevant = rng.integers(0, 9, (7, 50)), rng.random((7, 50)) < 0.3
    blocks = [query_average_precision(distances[rows], relevant[rows], top=20) for rows in (slice(0, 3), slice(3, 7))]
    np.testing.assert_allclose(np.concatenate(blocks), query_average_precision(distances, relevant, top=20))


@pytest.mark.parametrize("rule", ["expected", "optimistic", "pessimistic"])
def test_counts_alone_decide_average_precision(rule):
    rng = np.random.default_rng(5)
    distances, relevant = rng.integers(0, 9, (7, 50)), rng.random((7, 50)) < 0.3
    at = distances[:, :, None] == np.arange(12)
    sizes, hits = at.sum(axis=1), (at & relevant[:, :, None]).sum(axis=1)
    expected = query_average_precision(distances, relevant, top=30, ties=rule)
    np.testing.assert_allclose(average_precision_of_counts(sizes, hits, top=30, ties=rule), expected)


def test_long_rankings_stay_accurate():
    rng = np.random.default_rng(3)
    distances, relevant = rng.permutation(20_000)[None, :], rng.random((1, 20_000)) < 0.1
    hits = relevant[0][np.argsort(distances[0])]
    expected = np.mean((np.cumsum(hits) / np.arange(1, 20_001))[hits])
    for rule in ("expected", "pessimistic"):
        assert query_average_precision(distances, relevant, ties=rule)[0] == pytest.approx(expected, abs=1e-9)


def test_random_codes_score_the_prevalence():
    rng = np.random.default_rng(4)
    distances = rng.binomial(48, 0.5, (50, 4_000))
    relevant = np.tile(np.arange(4_000) % 10 == 0, (50, 1))
    # The mean over 50 queries has a standard error of about 4e-4: 0.1 + 0.004 is ten of them (< 1e-20).
    assert query_average_precision(distances, relevant).mean() == pytest.approx(0.1, abs=4e-3)


def test_precision_and_recall_within_each_radius_by_counting():
    rng = np.random.default_rng(6)
    distances, relevant = rng.integers(1, 9, (5, 40)), rng.random((5, 40)) < 0.3
    precision, recall = radius_precision_recall(distances, relevant, bits=12)
    assert precision.shape == recall.shape == (5, 13)
    for query, radius in np.ndindex(5, 13):
        inside = distances[query] <= radius
        hits = (inside & relevant[query]).sum()
        assert precision[query, radius] == (hits / inside.sum() if inside.any() else 0)
        assert recall[query, radius] == hits / relevant[query].sum()


@given(st.lists(st.integers(0, 3), min_size=4, max_size=9), st.integers(1, 4), st.randoms(use_true_random=False))
def test_recall_is_the_best_overlap_with_any_true_neighbour_list(distances, k, random):
    found = [random.randrange(-1, len(distances)) for _ in range(k)]
    by_distance = sorted(range(len(distances)), key=lambda i: distances[i])
    kth = distances[by_distance[k - 1]]
    near = {i for i in by_distance if distances[i] < kth}
    tied = [i for i in by_distance if distances[i] == kth]
    best = max(len((near | set(rest)) & set(found)) for rest in permutations(tied, k - len(near)))
    assert recall_at_k([found], [distances])[0] == pytest.approx(best / k)


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=40))
def test_average_precision_takes_equal_scores_together(rows):
    truth, scores = (np.array(part) for part in zip(*rows, strict=True))
    assume(truth.any())
    area, recall = 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        found = truth[scores >= threshold]
        area, recall = area + (found.sum() / truth.sum() - recall) * found.mean(), found.sum() / truth.sum()
    assert average_precision(truth, scores) == pytest.approx(area)


def test_mean_average_precision_takes_the_most_frequent_labels_of_the_training_set():
    rng = np.random.default_rng(7)
    truth, scores = rng.integers(0, 2, (60, 4)), rng.random((60, 4))
    each = [average_precision(truth[:, j], scores[:, j]) for j in range(4)]
    assert mean_average_precision(truth, scores) == pytest.approx(np.mean(each))
    frequency = [5, 70, 70, 90]
    assert mean_average_precision(truth, scores, top=2, frequency=frequency) == pytest.approx((each[3] + each[1]) / 2)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: average_precision([0, 0], [1, 2]), "positive"),
        (lambda: average_precision([0, 1], [1, np.nan]), "scores .* nan"),
        (lambda: average_precision([0, 2], [1, 1]), "got 2"),
        (lambda: average_precision([0, 1], [1]), "one shape"),
        (lambda: average_precision([1], ["high"]), "scores must be numbers"),
        (lambda: mean_average_precision([[1, 0]], [[1, 1]]), r"\[1\]"),
        (lambda: mean_average_precision([[1, 1]], [[1, 1]], top=3), "top"),
        (lambda: mean_average_precision([[1, 1]], [[1, 1]], frequency=[1]), "frequency"),
        (lambda: query_average_precision([[1, 2], [1, 2]], [[1, 0], [0, 0]]), "query 1"),
        (lambda: query_average_precision([[1, np.inf]], [[1, 0]]), "inf"),
        (lambda: query_average_precision([[1]], [[1]], top=0), "top"),
        (lambda: query_average_precision([[1]], [[1]], ties="random"), "'random'"),
        (lambda: average_precision_of_counts(np.ones((1, 1)), np.ones((1, 1)), ties="stable"), "stable"),
        (lambda: query_average_precision([1, 2], [1, 0]), "2 dimension"),
        (lambda: radius_precision_recall([[0.5]], [[1]], bits=8), "bits = 8"),
        (lambda: radius_precision_recall([[9]], [[1]], bits=8), "bits = 8"),
        (lambda: recall_at_k([[4]], [[1, 2]]), "item numbers"),
        (lambda: recall_at_k([[0.0]], [[1, 2]]), "item numbers"),
        (lambda: recall_at_k([[0, 1, 0]], [[1, 2]]), "k <= items"),
    ],
)
def test_bad_input_is_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()
