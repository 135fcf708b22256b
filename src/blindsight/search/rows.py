"""Values by id: the table that the embedded indexes stand on. Changes happen whole or not at all.

Rows stand in the order in which they were added; removing some closes the gaps and keeps that order.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.search.growing import Growing
from blindsight.search.hits import IdArray
from blindsight.search.ids import IdKind, IntegerIds, TextIds, check_ids, check_unique, id_table, kind_of


class Rows:
    """Unique ids, integers or text, and one value each; `values` begins as an array of the right type and width."""

    def __init__(self, values: NDArray[Any], ids: IdArray | None = None) -> None:
        self._values = Growing(values)
        self._ids: IntegerIds | TextIds | None = None
        if ids is not None:
            self._ids = id_table(ids)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def values(self) -> NDArray[Any]:
        """All values by position, not copied."""
        return self._values.view

    @property
    def ids(self) -> IdArray:
        """All ids by position, as a copy."""
        return np.empty(0, dtype=np.int64) if self._ids is None else self._ids.values.copy()

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
        if self._ids is None:
            self._ids = id_table(checked[:0])
        self._ids.append(checked)
        self._values.append(values)

    def remove(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Remove the rows of these ids, as far as there are any; tell for every old position whether it was kept."""
        kept = np.ones(len(self), dtype=np.bool_)
        found = self.positions(ids)
        kept[found[found >= 0]] = False
        if self._ids is not None and not kept.all():
            self._ids.keep(kept)
            self._values = Growing(self.values[kept])
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
        return self._ids.positions(checked)

    def _one_each(self, ids: ArrayLike, values: NDArray[Any]) -> IdArray:
        checked = check_ids(ids, self.kind)
        if len(checked) != len(values):
            raise InputError(f"every row needs an id of its own; got {len(checked)} ids for {len(values)} rows.")
        check_unique(checked)
        return checked
