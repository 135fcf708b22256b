"""What clustering together leaves behind: centroids that can only be applied, saved and read again."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.clustering import assign
from blindsight.learn.linearmodel import Array, Standardiser

_KIND = "blindsight/cluster-model.1"


@dataclass(frozen=True, eq=False)
class ClusterModel:
    """A standardiser, and (clusters, D) centroids of standardised features."""

    centroids: Array
    standardiser: Standardiser

    def __post_init__(self) -> None:
        if self.centroids.ndim != 2 or self.centroids.shape[1:] != self.standardiser.mean.shape:
            raise InputError(f"centroids must be (clusters, D); got shape {self.centroids.shape}.")

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest cluster of every sample of raw features."""
        return assign(self.centroids, self.standardiser.apply(X))

    def save(self, path: AnyPath) -> None:
        """Write the model to one file, whole or not at all."""
        arrays = {"centroids": self.centroids, "mean": self.standardiser.mean, "scale": self.standardiser.scale}
        write_arrays(path, _KIND, {}, arrays)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model that `save` wrote; a damaged file raises `CorruptFileError`."""
        _, arrays = read_arrays(path, _KIND)
        try:
            return cls(arrays["centroids"], Standardiser(arrays["mean"], arrays["scale"]))
        except (KeyError, InputError) as error:
            raise CorruptFileError(f"{path} holds no usable model: {error}.") from None
