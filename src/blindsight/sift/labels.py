"""Labels of attributes: 1 yes, 0 no, -1 unknown; by name from a dataset, or as columns next to features.

Verification rows are split 50/50 as in the paper (Enev et al., "SensorSift", ACSAC 2012), one half for attackers to
learn from, the other to judge them by. Where persons are known nobody is in both halves: an attacker that merely
recognises people would otherwise look like one that reads the attribute. The caller must make sure that the rows show
other people than those the sift was fitted on.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import UNKNOWN, Dataset
from blindsight.data.partition import train_test
from blindsight.errors import InputError, UnknownNameError
from blindsight.validation import check_features

Labels = NDArray[np.int8]
Labelled = Dataset | Mapping[str, ArrayLike]


def known_names(labelled: Labelled) -> tuple[str, ...]:
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


def private_labels(labelled: Labelled, names: Iterable[str]) -> dict[str, Labels]:
    asked = tuple(names)
    for name in asked:
        if name not in known_names(labelled):
            error = UnknownNameError("private attribute", name, known_names(labelled))
            reason = "Without labels there is nothing to measure its leak against, so it cannot be protected."
            error.args = (f"{error} {reason}",)
            raise error
    return {name: label_columns(labelled, [name])[:, 0] for name in asked}


def check_labels(labels: ArrayLike, rows: int | None = None, name: str = "labels") -> Labels:
    given = np.asarray(labels)
    columns: NDArray[Any] = given[:, None] if given.ndim == 1 else given
    if columns.ndim != 2 or 0 in columns.shape or not np.isin(columns, (UNKNOWN, 0, 1)).all():
        raise InputError(f"{name} must be 1 (yes), 0 (no) or -1 (unknown), a column per attribute; got {given.shape}.")
    if rows is not None and len(columns) != rows:
        raise InputError(f"{name} must have a row per sample; got {len(columns)} rows for {rows} samples.")
    return columns.astype(np.int8)


def check_sides(public: ArrayLike, private: ArrayLike, rows: int, fewest: int = 1) -> tuple[Labels, Labels]:
    """Return the labels of both sides of a policy, every attribute with enough of either answer to learn it."""
    told, hidden = check_labels(public, rows, "public labels"), check_labels(private, rows, "private labels")
    for role, side in (("public", told), ("private", hidden)):
        for number, column in enumerate(side.T):
            check_learnable(f"{role} attribute {number}", column, fewest)
    return told, hidden


def check_learnable(name: str, labels: Labels, fewest: int) -> None:
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    if min(yes, no) < fewest:
        raise InputError(
            f"{name} has {yes} rows with it and {no} without; at least {fewest} of either are needed to learn it. "
            "Label more rows."
        )


Indices = NDArray[np.int64]

FEWEST_OF_EITHER = 50
FEWEST_ROWS = 200
"""Below these no verdict could be reached: even a blind attacker's upper limit would lie above any useful threshold."""


def check_private(private: Mapping[str, ArrayLike], rows: int) -> dict[str, Labels]:
    if not private:
        raise InputError("there is no private attribute to verify; name at least one.")
    columns = {name: check_labels(labels, rows, f"labels of {name!r}") for name, labels in private.items()}
    for name, column in columns.items():
        if column.shape[1] != 1:
            raise InputError(f"labels of {name!r} must be one value per row; got {column.shape[1]}.")
        enough_of_either(name, column[:, 0])
    return {name: column[:, 0] for name, column in columns.items()}


def enough(labels: Labels) -> bool:
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    return min(yes, no) >= FEWEST_OF_EITHER and yes + no >= FEWEST_ROWS


def enough_of_either(name: str, labels: Labels) -> None:
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    if not yes or not no:
        raise InputError(f"private attribute {name!r} is the same, or unknown, in all rows: there is nothing to hide.")
    if not enough(labels):
        raise InputError(
            f"private attribute {name!r} has {yes} rows with it and {no} without; at least {FEWEST_OF_EITHER} of "
            f"either and {FEWEST_ROWS} in all are needed to verify. Label more rows."
        )


def joint_questions(private: Mapping[str, Labels], groups: Iterable[Sequence[str]]) -> dict[str, Labels]:
    """For every two attributes of a group: do they differ, and is somebody in one of their cells? A release can tell
    neither of two attributes and yet whether they are the same; one that tells who has both tells half as much of
    either.
    """
    found: dict[str, Labels] = {}
    for group in groups:
        for a, b in combinations(group, 2):
            first, second = private[a], private[b]
            known = (first >= 0) & (second >= 0)
            asked = {f"whether {a} and {b} differ": first != second}
            for yes, also in product((1, 0), repeat=2):
                names = (name if value else f"not {name}" for name, value in ((a, yes), (b, also)))
                asked[" and ".join(names)] = (first == yes) & (second == also)
            found |= {name: np.where(known, told, -1).astype(np.int8) for name, told in asked.items()}
    return found


def check_released(released: ArrayLike) -> NDArray[Any]:
    array = np.asarray(released)
    array = array[:, None] if array.ndim == 1 else array
    return check_features(array, what="released numbers", precision="given")


def check_persons(persons: ArrayLike | None, rows: int) -> NDArray[Any] | None:
    if persons is None:
        return None
    who = np.asarray(persons)
    if who.shape != (rows,):
        raise InputError(f"persons must name one person per row; got shape {who.shape} for {rows} rows.")
    return who


def verification_halves(
    private: Mapping[str, Labels], persons: NDArray[Any] | None, random_state: int
) -> tuple[Indices, Indices]:
    """Return the rows to learn from and the rows to judge by, every attribute spread over both alike."""
    columns = np.stack(list(private.values()), axis=1).astype(np.int64)
    combination = (columns + 1) @ 3 ** np.arange(columns.shape[1])
    train, test = train_test(combination, test=0.5, persons=persons, random_state=random_state)
    for name, labels in private.items():
        few = min(int((labels[half] == value).sum()) for half in (train, test) for value in (0, 1))
        if few < FEWEST_OF_EITHER // 3:
            raise InputError(
                f"splitting by persons leaves {few} rows of {name!r}, with or without it, in one half: too few "
                "persons have it, or lack it. Add persons, not pictures."
            )
    return train, test
