"""Gradients that protect every record: each is clipped, their sum gets Gaussian noise (DP-SGD, Abadi et al. 2016).

*The guarantee.* Neighbouring batches are alike but for one record, which counts in the one and has a zero gradient in
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
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch
from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.networks import FlatParameters
from blindsight.selective.noise import RecordGaussian

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
