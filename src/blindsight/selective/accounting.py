"""What selective sharing costs in privacy: epsilon as the papers count it, and what that comes to.

*The papers* (Shokri and Shmatikov 2015; Bu 2019) name one epsilon *per parameter and upload*. A participant uploads
many parameters many times, and each value is about the same photos, so these epsilons compose: `compose_sharing` adds
them up (basic) and composes their privacy loss distributions (PLD), per upload and per participant over a whole run.

*Where nothing is proven* `upload_loss` is None and the figures are those that would hold *at best*: noise on values
does nothing for places chosen by size (`largest`), and `PublishedLaplace` bounds no change, so a single value can give
any amount away.

*A photo* that is in exactly one batch pays for that batch alone, however many follow, under `RecordGaussian`: all that
leaves training is noisy, the rest is post-processing, and batches are disjoint (parallel composition; McSherry 2009).
Under noise on uploads its traces stay in the participant's own copy, in residuals and in the optimiser's memory and
shape later uploads, so the photo pays for all of them. Under `ParticipantGaussian` it pays more than its participant:
a participant's change counts or is zero, which moves an upload by at most `clip`, but with and without a photo the
change may point in opposite directions, 2 `clip` apart; so its row is composed with half the noise multiplier.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from blindsight.dp.accounting import BoundedLoss, Composition, GaussianLoss, LaplaceLoss, Loss, compose
from blindsight.errors import InputError
from blindsight.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, RecordGaussian
from blindsight.selective.protection import Sharing
from blindsight.statement import Neighbours, Unit, rounded_up

_LEAST_NOISE = 1e-4  # times the sensitivity: no figure is stated for less
_RARE = 1e-24  # the e^-70 of `blindsight.dp.mechanisms`, and noise cut off for up to 10^13 values


def upload_loss(sharing: Sharing, *, dimension: int, steps: int = 1) -> Loss | None:
    """Return what one upload costs the unit that is protected (`protected_unit`); None where nothing is proven.

    `steps` tells for how many local steps a batch is used, which matters to noise inside training alone. Where noise is
    shared the loss is that of the opened sum, for anyone who knows the noise of one other participant (its own).

    >>> upload_loss(Sharing(0.1, select="random", bound=0.1, noise=Laplace(1.0)), dimension=5124)
    LaplaceLoss(epsilon=1.0, count=512)
    >>> upload_loss(Sharing(0.1, select="largest", bound=0.1, noise=Laplace(1.0)), dimension=5124) is None
    True
    """
    hides_places = sharing.select != "largest" or sharing.count(dimension) == dimension
    if isinstance(sharing.noise, PublishedLaplace) or (isinstance(sharing.noise, Laplace) and not hides_places):
        return None
    return _loss_at_best(sharing, dimension, steps)


def protected_unit(sharing: Sharing) -> Unit:
    """Return whom the noise is made for: a record is a photo, a person is a participant with all its photos."""
    return "record" if isinstance(sharing.noise, RecordGaussian) else "person"


def neighbouring(sharing: Sharing) -> Neighbours:
    """Return the relation that losses are stated for: Gaussian noise hides a unit's part, Laplace its exchange."""
    return "replace" if isinstance(sharing.noise, Laplace | PublishedLaplace) else "add/remove"


class CostRow(NamedTuple):
    """One line of the table: epsilon by addition, and the least that is proven with delta, and by which accountant."""

    what: str
    basic: float
    composed: float
    accountant: str


@dataclass(frozen=True)
class SharingCost:
    """What a whole run costs. `proven` tells whether the figures hold, or would hold at best."""

    sharing: Sharing
    dimension: int
    uploads: int
    delta: float
    proven: bool
    upload: Composition | None
    participant: Composition | None
    record: Composition | None

    @property
    def counted(self) -> float | None:
        """Epsilon per parameter and upload, the papers' count; None where noise is not made for single parameters."""
        noise = self.sharing.noise
        return noise.epsilon if isinstance(noise, Laplace | PublishedLaplace) else None

    @property
    def epsilon(self) -> float:
        """The least proven epsilon of a protected unit over the whole run; infinite where nothing is proven."""
        whole = self.record if protected_unit(self.sharing) == "record" else self.participant
        return whole.epsilon if self.proven and whole is not None else math.inf

    def rows(self) -> list[CostRow]:
        """Return the table: from one parameter of one upload to all of a participant's uploads, and one photo."""
        rows = []
        if self.counted is not None:
            what = "one parameter in one upload, as the papers count"
            rows.append(CostRow(what, self.counted, self.counted, "one release"))
        named = {
            "one upload": self.upload,
            f"a participant, over {number_of(self.uploads, 'upload')}": self.participant,
            "a photo that is in one batch": self.record,
        }
        for what, cost in named.items():
            if cost is None:
                rows.append(CostRow(what, math.inf, math.inf, "none"))
            else:
                at_best = "" if self.proven else ", at best"
                rows.append(CostRow(what + at_best, cost.basic, cost.epsilon, cost.accountant))
        return rows

    def sentence(self) -> str:
        """Return the table in one plain sentence.

        >>> paper = Sharing(0.1, select="largest", bound=0.1, noise=PublishedLaplace(epsilon=1.0))
        >>> print(compose_sharing(paper, dimension=5124, uploads=74, delta=1e-5).sentence())
        ... # doctest: +NORMALIZE_WHITESPACE
        Epsilon = 1 is for one parameter in one upload: 512 parameters in each of 74 uploads come to epsilon = 37,888
        per participant (14,616 at delta = 1e-05), and not even that is proven.
        """
        values = self.sharing.count(self.dimension)
        if self.sharing.noise is None:
            return "There is no noise, so nothing bounds what an upload tells about the photos."
        if self.record is not None and protected_unit(self.sharing) == "record":
            return (
                f"A photo that is in one batch loses epsilon = {figure(self.record.epsilon)} at delta = "
                f"{self.delta:g}, whatever is shared afterwards; a participant with many photos is not protected as a "
                "whole."
            )
        assert self.participant is not None
        if self.counted is None:
            come = "comes" if self.uploads == 1 else "come"
            return (
                f"{number_of(self.uploads, 'upload')} {come} to epsilon = {figure(self.participant.epsilon)} at "
                f"delta = {self.delta:g} per participant, all its photos together."
            )
        proof = "" if self.proven else ", and not even that is proven"
        each = "one upload" if self.uploads == 1 else f"each of {self.uploads} uploads"
        come = "comes" if values == self.uploads == 1 else "come"
        return (
            f"Epsilon = {self.counted:g} is for one parameter in one upload: {number_of(values, 'parameter')} in "
            f"{each} {come} to epsilon = {figure(self.participant.basic)} per participant "
            f"({figure(self.participant.epsilon)} at delta = {self.delta:g}){proof}."
        )


