"""The rows on which a sift is verified: one half for attackers to learn from, the other to judge them by.

The paper splits 50/50 (Enev et al., "SensorSift", ACSAC 2012). Where persons are known nobody is in both halves: an
attacker that merely recognises people would otherwise look like one that reads the attribute. The rows must be other
people than those the sift was fitted on; that is the caller's to keep.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.partition import train_test
from blindsight.errors import InputError
from blindsight.sift.labels import Labels, check_labels
from blindsight.validation import check_features

Indices = NDArray[np.int64]

FEWEST_OF_EITHER = 50
FEWEST_ROWS = 200
"""Below these no verdict could be reached: even a blind attacker's upper limit would lie above any useful threshold."""


def check_private(private: Mapping[str, ArrayLike], rows: int) -> dict[str, Labels]:
    """Return the labels of every private attribute, 1, 0 or -1 (unknown), or say why they cannot be verified."""
    if not private:
        raise InputError("there is no private attribute to verify; name at least one.")
    columns = {name: check_labels(labels, rows, f"labels of {name!r}") for name, labels in private.items()}
    for name, column in columns.items():
        if column.shape[1] != 1:
            raise InputError(f"labels of {name!r} must be one value per row; got {column.shape[1]}.")
        enough_of_either(name, column[:, 0])
    return {name: column[:, 0] for name, column in columns.items()}


def enough(labels: Labels) -> bool:
    """Tell whether there are enough rows with an attribute and without it to tell an attacker from luck."""
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    return min(yes, no) >= FEWEST_OF_EITHER and yes + no >= FEWEST_ROWS


def enough_of_either(name: str, labels: Labels) -> None:
    """Refuse an attribute that is constant, or known for too few rows, to tell an attacker from luck."""
    yes, no = int((labels == 1).sum()), int((labels == 0).sum())
    if not yes or not no:
        raise InputError(f"private attribute {name!r} is the same, or unknown, in all rows: there is nothing to hide.")
    if not enough(labels):
        raise InputError(
            f"private attribute {name!r} has {yes} rows with it and {no} without; at least {FEWEST_OF_EITHER} of "
            f"either and {FEWEST_ROWS} in all are needed to verify. Label more rows."
        )


def differences(private: Mapping[str, Labels], groups: Iterable[Sequence[str]]) -> dict[str, Labels]:
    """Return for every two attributes of a group whether they differ, where enough rows tell.

    A release can tell neither of two attributes and yet whether they are the same.
    """
    found = {}
    for group in groups:
        for a, b in combinations(group, 2):
            both = (private[a] >= 0) & (private[b] >= 0)
            differ = np.where(both, private[a] ^ private[b], -1).astype(np.int8)
            if enough(differ):
                found[f"whether {a} and {b} differ"] = differ
    return found


def check_released(released: ArrayLike) -> NDArray[Any]:
    """Return released numbers as (n, K), finite; a flat list is one number per row."""
    array = np.asarray(released)
    array = array[:, None] if array.ndim == 1 else array
    return check_features(array, what="released numbers", precision="given")


def check_persons(persons: ArrayLike | None, rows: int) -> NDArray[Any] | None:
    """Return who is on each row, or None where nobody knows."""
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
