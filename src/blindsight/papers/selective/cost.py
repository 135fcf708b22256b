"""What PPDL costs in privacy: epsilon as the papers count it (Bu 2019, section 6), and what that comes to.

Bu writes that "epsilon is the privacy budget, and set to be 1"; Shokri and Shmatikov, whose mechanism it is, count it
*per parameter and upload*, and so does this module. A participant uploads many parameters many times, and each value is
about the same photos, so these epsilons compose: `compose_sharing` adds them up (basic) and composes their privacy loss
distributions (PLD), per upload and per participant over a whole run.

*Where nothing is proven* `upload_loss` is None and the figures are those that would hold *at best*: noise on values
does nothing for places chosen by size (`largest`), and `PublishedLaplace` bounds no change, so a single value can give
any amount away.

*A photo* that is in exactly one batch pays for that batch alone, however many follow, under `RecordGaussian`: all that
leaves training is noisy, the rest is post-processing, and batches are disjoint (parallel composition; McSherry 2009).
Under noise on uploads its traces stay in the participant's own copy, in residuals and in the optimiser's memory and
shape later uploads, so the photo pays for all of them. Under `ParticipantGaussian` it pays more than its participant:
a participant's change counts or is zero, which moves an upload by at most `clip`, but with and without a photo the
change may point in opposite directions, 2 `clip` apart; so its row is composed with half the noise multiplier.

`sharing_statement` is what each mode guarantees, to whom, and who sees what.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from blindsight.dp.accounting import Composition, GaussianLoss, Loss, compose
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, Sharing
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Claim, PrivacyStatement, randomness_of, rounded_up

_LEAST_NOISE = 1e-4  # times the sensitivity: no figure is stated for less


def upload_loss(sharing: Sharing, *, dimension: int, steps: int = 1) -> Loss | None:
    """Return what one upload costs the unit that is protected (`Sharing.unit`); None where nothing is proven.

    `steps` is for how many local steps a batch is used, which matters to noise inside training alone.

    >>> upload_loss(Sharing(0.1, select="random", bound=0.1, noise=Laplace(1.0)), dimension=5124)
    LaplaceLoss(epsilon=1.0, count=512)
    >>> upload_loss(Sharing(0.1, select="largest", bound=0.1, noise=Laplace(1.0)), dimension=5124) is None
    True
    """
    hides_places = sharing.select != "largest" or sharing.count(dimension) == dimension
    if isinstance(sharing.noise, PublishedLaplace) and not (sharing.noise.cut_first and hides_places):
        return None
    return _loss_at_best(sharing, dimension, steps)


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
        return noise.epsilon if isinstance(noise, PublishedLaplace) else None

    @property
    def epsilon(self) -> float:
        """The least proven epsilon of a protected unit over the whole run; infinite where nothing is proven."""
        whole = self.record if self.sharing.unit == "record" else self.participant
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
        if self.record is not None and self.sharing.unit == "record":
            return (
                f"A photo that is in one batch loses epsilon = {rounded_up(self.record.epsilon)} at delta = "
                f"{self.delta:g}, whatever is shared afterwards; a participant with many photos is not protected as a "
                "whole."
            )
        assert self.participant is not None
        if self.counted is None:
            come = "comes" if self.uploads == 1 else "come"
            return (
                f"{number_of(self.uploads, 'upload')} {come} to epsilon = {rounded_up(self.participant.epsilon)} at "
                f"delta = {self.delta:g} per participant, all its photos together."
            )
        proof = "" if self.proven else ", and not even that is proven"
        each = "one upload" if self.uploads == 1 else f"each of {self.uploads} uploads"
        come = "comes" if values == self.uploads == 1 else "come"
        return (
            f"Epsilon = {self.counted:g} is for one parameter in one upload: {number_of(values, 'parameter')} in "
            f"{each} {come} to epsilon = {rounded_up(self.participant.basic)} per participant "
            f"({rounded_up(self.participant.epsilon)} at delta = {self.delta:g}){proof}."
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
    upload = _composed(loss, 1, delta)
    if isinstance(sharing.noise, RecordGaussian):
        return SharingCost(sharing, dimension, uploads, delta, proven, upload, None, upload)
    participant = _composed(loss, uploads, delta)
    record: Composition | None = participant
    if isinstance(loss, GaussianLoss):
        half = loss.noise_multiplier / 2
        record = _composed(GaussianLoss(half), uploads, delta) if half >= _LEAST_NOISE else None
    return SharingCost(sharing, dimension, uploads, delta, proven, upload, participant, record)


def number_of(number: int, what: str) -> str:
    """Return a number of things in words: one of them is no plural.

    >>> number_of(1, "upload"), number_of(74, "upload")
    ('1 upload', '74 uploads')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _loss_at_best(sharing: Sharing, dimension: int, steps: int) -> Loss | None:
    if sharing.noise is None:
        return None
    return sharing.noise.loss(sharing.count(dimension), steps=steps, chosen=sharing.select == "threshold")


def _composed(loss: Loss, uploads: int, delta: float) -> Composition:
    return compose([replace(loss, count=loss.count * uploads)], delta=delta)


_PAPER = "PPDL"
_LARGE_EPSILON = 20.0  # a guess of one in a million becomes all but certain at e^20


