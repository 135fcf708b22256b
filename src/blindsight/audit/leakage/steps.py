"""One step of gradient descent on a linear classifier, forwards as its owner makes it and backwards as an attacker.

Forwards (Yonetani et al. 2017, supplement, Eqs. 1-3), for samples x_i with labels y_i = +-1 and weights w:

    w' = prox(w - gamma (1/K sum_i grad loss(y_i w.x_i) + lambda (1 - rho) w)),

where prox takes gamma lambda rho from the size of every weight, but not past zero. With K = 1 that is a step of
scikit-learn's SGDClassifier to the last bit but rounding. Backwards (Eq. 4): whoever knows w, w', gamma and lambda
knows the gradient of the loss, Theta; exactly, except where the lasso set a weight to zero.

| supplement | here |
| --- | --- |
| w-bar_t, w_t^(n) | `before`, `after` |
| gamma_t | `learning_rate` |
| lambda R | `Penalty` |
| Theta | `loss_gradient` |

With `bias` the last weight belongs to a constant feature of one and is not penalised; the supplement has no bias.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, UnknownNameError

Loss = Literal["hinge", "logistic"]


@dataclass(frozen=True)
class Penalty:
    """lambda (rho |w|_1 + (1 - rho) |w|^2 / 2), with lambda = `strength` and rho = `l1_ratio`."""

    strength: float = 0.0
    l1_ratio: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no penalty."""
        if not self.strength >= 0 or not 0 <= self.l1_ratio <= 1:
            raise InputError(
                f"a penalty has a strength >= 0 and an l1_ratio in [0, 1]; got {self.strength} and {self.l1_ratio}."
            )


NO_PENALTY = Penalty()


def gradient_step(
    before: ArrayLike,
    samples: ArrayLike,
    labels: ArrayLike,
    *,
    loss: Loss,
    learning_rate: float,
    penalty: float | Penalty = 0.0,
    bias: bool = False,
) -> NDArray[np.float64]:
    """Return the weights after one step on the mean loss of these samples; one sample makes it a step of SGD.

    >>> gradient_step([0.0, 0.0], [[3.0, 4.0]], [1], loss="hinge", learning_rate=0.5).tolist()
    [1.5, 2.0]
    """
    if loss not in get_args(Loss):
        raise UnknownNameError("loss", loss, get_args(Loss))
    weights, rows = np.asarray(before, dtype=np.float64), np.atleast_2d(np.asarray(samples, dtype=np.float64))
    if bias:
        rows = np.hstack([rows, np.ones((len(rows), 1))])
    signs = np.asarray(labels, dtype=np.float64)
    if weights.shape != rows.shape[1:] or signs.shape != rows.shape[:1] or not np.isin(signs, (-1, 1)).all():
        raise InputError(
            f"a step needs one weight per feature and a label of -1 or 1 per sample; got {weights.shape} weights, "
            f"{signs.shape} labels and samples of shape {rows.shape}."
        )
    margins = signs * (rows @ weights)
    slopes = (margins <= 1).astype(np.float64) if loss == "hinge" else 1 / (1 + np.exp(np.clip(margins, -500, 500)))
    gradient = -(slopes * signs) @ rows / len(rows)
    ridge, lasso = _strengths(as_penalty(penalty), weights.size, bias)
    moved = weights - learning_rate * (gradient + ridge * weights)
    shrunk: NDArray[np.float64] = np.sign(moved) * np.maximum(np.abs(moved) - learning_rate * lasso, 0)
    return shrunk


def loss_gradient(
    before: ArrayLike,
    after: ArrayLike,
    *,
    learning_rate: float,
    penalty: float | Penalty = 0.0,
    bias: bool = False,
) -> NDArray[np.float64]:
    """Return Theta (Eq. 4), the gradient of the loss that led from `before` to `after`.

    >>> loss_gradient([0.0, 0.0], [1.5, 2.0], learning_rate=0.5).tolist()
    [-3.0, -4.0]
    """
    old, new = weights_of(before, after)
    if not learning_rate > 0:
        raise InputError(f"a learning rate is above 0; got {learning_rate}.")
    ridge, lasso = _strengths(as_penalty(penalty), old.size, bias)
    moved = new + learning_rate * lasso * np.sign(new)
    theta: NDArray[np.float64] = (old - moved) / learning_rate - ridge * old
    return theta


def weights_of(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both weight vectors, checked."""
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if old.ndim != 1 or old.shape != new.shape or not old.size:
        raise InputError(f"a step leads from one vector of weights to another; got shapes {old.shape} and {new.shape}.")
    if not (np.isfinite(old).all() and np.isfinite(new).all()):
        raise InputError("weights must be finite numbers.")
    return old, new


def as_penalty(penalty: float | Penalty) -> Penalty:
    """Return a penalty; a number is the strength of the square penalty."""
    return penalty if isinstance(penalty, Penalty) else Penalty(float(penalty))


def _strengths(penalty: Penalty, size: int, bias: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the square and the absolute penalty of each weight."""
    penalised = np.ones(size)
    if bias:
        penalised[-1] = 0
    strength = penalty.strength * penalised
    return (1 - penalty.l1_ratio) * strength, penalty.l1_ratio * strength
