"""Private samples from plain updates of linear classifiers, and one round of every kind of update that leaks.

The private sample behind a plain step of a linear classifier, recovered exactly.

Supplement of Yonetani et al. (ICCV 2017), section 2. Whoever sees the weights before and after a step and knows
learning rate and penalty has Theta, the gradient of the loss (`loss_gradient`), and solves it for the sample z:

- *hinge loss*: z = (Theta, -1) or (-Theta, 1), unless Theta = 0: then the sample was classified well and stays unknown;
- *logistic loss*: Theta = -X / (1 + exp(w.X)) with X = y x. X is -c Theta for some c > 1, which leaves one equation in
  one unknown, c = 1 + exp(-c a) with a = w.Theta. Newton's method solves it; z = (X, 1) or (-X, -1);
- *an average over samples of one class*: -y Theta is proportional to the mean of the samples that were not classified
  well (hinge), or to the mean weighted by how wrongly each was classified (logistic), Eqs. 5 and 6.

What the supplement does not say:

- *X need not be unique.* f(c) = c - 1 - exp(-a c) is concave. For a >= 0 (the sample was misclassified) it has one
  root; for a < 0 it has two, or none when a < -W(1/e) = -0.278...: a small gradient comes from a sample that is short
  or from one that is far on the right side. Both are returned.
- *A bias gives everything away.* Its feature is one, so the sample is the ratio Theta_w / Theta_b whatever the loss,
  and the sign of its change is the label. Of a hinge step it also is the learning rate; of a logistic step that follows
  from gamma = |change of b| / P(wrong | x). Only the penalty is left to be guessed, and `guesses` does.

One round of every kind of update that leaks when it is sent in the clear, and the attack that makes it leak.

Each `Case` holds what simulated owners send, made from real samples as the owners would make it, and what an attacker
who has one owner's update recovers from it. `schemes` plays the rounds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.leakage.networks import recover_layer_input
from blindsight.audit.leakage.recovery import (
    Candidate,
    Loss,
    Penalty,
    Recovery,
    Vector,
    as_penalty,
    gradient_step,
    loss_gradient,
    weights_of,
)
from blindsight.errors import InputError
from blindsight.learn.sparsity import top_entries
from blindsight.rng import science
from blindsight.selective.codec import ParameterLayout

_NEWTON_STEPS = 100
_LARGEST_FACTOR = 1e12  # a sample that is wrong with probability 1e-12 makes no step worth the name
_NO_STEP = "the step shows no gradient of a loss: every sample was classified well, or the settings are wrong."


def recover_from_hinge_step(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    bias: bool = False,
) -> Recovery:
    """Return the sample of a step of SGD with hinge loss: two candidates, or the one that a `bias` leaves.

    `learning_rate` may be left out if there is a bias, the last weight.

    >>> found = recover_from_hinge_step([0.0, 0.0], [1.5, 2.0], learning_rate=0.5)
    >>> [(candidate.sample.tolist(), candidate.label) for candidate in found.candidates]
    [([-3.0, -4.0], -1), ([3.0, 4.0], 1)]
    """
    old, new = weights_of(before, after)
    rate = _bias_change(old, new, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    return _both_signs(theta, -1, rate, penalty)


def recover_from_logistic_step(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    bias: bool = False,
) -> Recovery:
    """Return the sample of a step of SGD with logistic loss: two or four candidates, or the one that a `bias` leaves.

    `learning_rate` may be left out if there is a bias, the last weight.
    """
    old, new = weights_of(before, after)
    rate = _logistic_rate(old, new, penalty, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    found: list[Candidate] = []
    for factor in logistic_factors(float(old @ theta)):
        found += _both_signs(-factor * theta, 1, rate, penalty).candidates
    return Recovery(tuple(found), "" if found else "no sample gives this gradient: the settings are wrong.")


def recover_mean_of_errors(
    before: ArrayLike,
    after: ArrayLike,
    learning_rate: float | None = None,
    penalty: float | Penalty = 0.0,
    *,
    label: int | None = None,
    bias: bool = False,
) -> Recovery:
    """Return the mean of the samples not classified well, from a step on the mean loss of samples of one class.

    Without a bias it is known up to its length, and up to its sign unless `label` tells the class; with one, exactly
    (hinge loss); left out, the learning rate is then taken for the one at which all samples were errors.
    """
    old, new = weights_of(before, after)
    rate = _bias_change(old, new, bias) if learning_rate is None else learning_rate
    if rate == 0:
        return Recovery((), _NO_STEP)
    theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=bias)
    if bias:
        return _from_bias(theta, rate, penalty)
    if _is_nothing(theta, old):
        return Recovery((), _NO_STEP)
    both = _both_signs(theta, -1, rate, penalty).candidates
    return Recovery(tuple(candidate for candidate in both if label in (None, candidate.label)))


def logistic_factors(alignment: float) -> tuple[float, ...]:
    """Return every c with c = 1 + exp(-c a), ascending, where a = w.Theta is the `alignment`: one, two or none.

    >>> logistic_factors(0.0)
    (2.0,)
    >>> len(logistic_factors(-0.2)), len(logistic_factors(-0.3))
    (2, 0)
    """
    a = float(alignment)
    smaller = _newton(a, 1.0)
    if a >= 0 or _excess(a, _LARGEST_FACTOR) > 0:
        return (smaller,)
    top = math.log(-a) / a  # where f is largest
    if _excess(a, top) < 0:
        return ()
    start = 2 * top
    while _excess(a, start) > 0:
        start *= 2
    return (smaller, _newton(a, start))


def _excess(a: float, c: float) -> float:
    """Return f(c) = c - 1 - exp(-a c)."""
    return c - 1 - math.exp(min(-a * c, 700))


def _newton(a: float, c: float) -> float:
    """Solve f(c) = 0 from outside the roots, where f < 0: f is concave, so no step passes one."""
    for _ in range(_NEWTON_STEPS):
        slope = 1 + a * math.exp(min(-a * c, 700))
        step = _excess(a, c) / slope if slope else 0.0
        c -= step
        if abs(step) <= 1e-15 * abs(c):
            break
    return c


def _logistic_rate(old: NDArray[np.float64], new: NDArray[np.float64], penalty: float | Penalty, bias: bool) -> float:
    """Return the smallest gamma with gamma = |change of b| / P(wrong | x), where x depends on gamma by the penalty.

    0 if there is none.
    """
    change = _bias_change(old, new, bias)
    if change == 0:
        return 0.0
    rate = change
    for _ in range(_NEWTON_STEPS):  # from below: the right side grows with gamma
        theta = loss_gradient(old, new, learning_rate=rate, penalty=penalty, bias=True)
        label = -math.copysign(1, theta[-1])
        margin = label * (float(old[:-1] @ theta[:-1]) / float(theta[-1]) + float(old[-1]))
        last, rate = rate, change * (1 + math.exp(min(margin, 700)))
        if abs(rate - last) <= 1e-14 * rate:
            return rate
    return 0.0


def _from_bias(theta: NDArray[np.float64], rate: float, penalty: float | Penalty) -> Recovery:
    """Return the ratio of the weights' gradient to the bias's."""
    if theta[-1] == 0:
        return Recovery((), _NO_STEP)
    label = -1 if theta[-1] > 0 else 1
    return Recovery((Candidate(theta[:-1] / theta[-1], label, rate, as_penalty(penalty)),))


def _both_signs(sample: NDArray[np.float64], label: int, rate: float, penalty: float | Penalty) -> Recovery:
    kind = as_penalty(penalty)
    return Recovery((Candidate(sample, label, rate, kind), Candidate(-sample, -label, rate, kind)))


def _bias_change(old: NDArray[np.float64], new: NDArray[np.float64], bias: bool) -> float:
    """Return by how much the bias moved, which tells the learning rate."""
    if not bias:
        raise InputError("without a bias the learning rate must be given. Try `recover_with_guesses`.")
    return abs(float(new[-1] - old[-1]))


def _is_nothing(theta: NDArray[np.float64], old: NDArray[np.float64]) -> bool:
    """Whether what is left of a step is no more than rounding."""
    return bool(np.linalg.norm(theta) <= 1e-9 * max(float(np.linalg.norm(old)), 1e-300))


OWNERS = ("ann", "bob", "cem")
LEARNING_RATE = 0.1
PENALTY = 1e-4
KEPT = 0.1  # of a sparse update
_SAMPLES = 6  # of an owner who sends an average
_HIDDEN = 4

Attack = Callable[[Vector], Recovery]


@dataclass(frozen=True, eq=False)
class Case:
    """What each owner sends, what it was made from, and the attack that takes an update back to that."""

    name: str
    updates: Mapping[str, Vector]
    samples: Mapping[str, Vector]
    attack: Attack
    kept: float = 1.0
    """Which share of their update's entries owners send."""

    @property
    def victim(self) -> str:
        """The first owner, whose update is attacked."""
        return next(iter(self.updates))

    @property
    def sample(self) -> Vector:
        """The victim's sample."""
        return self.samples[self.victim]

    @property
    def dimension(self) -> int:
        """How many numbers an update has."""
        return self.updates[self.victim].size


