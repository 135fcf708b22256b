"""Hash learners that train a network on pairs of labelled rows (extra `deep`): DPSH, DSH, HashNet and ADSH.

On features (n, d) the network is a perceptron over standardised features and `function_` a `LayeredHash` of plain
arrays, which needs no torch. With `network=` it is a copy of any torch module, on inputs of any shape (pictures, say),
and `function_` a `NetworkHash`: save it with `save_function`, load it with `load_network_hash` and a module built like
it. The caller's module and torch's global generator stay as they were; `random_state` repeats codes on one machine.

* DPSH: Li, Wang and Kang, "Feature Learning based Deep Supervised Hashing with Pairwise Labels", IJCAI 2016.
* DSH: Liu, Wang, Shan and Chen, "Deep Supervised Hashing for Fast Image Retrieval", CVPR 2016.
* HashNet: Cao, Long, Wang and Yu, "HashNet: Deep Learning to Hash by Continuation", ICCV 2017.
* ADSH: Jiang and Li, "Asymmetric Deep Supervised Hashing", AAAI 2018.

*The losses.* `outputs` (b, bits) carry gradients, `bank` (n, bits) are the outputs of the rows they are compared with,
`similar` (b, n) is 1 for a pair of one class. DPSH, DSH and HashNet are means over pairs where the papers have sums, so
that the second term's weight does not depend on the size of a batch. ADSH learns the database's codes V (`codes_`) as
bits, column by column in closed form, and the network for queries only: in every round some rows stand in for these.
The paper wants inner products +c in a class and -c between classes; as more than two codes cannot all be opposite, the
authors' program, and this one, ask for -c r, r being the number of similar pairs for every dissimilar one.

*Training.* Adam with a cosine schedule, where the papers have plain stochastic gradients. DPSH and DSH compare a batch
with the outputs of all rows, as last computed; here with at most `_COMPARED` of them, drawn for every batch: an
unbiased estimate in linear time. A linear head starts so that every output has mean 0 and variance 1: near zero, where
small random weights would start, the losses are flat.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, check_inputs, load_torch, seeded, to_batch
from blindsight.papers.hashing.learners import LayeredHash, NetworkHash, with_head
from blindsight.papers.perceptron import mean_and_scale, perceptron, plain_layers
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.search.codes import blocks, check_bits, pack
from blindsight.search.function import Classes, HashFunction, HashLearner

__all__ = ["ADSH", "DPSH", "DSH", "HashNet"]


def dpsh_loss(outputs: Tensor, bank: Tensor, similar: Tensor, alpha: float) -> Tensor:
    """Return the mean of softplus(t) - s t over pairs, t = u.v / 2, plus alpha times the mean of (u - sign u)^2."""
    likelihood = _logistic(outputs @ bank.T / 2, similar).mean()
    return likelihood + alpha * (outputs - outputs.detach().sign()).square().mean()


def dsh_loss(outputs: Tensor, bank: Tensor, similar: Tensor, alpha: float) -> Tensor:
    """Return the contrastive loss of squared distances d, plus alpha times the mean of | |u| - 1 |.

    Half of d for similar pairs, half of max(m - d, 0) for the others, with the margin m = 2 bits.
    """
    squares = outputs.square().sum(1)[:, None] + bank.square().sum(1) - 2 * outputs @ bank.T
    distances = squares.clamp(min=0)
    apart = (2 * outputs.shape[1] - distances).clamp(min=0)
    contrast = (similar * distances + (1 - similar) * apart).mean() / 2
    return contrast + alpha * (outputs.abs() - 1).abs().mean()


def hashnet_loss(outputs: Tensor, others: Tensor, similar: Tensor, alpha: float, beta: float) -> Tensor:
    """Return the logistic loss of t = alpha tanh(beta u).tanh(beta v), similar and dissimilar pairs weighing the same.

    A similar pair weighs S / S1 and a dissimilar one S / S0, for S1 + S0 = S pairs: with ten classes nine pairs in ten
    are dissimilar. `beta` grows during training until tanh is nearly the sign.
    """
    losses = _logistic(alpha * (beta * outputs).tanh() @ (beta * others).tanh().T, similar)
    pairs, alike = similar.numel(), similar.sum()
    weights = similar * (pairs / alike.clamp(min=1)) + (1 - similar) * (pairs / (pairs - alike).clamp(min=1))
    return (weights * losses).mean()


def adsh_loss(outputs: Tensor, codes: Tensor, own: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """Return || tanh(u) V^T - c T ||^2 + gamma || V_own - tanh(u) ||^2, sums over all entries.

    `codes` V (-1, +1) are the database's, `own` those of `outputs`. The paper's `targets` T: +1 similar, -1 other.
    """
    smooth = outputs.tanh()
    products = smooth @ codes.T - outputs.shape[1] * targets
    return products.square().sum() + gamma * (own - smooth).square().sum()


def adsh_codes(codes: Tensor, smooth: Tensor, rows: Tensor, wishes: Tensor, gamma: float) -> Tensor:
    """Return V after one sweep over its columns, each the best with all others fixed; the loss never rises.

    `smooth` (m, bits) is tanh of the outputs of the database's `rows` (m,); `wishes` (n, bits) is T^T tanh(u).
    """
    codes = codes.clone()
    pull = codes.shape[1] * wishes  # -Q / 2
    pull = pull.index_add(0, rows, gamma * smooth)
    overlap = smooth.T @ smooth
    for bit in range(codes.shape[1]):
        others = codes @ overlap[:, bit] - codes[:, bit] * overlap[bit, bit]
        best = (pull[:, bit] - others).sign()
        codes[:, bit] = best.where(best != 0, codes[:, bit])
    return codes


def _logistic(scores: Tensor, similar: Tensor) -> Tensor:
    """Return softplus(t) - s t without overflow: the negative log likelihood of the pairs."""
    return (-scores.abs()).exp().log1p() + scores.clamp(min=0) - similar * scores


Rows = NDArray[np.int64]  # numbers of training rows
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
        rows = self.generator.permutation(len(self.inputs) if among is None else among)
        return np.array_split(rows, math.ceil(len(rows) / size))

    def outputs(self, rows: Rows) -> Tensor:
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
        return self.settled(np.arange(len(self.inputs)))

    def against(self, bank: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Put a batch's outputs into the bank; return them, the rows to compare with, and which pairs are similar."""
        outputs = self.outputs(rows)
        bank[rows] = outputs.detach()
        if len(bank) <= _COMPARED:
            return outputs, bank, self.similar(rows, slice(None))
        drawn = self.generator.choice(len(bank), size=_COMPARED, replace=False)
        return outputs, bank[drawn], self.similar(rows, drawn)

    def similar(self, rows: Rows, others: Any) -> Tensor:
        return (self.classes[rows][:, None] == self.classes[others]).float()

    def step(self, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            raise InputError(f"the training diverged. Use a learning_rate below {self.learning_rate}.")
        for group in self._optimiser.param_groups:
            group["lr"] = self.learning_rate * (1 + math.cos(math.pi * self.advance)) / 2
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        self._done += 1


@dataclass(eq=False, repr=False)
class DeepHashLearner(HashLearner):
    """The base of the deep learners; a subclass says how its network is trained.

    `hidden` are the widths of the perceptron's hidden layers. `alpha` is the constant of the loss; None stands for the
    published one. Any number of bits can be learned. `progress` is called after every epoch.
    """

    supervised = True

    bits: int
    hidden: tuple[int, ...] = (512,)
    epochs: int = 30
    batch: int = 128
    learning_rate: float = 1e-3
    alpha: float | None = None
    random_state: int | np.random.Generator | None = 0
    network: Module | None = None
    device: str = "cpu"
    progress: Progress = silent

    def _train(self, training: Training) -> None:
        """Train the network of `training` in place: by default, every batch against the bank of last outputs."""
        bank = training.all_settled()
        for rows in self._batches(training):
            training.step(self._loss(*training.against(bank, rows)))

    def _loss(self, outputs: Tensor, bank: Tensor, similar: Tensor) -> Tensor:
        raise NotImplementedError

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
            mean, scale = mean_and_scale(X)
            layers = perceptron((X.shape[1], *self.hidden, self.bits), self.device)
            self._train(Training(layers, (X - mean) / scale, y, generator, self.learning_rate, self.device))
            weights, biases = plain_layers(layers)
            return LayeredHash(mean, scale, tuple(weights), tuple(biases), "relu")

    def _batches(self, training: Training) -> Iterator[Rows]:
        training.steps = self.epochs * math.ceil(len(training.inputs) / self.batch)
        for epoch in range(self.epochs):
            yield from training.batches(self.batch)
            self.progress("training the network", epoch + 1, self.epochs)


class DPSH(DeepHashLearner):
    """Deep pairwise-supervised hashing: the likelihood of the pairs; `alpha` (0.1) draws outputs to -1 and +1.

    A few bits of difference settle a pair, however long the codes: they gain little from length.
    """

    def _loss(self, outputs: Tensor, bank: Tensor, similar: Tensor) -> Tensor:
        return dpsh_loss(outputs, bank, similar, 0.1 if self.alpha is None else self.alpha)


class DSH(DeepHashLearner):
    """Deep supervised hashing: a contrastive loss with margin 2 bits; `alpha` (0.02 bits) draws outputs to -1 and +1.

    The paper's 0.01 counts every bit of both rows of a pair, where `dsh_loss` takes the mean over bits of one.
    """

    def _loss(self, outputs: Tensor, bank: Tensor, similar: Tensor) -> Tensor:
        return dsh_loss(outputs, bank, similar, 0.02 * self.bits if self.alpha is None else self.alpha)


class HashNet(DeepHashLearner):
    """HashNet: weighted likelihood of the pairs within a batch, on tanh(beta u) with beta growing from 1 to 7.

    No second term is needed; beta^2 grows evenly, as the authors have it. `alpha` (10 / bits) scales inner products.
    """

    def _train(self, training: Training) -> None:
        alpha = 10 / self.bits if self.alpha is None else self.alpha
        for rows in self._batches(training):
            outputs = training.outputs(rows)
            beta = math.sqrt(1 + 48 * training.advance)
            training.step(hashnet_loss(outputs, outputs, training.similar(rows, rows), alpha, beta))


_PASSES = 3  # over the drawn rows in one round, the paper's T_in


@dataclass(eq=False, repr=False)
class ADSH(DeepHashLearner):
    """Asymmetric deep supervised hashing: in each of `epochs` rounds `drawn` rows teach the network three times over.

    `alpha` (200), the paper's gamma, holds outputs and database codes together; `codes_` are those of the fitted rows.
    """

    drawn: int = 1000

    def _train(self, training: Training) -> None:
        if self.drawn < 1:
            raise InputError(f"drawn must be at least 1 row; got {self.drawn}.")
        gamma = 200.0 if self.alpha is None else self.alpha
        n = len(training.inputs)
        size = min(self.drawn, n)
        training.steps = self.epochs * _PASSES * math.ceil(size / self.batch)
        against = _dissimilar_wish(training.classes)
        codes = training.all_settled().sign()
        codes = codes + (codes == 0)
        for epoch in range(self.epochs):
            drawn = training.generator.choice(n, size=size, replace=False)
            for _ in range(_PASSES):
                for rows in training.batches(self.batch, drawn):
                    targets = training.similar(rows, slice(None)) * (1 + against) - against
                    loss = adsh_loss(training.outputs(rows), codes, codes[rows], targets, gamma)
                    training.step(loss / (n * len(rows)))
            codes = _improved(codes, training, drawn, against, gamma)
            self.progress("training the network", epoch + 1, self.epochs)
        self.codes_ = pack(codes.cpu().numpy())


def _improved(codes: Tensor, training: Training, drawn: Rows, against: float, gamma: float) -> Tensor:
    smooth = training.settled(drawn).tanh()
    classes = training.classes
    sums = smooth.new_zeros(int(classes.max()) + 1, smooth.shape[1]).index_add(0, classes[drawn], smooth)
    wishes = (1 + against) * sums[classes] - against * smooth.sum(0)  # T^T tanh(u), without the n x m matrix T
    return adsh_codes(codes, smooth, load_torch().as_tensor(drawn, device=smooth.device), wishes, gamma)


def _dissimilar_wish(classes: Tensor) -> float:
    """Return r: how many pairs are of one class for every pair that is not."""
    counts = classes.bincount().double()
    similar = float(counts.square().sum())
    return similar / (float(counts.sum()) ** 2 - similar)
