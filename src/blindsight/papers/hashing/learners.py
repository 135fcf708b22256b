"""Learners that private hashing is compared with (Tables 1 and 2): LSH and SH; KSH and SDH from labels.

*LSH*: two rows at angle t, seen from the origin of the hyperplanes, differ in each bit with probability t / pi,
independently of all other bits (M. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002).

*SH*: Y. Weiss, A. Torralba, R. Fergus, "Spectral Hashing", NIPS 2008. If features were uniform on a box along their
principal directions, the best codes would be thresholded eigenfunctions of the box's Laplacian; on a side [a, b]

    phi_k(x) = sin(pi/2 + k pi / (b - a) (x - a)),   eigenvalue 1 - exp(-eps^2/2 (k pi / (b - a))^2),   k = 1, 2, ...

The `bits` with the smallest eigenvalues are kept: those with the smallest k / (b - a), whatever eps is. Like the paper,
the code leaves products of several directions out. In `SpectralHash` a column of `matrix` is k pi / (b - a) on the
direction it slices, `phase` is k pi a / (b - a), and sin(pi/2 + t) is written cos(t).

Over a Gaussian kernel, from labels, KSH learns by pairs of rows, SDH by a classifier of codes.

*KSH* (Liu, Wang, Ji, Jiang and Chang, "Supervised Hashing with Kernels", CVPR 2012) wants the inner products of the
codes of l labelled rows to be r for pairs of one class and -r for the others, r being the number of bits: it minimises
|| sum_k h_k h_k^T - r S ||^2 greedily. With R_k = r S - sum_(t<k) h_t h_t^T, bit k maximises h^T R_k h over
h = sgn(K a), by gradient steps from the spectral relaxation on a sigmoid-smoothed objective; the better of the two is
kept. The paper climbs by Nesterov's method, this by L-BFGS in coordinates where the kernel features are orthonormal.
S = 2 Y Y^T - 1 1^T with the classes Y as indicators, so R is never laid out, and thousands of rows can take part.
Symbols: a_k is a column of `KernelHash.matrix`, mu_j is `mean`, l `pairs_rows`, m `anchors`.

*SDH* (Shen, Shen, Liu and Shen, "Supervised Discrete Hashing", CVPR 2015) minimises over codes B, classifier W and
projection P

    || Y - B W ||^2 + lam || W ||^2 + nu || B - phi(X) P ||^2,    B in {-1, +1}

where phi are kernel features of some anchor rows. W is a ridge regression (G-step, `ridge`), P a least-squares fit
(F-step, `_projection`), and B is improved bit by bit, each column in closed form with all others fixed (B-step,
`discrete_descent`). No step raises the objective. B (L x n there) is `codes`, n x bits; W `classifier`; F(x) `fitted`.

Functions that networks end as: `LayeredHash` (a perceptron) needs numpy alone. `NetworkHash` is any torch module: its
file holds weights, never code, to go into the reader's own module.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, svd
from scipy.optimize import minimize

from blindsight.errors import CorruptFileError, DataError, InputError, UnknownNameError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, to_batch
from blindsight.files import AnyPath, read_arrays
from blindsight.rng import science
from blindsight.search.codes import Codes, blocks, pack
from blindsight.search.function import FILE_KIND, Classes, Floats, HashFunction, HashLearner, LinearHash
from blindsight.search.itq import principal_directions, project

Doubles = NDArray[np.float64]

_ROWS = 2048  # rows at a time: with up to a few hundred columns they stay in the processor's cache
_ROUNDING = float(np.finfo(np.float32).eps)


@dataclass(eq=False, repr=False)
class LSH(HashLearner):
    """Gaussian random hyperplanes through the mean of the features, the only thing that is learned.

    With ``centre=False`` they go through the origin and the function does not depend on the data at all, so publishing
    it reveals nothing about anyone; but all-positive features lie to one side of most such hyperplanes.
    """

    bits: int  # may exceed the number of features
    random_state: int = 0  # decides the hyperplanes: to know it is to know them
    _: KW_ONLY
    centre: bool = True

    def _learn(self, X: Floats, y: Classes | None) -> LinearHash:
        width = X.shape[1]
        mean = X.mean(axis=0, dtype=np.float64) if self.centre else np.zeros(width)
        hyperplanes = science(self.random_state).standard_normal((width, self.bits))
        return LinearHash(mean.astype(np.float32), hyperplanes.astype(np.float32))


@dataclass(frozen=True, eq=False)
class SpectralHash(LinearHash):
    """sign(cos((x - mean) matrix - phase)): what spectral hashing ends as."""

    phase: Floats
    name: ClassVar[str] = "spectral"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phase.shape != self.matrix.shape[1:]:
            raise InputError(f"matrix {self.matrix.shape} and phase {self.phase.shape} do not fit each other.")

    def _scores(self, X: Floats) -> Floats:
        return np.asarray(np.cos(super()._scores(X) - self.phase))


@dataclass(eq=False, repr=False)
class SH(HashLearner):
    """Spectral hashing; `bits` may exceed the number of features. There is nothing random about it."""

    bits: int

    def _learn(self, X: Floats, y: Classes | None) -> SpectralHash:
        mean, directions = principal_directions(X, self.bits)
        projected = project(X, mean, directions)
        low = projected.min(axis=0).astype(np.float64)
        sides = projected.max(axis=0) - low  # b - a
        long = np.flatnonzero(sides)  # a side without length cannot be sliced
        if not long.size:
            raise InputError(f"all {len(X)} rows are equal: there is nothing to slice. Give features that vary.")
        side, slices = smallest_modes(sides[long], self.bits)
        direction = long[side]
        frequency = np.pi * slices / sides[direction]
        matrix = directions[:, direction] * frequency
        return SpectralHash(mean, matrix.astype(np.float32), (low[direction] * frequency).astype(np.float32))


def smallest_modes(sides: NDArray[np.float64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which side of the box each of the `count` smallest eigenfunctions slices, and its k.

    >>> side, k = smallest_modes(np.array([4.0, 1.5]), 4)  # k / (b - a) = 0.25, 0.5, 1 / 1.5, 0.75
    >>> side, k
    (array([0, 0, 1, 0]), array([1, 2, 1, 3]))
    """
    k = np.arange(1, count + 1)
    order = np.argsort((k / sides[:, None]).ravel(), kind="stable")[:count]
    return order // count, k[order % count]


