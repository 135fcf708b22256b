"""What a linear classifier is: standardised features, questions and their answers, weights with a bias; saved and read.

Weights are (rows, D + 1) and the last column is the bias. One row decides one yes/no question: "is it of class c?"
(one-vs-rest), "has it attribute a?", or a single row that detects. The classifiers of the paper (Yonetani et al. 2017)
and of its baselines all have this shape, so one set of functions scores them all. `Classes` and `Attributes` turn
answers into the signs that training takes, and scores into answers again; two classes are one question: a single row,
whose score also ranks.

`LinearModel` is what learning together leaves behind: it can only be applied, saved and read again. A saved model is an
array file (`blindsight.files`): weights, standardiser and class names, with a checksum, no pickle. `PictureModel` also
has the features it was learned from: its folder holds ``model.npz`` and ``pictures.npz``, which says which features,
what they learned of the *public* pictures, at which size files are read, and what the answers are called.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.features import (
    FeaturePipeline,
    Standardiser,
    describe_pipeline,
    extract,
    pipeline,
    restored_pipeline,
)
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import AnyPath, as_path, folder_content, read_arrays, write_arrays
from blindsight.metrics import accuracy, balanced_accuracy
from blindsight.rounds import Task
from blindsight.statement import PrivacyStatement
from blindsight.validation import check_features

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Signs = NDArray[np.int8]
"""(n, classes): +1 the sample is of the class, -1 it is not, 0 nobody knows."""


def class_signs(labels: ArrayLike, classes: int) -> Signs:
    """Return one-vs-rest signs of labels 0..classes-1; a label of -1 is unknown.

    >>> class_signs([1, -1], 3)
    array([[-1,  1, -1],
           [ 0,  0,  0]], dtype=int8)
    """
    known = np.asarray(labels)
    if known.ndim != 1 or known.dtype.kind not in "iu":
        raise InputError(f"labels must be one whole number per sample; got {known.dtype} of shape {known.shape}.")
    if classes < 1 or (known.size and not -1 <= known.min() <= known.max() < classes):
        raise InputError(f"labels must lie in 0..{classes - 1}, or be -1 where unknown.")
    signs = np.where(known[:, None] == np.arange(classes), 1, -1).astype(np.int8)
    signs[known == -1] = 0
    return signs


def attribute_signs(attributes: ArrayLike) -> Signs:
    """Return signs of independent yes/no attributes (n, a), given as 1, 0 and -1 for unknown; one column detects.

    >>> attribute_signs([[1, 0, -1]])
    array([[ 1, -1,  0]], dtype=int8)
    """
    known = np.asarray(attributes)
    known = known[:, None] if known.ndim == 1 else known
    if known.ndim != 2 or not np.isin(known, (-1, 0, 1)).all():
        raise InputError("attributes must be 1 (yes), 0 (no) or -1 (unknown), one column per attribute.")
    return np.where(known == -1, 0, np.where(known == 1, 1, -1)).astype(np.int8)


def decision_function(weights: ArrayLike, X: ArrayLike) -> Floats:
    """Return the scores (n, classes) of features under weights whose last column is the bias."""
    matrix, features = np.asarray(weights), check_features(X, precision="wide")
    check_weights(matrix, features.shape[1])
    scores: Floats = features @ matrix[:, :-1].T + matrix[:, -1]
    return scores


def predict(weights: ArrayLike, X: ArrayLike) -> NDArray[np.int64]:
    """Return the class of highest score for every sample; under a single row, 1 where the score is positive."""
    scores = decision_function(weights, X)
    return (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1).astype(np.int64)


def predict_attributes(weights: ArrayLike, X: ArrayLike) -> NDArray[np.int8]:
    return (decision_function(weights, X) > 0).astype(np.int8)


def check_signs(signs: ArrayLike, samples: int) -> Signs:
    """Return signs that fit so many samples."""
    known = np.asarray(signs)
    if known.ndim != 2 or known.shape[1] < 1 or not np.isin(known, (-1, 0, 1)).all():
        raise InputError("signs must be -1, 0 or 1, one column per class. Make them by class_signs or attribute_signs.")
    if len(known) != samples:
        raise InputError(f"there must be one row of signs per sample; got {len(known)} rows for {samples} samples.")
    return known.astype(np.int8, copy=False)


def check_weights(weights: ArrayLike, dimensions: int, classes: int | None = None) -> Array:
    """Return finite weights for features of so many dimensions."""
    matrix = np.asarray(weights, dtype=np.float64)
    wanted = (classes if classes is not None else (len(matrix) if matrix.ndim else 0), dimensions + 1)
    if matrix.shape != wanted:
        rows = "classes" if classes is None else classes
        raise InputError(f"weights for {dimensions} features must be ({rows}, {dimensions + 1}); got {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise InputError("weights must be finite; got NaN or infinity.")
    return matrix


@dataclass(frozen=True, eq=False)
class Classes:
    """One class per sample; `names` are all there are, sorted."""

    names: NDArray[Any]

    def __post_init__(self) -> None:
        if self.names.ndim != 1 or len(self.names) < 2:
            raise InputError("a classifier tells at least two classes apart; got one class.")

    @property
    def rows(self) -> int:
        """How many rows of weights: one per class, or a single one for two classes."""
        return 1 if len(self.names) == 2 else len(self.names)

    def numbers(self, y: ArrayLike) -> NDArray[np.int64]:
        """Return the labels as positions in `names`; an unknown label is refused."""
        labels = np.asarray(y)
        if labels.ndim != 1:
            raise InputError(f"labels must be one per sample; got shape {labels.shape}.")
        try:
            places = np.minimum(np.searchsorted(self.names, labels), len(self.names) - 1)
            strange = labels[self.names[places] != labels]
        except TypeError:
            strange = labels
        if strange.size:
            raise InputError(
                f"{len(strange)} labels are none of the {len(self.names)} classes, which are those of the public data "
                "unless named by `classes`."
            )
        return places.astype(np.int64)

    def signs(self, y: ArrayLike) -> Signs:
        """Return what training takes."""
        numbers = self.numbers(y)
        return attribute_signs(numbers) if self.rows == 1 else class_signs(numbers, self.rows)

    def scores(self, scores: Floats) -> Floats:
        """Return scores as callers expect them: (n,) for two classes."""
        return scores[:, 0] if self.rows == 1 else scores

    def answers(self, scores: Floats) -> NDArray[Any]:
        """Return the class of every sample."""
        best = (scores[:, 0] > 0).astype(np.int64) if self.rows == 1 else scores.argmax(axis=1)
        answers: NDArray[Any] = self.names[best]
        return answers

    def quality(self, scores: Floats, y: ArrayLike) -> float:
        """Return the accuracy averaged over the classes, as the paper reports it."""
        truth, guess = self.numbers(y), self.numbers(self.answers(scores))
        return balanced_accuracy(truth, guess) if len(np.unique(truth)) > 1 else accuracy(truth, guess)


@dataclass(frozen=True, eq=False)
class Attributes:
    """Several independent attributes per sample, each 1 (yes), 0 (no) or -1 (unknown)."""

    count: int

    @property
    def rows(self) -> int:
        """How many rows of weights."""
        return self.count

    def signs(self, y: ArrayLike) -> Signs:
        """Return what training takes; an unknown attribute trains nothing."""
        attributes = np.asarray(y)
        if attributes.ndim != 2 or attributes.shape[1] != self.count:
            raise InputError(f"attributes must have {self.count} columns; got shape {attributes.shape}.")
        return attribute_signs(attributes)

    def scores(self, scores: Floats) -> Floats:
        """Return scores as callers expect them."""
        return scores

    def answers(self, scores: Floats) -> NDArray[Any]:
        """Return 1 or 0 for every sample and attribute."""
        return (scores > 0).astype(np.int64)

    def quality(self, scores: Floats, y: ArrayLike) -> float:
        """Return the accuracy averaged over the attributes, over the samples of which each is known."""
        signs = self.signs(y)
        known = (signs != 0).sum(axis=0)
        if not known.any():
            raise InputError("no attribute of any sample is known, so nothing can be scored.")
        right = ((scores > 0) == (signs > 0)) & (signs != 0)
        return float(np.mean(right.sum(axis=0)[known > 0] / known[known > 0]))


Labels = Classes | Attributes


_KIND = "blindsight/linear-model.1"


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A standardiser, (rows, D + 1) weights whose last column is the bias, and what the rows answer."""

    weights: Array
    standardiser: Standardiser
    labels: Labels

    def __post_init__(self) -> None:
        check_weights(self.weights, len(self.standardiser.mean), self.labels.rows)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the scores of raw features: (n,) for two classes, else (n, rows)."""
        return self.labels.scores(self._raw_scores(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of every sample, or its attributes as 1 and 0."""
        return self.labels.answers(self._raw_scores(X))

    def quality(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy averaged over classes or attributes."""
        return self.labels.quality(self._raw_scores(X), y)

    def _raw_scores(self, X: ArrayLike) -> Floats:
        return decision_function(self.weights, self.standardiser.apply(X))

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides what the model answers."""
        digest = hashlib.sha256()
        for name, array in sorted(self._arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
        return digest.hexdigest()

    def save(self, path: AnyPath) -> None:
        """Write the model to one file, whole or not at all."""
        write_arrays(path, _KIND, {"attributes": isinstance(self.labels, Attributes)}, self._arrays())

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read a model that `save` wrote; a damaged file raises `CorruptFileError`."""
        document, arrays = read_arrays(path, _KIND)
        try:
            weights = arrays["weights"]
            labels = Attributes(len(weights)) if document["attributes"] else Classes(arrays["classes"])
            return cls(weights, Standardiser(arrays["mean"], arrays["scale"]), labels)
        except (KeyError, TypeError, InputError) as error:
            raise CorruptFileError(f"{path} holds no usable model: {error}.") from None

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"weights": self.weights, "mean": self.standardiser.mean, "scale": self.standardiser.scale}
        if isinstance(self.labels, Classes):
            arrays["classes"] = _plain(self.labels.names)
        return arrays


def _plain(names: NDArray[Any]) -> NDArray[Any]:
    """Return class names without Python objects."""
    if names.dtype.kind != "O":
        return names
    if not all(isinstance(name, str) for name in names):
        raise InputError("a model whose classes are neither numbers nor text cannot be saved.")
    return np.asarray(names, dtype=np.str_)


MODEL, PICTURES = "model.npz", "pictures.npz"
_PICTURES_KIND = "blindsight/pictures.1"


@dataclass(frozen=True, eq=False)
class Pictures:
    """How pictures become features, at which `side` files are read, and what numbered answers are called."""

    features: str  # the name of the pipeline
    made: FeaturePipeline
    answers: tuple[str, ...]
    side: int | None = None  # None where pictures did not come from files

    def transform(self, pictures: Dataset | NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features of pictures, uint8 (n, height, width, 3) or a dataset."""
        if isinstance(pictures, Dataset):
            return extract(pictures, self.made)
        return self.made.transform(np.asarray(pictures))

    @classmethod
    def agree(
        cls, public: Dataset, features: str = "pixels", *, components: int = 200, attributes: bool = False
    ) -> Self:
        """Return what all sites are to do with their pictures, so that their features and classes mean the same.

        Features that learn do so from the public pictures, which also say which classes, or attributes, there are.
        """
        answers = public.attribute_names if attributes else public.label_names
        if not answers:
            raise DataError(f"{public.name} has no {'attributes' if attributes else 'classes'} to learn.")
        made = pipeline(features, components=components)
        if public.images is None:
            raise DataError(f"{public.name} has no pictures to make features of.")
        made.fit(public.images)
        height, width = public.images.shape[1:3]
        return cls(features, made, answers, height if height == width else None)

    def answered(self, dataset: Dataset) -> NDArray[Any]:
        """Return a dataset's classes by name, (n,), or if it has none its attributes, (n, a): 1, 0, -1 for unknown."""
        if dataset.labels is None or set(self.answers) <= set(dataset.attribute_names):
            return np.stack([dataset.attribute(name) for name in self.answers], axis=1)
        return np.array(self.answers)[dataset.with_label_names(self.answers).labels]

    def save(self, path: AnyPath) -> None:
        """Write it to one file, whole or not at all."""
        described, arrays = describe_pipeline(self.features, self.made)
        write_arrays(path, _PICTURES_KIND, described | {"answers": list(self.answers), "side": self.side}, arrays)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; a damaged file, or features that would be others here, are refused."""
        document, arrays = read_arrays(path, _PICTURES_KIND)
        try:
            answers, side = tuple(map(str, document["answers"])), document["side"]
        except (KeyError, TypeError):
            raise CorruptFileError(f"{path} does not say how pictures become features. Learn again.") from None
        return cls(str(document.get("features")), restored_pipeline(document, arrays), answers, side)


@dataclass(frozen=True, eq=False)
class PictureModel:
    """A linear model and how pictures become what it takes."""

    model: LinearModel
    pictures: Pictures

    def predict(self, pictures: Dataset | NDArray[np.uint8]) -> NDArray[Any]:
        """Return the name of every picture's class; of attributes a row of 1 and 0, in the order of `answers`."""
        found = self.model.predict(self.pictures.transform(pictures))
        numbered = found.ndim == 1 and found.dtype.kind in "iu"
        return np.array(self.answers)[found] if numbered else found

    def decision_function(self, pictures: Dataset | NDArray[np.uint8]) -> Floats:
        """Return the scores: (n,) for two classes, else (n, classes or attributes)."""
        return self.model.decision_function(self.pictures.transform(pictures))

    @property
    def answers(self) -> tuple[str, ...]:
        """The names of the classes or attributes."""
        return self.pictures.answers

    @property
    def side(self) -> int | None:
        """The size at which files are read."""
        return self.pictures.side

    @property
    def multilabel(self) -> bool:
        """Whether it tells attributes and not classes."""
        return isinstance(self.model.labels, Attributes)

    def save(self, folder: AnyPath) -> None:
        """Write both files into a folder."""
        self.model.save(as_path(folder) / MODEL)
        self.pictures.save(as_path(folder) / PICTURES)


def load_model(folder: AnyPath) -> PictureModel:
    """Read the model of a run, to be applied to pictures: the folder that `learn classifier` or `save` wrote."""
    place = as_path(folder)
    if not (place / PICTURES).is_file():
        if (place / MODEL).is_file():
            raise InputError(
                f"{place} holds no model of pictures: it was learned from ready-made features, or by an older version. "
                f"Read {MODEL} by LinearModel.load."
            )
        raise InputError(
            f"{place} holds no model of pictures; it holds {folder_content(place)}. Give the folder of a finished run."
        )
    read = PictureModel(LinearModel.load(place / MODEL), Pictures.load(place / PICTURES))
    labels = read.model.labels
    rows = labels.rows if isinstance(labels, Attributes) else len(labels.names)
    if len(read.answers) != rows:
        raise DataError(
            f"{place} holds parts of two runs: {rows} answers in {MODEL}, {len(read.answers)} in {PICTURES}."
        )
    return read


# What tasks hold of public data


def describe_labels(labels: "Labels") -> "tuple[dict[str, Any], dict[str, NDArray[Any]]]":
    """Return the settings and arrays of a task that `read_labels` reads."""
    if isinstance(labels, Attributes):
        return {"attributes": labels.count}, {}
    return {}, {"classes": np.asarray(labels.names.tolist())}  # text and numbers that came as objects are plain arrays


def read_labels(task: Task) -> "Labels":
    """Return the classes or attributes of a task."""
    if "attributes" not in task.settings:
        return Classes(task.arrays["classes"])
    count = task.settings["attributes"]
    if type(count) is not int or count < 1:
        raise InputError(f"attributes must be a whole number of at least 1; got {count!r}.")
    return Attributes(count)


def describe_public(standardiser: Standardiser, features: Floats) -> dict[str, NDArray[Any]]:
    """Return the arrays of a task that `read_public` reads: the standardiser, and standardised public features."""
    return {"mean": standardiser.mean, "scale": standardiser.scale, "public": features}


def read_public(arrays: Mapping[str, NDArray[Any]]) -> tuple[Standardiser, Floats]:
    """Return the standardiser and the standardised public features of a task."""
    standardiser = read_standardiser(arrays)
    return standardiser, check_features(arrays["public"], standardiser.mean.size, precision="wide")


def read_standardiser(arrays: Mapping[str, NDArray[Any]]) -> Standardiser:
    """Return the standardiser of a task."""
    mean, scale = (check_features(arrays[name][None], precision="wide")[0] for name in ("mean", "scale"))
    if len(mean) != len(scale) or not (scale > 0).all():
        raise InputError("features must have a mean and a scale above 0 each.")
    return Standardiser(mean, scale)


def single_member_statement() -> PrivacyStatement:
    """Return the statement of a model that one member learned alone."""
    return PrivacyStatement(
        guarantee="none",
        mechanism="none: one member learned alone and shared nothing",
        unit=None,
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={"member": "its own data and the model", "everybody else": "nothing, until the model is passed on"},
        not_protected=("what the model tells about the data it was trained on, if it is passed on",),
    )