def compose_sharing(sharing: Sharing, *, dimension: int, uploads: int, delta: float, steps: int = 1) -> SharingCost:
    """Return what `uploads` uploads of one participant cost it, and one of its photos that is in exactly one batch.

    `steps` is how many local steps a batch is used for.
    """
    for name, number in (("dimension", dimension), ("uploads", uploads), ("steps", steps)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InputError(f"{name} must be a whole number of at least 1; got {number!r}.")
    if not 0 <= delta < 1 or (delta == 0 and isinstance(sharing.noise, ParticipantGaussian | RecordGaussian)):
        raise InputError(f"delta must be in [0, 1), and above 0 for Gaussian noise; got {delta}.")
    loss = _loss_at_best(sharing, dimension, steps)
    proven = upload_loss(sharing, dimension=dimension, steps=steps) is not None
    if loss is None:
        return SharingCost(sharing, dimension, uploads, delta, proven, None, None, None)
    upload = _composed(loss, 1, sharing, dimension, delta)
    if isinstance(sharing.noise, RecordGaussian):
        return SharingCost(sharing, dimension, uploads, delta, proven, upload, None, upload)
    participant = _composed(loss, uploads, sharing, dimension, delta)
    record: Composition | None = participant
    if isinstance(loss, GaussianLoss):
        half = loss.noise_multiplier / 2
        record = _composed(GaussianLoss(half), uploads, sharing, dimension, delta) if half >= _LEAST_NOISE else None
    return SharingCost(sharing, dimension, uploads, delta, proven, upload, participant, record)


def figure(epsilon: float) -> str:
    """Return an epsilon for a person to read, rounded up as in the headline of a statement.

    >>> figure(0.12341), figure(7.0), figure(37887.2), figure(math.inf)
    ('0.124', '7.00', '37,888', 'infinite')
    """
    return "infinite" if math.isinf(epsilon) else rounded_up(epsilon)


def number_of(number: int, what: str) -> str:
    """Return a number of things in words: one of them is no plural.

    >>> number_of(1, "upload"), number_of(74, "upload")
    ('1 upload', '74 uploads')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _loss_at_best(sharing: Sharing, dimension: int, steps: int) -> Loss | None:
    """Return what an upload costs if every change keeps the bound and places tell nothing; None without noise."""
    noise, count = sharing.noise, sharing.count(dimension)
    if noise is None:
        return None
    if isinstance(noise, RecordGaussian):
        return GaussianLoss(noise.noise_multiplier, count=steps)
    if isinstance(noise, ParticipantGaussian):
        return GaussianLoss(noise.noise_multiplier)
    if sharing.select == "threshold":
        return BoundedLoss(noise.epsilon, count=count)
    return LaplaceLoss(noise.epsilon, count=count)


def _composed(loss: Loss, uploads: int, sharing: Sharing, dimension: int, delta: float) -> Composition:
    """Compose `uploads` equal losses, and add what the coarse grid of shared noise may cost beyond real numbers."""
    repeated = replace(loss, count=loss.count * uploads)
    noise = sharing.noise
    if not isinstance(noise, ParticipantGaussian) or noise.among == 1:
        return compose([repeated], delta=delta)
    # h of `blindsight.dp.mechanisms`: (epsilon + h, e^h delta + e^-70) if noise of real numbers has (epsilon, delta).
    assert isinstance(loss, GaussianLoss)
    size = sharing.count(dimension)
    variance = noise.enough * noise.grid(size).noise ** 2
    extra = uploads * (size / 3 + 35 + loss.noise_multiplier**-2) / variance
    cost = compose([repeated], delta=max(delta - uploads * _RARE, 0.0) * math.exp(-extra))
    return Composition(delta, cost.pld + extra, cost.rdp + extra, cost.basic + extra)
