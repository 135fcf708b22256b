"""A linear decoder: the picture that features make most likely, by ridge regression on public pictures.

Of all linear maps it has the smallest expected squared error, so it shows what an attacker with linear means can know:
of a pixel pipeline nearly the whole picture, of a few sifted numbers the mean picture of all people they could belong
to, of a symbol (one-hot) the mean picture of that symbol.

The regression runs in units that features can know. `PixelFeatures` takes each picture's mean and contrast away, so
these are predicted apart: a target is the picture less its own mean over its own standard deviation, and two numbers
more, its mean and the logarithm of its standard deviation.

The penalty is chosen by generalised cross-validation (Golub, Heath & Wahba, Technometrics 1979), which needs a single
singular value decomposition X = U S V' for all penalties; so do the pictures that each row would get from a decoder
learned without it, y_i - e_i / (1 - h_i), where h_i is the leverage of row i and e_i its residual. A further stage that
learns to improve pictures must learn from these: the decoder's own pictures of its training rows are too good.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd

from blindsight.audit.inversion.decoder import Decoder, Floats, Pictures, check_pairs
from blindsight.errors import InputError

_PENALTIES = 10.0 ** np.arange(-8, 1.5, 0.5)  # in units of the largest squared singular value
_FLATTEST = 1.0  # grey levels of contrast below which a picture counts as flat
_NUMBERS = 2  # that a target holds besides the pixels: mean and log contrast


@dataclass(frozen=True, eq=False)
class LinearDecoder(Decoder):
    """picture = shape(x) * contrast(x) + brightness(x), where all three are read from (x - centre) matrix + offset.

    The contrast stays between those of the public pictures, whatever the features are.
    """

    centre: Floats
    matrix: Floats
    offset: Floats
    contrasts: tuple[float, float]

    def paint(self, rows: Floats) -> Floats:
        """Return the pictures of checked rows as numbers in [0, 255]."""
        targets: Floats = np.matmul(rows - self.centre, self.matrix) + self.offset
        return self.paint_targets(targets)

    def paint_targets(self, targets: Floats) -> Floats:
        """Return the pictures that predicted targets stand for."""
        contrast = np.exp(np.clip(targets[:, -1:], *np.log(self.contrasts)))
        pixels = targets[:, :-_NUMBERS] * contrast + 255 * targets[:, -_NUMBERS:-1]
        painted: Floats = np.clip(pixels, 0, 255).reshape(len(targets), *self.shape)
        return painted


@dataclass(frozen=True)
class RidgeInversion:
    """Learns a `LinearDecoder`; `penalty`, in units of the largest squared singular value, is chosen unless given."""

    penalty: float | None = None

    def fit(self, features: ArrayLike, images: Pictures) -> LinearDecoder:
        """Learn from public pictures and their features, row by row."""
        return self._solve(features, images).decoder

    def fit_and_leave_out(self, features: ArrayLike, images: Pictures) -> tuple[LinearDecoder, Floats]:
        """Return the decoder, and for each row its picture by the decoder learned from all rows but that one."""
        solution = self._solve(features, images)
        return solution.decoder, solution.decoder.paint_targets(solution.left_out())

    def _solve(self, features: ArrayLike, images: Pictures) -> "_Solution":
        if self.penalty is not None and not self.penalty > 0:
            raise InputError(f"a penalty must be above 0; got {self.penalty}. Use None to have it chosen.")
        rows, targets = check_pairs(features, images), _targets(images)
        centre, offset = rows.mean(axis=0), targets.mean(axis=0)
        left, singular, right = svd(rows - centre, full_matrices=False, check_finite=False)
        kept = singular > 1e-6 * max(float(singular[0]), 1e-30)
        left, squares, right = left[:, kept], singular[kept].astype(np.float64) ** 2, right[kept]
        targets -= offset
        loadings: Floats = left.T @ targets
        penalty = squares[:1].sum() * (self.penalty or _best_penalty(squares, loadings, targets))
        shrink = squares / (squares + penalty) if squares.size else squares
        weights = (shrink / np.sqrt(squares)).astype(np.float32)
        contrasts = np.exp((targets[:, -1] + offset[-1])[[targets[:, -1].argmin(), targets[:, -1].argmax()]])
        shape = (images.shape[1], images.shape[2], 3)
        decoder = LinearDecoder(
            rows.shape[1], shape, centre, (right.T * weights) @ loadings, offset, (contrasts[0], contrasts[1])
        )
        return _Solution(decoder, left, shrink, loadings, targets)


@dataclass(frozen=True, eq=False)
class _Solution:
    """A fitted decoder with what it was fitted to: `left` = U, `shrink` = S^2 / (S^2 + penalty), `loadings` = U' Y."""

    decoder: LinearDecoder
    left: Floats
    shrink: NDArray[np.float64]
    loadings: Floats
    targets: Floats
    """Less their mean."""

    def left_out(self) -> Floats:
        """Return the prediction of each target from all rows but its own."""
        shrink = self.shrink.astype(np.float32)
        leverage = 1 / len(self.left) + (self.left**2) @ shrink
        residuals: Floats = self.targets - np.matmul(self.left * shrink, self.loadings)
        residuals /= np.maximum(1 - leverage, 1e-3)[:, None]
        predicted: Floats = self.targets - residuals + self.decoder.offset
        return predicted


def _targets(images: Pictures) -> Floats:
    """Return what is predicted of each picture: its pixels in units of its own contrast, brightness, log contrast."""
    pixels = images.reshape(len(images), -1).astype(np.float32)
    brightness = pixels.mean(axis=1, keepdims=True)
    pixels -= brightness
    contrast = np.maximum(pixels.std(axis=1, keepdims=True), _FLATTEST)
    return np.hstack([pixels / contrast, brightness / 255, np.log(contrast)])


def _best_penalty(squares: NDArray[np.float64], loadings: Floats, targets: Floats) -> float:
    """Return the penalty with the smallest generalised cross-validation score, in units of the largest square."""
    n, told = len(targets), np.einsum("ij,ij->i", loadings, loadings, dtype=np.float64)
    untold = float(np.einsum("ij,ij->", targets, targets, dtype=np.float64)) - told.sum()
    scores = []
    for penalty in _PENALTIES * squares[:1].sum():
        missed = penalty / (squares + penalty)
        freedom = 1 + np.sum(1 - missed)
        scores.append((untold + missed**2 @ told) / max(1 - freedom / n, 1e-9) ** 2)
    return float(_PENALTIES[int(np.argmin(scores))])
