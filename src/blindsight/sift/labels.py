"""Labels of attributes: 1 yes, 0 no, -1 nobody knows; by name from a dataset, or as columns beside features."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import UNKNOWN, Dataset
from blindsight.errors import InputError, UnknownNameError

Labels = NDArray[np.int8]
Labelled = Dataset | Mapping[str, ArrayLike]
"""Where labels come from: a dataset with attributes, or a mapping from names to columns."""


def known_names(labelled: Labelled) -> tuple[str, ...]:
    """Return the names of all attributes that have labels."""
    return labelled.attribute_names if isinstance(labelled, Dataset) else tuple(labelled)


def label_columns(labelled: Labelled, names: Iterable[str]) -> Labels:
    """Return the labels of these attributes, int8 (n, attributes); an unknown name suggests the nearest."""
    columns = []
    for name in names:
        if name not in known_names(labelled):
            raise UnknownNameError("attribute", name, known_names(labelled))
        column = labelled.attribute(name) if isinstance(labelled, Dataset) else labelled[name]
        columns.append(check_labels(column, name=name)[:, 0])
    if len({len(column) for column in columns}) > 1:
        raise InputError(f"attributes have different numbers of labels: {', '.join(str(len(c)) for c in columns)}.")
    return np.stack(columns, axis=1)


def check_labels(labels: ArrayLike, rows: int | None = None, name: str = "labels") -> Labels:
    """Return labels as int8 (n, attributes), one column for a flat list, or say what is wrong with them."""
    given = np.asarray(labels)
    columns: NDArray[Any] = given[:, None] if given.ndim == 1 else given
    if columns.ndim != 2 or 0 in columns.shape or not np.isin(columns, (UNKNOWN, 0, 1)).all():
        raise InputError(f"{name} must be 1 (yes), 0 (no) or -1 (unknown), a column per attribute; got {given.shape}.")
    if rows is not None and len(columns) != rows:
        raise InputError(f"{name} must have a row per sample; got {len(columns)} rows for {rows} samples.")
    return columns.astype(np.int8)
