"""One round of every kind of update that leaks when it is sent in the clear, and the attack that makes it leak.

Each `Case` holds what simulated owners send, made from real samples as the owners would make it, and what an attacker
who has one owner's update recovers from it. `schemes` plays the rounds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.leakage.linear import recover_from_hinge_step, recover_from_logistic_step, recover_mean_of_errors
from blindsight.audit.leakage.network import recover_layer_input
from blindsight.audit.leakage.recovery import Candidate, Recovery, Vector
from blindsight.audit.leakage.steps import Loss, gradient_step
from blindsight.errors import InputError
from blindsight.learn.sparsity import top_entries
from blindsight.rng import science
from blindsight.selective.codec import ParameterLayout

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