_KERNEL_ROWS = 4096  # rows whose kernel features are in memory at once, besides those asked for
_RANK = 1e-4  # singular values of the kernel features below this share of the largest are taken for noise
_STEPS = 50  # of L-BFGS for one bit


@dataclass(frozen=True, eq=False)
class KernelHash(HashFunction):
    """sign((k(x) - mean) matrix), where k_j(x) = exp(-|x - anchor_j|^2 / (2 bandwidth^2))."""

    anchors: Floats
    bandwidth: float
    mean: Floats
    matrix: Floats
    name: ClassVar[str] = "kernel"

    def __post_init__(self) -> None:
        self._check_numbers()
        if not 0 < self.bandwidth < np.inf:
            raise InputError(f"the bandwidth of a kernel must be positive; got {self.bandwidth}.")
        shapes = self.anchors.shape, self.mean.shape, self.matrix.shape
        if [len(shape) for shape in shapes] != [2, 1, 2] or len({shape[0] for shape in shapes}) > 1 or 0 in shapes[2]:
            raise InputError("anchors {}, mean {} and matrix {} do not fit each other.".format(*shapes))

    @property
    def bits(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.anchors.shape[1])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**super().arrays(), "bandwidth": np.array(self.bandwidth, dtype=np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(arrays["anchors"], float(arrays["bandwidth"]), arrays["mean"], arrays["matrix"])

    def _scores(self, X: Floats) -> Floats:
        scores = np.empty((len(X), self.bits), dtype=np.float32)
        for span in blocks(len(X), _KERNEL_ROWS):
            features = kernel_features(X[span], self.anchors, self.bandwidth)
            scores[span] = (features - self.mean) @ self.matrix
        return scores


def squared_distances(X: Floats, anchors: Floats) -> Floats:
    """Return |x - anchor|^2 for all rows and anchors, (n, m), never below 0."""
    centre = anchors.mean(axis=0)  # far from the origin, the squares below would cancel each other's digits
    rows, others = X - centre, anchors - centre
    squares: Floats = (rows @ others.T) * np.float32(-2)
    squares += (rows**2).sum(axis=1)[:, None]
    squares += (others**2).sum(axis=1)
    return np.maximum(squares, 0, out=squares)


def kernel_features(X: Floats, anchors: Floats, bandwidth: float) -> Floats:
    """Return exp(-|x - anchor|^2 / (2 bandwidth^2)), (n, m).

    >>> x, anchors = np.float32([[0.0]]), np.float32([[0.0], [2.0]])
    >>> kernel_features(x, anchors, bandwidth=2.0).round(4)
    array([[1.    , 0.6065]], dtype=float32)
    """
    features = np.empty((len(X), len(anchors)), dtype=np.float32)
    for span in blocks(len(X), _KERNEL_ROWS):
        exponents = squared_distances(X[span], anchors)
        exponents *= np.float32(-0.5 / bandwidth**2)
        np.exp(exponents, out=features[span])
    return features


def choose_anchors(
    X: Floats, anchors: int, bandwidth: float | None, generator: np.random.Generator
) -> tuple[Floats, float]:
    """Draw rows as anchors; 2 bandwidth^2 is, unless given, the mean squared distance of rows and anchors."""
    if anchors < 1:
        raise InputError(f"a kernel needs at least 1 anchor; got {anchors}.")
    chosen = X[np.sort(generator.choice(len(X), size=min(anchors, len(X)), replace=False))]
    if bandwidth is None:
        sample = X[generator.choice(len(X), size=min(_KERNEL_ROWS, len(X)), replace=False)]
        bandwidth = float(np.sqrt(squared_distances(sample, chosen).mean(dtype=np.float64) / 2))
        if bandwidth == 0:
            raise InputError("all rows are equal: there is nothing to tell apart. Check the features.")
    elif not 0 < bandwidth < np.inf:
        raise InputError(f"bandwidth must be positive; got {bandwidth}. Leave it out to have it measured.")
    return chosen, bandwidth


@dataclass(eq=False, repr=False)
class KSH(HashLearner):
    """Kernel-based supervised hashing: `bits` greedy bits over `anchors` rows, from the pairs among `pairs_rows` rows.

    Any number of bits can be learned; where rows are fewer, all serve. The kernel's `bandwidth` is measured if None.
    """

    supervised = True

    bits: int
    anchors: int = 300
    pairs_rows: int = 5000
    bandwidth: float | None = None
    random_state: int | np.random.Generator | None = 0

    def _learn(self, X: Floats, y: Classes | None) -> KernelHash:
        assert y is not None
        if self.pairs_rows < 2:
            raise InputError(f"pairs_rows must be at least 2; got {self.pairs_rows}.")
        generator = science(self.random_state)
        anchors, bandwidth = choose_anchors(X, self.anchors, self.bandwidth, generator)
        labelled = generator.choice(len(X), size=min(self.pairs_rows, len(X)), replace=False)
        features = kernel_features(X[labelled], anchors, bandwidth)
        mean = features.mean(axis=0)
        basis, back = _orthonormal(features - mean)
        residual = Residual.of(y[labelled], self.bits)
        columns = []
        for _ in range(self.bits):
            weights = greedy_bit(basis, residual)
            columns.append(back @ weights)
            residual = residual.without(signs(basis @ weights))
        matrix = np.stack(columns, axis=1)
        return KernelHash(anchors, bandwidth, mean, matrix.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Residual:
    """R = bits S - sum of h h^T over the bits so far, held as its factors: `left @ diag(weights) @ left.T`."""

    left: Doubles
    weights: Doubles

    @classmethod
    def of(cls, classes: Classes, bits: int) -> Self:
        """Return bits S, where S is +1 for pairs of one class and -1 for all others."""
        indicators = (classes[:, None] == np.unique(classes)).astype(np.float64)
        left = np.column_stack([indicators, np.ones(len(classes))])
        return cls(left, np.array([2.0 * bits] * indicators.shape[1] + [-1.0 * bits]))

    def without(self, bit: Doubles) -> "Residual":
        return Residual(np.column_stack([self.left, bit]), np.append(self.weights, -1.0))

    def times(self, vector: Doubles) -> Doubles:
        return np.asarray(self.left @ (self.weights * (vector @ self.left)))

    def between(self, basis: Doubles) -> Doubles:
        projected = basis.T @ self.left
        return np.asarray((projected * self.weights) @ projected.T)

    def gain(self, bit: Doubles) -> float:
        """Return h^T R h: how much the bit contributes."""
        return float(bit @ self.times(bit))


def greedy_bit(basis: Doubles, residual: Residual) -> Doubles:
    """Return weights a such that sgn(basis @ a) has a large h^T R h, at least that of the spectral relaxation."""
    rows, rank = basis.shape
    _, leading = eigh(residual.between(basis), subset_by_index=[rank - 1, rank - 1])
    start = leading[:, 0] * np.sqrt(rows)
    refined = minimize(smoothed_loss, start, (basis, residual), "L-BFGS-B", jac=True, options={"maxiter": _STEPS}).x
    return max(start, refined, key=lambda weights: residual.gain(signs(basis @ weights)))


def smoothed_loss(weights: Doubles, basis: Doubles, residual: Residual) -> tuple[float, Doubles]:
    """Return -b^T R b / l with b = 2 / (1 + exp(-basis a)) - 1, the smooth stand-in for the signs, and its gradient."""
    smooth = np.tanh(basis @ weights / 2)
    pulled = residual.times(smooth) / len(basis)
    return -float(smooth @ pulled), -((pulled * (1 - smooth**2)) @ basis)


def signs(scores: Doubles) -> Doubles:
    return np.where(scores >= 0, 1.0, -1.0)


def _orthonormal(features: Floats) -> tuple[Doubles, Doubles]:
    """Return an orthonormal basis of the features' columns and the matrix that gives it: basis = features @ back."""
    left, values, right = svd(features.astype(np.float64), full_matrices=False)
    kept = values > _RANK * values[0]
    if not kept.any():
        raise InputError("the labelled rows cannot be told apart by the kernel. Are they all equal?")
    return left[:, kept], right[kept].T / values[kept]


_SWEEPS = 10  # over all bits in one B-step, unless none changes before
_JITTER = 1e-6  # of the mean diagonal: anchors that lie close together make kernel features nearly dependent


@dataclass(eq=False, repr=False)
class SDH(HashLearner):
    """Supervised discrete hashing: `iterations` rounds of the three steps over `anchors` rows (at most all).

    Any number of bits can be learned. Takes 4 n anchors bytes of memory. The kernel's `bandwidth` is measured if None.
    """

    supervised = True

    bits: int
    anchors: int = 1000
    iterations: int = 5
    nu: float = 1e-5
    lam: float = 1.0
    bandwidth: float | None = None
    random_state: int | np.random.Generator | None = 0

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
    for span in blocks(len(features), _KERNEL_ROWS):
        rows = features[span].astype(np.float64)
        gram += rows.T @ rows
    gram.flat[:: len(gram) + 1] += _JITTER * gram.diagonal().mean()
    lower: tuple[Doubles, bool] = cho_factor(gram, overwrite_a=True)
    return lower


def _projection(features: Floats, factor: tuple[Doubles, bool], codes: Doubles) -> Floats:
    return np.asarray(cho_solve(factor, (features.T @ codes.astype(np.float32)).astype(np.float64)), dtype=np.float32)


Activation = Literal["relu", "tanh"]  # between the layers: max(0, x) or tanh(x)
_ROWS_LAYERS = 4096  # rows whose hidden values are in memory at once


@dataclass(frozen=True, eq=False)
class LayeredHash(HashFunction):
    """sign of a multilayer perceptron: (x - mean) / scale, then x @ weight + bias layer by layer.

    `weights[k]` is (inputs, outputs) of layer k; the last layer gives one score per bit and has no activation.
    """

    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    activation: Activation = "relu"
    name: ClassVar[str] = "layered"

    def __post_init__(self) -> None:
        if self.activation not in get_args(Activation):
            raise UnknownNameError("activation", self.activation, get_args(Activation))
        self._check_numbers()
        if not self.weights or len(self.weights) != len(self.biases) or not (self.scale > 0).all():
            raise InputError("a layered hash function needs layers of weights and biases and a positive scale.")
        width = self.mean.shape
        for weight, bias in zip(self.weights, self.biases, strict=True):
            if weight.ndim != 2 or weight.shape[:1] != width or weight.shape[1:] != bias.shape:
                raise InputError(f"weights {weight.shape} and bias {bias.shape} do not fit {width} values.")
            width = bias.shape
        if self.scale.shape != self.mean.shape:
            raise InputError(f"mean {self.mean.shape} and scale {self.scale.shape} do not fit each other.")

    @property
    def bits(self) -> int:
        return len(self.biases[-1])

    @property
    def dimension(self) -> int:
        return len(self.mean)

    def arrays(self) -> dict[str, NDArray[Any]]:
        layers = {f"weight{k}": weight for k, weight in enumerate(self.weights)}
        layers |= {f"bias{k}": bias for k, bias in enumerate(self.biases)}
        return {"mean": self.mean, "scale": self.scale, "activation": np.array(self.activation), **layers}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        depth = sum(name.startswith("weight") for name in arrays)
        weights = tuple(arrays[f"weight{k}"] for k in range(depth))
        biases = tuple(arrays[f"bias{k}"] for k in range(depth))
        activation: Any = str(arrays["activation"])
        return cls(arrays["mean"], arrays["scale"], weights, biases, activation)

    def _scores(self, X: Floats) -> Floats:
        scores = np.empty((len(X), self.bits), dtype=np.float32)
        for span in blocks(len(X), _ROWS_LAYERS):
            values = (X[span] - self.mean) / self.scale
            for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
                values = values @ weight + bias
                np.tanh(values, out=values) if self.activation == "tanh" else np.maximum(values, 0, out=values)
            scores[span] = values @ self.weights[-1] + self.biases[-1]
        return scores


_ROWS_NETWORK = 256  # inputs that go through the module at once


def with_head(module: Module, example: Tensor, bits: int) -> Module:
    """Return a copy of the module whose output is (batch, bits): by a linear head, unless it has that width already."""
    torch = load_torch()
    module = deepcopy(module).to(example.device).eval()
    try:
        with torch.no_grad():
            output = module(example)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the network cannot take a batch of shape {tuple(example.shape)}: {reason}") from error
    if output.ndim != 2 or len(output) != len(example):
        raise InputError(
            f"the network must turn a batch into rows of features, ({len(example)}, d); got {tuple(output.shape)}. "
            "End it with a pooling or Flatten."
        )
    width = output.shape[1]
    head = torch.nn.Identity() if width == bits else torch.nn.Linear(width, bits)
    return torch.nn.Sequential(module, head).to(example.device)


@dataclass(frozen=True, eq=False)
class NetworkHash(HashFunction):
    """sign(module(x)) for inputs of one `shape`, images or anything else; `width` is that of its output."""

    module: Module
    shape: tuple[int, ...]
    width: int
    device: str = "cpu"
    name: ClassVar[str] = "network"

    @property
    def bits(self) -> int:
        return self.width

    @property
    def dimension(self) -> int:
        return prod(self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        sizes = {"shape": np.array(self.shape, dtype=np.int64), "bits": np.array(self.width, dtype=np.int64)}
        weights = {f"module.{key}": value.cpu().numpy() for key, value in self.module.state_dict().items()}
        return {**sizes, **weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Refuse: the arrays are the weights of a module that only the caller can build."""
        raise DataError("these are the weights of a network. Give load_network_hash the module they belong to.")

    @classmethod
    def with_module(cls, arrays: Mapping[str, NDArray[Any]], module: Module, device: str = "cpu") -> Self:
        torch = load_torch()
        shape, bits = tuple(int(side) for side in arrays["shape"]), int(arrays["bits"])
        with torch.random.fork_rng(devices=[]):  # the head's first weights are drawn, then replaced
            whole = with_head(module, to_batch(np.zeros((2, *shape), dtype=np.float32), "cpu"), bits)
        weights = {key.removeprefix("module."): value for key, value in arrays.items() if key.startswith("module.")}
        try:
            whole.load_state_dict({key: torch.tensor(value) for key, value in weights.items()}, strict=True)
        except RuntimeError as error:
            raise InputError(f"the weights do not fit this module: {' '.join(str(error).split())}") from None
        return cls(whole.eval().to(device), shape, bits, device)

    def scores(self, X: ArrayLike) -> Floats:
        rows = check_inputs(X, self.shape)
        with load_torch().inference_mode():
            parts = [
                self.module(to_batch(rows[span], self.device)).cpu().numpy()
                for span in blocks(len(rows), _ROWS_NETWORK)
            ]
        return np.concatenate(parts).astype(np.float32, copy=False)

    def __call__(self, X: ArrayLike) -> Codes:
        return pack(self.scores(X) >= 0)

    def _scores(self, X: Floats) -> Floats:
        return self.scores(X)


def load_network_hash(path: AnyPath, module: Module, device: str = "cpu") -> NetworkHash:
    """Read the function of a trained network: its weights go into a copy of `module`, a torch module built like it."""
    document, arrays = read_arrays(path, FILE_KIND)
    if document != {"function": NetworkHash.name}:
        raise InputError(f"{path} holds a function that needs no module. Read it with load_function.")
    try:
        return NetworkHash.with_module(arrays, module, device)
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None
