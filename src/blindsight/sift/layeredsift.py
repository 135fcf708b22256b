"""A network as a sift: real numbers, or levels where a quantiser follows; plain arrays, no library needed to apply it.

What a network lets out cannot be re-expressed in a basis of the platform's choice, as `harden` does with linear sifts,
and a network can scramble what it hides (`cheats`) beyond any list of attackers. So the platform releases one only
under a certificate, of all its frames and together with all else that is out. Attacks alone (`Verifier`) say something
about a network that was trained honestly (`adversarial`), nothing about one that was made to cheat.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.sift.layers import Layers
from blindsight.sift.quantiser import Quantiser
from blindsight.sift.sift import Floats, Levels, Sift


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
