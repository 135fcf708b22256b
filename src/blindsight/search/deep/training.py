"""The mechanics of training, the same for every loss: batches, the bank, steps, and randomness that stays inside.

The papers descend by plain stochastic gradients; here Adam does, with a cosine schedule. DPSH and DSH compare a batch
with the outputs of all n rows, kept in a *bank* as they were when last computed; here with at most `_COMPARED` of them,
drawn anew for every batch, so that time and memory stay linear in n: the mean over these pairs is an unbiased estimate
of the mean over all.

A linear head starts so that every output has mean 0 and variance 1: each bit halves the rows. Near zero, where small
random weights would start, the losses are flat, and DPSH and DSH can stay there for many epochs.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch, to_batch
from blindsight.search.codes import blocks
from blindsight.search.learner import Classes

Rows = NDArray[np.int64]
"""Numbers of training rows."""

_COMPARED = 2048  # rows of the bank
_ROWS = 256  # rows that go through the network at once where no gradient is needed
_DECAY = 1e-4  # of the weights
_STILL = 1e-6  # standard deviation of an output below which it is taken for constant


def balance(layers: Module, inputs: Tensor) -> None:
    """Scale the last of `layers`, if it is linear, so that its outputs have mean 0 and variance 1 over these inputs."""
    torch, head = load_torch(), layers[-1]
    if not isinstance(head, torch.nn.Linear):
        return
    with torch.no_grad():
        outputs = layers.eval()(inputs)
        spread = outputs.std(0, correction=0)
        spread = spread.where(spread > _STILL, 1)  # outputs that hardly vary are left as they are
        head.weight.div_(spread[:, None])
        head.bias.sub_(outputs.mean(0)).div_(spread)


class Training:
    """A module in training on labelled inputs: layers in sequence, the last of which gives the outputs."""

    def __init__(
        self,
        module: Module,
        inputs: NDArray[Any],
        classes: Classes,
        generator: np.random.Generator,
        learning_rate: float,
        device: str,
    ) -> None:
        torch = load_torch()
        some = generator.choice(len(inputs), size=min(_ROWS, len(inputs)), replace=False)
        balance(module, to_batch(inputs[some], device))
        self.module = module.train()
        self.inputs = inputs
        self.classes = torch.tensor(classes, device=device)
        self.generator = generator
        self.learning_rate = learning_rate
        self.device = device
        self.steps = 1
        self._done = 0
        self._optimiser = torch.optim.AdamW(module.parameters(), lr=learning_rate, weight_decay=_DECAY)

    @property
    def advance(self) -> float:
        """How much of the training is done, from 0 to 1."""
        return self._done / self.steps

    def batches(self, size: int, among: Rows | None = None) -> list[Rows]:
        """Split all rows (or some) into batches of nearly equal size, in random order."""
        rows = self.generator.permutation(len(self.inputs) if among is None else among)
        return np.array_split(rows, math.ceil(len(rows) / size))

    def outputs(self, rows: Rows) -> Tensor:
        """Return the module's outputs for some rows."""
        return self.module(to_batch(self.inputs[rows], self.device))

    def settled(self, rows: Rows) -> Tensor:
        """Return the outputs for some rows as the module would give them in use, without gradients."""
        torch = load_torch()
        self.module.eval()
        with torch.no_grad():
            outputs = torch.cat([self.outputs(rows[span]) for span in blocks(len(rows), _ROWS)])
        self.module.train()
        return outputs

    def all_settled(self) -> Tensor:
        """Return the outputs for all rows: a first bank."""
        return self.settled(np.arange(len(self.inputs)))

    def against(self, bank: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the outputs of a batch, the bank's rows they are compared with, and which pairs are similar.

        The bank takes in the new outputs before.
        """
        outputs = self.outputs(rows)
        bank[rows] = outputs.detach()
        if len(bank) <= _COMPARED:
            return outputs, bank, self.similar(rows, slice(None))
        drawn = self.generator.choice(len(bank), size=_COMPARED, replace=False)
        return outputs, bank[drawn], self.similar(rows, drawn)

    def similar(self, rows: Rows, others: Any) -> Tensor:
        """Return 1.0 for pairs of one class and 0.0 for the rest."""
        return (self.classes[rows][:, None] == self.classes[others]).float()

    def step(self, loss: Tensor) -> None:
        """Go one step down the gradient of the loss."""
        if not math.isfinite(loss.item()):
            raise InputError(f"the training diverged. Use a learning_rate below {self.learning_rate}.")
        for group in self._optimiser.param_groups:
            group["lr"] = self.learning_rate * (1 + math.cos(math.pi * self.advance)) / 2
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self._done += 1
