"""What a participant does with its photos: improve a vector of parameters, with noise for each record or without.

*`SoftmaxTrainer`* trains a linear softmax head on features with numpy, without torch. It is the same model as
`networks.head` by plain stochastic gradients. It is what a frozen backbone leaves to learn, and small enough that a
study of four weeks takes seconds. Per-record gradients are known in closed form: that of one record is the outer
product of (its probabilities - its class) and (its features, 1), so its norm is the product of two norms.

*`RecordGradients`* protect every record: each is clipped, their sum gets Gaussian noise (DP-SGD, Abadi et al. 2016).
Neighbouring batches are alike but for one record, which counts in the one and has a zero gradient in
the other; how many records a batch has is public. The sum of the clipped gradients then has an L2 sensitivity of
`clip`, and it is released by `blindsight.dp.mechanisms.GaussianMechanism` with a deviation of noise_multiplier x clip,
from the operating system's randomness. What an optimiser or a selection makes of it is post-processing. So one step
costs a record one Gaussian release of `noise_multiplier`.

*As computed*, not only on paper. A record's gradient is that of its own loss, from a batch of which it is the only one
(`torch.func.vmap` over `grad`): no layer can carry anything from one record of the batch to another.
Lengths and sums are float64, and records are clipped to (1 - 2^-20) of `clip`, which is more than rounding can add for
up to 2^15 records and 2^28 parameters. A record whose gradient is not finite, or whose class the network does not
have, counts as zero and never as an error: weights that make it so for some photos would else tell them apart.

Opacus computes the same, layer by layer from the whole batch, and is what the tests compare with. It is not used here
because it can be wrong without a word: a layer without parameters may mix the records of a batch and pass unseen, and
the rule for Conv2d (of 1.6.0) misreads activations that are stored channels last, as those of photos are.

*`NetworkTrainer`* trains any torch module. `train` is a plain torch loop: with the same batches it gives bit for bit
what `zero_grad`, `backward` and `step` give. The caller's module is copied and never touched. What the optimiser
remembers (Adam's moments) stays here between calls and is never shared. The result depends on the parameters, the
photos, the seed and that memory alone: torch's global generators are left as they were.

*BatchNorm.* Layers that keep running statistics run in evaluation mode, also in training: they normalise by the
statistics of the initial model, which are public as that model is. So the statistics of nobody's photos are uploaded,
and all participants and the server mean the same function. Their weights and biases are learned like all others. What
training writes into any other buffer is put back. Dropout works as usual.

*Noise per record* (`record_noise`) is added inside every step, by `RecordGradients`. Each photo takes
part in exactly `epochs` steps of a call. No photo can make such a training fail; if it diverges, the noisy sums did.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, seeded, to_batch
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.codec import ParameterLayout, Vector
from blindsight.selective.networks import FlatParameters, layout_of, new_optimiser
from blindsight.selective.protection import RecordGaussian, check_whole
from blindsight.validation import check_features

LOCAL_STEPS = 5
"""Passes over the photos of an upload where nobody says it: they bring more than any choice of what is uploaded."""

DECAY = 0.01
"""How the rate decays where nobody says it: in the t-th upload it is divided by 1 + t / 100."""


class DivergedError(InputError):
    """A training has left the finite numbers."""


class UnknownClassError(InputError):
    """A photo is of a class that the network does not have."""


class Trainer(Protocol):
    """One participant's local training; a network's is `NetworkTrainer`."""

    @property
    def layout(self) -> ParameterLayout:
        """Which parameters the vectors hold."""

    @property
    def epochs(self) -> int:
        """In how many steps of one training each photo takes part."""

    @property
    def record_noise(self) -> RecordGaussian | None:
        """The noise that is added inside training; None if there is none."""

    def initial(self) -> Vector: ...

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Refuse photos that the model cannot take and classes that it does not have: asked as they are gathered."""

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return what it remembers from one training to the next, such as the moments of Adam; never shared."""
        return {}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Go on with what `memory` returned."""

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos, a function of the arguments and its own memory.

        With `record_noise` nothing about a photo may make it fail: one whose gradient is not finite counts as zero.
        """

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return a score for each photo and class, (n, classes)."""


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


