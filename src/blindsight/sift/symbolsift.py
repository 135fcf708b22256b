"""A sift that lets out one of few symbols, so that what anyone can ever learn from it can be counted and certified.

The features become probabilities of attributes by a network, the probabilities one score per symbol, and the symbol
with the highest score is released: plain arrays from end to end. Whatever the network computes, an app sees no more
than the symbol; `certificate` bounds every attacker on it. `SymbolLearner` makes such sifts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from blindsight.errors import InputError
from blindsight.sift.layers import Layers, frozen_numbers
from blindsight.sift.sift import Floats, Levels, Sift
from blindsight.sift.symbolrule import MOST_SYMBOLS


@dataclass(frozen=True, eq=False)
class SymbolSift(Sift):
    """symbol = argmax of sigmoid(layers(x)) @ matrix + offset, read as `reading` says: bits, or one number.

    `matrix` is (outputs of the layers, symbols), `offset` (symbols,).
    """

    layers: Layers
    matrix: Floats
    offset: Floats
    reading: tuple[int, ...]
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "symbol"

    def __post_init__(self) -> None:
        for part in ("matrix", "offset"):
            object.__setattr__(self, part, frozen_numbers(getattr(self, part)))
        object.__setattr__(self, "reading", tuple(int(levels) for levels in self.reading))
        symbols = math.prod(self.reading)
        if min(self.reading, default=0) < 2 or symbols > MOST_SYMBOLS:
            raise InputError(f"a symbol sift has 2 to {MOST_SYMBOLS} symbols; got {self.reading}.")
        if self.matrix.shape != (self.layers.width, symbols) or self.offset.shape != (symbols,):
            raise InputError(
                f"{self.layers.width} outputs and {symbols} symbols need a matrix of that shape and an offset per "
                f"symbol; got {self.matrix.shape} and {self.offset.shape}."
            )

    @property
    def dimension(self) -> int:
        return self.layers.dimension

    @property
    def width(self) -> int:
        return len(self.reading)

    @property
    def levels(self) -> tuple[int, ...]:
        """How many levels each number has."""
        return self.reading

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the network and the scores of the symbols."""
        return {**self.layers.arrays(), "matrix": self.matrix, "offset": self.offset}

    def document(self) -> dict[str, Any]:
        """Return how symbols read, and the pipeline."""
        return {"pipeline": self.pipeline, "reading": list(self.reading)}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], name: str = "") -> Self:
        layers, reading = Layers.from_arrays(arrays), tuple(document["reading"])
        return cls(layers, arrays["matrix"], arrays["offset"], reading, str(document["pipeline"]), name)

    def _release(self, block: Floats) -> Levels:
        scores = expit(self.layers.apply(block)) @ self.matrix + self.offset
        return np.stack(np.unravel_index(scores.argmax(axis=1), self.reading), axis=1).astype(np.int64, copy=False)
