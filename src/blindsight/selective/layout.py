"""Which parameters a network has, in which order: what all parties must agree on before they exchange plain vectors."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from blindsight.errors import InputError


@dataclass(frozen=True)
class ParameterLayout:
    """Names and shapes of the parameters that are learned, in the order in which they make up one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Refuse a layout in which nothing can be learned."""
        if not self.names:
            raise InputError("this model has no trainable parameters, so there is nothing to share.")
        if len(self.names) != len(self.shapes) or len(set(self.names)) != len(self.names):
            raise InputError("a layout names every parameter once and gives each a shape.")

    @classmethod
    def of(cls, parameters: Iterable[tuple[str, tuple[int, ...]]]) -> "ParameterLayout":
        """Return the layout of these names and shapes."""
        pairs = [(name, tuple(int(side) for side in shape)) for name, shape in parameters]
        return cls(tuple(name for name, _ in pairs), tuple(shape for _, shape in pairs))

    @cached_property
    def dimension(self) -> int:
        """How many numbers there are in all."""
        return sum(prod(shape) for shape in self.shapes)

    @cached_property
    def digest(self) -> str:
        """What stands for this layout in messages: equal exactly for equal names, shapes and order."""
        return hashlib.sha256(json.dumps([self.names, self.shapes]).encode()).hexdigest()
