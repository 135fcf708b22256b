"""Entanglement against brute force, region maps on planted pixels, the matrix of policies and its regression."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import curve_fit
from sklearn.linear_model import LinearRegression, LogisticRegression

from blindsight.data.pixels import PixelFeatures, planes
from blindsight.errors import InputError
from blindsight.papers.sensorsift.analysis import (
    attribute_regions,
    correlations,
    cosines,
    entanglement,
    feature_directions,
    overlaps,
    policy_matrix,
    regress,
    sift_regions,
)
from blindsight.papers.sensorsift.compare import trade_off
from blindsight.sift.attackers import Attacker
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import Trial
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

# --- entanglement ---


@settings(deadline=None, max_examples=15)
@given(angle=st.floats(0, math.pi), lengths=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)))
def test_overlap_is_the_largest_product_of_squared_covariances(angle, lengths):
    """Eq. 6 read word for word: every unit w in the plane of the two attributes; no other w can do better."""
    a, b = lengths[0] * np.array([1.0, 0.0]), lengths[1] * np.array([math.cos(angle), math.sin(angle)])
    turns = np.linspace(0, math.pi, 20_001)
    w = np.stack([np.cos(turns), np.sin(turns)])
    brute = ((a @ w) ** 2 * (b @ w) ** 2).max()
    assert overlaps(np.stack([a, b], axis=1), normalise=False)[0, 1] == pytest.approx(brute, rel=1e-6)


def test_directions_are_covariances_of_standardised_columns():
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(500, 7)) * rng.uniform(0.1, 9, 7) + 3, rng.integers(0, 2, (500, 3)).astype(np.int8)
    standard = [(columns - columns.mean(axis=0)) / columns.std(axis=0) for columns in (X, labels)]
    assert feature_directions(X, labels) == pytest.approx(standard[0].T @ standard[1] / 500, abs=1e-8)
    own_units = feature_directions(X, labels, scale=False) / X.std(axis=0)[:, None]
    assert own_units == pytest.approx(feature_directions(X, labels))


def test_correlations_agree_with_numpy_and_leave_unknown_labels_out():
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (300, 4)).astype(np.int8)
    assert correlations(labels) == pytest.approx(np.corrcoef(labels.T))
    gaps = labels.copy()
    gaps[:50, 1] = -1
    assert correlations(gaps)[0, 1] == pytest.approx(np.corrcoef(labels[50:, :2].T)[0, 1])
    assert correlations(gaps)[2, 3] == pytest.approx(np.corrcoef(labels[:, 2:].T)[0, 1])


def test_entanglement_tells_shared_features_from_separate_ones():
    rng = np.random.default_rng(3)
    latent = rng.normal(size=(4000, 3))
    labels = {name: (column > 0).astype(np.int8) for name, column in zip("abc", latent.T, strict=True)}
    noise = rng.normal(size=(4000, 6))
    # a and b show in the same features though their labels are independent, c has features of its own
    X = noise + np.stack([latent[:, 0] + latent[:, 1]] * 3 + [latent[:, 2]] * 3, axis=1)
    found = entanglement(X, labels, ("a", "b", "c"))
    assert np.abs(found.correlation[~np.eye(3, dtype=bool)]).max() < 0.1  # 6 standard errors
    assert found.cosine[0, 1] > 0.95 > 0.15 > np.abs(found.cosine[:2, 2]).max()
    assert found.overlap[0, 1] == 1 > 2 * found.overlap[0, 2]
    assert found.overlap == pytest.approx(found.overlap.T)


def test_what_cannot_be_compared_is_named():
    X, labels = np.random.default_rng(4).normal(size=(50, 3)), {"a": [0, 1] * 25, "b": [1] * 50}
    for names, named in ((("a", "b"), "attribute 1"), (("a", "c"), "'c'"), (("a",), "two")):
        with pytest.raises(InputError, match=named):
            entanglement(X, labels, names)
    with pytest.raises(InputError, match="constant"):
        correlations(np.array([[1, 0], [1, 1], [0, -1]], dtype=np.int8))
    assert cosines(np.array([[0.0, 1.0], [0.0, 1.0]])).tolist() == [[0, 0], [0, pytest.approx(1)]]


# --- regions ---


@pytest.fixture(scope="module")
def corners():
    """Noise pictures where "left" brightens the upper left, "right" greens the lower right corner."""
    rng = np.random.default_rng(5)
    left, right = rng.integers(0, 2, (2, 600)).astype(np.int8)
    images = rng.integers(0, 128, (600, 12, 16, 3)).astype(np.uint8)
    images[left == 1, :4, :5] += 100
    images[right == 1, 8:, 11:, 1] += 120
    return images, {"left": left, "right": right}


@pytest.mark.parametrize("energy", [None, 0.95])
def test_attributes_are_found_where_they_were_painted(corners, energy):
    images, labels = corners
    pipeline = PixelFeatures(energy=energy).fit(images)
    maps = attribute_regions(pipeline.transform(images), labels, ("left", "right"), pipeline)
    inside = {"left": np.s_[:4, :5], "right": np.s_[8:, 11:]}
    for name, region in maps.items():
        for strength in (region.energy, region.weight):
            assert strength.shape == (12, 16)
            assert (strength.min() >= 0, strength.max()) == (True, 1)
            elsewhere = strength.sum() - strength[inside[name]].sum()
            assert strength[inside[name]].mean() > 2 * elsewhere / (12 * 16 - strength[inside[name]].size)
    assert maps["left"].red[inside["left"]].mean() > 0.5  # brighter: positive
    assert abs(maps["right"].red[inside["right"]]).mean() < 0.5 * maps["right"].energy[inside["right"]].mean()  # green


def test_pixel_weights_give_the_same_numbers_as_the_sift_of_this_pipeline(corners):
    images, labels = corners
    pipeline = PixelFeatures(energy=0.9).fit(images)
    X = pipeline.transform(images)
    sift = PPLS(1, pipeline=pipeline.fingerprint()).fit(X, labels["left"], labels["right"]).sift_
    traced = pipeline.components_.T @ sift.weights  # pixels' weights, the oracle
    rows = planes(images[:20]) - pipeline.mean_
    assert rows @ traced - sift.mean @ sift.weights == pytest.approx(sift.apply(X[:20]), abs=1e-3)
    red = traced[: 3 * 12 * 16].reshape(12, 16, 3)[:, :, 0]
    assert sift_regions(sift, pipeline).red == pytest.approx(red / np.abs(red).max(), abs=1e-4)
    weight = np.abs(traced[:, 0][: 3 * 12 * 16].reshape(12, 16, 3)).sum(axis=2)
    weight += np.abs(traced[:, 0][3 * 12 * 16 :].reshape(3, 12, 16)).sum(axis=0)
    assert sift_regions(sift, pipeline).weight == pytest.approx(weight / weight.max(), abs=1e-4)
    with pytest.raises(InputError, match="'another'"):
        sift_regions(replace(sift, pipeline="another"), pipeline)
    with pytest.raises(InputError, match="5 features"):
        attribute_regions(X[:, :5], labels, ("left", "right"), pipeline)


# --- the matrix of policies ---


LIGHT = Verifier(
    [Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))], stop_early=False, cross_fitted=0
)


@pytest.fixture(scope="module")
def crowd():
    """4,000 rows of 16 features: a and b go together and show in the same features, c and d stand alone."""
    rng = np.random.default_rng(6)
    latent = rng.normal(size=(4000, 4))
    latent[:, 1] = 0.8 * latent[:, 0] + 0.6 * latent[:, 1]
    labels = {name: (column > 0).astype(np.int8) for name, column in zip("abcd", latent.T, strict=True)}
    shown = np.repeat(np.eye(4), 4, axis=1)
    shown[1, :4], shown[0, 4:8] = 0.5, 0.5
    shown[3, 8:10] = 0.5  # what tells of c tells of d as well, in places
    X = latent @ shown + rng.normal(size=(4000, 16))
    return Trial(VerificationSet(X, labels, np.arange(4000) // 2), verifier=LIGHT)


@pytest.fixture(scope="module")
def matrix(crowd):
    return policy_matrix(crowd, ("a", "b", "c", "d"), method=PPLS(2, math.inf))


def test_the_matrix_has_every_ordered_pair_and_says_which_work(crowd, matrix):
    assert len(matrix.cells) == 12
    losses = matrix.figures("priv_loss")
    assert np.isnan(losses).tolist() == np.eye(4, dtype=bool).tolist()
    verdicts = {pair: cell.verdict for pair, cell in matrix.cells.items()}
    assert all(verdicts[pair] == "accept" for pair in [("a", "c"), ("c", "d"), ("d", "b"), ("c", "a")])
    assert matrix.accepted == sum(verdict == "accept" for verdict in verdicts.values())
    costs = matrix.figures("pub_loss")
    together = costs[0, 1] + costs[1, 0]  # hiding b costs a most of what there is
    assert together > costs[0, 2] + costs[0, 3] + costs[2, 0] + costs[3, 0]
    assert matrix.average("priv_loss") == pytest.approx(np.mean([cell.priv_loss for cell in matrix.cells.values()]))
    assert all(cell.bound >= cell.priv_loss for cell in matrix.cells.values())
    assert all(0.7 < accuracy < 1 for accuracy in matrix.raw.values())
    assert matrix.regression("pub_loss").policies == 12
    assert matrix.regression("pub_loss").correlation.value > 0
    told = []
    plain = policy_matrix(crowd, ("a", "b"), method=PPLS(2, 0.0), progress=lambda *step: told.append(step))
    assert [cell.verdict for cell in plain.cells.values()] == ["reject", "reject"]  # without privacy, features shared
    assert min(cell.priv_loss for cell in plain.cells.values()) > 0.2 > losses[0, 1]
    document = json.loads(json.dumps(plain.to_dict(), allow_nan=False))
    assert [cell["public"] for cell in document["cells"]] == ["a", "b"]
    assert [cell["attacker"] for cell in document["cells"]] == ["logistic", "logistic"]
    assert document["correlation"][0][0] == 1
    assert told[-1][1:] == (2, 2)


def test_a_pair_without_a_sift_keeps_its_sentence(crowd):
    data = crowd.data
    same = replace(data, labels={"a": data.labels["a"], "b": data.labels["a"], "c": data.labels["c"]})
    twins = Trial(same, verifier=LIGHT)
    found = policy_matrix(twins, ("a", "b", "c"), method=PPLS(1, math.inf))
    assert {pair for pair, cell in found.cells.items() if cell.problem} == {("a", "b"), ("b", "a")}
    assert math.isnan(found.cells["a", "b"].pub_loss)
    assert found.to_dict()["cells"][0]["pub_loss"] is None
    assert not math.isnan(found.average("pub_loss"))
    curve = trade_off(twins, Policy("a", "b"), components=(1,), privacies=(math.inf,))
    assert (dict(curve.curves), curve.best) == ({}, None)
    assert "no direction" in curve.problems[math.inf]
    with pytest.raises(InputError, match="lambda"):
        trade_off(crowd, Policy("a", "b"), components=())


def test_regression_agrees_with_two_libraries():
    rng = np.random.default_rng(7)
    r, o = rng.uniform(-1, 1, 90), rng.uniform(0, 1, 90)
    losses = 0.02 + 0.15 * np.abs(r) + 0.08 * o + rng.normal(0, 0.02, 90)
    found = regress(losses, r, o)
    values, covariance = curve_fit(lambda x, i, c, v: i + c * x[0] + v * x[1], [np.abs(r), o], losses)
    parts = (found.intercept, found.correlation, found.overlap)
    assert [part.value for part in parts] == pytest.approx(values, rel=1e-4)
    assert [part.error for part in parts] == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-4)
    columns = np.stack([np.abs(r), o], axis=1)
    both, one = (LinearRegression().fit(part, losses).score(part, losses) for part in (columns, columns[:, :1]))
    assert found.r_squared == pytest.approx(both)
    assert found.correlation_alone == pytest.approx((1 - one) / (1 - both) - 1)
    assert 0.5 < found.correlation_share < 0.8  # .15 against .08, of the same spread
    for losses, correlation, overlap in (([0.1] * 3, [0.1] * 3, [0.2] * 3), ([0.1, 0.2, 0.3, 0.4], [0.1] * 4, [1] * 4)):
        with pytest.raises(InputError):
            regress(losses, correlation, overlap)


def test_the_trade_off_is_that_of_separate_fits(crowd):
    policy = Policy(("a", "d"), ("c",))
    found = trade_off(crowd, policy, components=(3, 1), privacies=(0.0, math.inf))
    counts = {privacy: [one.numbers for one in curve] for privacy, curve in found.curves.items()}
    assert counts == {0.0: [1, 3], math.inf: [1, 3]}
    alone = crowd.measure("one", crowd.fit(PPLS(1, math.inf), policy), policy)
    one = found.curves[math.inf][0]
    assert (one.pub_loss, one.priv_loss, one.verdict) == (alone.pub_loss, alone.priv_loss, alone.verdict)
    for few, many in found.curves.values():
        assert many.pub_loss < few.pub_loss  # Figure 3: more numbers tell more
    assert found.best is not None
    assert found.best[1].verdict == "accept"
    assert set(found.raw) == {"a", "d"}
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["points"][-1]["privacy"] == "inf"
