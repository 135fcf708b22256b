"""Sifts that tell little alone tell much together, and frames add up; sifts of noise tell nothing either way."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from blindsight.audit.collusion.sifts import average_frames, frames_findings, pool_sifts, pooled_finding
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.attackers import Attacker
from blindsight.sift.sift import LinearSift
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

LIGHT = Verifier([Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))])


def linear(*weights):
    matrix = np.zeros((4, 1), dtype=np.float32)
    matrix[: len(weights), 0] = weights
    return LinearSift(np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32), matrix)


@pytest.fixture(scope="module")
def data():
    """Feature 0 is noise, feature 1 shows the attribute, 2 and 3 are noise."""
    rng = np.random.default_rng(1)
    hidden = rng.integers(0, 2, 4000).astype(np.int8)
    X = rng.normal(size=(4000, 4))
    X[:, 1] = 2 * hidden - 1 + 0.5 * X[:, 1]
    return VerificationSet(X.astype(np.float32), {"hidden": hidden})


def test_two_accepted_sifts_give_the_attribute_away_together(data):
    pooled = pool_sifts([linear(1, 0.1), linear(1, -0.1)], ["hidden"], data, LIGHT)  # the difference shows it
    assert [one.verdict for one in pooled.alone] == ["accept", "accept"]
    row = pooled_finding(pooled)
    assert row.measured.low > 0.4
    assert row.verdict == "as stated"
    assert row.claim == (
        "2 sifts, each accepted by itself, together: nobody reads what is private 0.1 better than a blind guess"
    )
    assert row.details["PrivLoss of each alone"].count("accept") == 2


def test_a_sift_that_leaks_by_itself_has_no_statement_that_admits_more(data):
    row = pooled_finding(pool_sifts([linear(0, 1), linear(1)], ["hidden"], data, LIGHT))
    assert row.verdict == "leaks"
    assert "not all accepted by themselves" in row.claim


def test_too_few_rows_decide_nothing(data):
    few = VerificationSet(data.features[:300, :], {"hidden": data.labels["hidden"][:300]})
    pooled = pool_sifts([linear(0, 0, 1), linear(0, 0, 0, 1)], ["hidden"], few, LIGHT)
    assert pooled.together.verdict == "inconclusive"
    assert pooled_finding(pooled).verdict == "undecided"


def test_sifts_of_noise_tell_nothing_together(data):
    # 2,000 rows deviate by .011: PrivLoss beyond .06 less than once in 10^7; the limit stays below .1.
    pooled = pool_sifts([linear(0, 0, 1), linear(0, 0, 0, 1)], ["hidden"], data, LIGHT)
    row = pooled_finding(pooled)
    assert row.verdict == "not refuted"
    assert abs(row.measured.value) < 0.06


def test_an_app_that_averages_frames_reads_what_one_does_not_show():
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.integers(0, 2, 1500), 10).astype(np.int8)
    released = rng.normal(size=(15000, 1))
    released[:, 0] += 0.3 * hidden  # one frame: balanced accuracy .56; the mean of ten: .68
    leaks = average_frames(released, {"hidden": hidden}, np.repeat(np.arange(1500), 10), LIGHT, frames=(1, 10))
    rows = frames_findings(leaks)
    assert [row.attack for row in rows] == [
        "an app with 10 frames of a person, concatenated",
        "an app with 10 frames of a person, mean",
    ]
    # .18 is true of ten; 750 test windows deviate by .017: below .1 less than once in 10^6.
    assert min(row.measured.value for row in rows) > 0.1
    assert {row.verdict for row in rows} == {"as stated"}
    assert "(accept)" in rows[0].details["PrivLoss of one frame"]
    assert "10 frames of a person through a sift that is accepted for one: nobody reads" in rows[0].claim
    alone = frames_findings([leak for leak in leaks if leak.frames > 1])  # nobody knows whether one frame is accepted
    assert {row.verdict for row in alone} == {"leaks"}


def test_bad_input(data):
    with pytest.raises(InputError, match="two sifts or more; got 1"):
        pool_sifts([linear(1)], ["hidden"], data, LIGHT)
    with pytest.raises(UnknownNameError, match="unknown private attribute"):
        pool_sifts([linear(1), linear(0, 1)], ["hiden"], data, LIGHT)
