"""An array that grows at its end."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
