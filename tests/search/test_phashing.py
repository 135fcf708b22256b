"""PHashing does what the paper says, and its statement says what that is worth."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from blindsight.errors import InputError, PrivacyError
from blindsight.rng import seeded_bytes
from blindsight.search.codes import hamming, unpack
from blindsight.search.hashers import ITQ, LSH
from blindsight.search.published import PHashing


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


def test_the_proven_loss_is_the_worst_ratio_of_probabilities_by_enumeration(records):
    learner = LSH(4).fit(records)
    hasher = PHashing(learner, 1.0, public_function=True).fit(records)
    codes, beta = list(product((0, 1), repeat=4)), math.exp(-1)

    def chance(truth, released):
        return math.prod(beta if a != b else 1 - beta for a, b in zip(truth, released, strict=True))

    worst = max(math.log(chance(a, out) / chance(b, out)) for a in codes for b in codes for out in codes)
    assert hasher.statement_.epsilon == pytest.approx(worst, rel=1e-9)


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
