"""What attackers in benchmarks are given: released numbers, and the private labels of those they may learn from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ReleasedNumbers:
    """What an attacker may see: what was released of either half's pictures, the private labels of the first half."""

    train: NDArray[np.float64]
    labels: NDArray[np.int8]
    test: NDArray[np.float64]
