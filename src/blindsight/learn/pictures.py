"""A learned linear model that answers for pictures: with the features it was learned from, saved and read together.

A folder holds ``model.npz`` (`LinearModel`) and ``pictures.npz``: which features, what they learned of the *public*
pictures, at which size files are read, and what the answers are called. Neither holds anything of an owner's pictures.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, describe_pipeline, extract, pipeline, restored_pipeline
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import AnyPath, as_path, read_arrays, write_arrays
from blindsight.learn.model import Attributes, Floats, LinearModel

MODEL, PICTURES = "model.npz", "pictures.npz"
_KIND = "blindsight/pictures.1"


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
        write_arrays(path, _KIND, described | {"answers": list(self.answers), "side": self.side}, arrays)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; a damaged file, or features that would be others here, are refused."""
        document, arrays = read_arrays(path, _KIND)
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
    """Read the model of a run, to be applied to pictures: the folder that `learn encrypted` or `save` wrote."""
    place = as_path(folder)
    if not (place / PICTURES).is_file():
        missing = "learned from ready-made features, or by an older version" if (place / MODEL).is_file() else "empty"
        raise InputError(f"{place} holds no model of pictures: it is {missing}. Read {MODEL} by LinearModel.load.")
    read = PictureModel(LinearModel.load(place / MODEL), Pictures.load(place / PICTURES))
    labels = read.model.labels
    rows = labels.rows if isinstance(labels, Attributes) else len(labels.names)
    if len(read.answers) != rows:
        raise DataError(
            f"{place} holds parts of two runs: {rows} answers in {MODEL}, {len(read.answers)} in {PICTURES}."
        )
    return read
