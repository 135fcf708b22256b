"""SSIM: the published formula, window by window."""

import numpy as np
import pytest

from blindsight.audit.inversion.similarity import C1, C2, SIGMA, WINDOW, mean_picture, ssim
from blindsight.errors import InputError


def pictures(count, height=17, width=14, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size=(count, height, width, 3), dtype=np.uint8)


def by_loops(picture, other):
    """Eqs. 13 to 17, one window at a time."""
    x, y = (0.299 * p[..., 0] + 0.587 * p[..., 1] + 0.114 * p[..., 2] for p in (picture, other))
    reach = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-(reach[:, None] ** 2 + reach**2) / (2 * SIGMA**2))
    weights /= weights.sum()
    scores = []
    for top in range(x.shape[0] - WINDOW + 1):
        for left in range(x.shape[1] - WINDOW + 1):
            a, b = (image[top : top + WINDOW, left : left + WINDOW] for image in (x, y))
            mean_a, mean_b = np.sum(weights * a), np.sum(weights * b)
            variances = np.sum(weights * (a - mean_a) ** 2) + np.sum(weights * (b - mean_b) ** 2)
            covariance = np.sum(weights * (a - mean_a) * (b - mean_b))
            above = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
            scores.append(above / ((mean_a**2 + mean_b**2 + C1) * (variances + C2)))
    return np.mean(scores)


def test_it_agrees_with_the_formula_window_by_window():
    one, noise = pictures(4), pictures(4, seed=1)
    mixed = (0.7 * one + 0.3 * noise).astype(np.uint8)
    expected = [by_loops(a.astype(float), b.astype(float)) for a, b in zip(one, mixed, strict=True)]
    assert ssim(one, mixed) == pytest.approx(expected, abs=1e-9)
    assert 0.3 < np.mean(expected) < 0.95


def test_the_same_scores_one_and_the_negative_scores_below_zero():
    one = pictures(150)  # more than are compared at once
    assert ssim(one, one) == pytest.approx(np.ones(150))
    assert ssim(one, 255 - one).max() < 0


def test_flat_pictures_differ_in_luminance_alone():
    a, b = (np.full((1, 11, 11, 3), grey, dtype=np.uint8) for grey in (50, 200))
    assert ssim(a, b)[0] == pytest.approx((2 * 50 * 200 + C1) / (50**2 + 200**2 + C1))


def test_the_mean_picture_is_the_mean():
    public = pictures(9)
    assert np.array_equal(mean_picture(public), np.rint(public.mean(axis=0)).astype(np.uint8))


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (pictures(1, 10, 14), pictures(1, 10, 14), "at least 11x11 pixels; got 10x14"),
        (pictures(1), pictures(2), "one by one"),
        (pictures(1).astype(float), pictures(1), "must be uint8"),
        (pictures(0), pictures(0), "at least 1 image"),
    ],
)
def test_what_cannot_be_compared_is_refused(one, other, message):
    with pytest.raises(InputError, match=message):
        ssim(one, other)
