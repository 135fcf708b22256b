"""How well pictures come back from the gradient of a small batch, whole or as a selective upload.

A small convolutional network with smooth activations, as in Zhu et al. (2019), with weights nobody has trained yet: the
situation of a first round, and the easiest for an attacker. What comes back from it says what *can* leak.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding
from blindsight.audit.leakage.matching import MatchedBatch, match_gradient
from blindsight.audit.leakage.recovery import RECOVERED, Vector
from blindsight.audit.rates import rate
from blindsight.errors import InputError
from blindsight.extras import require
from blindsight.learn.sparsity import top_entries
from blindsight.progress import Progress, silent
from blindsight.rng import science

_CHANNELS = 6


@dataclass(frozen=True, eq=False)
class BatchLeak:
    """|cosine| of every picture of all batches of one size with what was recovered.

    `uploaded` is the share of the gradient sent, `mismatch` the mean of how far the gradients of what was recovered are
    from it, `pictures` those of the last batch.
    """

    batch: int
    uploaded: float
    cosines: Vector
    mismatch: float
    pictures: NDArray[np.float64] = field(repr=False)

    @property
    def recovered(self) -> int:
        """How many pictures came back."""
        return int(np.count_nonzero(self.cosines >= RECOVERED))


def attack_batches(
    pictures: ArrayLike,
    labels: ArrayLike,
    *,
    batches: Sequence[int] = (1, 2, 4),
    uploads: Sequence[float] = (1.0, 0.1),
    iterations: int = 150,
    restarts: int = 2,
    repeats: int = 1,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[BatchLeak, ...]:
    """Recover pictures, (n, height, width), from the largest entries of the gradients of `repeats` batches per size."""
    images, classes = np.asarray(pictures, dtype=np.float64), np.asarray(labels)
    if images.ndim != 3 or classes.shape != images.shape[:1] or max(batches) > len(images) or repeats < 1:
        raise InputError(
            f"matching takes pictures (n, height, width), a label each, as many as the largest batch and one repeat or "
            f"more; got {images.shape}, {classes.shape} and {repeats}."
        )
    generator = science(random_state)
    model = _network(images.shape[1:], int(classes.max()) + 1, generator)
    found: dict[tuple[int, float], list[tuple[Vector, MatchedBatch]]] = {}
    for repeat in range(repeats):
        progress("matching gradients", repeat, repeats)
        for batch in batches:
            chosen = generator.permutation(len(images))[:batch]
            gradient = _gradient(model, images[chosen], classes[chosen])
            for share in uploads:
                matched = match_gradient(
                    model,
                    gradient,
                    shape=images.shape[1:],
                    batch=batch,
                    labels=tuple(int(label) for label in classes[chosen]),
                    uploaded=top_entries(gradient, share),
                    iterations=iterations,
                    restarts=restarts,
                    random_state=generator,
                )
                found.setdefault((batch, share), []).append((matched.cosines(images[chosen]), matched))
    progress("matching gradients", repeats, repeats)
    return tuple(_leak(batch, share, matches) for (batch, share), matches in found.items())


def _leak(batch: int, share: float, matches: Sequence[tuple[Vector, MatchedBatch]]) -> BatchLeak:
    return BatchLeak(
        batch,
        share,
        np.concatenate([cosines for cosines, _ in matches]),
        float(np.mean([matched.mismatch for _, matched in matches])),
        matches[-1][1].pictures,
    )


def _network(shape: tuple[int, ...], classes: int, generator: np.random.Generator) -> Any:
    """Return a network whose weights are drawn from `generator`."""
    torch = require("torch", extra="deep", purpose="matching gradients")
    nn, (height, width) = torch.nn, shape
    model = nn.Sequential(
        nn.Unflatten(1, (1, height)),
        nn.Conv2d(1, _CHANNELS, 3, padding=1),
        nn.Sigmoid(),
        nn.Flatten(),
        nn.Linear(_CHANNELS * height * width, classes),
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = generator.uniform(-0.5, 0.5, size=tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(drawn))
    return model


def _gradient(model: Any, images: NDArray[np.float64], labels: NDArray[Any]) -> Vector:
    torch = require("torch", extra="deep", purpose="matching gradients")
    loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(images)), torch.from_numpy(labels.astype(np.int64)))
    parts = torch.autograd.grad(loss, list(model.parameters()))
    gradient: Vector = torch.cat([part.flatten() for part in parts]).numpy()
    return gradient


def batch_findings(leaks: Iterable[BatchLeak]) -> tuple[Finding, ...]:
    """Return one row per size of batch and upload."""
    return tuple(
        Finding(
            claim=f"{leak.uploaded:.0%} of the gradient of a batch of {leak.batch} does not show its pictures",
            source="selective sharing (Shokri & Shmatikov 2015), which sends it in the clear",
            proven="nothing",
            measure=f"share of {len(leak.cosines)} pictures recovered (|cosine| >= {RECOVERED})",
            measured=rate(leak.recovered, len(leak.cosines)),
            verdict="leaks" if leak.recovered else "not refuted",
            attack="gradient matching (Zhu et al. 2019)",
            details={"mean_cosine": float(np.mean(leak.cosines)), "mismatch": leak.mismatch},
        )
        for leak in leaks
    )
