"""How an update of real weights becomes the integers that are added up, the same for every scheme of a run."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.encoding import FixedPoint
from blindsight.errors import InputError


class FixedPointTerms(ABC):
    """The encoding that terms of a run share: a length, a fixed point, and a largest integer that cannot overflow."""

    users: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int

    @property
    @abstractmethod
    def max_integer(self) -> int:
        """The largest absolute value of an encoded weight."""

    def integers(self, update: ArrayLike) -> NDArray[np.int64]:
        """Encode an update of real weights in fixed point, exactly as every scheme does."""
        try:
            values = np.asarray(update, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("an update is a vector of real numbers.") from None
        self._check_shape(values)
        return self.checked(FixedPoint(self.fraction_bits).encode(values))

    def checked(self, integers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return encoded weights that are fit to be contributed; others raise `InputError`."""
        self._check_shape(integers)
        if integers.dtype.kind not in "iu":
            raise InputError(f"encoded weights are whole numbers; got {integers.dtype}. Use `integers`.")
        outside = np.flatnonzero((integers > self.max_integer) | (integers < -self.max_integer))
        if outside.size:
            raise InputError(
                f"weight {outside[0]} is beyond +-{self.max_integer / 2**self.fraction_bits:g}, the most that "
                f"{len(self.users)} users may add in {self.slot_bits}-bit slots at {self.fraction_bits} fraction bits. "
                "Clip it, use fewer fraction bits or wider slots."
            )
        return integers.astype(np.int64)

    def values(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights that encoded integers, or sums of them, stand for."""
        return FixedPoint(self.fraction_bits).decode(integers)

    def _check_shape(self, values: NDArray[Any]) -> None:
        if values.shape != (self.dimension,):
            raise InputError(f"an update is a vector of {self.dimension} weights; got shape {values.shape}.")
