"""SDH: codes from which a linear classifier reads the labels, learned as bits all along instead of rounded at the end.

Shen, Shen, Liu and Shen, "Supervised Discrete Hashing", CVPR 2015, minimise over codes B, classifier W and projection P

    || Y - B W ||^2 + lam || W ||^2 + nu || B - phi(X) P ||^2,    B in {-1, +1}

where Y holds the classes as indicators and phi are Gaussian kernel features of some anchor rows. Three steps take
turns: W is a ridge regression, P a least-squares fit, and B is improved bit by bit, each column in closed form with all
others fixed (discrete cyclic coordinate descent) until none changes. No step raises the objective. The function is
sign(phi(x) P): a `KernelHash`.

    paper            here
    B, L x n         `codes`, n x bits
    W, L x classes   `classifier`, bits x classes
    F(x) = P^T phi   `fitted`, n x bits
    G-step           `ridge`
    F-step           `_projection`
    B-step (DCC)     `discrete_descent`
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.search.codes import blocks
from blindsight.search.function import Floats
from blindsight.search.kernel import KernelHash, choose_anchors, kernel_features
from blindsight.search.learner import Classes, HashLearner

Doubles = NDArray[np.float64]

_SWEEPS = 10  # over all bits in one B-step, unless none changes before
_ROWS = 4096  # rows turned to double precision at once
_JITTER = 1e-6  # of the mean diagonal: anchors that lie close together make kernel features nearly dependent


class SDH(HashLearner):
    """Supervised discrete hashing: `iterations` rounds of the three steps over `anchors` rows.

    Any number of bits can be learned, whatever the dimension and the number of rows; with fewer rows than anchors all
    rows serve. Takes 4 n anchors bytes of memory. `bandwidth` of the kernel is measured if None.
    """

    supervised = True

    def __init__(
        self,
        bits: int,
        anchors: int = 1000,
        iterations: int = 5,
        nu: float = 1e-5,
        lam: float = 1.0,
        bandwidth: float | None = None,
        random_state: int | np.random.Generator | None = 0,
    ) -> None:
        self.bits = bits
        self.anchors = anchors
        self.iterations = iterations
        self.nu = nu
        self.lam = lam
        self.bandwidth = bandwidth
        self.random_state = random_state

    def _learn(self, X: Floats, y: Classes | None) -> KernelHash:
        assert y is not None
        if self.iterations < 1 or not self.nu >= 0 or not self.lam > 0:
            raise InputError(
                f"SDH needs iterations >= 1, nu >= 0 and lam > 0; got {self.iterations}, {self.nu} and {self.lam}."
            )
        generator = science(self.random_state)
        anchors, bandwidth = choose_anchors(X, self.anchors, self.bandwidth, generator)
        features = kernel_features(X, anchors, bandwidth)
        factor = _gram_factor(features)
        labels = np.eye(int(y.max()) + 1)[y]
        codes = np.where(generator.random((len(X), self.bits)) < 0.5, -1.0, 1.0)
        matrix = _projection(features, factor, codes)
        for _ in range(self.iterations):
            classifier = ridge(codes, labels, self.lam)
            fitted = (features @ matrix).astype(np.float64)
            codes = discrete_descent(codes, labels, classifier, fitted, self.nu)
            matrix = _projection(features, factor, codes)
        return KernelHash(anchors, bandwidth, np.zeros(len(anchors), dtype=np.float32), matrix)


def ridge(codes: Doubles, labels: Doubles, lam: float) -> Doubles:
    """Return the W that minimises || Y - B W ||^2 + lam || W ||^2."""
    return np.asarray(cho_solve(cho_factor(codes.T @ codes + lam * np.eye(codes.shape[1])), codes.T @ labels))


def discrete_descent(codes: Doubles, labels: Doubles, classifier: Doubles, fitted: Doubles, nu: float) -> Doubles:
    """Return codes none of whose columns can be improved alone (or that were swept `_SWEEPS` times)."""
    codes = codes.copy()
    target = labels @ classifier.T + nu * fitted  # Q
    overlap = classifier @ classifier.T
    for _ in range(_SWEEPS):
        before = codes.copy()
        for bit in range(codes.shape[1]):
            others = codes @ overlap[:, bit] - codes[:, bit] * overlap[bit, bit]
            wish = target[:, bit] - others
            codes[:, bit] = np.where(wish == 0, codes[:, bit], np.sign(wish))
        if np.array_equal(codes, before):
            break
    return codes


def _gram_factor(features: Floats) -> tuple[Doubles, bool]:
    """Return the Cholesky factor of phi^T phi, summed in double precision: single would lose its small eigenvalues."""
    gram = np.zeros((features.shape[1], features.shape[1]))
    for span in blocks(len(features), _ROWS):
        rows = features[span].astype(np.float64)
        gram += rows.T @ rows
    gram.flat[:: len(gram) + 1] += _JITTER * gram.diagonal().mean()
    lower: tuple[Doubles, bool] = cho_factor(gram, overwrite_a=True)
    return lower


def _projection(features: Floats, factor: tuple[Doubles, bool], codes: Doubles) -> Floats:
    """Return the P that minimises || B - phi(X) P ||^2."""
    return np.asarray(cho_solve(factor, (features.T @ codes.astype(np.float32)).astype(np.float64)), dtype=np.float32)
