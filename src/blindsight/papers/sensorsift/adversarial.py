"""Adversarial training: a network that tells public attributes while adversaries try to read private ones from it.

No guarantee: attackers on other rows may find more than the adversaries on the training rows; only verification tells.
Its use: several real numbers, non-linear in the features, against non-linear attackers, too. The encoder f (d features,
one hidden layer, K outputs of unit variance) minimises

    public loss + privacy * (what adversaries read + KERNEL * MMD^2),

after Ganin & Lempitsky, "Unsupervised Domain Adaptation by Backpropagation", ICML 2015, and Edwards & Storkey,
"Censoring Representations with an Adversary", ICLR 2016, with two changes: adversaries are several, of different
shapes, and are restarted in turn; and what they read counts only as far as it beats ignorance (ln 2), so that the
encoder hides and does not mislead. The kernel term is the maximum mean discrepancy between the outputs with and without
the attribute (Gretton et al., JMLR 2012). All losses weigh both answers of an attribute the same; unknown labels count
in none.
"""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch, seeded
from blindsight.papers.perceptron import mean_and_scale, perceptron, plain_layers
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.fit import SiftMethod, register_method
from blindsight.sift.labels import Labels, check_sides
from blindsight.sift.ppls import SiftEstimator
from blindsight.sift.sift import Features, Floats, LayeredSift, Layers, finite_blocks
from blindsight.validation import check_shape

KERNEL = 3.0
_BANDWIDTHS = (0.1, 0.5, 2.0)  # of the Gaussian kernels, in units of the outputs' total variance
_SHAPES = ((64,), (64, 64), (128,))  # hidden layers of the adversaries, in turn
_HEAD = 32  # hidden units that read the public attributes
_DROPPED_FEATURES, _DROPPED_UNITS, _DECAY = 0.2, 0.5, 1e-3  # against learning rows by heart
_ADVERSARY_RATE = 3e-3
_FRESH_STARTS = 5  # of adversaries during training, none in its last fifth


