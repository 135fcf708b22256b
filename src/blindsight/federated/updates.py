"""Updates of any model as vectors that schemes add up: weighted by examples, sparse in blocks, with nothing lost.

The first number of a vector is the owner's weight w, the others are w times its change of the model: their sums over
owners give the weighted mean, and nobody sees an owner's weight.

With `sparsity` only the largest blocks are sent, besides the first with the weight, and the rest is remembered and
sent later (`learn.sparsity`). Without, an owner remembers nothing: what misses a sum is learned anew from the next
model, as in plain federated averaging.
"""

from dataclasses import asdict, dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.rounds import Memory, Proposal
from blindsight.learn.sparsity import top_blocks

Floats = NDArray[np.float64]


class _BriefingMessage(Message, name="federated/update-briefing.1"):
    sparsity: float
    block: int
    most_examples: int
    weighted_by: Annotated[str, Limit(256)]


@dataclass(frozen=True)
class Briefing:
    """How owners make their vectors: the share of numbers they do *not* send, in blocks of how many.

    An owner's weight is its number of examples over `most_examples`, at most one; with 0, all weigh the same. Apps
    report that number as `weighted_by`.
    """

    sparsity: float = 0.9
    block: int = 1
    most_examples: int = 0
    weighted_by: str = "num-examples"

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to send."""
        if not 0 <= self.sparsity < 1:
            raise InputError(f"sparsity must be in [0, 1); got {self.sparsity}.")
        if self.block < 1 or self.most_examples < 0:
            raise InputError(f"a block has at least 1 number, and examples are counted; got {self}.")

    def room(self, dimension: int) -> int:
        """Return how many of so many numbers an owner sends.

        >>> Briefing(sparsity=0.9, block=10).room(200)
        20
        """
        return int(np.count_nonzero(_chosen(np.ones(dimension), self)))

    def to_bytes(self) -> bytes:
        return encode(_BriefingMessage(**asdict(self)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        message = decode(data, _BriefingMessage, max_bytes=4096)
        try:
            return cls(message.sparsity, message.block, message.most_examples, message.weighted_by)
        except InputError as error:
            raise MessageError(f"the briefing of the run is impossible: {error}") from None


def propose_update(change: Floats, examples: float, memory: Memory, briefing: Briefing) -> Proposal:
    """Return what an owner sends of its change, and what it will remember once that has arrived.

    >>> briefing = Briefing(sparsity=0.5, block=1, most_examples=100)
    >>> proposal = propose_update(np.array([0.5, 8.0, 1.0]), 25, Memory(None, None), briefing)
    >>> proposal.sent, proposal.memory.held
    (array([0.25, 0.  , 2.  , 0.  ]), array([0.   , 0.125, 0.   , 0.25 ]))
    """
    if not np.isfinite(change).all():
        raise MessageError("what was learned is not finite. Look for a learning rate that is too high.")
    weight = min(1.0, examples / briefing.most_examples) if briefing.most_examples else 1.0
    wanted = np.concatenate([[weight], weight * change])
    if memory.held is not None:
        wanted[1:] += memory.held[1:]
    chosen = _chosen(wanted, briefing)
    held = np.where(chosen, 0.0, wanted) if briefing.sparsity else None
    return Proposal(np.where(chosen, wanted, 0.0), Memory(held, None))


def mean_change(values: Floats, contributors: int) -> Floats:
    """Return the weighted mean of the owners' changes from the sum of so many owners' vectors.

    Weights are above 0 and at most 1. If their sum shows that one was not, the mean would be its owner's to choose.
    """
    if not 0 < values[0] <= contributors:
        raise PrivacyError(
            f"the weights of {contributors} owners add up to {values[0]:g}; it must be above 0 and at most "
            f"{contributors}: there is no mean, and somebody may have sent a forged weight."
        )
    mean: Floats = values[1:] / values[0]
    return mean


def _chosen(wanted: Floats, briefing: Briefing) -> NDArray[np.bool_]:
    """Mark what is sent: the block with the weight, and the largest of the others."""
    if not briefing.sparsity:
        return np.ones(wanted.shape, dtype=np.bool_)
    first, others = wanted[: briefing.block], wanted[briefing.block :]
    chosen = top_blocks(others, briefing.block, 1 - briefing.sparsity)
    return np.concatenate([np.ones(first.shape, dtype=np.bool_), chosen])
