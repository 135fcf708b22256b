"""Makers of linear sifts of any width: what they let out grows until nothing is hidden any more."""

import warnings
from collections.abc import Callable

import numpy as np
from fairlearn.preprocessing import CorrelationRemover

from benchmarks.methods.sift_inlp import directions
from benchmarks.methods.sifting import Floats, Labels, SiftingData, key
from blindsight.sift.leace import Erasure, LeacePLS
from blindsight.sift.ppls import PPLS, FewerComponentsWarning
from blindsight.sift.sift import LinearSift, without_negligible

Make = Callable[[Floats, Labels, Labels, int, bool], LinearSift]
ROUNDS = 15


def run(given: SiftingData, *, seed: int, maker: str, components: int) -> dict[str, LinearSift]:
    """Return a sift of so many numbers for every policy."""
    answer = {}
    for public, private in given.policies:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewerComponentsWarning)  # fewer numbers are an answer
            sides = (given.labels[public], given.labels[private])
            answer[key((public, private))] = MAKERS[maker](given.features, *sides, components, given.scale)
    return answer


def _ppls(privacy: float) -> Make:
    def make(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
        found: LinearSift = PPLS(components, privacy, scale=scale).fit(X, public, private).sift_
        return found

    return make


def _leace(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    found: LinearSift = LeacePLS(components, scale=scale).fit(X, public, private).sift_
    return found


def _inlp(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    mean, deviation = _units(X, scale)
    rows = (X - mean) / deviation
    erased = directions(rows, private, ROUNDS).astype(np.float64)
    left = (rows - (rows @ erased) @ erased.T).astype(np.float32)
    matrix = PPLS(components, 0.0, scale=False).fit(left, public, private).sift_.weights.astype(np.float64)
    return _linear(mean, deviation, matrix - erased @ (erased.T @ matrix))


def _erased_components(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    """Erase linearly, then keep the leading principal components, whatever they tell."""
    mean, deviation = _units(X, scale)
    rows = ((X - mean) / deviation).astype(np.float64)
    covariance = rows.T @ rows / len(rows)
    erasure = Erasure.fit(covariance, rows.T @ (private - private.mean())[:, None] / len(rows))
    left = erasure.apply(erasure.apply(covariance).T)
    leading = np.linalg.eigh((left + left.T) / 2)[1][:, ::-1][:, :components]
    return _linear(mean, deviation, erasure.transposed(leading))


def _correlation_remover(X: Floats, public: Labels, private: Labels, components: int, scale: bool) -> LinearSift:
    """Subtract what the private label explains, then PLS: a sift that is told the label, as its last feature."""
    remover = CorrelationRemover(sensitive_feature_ids=[0])
    left = remover.fit_transform(np.column_stack([private, X])).astype(np.float32)
    found: LinearSift = PPLS(components, 0.0, scale=scale).fit(left, public, private).sift_
    explained = (-remover.beta_[:1] / found.scale) @ found.matrix
    mean, deviation = np.append(found.mean, private.mean()), np.append(found.scale, 1.0)
    return LinearSift(mean.astype(np.float32), deviation.astype(np.float32), np.vstack([found.matrix, explained]))


def _units(X: Floats, scale: bool) -> tuple[Floats, Floats]:
    deviation = np.maximum(X.std(axis=0), 1e-6)
    return X.mean(axis=0), deviation if scale else np.full_like(deviation, np.sqrt(np.mean(deviation**2)))


def _linear(mean: Floats, deviation: Floats, matrix: np.ndarray) -> LinearSift:
    return LinearSift(mean, deviation, without_negligible(matrix / np.linalg.norm(matrix, axis=0)).astype(np.float32))


MAKERS: dict[str, Make] = {
    "ppls": _ppls(1.0),
    "ppls-infinite": _ppls(np.inf),
    "leace": _leace,
    "inlp": _inlp,
    "erased-components": _erased_components,
    "correlation-remover": _correlation_remover,
}
