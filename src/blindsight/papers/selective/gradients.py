"""Pictures from the gradients of networks: of one picture exactly, of a small batch by optimisation.

"Selective sharing" (Shokri & Shmatikov, CCS 2015; PPDL, Bu 2019) uploads a share theta_u of the parameters' changes in
the clear. What such an upload shows:

*A batch of one* (`recover_layer_input`).

    Claim. A linear layer computes a = W x + b, so its gradients for one sample are dW = g x^T and db = g with the same
    vector g: every row of dW is x times its entry of db. Whoever sees both divides, whatever the rest of the network is
    and whatever the learning rate was. []

A plain step of SGD sends a multiple of [dW | db] = g [x | 1]^T, and so do several steps on one picture if the layer is
the network's first (x is the picture itself then; behind convolutions x is what they make of it). The matrix has rank
one, so a *part* of it is enough: an upload of the largest or of random entries shows x wherever the uploaded entries
hang together by rows and columns, and its length if one of them is a bias. For several pictures the rows are mixtures;
a unit that only one of them switched on (ReLU) still shows that one.

*Adam and RMSProp*: `audit.gradients.undo_division` reads the gradient back where rounding left it. Of the rest there
are signs, and zeros: where a picture switches a ReLU off. They tell on which side of each filter's plane every patch of
it lies, and with the objective "signs" pictures are found that lie on the same sides.

*A small batch* (`match_gradient`): dummies are changed until their gradient is the one that was sent. Zhu, Liu & Han,
"Deep leakage from gradients" (NeurIPS 2019), with their squared distance of gradients or with the cosine of Geiping et
al., "Inverting gradients" (NeurIPS 2020), which needs no learning rate but is more often caught in the corners of ReLU
networks; minimised by L-BFGS from several random starts, the best match is kept. The attacker is told the labels, which
the gradient of the last bias gives away anyhow (`labels_from_gradient`; Zhao, Mopuri & Bilen, iDLG, 2020). There is no
guarantee: whether it finds the pictures depends on the network. Few parameters per picture, many pictures, flat
activations and dropped entries all help the victim. So a failure is not evidence of privacy; a success is of leak.
`attack_batches` takes a small convolutional network with smooth activations, as in Zhu et al., with weights nobody has
trained yet: the situation of a first round, and the easiest for an attacker.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from blindsight.audit.finding import Finding, rate
from blindsight.audit.gradients import linear_layers, parameter_places
from blindsight.audit.recovery import RECOVERED, Vector, cosine
from blindsight.errors import InputError, UnknownNameError
from blindsight.extras import require, seeded
from blindsight.learn.modules import ParameterLayout
from blindsight.papers.selective.noise import SparseUpdate
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds.member import top_entries

Update = ArrayLike | SparseUpdate
"""A change of all parameters in one row, whole or in part."""


@dataclass(frozen=True, eq=False)
class LayerInput:
    """What a linear layer was shown: `sample`, zero where it is not `known`.

    `scaled` tells whether its length is right too, and not only its direction. `explained` is the share of the layer's
    uploaded squares that one sample accounts for: 1 for a batch of one, less for a mixture.
    """

    layer: str
    sample: Vector
    known: NDArray[np.bool_]
    scaled: bool
    explained: float

    def __repr__(self) -> str:
        return f"<LayerInput of {self.layer!r}: {int(self.known.sum())} of {self.known.size} features, hidden>"


def recover_layer_input(update: Update, layout: ParameterLayout, layer: str | None = None) -> LayerInput:
    """Return the input of a linear layer (by default the first) from an upload of a batch of one."""
    name, gradients, seen = _layer_gradients(update, layout, layer)
    if not gradients.any():
        raise InputError(f"the upload holds nothing of layer {name!r}. Choose another layer, or a larger upload.")
    starts = [True, False] if gradients[:, -1].any() else [False]
    return max((_from_start(name, gradients, seen, scaled) for scaled in starts), key=lambda found: found.explained)


def _from_start(name: str, gradients: NDArray[np.float64], seen: NDArray[np.bool_], scaled: bool) -> LayerInput:
    """Return what hangs together with the biases (`scaled`) or else with the row that has most squares."""
    slopes, inputs, known = _rank_one(gradients, seen, scaled)
    rest = np.where(seen, gradients - np.outer(slopes, inputs), 0.0)
    explained = 1 - float(np.sum(rest**2) / np.sum(gradients**2))
    return LayerInput(name, inputs[:-1], known[:-1], scaled, explained)


def _layer_gradients(
    update: Update, layout: ParameterLayout, layer: str | None
) -> tuple[str, NDArray[np.float64], NDArray[np.bool_]]:
    """Return a layer's name, its [dW | db], zero where nothing was uploaded, and where something was."""
    layers = linear_layers(layout)
    name = layer if layer is not None else next(iter(layers), None)
    if name is None or name not in layers:
        raise InputError(f"no linear layer with a bias is called {name!r}; there are: {', '.join(layers) or 'none'}.")
    if isinstance(update, SparseUpdate):
        values, seen = update.dense().astype(np.float64), np.zeros(update.dimension, dtype=np.bool_)
        seen[update.indices] = True
    else:
        values = np.asarray(update, dtype=np.float64)
        seen = np.ones(values.shape, dtype=np.bool_)
    if values.shape != (layout.dimension,):
        raise InputError(f"an update of this network has {layout.dimension} numbers; got shape {values.shape}.")
    prefix = f"{name}." if name else ""
    places = [parameter_places(layout, prefix + kind) for kind in ("weight", "bias")]
    joined = np.hstack([places[0], places[1][:, None]])
    return name, values[joined], seen[joined]


