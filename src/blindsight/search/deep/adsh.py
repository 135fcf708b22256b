"""ADSH: the codes of the database are learned as bits, and a network only for the queries.

Jiang and Li, "Asymmetric Deep Supervised Hashing", AAAI 2018. In every round some rows are drawn as stand-ins for
queries; the network is trained so that their smooth codes have the wished inner products with the database's codes V,
then V is improved column by column in closed form. V (`codes_`) may be searched with hashed queries, or be replaced by
hashing the database with `function_`, which needs no labels.

The paper wishes for inner products +c in a class and -c between classes. More than two codes cannot all be opposite:
between classes the authors' programme asks for -c r instead, r being the number of similar pairs for every dissimilar
one, so that the wishes sum to zero. So does this one.
"""

import math

import numpy as np

from blindsight.errors import InputError
from blindsight.extras import Module, Tensor, load_torch
from blindsight.progress import Progress, silent
from blindsight.search.codes import Codes, pack
from blindsight.search.deep.learner import DeepHashLearner
from blindsight.search.deep.losses import adsh_codes, adsh_loss
from blindsight.search.deep.training import Rows, Training

_PASSES = 3  # over the drawn rows in one round, the paper's T_in


class ADSH(DeepHashLearner):
    """Asymmetric deep supervised hashing: in each of `epochs` rounds `drawn` rows teach the network three times over.

    `alpha` (200), the paper's gamma, holds the network's outputs and the database's codes together. `codes_` are the
    codes learned for the rows given to `fit`, packed.
    """

    codes_: Codes

    def __init__(
        self,
        bits: int,
        hidden: tuple[int, ...] = (512,),
        epochs: int = 30,
        batch: int = 128,
        learning_rate: float = 1e-3,
        alpha: float | None = None,
        drawn: int = 1000,
        random_state: int | np.random.Generator | None = 0,
        network: Module | None = None,
        device: str = "cpu",
        progress: Progress = silent,
    ) -> None:
        super().__init__(bits, hidden, epochs, batch, learning_rate, alpha, random_state, network, device, progress)
        self.drawn = drawn

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
    """Return the database's codes after one sweep against the network's present outputs for the drawn rows."""
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
