"""Ids of any int64 or any text, found again by what they are: which position a row with this id has.

Integers are found by bisection in a sorted order that costs nothing while ids come in ascending and 8 bytes a row
otherwise; what was added since the last sorting waits in a dictionary. Text lives in a dictionary.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.search.growing import Growing
from blindsight.search.hits import IdArray

IdKind = Literal["integers", "text"]

_UNSORTED = 65_536  # ids that may wait in the dictionary before everything is sorted again


def check_ids(ids: ArrayLike, kind: IdKind | None = None) -> IdArray:
    """Return ids as int64 or as an object array of str, or raise unless they are a list of one kind (of this kind).

    >>> check_ids([3, 1]), check_ids(["a", "b"])
    (array([3, 1]), array(['a', 'b'], dtype=object))
    """
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Sequence | np.ndarray):
        raise InputError(f"ids must be a list of integers or of text; got {type(ids).__name__}.")
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise InputError(f"ids must be a list, one per code; got an array of shape {ids.shape}.")
    checked = _as_integers(ids) if _are_integers(ids) else _as_text(ids)
    if kind and len(checked) and kind != kind_of(checked):
        raise InputError(f"the ids of this index are {kind}; got {kind_of(checked)}.")
    return checked


def kind_of(ids: IdArray) -> IdKind:
    """Tell whether checked ids are integers or text."""
    return "integers" if ids.dtype == np.int64 else "text"


def check_unique(ids: IdArray) -> None:
    """Raise if an id occurs twice."""
    integers = ids.dtype == np.int64
    if integers and _ascending(ids):
        return
    different = len(np.unique(ids)) if integers else len(set(ids))
    if different < len(ids):
        twice = Counter(ids.tolist()).most_common(1)[0][0]
        raise InputError(f"every id may occur once; {twice!r} occurs twice. Nothing was changed.")


class IntegerIds:
    """Unique integers in the order of their arrival, found by value."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self._values = Growing(values)
        self._recent: dict[int, int] = {}  # positions of ids that came after the last sorting
        self._order: NDArray[np.int64] | None = None  # positions in ascending order of their ids; None: all of them
        self._sort()

    @property
    def values(self) -> NDArray[np.int64]:
        """All ids by position."""
        return self._values.view

    def positions(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where these ids stand, -1 where they do not."""
        found = np.full(len(wanted), -1, dtype=np.int64)
        if self._sorted:
            values = self.values[: self._sorted]
            ranks = np.searchsorted(values, wanted, sorter=self._order).clip(max=self._sorted - 1)
            places = ranks if self._order is None else self._order[ranks]
            found = np.where(values[places] == wanted, places, -1)
        if self._recent:
            missing = np.flatnonzero(found < 0)
            found[missing] = [self._recent.get(key, -1) for key in wanted[missing].tolist()]
        return found

    def append(self, new: NDArray[np.int64]) -> None:
        """Add ids that are known to be new."""
        begin, rows = len(self.values), len(self.values) + len(new)
        follows = not begin or (self._order is None and not self._recent and self.values[-1] < new[0])
        self._values.append(new)
        if follows and _ascending(new):
            self._sorted = rows
        elif len(self._recent) + len(new) <= max(_UNSORTED, begin // 8):
            self._recent.update(zip(new.tolist(), range(begin, rows), strict=True))
        else:
            self._sort()

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all ids but these; positions close up."""
        self._values = Growing(self.values[kept])
        self._sort()

    def take(self, positions: NDArray[np.int64]) -> IdArray:
        """Return the ids at these positions, -1 where a position is -1."""
        return _take(self.values, positions, -1)

    def _sort(self) -> None:
        values, self._recent = self.values, {}
        self._sorted = len(values)
        self._order = None if _ascending(values) else np.argsort(values)


class TextIds:
    """Unique texts in the order of their arrival, found by value."""

    def __init__(self, values: NDArray[np.object_]) -> None:
        self._values = Growing(values)
        self._places = _places(values)

    @property
    def values(self) -> NDArray[np.object_]:
        return self._values.view

    def positions(self, wanted: NDArray[np.object_]) -> NDArray[np.int64]:
        return np.fromiter((self._places.get(key, -1) for key in wanted), dtype=np.int64, count=len(wanted))

    def append(self, new: NDArray[np.object_]) -> None:
        begin = len(self.values)
        self._places.update((key, begin + place) for place, key in enumerate(new))
        self._values.append(new)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self._values = Growing(self.values[kept])
        self._places = _places(self.values)

    def take(self, positions: NDArray[np.int64]) -> IdArray:
        """Return the ids at these positions, None where a position is -1."""
        return _take(self.values, positions, None)


def id_table(ids: IdArray) -> IntegerIds | TextIds:
    """Return the table of checked, unique ids."""
    return IntegerIds(ids) if kind_of(ids) == "integers" else TextIds(ids)


def _take(values: IdArray, positions: NDArray[np.int64], filling: int | None) -> IdArray:
    if not len(values):
        return np.full(positions.shape, filling, dtype=values.dtype)
    ids: IdArray = np.take(values, positions, mode="wrap")
    missing = positions < 0
    if missing.any():
        ids[missing] = filling
    return ids


def _places(values: NDArray[np.object_]) -> dict[str, int]:
    return {key: place for place, key in enumerate(values)}


def _ascending(values: NDArray[np.int64]) -> bool:
    return bool(np.all(values[1:] > values[:-1]))


def _are_integers(ids: Sequence[Any] | NDArray[Any]) -> bool:
    if isinstance(ids, np.ndarray) and ids.dtype != object:
        return ids.dtype.kind in "iu"
    return all(isinstance(key, int | np.integer) and not isinstance(key, bool) for key in ids)


def _as_integers(ids: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    try:
        if isinstance(ids, np.ndarray) and ids.dtype == np.uint64 and len(ids) and int(ids.max()) > 2**63 - 1:
            raise OverflowError
        return np.array(ids, dtype=np.int64)
    except OverflowError:
        raise InputError("integer ids must lie in [-2^63, 2^63). Use text for larger ones.") from None


def _as_text(ids: Sequence[Any] | NDArray[Any]) -> NDArray[np.object_]:
    texts = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    strangers = [type(key).__name__ for key in texts if not isinstance(key, str)]
    if strangers:
        raise InputError(f"ids must be all integers or all text; got {strangers[0]}.")
    try:
        whole = "".join(texts).encode()
    except UnicodeEncodeError:
        raise InputError("text ids must be proper Unicode, without half surrogates.") from None
    if b"\0" in whole:
        raise InputError("text ids must not hold the character NUL.")
    checked = np.empty(len(texts), dtype=object)
    checked[:] = [str(key) for key in texts]
    return checked
