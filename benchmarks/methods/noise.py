"""What the samplers of noise are asked for."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class NoiseRequest:
    """Independent draws from one law around zero; `scale` is Laplace's b or Gauss's sigma."""

    law: Literal["laplace", "gaussian"]
    scale: float
