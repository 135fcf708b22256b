"""Public data, owners' data and test data of a learning study, cut from one collection or made of several.

A tenth of the training data is public and gives the initial model, the rest is shared out among the owners, as in
section 3.2 of Yonetani et al. 2017. Wherever persons are known, nobody is on two sides, unless the classes to be
learned are the persons themselves. Rows are divided first, so that features which learn from pictures learn from the
public ones alone: what is fitted to private pictures would leave their owners outside of the protocol.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

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
from blindsight.validation import check_features

Pair = tuple[NDArray[np.float32], NDArray[np.int64]]

Loader = Callable[[], Any]
MemberData = Any | Loader
"""A member's data, for instance a pair of features and labels, or a function without arguments that returns them."""

MIN_MEMBERS = 3


@contextmanager
def error_context(member: str) -> Iterator[None]:
    """Begin errors with the name of the member whose data they are about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{member}: {error}") from None
    except DataError as error:
        raise DataError(f"{member}: {error}") from error


def name_members(members: Mapping[str, MemberData] | Sequence[MemberData]) -> dict[str, Loader]:
    """Return one data loader per member, keyed by name.

    Unnamed members are called "member 1", "member 2", ... A callable is a loader and is called in every round.
    """
    if isinstance(members, Mapping):
        named = {str(name): data for name, data in members.items()}
    elif isinstance(members, Sequence):
        named = {f"member {i}": data for i, data in enumerate(members, start=1)}
    else:
        raise InputError(f"members must be a list or a mapping from names to data; got {type(members).__name__}.")
    if len(named) < MIN_MEMBERS:
        raise InputError(
            f"a run needs at least {MIN_MEMBERS} members; got {len(named)}. With two, each could subtract its own from "
            "the sum. For a single data set call fit(X, y) without public data."
        )
    return {name: _loader(data) for name, data in named.items()}


def _loader(data: MemberData) -> Loader:
    def load() -> Any:
        try:
            return data() if callable(data) else data
        except Exception as error:
            raise DataError(f"its data could not be loaded: {error}") from error

    return load


def check_pair(data: Any, dimensions: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return checked features, of this width, and one row of labels for each."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data must be a pair (features, labels).")
    features, labels = check_features(data[0], dimensions, precision="wide"), np.asarray(data[1])
    if labels.shape[:1] != (len(features),):
        raise InputError(f"there must be a label per sample; got labels of shape {labels.shape} for {len(features)}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels must be finite; got NaN or infinity.")
    return features, labels


def check_members_data(
    loaders: Mapping[str, Loader], check: Callable[[Any], tuple[NDArray[Any], ...]]
) -> tuple[int, list[str]]:
    """Check all data before a run; return the number of samples and a fingerprint of each member's data."""
    samples, prints = 0, []
    for name, loader in loaders.items():
        with error_context(name):
            arrays = check(loader())
        samples += len(arrays[0])
        prints.append(_fingerprint(arrays))
    return samples, prints


def _fingerprint(arrays: tuple[NDArray[Any], ...]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        content = array if array.dtype.kind != "O" else array.astype(np.str_)
        digest.update(f"{content.dtype.str} {content.shape}\n".encode() + np.ascontiguousarray(content).tobytes())
    return digest.hexdigest()


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
        self,
        attributes: Sequence[str],
        *,
        side: int,
        keep_copies: bool = False,
        random_state: int = 0,
        progress: Progress = silent,
    ) -> tuple[Dataset, Division]:
        """Read everybody's pictures at one size, and say whose are whose; with `keep_copies`, equal ones too."""

        def read(path: str) -> Dataset:
            kind = "csv" if as_path(path).suffix.lower() == ".csv" else "folder"
            return load(kind, path=path, size=side, keep_copies=keep_copies, progress=progress)

        owners = {}
        for name, path in self.owners.items():
            with error_context(name):
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
        with error_context(name):
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