def _rank_one(
    matrix: NDArray[np.float64], seen: NDArray[np.bool_], scaled: bool
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """Return g, x and where x is known, such that g x^T is the seen part of the matrix (in least squares).

    It starts from the column of biases, where x is 1 (or from the row with most squares), and alternates: a row is
    known as soon as one of its seen columns is, and the other way round.
    """
    inputs, known = np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=np.bool_)
    if scaled:
        inputs[-1], known[-1] = 1.0, True
    else:
        first = int(np.argmax(np.sum(matrix**2, axis=1)))
        inputs, known = matrix[first].copy(), seen[first].copy()
    while True:
        slopes = _fit(matrix, seen, inputs)
        inputs = _fit(matrix.T, seen.T, slopes)
        if scaled:
            inputs, slopes = inputs / inputs[-1], slopes * inputs[-1]
        reached = (seen & (slopes != 0)[:, None]).any(axis=0)
        if not (reached & ~known).any():
            return slopes, inputs, known | reached
        known |= reached


def _fit(matrix: NDArray[np.float64], seen: NDArray[np.bool_], other: Vector) -> Vector:
    """Return the factor that goes with the other one, row by row in least squares; 0 where nothing tells it."""
    weight = seen @ other**2
    fitted: Vector = np.divide(matrix @ other, weight, out=np.zeros(len(matrix)), where=weight > 0)
    return fitted


Objective = Literal["cosine", "squares", "signs"]
_SOFT = 0.1  # of a gradient's mean size: about so large an entry has half a sign


@dataclass(frozen=True, eq=False)
class MatchedBatch:
    """The pictures whose gradient matches best, in no particular order, and how well: 0 is perfect."""

    pictures: NDArray[np.float64]
    mismatch: float

    def __repr__(self) -> str:
        return f"<MatchedBatch of {len(self.pictures)}, mismatch {self.mismatch:.3g}, hidden>"

    def cosines(self, truth: ArrayLike) -> Vector:
        """Return |cosine| of each true picture with its counterpart, matched one to one for the largest sum."""
        rows = np.asarray(truth, dtype=np.float64).reshape(len(self.pictures), -1)
        table = np.array([[abs(cosine(row, guess)) for guess in self.pictures] for row in rows])
        matched: Vector = table[linear_sum_assignment(-table)]
        return matched


