"""One shape for every collection of pictures: who is on them, what is known of them, under which terms."""

import hashlib
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, UnknownNameError

UNKNOWN = -1
"""In `attributes`: nobody said whether this picture has the attribute."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Pictures (or ready-made features) with everything known about them, row by row.

    `images` is uint8 (n, height, width, 3), possibly memory-mapped; `features` is float (n, d) for collections that
    come without pictures. At least one of the two is there. Rows of all other arrays belong to the same picture.
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
    notes: tuple[str, ...] = field(default=())  # anything else a reader should know of how it was made

    def __post_init__(self) -> None:
        """Check that every part speaks of the same rows."""
        if self.images is None and self.features is None:
            raise InputError(f"dataset {self.name!r} has neither images nor features.")
        if self.images is not None and (self.images.ndim != 4 or self.images.dtype != np.uint8):
            raise InputError(
                f"images must be uint8 of shape (n, height, width, 3); got {self.images.dtype} {self.images.shape}."
            )
        for part in fields(self):
            value = getattr(self, part.name)
            per_row = isinstance(value, np.ndarray) or (part.name == "names" and value)
            if per_row and len(value) != len(self):
                raise InputError(f"{part.name} has {len(value)} rows where the dataset has {len(self)}.")
        if self.attributes is not None and self.attributes.shape[1:] != (len(self.attribute_names),):
            raise InputError(
                f"attributes has shape {self.attributes.shape} but {len(self.attribute_names)} attribute names."
            )

    def __len__(self) -> int:
        rows = self.images if self.images is not None else self.features
        assert rows is not None
        return len(rows)

    def __repr__(self) -> str:
        known = [part for part in ("labels", "attributes", "persons", "days") if getattr(self, part) is not None]
        size = "x".join(map(str, self.images.shape[1:])) if self.images is not None else "features only"
        return f"Dataset({self.name!r}, {len(self)} pictures, {size}, {', '.join(known) or 'unlabelled'})"

    def attribute(self, name: str) -> NDArray[np.int8]:
        """Return the column of one attribute: 1 yes, 0 no, -1 unknown."""
        if self.attributes is None or name not in self.attribute_names:
            raise UnknownNameError("attribute", name, self.attribute_names)
        column: NDArray[np.int8] = self.attributes[:, self.attribute_names.index(name)]
        return column

    def take(self, rows: ArrayLike) -> Self:
        """Return the dataset with only these rows (indices or a mask), in this order."""
        index = np.asarray(rows)
        if index.dtype == bool:
            index = np.flatnonzero(index)
        changed: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, np.ndarray):
                changed[part.name] = value[index]
            elif part.name == "names" and value:
                changed[part.name] = tuple(value[i] for i in index)
        return replace(self, **changed)

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