def check_outputs(trainer: Trainer, inputs: NDArray[Any], classes: Iterable[Any]) -> None:
    """Refuse a model that does not give a score for each of these classes."""
    names, outputs = [str(name) for name in classes], trainer.scores(trainer.initial(), inputs[:1]).shape[1]
    if outputs != len(names):
        raise InputError(
            f"the network gives {outputs} scores, and there are {len(names)} classes ({', '.join(names)}). Give its "
            "last layer as many outputs, or name all classes."
        )


_NAMES = ("weight", "bias")
_CLIP_MARGIN = 1 - 1e-9  # more than rounding in double precision can lengthen a clipped gradient, or its part of a sum


@dataclass(kw_only=True, eq=False)
class SoftmaxTrainer:
    """Trains a head of `classes` on features that `standardiser` (fitted on public data) scales.

    One call of `train` makes `epochs` passes over the photos in batches of `batch`; in the t-th call (from 0) the
    learning rate is divided by 1 + `decay` t. With `record_noise` each record's
    gradient is clipped and the sum of a batch gets Gaussian noise from `source`. A record whose gradient is not finite,
    or whose class the head does not have, then counts as zero: weights and classes come from a server that may want to
    see training fail. What else can diverge is made of noisy sums alone.
    """

    standardiser: Standardiser
    classes: int
    learning_rate: float
    epochs: int = 1
    batch: int = 32
    record_noise: RecordGaussian | None = None
    decay: float = 0.0
    source: ByteSource = field(default=system_bytes, repr=False)
    _calls: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise InputError(f"a classifier tells at least two classes apart; got {self.classes}.")
        if not 0 < self.learning_rate < np.inf:
            raise InputError(f"learning_rate must be positive; got {self.learning_rate}.")
        check_passes(self.epochs, self.batch, self.decay)

    @property
    def layout(self) -> ParameterLayout:
        return ParameterLayout(_NAMES, ((self.classes, len(self.standardiser.mean)), (self.classes,)))

    def initial(self) -> Vector:
        """Return zeros: the problem is convex."""
        return np.zeros(self.layout.dimension, dtype=np.float32)

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        check_features(inputs, len(self.standardiser.mean))
        check_labels(labels, len(inputs), self.classes)

    def memory(self) -> dict[str, NDArray[Any]]:
        return {"calls": np.array(self._calls)}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        self._calls = int(memory["calls"])

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after descending on these photos and their classes, whole numbers from 0."""
        rows, rng = self._rows(inputs), science(seed)
        known = check_labels(labels, len(rows), self.classes if self.record_noise is None else None)
        truth = np.equal.outer(known, np.arange(self.classes)).astype(np.float32)
        weights = self._matrix(parameters).copy()
        slowed = self.learning_rate / (1 + self.decay * self._calls)
        self._calls += 1
        with np.errstate(over="ignore", invalid="ignore"):
            rate = np.float32(slowed)
            for _ in range(self.epochs):
                order = rng.permutation(len(rows))
                for start in range(0, len(rows), self.batch):
                    picked = order[start : start + self.batch]
                    weights -= rate * self._gradient(weights, rows[picked], truth[picked])
        return self._finite(np.concatenate([weights[:, :-1].ravel(), weights[:, -1]]))

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        logits: NDArray[Any] = self._rows(inputs) @ self._matrix(parameters).T
        return logits

    def _gradient(self, weights: Vector, rows: Vector, truth: Vector) -> Vector:
        """Return the mean gradient of a batch, by records clipped and noised if that was asked for."""
        errors = _softmax(rows @ weights.T) - truth
        if self.record_noise is None:
            plain: Vector = np.divide(self._finite(errors).T @ rows, len(rows), dtype=np.float32)
            return plain
        limit = _CLIP_MARGIN * self.record_noise.clip
        counts = truth.any(axis=1) & np.isfinite(errors).all(axis=1) & np.isfinite(rows).all(axis=1)
        exact, wide = (np.where(counts[:, None], part, 0).astype(np.float64) for part in (errors, rows))
        norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(wide, axis=1)
        exact *= (limit / np.maximum(norms, limit))[:, None]
        noisy: Vector = (self.record_noise.release(exact.T @ wide, self.source) / len(rows)).astype(np.float32)
        return noisy

    def _finite(self, numbers: Vector) -> Vector:
        if not np.isfinite(numbers).all():
            raise DivergedError(f"the training diverged. Use a learning_rate below {self.learning_rate}.")
        return numbers

    def _rows(self, inputs: NDArray[Any]) -> Vector:
        """Return standardised features with a one behind each."""
        with np.errstate(all="ignore"):
            scaled = self.standardiser.apply(inputs)
            return np.column_stack([scaled, np.ones(len(scaled))]).astype(np.float32)

    def _matrix(self, parameters: Vector) -> Vector:
        if parameters.shape != (self.layout.dimension,):
            raise InputError(f"this head has {self.layout.dimension} parameters; got {parameters.shape}.")
        weights, bias = np.split(parameters, [self.classes * len(self.standardiser.mean)])
        return np.column_stack([weights.reshape(self.classes, -1), bias])


def _softmax(logits: Vector) -> Vector:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Vector = odds / odds.sum(axis=1, keepdims=True)
    return shares


_MARGIN = 2.0**-20  # of `clip`, left for rounding errors
_MOST_RECORDS = 2**15
_AT_ONCE = 2**25  # numbers of per-record gradients held in memory
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
        total = self._clipped_sum(inputs, labels)
        noisy = torch.from_numpy(self._noise.release(total, self._source) / count).float()
        for parameter, part in zip(self._parameters.tensors.values(), self._parameters.split(noisy), strict=True):
            parameter.grad = part.to(parameter.device)

    def per_record(self, inputs: Tensor, labels: Tensor) -> Iterator[list[Tensor]]:
        """Yield the plain gradients of some records at a time: for each parameter (records, *shape)."""
        records = max(1, _AT_ONCE // self._parameters.dimension)
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

    def _clipped_sum(self, inputs: Tensor, labels: Tensor) -> NDArray[np.float64]:
        torch = load_torch()
        total = np.zeros(self._parameters.dimension)
        for gradients in self.per_record(inputs, labels):
            rows = [gradient.flatten(1) for gradient in gradients]
            lengths = torch.stack([torch.linalg.vector_norm(row, dim=1, dtype=torch.float64) for row in rows])
            length = torch.linalg.vector_norm(lengths, dim=0)
            counts = torch.isfinite(length)
            factors = self._limit / length.where(counts, 0.0).clamp(min=self._limit)
            total += torch.cat([factors @ row.double().where(counts[:, None], 0.0) for row in rows]).cpu().numpy()
        return total

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

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        if len(inputs):
            check_labels(labels, len(self._check(inputs)), self._classes)

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return how many trainings there were and what the optimiser keeps of each parameter, by "place name"."""
        kept = {
            f"{place} {name}": value.cpu().numpy()
            for place, parameter in enumerate(self._parameters.tensors.values())
            for name, value in self._optimiser.state.get(parameter, {}).items()
        }
        return {"calls": np.array(self._calls), **kept}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        parameters = list(self._parameters.tensors.values())
        state: dict[Tensor, dict[str, Tensor]] = {}
        for key, value in memory.items():
            if key == "calls":
                continue
            place, _, name = key.partition(" ")
            parameter = parameters[int(place)]
            if value.shape not in ((), tuple(parameter.shape)) or not np.isfinite(value).all():
                raise ValueError(f"the optimiser's {name} is not one of this network")
            state.setdefault(parameter, {})[name] = load_torch().tensor(value, device=parameter.device)
        self._optimiser.state.update(state)
        self._calls = int(memory["calls"])

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
