"""Values by id: the table that the embedded indexes stand on. Changes happen whole or not at all.

Rows stand in the order in which they were added. A removed row stays where it is, without its id (a *tombstone*), until
there are so many that closing the gaps costs each removal little: about sqrt(n) of them. Whoever searches `values` must
leave out the positions that are `gone`.

Ids of any int64 or any text, found again by what they are: which position a row with this id has.

Integers are found by bisection in a sorted order that costs nothing while ids come in ascending and 8 bytes a row
otherwise; what was added since the last sorting waits in a dictionary. Text lives in a dictionary.

Indexes on disk: array files (`blindsight.files`) that hold codes or symbols and their ids.

Version 0.1 wrote indexes in a format of their own, which is still read::

    "blindsight index"   16 bytes
    version               4 bytes, little-endian, as all numbers
    length of the header  8 bytes
    SHA-256 of the header 32 bytes
    header                JSON: kind, document, and name, type, shape, offset and SHA-256 of every section
    sections              plain arrays, each at a multiple of 64 bytes; the file ends with the last
"""

import hashlib
import json
import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, as_path, file_content, read_arrays, storage_errors
from blindsight.search.hits import IdArray


class Growing:
    """Rows that can be appended; an eighth is kept spare, so that many small additions cost little on average.

    It may begin as a read-only or memory-mapped array, which is copied into memory by the first change and never
    written to.
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self._buffer = rows
        self._rows = len(rows)

    @property
    def view(self) -> NDArray[Any]:
        """All rows, not copied; good until the next change."""
        return self._buffer[: self._rows]

    def __len__(self) -> int:
        return self._rows

    def append(self, new: NDArray[Any]) -> None:
        """Add rows at the end."""
        rows = self._rows + len(new)
        if rows > len(self._buffer):
            larger = np.empty((max(rows, self._rows * 9 // 8), *self._buffer.shape[1:]), dtype=self._buffer.dtype)
            larger[: self._rows] = self.view
            self._buffer = larger
        self._buffer[self._rows : rows] = new
        self._rows = rows

    def replace(self, places: NDArray[np.int64], new: NDArray[Any]) -> None:
        """Give the rows at these places other values."""
        if not self._buffer.flags.writeable:
            self._buffer = np.array(self.view)
        self._buffer[places] = new


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
    ids: IdArray = values[positions]  # of the last row where there is none
    if positions.size and positions.min() < 0:
        ids[positions < 0] = filling
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


_OLD_MAGIC = b"blindsight index\1\0\0\0"
_OLD_OPENING = struct.Struct("<20sQ32s")
_OLD_KINDS = {"blindsight/code-index.1": "codes", "blindsight/symbol-index.1": "symbols"}
_OLD_TYPES = ("|u1", "<i4", "<i8")


def read_index(
    path: AnyPath, kind: str, *, mapped: bool = False, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the document and the arrays of an index file of this kind, of this version or of 0.1."""
    path = as_path(path)
    with storage_errors("read", path), path.open("rb") as stream:
        if stream.read(len(_OLD_MAGIC)) != _OLD_MAGIC:
            return read_arrays(path, kind, mapped=mapped, verify=verify)
        content = file_content(stream, mapped=mapped)
    try:
        return _read_old(content, _OLD_KINDS[kind], verify=verify)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, struct.error):
        raise CorruptFileError(f"{path} is truncated, altered or an index of another kind.") from None


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


def _read_old(content: memoryview, kind: str, *, verify: bool) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    _, length, digest = _OLD_OPENING.unpack_from(content)
    text = content[_OLD_OPENING.size :][:length]
    header = json.loads(bytes(text))
    if hashlib.sha256(text).digest() != digest or header["kind"] != kind:
        raise ValueError
    body = content[_padded(_OLD_OPENING.size + length) :]
    arrays, end = {}, 0
    for name, entry in header["sections"].items():
        size = math.prod(entry["shape"]) * np.dtype(entry["type"]).itemsize
        section = body[entry["offset"] :][:size]
        if entry["type"] not in _OLD_TYPES or entry["offset"] != end or len(section) != size:
            raise ValueError
        if verify and hashlib.sha256(section).hexdigest() != entry["sha256"]:
            raise ValueError
        arrays[name] = np.frombuffer(section, dtype=entry["type"]).reshape(entry["shape"])
        end += _padded(size)
    if len(body) != end:
        raise ValueError
    return header["document"], arrays


