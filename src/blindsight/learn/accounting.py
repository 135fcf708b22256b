"""How a network is trained under noise: rate and warning from epsilon, and what is proven of a member that is alone.

*Rate from epsilon.* A step of private descent on n records with clip c follows a noisy mean, whose noise in d numbers,
of deviation s c / n, is r = s sqrt(d) / n times as long as the longest signal. Its second moment is c^2 (1 + r^2), and
stochastic descent over T such steps ends R c sqrt((1 + r^2) / T) above the optimum if its rate is that of plain descent
divided by sqrt(1 + r^2) (Nemirovski et al. 2009). All that this takes is public: the numbers of records, members and
parameters. In every step every record takes part: at the same epsilon, T steps on all n records have noise that is
sqrt(T) times shorter beside the signal than T steps on n / T records each.
"""

import math
import warnings
from dataclasses import dataclass

from blindsight.dp.accounting import GaussianLoss, compose
from blindsight.learn.model import single_member_statement
from blindsight.learn.modules import rate_of
from blindsight.learn.protection import RecordGaussian
from blindsight.rng import ByteSource
from blindsight.statement import PrivacyStatement, randomness_of

ROUNDS = 20
"""Rounds where no number is named; with a schedule times the root of the rounds that a turn of all numbers takes."""

LARGEST_BATCH = 32
"""Pictures of a step where no number is named, and there are enough for `_STEPS` of them in a pass."""

_LEAST_BATCH, _STEPS = 4, 16
_SGD_RATE = 0.1  # of members' own steps, of which a mean is made
_NOISY_RATE = 0.2  # of steps on the gradients of all records


class SwampedWarning(UserWarning):
    """The noise is larger than what can be learned under it."""


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How a network is trained: chosen, or as asked for.

    `batch_size` is None where a step is on all records. `noise_ratio` is the length of the noise in a step over that of
    the longest signal; 0 without privacy.
    """

    rounds: int
    batch_size: int | None
    local_epochs: int
    learning_rate: float
    clip: float | None = None
    noise_multiplier: float = 0.0
    noise_ratio: float = 0.0


def usual_rounds(share: float | None) -> int:
    """Return the usual number of rounds if each is about this share of the numbers.

    >>> usual_rounds(None), usual_rounds(0.1)
    (20, 64)
    """
    return math.ceil(ROUNDS * math.sqrt(math.ceil(1 / (share or 1.0))))


def usual_batch(pictures: int) -> int:
    """Return the usual batch of a member with this number of pictures: a mean of few steps learns little.

    >>> usual_batch(1000), usual_batch(160), usual_batch(10)
    (32, 10, 4)
    """
    return min(LARGEST_BATCH, max(_LEAST_BATCH, pictures // _STEPS))


def usual_rate(optimiser: str, noise_ratio: float | None = None) -> float:
    """Return the usual learning rate: of members' own steps, or of steps on noisy sums of gradients."""
    if noise_ratio is not None:
        return _NOISY_RATE / math.sqrt(1 + noise_ratio**2)
    return _SGD_RATE if optimiser == "sgd" else rate_of(optimiser)


def warn_if_swamped(plan: TrainingPlan, epsilon: float, dimension: int) -> None:
    """Warn if noise is longer than all that can be learned under it, and say what to choose."""
    signal = math.sqrt(plan.rounds)
    if plan.noise_ratio > signal:
        warnings.warn(
            f"at epsilon={epsilon:g} the noise of a step is {plan.noise_ratio:.3g} times its longest signal in "
            f"{dimension:,} parameters, and {plan.rounds} rounds average only {signal:.3g} of it out. Use more "
            "pictures or members, a larger epsilon, or fewer parameters (freeze layers).",
            SwampedWarning,
            stacklevel=4,
        )


def alone_statement(noise: RecordGaussian | None, steps: int, delta: float, source: ByteSource) -> PrivacyStatement:
    """Return the statement of a network that one member trained alone, in so many steps on all its records."""
    if noise is None:
        return single_member_statement()
    proven = compose([GaussianLoss(noise.noise_multiplier, count=steps)], delta=delta)
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=f"{steps} steps on all records (Abadi et al. 2016): each gradient cut to a Euclidean length of "
        f"{noise.clip:g}, Gaussian noise of {noise.noise_multiplier:.6g} times that on their sum",
        unit="record",
        epsilon=proven.epsilon,
        delta=delta,
        neighbours="add/remove",
        accountant=proven.accountant,
        randomness=randomness_of(source),
        who_sees={
            "member": "its own pictures and the model",
            "everybody else": "nothing, until the model is passed on",
        },
        assumptions=(
            "how many records there are, and the shape of a picture, are public",
            "the public pictures, which give the first model and the clip, hold none of the records",
        ),
        not_protected=(
            f"a record beyond epsilon = {proven.epsilon:.3g}",
            "what is true of the records in general, one of them or not",
        ),
    )
