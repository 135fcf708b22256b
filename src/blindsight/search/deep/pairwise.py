"""DPSH, DSH and HashNet: networks trained so that rows of one class get codes that are close, and others do not."""

import math

from blindsight.search.deep.learner import DeepHashLearner
from blindsight.search.deep.losses import dpsh_loss, dsh_loss, hashnet_loss
from blindsight.search.deep.training import Training


class DPSH(DeepHashLearner):
    """Deep pairwise-supervised hashing: the likelihood of the pairs; `alpha` (0.1) draws outputs to -1 and +1.

    The likelihood counts as settled what differs by a few bits, however long the codes: they gain little from length.
    """

    def _train(self, training: Training) -> None:
        alpha = 0.1 if self.alpha is None else self.alpha
        bank = training.all_settled()
        for rows in self._batches(training):
            outputs, others, similar = training.against(bank, rows)
            training.step(dpsh_loss(outputs, others, similar, alpha))


class DSH(DeepHashLearner):
    """Deep supervised hashing: a contrastive loss with margin 2 bits; `alpha` (0.02 bits) draws outputs to -1 and +1.

    The paper's 0.01 counts every bit of both rows of a pair, where `dsh_loss` takes the mean over bits of one.
    """

    def _train(self, training: Training) -> None:
        alpha = 0.02 * self.bits if self.alpha is None else self.alpha
        bank = training.all_settled()
        for rows in self._batches(training):
            outputs, others, similar = training.against(bank, rows)
            training.step(dsh_loss(outputs, others, similar, alpha))


class HashNet(DeepHashLearner):
    """HashNet: weighted likelihood of the pairs within a batch, on tanh(beta u) with beta growing from 1 to 7.

    So training begins smooth and ends nearly on codes, without a second term; beta^2 grows evenly, as in the authors'
    schedule. `alpha` (10 / bits) scales the inner products.
    """

    def _train(self, training: Training) -> None:
        alpha = 10 / self.bits if self.alpha is None else self.alpha
        for rows in self._batches(training):
            outputs = training.outputs(rows)
            beta = math.sqrt(1 + 48 * training.advance)
            training.step(hashnet_loss(outputs, outputs, training.similar(rows, rows), alpha, beta))
