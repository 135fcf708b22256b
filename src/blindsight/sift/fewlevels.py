"""A linear sift with few levels per number, so that what it lets out can be certified.

K numbers of L levels are one of L^K symbols. The edges are quantiles of reference rows, so that each number visits its
levels equally often there. Reference rows must not be those that the certificate is counted on.
"""

from dataclasses import replace

import numpy as np

from blindsight.errors import InputError
from blindsight.sift.features import Features
from blindsight.sift.quantiser import Quantiser
from blindsight.sift.sift import LinearSift


def with_few_levels(sift: LinearSift, X: Features, levels: int) -> LinearSift:
    """Return the sift with every number sorted into `levels` levels, equally frequent on reference features X."""
    if levels < 2:
        raise InputError(f"a number needs at least 2 levels to say anything; got {levels}.")
    numbers = replace(sift, quantiser=None).apply(X)
    edges = np.quantile(numbers, np.arange(1, levels) / levels, axis=0).T.astype(np.float32)
    if not (np.diff(edges) > 0).all():
        raise InputError(
            f"the sift's numbers take fewer than {levels} different values often enough. Use fewer levels."
        )
    return replace(sift, quantiser=Quantiser(edges))
