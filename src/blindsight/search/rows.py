"""Values by id, the base of the embedded indexes; and what every search answers.

*Rows* stand in the order in which they were added. Changes happen whole or not at all. A removed row stays where it is,
without its id (a *tombstone*), until there are about sqrt(n), so that closing the gaps costs each removal little. A
search of `values` must leave out the positions that are `gone`.

*Ids* are any int64 or any text. Integers are found by bisection in a sorted order that costs nothing while ids come in
ascending and 8 bytes a row otherwise; what was added since the last sorting waits in a dictionary, as all text does.

*Hits* are ordered by distance, then by age (which row was added first). A search that finds fewer than it was asked for
fills up with the distance -1 and the id -1 (integers) or None (text); the distance tells, even if -1 is an id.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.search.codes import check_whole

IdArray = NDArray[Any]  # int64, or objects that are all str (or None where a hit is missing)
IdKind = Literal["integers", "text"]
Positions = NDArray[np.int64]

_UNSORTED = 65_536  # ids that may wait in the dictionary before everything is sorted again


@dataclass(frozen=True, eq=False)
class Hits:
    """The nearest codes of each query: `ids` and `distances` (int32) have shape (queries, k)."""

    ids: IdArray
    distances: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ScoredHits:
    """The best rows of each query by score, best first: (queries, k). A missing hit has the score -inf."""

    ids: IdArray
    scores: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """All codes within a radius of each query: those of query q stand at `bounds[q]` up to `bounds[q + 1]`."""

    ids: IdArray
    distances: NDArray[np.int32]
    bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def of(self, query: int) -> tuple[IdArray, NDArray[np.int32]]:
        """Return the ids and distances of one query's neighbours, nearest first."""
        if not 0 <= query < len(self):
            raise InputError(f"there are {len(self)} queries, counted from 0; got {query}.")
        span = slice(int(self.bounds[query]), int(self.bounds[query + 1]))
        return self.ids[span], self.distances[span]


def check_k(k: int) -> int:
    return check_whole("k, the number of hits,", k, 1)


def check_radius(radius: int) -> int:
    return check_whole("radius, in bits,", radius, 0)


def check_recall(recall: float) -> float:
    if not 0 < recall <= 1:
        raise InputError(f"the recall to reach must lie in (0, 1]; got {recall!r}.")
    return float(recall)


def check_ids(ids: ArrayLike, kind: IdKind | None = None) -> IdArray:
    """Return ids as int64 or as an object array of str, or raise unless they are a list of one kind (of this kind).

    >>> check_ids([3, 1]), check_ids(["a", "b"])
    (array([3, 1]), array(['a', 'b'], dtype=object))
    """
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Sequence | np.ndarray):
        raise InputError(f"ids must be a list of integers or of text; got {type(ids).__name__}.")
    if isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise InputError(f"ids must be a list, one per code; got an array of shape {ids.shape}.")
    if isinstance(ids, np.ndarray) and ids.dtype != object:
        integers = ids.dtype.kind in "iu"
    else:
        integers = all(isinstance(key, int | np.integer) and not isinstance(key, bool) for key in ids)
    checked = _as_integers(ids) if integers else _as_text(ids)
    if kind and len(checked) and kind != kind_of(checked):
        raise InputError(f"the ids of this index are {kind}; got {kind_of(checked)}.")
    return checked


def check_unique(ids: IdArray, rows: int) -> IdArray:
    """Return checked ids, or raise unless they are different and as many as there are rows."""
    if len(ids) != rows:
        raise InputError(f"every row needs an id of its own; got {len(ids)} ids for {rows} rows.")
    integers = ids.dtype == np.int64
    if integers and _ascending(ids):
        return ids
    if (len(np.unique(ids)) if integers else len(set(ids))) < len(ids):
        twice = Counter(ids.tolist()).most_common(1)[0][0]
        raise InputError(f"every id may occur once; {twice!r} occurs twice. Nothing was changed.")
    return ids


