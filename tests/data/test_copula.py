"""The copula: latent correlations against an independent oracle, realised correlations, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from blindsight.data.faces import Copula, latent_correlation
from blindsight.errors import InputError

NAMES = ("a", "b", "c")
THIRDS = np.array([0.3, 0.5, 0.2])


def matrix(ab: float = 0.0, ac: float = 0.0, bc: float = 0.0) -> np.ndarray:
    return np.array([[1.0, ab, ac], [ab, 1.0, bc], [ac, bc, 1.0]])


@settings(deadline=None, max_examples=40)
@given(p=st.floats(0.02, 0.98), q=st.floats(0.02, 0.98), share=st.floats(-0.95, 0.95))
def test_latent_correlation_agrees_with_the_bivariate_normal(p: float, q: float, share: float) -> None:
    bound = min(p, q) - p * q if share > 0 else p * q - max(p + q - 1.0, 0.0)
    phi = share * bound / np.sqrt(p * (1 - p) * q * (1 - q))
    rho = latent_correlation(np.array([p, q]), np.array([[1.0, phi], [phi, 1.0]]))[0, 1]
    both = multivariate_normal(cov=[[1.0, rho], [rho, 1.0]], allow_singular=True).cdf([ndtri(p), ndtri(q)])
    assert both == pytest.approx(p * q + share * bound, abs=2e-6)


def test_halves_have_the_arcsine_law() -> None:
    rho = latent_correlation(np.array([0.5, 0.5]), np.array([[1.0, -0.3], [-0.3, 1.0]]))[0, 1]
    assert rho == pytest.approx(np.sin(-0.3 * np.pi / 2), abs=1e-12)


def test_shared_variables_are_constant_within_a_group_and_correlate_with_the_rest() -> None:
    groups = np.repeat(np.arange(20_000), 5)
    drawn = Copula.fit(NAMES, THIRDS, matrix(0.4, 0.1, -0.2)).sample(("b",), groups, np.random.default_rng(0))
    shared = drawn[:, 1].reshape(-1, 5)
    assert (shared == shared[:, :1]).all()
    assert (drawn[:, 0].reshape(-1, 5).std(axis=1) > 0).any()
    # At most 20,000 independent groups: the spread of each estimate is below 1/sqrt(20,000) = .0071 (design effect
    # included, since rows of a group repeat at most the group). Six spreads: false alarm below 1e-8.
    np.testing.assert_allclose(np.corrcoef(drawn.T), matrix(0.4, 0.1, -0.2), atol=6 * 0.0071)
    np.testing.assert_allclose(drawn.mean(axis=0), THIRDS, atol=6 * 0.5 * 0.0071)


@pytest.mark.parametrize(
    ("prevalence", "correlation", "sentence"),
    [
        ([0.0, 0.5, 0.2], matrix(), "prevalence of a must lie strictly between 0 and 1; got 0"),
        ([0.3, 0.5, np.nan], matrix(), "prevalence of c must lie strictly between"),
        ([0.3, 0.5, 0.2], np.eye(2), "3 x 3 matrix; got shape (2, 2)"),
        ([0.3, 0.5, 0.2], matrix(1.2), "a and b must lie in [-1, 1]; got 1.2"),
        ([0.3, 0.5, 0.2], matrix(np.nan), "a and b"),
        ([0.3, 0.5, 0.2], np.triu(matrix(0.1)), "a and b must be one number; got 0.1 above and 0 below"),
        ([0.3, 0.5, 0.2], matrix() * 0.9, "correlation of a with itself must be 1; got 0.9"),
        ([0.5, 0.5, 0.5], matrix(0.9, 0.9, -0.9), "positive definite; its smallest eigenvalue is -0.8"),
        ([0.3, 0.5, 0.2], matrix(bc=0.6), "b and c must lie in [-0.500, 0.500]"),
        ([0.5, 0.05, 0.05], matrix(0.22, 0.22, -0.05), "at once"),
    ],
)
def test_impossible_requests_get_a_sentence(prevalence: list[float], correlation: np.ndarray, sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        Copula.fit(NAMES, np.array(prevalence), correlation)
    assert sentence in str(refusal.value)