def sharing_statement(cost: SharingCost, *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return the privacy statement of a run that costs `cost`; `source` is where the noise came from."""
    sharing = cost.sharing
    proven = math.isfinite(cost.epsilon)
    return PrivacyStatement(
        guarantee="differential privacy" if proven else "none",
        mechanism=_mechanism(sharing, cost.dimension),
        unit=sharing.unit,
        epsilon=cost.epsilon if proven else math.inf,
        delta=_delta(cost) if proven else None,
        neighbours=sharing.neighbours if proven else None,
        accountant=_accountant(cost) if proven else None,
        randomness="none" if sharing.noise is None else randomness_of(source),
        who_sees={
            "participant": "its own photos and its own model; of the others what the downloaded parameters tell",
            "server": "every upload of every participant: which places, which values, when, after how many photos; the "
            "parameters and how often each was changed",
            "anyone with the model": "the parameters, which are made of all uploads",
        },
        assumptions=tuple(_assumptions(sharing)),
        not_protected=tuple(_not_protected(cost)),
        claim=_claim(cost),
    )


def _delta(cost: SharingCost) -> float:
    """Return the delta that belongs to the epsilon stated: none where epsilons are simply added."""
    return 0.0 if _accountant(cost) == "basic" and isinstance(cost.sharing.noise, Laplace) else cost.delta


def _accountant(cost: SharingCost) -> str:
    whole = cost.record if cost.sharing.unit == "record" else cost.participant
    assert whole is not None
    return whole.accountant


def _mechanism(sharing: Sharing, dimension: int) -> str:
    chosen = {
        "largest": "the largest",
        "random": "random places",
        "threshold": f"random places above {sharing.threshold:g}" if sharing.threshold is not None else "",
    }[sharing.select]
    shared = f"{sharing.count(dimension)} of {dimension} values of each change ({chosen})"
    if sharing.bound is not None:
        shared += f", each within ±{sharing.bound:g}"
    noise = sharing.noise
    if isinstance(noise, PublishedLaplace):
        order = "added to values cut first" if noise.cut_first else "added before values are cut"
        return f"{shared}; Laplace noise for epsilon = {noise.epsilon:g} per value, {order}"
    if isinstance(noise, ParticipantGaussian):
        return (
            f"{shared}, shortened to a length of {noise.clip:g}; Gaussian noise of {noise.noise_multiplier:.6g} times "
            "that"
        )
    if isinstance(noise, RecordGaussian):
        return (
            f"{shared}, after training in which each photo's gradient is shortened to {noise.clip:g} and their sum "
            f"gets Gaussian noise of {noise.noise_multiplier:.6g} times that"
        )
    return f"{shared}; no noise"


def _assumptions(sharing: Sharing) -> list[str]:
    """Return what must be true for the guarantee; without noise there is none to assume anything for."""
    if sharing.noise is None:
        return []
    lines = [
        "the participant's own device follows the protocol and keeps its photos and its noise to itself",
        "when an upload is made, and which photos make a batch, does not depend on what the photos show",
    ]
    if isinstance(sharing.noise, ParticipantGaussian):
        lines.append("whether a participant's change counts or is zero makes the difference; it uploads in both cases")
    if isinstance(sharing.noise, RecordGaussian):
        lines.append(
            "each photo is in exactly one batch; a photo that is removed leaves its place in the batch empty, so that "
            "the others stay in theirs"
        )
    return lines


def _not_protected(cost: SharingCost) -> list[str]:
    sharing = cost.sharing
    lines = ["that a participant takes part, how often it uploads, and so how many photos it gathered"]
    if not cost.proven:
        lines.append("the photos behind an upload: no bound holds on what it tells about them")
        if sharing.select == "largest":
            lines.append("which parameters changed most: their places are uploaded as they are")
    elif cost.epsilon > _LARGE_EPSILON:
        lines.append(
            f"anything in practice: with epsilon = {rounded_up(cost.epsilon)} an upload may make any guess about the "
            f"{'photo' if sharing.unit == 'record' else 'photos'} certain"
        )
    if isinstance(sharing.noise, RecordGaussian):
        lines.append("a participant as a whole: what many of its photos have in common may show")
    lines.append("what is true of photos in general, one unit's part in them or not")
    return lines


def _claim(cost: SharingCost) -> Claim | None:
    """Return what PPDL claims of its own modes and why it fails; the Gaussian modes are not the paper's."""
    sharing = cost.sharing
    if sharing.noise is None:
        return Claim(
            _PAPER,
            "that sharing only a small fraction of the gradients protects the photos",
            "gradients are functions of the photos, and images can be recovered from them; nothing bounds what the "
            "shared fraction, and the choice of it, tell",
        )
    if not isinstance(sharing.noise, PublishedLaplace):
        return None
    reasons = [cost.sentence()]
    if not sharing.noise.cut_first:
        reasons.append("Noise is added to changes that nothing bounds, so one value may tell any amount.")
    if sharing.select == "largest" and sharing.count(cost.dimension) < cost.dimension:
        reasons.append("The places of the largest changes are told without any noise.")
    return Claim(_PAPER, f"epsilon = {sharing.noise.epsilon:g}", " ".join(reasons))