@dataclass(eq=False, repr=False)
class AdversarialSift(SiftEstimator):
    """Fits a `LayeredSift` of `n_components` numbers; `privacy` weighs hiding against telling. Needs extra `deep`."""

    n_components: int = 5
    privacy: float = 1.0
    _: KW_ONLY
    hidden: int = 128
    adversaries: int = 3
    steps: int = 1000
    batch: int = 512
    learning_rate: float = 1e-3
    random_state: int = 0
    pipeline: str = ""
    progress: Progress = silent
    sift_: LayeredSift = field(init=False)

    def fit(self, X: Features, public: ArrayLike, private: ArrayLike) -> Self:
        """Learn from features (n, d) and labels 1, 0 and -1 (unknown), each (n,) or (n, attributes)."""
        self._check_parameters()
        rows = check_shape(X)
        told, hidden = check_sides(public, private, rows.shape[0])
        features = np.concatenate(list(finite_blocks(rows, rows.shape[1])))
        if not np.ptp(features, axis=0).any():
            raise InputError("no feature varies. Are these really features of different pictures?")
        mean, scale = mean_and_scale(features)
        generator = science(self.random_state)
        with seeded(generator, "cpu"):
            scaled = load_torch().from_numpy((features - mean) / scale)
            encoder = self._train(scaled, _Side(told), _Side(hidden), generator)
        self.sift_ = LayeredSift(_frozen(encoder, scaled, mean, scale), pipeline=self.pipeline)
        self.n_features_in_ = self.sift_.dimension
        return self

    def _check_parameters(self) -> None:
        counts = (self.n_components, self.hidden, self.adversaries, self.steps)
        if min(counts) < 1 or self.batch < 2 or not self.learning_rate > 0 or not 0 <= self.privacy < math.inf:
            raise InputError(
                "n_components, hidden, adversaries and steps must be at least 1, batch at least 2, learning_rate "
                f"positive and privacy in [0, inf); got {counts}, {self.batch}, {self.learning_rate}, {self.privacy}."
            )

    def _train(self, scaled: Tensor, public: "_Side", private: "_Side", generator: np.random.Generator) -> Module:
        """The outputs are not of unit variance yet."""
        torch = load_torch()
        nn = torch.nn
        wide = (scaled.shape[1], self.hidden, self.n_components)
        first, relu, last = perceptron(wide)
        encoder = nn.Sequential(nn.Dropout(_DROPPED_FEATURES), first, relu, nn.Dropout(_DROPPED_UNITS), last)
        unit = nn.BatchNorm1d(self.n_components, affine=False)
        head = perceptron((self.n_components, _HEAD, public.labels.shape[1]))
        optimiser = torch.optim.AdamW(
            [*encoder.parameters(), *head.parameters()], self.learning_rate, weight_decay=_DECAY
        )
        rivals = [_Adversary(self.n_components, _SHAPES[i % len(_SHAPES)], private) for i in range(self.adversaries)]
        renewal = max(1, self.steps // _FRESH_STARTS)
        for step in range(self.steps):
            if step and step % renewal == 0 and step < 0.8 * self.steps:
                rivals[step // renewal % len(rivals)].renew()
            rows = torch.from_numpy(generator.integers(len(scaled), size=self.batch))
            outputs = unit(encoder(scaled[rows]))
            for rival in rivals:
                rival.learn(outputs.detach(), rows)
            read = sum(rival.reads(outputs, rows) for rival in rivals) / len(rivals)
            hidden = read + KERNEL * _discrepancy(outputs, private.labels[rows])
            loss = public.loss(head(outputs), rows) + self.privacy * hidden
            optimiser.param_groups[0]["lr"] = self.learning_rate * (1 + math.cos(math.pi * step / self.steps)) / 2
            _descend(optimiser, loss)
            self.progress("training against adversaries", step + 1, self.steps)
        return encoder.eval()


class _Side:
    """Labels as tensors, and weights of mean 1 under which both answers weigh the same, unknown ones 0."""

    def __init__(self, labels: Labels) -> None:
        yes, no = labels == 1, labels == 0
        weights = (yes / yes.mean(axis=0) + no / no.mean(axis=0)) / 2
        self.labels, self.weights = (load_torch().from_numpy(part.astype(np.float32)) for part in (labels, weights))

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        losses = load_torch().nn.functional.softplus(logits) - self.labels[rows] * logits
        return (self.weights[rows] * losses).mean()


class _Adversary:
    def __init__(self, inputs: int, shape: tuple[int, ...], private: _Side) -> None:
        self._widths = (inputs, *shape, private.labels.shape[1])
        self._private = private
        self.renew()

    def renew(self) -> None:
        self._network = perceptron(self._widths)
        self._optimiser = load_torch().optim.Adam(self._network.parameters(), _ADVERSARY_RATE)

    def learn(self, outputs: Tensor, rows: Tensor) -> None:
        _descend(self._optimiser, self._private.loss(self._network(outputs), rows))

    def reads(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return (math.log(2) - self._private.loss(self._network(outputs), rows)).clamp(min=0)


def _discrepancy(outputs: Tensor, labels: Tensor) -> Tensor:
    """MMD^2 between outputs with and without an attribute, the mean over attributes and bandwidths."""
    yes, no = (labels == 1).float(), (labels == 0).float()
    signs = yes / yes.sum(0).clamp(min=1) - no / no.sum(0).clamp(min=1)
    sizes = outputs.square().mean(1)
    squares = sizes[:, None] + sizes - 2 * (outputs @ outputs.T) / outputs.shape[1]
    kernel = sum((-squares / (2 * width)).exp() for width in _BANDWIDTHS) / len(_BANDWIDTHS)
    return (signs * (kernel @ signs)).sum(0).mean()


def _descend(optimiser: Any, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def _frozen(encoder: Module, scaled: Tensor, mean: Floats, scale: Floats) -> Layers:
    """The outputs become centred and of unit variance on the training rows."""
    torch = load_torch()
    with torch.no_grad():
        outputs = encoder(scaled).double()
    deviation = outputs.std(0, correction=0)
    if not (torch.isfinite(outputs).all() and (deviation > 0).all()):
        raise InputError(
            "the training came to nothing: outputs are constant or overflow. Lower learning_rate or privacy."
        )
    centre, deviation = outputs.mean(0).numpy(), deviation.numpy()
    weights, biases = plain_layers(encoder)
    weights[-1], biases[-1] = weights[-1] / deviation, (biases[-1] - centre) / deviation
    return Layers(mean, scale, tuple(weights), tuple(biases))


register_method(
    "adversarial",
    SiftMethod(
        "Adversarial network",
        lambda made: AdversarialSift(made.components, made.privacy, random_state=made.verifier.random_state),
        weighs=True,
    ),
)
