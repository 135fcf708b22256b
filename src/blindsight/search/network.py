"""Any torch module as a hash function: applied as it was trained, saved as arrays, never pickled.

A file holds the weights alone, so it is loaded into a module that the reader builds. `arrays` and `digest` say which
weights decide the codes; what the module does with them is the business of whoever wrote it.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, to_batch
from blindsight.search.codes import Codes, blocks, pack
from blindsight.search.function import Floats, HashFunction

_ROWS = 256  # inputs that go through the module at once


def with_head(module: Module, example: Tensor, bits: int) -> Module:
    """Return a copy of the module whose output is (batch, bits): by a linear head, unless it has that width already."""
    torch = load_torch()
    module = deepcopy(module).to(example.device).eval()
    try:
        with torch.no_grad():
            output = module(example)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the network cannot take a batch of shape {tuple(example.shape)}: {reason}") from error
    if output.ndim != 2 or len(output) != len(example):
        raise InputError(
            f"the network must turn a batch into rows of features, ({len(example)}, d); got {tuple(output.shape)}. "
            "End it with a pooling or Flatten."
        )
    width = output.shape[1]
    head = torch.nn.Identity() if width == bits else torch.nn.Linear(width, bits)
    return torch.nn.Sequential(module, head).to(example.device)


@dataclass(frozen=True, eq=False)
class NetworkHash(HashFunction):
    """sign(module(x)) for inputs of one `shape`, images or anything else; `width` is that of its output."""

    module: Module
    shape: tuple[int, ...]
    width: int
    device: str = "cpu"
    name: ClassVar[str] = "network"

    @property
    def bits(self) -> int:
        return self.width

    @property
    def dimension(self) -> int:
        """How many numbers one input has."""
        return prod(self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the shape of an input, the length of a code and all weights by the module's own names."""
        sizes = {"shape": np.array(self.shape, dtype=np.int64), "bits": np.array(self.width, dtype=np.int64)}
        weights = {f"module.{key}": value.cpu().numpy() for key, value in self.module.state_dict().items()}
        return {**sizes, **weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Refuse: the arrays are the weights of a module that only the caller can build."""
        raise InputError("these are the weights of a network: give load_network_hash the module they belong to.")

    @classmethod
    def with_module(cls, arrays: Mapping[str, NDArray[Any]], module: Module, device: str = "cpu") -> Self:
        """Return the function whose `arrays` these are: the weights go into a copy of the module."""
        torch = load_torch()
        shape, bits = tuple(int(side) for side in arrays["shape"]), int(arrays["bits"])
        with torch.random.fork_rng(devices=[]):  # the head's first weights are drawn, then replaced
            whole = with_head(module, to_batch(np.zeros((2, *shape), dtype=np.float32), "cpu"), bits)
        weights = {key.removeprefix("module."): value for key, value in arrays.items() if key.startswith("module.")}
        try:
            whole.load_state_dict({key: torch.tensor(value) for key, value in weights.items()}, strict=True)
        except RuntimeError as error:
            raise InputError(f"the weights do not fit this module: {' '.join(str(error).split())}") from None
        return cls(whole.eval().to(device), shape, bits, device)

    def scores(self, X: ArrayLike) -> Floats:
        """Return the outputs of the module, (n, bits)."""
        rows = check_inputs(X, self.shape)
        with load_torch().inference_mode():
            parts = [self.module(to_batch(rows[span], self.device)).cpu().numpy() for span in blocks(len(rows), _ROWS)]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def __call__(self, X: ArrayLike) -> Codes:
        """Return the packed codes of inputs of the shape it was trained on."""
        return pack(self.scores(X) >= 0)

    def _scores(self, X: Floats) -> Floats:
        return self.scores(X)
