"""Entanglement against brute force, region maps on planted pixels, the matrix of policies and its regression."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.data.features.pixels import PixelFeatures
from blindsight.data.features.planes import planes
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.analysis import correlations, cosines, entanglement, feature_directions, overlaps
from blindsight.sift.ppls import PPLS
from blindsight.sift.regions import attribute_regions, sift_regions

# --- entanglement ---


@settings(deadline=None, max_examples=30)
@given(angle=st.floats(0, math.pi), lengths=st.tuples(st.floats(0.1, 3), st.floats(0.1, 3)))
def test_overlap_is_the_largest_product_of_squared_covariances(angle, lengths):
    """Eq. 6 read word for word: every unit w in the plane of the two attributes; no other w can do better."""
    a, b = lengths[0] * np.array([1.0, 0.0]), lengths[1] * np.array([math.cos(angle), math.sin(angle)])
    turns = np.linspace(0, math.pi, 20_001)
    w = np.stack([np.cos(turns), np.sin(turns)])
    brute = ((a @ w) ** 2 * (b @ w) ** 2).max()
    assert overlaps(np.stack([a, b], axis=1), normalise=False)[0, 1] == pytest.approx(brute, rel=1e-6)


def test_overlap_in_many_dimensions_is_never_exceeded_and_is_reached():
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(6, 2))
    overlap = overlaps(directions, normalise=False)[0, 1]
    a, b = directions.T
    w = rng.normal(size=(6, 50_000))
    w /= np.linalg.norm(w, axis=0)
    assert ((a @ w) ** 2 * (b @ w) ** 2).max() <= overlap
    best = a / np.linalg.norm(a) + np.sign(a @ b) * b / np.linalg.norm(b)
    best /= np.linalg.norm(best)
    assert (a @ best) ** 2 * (b @ best) ** 2 == pytest.approx(overlap)


def test_directions_are_covariances_of_standardised_columns():
    rng = np.random.default_rng(1)
    X, labels = rng.normal(size=(500, 7)) * rng.uniform(0.1, 9, 7) + 3, rng.integers(0, 2, (500, 3)).astype(np.int8)
    standard = [(columns - columns.mean(axis=0)) / columns.std(axis=0) for columns in (X, labels)]
    assert feature_directions(X, labels) == pytest.approx(standard[0].T @ standard[1] / 500, abs=1e-10)
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
    with pytest.raises(InputError, match="attribute 1 is the same, or unknown"):
        entanglement(X, labels, ("a", "b"))
    with pytest.raises(UnknownNameError, match="unknown attribute 'c'"):
        entanglement(X, labels, ("a", "c"))
    with pytest.raises(InputError, match="at least two attributes"):
        entanglement(X, labels, ("a",))
    with pytest.raises(InputError, match="where both are known, one of them is constant"):
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


def test_pixel_weights_give_the_same_numbers_as_the_sift(corners):
    images, labels = corners
    pipeline = PixelFeatures(energy=0.9).fit(images)
    X = pipeline.transform(images)
    sift = PPLS(1, pipeline=pipeline.fingerprint()).fit(X, labels["left"], labels["right"]).sift_
    traced = pipeline.components_.T @ sift.weights  # pixels' weights, the oracle
    rows = planes(images[:20]) - pipeline.mean_
    assert rows @ traced - sift.mean @ sift.weights == pytest.approx(sift.apply(X[:20]), abs=1e-3)
    red = traced[: 3 * 12 * 16].reshape(12, 16, 3)[:, :, 0]
    assert sift_regions(sift, pipeline).red == pytest.approx(red / np.abs(red).max(), abs=1e-5)
    weight = np.abs(traced[:, 0][: 3 * 12 * 16].reshape(12, 16, 3)).sum(axis=2)
    weight += np.abs(traced[:, 0][3 * 12 * 16 :].reshape(3, 12, 16)).sum(axis=0)
    assert sift_regions(sift, pipeline).weight == pytest.approx(weight / weight.max(), abs=1e-5)


def test_regions_need_the_sift_of_this_pipeline(corners):
    images, labels = corners
    pipeline = PixelFeatures(energy=0.9).fit(images)
    X = pipeline.transform(images)
    sift = PPLS(1, pipeline="another").fit(X, labels["left"], labels["right"]).sift_
    with pytest.raises(InputError, match="belongs to feature pipeline 'another'"):
        sift_regions(sift, pipeline)
    with pytest.raises(InputError, match="weights are of 5 features"):
        attribute_regions(X[:, :5], labels, ("left", "right"), pipeline)
