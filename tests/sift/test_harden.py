"""Hardening: two ways for an app to fool a verifier work on the sift as given, and fail on the platform's version."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.harden import harden
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift

D, N = 20, 4000


def faces(seed=0):
    """Whole-number features: the first half tells a public attribute, the second half, independently, a private one."""
    rng = np.random.default_rng(seed)
    public, private = rng.integers(0, 2, (2, N))
    means = np.hstack([np.outer(public, np.ones(D // 2)), np.outer(private, np.ones(D // 2))])
    return np.rint(100 + 10 * means + 10 * rng.normal(size=(N, D))).astype(np.float32), public, private


A = np.r_[np.ones(D // 2), np.zeros(D // 2)]  # a score of the public attribute
B = np.r_[np.zeros(D // 2), np.ones(D // 2)]  # a score of the private one


def sift_of(*columns):
    return LinearSift(np.zeros(D), np.ones(D), np.column_stack(columns))


def reads(told, truth):
    """Balanced accuracy of a linear reader of what is told, trained on one half and tested on the other."""
    told = StandardScaler().fit_transform(np.asarray(told, dtype=np.float64).reshape(N, -1))
    half = N // 2
    reader = LogisticRegression(C=1e6).fit(told[:half], truth[:half])
    return balanced_accuracy(truth[half:], reader.predict(told[half:]))


# A blind reader's balanced accuracy on 2,000 test samples has a deviation of about .011; .56 is beyond 5 of them.
BLIND = 0.56


def test_a_collinear_pair_tells_the_private_attribute_until_it_is_hardened():
    X, public, private = faces()
    sift = sift_of(A, A + 1e-4 * B)
    released = sift.apply(X).astype(np.float64)
    assert reads(released[:, 1] - released[:, 0], private) > 0.85  # what the app decodes
    hardened = harden(sift, X)
    assert hardened.width == 1
    levels = hardened.apply(X)
    assert reads(levels, private) < BLIND
    assert reads(np.eye(256)[levels[:, 0]], private) < BLIND  # whatever each level is taken for
    assert reads(levels, public) > 0.85  # what an honest app wants is still there


def test_a_pair_that_is_less_collinear_becomes_visible():
    X, _, private = faces()
    hardened = harden(sift_of(A, A + 0.05 * B), X)
    levels = hardened.apply(X)
    assert hardened.width == 2
    assert max(reads(levels[:, j], private) for j in range(2)) > 0.85  # a column of its own, for any verifier to find


def test_low_digits_tell_the_private_attribute_until_they_are_rounded():
    X, public, private = faces()
    sift = sift_of(A + 1e-4 * B)  # whole numbers from A, so B stands alone behind the point
    released = sift.apply(X).astype(np.float64)
    assert reads(released - np.floor(released), private) > 0.85
    assert reads(released, private) < BLIND  # no classifier looks there
    levels = harden(sift, X).apply(X)
    assert reads(np.eye(256)[levels[:, 0]], private) < BLIND
    assert reads(levels, public) > 0.85


def test_an_honest_sift_keeps_what_it_tells():
    X, public, private = faces()
    sift = PPLS(3).fit(X[: N // 2], public[: N // 2], private[: N // 2]).sift_
    hardened = harden(sift, X)
    assert hardened.width == 3
    assert reads(hardened.apply(X), public) == pytest.approx(reads(sift.apply(X), public), abs=0.01)


def test_outputs_are_uncorrelated_and_of_unit_variance_whatever_basis_the_app_chose():
    X, _, _ = faces()
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(D, 3))
    sift, mixed = sift_of(*columns.T), sift_of(*(columns @ rng.normal(size=(3, 3)) * 50).T)
    for version in (sift, mixed):
        z = harden(version, X).project(X).astype(np.float64)
        assert z.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-4)
        assert np.cov(z.T, bias=True) == pytest.approx(np.eye(3), abs=1e-4)
        levels = harden(version, X).apply(X)
        assert levels == pytest.approx(np.clip(np.floor(z * 32 + 128), 0, 255), abs=1)
        assert harden(version, X).alphabet == 256**3


def test_features_that_never_vary_on_the_reference_data_are_not_read():
    X, _, _ = faces()
    X[:, 0] = 5
    hardened = harden(sift_of(A, B), X)
    assert (hardened.matrix[0] == 0).all()
    changed = X.copy()
    changed[:, 0] = np.arange(N)
    assert np.array_equal(hardened.apply(changed), hardened.apply(X))
    silent = np.zeros(D)
    silent[0] = 1
    assert harden(sift_of(A, silent), X).width == 1
    with pytest.raises(InputError, match="never vary"):
        harden(sift_of(silent), X)


def test_hardening_needs_reference_data_and_keeps_name_and_pipeline():
    X, _, _ = faces()
    for sift, rows, named in ((sift_of(A, B), X[:2], "reference"), (sift_of(A), X[:, 1:], "20")):
        with pytest.raises(InputError, match=named):
            harden(sift, rows)
    sift = LinearSift(np.zeros(D), np.ones(D), A[:, None], pipeline="pixels", name="smile")
    hardened = harden(sift, X)
    assert (hardened.pipeline, hardened.name) == ("pixels", "smile")
    assert hardened.digest != sift.digest