def match_gradient(
    model: Any,
    gradient: ArrayLike,
    labels: Sequence[int],
    *,
    shape: tuple[int, ...],
    uploaded: ArrayLike | None = None,
    objective: Objective = "squares",
    smoothness: float = 0.0,
    iterations: int = 100,
    restarts: int = 1,
    random_state: int | np.random.Generator | None = None,
) -> MatchedBatch:
    """Return pictures with these labels whose mean cross-entropy under a torch `model` has this gradient.

    `model` must have the parameters at which the gradient was taken; it is not changed. `gradient` is in the order of
    its trainable parameters; with the cosine, minus an update is as good, and with the signs, minus a first step of
    Adam or RMSProp. Only the entries marked in `uploaded` are compared, all by default. `smoothness` times the mean
    difference of neighbouring pixels is added to the objective: the prior of Geiping et al. (2020), for pictures of
    32x32 and more.
    """
    if objective not in get_args(Objective):
        raise UnknownNameError("objective", objective, get_args(Objective))
    torch = require("torch", extra="deep", purpose="matching gradients")
    model = copy.deepcopy(model).double()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    whole, size = np.asarray(gradient, dtype=np.float64), sum(parameter.numel() for parameter in parameters)
    if whole.shape != (size,):
        raise InputError(f"the model has {size} trainable numbers; got a gradient of shape {whole.shape}.")
    marked = np.arange(size) if uploaded is None else np.flatnonzero(uploaded)
    if not whole[marked].any():
        raise InputError("the gradient is zero wherever it was uploaded: there is nothing to match.")
    target, places, classes = torch.from_numpy(whole[marked]), torch.from_numpy(marked), torch.tensor(labels)

    def mismatch(pictures: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(model(pictures), classes)
        parts = torch.autograd.grad(loss, parameters, create_graph=True)
        found = torch.cat([part.flatten() for part in parts])[places]
        if objective == "squares":
            return torch.sum((found - target) ** 2) / torch.sum(target**2)
        if objective == "signs":
            sizes = found.abs()
            return torch.mean((found / (sizes + _SOFT * sizes.mean()) - target.sign()) ** 2)
        return 1 - torch.nn.functional.cosine_similarity(found, target, dim=0)

    def minimised(start: NDArray[np.float64]) -> MatchedBatch:
        pictures = torch.from_numpy(start).requires_grad_(True)
        optimiser = torch.optim.LBFGS(
            [pictures], max_iter=iterations, line_search_fn="strong_wolfe", tolerance_grad=1e-12, tolerance_change=1e-14
        )

        def closure() -> Any:
            optimiser.zero_grad()
            total = mismatch(pictures)
            if smoothness:  # total variation per pixel
                total = total + smoothness * sum(pictures.diff(dim=axis).abs().mean() for axis in (-1, -2))
            total.backward(inputs=[pictures])
            return total

        optimiser.step(closure)
        return MatchedBatch(pictures.detach().numpy(), float(mismatch(pictures).detach()))

    generator = science(random_state)
    found = (minimised(generator.normal(size=(len(labels), *shape))) for _ in range(restarts))
    return min(found, key=lambda one: one.mismatch)


def labels_from_gradient(bias_gradient: ArrayLike, batch: int) -> tuple[int, ...]:
    """Return the most likely labels of a batch: exact for a batch of one, and while the network knows little.

    One sample of a class takes 1/batch from the class's entry, to which all samples add their mean probability. Of
    several samples the gradient must have its true length; for one its direction is enough.

    >>> labels_from_gradient([0.3, -0.7, 0.4], batch=1)
    (1,)
    """
    entries = np.asarray(bias_gradient, dtype=np.float64)
    missing = batch * (1 / entries.size - entries)
    found = []
    for _ in range(batch):
        found.append(int(np.argmax(missing)))
        missing[found[-1]] -= 1
    return tuple(sorted(found))


def attack_batches(
    pictures: ArrayLike,
    labels: ArrayLike,
    *,
    batches: Sequence[int] = (1, 2, 4),
    uploads: Sequence[float] = (1.0, 0.1),
    iterations: int = 150,
    restarts: int = 2,
    repeats: int = 1,
    objective: Objective = "squares",
    smoothness: float = 0.0,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Recover pictures, (n, height, width), from the largest entries of the gradients of `repeats` batches per size.

    There is a row for each size of batch and upload. Signs are those of a network with ReLU and 32 filters.
    """
    images, classes = np.asarray(pictures, dtype=np.float64), np.asarray(labels)
    if images.ndim != 3 or classes.shape != images.shape[:1] or max(batches) > len(images) or repeats < 1:
        raise InputError(
            f"matching takes pictures (n, height, width), a label each, as many as the largest batch and one repeat or "
            f"more; got {images.shape}, {classes.shape} and {repeats}."
        )
    generator = science(random_state)
    model = _network(images.shape[1:], int(classes.max()) + 1, generator, relu=objective == "signs")
    found: dict[tuple[int, float], list[tuple[Vector, float]]] = {}
    for repeat in range(repeats):
        progress("matching gradients", repeat, repeats)
        for batch in batches:
            chosen = generator.permutation(len(images))[:batch]
            gradient = _gradient(model, images[chosen], classes[chosen])
            gradient = np.sign(gradient) if objective == "signs" else gradient
            for share in uploads:
                matched = match_gradient(
                    model,
                    gradient,
                    classes[chosen].tolist(),
                    shape=images.shape[1:],
                    uploaded=top_entries(gradient, share),
                    objective=objective,
                    smoothness=smoothness,
                    iterations=iterations,
                    restarts=restarts,
                    random_state=generator,
                )
                found.setdefault((batch, share), []).append((matched.cosines(images[chosen]), matched.mismatch))
    progress("matching gradients", repeats, repeats)
    what = "of the signs of the gradient" if objective == "signs" else "of the gradient"
    return tuple(_batch_finding(f"{share:.0%} {what}", batch, matches) for (batch, share), matches in found.items())


def _batch_finding(what: str, batch: int, matches: Sequence[tuple[Vector, float]]) -> Finding:
    cosines = np.concatenate([cosines for cosines, _ in matches])
    recovered = int(np.count_nonzero(cosines >= RECOVERED))
    return Finding(
        claim=f"{what} of a batch of {batch} does not show its pictures",
        source="selective sharing (Shokri & Shmatikov 2015), which sends it in the clear",
        proven="nothing",
        measure=f"share of {len(cosines)} pictures recovered (|cosine| >= {RECOVERED})",
        measured=rate(recovered, len(cosines)),
        verdict="leaks" if recovered else "not refuted",
        attack="gradient matching (Zhu et al. 2019)",
        details={"cosines": cosines.tolist(), "mismatch": float(np.mean([mismatch for _, mismatch in matches]))},
    )


def _network(shape: tuple[int, ...], classes: int, generator: np.random.Generator, *, relu: bool = False) -> Any:
    """Return a network whose weights are drawn from `generator`: with ReLU, as torch draws them."""
    torch = require("torch", extra="deep", purpose="matching gradients")
    nn, (height, width), channels = torch.nn, shape, 32 if relu else 6
    with seeded(generator if relu else 0, "cpu"):
        model = nn.Sequential(
            nn.Unflatten(1, (1, height)),
            nn.Conv2d(1, channels, 3, padding=1),
            nn.ReLU() if relu else nn.Sigmoid(),
            nn.Flatten(),
            nn.Linear(channels * height * width, classes),
        ).double()
    if relu:
        return model
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
