"""From pictures to features: pipelines by name, grey thumbnails, and a cache whose entries are checked before use.

A cache entry is an array file named by the SHA-256 of the images and of the pipeline's fingerprint. One that is
truncated, altered, foreign or of another version is never trusted: it is computed again and replaced. Entries appear by
an atomic rename, so concurrent processes see whole ones only; at worst both compute the same. No trouble with the cache
(a damaged entry, a full disk, a read-only folder) loses features: a `CacheWarning` tells of it.

Features of private images are private: entries have mode 0600, in a folder "features" of mode 0700.
"""

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from blindsight.data.dataset import Dataset, Float32, check_images
from blindsight.data.embedding import Embedding, OnnxEmbedding
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import CorruptFileError, DataError, InputError, StorageError, UnknownNameError
from blindsight.extras import check_installed
from blindsight.files import as_path, read_arrays, storage_errors, write_arrays
from blindsight.progress import Progress, silent
from blindsight.validation import check_features, check_finite

_KIND = "blindsight/features.2"
_SIDE = 64  # of pictures read from files, where features need no more
_CHUNK = 256  # images between two reports of progress
_THUMBNAIL_VERSION = 1  # raised whenever the same images would give other features


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
    def fitted(self) -> bool: ...

    def state(self) -> dict[str, NDArray[Any]]: ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> Self: ...


@dataclass(eq=False)
class Thumbnails:
    """Grey thumbnails of unit norm: float32 (n, side * side); a black image stays zero.

    Every image is reduced to grey, stretched to `side` x `side` pixels (bicubic, antialiased) and divided by its
    Euclidean norm, so that brightness does not matter. Nothing is fitted: a private search may use these features
    without giving anything else away.
    """

    side: int = 28

    def __post_init__(self) -> None:
        if isinstance(self.side, bool) or not isinstance(self.side, int) or not 2 <= self.side <= 512:
            raise InputError(f"the side of a thumbnail is a whole number of pixels in [2, 512]; got {self.side!r}.")

    @property
    def n_components_(self) -> int:
        return self.side * self.side

    def fit(self, images: NDArray[np.uint8]) -> Self:
        check_images(images)
        return self

    def transform(self, images: NDArray[np.uint8]) -> Float32:
        """Return the thumbnails, one row each.

        >>> Thumbnails(side=2).transform(np.full((1, 4, 4, 3), 9, dtype=np.uint8))
        array([[0.5, 0.5, 0.5, 0.5]], dtype=float32)
        """
        check_images(images)
        rows = np.empty((len(images), self.side * self.side), dtype=np.float32)
        for row, image in zip(rows, images, strict=True):
            grey = Image.fromarray(np.ascontiguousarray(image)).convert("L")
            if grey.size != (self.side, self.side):
                grey = grey.resize((self.side, self.side), Image.Resampling.BICUBIC)
            row[:] = np.asarray(grey, dtype=np.float32).ravel()
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        result: Float32 = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
        return result

    def fingerprint(self) -> str:
        return f"Thumbnails version={_THUMBNAIL_VERSION} side={self.side}"


def pipeline(kind: str, *, components: int | None = None, random_state: int = 0) -> FeaturePipeline:
    """Return the pipeline called `kind`; pixels keep 95% of their energy, in at most `components`.

    >>> pipeline("pixels").energy
    0.95
    """
    if kind == "pixels":
        return PixelFeatures(max_components=components, random_state=random_state)
    if kind == "thumbnail":
        return Thumbnails()
    if kind == "embedding":
        return Embedding()
    if Path(kind).suffix == ".onnx":
        return OnnxEmbedding(kind)
    raise UnknownNameError("feature pipeline", kind, ("embedding", "pixels", "thumbnail", "the path of an .onnx model"))


def check_pipeline(kind: str) -> None:
    """Refuse features that are not known, or cannot be made here, before any picture is read; nothing is loaded."""
    made = pipeline(kind)
    if isinstance(made, Embedding):
        check_installed(*Embedding.libraries, extra="deep", purpose="the EfficientNet embedding")
    if isinstance(made, OnnxEmbedding):
        check_installed("onnxruntime", extra="onnx", purpose="running an ONNX model")
        with storage_errors("read", made.path):
            made.path.stat()


