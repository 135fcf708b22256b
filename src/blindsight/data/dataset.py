"""The dataset: pictures or features with labels, attributes and persons, and the terms they come under."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.statement import facts_table
from blindsight.validation import check_shape

Float32 = NDArray[np.float32]
Rows = slice | ArrayLike  # which rows: a slice, a mask with one truth value a row, or row numbers in any order

UNKNOWN = -1  # in `attributes`: nobody said whether this picture has the attribute


def check_images(images: NDArray[np.uint8], *, least: int = 0) -> None:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape[1:3]:
        raise InputError(f"images must be uint8 of shape (n, height, width, 3); got {images.dtype} {images.shape}.")
    if len(images) < least:
        raise InputError(f"there must be at least {least} image; got {len(images)}.")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Pictures (or ready-made features) with everything known about them, row by row.

    `images` is uint8 (n, height, width, 3), possibly memory-mapped; `features` is float (n, d) for collections that
    come without pictures. At least one of the two is there.
    """

    name: str
    licence: str
    source: str
    images: NDArray[np.uint8] | None = None
    features: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None  # index into label_names
    label_names: tuple[str, ...] = ()
    attributes: NDArray[np.int8] | None = None  # (n, a): 1 yes, 0 no, -1 unknown
    attribute_names: tuple[str, ...] = ()
    persons: NDArray[np.int64] | None = None  # who is on the picture (or which group it belongs to)
    days: NDArray[np.int64] | None = None  # on which day it was taken, counted from 0
    names: tuple[str, ...] = ()  # file name or other handle of each picture
    skipped: tuple[str, ...] = ()  # pictures that could not be read: "name: reason"
    duplicates: int = 0  # pictures dropped because their content was there already
    notes: tuple[str, ...] = ()  # anything else a reader should know of how it was made

    def __post_init__(self) -> None:
        if self.images is None and self.features is None:
            raise InputError(f"dataset {self.name!r} has neither images nor features.")
        if self.images is not None:
            check_images(self.images)
        if self.features is not None:
            check_shape(self.features, least=0, dense=True)
        for part in fields(self):
            value = getattr(self, part.name)
            if _is_per_row(part.name, value) and len(value) != len(self):
                raise InputError(f"{part.name} has {len(value)} rows where the dataset has {len(self)}.")
        if self.attributes is not None and self.attributes.shape[1:] != (len(self.attribute_names),):
            raise InputError(
                f"attributes has shape {self.attributes.shape} but {len(self.attribute_names)} attribute names."
            )
        if self.labels is not None and (self.labels.ndim != 1 or self.labels.dtype.kind not in "iu"):
            raise InputError(f"labels must be one whole number a row; got {self.labels.dtype} {self.labels.shape}.")
        if len(set(self.label_names)) < len(self.label_names):
            raise InputError(f"label names must differ; got {', '.join(self.label_names)}.")
        if self.labels is not None and self.label_names and len(self):
            low, high = int(self.labels.min()), int(self.labels.max())
            if low < 0 or high >= len(self.label_names):
                raise InputError(f"labels must be in 0..{len(self.label_names) - 1}, one for each name of a class.")

    def __len__(self) -> int:
        rows = self.images if self.images is not None else self.features
        assert rows is not None
        return len(rows)

    def __repr__(self) -> str:
        known = [part for part in ("labels", "attributes", "persons", "days") if getattr(self, part) is not None]
        size = "x".join(map(str, self.images.shape[1:])) if self.images is not None else "features only"
        return f"Dataset({self.name!r}, {len(self)} pictures, {size}, {', '.join(known) or 'unlabelled'})"

    def _repr_html_(self) -> str:
        counts = None if self.labels is None else np.bincount(self.labels, minlength=len(self.label_names)).tolist()
        classes = ", ".join(f"{name} ({n:,})" for name, n in zip(self.label_names, counts or (), strict=False))
        facts = {
            "pictures": f"{len(self):,}" + ("" if self.images is None else f" of {self.images.shape[1:3]} pixels"),
            "classes": classes if len(self.label_names) <= 12 else f"{len(self.label_names)}",
            "attributes": ", ".join(self.attribute_names),
            "persons": None if self.persons is None else f"{len(np.unique(self.persons)):,}",
            "skipped": f"{len(self.skipped)} unreadable, {self.duplicates} duplicates",
            "licence": self.licence,
            "source": self.source,
        }
        return facts_table(f"Dataset {self.name}", facts)

    def attribute(self, name: str) -> NDArray[np.int8]:
        """Return the column of one attribute: 1 yes, 0 no, -1 unknown."""
        if self.attributes is None or name not in self.attribute_names:
            raise UnknownNameError("attribute", name, self.attribute_names)
        column: NDArray[np.int8] = self.attributes[:, self.attribute_names.index(name)]
        return column

    def rows_of(self, label_name: str) -> NDArray[np.int64]:
        """Return the row numbers of one class.

        >>> from blindsight import load
        >>> load("digits").rows_of("3")[:2].tolist()
        [3, 13]
        """
        if self.labels is None or label_name not in self.label_names:
            raise UnknownNameError("class", label_name, self.label_names)
        return np.flatnonzero(self.labels == self.label_names.index(label_name))

    def __getitem__(self, rows: Rows) -> Self:
        """Return the dataset with only these rows: `dataset[10:20]`, `dataset[mask]`, `dataset[[4, 2]]`."""
        return self.take(rows)

    def take(self, rows: Rows) -> Self:
        """Return the dataset with only these rows, in this order; a slice of memory-mapped pictures stays on disk."""
        index = rows if isinstance(rows, slice) else _row_numbers(rows, len(self))
        changed: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                changed[part.name] = value[index]
            elif _is_per_row(part.name, value):
                changed[part.name] = value[index] if isinstance(index, slice) else tuple(value[i] for i in index)
        return replace(self, **changed)

    def with_label_names(self, names: Sequence[str]) -> Self:
        """Return the dataset with classes numbered as in `names`, which must hold every class that a row has."""
        if self.labels is None or not self.label_names:
            raise DataError(f"dataset {self.name!r} has no named classes to be matched with {', '.join(names)}.")
        place = {name: number for number, name in enumerate(names)}
        places = np.array([place.get(name, UNKNOWN) for name in self.label_names], dtype=np.int64)
        labels = places[self.labels]
        missing = sorted({self.label_names[number] for number in self.labels[labels == UNKNOWN]})
        if missing:
            raise DataError(
                f"dataset {self.name!r} has classes that are not known: {', '.join(missing)}. It has "
                f"{', '.join(self.label_names)}; known are {', '.join(names)}. Rename them or leave their rows out."
            )
        return replace(self, labels=labels, label_names=tuple(names))

    def content_hash(self) -> str:
        """Return the SHA-256 of the pictures (or features): the same pixels give the same hash, whatever the labels."""
        digest = hashlib.sha256()
        for rows in (self.images, self.features):
            if rows is None:
                continue
            digest.update(f"{rows.dtype.str}{rows.shape}".encode())
            for start in range(0, len(rows), 1024):
                digest.update(np.ascontiguousarray(rows[start : start + 1024]).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class PictureDataset(Dataset):
    """A dataset with pictures: `images` is never None."""

    images: NDArray[np.uint8]


def join(parts: Sequence[Dataset], name: str) -> Dataset:
    """Return several datasets as one, their rows in this order; classes and attributes are matched by name.

    The first says which classes and attributes there are. Persons of different datasets count as different persons.
    """
    first = parts[0]
    if first.label_names:
        parts = [part.with_label_names(first.label_names) for part in parts]
    shapes = {None if part.images is None else part.images.shape[1:] for part in parts}
    if len(shapes) > 1:
        sizes = ", ".join(
            f"{part.name}: {'no pictures' if part.images is None else part.images.shape[1:3]}" for part in parts
        )
        raise InputError(f"pictures of several datasets must have one size; got {sizes}. Read all with the same size.")
    counted = [0 if part.persons is None else int(part.persons.max(initial=-1)) + 1 for part in parts]
    first_person = np.concatenate([[0], np.cumsum(counted)[:-1]])
    persons = [
        None if part.persons is None else part.persons + at for part, at in zip(parts, first_person, strict=True)
    ]
    answers = [
        np.stack([part.attribute(one) for one in first.attribute_names], axis=1) if first.attribute_names else None
        for part in parts
    ]
    return Dataset(
        name=name,
        licence="; ".join(dict.fromkeys(part.licence for part in parts)),
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        images=_stacked([part.images for part in parts]),
        features=_stacked([part.features for part in parts]) if None in shapes else None,
        labels=_stacked([part.labels for part in parts]),
        label_names=first.label_names,
        attributes=_stacked(answers),
        attribute_names=first.attribute_names,
        persons=_stacked(persons),
        names=tuple(file for part in parts for file in part.names) if all(part.names for part in parts) else (),
        skipped=tuple(file for part in parts for file in part.skipped),
        duplicates=sum(part.duplicates for part in parts),
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def _stacked(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if len(known) == len(arrays) else None


def _is_per_row(name: str, value: Any) -> bool:
    return isinstance(value, np.ndarray) or (name == "names" and bool(value))


def _row_numbers(rows: ArrayLike, count: int) -> NDArray[np.int64]:
    index = np.asarray(rows)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "biu"):
        raise InputError(f"rows must be a slice, a mask or row numbers; got {index.dtype} of shape {index.shape}.")
    if index.dtype == bool:
        if len(index) != count:
            raise InputError(f"a mask needs one truth value for each of {count} rows; got {len(index)}.")
        return np.flatnonzero(index)
    if index.size and not -count <= index.min() <= index.max() < count:
        raise InputError(f"row numbers must be in 0..{count - 1}; got {index.min()} to {index.max()}.")
    return index.astype(np.int64)
