"""A learned network as plain arrays: applied with numpy alone, whatever library trained it.

x becomes (x - mean) / scale, then x @ weight + bias layer by layer with max(0, x) between; the last layer is left as it
is. A network can compute almost anything, an XOR of the private attribute with a hash of the rest included, so unlike a
matrix it cannot be made harmless by a change of basis: of a sift that is one, only a small alphabet with a certificate
bounds what it tells.

A network as a sift: real numbers, or levels where a quantiser follows; plain arrays, no library needed to apply it.

What a network lets out cannot be re-expressed in a basis of the platform's choice, as `harden` does with linear sifts,
and a network can scramble what it hides (`cheats`) beyond any list of attackers. So the platform releases one only
under a certificate, of all its frames and together with all else that is out. Attacks alone (`Verifier`) say something
about a network that was trained honestly (`adversarial`), nothing about one that was made to cheat.

A sift that lets out one of few symbols, so that what anyone can ever learn from it can be counted and certified.

The features become probabilities of attributes by a network, the probabilities one score per symbol, and the symbol
with the highest score is released: plain arrays from end to end. Whatever the network computes, an app sees no more
than the symbol; `certificate` bounds every attacker on it. `SymbolLearner` makes such sifts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from blindsight.errors import InputError
from blindsight.sift.sift import LARGEST, Floats, Levels, Quantiser, Sift, without_overflow

_ROWS = 4096  # rows whose hidden values are in memory at once


@dataclass(frozen=True, eq=False)
class Layers:
    """`mean` and `scale` have one number per feature; `weights[k]` is (inputs, outputs), `biases[k]` (outputs,)."""

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def __post_init__(self) -> None:
        for part in ("mean", "scale"):
            object.__setattr__(self, part, frozen_numbers(getattr(self, part)))
        for part in ("weights", "biases"):
            object.__setattr__(self, part, tuple(frozen_numbers(array) for array in getattr(self, part)))
        if not self.weights or len(self.weights) != len(self.biases) or self.scale.shape != self.mean.shape:
            raise InputError("a network has a mean and a scale per feature, and weights with biases for every layer.")
        if not (self.scale >= 1 / LARGEST).all():
            raise InputError(f"every scale must lie in [{1 / LARGEST:g}, {LARGEST:g}]; got {self.scale.min():g}.")
        width = self.mean.shape
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[:1] != width or weight.shape[1:] != bias.shape or not weight.size:
                raise InputError(f"weights {weight.shape} and biases {bias.shape} do not fit {width} inputs.")
            width = bias.shape

    @property
    def dimension(self) -> int:
        return len(self.mean)

    @property
    def width(self) -> int:
        """How many numbers it gives."""
        return len(self.biases[-1])

    def apply(self, X: Floats) -> Floats:
        """Return the outputs (n, width) of float32 features (n, d); rows that overflow give zeros."""
        outputs = np.empty((len(X), self.width), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(X), _ROWS):
                values = (X[start : start + _ROWS] - self.mean) / self.scale
                for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                    values = np.maximum(values @ weight + bias, 0)
                outputs[start : start + _ROWS] = values @ self.weights[-1] + self.biases[-1]
        return without_overflow(outputs)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all numbers by name."""
        layers = {f"weight{k}": weight for k, weight in enumerate(self.weights)}
        layers |= {f"bias{k}": bias for k, bias in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, **layers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the network whose `arrays` these are, checked anew."""
        depth = sum(name.startswith("weight") for name in arrays)
        weights = tuple(arrays[f"weight{k}"] for k in range(depth))
        return cls(arrays["mean"], arrays["scale"], weights, tuple(arrays[f"bias{k}"] for k in range(depth)))

    @classmethod
    def side_by_side(cls, networks: Sequence[Self]) -> Self:
        """Return one network that gives the outputs of all, in order; they share mean and scale.

        Networks with fewer layers than the deepest (no hidden layer at all: a linear model) are carried along as x =
        max(0, x) - max(0, -x).
        """
        depth = max(len(network.weights) for network in networks)
        levelled = [network._deepened(depth) for network in networks]
        weights = [np.hstack([network.weights[0] for network in levelled])]
        weights += [_block_diagonal([network.weights[k] for network in levelled]) for k in range(1, depth)]
        biases = tuple(np.concatenate([network.biases[k] for network in levelled]) for k in range(depth))
        return cls(networks[0].mean, networks[0].scale, tuple(weights), biases)

    def _deepened(self, depth: int) -> Self:
        """Return the same function with so many layers."""
        weights, biases = list(self.weights), list(self.biases)
        while len(weights) < depth:
            last, bias, one = weights.pop(), biases.pop(), np.eye(self.width, dtype=np.float32)
            weights += [np.hstack([last, -last]), np.vstack([one, -one])]
            biases += [np.concatenate([bias, -bias]), np.zeros(self.width, dtype=np.float32)]
        return type(self)(self.mean, self.scale, tuple(weights), tuple(biases))


def frozen_numbers(numbers: NDArray[Any]) -> Floats:
    """Return a read-only float32 copy of finite numbers of sane size."""
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(numbers, dtype=np.float32)
    if not (np.abs(array) <= LARGEST).all():
        raise InputError(f"the numbers of a sift must be finite and within +-{LARGEST:g}.")
    array.setflags(write=False)
    return array


def _block_diagonal(blocks: Sequence[Floats]) -> Floats:
    rows, columns = (np.cumsum([0, *(block.shape[axis] for block in blocks)]) for axis in (0, 1))
    whole = np.zeros((rows[-1], columns[-1]), dtype=np.float32)
    for k, block in enumerate(blocks):
        whole[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = block
    return whole


@dataclass(frozen=True, eq=False)
class LayeredSift(Sift):
    """z = layers(x), rounded by the quantiser if there is one."""

    layers: Layers
    quantiser: Quantiser | None = None
    pipeline: str = ""
    name: str = ""
    kind: ClassVar[str] = "layered"

    def __post_init__(self) -> None:
        if self.quantiser is not None and self.quantiser.width != self.layers.width:
            raise InputError(
                f"the quantiser takes {self.quantiser.width} outputs; the layers give {self.layers.width}."
            )

    @property
    def dimension(self) -> int:
        return self.layers.dimension

    @property
    def width(self) -> int:
        return self.layers.width

    @property
    def levels(self) -> tuple[int, ...] | None:
        return None if self.quantiser is None else (self.quantiser.levels,) * self.width

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the network and the quantiser's edges."""
        edges = {} if self.quantiser is None else {"edges": self.quantiser.edges}
        return {**self.layers.arrays(), **edges}

    def document(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], name: str = "") -> Self:
        quantiser = Quantiser(arrays["edges"]) if "edges" in arrays else None
        return cls(Layers.from_arrays(arrays), quantiser, str(document["pipeline"]), name)

    def _release(self, block: Floats) -> Floats | Levels:
        outputs = self.layers.apply(block)
        return outputs if self.quantiser is None else self.quantiser.apply(outputs)


MOST_SYMBOLS = 32


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
