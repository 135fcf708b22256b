"""What training changed, as float32 numbers that lead back to its result.

The server adds in float32. The rounded difference of two float32 numbers, added to the first, can miss the second:
therefore it is corrected where a neighbour of it hits. The numbers that hit lie in an interval around the exact
difference, so if there is one, it is the rounded difference or one of its two neighbours.

After one step of gradient descent, after = fl(before - step), there always is one: -step. Training that rounds less
often has results which no float32 number leads to, at parameters that change their sign or lose more than half of
their size: several steps at once, and the fused multiply-add of torch's optimisers unless the learning rate is a power
of two. There the server's parameter differs from the trained one by about half a unit in the last place of the change.
"""

import numpy as np

from blindsight.selective.sparseupdate import Vector


def change_between(before: Vector, after: Vector) -> Vector:
    """Return the change that, added to `before` in float32, gives `after` bit for bit wherever there is such a number.

    >>> before, after = np.float32([0.1, -1.0]), np.float32([0.1, 0.5])
    >>> change_between(before, after).tolist()
    [0.0, 1.5]
    """
    with np.errstate(over="ignore"):
        change = after - before
        missed = np.flatnonzero(before + change != after)
        rounded = change[missed]
        for toward in (np.inf, -np.inf):
            neighbour = np.nextafter(rounded, np.float32(toward))
            hits = before[missed] + neighbour == after[missed]
            change[missed[hits]] = neighbour[hits]
    zeros = np.flatnonzero(change == 0)
    change[zeros] = np.copysign(change[zeros], after[zeros])  # -0.0 + 0.0 would be 0.0
    return change
