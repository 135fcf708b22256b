"""Who has what in a study of learning together: public data, owners and test data, cut from one collection.

A tenth of the training data is public and gives the initial model, the rest is shared out among the owners, as in
section 3.2 of Yonetani et al. 2017. Wherever persons are known, nobody is on two sides, unless the classes to be
learned are the persons themselves. Rows are divided first, so that features which learn from pictures learn from the
public ones alone: what is fitted to private pictures would leave their owners by another way than the protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.data.partition import Sharing
from blindsight.errors import DataError, InputError
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent

Pair = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class Division(partition.Division):
    """The rows of a collection that are public, each owner's, and held out for the test; what is to be learned."""

    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Study:
    """Features with labels (n,) or, if `multilabel`, attributes (n, a), for the public, each owner and the test."""

    public: Pair
    owners: dict[str, Pair]
    test: Pair
    answers: tuple[str, ...]  # names of the classes or attributes
    multilabel: bool

    @property
    def classes(self) -> NDArray[np.int64] | None:
        """All classes there are, also those the public data lack; None for attributes."""
        return None if self.multilabel else np.arange(len(self.answers))

    @classmethod
    def prepare(
        cls,
        dataset: Dataset,
        division: Division,
        pipeline: FeaturePipeline,
        *,
        cache: AnyPath | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Make the features of a divided collection; a pipeline that learns is fitted to the public pictures alone."""
        features = extract(dataset, pipeline, fit_to=division.public, cache=cache, progress=progress)
        return cls.of(dataset, features, division)

    @classmethod
    def of(cls, dataset: Dataset, features: NDArray[np.float32], division: Division) -> Self:
        """Put a collection's features where its rows belong."""
        targets, names = _targets(dataset, division.attributes)
        return cls(
            public=(features[division.public], targets[division.public]),
            owners={f"owner {i}": (features[rows], targets[rows]) for i, rows in enumerate(division.owners, start=1)},
            test=(features[division.held_out], targets[division.held_out]),
            answers=names,
            multilabel=targets.ndim == 2,
        )


def divide(
    dataset: Dataset,
    *,
    owners: int,
    attributes: Sequence[str] = (),
    sharing: Sharing | None = None,
    concentration: float = 0.5,
    public: float = 0.1,
    test: float = 0.3,
    random_state: int = 0,
) -> Division:
    """Divide a collection, whose classes are to be learned, or the named attributes (all, where it has no classes)."""
    targets, _ = _targets(dataset, attributes)
    classes = targets.ndim == 1
    persons = dataset.persons
    if classes and persons is not None and len(np.unique(np.stack([targets, persons]), axis=1)[0]) == targets.max() + 1:
        persons = None  # the classes are the persons: who is tested must have been learned
    chosen = sharing or ("equal" if persons is None else "by-person")
    if chosen == "by-person" and persons is None:
        raise InputError(f"{dataset.name} does not say who is on its pictures; share equally or by class.")
    if chosen == "by-class" and not classes:
        raise InputError("sharing by class needs classes; attributes are shared equally or by person.")
    rows = partition.divide(
        targets if classes else targets[:, 0],
        public=public,
        held_out=test,
        owners=owners,
        sharing=chosen,
        concentration=concentration,
        persons=persons,
        stratify=classes,
        random_state=random_state,
    )
    return Division(rows.public, rows.owners, rows.held_out, tuple(attributes))


def _targets(dataset: Dataset, attributes: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return what to learn, classes (n,) or attributes (n, a), and the names of the answers."""
    if dataset.labels is not None and not attributes:
        return dataset.labels, dataset.label_names
    if dataset.attributes is None:
        if attributes:
            raise InputError(f"{dataset.name} has no attributes; it has classes. Leave the attributes out.")
        raise DataError(f"{dataset.name} has neither classes nor attributes to learn.")
    names = tuple(attributes) or dataset.attribute_names
    columns = np.stack([dataset.attribute(name) for name in names], axis=1).astype(np.int64)
    return columns, names
