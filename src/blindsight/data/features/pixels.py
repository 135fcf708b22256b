"""Pixels as features: every image becomes six normalised planes, compressed by PCA to 95% of their energy.

Guarantees: `energy_` is the share of the energy that the kept components really hold, never an estimate; it reaches
the target unless `max_components` forbids it; the planes of all images are never in memory together, nor is a matrix
with more than 8,192 rows and columns: memory is a few times that of the components kept.

The pipeline is section 5 of Enev, Jung, Bo, Ren and Kohno, "SensorSift: Balancing Sensor Data Privacy and Utility in
Automated Face Understanding" (ACSAC 2012); `planes` tells how its transforms are read. PCA is not whitened: partial
least squares on whitened features would see nothing but the labels.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.features.pca import Target, principal_components
from blindsight.data.features.planes import PLANES, Float32, PlaneRows, check_images, planes
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import atomic_writer, storage_errors
from blindsight.rng import science

_VERSION = 1  # raised whenever the same images would give other features


class PixelFeatures:
    """The pixel pipeline: fit it once, then it only maps images of the same size to float32 rows.

    `energy` is the share of the planes' energy that PCA must keep, in (0, 0.999], or None for the raw planes without
    PCA. `max_components` bounds the number of features, even below the target: `energy_` tells what was reached.
    `random_state` matters only where more than 8,192 images of more than 8,192 features are fitted.

    Fitted: `image_shape_` (height, width); with PCA also `mean_` (d,), `components_` (k, d) and `energies_` (k,), the
    share that each component holds. The components are made of the images and show faces: keep them as private.
    """

    image_shape_: NDArray[np.int64]
    mean_: Float32
    components_: Float32
    energies_: NDArray[np.float64]

    def __init__(self, energy: float | None = 0.95, max_components: int | None = None, random_state: int = 0) -> None:
        self.energy = energy
        self.max_components = max_components
        self.random_state = random_state

    def __repr__(self) -> str:
        return f"PixelFeatures({', '.join(f'{name}={value!r}' for name, value in self._parameters().items())})"

    @property
    def fitted(self) -> bool:
        """Tell whether `transform` can be called."""
        return hasattr(self, "image_shape_")

    @property
    def n_components_(self) -> int:
        """Return the number of features of an image."""
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
        """Return the pictures that features still show: RGB, with each picture's brightness and contrast made standard.

        The normalisation forgot mu and sigma, so [mu - 2 sigma, mu + 2 sigma] is shown as [0, 255].
        """
        self._check_fitted()
        if features.ndim != 2 or features.shape[1] != self.n_components_:
            raise InputError(f"features must have shape (n, {self.n_components_}); got {features.shape}.")
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
        """Return the fitted arrays by name."""
        self._check_fitted()
        return {name: vars(self)[name] for name in self._learned()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Take over the arrays that `state` returned."""
        vars(self).update({name: state[name] for name in self._learned()})
        return self

    def save(self, path: Path) -> None:
        """Write the fitted pipeline to one .npz file, whole or not at all, readable by its owner only."""
        description = {"version": _VERSION, "parameters": self._parameters(), "content": self._content_hash()}
        with atomic_writer(path, private=True) as stream:
            np.savez(stream, allow_pickle=False, description=np.array(json.dumps(description)), **self.state())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote; a file that is truncated, altered or of another version is refused."""
        with storage_errors("read", path):
            stream = path.open("rb")
        try:
            with stream, np.load(stream, allow_pickle=False) as entries:
                arrays = dict(entries)
            description = json.loads(str(arrays["description"]))
            pipeline = cls(**description["parameters"]).restore(arrays)
            genuine = (description["version"], description["content"]) == (_VERSION, pipeline._content_hash())
        except Exception as error:  # damaged archives make zipfile and numpy raise a dozen kinds
            raise CorruptFileError(f"{path} does not hold pixel features or is damaged. Fit and save again.") from error
        if not genuine:
            raise CorruptFileError(f"{path} is not what was saved, or is of another version. Fit and save again.")
        return pipeline

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
        target = Target(energy, total, self.max_components or len(mean))
        energies, components = principal_components(PlaneRows(images, mean), target, science(self.random_state))
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
