"""How the deep learners look: a network trained by mini-batches on pairs of labelled rows, then frozen.

On features (n, d) the network is a perceptron and `function_` a `LayeredHash` of plain arrays, which needs no torch.
With `network=` it is a copy of any torch module, on inputs of any shape, and `function_` a `NetworkHash`: save it with
`save_function`, load it with `load_network_hash` and a module built anew. The caller's module is never changed.

The same `random_state` gives the same codes on the same machine; torch's global generator is left as it was.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, check_inputs, seeded, to_batch
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.search.codes import check_bits
from blindsight.search.deep.perceptron import frozen, perceptron, standardiser
from blindsight.search.deep.training import Rows, Training
from blindsight.search.function import HashFunction
from blindsight.search.learner import Classes, HashLearner
from blindsight.search.network import NetworkHash, with_head


class DeepHashLearner(HashLearner):
    """The base of the deep learners; a subclass says how its network is trained.

    `hidden` are the widths of the perceptron's hidden layers. `alpha` is the constant of the loss; None stands for the
    published one. Any number of bits can be learned, whatever the dimension and the number of rows. `progress` is
    called after every epoch.
    """

    supervised = True

    def __init__(
        self,
        bits: int,
        hidden: tuple[int, ...] = (512,),
        epochs: int = 30,
        batch: int = 128,
        learning_rate: float = 1e-3,
        alpha: float | None = None,
        random_state: int | np.random.Generator | None = 0,
        network: Module | None = None,
        device: str = "cpu",
        progress: Progress = silent,
    ) -> None:
        self.bits = bits
        self.hidden = hidden
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.random_state = random_state
        self.network = network
        self.device = device
        self.progress = progress

    @abstractmethod
    def _train(self, training: Training) -> None:
        """Train the network of `training` in place."""

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn from features (n, d), or from whatever (n, ...) the given network takes, and one label per row."""
        if self.network is None:
            super().fit(X, y)
            return self
        check_bits(self.bits)
        rows = check_inputs(X)
        if len(rows) < 2:
            raise InputError(f"a hash function is learned from at least 2 rows; got {len(rows)}.")
        self.function_ = self._learn(rows, self._check_labels(y, len(rows)))
        self.n_features_in_ = self.function_.dimension
        return self

    def _learn(self, X: NDArray[Any], y: Classes | None) -> HashFunction:
        assert y is not None
        if min(self.epochs, self.batch, *self.hidden) < 1 or not self.learning_rate > 0:
            raise InputError(
                "epochs, batch and hidden widths must be at least 1 and learning_rate positive; got "
                f"{self.epochs}, {self.batch}, {self.hidden} and {self.learning_rate}."
            )
        generator = science(self.random_state)
        with seeded(generator, self.device):
            if self.network is not None:
                module = with_head(self.network, to_batch(X[:2], self.device), self.bits)
                self._train(Training(module, X, y, generator, self.learning_rate, self.device))
                return NetworkHash(module.eval(), X.shape[1:], self.bits, self.device)
            mean, scale = standardiser(X)
            layers = perceptron((X.shape[1], *self.hidden, self.bits), self.device)
            self._train(Training(layers, (X - mean) / scale, y, generator, self.learning_rate, self.device))
            return frozen(layers, mean, scale)

    def _batches(self, training: Training) -> Iterator[Rows]:
        """Yield all rows in batches, once for every epoch."""
        training.steps = self.epochs * math.ceil(len(training.inputs) / self.batch)
        for epoch in range(self.epochs):
            yield from training.batches(self.batch)
            self.progress("training the network", epoch + 1, self.epochs)
