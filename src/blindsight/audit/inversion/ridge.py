"""A linear decoder: the picture that features make most likely, by ridge regression on public pictures.

Of all linear maps it has the smallest expected squared error, so it shows what an attacker with linear means can know:
of a pixel pipeline nearly the whole picture, of a few sifted numbers the mean picture of all people they could belong
to, of a symbol (one-hot) the mean picture of that symbol.

The regression runs in units that features can know. `PixelFeatures` takes each picture's mean and contrast away, so
these are predicted apart: a target is the picture less its own mean over its own standard deviation, and two numbers
more, its mean and the logarithm of its standard deviation.

The penalty is chosen by cross-validation that leaves out one person at a time (one picture, where nobody said who is on
them): other pictures of the same person would make weak penalties look good, and the faces to come are of strangers.
With X = U S V' and the hat matrix H = 1/n + U S^2 / (S^2 + penalty) U', the errors on the rows g of a person left out
are (I - H_gg)^-1 e_g, where e are the residuals of the fit to all rows: one decomposition serves all penalties. It also
gives the picture of every row by a decoder that never saw its person. A further stage that learns to improve pictures
must learn from these: the decoder's own pictures of its training rows are too good.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import svd

from blindsight.audit.inversion.decoder import Decoder, Floats, Pictures, check_pairs
from blindsight.errors import InputError

_PENALTIES = 10.0 ** np.arange(-7, 1.5, 0.5)  # in units of the largest squared singular value
_COLUMNS = 128  # of the targets, evenly spread, by which penalties are compared
_FLATTEST = 1.0  # grey levels of contrast below which a picture counts as flat
_NUMBERS = 2  # that a target holds besides the pixels: mean and log contrast

Groups = Sequence[NDArray[np.int64]]
"""Rows that are left out together."""


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

    def fit(self, features: ArrayLike, images: Pictures, persons: ArrayLike | None = None) -> LinearDecoder:
        """Learn from public pictures and their features, row by row; `persons` tells which rows show the same one."""
        return self._solve(features, images, persons)[0]

    def fit_and_leave_out(
        self, features: ArrayLike, images: Pictures, persons: ArrayLike | None = None
    ) -> tuple[LinearDecoder, Floats]:
        """Return the decoder, and the picture of each row by a decoder that saw all rows but those of its person."""
        decoder, left_out = self._solve(features, images, persons)
        return decoder, decoder.paint_targets(left_out())

    def _solve(
        self, features: ArrayLike, images: Pictures, persons: ArrayLike | None
    ) -> tuple[LinearDecoder, Callable[[], Floats]]:
        """Return the decoder, and a function that predicts the targets of each person without that person."""
        if self.penalty is not None and not self.penalty > 0:
            raise InputError(f"a penalty must be above 0; got {self.penalty}. Use None to have it chosen.")
        rows, targets = check_pairs(features, images), _targets(images)
        groups = _groups(persons, len(rows))
        centre, offset = rows.mean(axis=0), targets.mean(axis=0)
        contrasts = (float(np.exp(targets[:, -1].min())), float(np.exp(targets[:, -1].max())))
        targets -= offset
        left, singular, right = svd(rows - centre, full_matrices=False, check_finite=False)
        kept = singular > 1e-6 * max(float(singular[0]), 1e-30)
        hat = _Hat(left[:, kept], singular[kept].astype(np.float64) ** 2)
        penalty = self.penalty or hat.best_penalty(targets, groups)
        weights = (hat.shrink(penalty) / singular[kept]).astype(np.float32)
        matrix: Floats = np.matmul(right[kept].T * weights, hat.left.T @ targets)
        shape = (images.shape[1], images.shape[2], 3)
        decoder = LinearDecoder(rows.shape[1], shape, centre, matrix, offset, contrasts)
        return decoder, lambda: targets - hat.errors(targets, penalty, groups) + offset


@dataclass(frozen=True, eq=False)
class _Hat:
    """The fitted values of a ridge regression as a function of its targets: `left` = U, `squares` = S^2."""

    left: Floats
    squares: NDArray[np.float64]

    def shrink(self, penalty: float) -> Floats:
        """Return S^2 / (S^2 + penalty), with the penalty in units of the largest square."""
        strength = penalty * self.squares[:1].sum()
        factors: Floats = (self.squares / (self.squares + strength)).astype(np.float32)
        return factors

    def errors(self, targets: Floats, penalty: float, groups: Groups) -> Floats:
        """Return the error in each target (of mean zero) of a fit to all rows but those of its group."""
        shrunk = self.left * self.shrink(penalty)
        errors: Floats = targets - np.matmul(shrunk, self.left.T @ targets)
        for rows in groups:
            unseen = (1 + 1e-6) * np.eye(len(rows), dtype=np.float32) - shrunk[rows] @ self.left[rows].T
            errors[rows] = np.linalg.solve(unseen - np.float32(1 / len(targets)), errors[rows])
        return errors

    def best_penalty(self, targets: Floats, groups: Groups) -> float:
        """Return the penalty with the smallest squared error on groups left out."""
        some = targets[:, :: -(-targets.shape[1] // _COLUMNS)]
        scores = [np.sum(self.errors(some, float(penalty), groups) ** 2) for penalty in _PENALTIES]
        return float(_PENALTIES[int(np.argmin(scores))])


def _groups(persons: ArrayLike | None, count: int) -> Groups:
    """Return the rows of each person; each row by itself if nobody said who is on them."""
    names = np.arange(count) if persons is None else np.asarray(persons)
    if names.shape != (count,):
        raise InputError(f"every public picture needs its person; got {names.shape} persons of {count} pictures.")
    starts = np.unique(np.sort(names), return_index=True)[1]
    if len(starts) < 2:
        raise InputError("public pictures must be of 2 persons or more: one is left out at a time.")
    return np.split(np.argsort(names, kind="stable"), starts[1:])


def _targets(images: Pictures) -> Floats:
    """Return what is predicted of each picture: its pixels in units of its own contrast, brightness, log contrast."""
    pixels = images.reshape(len(images), -1).astype(np.float32)
    brightness = pixels.mean(axis=1, keepdims=True)
    pixels -= brightness
    contrast = np.maximum(pixels.std(axis=1, keepdims=True), _FLATTEST)
    return np.hstack([pixels / contrast, brightness / 255, np.log(contrast)])