def leaky_cases(
    samples: ArrayLike, *, random_state: int | np.random.Generator | None, owners: tuple[str, ...] = OWNERS
) -> tuple[Case, ...]:
    """Return the cases on private samples, one per row: hinge, logistic and sparse hinge steps, average, network."""
    rows = np.asarray(samples, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < _SAMPLES * len(owners):
        raise InputError(f"the cases take {_SAMPLES * len(owners)} samples or more, one per row; got {rows.shape}.")
    generator = science(random_state)
    private = rows[generator.permutation(len(rows))[: _SAMPLES * len(owners)]].reshape(len(owners), _SAMPLES, -1)
    # Margins of these weights stay well below one, as those of a classifier that has yet to learn something.
    size = private.shape[2]
    weights = generator.normal(size=size) * 0.3 / np.sqrt(size) / np.mean(np.linalg.norm(rows, axis=1))
    labels = generator.choice([-1, 1], size=len(owners))
    return (
        _step_case("hinge", owners, private, labels, weights, "hinge"),
        _step_case("logistic", owners, private, labels, weights, "logistic"),
        _sparse(_step_case("sparse hinge", owners, private, labels, weights, "hinge")),
        _average_case(owners, private, weights),
        _network_case(owners, private, labels, generator),
    )


def _step_case(
    name: str,
    owners: tuple[str, ...],
    private: NDArray[np.float64],
    labels: NDArray[np.int64],
    weights: Vector,
    loss: Loss,
) -> Case:
    """Every owner makes one step on one sample."""
    updates = {}
    for owner, samples, label in zip(owners, private, labels, strict=True):
        stepped = gradient_step(weights, samples[:1], [label], loss=loss, learning_rate=LEARNING_RATE, penalty=PENALTY)
        updates[owner] = stepped - weights
    recover = recover_from_hinge_step if loss == "hinge" else recover_from_logistic_step

    def attack(update: Vector) -> Recovery:
        return recover(weights, weights + update, LEARNING_RATE, PENALTY)

    return Case(name, updates, dict(zip(owners, private[:, 0], strict=True)), attack)


def _sparse(case: Case) -> Case:
    """Every owner sends the largest entries only."""
    sparse = {owner: np.where(top_entries(update, KEPT), update, 0.0) for owner, update in case.updates.items()}
    return Case(case.name, sparse, case.samples, case.attack, KEPT)


def _average_case(owners: tuple[str, ...], private: NDArray[np.float64], weights: Vector) -> Case:
    """Every owner makes one step on the mean loss of samples of the negative class (Eq. 5)."""
    updates, means = {}, {}
    for owner, samples in zip(owners, private, strict=True):
        stepped = gradient_step(
            weights, samples, [-1] * len(samples), loss="hinge", learning_rate=LEARNING_RATE, penalty=PENALTY
        )
        updates[owner] = stepped - weights
        means[owner] = samples[-(samples @ weights) <= 1].mean(axis=0)

    def attack(update: Vector) -> Recovery:
        return recover_mean_of_errors(weights, weights + update, LEARNING_RATE, PENALTY, label=-1)

    return Case("average of one class", updates, means, attack)


def _network_case(
    owners: tuple[str, ...], private: NDArray[np.float64], labels: NDArray[np.int64], generator: np.random.Generator
) -> Case:
    """Every owner makes one step of SGD on a network with one hidden layer, from one sample."""
    size = private.shape[2]
    layout = ParameterLayout.of(
        [
            ("hidden.weight", (_HIDDEN, size)),
            ("hidden.bias", (_HIDDEN,)),
            ("last.weight", (1, _HIDDEN)),
            ("last.bias", (1,)),
        ]
    )
    first, last = generator.normal(size=(_HIDDEN, size)) / np.sqrt(size), generator.normal(size=_HIDDEN)
    updates = {
        owner: -LEARNING_RATE * _network_gradient(first, last, samples[0], int(label))
        for owner, samples, label in zip(owners, private, labels, strict=True)
    }

    def attack(update: Vector) -> Recovery:
        found = recover_layer_input(update, layout)
        return Recovery((Candidate(found.sample, None, LEARNING_RATE),))

    return Case("network, batch of one", updates, dict(zip(owners, private[:, 0], strict=True)), attack)


def _network_gradient(first: NDArray[np.float64], last: Vector, sample: Vector, label: int) -> Vector:
    """Return the gradient of log(1 + exp(-y f(x))), f(x) = last.tanh(first x), biases zero, in the layout's order."""
    hidden = np.tanh(first @ sample)
    slope = -label / (1 + np.exp(label * (last @ hidden)))
    back = slope * last * (1 - hidden**2)
    return np.concatenate([np.outer(back, sample).ravel(), back, slope * hidden, [slope]])