def describe_pipeline(kind: str, made: FeaturePipeline) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what `restored_pipeline` needs, to be saved with what stands on these features."""
    described = {"features": kind, "fingerprint": made.fingerprint()}
    if not isinstance(made, PixelFeatures):
        return described, {}
    return described | {"energy": made.energy, "most": made.max_components, "seed": made.random_state}, made.state()


def restored_pipeline(described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> FeaturePipeline:
    """Return the pipeline that was described; one that would give other features here is refused."""
    try:
        kind, fingerprint = str(described["features"]), described["fingerprint"]
        if kind == "pixels":
            made: FeaturePipeline = PixelFeatures(described["energy"], described["most"], described["seed"]).restore(
                arrays
            )
        else:
            made = pipeline(kind)
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"what describes the features is damaged: {error} is missing.") from None
    if made.fingerprint() != fingerprint:
        raise DataError(f"features by {kind} are other ones here: {made.fingerprint()} instead of {fingerprint}.")
    return made


def reading_side(pipeline: FeaturePipeline) -> int:
    """Return the side in pixels at which files should be read, so that a network sees as much as it can take.

    >>> reading_side(Thumbnails()), reading_side(Embedding())
    (64, 224)
    """
    return max(_SIDE, pipeline.size if isinstance(pipeline, Embedding | OnnxEmbedding) else 0)


def extract(
    dataset: Dataset,
    pipeline: FeaturePipeline,
    *,
    fit_to: NDArray[np.int64] | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> Float32:
    """Return the features of a dataset, float32 (n, d), from the cache folder if they are there.

    With `fit_to`, a pipeline that learns is first fitted to these rows alone: the public ones, as what is fitted to
    private pictures would leave their owners outside of the protocol. Without, one that is not fitted yet is fitted to
    this dataset and stays so, whether its fit was computed or found in the cache; one that is fitted is only applied.
    So `extract(train, pixels)` and then `extract(test, pixels)` treat both alike. A dataset with features and without
    images keeps its own.
    """
    if dataset.images is None:
        return _ready(dataset)
    if fit_to is not None and isinstance(pipeline, LearningPipeline):
        progress("fitting the features", 0, None)
        pipeline.fit(dataset.images[fit_to])
    if cache is None:
        return _compute(dataset.images, pipeline, progress)
    key = hashlib.sha256(f"{dataset.content_hash()}\n{pipeline.fingerprint()}".encode()).hexdigest()
    path = as_path(cache) / "features" / f"{key}.features"
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
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        features = dataset.features.astype(np.float32, copy=False)
    check_finite(features, f"the features of {dataset.name!r}", error=DataError, first=True)
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
    check_finite(features, f"features by {type(pipeline).__name__}", error=DataError, first=True)
    return features


def _read(path: Path, key: str) -> dict[str, NDArray[Any]] | None:
    with storage_errors("read", path):
        if not path.is_file():
            return None
    document, arrays = read_arrays(path, _KIND)
    if document != {"key": key}:
        raise CorruptFileError(f"{path} is of other images.")
    return arrays


def _write(path: Path, key: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    with storage_errors("write", path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_arrays(path, _KIND, {"key": key}, arrays, private=True)


@dataclass(frozen=True, eq=False)
class Standardiser:
    """Scales features to zero mean and unit variance on *public* data: all owners share it, and it tells of none."""

    mean: NDArray[np.floating[Any]]
    scale: NDArray[np.floating[Any]]

    @classmethod
    def fit(cls, X: ArrayLike) -> Self:
        """Learn means and deviations; a feature that never varies keeps its scale."""
        features = check_features(X, precision="wide")
        mean = features.mean(axis=0, dtype=np.float64)
        deviation = features.std(axis=0, dtype=np.float64)
        constant = deviation <= 1e-6 * deviation.max()
        return cls(mean.astype(features.dtype), np.where(constant, 1.0, deviation).astype(features.dtype))

    def apply(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        standardised: NDArray[np.floating[Any]] = check_features(X, len(self.mean), precision="wide") - self.mean
        return standardised / self.scale
