"""PITQ equals ITQ, and a test is the proof that it is not private."""

import math

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import ortho_group

from blindsight.errors import InputError
from blindsight.metrics import query_average_precision
from blindsight.rng import seeded_bytes
from blindsight.search.codes import hamming, unpack
from blindsight.search.function import LinearHash
from blindsight.search.hashers import ITQ, nearest_rotation, principal_directions, project
from blindsight.search.published import PITQ

STEPS = ["published", "procrustes"]


@pytest.fixture(scope="module")
def pictures():
    rng = np.random.default_rng(8)
    centres, labels = rng.normal(0, 1, (8, 40)), rng.integers(8, size=1200)
    return (centres[labels] + rng.normal(0, 1.2, (1200, 40))).astype(np.float32), labels


def clear_of_zero(function, X):
    """Return the rows no score of which is so near zero that rounding could decide its sign."""
    return X[np.abs(function.scores(X)).min(axis=1) > 1e-3]


def test_the_mirrored_record_has_the_complementary_code_under_every_rotation(pictures):
    """With public mean and directions, releases of y and of 2 mu - y never coincide: no finite epsilon holds."""
    X = pictures[0]
    mean, W = principal_directions(X, 16)
    for seed in range(20):
        R = ortho_group.rvs(16, random_state=seed).astype(np.float32)
        function = LinearHash(mean, W @ R)
        rows = clear_of_zero(function, X)
        assert len(rows) > 1000
        one, two = (unpack(function(side), 16) for side in (rows, 2 * mean - rows))
        np.testing.assert_array_equal(one, ~two)


@pytest.mark.parametrize("step", STEPS)
def test_released_codes_are_the_true_codes(pictures, step):
    learner = PITQ(16, 1.0, iterations=10, step=step).fit(pictures[0])
    np.testing.assert_array_equal(learner.codes_, learner.transform(pictures[0]))
    rows = clear_of_zero(learner.function_, pictures[0])
    mirrored = 2 * learner.function_.mean - rows
    np.testing.assert_array_equal(hamming(learner.transform(rows), learner.transform(mirrored)).diagonal(), 16)


@pytest.mark.parametrize("iterations", [4, 5])
def test_with_beta_near_one_it_is_itq_up_to_signs(pictures, iterations):
    X = pictures[0]
    private = PITQ(16, 1e-9, iterations, step="procrustes", random_state=3).fit(X)
    plain = ITQ(16, iterations, random_state=3).fit(X)
    assert private.beta > 1 - 1e-8
    rows = clear_of_zero(plain.function_, X)
    distances = hamming(private.transform(rows), plain.transform(rows)).diagonal()
    assert set(distances) == {16 * (iterations % 2)}


@pytest.mark.parametrize("step", STEPS)
def test_one_step_against_scipys_procrustes(pictures, step):
    X = pictures[0]
    learner = PITQ(12, 700.0, iterations=1, step=step, random_state=5).fit(X)  # hardly ever flips
    mean, W = principal_directions(X, 12)
    V = project(X, mean, W)
    start = nearest_rotation(np.random.default_rng(5).standard_normal((12, 12)))[0]
    best = orthogonal_procrustes(V, np.where(V @ start >= 0, 1, -1))[0]
    expected = best if step == "procrustes" else best.T
    np.testing.assert_allclose(learner.function_.matrix, W @ expected, atol=1e-3)
    flips = [PITQ(12, 40.0, iterations=20, random_state=5, source=seeded_bytes(seed)).fit(X) for seed in (1, 2)]
    assert flips[0].function_.digest != flips[1].function_.digest  # else this could not tell flips from none
    assert flips[0].beta == math.exp(-2)


def test_the_right_step_finds_as_much_as_itq_and_the_published_one_nearly(pictures):
    X, labels = pictures

    def found(learner):
        codes = learner.fit(X).transform(X)
        return query_average_precision(hamming(codes[:100], codes), labels[:100, None] == labels).mean()

    right, published = (found(PITQ(16, 1.0, step=step, source=seeded_bytes(1))) for step in ("procrustes", "published"))
    # The bytes are fixed, so there are no false alarms. Over 8 starts and 3 streams of bytes the right step came within
    # 0.031 of ITQ and the published one within 0.07; the random rotation they start from stays 0.15 or more below ITQ.
    assert right == pytest.approx(found(ITQ(16)), abs=0.05)
    assert found(ITQ(16, iterations=0)) + 0.08 < published < right


def test_the_statement_says_that_it_is_not_private_and_why(pictures):
    statement = PITQ(16, 1.0, iterations=50).fit(pictures[0]).statement_
    assert (statement.guarantee, statement.epsilon, statement.status) == ("none", math.inf, "unproven")
    assert "2 mu - y" in statement.claim.why_it_fails
    assert "0.980199" in statement.mechanism
    assert "true codes" in statement.not_protected[0]
    for learner, named in [
        (PITQ(16, 0.0), "epsilon"),
        (PITQ(16, 1.0, iterations=0), "iterations"),
        (PITQ(16, 1.0, step="printed"), "step"),
        (PITQ(64, 1.0), "40 directions"),
    ]:
        with pytest.raises(InputError, match=named):
            learner.fit(pictures[0])
