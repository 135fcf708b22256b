"""Three sifts that are made to cheat SensorSift's verifier.

An app that writes its own sift can hide the private attribute where the published verifier (Enev et al., "SensorSift",
ACSAC 2012: five classifiers on the released numbers as they come) does not look:

| cheat | where the attribute hides | its fate |
| --- | --- | --- |
| `collinear_pair` | in the difference of two nearly equal numbers | harmless: `harden` drops the difference |
| `low_digits` | behind the decimal point of whole numbers | harmless: `harden` rounds it away |
| `xor_hash` | in a bit that is scrambled with a hash of the rest | refused, unless certified |

Without `harden`, attackers of the whitened view ("modern") still catch the first. The third is no linear sift, but a
network can compute it (of a few bits, with any table for a hash) and declare it as data. No list of attackers can then
be trusted: what is not linear is released only as few symbols under a certificate.

Each cheat is built from labelled features, as an app would, and comes with the app's own decoder. `a` is a public score
without covariance with the private attribute, `b` a score of the private attribute.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lstsq

from blindsight.errors import InputError
from blindsight.sift.attackers import best_threshold
from blindsight.sift.labels import check_labels
from blindsight.sift.sift import LinearSift, without_negligible
from blindsight.validation import check_shape

Floats = NDArray[np.float64]
_BESIDE = 1e-4  # the private score beside a harmless one of the same size
_BEHIND = 0.1  # the private score behind the decimal point: five deviations fit
_LARGEST_WEIGHT = 50  # of whole numbers: large enough to look smooth, small enough for single precision


@dataclass(frozen=True, eq=False)
class Cheat:
    """`release` turns features into what the app receives, `decode` that into private guesses. `sift` is the cheat as a
    declared linear sift; None where no linear sift can do it.
    """

    name: str
    release: Callable[[Any], NDArray[Any]]
    decode: Callable[[NDArray[Any]], NDArray[np.int8]]
    sift: LinearSift | None = None


def collinear_pair(X: ArrayLike, public: ArrayLike, private: ArrayLike) -> Cheat:
    """Release a and a + 1e-4 b: to a classifier two copies of a harmless number, to the app b."""
    scores = _Scores.of(X, public, private)
    sift = _linear(scores.mean, np.stack([scores.a, scores.a + _BESIDE * scores.b], axis=1))
    return _declared("collinear pair", sift, scores, lambda z: z[:, 1].astype(np.float64) - z[:, 0])


def low_digits(X: ArrayLike, public: ArrayLike, private: ArrayLike) -> Cheat:
    """Release a with whole weights plus a tenth of b: whole-number features leave the digits after the point to b."""
    if not (np.asarray(X) == np.rint(X)).all():
        raise InputError("low_digits needs whole-number features, as pixels are. Round them first.")
    scores = _Scores.of(X, public, private)
    whole = np.rint(_LARGEST_WEIGHT * scores.a / np.abs(scores.a).max())
    sift = _linear(np.rint(scores.mean), (whole + _BEHIND * scores.b)[:, None])
    return _declared("low digits", sift, scores, lambda z: z[:, 0].astype(np.float64) - np.rint(z[:, 0]))


def xor_hash(X: ArrayLike, public: ArrayLike, private: ArrayLike, *, levels: int | None = None) -> Cheat:
    """Release a and the private guess XOR a bit of SHA-256(a). With `levels`, a is first sorted into that many levels,
    so that the release is one of 2 * levels symbols.
    """
    scores = _Scores.of(X, public, private)
    threshold = best_threshold(scores.private_score(scores.features), scores.private)
    edges = None if levels is None else np.quantile(scores.public_score(X), np.arange(1, levels) / levels)

    def release(features: Any) -> NDArray[Any]:
        score = scores.public_score(features).astype(np.float32)
        shown = score if edges is None else np.searchsorted(edges, score)
        hidden = scores.private_score(features) > threshold
        return np.stack([shown, (hidden ^ _parity(shown)).astype(shown.dtype)], axis=1)

    def decode(released: NDArray[Any]) -> NDArray[np.int8]:
        return ((released[:, 1] > 0) ^ _parity(released[:, 0])).astype(np.int8)

    return Cheat("XOR with a hash", release, decode)


@dataclass(frozen=True, eq=False)
class _Scores:
    """An app's directions from its own data: a harmless public and a private one, both of unit deviation."""

    mean: Floats
    a: Floats
    b: Floats
    features: Floats
    private: NDArray[np.int8]

    @classmethod
    def of(cls, X: ArrayLike, public: ArrayLike, private: ArrayLike) -> "_Scores":
        features = check_shape(X).astype(np.float64)
        shown, hidden = (check_labels(labels, len(features))[:, 0] for labels in (public, private))
        known = (shown >= 0) & (hidden >= 0)
        features, shown, hidden = features[known], shown[known], hidden[known]
        centred, centred_hidden = features - features.mean(axis=0), hidden - hidden.mean()
        a, b = (lstsq(centred, labels - labels.mean())[0] for labels in (shown, hidden))
        a = a - b * ((centred @ a) @ centred_hidden) / ((centred @ b) @ centred_hidden)
        a, b = (direction / (centred @ direction).std() for direction in (a, b))
        return cls(features.mean(axis=0), a, b, features, hidden)

    def public_score(self, X: Any) -> Floats:
        return np.asarray((np.asarray(X, dtype=np.float64) - self.mean) @ self.a)

    def private_score(self, X: Any) -> Floats:
        return np.asarray((np.asarray(X, dtype=np.float64) - self.mean) @ self.b)


def _linear(mean: Floats, matrix: Floats) -> LinearSift:
    parts = (mean, np.ones(len(mean)), without_negligible(matrix))
    centre, scale, weights = (part.astype(np.float32) for part in parts)
    return LinearSift(centre, scale, weights)


def _declared(name: str, sift: LinearSift, scores: _Scores, dig: Callable[[NDArray[Any]], Floats]) -> Cheat:
    threshold = best_threshold(dig(sift.apply(scores.features)), scores.private)
    return Cheat(name, sift.apply, lambda released: (dig(released) > threshold).astype(np.int8), sift)


def _parity(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([hashlib.sha256(value.tobytes()).digest()[0] & 1 for value in values], dtype=bool)