def kind_of(ids: IdArray) -> IdKind:
    return "integers" if ids.dtype == np.int64 else "text"


def _as_integers(ids: Sequence[Any] | NDArray[Any]) -> NDArray[np.int64]:
    try:
        if isinstance(ids, np.ndarray) and ids.dtype == np.uint64 and len(ids) and int(ids.max()) > 2**63 - 1:
            raise OverflowError
        return np.array(ids, dtype=np.int64)
    except OverflowError:
        raise InputError("integer ids must lie in [-2^63, 2^63). Use text for larger ones.") from None


def _as_text(ids: Sequence[Any] | NDArray[Any]) -> NDArray[np.object_]:
    texts = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if strangers := [type(key).__name__ for key in texts if not isinstance(key, str)]:
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


def _ascending(values: NDArray[np.int64]) -> bool:
    return bool(np.all(values[1:] > values[:-1]))


class Growing:
    """Rows that can be appended, an eighth spare; a read-only or mapped array is never written to but copied."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._buffer, self._rows = rows, len(rows)

    @property
    def view(self) -> NDArray[Any]:
        """All rows, not copied; good until the next change."""
        return self._buffer[: self._rows]

    def append(self, new: NDArray[Any]) -> None:
        rows = self._rows + len(new)
        if rows > len(self._buffer):
            larger = np.empty((max(rows, self._rows * 9 // 8), *self._buffer.shape[1:]), dtype=self._buffer.dtype)
            larger[: self._rows] = self.view
            self._buffer = larger
        self._buffer[self._rows : rows] = new
        self._rows = rows

    def replace(self, places: Positions, new: NDArray[Any]) -> None:
        if not self._buffer.flags.writeable:
            self._buffer = np.array(self.view)
        self._buffer[places] = new


class Ids:
    """Checked unique ids in the order of their arrival, found by value."""

    def __init__(self, values: IdArray) -> None:
        self._values, self._integers = Growing(values), kind_of(values) == "integers"
        self._sort()

    @property
    def values(self) -> IdArray:
        return self._values.view

    def positions(self, wanted: IdArray) -> Positions:
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

    def append(self, new: IdArray) -> None:
        """Add ids that are known to be new."""
        begin, rows = len(self.values), len(self.values) + len(new)
        last = not begin or (self._order is None and not self._recent and self._integers and self.values[-1] < new[0])
        self._values.append(new)
        if self._integers and last and _ascending(new):
            self._sorted = rows
        elif not self._integers or len(self._recent) + len(new) <= max(_UNSORTED, begin // 8):
            self._recent.update(zip(new.tolist(), range(begin, rows), strict=True))
        else:
            self._sort()

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all ids but these; positions close up."""
        self._values = Growing(self.values[kept])
        self._sort()

    def take(self, positions: Positions) -> IdArray:
        """Return the ids at these positions, -1 (integers) or None (text) where a position is -1."""
        filling, values = -1 if self._integers else None, self.values
        if not len(values):
            return np.full(positions.shape, filling, dtype=values.dtype)
        ids: IdArray = values[positions]  # of the last row where there is none
        if positions.size and positions.min() < 0:
            ids[positions < 0] = filling
        return ids

    def _sort(self) -> None:
        values = self.values
        self._recent: dict[Any, int] = {}  # positions of text, and of integers that came after the last sorting
        self._order: Positions | None = None  # positions in ascending order of integers; None: as they are
        self._sorted = len(values) if self._integers else 0
        if not self._integers:
            self._recent.update((key, place) for place, key in enumerate(values))
        elif not _ascending(values):
            self._order = np.argsort(values)


