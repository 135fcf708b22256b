"""Random hyperplanes: codes whose Hamming distance tells the angle between features, learned from next to nothing.

Guarantee: two rows at angle t, seen from the origin of the hyperplanes, differ in each bit with probability t / pi,
independently of all other bits (M. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002):
the LSH of the hashing papers. Any number of bits is allowed, also more than there are features: each bit measures the
angle once more.
"""

import numpy as np

from blindsight.rng import science
from blindsight.search.function import Floats, LinearHash
from blindsight.search.learner import Classes, HashLearner


class LSH(HashLearner):
    """Gaussian random hyperplanes through the mean of the features, or through the origin.

    Parameters
    ----------
    bits : length of a code; may exceed the number of features.
    random_state : decides the hyperplanes; whoever knows it knows them.
    centre : put the hyperplanes through the mean, the only thing that is learned. With ``centre=False`` the function
        does not depend on the data at all, so that publishing it reveals nothing about anyone; codes are then even only
        as far as features lie around the origin (all-positive features lie to one side of most hyperplanes).

    Attributes
    ----------
    function_ : the `LinearHash`.
    """

    def __init__(self, bits: int, random_state: int = 0, *, centre: bool = True) -> None:
        self.bits = bits
        self.random_state = random_state
        self.centre = centre

    def _learn(self, X: Floats, y: Classes | None) -> LinearHash:
        width = X.shape[1]
        mean = X.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(width)
        hyperplanes = science(self.random_state).standard_normal((width, self.bits))
        return LinearHash(mean.astype(np.float32), hyperplanes.astype(np.float32))
