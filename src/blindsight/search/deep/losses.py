"""The published losses of deep hashing, as functions of torch tensors; nothing here imports torch.

`outputs` (b, bits) come from the network and carry gradients; `bank` (n, bits) are the outputs of the rows they are
compared with; `similar` (b, n) is 1 for a pair of one class, 0 otherwise.

* DPSH: Li, Wang and Kang, "Feature Learning based Deep Supervised Hashing with Pairwise Labels", IJCAI 2016.
* DSH: Liu, Wang, Shan and Chen, "Deep Supervised Hashing for Fast Image Retrieval", CVPR 2016.
* HashNet: Cao, Long, Wang and Yu, "HashNet: Deep Learning to Hash by Continuation", ICCV 2017.
* ADSH: Jiang and Li, "Asymmetric Deep Supervised Hashing", AAAI 2018.

The first three are means over the pairs, where the papers have sums: the weight of the second term does not hang on the
size of a batch.
"""

from typing import Any

Tensor = Any
"""A torch.Tensor."""


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

    A similar pair weighs S / S1 and a dissimilar one S / S0, where S1 + S0 = S pairs are there: with ten classes nine
    pairs in ten are dissimilar and would drown the rest. `beta` grows during training until tanh is nearly the sign.
    """
    losses = _logistic(alpha * (beta * outputs).tanh() @ (beta * others).tanh().T, similar)
    pairs, alike = similar.numel(), similar.sum()
    weights = similar * (pairs / alike.clamp(min=1)) + (1 - similar) * (pairs / (pairs - alike).clamp(min=1))
    return (weights * losses).mean()


def adsh_loss(outputs: Tensor, codes: Tensor, own: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """Return || tanh(u) V^T - c T ||^2 + gamma || V_own - tanh(u) ||^2, sums over all entries.

    `codes` V are -1 and +1 for all n rows of the database, `own` the codes of the rows that `outputs` belong to. Of the
    `targets` T the paper says +1 for similar pairs and -1 for the others.
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