def _padded(length: int) -> int:
    return -(-length // 64) * 64


_FEW = 32  # tombstones that any table may have


class Rows:
    """Unique ids, integers or text, and one value each; `values` begins as an array of the right type and width."""

    def __init__(self, values: NDArray[Any], ids: IdArray | None = None) -> None:
        self._values = Growing(values)
        self._ids: IntegerIds | TextIds | None = None
        self.gone = np.empty(0, dtype=np.int64)
        if ids is not None:
            self._ids = id_table(ids)

    def __len__(self) -> int:
        return len(self._values) - len(self.gone)

    @property
    def values(self) -> NDArray[Any]:
        """All values by position, not copied, those of removed rows among them."""
        return self._values.view

    @property
    def kept(self) -> NDArray[Any]:
        """The values of the rows that are there, in the order of `ids`."""
        return np.delete(self.values, self.gone, axis=0) if len(self.gone) else self.values

    @property
    def ids(self) -> IdArray:
        """All ids in the order of their rows, as a copy."""
        return np.empty(0, dtype=np.int64) if self._ids is None else np.delete(self._ids.values, self.gone)

    @property
    def kind(self) -> IdKind | None:
        """Integers or text; None until the first row."""
        return None if self._ids is None else kind_of(self._ids.values)

    def has(self, key: Any) -> bool:
        """Tell whether there is a row of this id; what could be no id is not there."""
        try:
            return self._ids is not None and bool(self.positions([key])[0] >= 0)
        except InputError:
            return False

    def positions(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return where the rows of these ids stand, -1 where there is none."""
        return self._find(check_ids(ids, self.kind))

    def take(self, positions: NDArray[np.int64]) -> IdArray:
        """Return the ids at positions; -1 gives -1 or None."""
        return np.full(positions.shape, -1, dtype=np.int64) if self._ids is None else self._ids.take(positions)

    def add(self, ids: ArrayLike, values: NDArray[Any]) -> None:
        """Add rows under new ids."""
        checked = self._one_each(ids, values)
        if not len(checked):
            return
        known = np.flatnonzero(self._find(checked) >= 0)
        if known.size:
            double = checked.tolist()[known[0]]
            raise InputError(f"id {double!r} is in the index already; nothing was added. Use update().")
        assert self._ids is None or not self.buries(checked)
        if self._ids is None:
            self._ids = id_table(checked[:0])
        self._ids.append(checked)
        self._values.append(values)

    def remove(self, ids: ArrayLike) -> int:
        """Remove the rows of these ids, as far as there are any; return how many there were."""
        found = self.positions(ids)
        new = np.unique(found[found >= 0])
        if len(new):
            self.gone = np.union1d(self.gone, new)
        return len(new)

    @property
    def crowded(self) -> bool:
        """Whether there are so many tombstones that the gaps should be closed."""
        return len(self.gone) > max(_FEW, math.isqrt(len(self.values)))

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
            self._values = Growing(self.values[kept])
            self.gone = np.empty(0, dtype=np.int64)
        return kept

    def update(self, ids: ArrayLike, values: NDArray[Any]) -> NDArray[np.int64]:
        """Give existing ids other values; return their positions."""
        checked = self._one_each(ids, values)
        places = self._find(checked)
        if (places < 0).any():
            stranger = checked.tolist()[np.flatnonzero(places < 0)[0]]
            raise InputError(f"id {stranger!r} is not in the index; nothing was changed. Use add().")
        self._values.replace(places, values)
        return places

    def _find(self, checked: IdArray) -> NDArray[np.int64]:
        if self._ids is None or not len(checked):
            return np.full(len(checked), -1, dtype=np.int64)
        found = self._ids.positions(checked)
        return np.where(np.isin(found, self.gone), -1, found) if len(self.gone) else found

    def _one_each(self, ids: ArrayLike, values: NDArray[Any]) -> IdArray:
        checked = check_ids(ids, self.kind)
        if len(checked) != len(values):
            raise InputError(f"every row needs an id of its own; got {len(checked)} ids for {len(values)} rows.")
        check_unique(checked)
        return checked
