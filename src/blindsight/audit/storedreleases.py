"""What an index really holds, compared with the pictures: releases with noise on them, hash functions without rows.

A mechanism may be sound and an index still hold something else: the true symbols, by mistake. So the releases in the
index are compared with the true symbols, which only the owner of the pictures can compute. Each names its true symbol
with a known probability, independently, so their number is binomial. KSH and SDH carry training rows as anchors.
"""

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.finding import Finding
from blindsight.audit.rates import rate
from blindsight.search.function import Floats
from blindsight.search.kernel import KernelHash, squared_distances
from blindsight.search.localmode import LocalHasher
from blindsight.validation import check_features

_SAME = 1e-6  # of a row's squared length: what rounding leaves of nothing


def truth_finding(hasher: LocalHasher, truth: NDArray[np.int64], released: NDArray[np.int64], source: str) -> Finding:
    """Compare stored releases with the true symbols: they may not name them more often than the mechanism does.

    Releases that are sound are called refuted with probability at most (1 - CONFIDENCE) / 2.
    """
    named, expected = hasher.design_.sets[released, truth], float(hasher.mechanism_.truth)
    share = rate(int(named.sum()), len(named), confidence=CONFIDENCE)
    return Finding(
        claim="every stored release carries the noise of its mechanism",
        source=source,
        proven=f"a release names the true symbol with probability {expected:.3g}",
        measure="share of stored releases that name the true symbol",
        measured=share,
        verdict="refuted" if share.low > expected else "not refuted",
        attack="the owner compares the index with the pictures",
        details={"releases": len(named), "expected": expected},
    )


def anchors_finding(function: KernelHash, rows: Floats) -> Finding:
    """Count the anchors of a kernel hash function that are rows of the collection, word for word."""
    anchors = check_features(function.anchors, function.dimension, least=0)
    nearest = squared_distances(anchors, rows).min(axis=1)
    found = int(np.sum(nearest <= _SAME * np.einsum("ij,ij->i", anchors, anchors)))
    return Finding(
        claim="a hash function does not hold the pictures it was learned from",
        source="nobody",
        proven="nothing: KSH and SDH carry training rows as anchors",
        measure="share of anchors that are features of indexed pictures, word for word",
        measured=rate(found, len(anchors)),
        verdict="leaks" if found else "at chance",
        attack="reading the hash function",
        details={"anchors": len(anchors), "rows": len(rows)},
    )
