"""Values by id: the table that the embedded indexes stand on. Changes happen whole or not at all.

Rows stand in the order in which they were added. A removed row stays where it is, without its id (a *tombstone*), until
there are so many that closing the gaps costs each removal little: about sqrt(n) of them. Whoever searches `values` must
leave out the positions that are `gone`.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.search.growing import Growing
from blindsight.search.hits import IdArray
from blindsight.search.ids import IdKind, IntegerIds, TextIds, check_ids, check_unique, id_table, kind_of

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
        return len(self.values) - len(self.gone)

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
