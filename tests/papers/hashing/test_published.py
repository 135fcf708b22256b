"""PHashing and PITQ as published: the bits that are flipped, the losses, and tests that prove what is not private."""

import math

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.stats import binom, ortho_group

from blindsight.errors import InputError, PrivacyError
from blindsight.metrics import query_average_precision
from blindsight.papers.hashing.learners import LSH
from blindsight.papers.hashing.published import PITQ, PHashing
from blindsight.rng import seeded_bytes
from blindsight.search.codes import hamming, unpack
from blindsight.search.function import LinearHash
from blindsight.search.itq import ITQ, nearest_rotation, principal_directions, project


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(3)
    centres = rng.normal(0, 1, (6, 32))
    return (centres[rng.integers(6, size=600)] + rng.normal(0, 0.6, (600, 32))).astype(np.float32)


@pytest.fixture(scope="module")
def public_learner():
    return LSH(48).fit(np.random.default_rng(4).normal(0, 1, (50, 32)))


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_codes_are_the_learners_with_a_share_of_e_to_minus_epsilon_flipped(records, epsilon):
    hasher = PHashing(ITQ(24), epsilon, source=seeded_bytes(1)).fit(records)
    truth = ITQ(24).fit(records).transform(records)
    np.testing.assert_array_equal(hasher.transform(records), truth)
    for released in (hasher.codes_, hasher.release(records)):
        flipped = int(np.sum(unpack(released, 24) != unpack(truth, 24)))
        # False alarms: 2e-7 for each.
        low, high = binom.ppf([1e-7, 1 - 1e-7], records.shape[0] * 24, math.exp(-epsilon))
        assert low <= flipped <= high
    assert not hasattr(hasher.learner, "function_")


@pytest.mark.parametrize("epsilon", [0.3, 0.481])
def test_refuses_where_even_a_bit_loses_more_than_epsilon_unless_forced(records, epsilon):
    with pytest.raises(PrivacyError, match="force=True"):
        PHashing(ITQ(8), epsilon).fit(records)
    forced = PHashing(ITQ(8), epsilon, force=True).fit(records)
    assert forced.statement_.claim.why_it_fails != PHashing(ITQ(8), 0.4813).fit(records).statement_.claim.why_it_fails


def test_below_ln_2_a_record_is_farthest_from_its_own_release(records):
    hasher = PHashing(ITQ(24), 0.3, force=True, source=seeded_bytes(2)).fit(records)
    own = hamming(hasher.transform(records), hasher.codes_)
    assert np.mean(np.diag(own)) > 15 > own.mean()


def test_nothing_is_proven_of_a_function_learned_from_the_same_records(records):
    statement = PHashing(ITQ(24), 1.0).fit(records).statement_
    assert (statement.guarantee, statement.epsilon, statement.unit) == ("none", math.inf, "record")
    assert "0.5413 per bit" in statement.mechanism
    assert "codes of others" in statement.claim.why_it_fails


@pytest.mark.parametrize(("claimed", "proven"), [(1, 25.98), (2, 89.02), (4, 191.11)])
def test_with_a_public_function_a_record_loses_what_all_its_bits_lose(records, public_learner, claimed, proven):
    hasher = PHashing(public_learner, claimed, public_function=True).fit(records)
    assert hasher.statement_.epsilon == pytest.approx(proven, abs=0.01)
    assert hasher.loss.epsilon == hasher.statement_.epsilon
    assert (hasher.statement_.status, hasher.statement_.delta) == ("proven", 0.0)
    assert hasher.function_ is public_learner.function_
    assert hasher.statement_.claim.why_it_fails


def test_replacing_one_record_changes_the_codes_of_others(records):
    """The paper's proof needs that it does not."""
    other = records.copy()
    other[0] = -40 * other[0]
    one, two = (PHashing(ITQ(16), 1.0).fit(rows).transform(records[1:]) for rows in (records, other))
    changed = np.any(one != two, axis=1).mean()
    assert changed > 0.05


def test_the_digest_names_function_and_epsilon_and_injected_randomness_voids_the_statement(records, public_learner):
    def fitted(learner, epsilon, **more):
        return PHashing(learner, epsilon, public_function=True, **more).fit(records)

    one, two = fitted(public_learner, 1.0).digest, fitted(public_learner, 2.0).digest
    assert one == fitted(public_learner, 1.0).digest != two != fitted(LSH(48, 9).fit(records), 2.0).digest
    assert fitted(public_learner, 2.0, source=seeded_bytes(5)).statement_.status == "void"


def test_bad_input_is_refused(records):
    with pytest.raises(InputError, match="epsilon"):
        PHashing(ITQ(8), 0.0).fit(records)
    with pytest.raises(InputError, match="fit"):
        PHashing(ITQ(8), 1.0, public_function=True).fit(records)


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
