"""Features that are computed once and kept: a cache entry is proven right before it is used, or it is made again.

An entry is named by the SHA-256 of the images and of the pipeline's fingerprint, and opens with the SHA-256 of
everything that follows. One that is truncated, altered, foreign or of another version is never trusted: it is computed
again and replaced. Entries appear by an atomic rename, so processes that work at the same time see whole ones only; at
worst both compute the same. No trouble with the cache loses features: a damaged entry, a full disk or a read-only
folder is told by a `CacheWarning`, and the features are returned all the same.

Features of private images are private: entries have mode 0600, in a folder "features" of mode 0700.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.features.planes import Float32, check_finite
from blindsight.errors import CorruptFileError, DataError, StorageError
from blindsight.files import atomic_writer, storage_errors
from blindsight.progress import Progress, silent

_FORMAT = 1
_CHUNK = 256  # images between two reports of progress
_ALIGNED = 64  # the features start at a multiple of this many bytes
_LONGEST_HEADER = 1 << 16


class CacheWarning(UserWarning):
    """The cache could not be used; the features were computed and nothing is lost but time."""


class FeaturePipeline(Protocol):
    """What turns images, uint8 (n, height, width, 3), into features, float32 (n, d)."""

    def fit(self, images: NDArray[np.uint8]) -> Self:
        """Learn what the features need to know of the images, or only check that they can be used."""
        ...

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return one row of features per image."""
        ...

    def fingerprint(self) -> str:
        """Return everything that decides the output: class, version, parameters, weights, what was fitted."""
        ...


@runtime_checkable
class LearningPipeline(FeaturePipeline, Protocol):
    """A pipeline that must be fitted before it transforms; what it learned can be taken out and put back."""

    @property
    def fitted(self) -> bool:
        """Tell whether `transform` can be called."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what was learned."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self:
        """Take over what another pipeline with the same parameters learned."""
        ...


def extract(
    dataset: Dataset, pipeline: FeaturePipeline, *, cache: Path | None = None, progress: Progress = silent
) -> Float32:
    """Return the features of a dataset, float32 (n, d), from the cache folder if they are there.

    A dataset that comes with features and without images keeps its own. A pipeline that learns and is not fitted yet is
    fitted to this dataset and stays so, whether its fit was computed or found in the cache; one that is fitted is only
    applied. So `extract(train, pixels)` and then `extract(test, pixels)` treat both alike.
    """
    if dataset.images is None:
        return _ready(dataset)
    if cache is None:
        return _compute(dataset.images, pipeline, progress)
    key = hashlib.sha256(f"{dataset.content_hash()}\n{pipeline.fingerprint()}".encode()).hexdigest()
    path = cache / "features" / f"{key}.features"
    learner = pipeline if isinstance(pipeline, LearningPipeline) and not pipeline.fitted else None
    try:
        entry = _read(path, key)
    except StorageError as error:
        entry = None
        warnings.warn(f"{error} The features are computed again.", CacheWarning, stacklevel=2)
    if entry is not None:
        progress("features from the cache", len(dataset), len(dataset))
        features = entry.pop("features")
        if learner is not None:
            learner.restore(entry)
        return features
    features = _compute(dataset.images, pipeline, progress)
    try:
        _write(path, key, {"features": features} | (learner.state() if learner is not None else {}))
    except StorageError as error:
        warnings.warn(f"{error} The features are not kept for the next time.", CacheWarning, stacklevel=2)
    return features


def _ready(dataset: Dataset) -> Float32:
    assert dataset.features is not None
    if dataset.features.ndim != 2:
        raise DataError(f"features must have shape (n, d); {dataset.name!r} has {dataset.features.shape}.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        features = dataset.features.astype(np.float32, copy=False)
    check_finite(features, f"the feature table of {dataset.name!r}")
    return features


def _compute(images: NDArray[np.uint8], pipeline: FeaturePipeline, progress: Progress) -> Float32:
    if isinstance(pipeline, LearningPipeline) and not pipeline.fitted:
        progress("fitting the features", 0, None)
        pipeline.fit(images)
    parts = []
    for start in range(0, max(1, len(images)), _CHUNK):
        progress("features", start, len(images))
        chunk = images[start : start + _CHUNK]
        part = np.asarray(pipeline.transform(chunk), dtype=np.float32)
        if part.ndim != 2 or len(part) != len(chunk):
            raise DataError(f"a pipeline must return one row per image; got {part.shape} for {len(chunk)} images.")
        parts.append(part)
    progress("features", len(images), len(images))
    features = np.concatenate(parts)
    check_finite(features, f"what {type(pipeline).__name__} made of the images")
    return features


def _opening(key: str) -> str:
    return f"blindsight features {_FORMAT} {key} "


def _read(path: Path, key: str) -> dict[str, NDArray[Any]] | None:
    """Return the arrays of an entry that is whole and the right one; None if there is no entry."""
    with storage_errors("read", path):
        if not path.is_file():
            return None
        content = np.fromfile(path, dtype=np.uint8)
    checksum, rest = content[:64].tobytes(), content[64:]
    if checksum != hashlib.sha256(rest.data).hexdigest().encode():
        raise CorruptFileError(f"{path} is damaged.")
    line, opening = rest[:_LONGEST_HEADER].tobytes().partition(b"\n")[0], _opening(key).encode()
    if not line.startswith(opening):
        raise CorruptFileError(f"{path} is of other images or of another version.")
    arrays, values = {}, rest[len(line) + 1 :]
    for name, dtype, shape in json.loads(line.removeprefix(opening)):
        size = np.dtype(dtype).itemsize * math.prod(shape)
        arrays[name] = np.require(values[:size].view(dtype).reshape(shape), requirements="A")
        values = values[size:]
    return arrays


def _write(path: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    layout = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    line = _opening(key) + json.dumps(layout)
    header = line.ljust(len(line) + -(len(line) + 1) % _ALIGNED).encode() + b"\n"
    assert len(header) < _LONGEST_HEADER
    parts = [memoryview(header), *(np.ascontiguousarray(array).data for array in arrays.values())]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    with storage_errors("write", path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_writer(path, private=True) as stream:
        stream.write(digest.hexdigest().encode())
        stream.writelines(parts)
