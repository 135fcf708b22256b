"""Pixels as features: every image becomes six normalised planes, compressed by PCA to 95% of their energy.

Section 5 of Enev, Jung, Bo, Ren and Kohno, "SensorSift: Balancing Sensor Data Privacy and Utility in Automated Face
Understanding" (ACSAC 2012). The planes are raw RGB, intensity, edge orientation and edge magnitude. Where the paper is
silent or loose:

- 128 x 128 faces give its 98,304 features as 3 planes of RGB and one each of intensity, edge orientation, magnitude.
- Intensity is 0.299 R + 0.587 G + 0.114 B. Edges are its central differences (one-sided at the border): orientation is
  the angle of steepest brightening in (-pi, pi], 0 where there is no edge; magnitude is the length of the gradient.
- The energy normalisation (x - mu) / (2 sigma) comes "after computing these transforms" and before they are
  concatenated. It is therefore read per face and per transform: mu and sigma over all RGB values together (colour casts
  survive), then over each of the other three planes. A constant transform becomes zeros. Nothing is clipped: the
  paper's "to remove outliers" means that values beyond [-1, 1] are rare.
- PCA is not whitened: partial least squares on whitened features would see nothing but the labels.

Guarantees: `energy_` is the measured share of the energy that the kept components hold; it reaches the target unless
`max_components` forbids it. Memory is one batch and a few times the components kept: never the planes of all images,
nor a matrix with more than 8,192 rows and columns.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from blindsight.data.dataset import Float32, check_images
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import as_path, read_arrays, write_arrays
from blindsight.rng import science
from blindsight.validation import check_shape

PLANES = 6  # RGB, intensity, edge orientation, edge magnitude: features per pixel

_VERSION = 1  # raised whenever the same images would give other features
_KIND = f"blindsight/pixel-features.{_VERSION}"
_BATCH_BYTES = 1 << 27  # planes held in memory at once
_EXACT_UP_TO = 8192  # the largest eigenproblem solved whole: about a minute, two gigabytes
_MAX_PASSES = 30
_SETTLED = 1e-5  # subspace iteration ends when a pass adds less than this share of the energy

Principal = tuple[NDArray[np.float64], Float32]  # energies in falling order, and the unit vectors (k, d) that hold them


def planes(images: NDArray[np.uint8]) -> Float32:
    """Return the six normalised planes of every image, one row each: RGB, intensity, edge orientation, edge magnitude.

    >>> planes(np.zeros((2, 128, 128, 3), dtype=np.uint8)).shape
    (2, 98304)
    """
    check_images(images)
    if min(images.shape[1:3]) < 2:
        raise InputError(f"edges need images of at least 2x2 pixels; got {images.shape[1]}x{images.shape[2]}.")
    rgb = np.asarray(images, dtype=np.float32)
    # Weights in thousandths keep intensities and differences exact in float32, so that flat stays exactly flat; the
    # factor 1000 falls out of the normalisation.
    intensity = rgb @ np.array([299, 587, 114], dtype=np.float32)
    down, right = np.gradient(intensity, axis=(1, 2))
    transforms = (rgb, intensity, np.arctan2(down, right), np.sqrt(down**2 + right**2))
    return np.concatenate(
        [_normalised(part.reshape(len(images), math.prod(part.shape[1:]))) for part in transforms], axis=1
    )


def _normalised(part: Float32) -> Float32:
    """Apply (x - mu) / (2 sigma) to every row; rows whose spread is only rounding become zeros."""
    mu = part.mean(axis=1, dtype=np.float64, keepdims=True)
    centred = part - mu.astype(np.float32)
    sigma = np.sqrt(np.einsum("ij,ij->i", centred, centred) / part.shape[1])[:, None]
    varies = sigma > 1e-6 * np.abs(mu)
    result: Float32 = centred * np.divide(0.5, sigma, out=np.zeros_like(sigma), where=varies)
    return result


@dataclass(frozen=True)
class PlaneRows:
    """The planes of many images, less their mean: a tall matrix of which only the batch at hand is ever made."""

    images: NDArray[np.uint8]
    mean: Float32 | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def width(self) -> int:
        return PLANES * math.prod(self.images.shape[1:3])

    def spans(self) -> list[slice]:
        step = max(1, _BATCH_BYTES // (4 * self.width))
        return [slice(start, start + step) for start in range(0, len(self.images), step)]

    def batch(self, span: slice | NDArray[np.int64]) -> Float32:
        images = self.images[span]
        batch = np.empty((len(images), self.width), dtype=np.float32)
        for start in range(0, len(images), 16):  # few at a time, so that the intermediate planes stay in the cache
            batch[start : start + 16] = planes(images[start : start + 16])
        if self.mean is not None:
            batch -= self.mean
        return batch

    def __iter__(self) -> Iterator[Float32]:
        return map(self.batch, self.spans())


@dataclass(eq=False)
class PixelFeatures:
    """The pixel pipeline: fit it once, then it only maps images of the same size to float32 rows.

    `energy` is the share of the planes' energy that PCA must keep, in (0, 0.999], or None for the raw planes without
    PCA. `max_components` bounds the number of features, even below the target: `energy_` tells what was reached.
    `random_state` matters only where more than 8,192 images of more than 8,192 features are fitted.

    Fitted: `image_shape_` (height, width); with PCA also `mean_` (d,), `components_` (k, d) and `energies_` (k,), the
    share that each component holds. The components are made of the images and show faces: keep them as private.
    """

    energy: float | None = 0.95
    max_components: int | None = None
    random_state: int = 0
    image_shape_: NDArray[np.int64] = field(init=False, repr=False)
    mean_: Float32 = field(init=False, repr=False)
    components_: Float32 = field(init=False, repr=False)
    energies_: NDArray[np.float64] = field(init=False, repr=False)

    @property
    def fitted(self) -> bool:
        return hasattr(self, "image_shape_")

    @property
    def n_components_(self) -> int:
        return PLANES * math.prod(self.image_shape_.tolist()) if self.energy is None else len(self.components_)

    @property
    def energy_(self) -> float:
        """Return the share of the energy of the fitted images that the features hold."""
        return 1.0 if self.energy is None else float(self.energies_.sum())

    def fit(self, images: NDArray[np.uint8]) -> Self:
        """Learn the mean and the principal components of the images' planes; memory-mapped images stay on disk."""
        self._check_parameters()
        planes(images[:1])  # refuses what is no image
        if not len(images):
            raise InputError("there are no images to fit.")
        learned = {} if self.energy is None else self._components(images, self.energy)
        return self.restore(learned | {"image_shape_": np.array(images.shape[1:3], dtype=np.int64)})

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return the features of images that are as large as the fitted ones, float32 (n, n_components_)."""
        self._check_fitted()
        check_images(images)
        if not np.array_equal(images.shape[1:3], self.image_shape_):
            here, there = ("x".join(map(str, shape)) for shape in (self.image_shape_, images.shape[1:3]))
            raise InputError(f"these features were fitted to images of {here} pixels; got {there}. Resize the images.")
        features = np.empty((len(images), self.n_components_), dtype=np.float32)
        rows = PlaneRows(images, None if self.energy is None else self.mean_)
        for span in rows.spans():
            batch = rows.batch(span)
            features[span] = batch if self.energy is None else batch @ self.components_.T
        return features

    def inverse_images(self, features: Float32) -> NDArray[np.uint8]:
        """Return what features still show, in RGB; mu and sigma were forgotten: mu -+ 2 sigma becomes [0, 255]."""
        self._check_fitted()
        features = check_shape(features, self.n_components_, least=0, dense=True)
        height, width = self.image_shape_.tolist()
        colours = 3 * height * width
        rgb = features[:, :colours]
        if self.energy is not None:
            rgb = features @ self.components_[:, :colours] + self.mean_[:colours]
        pictures: NDArray[np.uint8] = np.rint(np.clip(rgb * 127.5 + 127.5, 0, 255)).astype(np.uint8)
        return pictures.reshape(len(features), height, width, 3)

    def fingerprint(self) -> str:
        """Return the parameters and, once fitted, the SHA-256 of all that was learned."""
        learned = self._content_hash() if self.fitted else "nothing"
        return f"{self!r} version={_VERSION} learned={learned}"

    def state(self) -> dict[str, NDArray[Any]]:
        self._check_fitted()
        return {name: vars(self)[name] for name in self._learned()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        vars(self).update({name: state[name] for name in self._learned()})
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted pipeline to one file, whole or not at all, readable by its owner only."""
        write_arrays(as_path(path), _KIND, self._parameters(), self.state(), private=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; what is truncated, altered, older or of another kind is refused."""
        try:
            parameters, arrays = read_arrays(path, _KIND)
            return cls(**parameters).restore(arrays)
        except (KeyError, TypeError):
            raise CorruptFileError(f"{path} does not hold pixel features. Fit and save again.") from None

    def _components(self, images: NDArray[np.uint8], energy: float) -> dict[str, NDArray[Any]]:
        sums, squares = np.zeros(PlaneRows(images).width), 0.0
        for batch in PlaneRows(images):
            sums += batch.sum(axis=0, dtype=np.float64)
            squares += float(np.einsum("ij,ij->", batch, batch, dtype=np.float64))
        total = squares - float(sums @ sums) / len(images)
        if total <= 1e-12 * squares:
            raise DataError(
                f"PCA needs images that differ; the {len(images)} given do not. Use energy=None without PCA."
            )
        mean = (sums / len(images)).astype(np.float32)
        target = _Target(energy, total, self.max_components or len(mean))
        energies, components = _principal_components(PlaneRows(images, mean), target, science(self.random_state))
        return {"mean_": mean, "components_": components, "energies_": energies / total}

    def _check_parameters(self) -> None:
        if self.energy is not None and not 0 < self.energy <= 0.999:
            raise InputError(f"energy must be in (0, 0.999]; got {self.energy}. Use None to keep the raw planes.")
        if self.max_components is not None and self.max_components < 1:
            raise InputError(f"max_components must be at least 1; got {self.max_components}.")

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise InputError("these pixel features are not fitted yet. Call fit(images) first.")

    def _learned(self) -> tuple[str, ...]:
        return ("image_shape_",) if self.energy is None else ("image_shape_", "mean_", "components_", "energies_")

    def _parameters(self) -> dict[str, Any]:
        return {"energy": self.energy, "max_components": self.max_components, "random_state": self.random_state}

    def _content_hash(self) -> str:
        digest = hashlib.sha256(json.dumps([_VERSION, self._parameters()]).encode())
        for name, array in self.state().items():
            digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True)
class _Target:
    """How much energy to hold, out of how much, with how many components at most."""

    energy: float
    total: float
    most: int

    def count(self, energies: NDArray[np.float64]) -> int:
        enough = int(np.searchsorted(np.cumsum(energies), self.energy * self.total)) + 1
        return min(enough, len(energies), self.most)


def _principal_components(rows: PlaneRows, target: _Target, generator: np.random.Generator) -> Principal:
    """Return the fewest leading components that hold the target, each with its largest entry positive."""
    if min(len(rows), rows.width) > _EXACT_UP_TO:
        energies, components = _by_iteration(rows, target, generator)
    else:
        energies, components = (_by_gram if len(rows) < rows.width else _by_covariance)(rows, target)
    peaks = np.abs(components).argmax(axis=1, keepdims=True)  # eigenvectors have no sign of their own
    components *= np.sign(np.take_along_axis(components, peaks, axis=1))
    return energies, components


def _by_gram(rows: PlaneRows, target: _Target) -> Principal:
    """Solve the n x n problem of inner products exactly: for few images of many pixels."""
    gram = np.empty((len(rows), len(rows)))
    spans = rows.spans()
    for i, here in enumerate(spans):
        batch = rows.batch(here)
        for there in spans[: i + 1]:
            block = batch @ (batch if there is here else rows.batch(there)).T
            gram[here, there], gram[there, here] = block, block.T
    energies, vectors = _largest_first(gram)
    count = target.count(energies)
    energies = energies[:count]
    turn = (vectors[:, :count] / np.sqrt(energies)).astype(np.float32)
    components = np.zeros((count, rows.width), dtype=np.float32)
    for span in spans:
        components += turn[span].T @ rows.batch(span)
    return energies, components


def _by_covariance(rows: PlaneRows, target: _Target) -> Principal:
    """Solve the d x d problem exactly: for many images of few pixels."""
    covariance = np.zeros((rows.width, rows.width))
    for batch in rows:
        covariance += batch.T @ batch
    energies, vectors = _largest_first(covariance)
    count = target.count(energies)
    return energies[:count], np.ascontiguousarray(vectors[:, :count].T, dtype=np.float32)


def _by_iteration(rows: PlaneRows, target: _Target, generator: np.random.Generator) -> Principal:
    """Turn the span of some random images towards the leading components, one pass over all a turn: for many of both.

    Ritz values are the true energies of the vectors returned with them, so the target is held; their number is the
    fewest possible up to what a further pass would still gain.
    """
    widest = min(len(rows) - 1, rows.width)
    order = generator.permutation(len(rows))
    sketch = np.empty((rows.width, 0), dtype=np.float32)
    wanted, held = min(64, widest), np.zeros(0)
    for _ in range(_MAX_PASSES):
        fresh = rows.batch(order[sketch.shape[1] : wanted])
        basis = np.linalg.qr(np.hstack([sketch, fresh.T]))[0]
        sketch = np.zeros_like(basis)
        for batch in rows:
            sketch += batch.T @ (batch @ basis)
        energies, turn = _largest_first((basis.T @ sketch).astype(np.float64))
        count, before, held = target.count(energies), held, np.cumsum(energies)
        settled = count <= len(before) and held[count - 1] - before[count - 1] < _SETTLED * target.total
        short = count == basis.shape[1] < target.most
        wanted = min(2 * count if short else count + count // 4 + 16, widest)
        if settled and wanted <= basis.shape[1]:
            break
    return energies[:count], np.ascontiguousarray((basis @ turn[:, :count].astype(np.float32)).T)


def _largest_first(symmetric: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return eigenvalues and eigenvectors in falling order, without those that are rounding errors of zero."""
    values, vectors = eigh(symmetric, overwrite_a=True, check_finite=False, driver="evd")
    kept = max(1, int(np.sum(values > 1e-7 * values[-1])))
    return values[::-1][:kept], vectors[:, ::-1][:, :kept]
