"""What a member does with its pictures: improve a vector of parameters, with noise for each record or without.

*`RecordGradients`* protect every record: each gradient is clipped, the sum of all gets Gaussian noise (DP-SGD, Abadi et
al. 2016). Neighbouring batches are alike but for one record, which counts in the one and has a zero gradient in
the other; how many records a batch has is public. The sum of the clipped gradients then has an L2 sensitivity of
`clip`. A member that trains alone releases it by `blindsight.dp.mechanisms.GaussianMechanism` with a deviation of
noise_multiplier x clip, from the operating system's randomness; several members add theirs up with noise in the sum
(`blindsight.sums.noise`). What an optimiser or a selection makes of it is post-processing.

*As computed*, not only on paper. The gradient of a record is that of its own loss, from a batch of which it is the only
one (`torch.func.vmap` over `grad`): no layer can carry anything from one record of the batch to another.
Lengths and sums are float64, and records are clipped to (1 - 2^-20) of `clip`, which is more than rounding can add for
up to 2^15 records and 2^28 parameters. A record whose gradient is not finite, or whose class the module does not
have, counts as zero and never as an error: weights that make it so for some pictures would else tell them apart.

Opacus computes the same, layer by layer from the whole batch, and is what the tests compare with. It is not used here
because it can be wrong without a word: a layer without parameters may mix the records of a batch and pass unseen, and
the rule for Conv2d (of 1.6.0) misreads activations that are stored channels last, as those of pictures are.

*`NetworkTrainer`* trains any torch module. `train` is a plain torch loop: with the same batches it gives bit for bit
what `zero_grad`, `backward` and `step` give. The caller's module is copied and never touched. What the optimiser
remembers (Adam's moments) stays here between calls and is never shared. The result depends on the parameters, the
pictures, the seed and that memory alone: torch's global generators are left as they were.

*BatchNorm.* Layers that keep running statistics run in evaluation mode, also in training: they normalise by the
statistics of the first model, which are public as that model is. So the statistics of no private picture are sent,
and all members and the server mean the same function. Their weights and biases are learned like all others. What
training writes into any other buffer is put back. Dropout works as usual.

*Noise per record* (`record_noise`) is added inside every step, by `RecordGradients`. Each picture takes
part in exactly `epochs` steps of a call. No picture can make such a training fail; if it diverges, the noisy sums did.
"""

import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, seeded, to_batch
from blindsight.learn.modules import FlatParameters, Vector, layout_of, new_optimiser
from blindsight.learn.protection import RecordGaussian, check_whole
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.sums.noise import MOST_UNITS
from blindsight.validation import check_features


class Batch(NamedTuple):
    """Pictures as a module takes them, and their classes, counted from 0."""

    inputs: NDArray[Any]
    labels: NDArray[np.int64]


class DivergedError(InputError):
    """A training has left the finite numbers."""


class UnknownClassError(InputError):
    """A picture is of a class that the module does not have."""


class Scorer(Protocol):
    """Anything that gives each picture a score for each class."""

    def initial(self) -> Vector: ...

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]: ...


def check_passes(epochs: int, batch: int, decay: float = 0.0) -> None:
    """Refuse a training that would see no photo, or whose rate would grow."""
    if not 0 <= decay < np.inf:
        raise InputError(f"decay must be at least 0 and finite; got {decay}.")
    for name, number in (("epochs", epochs), ("batch", batch)):
        check_whole(name, number)
        if number < 1:
            raise InputError(f"{name} must be at least 1; got {number}.")


