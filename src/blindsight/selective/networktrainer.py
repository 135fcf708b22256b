"""A participant's own training of a network: any torch module, on its photos, from whatever parameters it was handed.

`train` is a plain torch loop: with the same batches it gives bit for bit what `zero_grad`, `backward` and `step` give.
The caller's module is copied and never touched. What the optimiser remembers (Adam's moments) stays here between calls
and is never shared. The result depends on the parameters, the photos, the seed and that memory alone: torch's global
generators are left as they were.

*BatchNorm.* Layers that keep running statistics run in evaluation mode, also in training: they normalise by the
statistics of the initial model, which are public as that model is. So the statistics of nobody's photos are uploaded,
and all participants and the server mean the same function. Their weights and biases are learned like all others. What
training writes into any other buffer is put back. Dropout works as usual.

*Noise per record* (`record_noise`) is added inside every step, see `recordgradients`. Each photo takes
part in exactly `epochs` steps of a call. No photo can make such a training fail; if it diverges, the noisy sums did.
"""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, seeded, to_batch
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.networks import FlatParameters, layout_of, new_optimiser
from blindsight.selective.noise import RecordGaussian
from blindsight.selective.recordgradients import RecordGradients
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.trainer import DivergedError, check_labels, check_passes

_SCORED = 256  # photos that are scored at once


class NetworkTrainer:
    """Trains a copy of `module`, which turns a batch into (n, classes) scores, by its mean cross-entropy.

    `optimiser` is "sgd", "rmsprop" or "adam"; `learning_rate` None stands for 0.05, 0.001 and 0.001. A call of `train`
    makes `epochs` passes in batches of at most `batch` photos: in the given order if they fit into one, else shuffled.
    """

    def __init__(
        self,
        module: Module,
        *,
        optimiser: str = "sgd",
        learning_rate: float | None = None,
        epochs: int = 1,
        batch: int = 32,
        record_noise: RecordGaussian | None = None,
        device: str = "cpu",
        source: ByteSource = system_bytes,
    ) -> None:
        check_passes(epochs, batch)
        _check_device(device)
        self.layout = layout_of(module)
        self.epochs = epochs
        self.batch = batch
        self.record_noise = record_noise
        self.device = device
        self._module = deepcopy(module).to(device).eval()
        self._parameters = FlatParameters(self._module)
        self._initial = self._parameters.read()
        self._optimiser = new_optimiser(optimiser, self._module, learning_rate)
        self._private = None if record_noise is None else RecordGradients(self._module, record_noise, source)
        self._fixed = [layer for layer in self._module.modules() if getattr(layer, "track_running_stats", False)]
        self._buffers = [
            (layer, name, buffer.clone())
            for layer in self._module.modules()
            for name, buffer in layer.named_buffers(recurse=False)
        ]
        self._shape: tuple[int, ...] | None = None
        self._classes = 0

    def __repr__(self) -> str:
        kind = type(self._optimiser).__name__
        return f"<NetworkTrainer: {self.layout.dimension} parameters, {kind}, batches of {self.batch}>"

    def initial(self) -> Vector:
        """Return the parameters of the module it was made from."""
        return self._initial.copy()

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos and their classes, whole numbers from 0."""
        rows = self._check(inputs)
        truth = check_labels(labels, len(rows), self._classes if self._private is None else None)
        generator = science(seed)
        self._load(parameters)
        self._to_training()
        with seeded(generator, self.device):
            for picked in self._batches(len(rows), generator):
                self._step(to_batch(rows[picked], self.device), load_torch().tensor(truth[picked], device=self.device))
        trained = self._parameters.read()
        if not np.isfinite(trained).all():
            raise self._divergence()
        return trained

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the module's outputs for each photo, (n, classes), in evaluation mode."""
        rows = self._check(inputs)
        self._load(parameters)
        self._module.eval()
        with load_torch().no_grad():
            parts = [
                self._module(to_batch(rows[start : start + _SCORED], self.device)).cpu().numpy()
                for start in range(0, len(rows), _SCORED)
            ]
        return np.concatenate(parts)

    def _load(self, parameters: Vector) -> None:
        """Make the module the initial one with these parameters."""
        self._parameters.write(parameters)
        for layer, name, buffer in self._buffers:
            getattr(layer, name).copy_(buffer)

    def _to_training(self) -> None:
        if not self._module.training:
            self._module.train()
            for layer in self._fixed:
                layer.eval()

    def _batches(self, count: int, generator: np.random.Generator) -> Iterator[Any]:
        """Yield which photos each step takes: batches of nearly equal size."""
        for _ in range(self.epochs):
            if count <= self.batch:
                yield slice(None)
            else:
                yield from np.array_split(generator.permutation(count), math.ceil(count / self.batch))

    def _step(self, inputs: Tensor, labels: Tensor) -> None:
        self._optimiser.zero_grad()
        if self._private is not None:
            self._private.backward(inputs, labels)
        else:
            loss = load_torch().nn.functional.cross_entropy(self._module(inputs), labels)
            if not math.isfinite(loss.item()):
                raise self._divergence()
            loss.backward()
        self._optimiser.step()

    def _divergence(self) -> DivergedError:
        """Forget what the optimiser remembers, which may not be finite either, and say what happened."""
        self._optimiser.state.clear()
        rate = self._optimiser.param_groups[0]["lr"]
        return DivergedError(f"the training diverged. Use a learning_rate below {rate}.")

    def _check(self, inputs: ArrayLike) -> NDArray[Any]:
        """Return inputs the module can take; the first ones show of which shape they are and how many classes."""
        rows = check_inputs(inputs, self._shape)
        if self._shape is not None:
            return rows
        torch, batch = load_torch(), to_batch(rows[:1], self.device)
        self._module.eval()
        try:
            with torch.no_grad():
                outputs = self._module(batch)
        except Exception as error:  # whatever the user's module raises
            reason = " ".join(str(error).split())
            raise InputError(f"the network cannot take a batch of shape {tuple(batch.shape)}: {reason}") from error
        shape: tuple[int, ...] = tuple(getattr(outputs, "shape", ()))
        if len(shape) != 2 or shape[0] != 1 or shape[1] < 2:
            raise InputError(
                "the network must give one row of scores per photo, for two or more classes; "
                f"one photo gives {shape or type(outputs).__name__}."
            )
        self._shape, self._classes = rows.shape[1:], shape[1]
        return rows


def _check_device(device: str) -> None:
    """Refuse a device that torch does not know, or that is not there."""
    torch = load_torch()
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(
            f"torch cannot compute on the device {device!r} here. Use 'cpu', or one that is there."
        ) from None
