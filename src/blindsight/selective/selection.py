"""Which of many parameters a participant shares: exactly as many as asked for, and always the same for the same input.

The largest are those of PPDL's "largest gradient" (Bu 2019, section 6) and of Shokri and Shmatikov 2015; which places
they are tells about the photos, and no noise on the *values* hides it. Random places tell nothing.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.selective.sparseupdate import every_place

Places = NDArray[np.int64]


def select_largest(change: NDArray[np.floating], count: int) -> Places:
    """Return the ascending places of the `count` largest magnitudes; of equal ones the first.

    >>> select_largest(np.array([0.5, -3.0, 0.5, 2.0]), 3).tolist()
    [0, 1, 3]
    """
    _check_count(count, change.size)
    if count == change.size:
        return every_place(change.size)
    sizes = np.abs(change)
    least = np.partition(sizes, change.size - count)[change.size - count]
    above = sizes > least
    ties = np.flatnonzero(sizes == least)[: count - np.count_nonzero(above)]
    above[ties] = True
    return np.flatnonzero(above)


def select_random(change: NDArray[np.floating], count: int, rng: np.random.Generator) -> Places:
    """Return `count` ascending places, each set of them equally likely; only the length of the change is looked at.

    >>> select_random(np.zeros(5), 5, np.random.default_rng(1)).tolist()
    [0, 1, 2, 3, 4]
    """
    _check_count(count, change.size)
    places: Places = np.sort(rng.choice(change.size, size=count, replace=False, shuffle=False))
    return places


def _check_count(count: int, size: int) -> None:
    if not 1 <= count <= size:
        raise InputError(f"of {size} parameters 1 to {size} can be selected; got {count}.")
