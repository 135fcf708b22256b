"""Public data, owners' data and test data of a learning study, cut from one collection or made of several.

A tenth of the training data is public and gives the initial model, the rest is shared out among the owners, as in
section 3.2 of Yonetani et al. 2017. Wherever persons are known, nobody is on two sides, unless the classes to be
learned are the persons themselves. Rows are divided first, so that features which learn from pictures learn from the
public ones alone: what is fitted to private pictures would leave their owners outside of the protocol.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.catalogue import load
from blindsight.data.dataset import Dataset, join
from blindsight.data.features import FeaturePipeline, extract
from blindsight.data.partition import Division, Sharing
from blindsight.errors import DataError, InputError
from blindsight.files import AnyPath, as_path
from blindsight.progress import Progress, silent

Pair = tuple[NDArray[np.float32], NDArray[np.int64]]


@contextmanager
def speaking_of(owner: str) -> Iterator[None]:
    """Let a complaint say whose data it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{owner}: {error}") from None
    except DataError as error:
        raise DataError(f"{owner}: {error}") from error


class Prepared(ABC):
    """A divided collection whose pictures have become features."""

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
    @abstractmethod
    def of(cls, dataset: Dataset, features: NDArray[np.float32], division: Division) -> Self:
        """Put features that are there already where their rows belong."""


@dataclass(frozen=True, eq=False)
class Study(Prepared):
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
    def of(cls, dataset: Dataset, features: NDArray[np.float32], division: Division) -> Self:
        targets, answers = _targets(dataset, division.attributes)
        return cls(
            public=(features[division.public], targets[division.public]),
            owners={name: (features[rows], targets[rows]) for name, rows in division.by_owner.items()},
            test=(features[division.held_out], targets[division.held_out]),
            answers=answers,
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
    return replace(rows, attributes=tuple(attributes))


@dataclass(frozen=True)
class Sites:
    """The owners' own collections by name, the public one, and `test`; each a folder per class, or a table.

    Without `test`, three tenths of the public pictures are held out.
    """

    owners: Mapping[str, str]
    public: str
    test: str | None = None

    def read(
        self, attributes: Sequence[str], *, side: int, random_state: int = 0, progress: Progress = silent
    ) -> tuple[Dataset, Division]:
        """Read everybody's pictures at one size, and say whose are whose."""

        def read(path: str) -> Dataset:
            kind = "csv" if as_path(path).suffix.lower() == ".csv" else "folder"
            return load(kind, path=path, size=side, progress=progress)

        owners = {}
        for name, path in self.owners.items():
            with speaking_of(name):
                owners[name] = read(path)
        test = 0.3 if self.test is None else read(self.test)
        return gather(owners, read(self.public), test=test, attributes=attributes, random_state=random_state)


def gather(
    owners: Mapping[str, Dataset],
    public: Dataset,
    *,
    test: Dataset | float = 0.3,
    attributes: Sequence[str] = (),
    random_state: int = 0,
) -> tuple[Dataset, Division]:
    """Put the owners' own collections and the public one together, and say whose rows are whose.

    The public collection says which classes (or attributes) there are; the owners' are matched by name. An owner may
    lack some; a class that the public collection does not know is refused. `test` is a collection, or the part of the
    public one that is held out, 0 for none: what is scored on owners' own pictures would tell of them.
    """
    targets, _ = _targets(public, attributes)
    parts = (
        {"the public collection": public}
        | dict(owners)
        | ({"the test collection": test} if isinstance(test, Dataset) else {})
    )
    for name, part in parts.items():
        with speaking_of(name):
            if public.labels is not None and not attributes:
                part.with_label_names(public.label_names)
            else:
                _targets(part, attributes or public.attribute_names)
    ends = np.cumsum([len(part) for part in parts.values()])
    rows = [np.arange(end - len(part), end) for end, part in zip(ends, parts.values(), strict=True)]
    known, held_out = rows[0], rows[-1]
    if not isinstance(test, Dataset):
        held_out = known[:0]
    if isinstance(test, float) and test:
        known, held_out = partition.train_test(
            targets if targets.ndim == 1 else targets[:, 0],
            test=test,
            persons=public.persons,
            stratify=targets.ndim == 1,
            random_state=random_state,
        )
    division = Division(known, tuple(rows[1 : 1 + len(owners)]), held_out, tuple(attributes), tuple(owners))
    named = [replace(one, skipped=tuple(f"{name}: {file}" for file in one.skipped)) for name, one in parts.items()]
    return join(named, "the public and the owners' collections"), division


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
