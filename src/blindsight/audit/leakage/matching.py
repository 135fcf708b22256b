"""Pictures from the gradient of a small batch: dummies are changed until their gradient is the one that was sent.

Zhu, Liu & Han, "Deep leakage from gradients" (NeurIPS 2019), with their squared distance of gradients or with the
cosine of Geiping et al., "Inverting gradients" (NeurIPS 2020), which needs no learning rate but is more often caught in
the corners of ReLU networks; minimised by L-BFGS from several random starts, the best match is kept. Labels are read
off the gradient of the last bias: for the mean cross-entropy it is mean(p - onehot(y)), negative for classes that are
there (Zhao, Mopuri & Bilen, iDLG, 2020).

There is no guarantee: whether it finds the pictures depends on the network. Few parameters per picture, many pictures,
flat activations and dropped entries all help the victim. So a failure is not evidence of privacy; a success is of leak.
"""

import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from blindsight.audit.leakage.recovery import Vector, cosine
from blindsight.errors import InputError, UnknownNameError
from blindsight.extras import require
from blindsight.progress import Progress, silent
from blindsight.rng import science

Objective = Literal["cosine", "squares"]
MAX_BATCH = 8


@dataclass(frozen=True, eq=False)
class MatchedBatch:
    """The pictures whose gradient matches best, in no particular order, and how well: 0 is perfect."""

    pictures: NDArray[np.float64]
    labels: tuple[int, ...]
    mismatch: float

    def __repr__(self) -> str:
        return f"<MatchedBatch of {len(self.pictures)}, mismatch {self.mismatch:.3g}, hidden>"

    def cosines(self, truth: ArrayLike) -> Vector:
        """Return |cosine| of each true picture with its counterpart, matched one to one for the largest sum."""
        rows = np.asarray(truth, dtype=np.float64).reshape(len(self.pictures), -1)
        table = np.array([[abs(cosine(row, guess)) for guess in self.pictures] for row in rows])
        matched: Vector = table[linear_sum_assignment(-table)]
        return matched


def match_gradient(
    model: Any,
    gradient: ArrayLike,
    *,
    shape: tuple[int, ...],
    batch: int,
    labels: tuple[int, ...] | None = None,
    uploaded: ArrayLike | None = None,
    objective: Objective = "squares",
    iterations: int = 100,
    restarts: int = 1,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> MatchedBatch:
    """Return pictures of this `shape` whose mean cross-entropy under a torch `model` has this gradient.

    `model` must have the parameters at which the gradient was taken; it is not changed. `gradient` is in the order of
    its trainable parameters; with the cosine, minus an update is as good. Only the entries marked in `uploaded` are
    compared, all by default. `labels` are read off the gradient if not given.
    """
    if objective not in get_args(Objective):
        raise UnknownNameError("objective", objective, get_args(Objective))
    if not 1 <= batch <= MAX_BATCH or iterations < 1 or restarts < 1:
        raise InputError(
            f"matching takes a batch of 1 to {MAX_BATCH}, an iteration and a start or more; got a batch of {batch}, "
            f"{iterations} iterations and {restarts} starts."
        )
    matcher = _Matcher(model, gradient, uploaded, objective)
    classes = labels if labels is not None else labels_from_gradient(matcher.last_bias(), batch)
    generator, best = science(random_state), None
    for attempt in range(restarts):
        start = generator.normal(size=(batch, *shape))
        found = matcher.minimise(start, classes, iterations)
        if best is None or found.mismatch < best.mismatch:
            best = found
        progress("matching gradients", attempt + 1, restarts)
    assert best is not None
    return best


def labels_from_gradient(bias_gradient: ArrayLike, batch: int) -> tuple[int, ...]:
    """Return the most likely labels of a batch: exact for a batch of one, and while the network knows little.

    One sample of a class takes 1/batch from the class's entry, to which all samples add their mean probability. Of
    several samples the gradient must have its true length; for one its direction is enough.

    >>> labels_from_gradient([0.3, -0.7, 0.4], batch=1)
    (1,)
    """
    entries = np.asarray(bias_gradient, dtype=np.float64)
    missing = batch * (1 / entries.size - entries)
    found = []
    for _ in range(batch):
        found.append(int(np.argmax(missing)))
        missing[found[-1]] -= 1
    return tuple(sorted(found))


class _Matcher:
    """A copy of the model in double precision, and the gradient to be matched."""

    def __init__(self, model: Any, gradient: ArrayLike, uploaded: ArrayLike | None, objective: Objective) -> None:
        self._torch = require("torch", extra="deep", purpose="matching gradients")
        self._model = copy.deepcopy(model).double()
        self._parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        target = np.asarray(gradient, dtype=np.float64)
        size = sum(parameter.numel() for parameter in self._parameters)
        marked = np.ones(size, dtype=np.bool_) if uploaded is None else np.asarray(uploaded, dtype=np.bool_)
        if target.shape != (size,) or marked.shape != (size,):
            raise InputError(f"the model has {size} trainable numbers; got a gradient of shape {target.shape}.")
        if not target[marked].any():
            raise InputError("the gradient is zero wherever it was uploaded: there is nothing to match.")
        self._whole, self._objective = target, objective
        self._marked = self._torch.from_numpy(np.flatnonzero(marked))
        self._target = self._torch.from_numpy(target[marked])

    def last_bias(self) -> Vector:
        """Return the gradient of the last bias, which must be the last parameter."""
        if self._parameters[-1].dim() != 1:
            raise InputError("labels are read off the bias of the last layer, and it has none. Give the labels.")
        return self._whole[-self._parameters[-1].numel() :]

    def minimise(self, start: NDArray[np.float64], labels: tuple[int, ...], iterations: int) -> MatchedBatch:
        """Return the pictures that L-BFGS reaches from `start`."""
        torch = self._torch
        pictures, classes = torch.from_numpy(start).requires_grad_(True), torch.tensor(labels)
        optimiser = torch.optim.LBFGS(
            [pictures], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-14
        )

        def closure() -> Any:
            optimiser.zero_grad()
            mismatch = self._mismatch(pictures, classes)
            mismatch.backward(inputs=[pictures])
            return mismatch

        optimiser.step(closure)
        final = float(self._mismatch(pictures, classes).detach())
        return MatchedBatch(pictures.detach().numpy(), labels, final)

    def _mismatch(self, pictures: Any, classes: Any) -> Any:
        torch = self._torch
        loss = torch.nn.functional.cross_entropy(self._model(pictures), classes)
        parts = torch.autograd.grad(loss, self._parameters, create_graph=True)
        gradient = torch.cat([part.flatten() for part in parts])[self._marked]
        if self._objective == "squares":
            return torch.sum((gradient - self._target) ** 2) / torch.sum(self._target**2)
        return 1 - torch.nn.functional.cosine_similarity(gradient, self._target, dim=0)