class Rows:
    """Unique ids, integers or text, and one value each; `values` begins as an array of the right type and width."""

    def __init__(self, values: NDArray[Any], ids: IdArray | None = None) -> None:
        self._values, self._ids = Growing(values), None if ids is None else Ids(ids)
        self.gone = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.values) - len(self.gone)

    @property
    def values(self) -> NDArray[Any]:
        """All values by position, not copied, those of removed rows among them."""
        return self._values.view

    @property
    def kept(self) -> NDArray[Any]:
        return np.delete(self.values, self.gone, axis=0) if len(self.gone) else self.values

    @property
    def ids(self) -> IdArray:
        """All ids in the order of their rows, as a copy."""
        return np.empty(0, dtype=np.int64) if self._ids is None else np.delete(self._ids.values, self.gone)

    @property
    def kind(self) -> IdKind | None:
        """Integers or text; None until the first row."""
        return None if self._ids is None else kind_of(self._ids.values)

    def __contains__(self, key: Any) -> bool:
        try:
            return self._ids is not None and bool(self._find(check_ids([key], self.kind))[0] >= 0)
        except InputError:
            return False

    def take(self, positions: Positions) -> IdArray:
        return np.full(positions.shape, -1, dtype=np.int64) if self._ids is None else self._ids.take(positions)

    def add(self, ids: ArrayLike, values: NDArray[Any]) -> None:
        checked = check_unique(check_ids(ids, self.kind), len(values))
        if not len(checked):
            return
        known = np.flatnonzero(self._find(checked) >= 0)
        if known.size:
            double = checked.tolist()[known[0]]
            raise InputError(f"id {double!r} is in the index already; nothing was added. Use update().")
        assert self._ids is None or not self.buries(checked)
        if self._ids is None:
            self._ids = Ids(checked[:0])
        self._ids.append(checked)
        self._values.append(values)

    def remove(self, ids: ArrayLike) -> int:
        found = self._find(check_ids(ids, self.kind))
        new = np.unique(found[found >= 0])
        self.gone = np.union1d(self.gone, new) if len(new) else self.gone
        return len(new)

    def buries(self, ids: ArrayLike) -> bool:
        """Tell whether rows of some of these ids were removed whose gaps are not closed."""
        if self._ids is None or not len(self.gone):
            return False
        checked = check_ids(ids, self.kind)
        return bool(len(checked) and np.isin(self._ids.positions(checked), self.gone).any())

    def close_gaps(self) -> NDArray[np.bool_]:
        """Let positions close up; tell for every old position whether it was kept."""
        kept = np.ones(len(self.values), dtype=np.bool_)
        kept[self.gone] = False
        if self._ids is not None and len(self.gone):
            self._ids.keep(kept)
            self._values, self.gone = Growing(self.values[kept]), self.gone[:0]
        return kept

    def update(self, ids: ArrayLike, values: NDArray[Any]) -> Positions:
        checked = check_unique(check_ids(ids, self.kind), len(values))
        places = self._find(checked)
        if (places < 0).any():
            stranger = checked.tolist()[np.flatnonzero(places < 0)[0]]
            raise InputError(f"id {stranger!r} is not in the index; nothing was changed. Use add().")
        self._values.replace(places, values)
        return places

    def _find(self, checked: IdArray) -> Positions:
        if self._ids is None or not len(checked):
            return np.full(len(checked), -1, dtype=np.int64)
        found = self._ids.positions(checked)
        return np.where(np.isin(found, self.gone), -1, found) if len(self.gone) else found


def pack_ids(ids: IdArray) -> dict[str, NDArray[Any]]:
    """Return ids as arrays of a file: integers as they are, text as UTF-8 and where each ends."""
    if ids.dtype == np.int64:
        return {"ids": ids}
    encoded = [key.encode() for key in ids]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return {"id ends": ends, "id bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8)}


def unpack_ids(sections: Mapping[str, NDArray[Any]]) -> IdArray:
    """Return the ids that `pack_ids` packed, as they were; whether they make sense is for `check_ids` to tell."""
    if "ids" in sections:
        return sections["ids"]
    whole, ends = sections["id bytes"].tobytes(), sections["id ends"].tolist()
    ids = np.empty(len(ends), dtype=object)
    ids[:] = [whole[begin:end].decode(errors="replace") for begin, end in zip([0, *ends], ends, strict=False)]
    return ids