def check_photos(inputs: ArrayLike, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return photos as rows of finite numbers, each of this `shape` if one is given, or say what is wrong."""
    rows = check_features(inputs, what="photos", least=0, flat=False, precision="given")
    if shape is not None and len(rows) and rows.shape[1:] != shape:
        raise InputError(f"photos must have the shape {shape} as before; got {rows.shape[1:]}.")
    return rows


def check_labels(labels: ArrayLike, count: int, classes: int | None = None) -> NDArray[np.int64]:
    """Return the classes of `count` photos, whole numbers from 0 (and below `classes`), or say what is wrong."""
    try:
        truth = np.asarray(labels)
    except ValueError:
        raise InputError(f"labels must be one whole number for each of {count} photos; got rows of them.") from None
    if not truth.size and not count:
        return np.zeros(0, dtype=np.int64)
    if truth.shape != (count,) or truth.dtype.kind not in "iu":
        raise InputError(
            f"labels must be one whole number for each of {count} photos; got {truth.dtype} {truth.shape}."
        )
    if truth.min() < 0:
        raise InputError("labels are classes, counted from 0; got a negative one.")
    if classes is not None and truth.max() >= classes:
        raise UnknownClassError(f"labels must lie in 0..{classes - 1}: the network tells {classes} classes apart.")
    return truth.astype(np.int64)


def check_outputs(trainer: Scorer, inputs: NDArray[Any], classes: Iterable[Any]) -> None:
    """Refuse a model that does not give a score for each of these classes."""
    names, outputs = [str(name) for name in classes], trainer.scores(trainer.initial(), inputs[:1]).shape[1]
    if outputs != len(names):
        raise InputError(
            f"the network gives {outputs} scores, and there are {len(names)} classes ({', '.join(names)}). Give its "
            "last layer as many outputs, or name all classes."
        )


_MARGIN = 2.0**-20  # of `clip`, left for rounding errors
_MOST_RECORDS = 2**15
_AT_ONCE = 2**21  # numbers of per-record gradients held in memory: larger arrays are mapped and zeroed anew
_REMEDY = (
    "Use another layer (GroupNorm for BatchNorm, LSTM for GRU, ReLU for RReLU), or noise per participant, "
    "which every layer allows."
)


class RecordGradients:
    """The gradient of a module's mean cross-entropy over a batch, private for every record of it."""

    def __init__(self, module: Module, noise: RecordGaussian, source: ByteSource = system_bytes) -> None:
        torch = load_torch()
        self._module = module
        self._parameters = FlatParameters(module)
        self._limit = noise.clip * (1 - _MARGIN)
        self._noise, self._source = noise, source
        self._gradients = torch.func.vmap(torch.func.grad(self._loss), in_dims=(None, 0, 0), randomness="different")
        _check_layers(module)

    def backward(self, inputs: Tensor, labels: Tensor) -> None:
        """Write the private gradient to `grad` of every parameter, as `loss.backward()` would the plain one."""
        torch, count = load_torch(), len(inputs)
        if count > _MOST_RECORDS:
            raise InputError(f"a batch with noise per record has at most {_MOST_RECORDS} records; got {count}.")
        total = np.zeros(self._parameters.dimension)
        for part in self.clipped_sums(inputs, labels):
            total += part
        noisy = torch.from_numpy(self._noise.release(total, self._source) / count).float()
        for parameter, part in zip(self._parameters.tensors.values(), self._parameters.split(noisy), strict=True):
            parameter.grad = part.to(parameter.device)

    def per_record(self, inputs: Tensor, labels: Tensor) -> Iterator[list[Tensor]]:
        """Yield the plain gradients of some records at a time: for each parameter (records, *shape)."""
        records = min(MOST_UNITS, max(1, _AT_ONCE // self._parameters.dimension))
        for some, truth in zip(inputs.split(records), labels.split(records), strict=True):
            try:
                found = self._gradients(self._parameters.named, some, truth)
            except RuntimeError as error:
                raise self._refusal(some, truth, error) from error
            yield list(found.values())

    def _loss(self, values: dict[str, Tensor], record: Tensor, label: Tensor) -> Tensor:
        torch = load_torch()
        outputs = torch.func.functional_call(self._module, values, (record[None],))
        last = outputs.shape[1] - 1
        return torch.nn.functional.cross_entropy(outputs, label.clamp(max=last)[None]) * (label <= last)

    def clipped_sums(self, inputs: Tensor, labels: Tensor) -> Iterator[NDArray[np.float64]]:
        """Yield sums of the clipped gradients of some records each, in double precision."""
        torch = load_torch()
        for gradients in self.per_record(inputs, labels):
            rows = [gradient.flatten(1) for gradient in gradients]
            lengths = torch.stack([torch.linalg.vector_norm(row, dim=1, dtype=torch.float64) for row in rows])
            length = torch.linalg.vector_norm(lengths, dim=0)
            counts = torch.isfinite(length)
            factors = self._limit / length.where(counts, 0.0).clamp(min=self._limit)
            yield torch.cat([factors @ row.double().where(counts[:, None], 0.0) for row in rows]).cpu().numpy()

    def _refusal(self, inputs: Tensor, labels: Tensor, error: Exception) -> InputError:
        """Find the layer inside of which the computation fails, and say what to do about it."""
        inside: list[str] = []
        hooks: list[Any] = []
        for name, layer in self._module.named_modules():
            called = f"layer {name!r} ({type(layer).__name__})" if name else "the network"
            hooks += [
                layer.register_forward_pre_hook(lambda *_, called=called: inside.append(called)),
                layer.register_forward_hook(lambda *_: inside.pop() and None),
            ]
        try:
            self._gradients(self._parameters.named, inputs, labels)
        except RuntimeError:
            pass
        finally:
            for hook in hooks:
                hook.remove()
        place = inside[-1] if inside else "the network"
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        return InputError(f"{place} gives no gradients of single records: {reason}. {_REMEDY}")


def _check_layers(module: Module) -> None:
    """Refuse layers that normalise by the batch, which a single record is none of."""
    normalisation = load_torch().nn.modules.batchnorm._BatchNorm
    for name, layer in module.named_modules():
        if isinstance(layer, normalisation) and layer.running_mean is None:
            raise InputError(
                f"layer {name!r} ({type(layer).__name__}) normalises by the batch, so it has no gradients of single "
                f"records. {_REMEDY}"
            )


_SCORED = 256  # photos that are scored at once


class NetworkTrainer:
    """Trains a copy of `module`, which turns a batch into (n, classes) scores, by its mean cross-entropy.

    `optimiser` is "sgd", "rmsprop" or "adam"; `learning_rate` None stands for 0.05, 0.001 and 0.001. A call of `train`
    makes `epochs` passes in batches of at most `batch` photos: in the given order if they fit into one, else shuffled.
    In the t-th call (from 0) the learning rate is divided by 1 + `decay` t.
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
        decay: float = 0.0,
        device: str = "cpu",
        source: ByteSource = system_bytes,
    ) -> None:
        check_passes(epochs, batch, decay)
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
        self._torch = load_torch()
        self._rate, self._decay, self._calls = self._optimiser.param_groups[0]["lr"], decay, 0
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
        return self._initial.copy()

    def reset(self) -> None:
        """Forget what the optimiser remembers of earlier trainings."""
        self._optimiser.state.clear()
        self._calls = 0

    def classes_of(self, inputs: NDArray[Any]) -> int:
        """Return the number of classes that the module knows."""
        self._check(inputs)
        return self._classes

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        if len(inputs):
            check_labels(labels, len(self._check(inputs)), self._classes)

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos and their classes, whole numbers from 0."""
        rows = self._check(inputs)
        truth = check_labels(labels, len(rows), self._classes if self._private is None else None)
        self._load(parameters)
        self._to_training()
        self._optimiser.param_groups[0]["lr"] = self._rate / (1 + self._decay * self._calls)
        with seeded(seed, self.device):
            self._calls += 1
            for picked in self._batches(len(rows), seed):
                labelled = self._torch.tensor(truth[picked], device=self.device)
                self._step(to_batch(rows[picked], self.device), labelled)
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

    def _batches(self, count: int, seed: int) -> Iterator[Any]:
        """Yield which photos each step takes: batches of nearly equal size."""
        if count <= self.batch:
            yield from [slice(None)] * self.epochs
            return
        generator = science(seed)
        for _ in range(self.epochs):
            yield from np.array_split(generator.permutation(count), math.ceil(count / self.batch))

    def _step(self, inputs: Tensor, labels: Tensor) -> None:
        self._optimiser.zero_grad()
        if self._private is not None:
            self._private.backward(inputs, labels)
        else:
            loss = self._torch.nn.functional.cross_entropy(self._module(inputs), labels)
            if not math.isfinite(loss.item()):
                raise self._divergence()
            loss.backward()
        self._optimiser.step()

    def _divergence(self) -> DivergedError:
        """Forget what the optimiser remembers, which may not be finite either, and say what happened."""
        self._optimiser.state.clear()
        rate = self._optimiser.param_groups[0]["lr"]
        return DivergedError(f"the training diverged. Use a learning_rate below {rate}.")

    def _check(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return inputs the module can take; the first ones show of which shape they are and how many classes."""
        seen = isinstance(inputs, np.ndarray) and inputs.dtype == np.uint8 and inputs.shape[1:] == self._shape
        if seen and len(inputs):
            return inputs
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
