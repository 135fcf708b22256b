"""What selective sharing guarantees, to whom, and who sees what: the statement of each of its modes."""

import math

from blindsight.rng import ByteSource, system_bytes
from blindsight.selective.accounting import SharingCost, figure, neighbouring, protected_unit
from blindsight.selective.encrypted import check_hiding
from blindsight.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, RecordGaussian
from blindsight.selective.protection import Sharing
from blindsight.statement import Claim, PrivacyStatement, randomness_of
from blindsight.sums import Session

_PAPER = "PPDL"
_LARGE_EPSILON = 20.0  # a guess of one in a million becomes all but certain at e^20


def sharing_statement(
    cost: SharingCost, *, session: Session | None = None, source: ByteSource = system_bytes
) -> PrivacyStatement:
    """Return the privacy statement of a run that costs `cost`.

    `session` is what adds the uploads of a turn up before anybody can read one (`blindsight.sums`); None
    if the server opens every upload. What it assumes and leaves open is then said too. `source` is where the noise and
    the session's keys came from.
    """
    if session is not None:
        check_hiding(session.scheme)
    sharing = cost.sharing
    proven = math.isfinite(cost.epsilon) and (session is not None or not _is_shared(sharing))
    return PrivacyStatement(
        guarantee="differential privacy" if proven else "none",
        mechanism=_mechanism(sharing, cost.dimension),
        unit=protected_unit(sharing),
        epsilon=cost.epsilon if proven else math.inf,
        delta=_delta(cost) if proven else None,
        neighbours=neighbouring(sharing) if proven else None,
        accountant=_accountant(cost) if proven else None,
        randomness="none" if sharing.noise is None and session is None else randomness_of(source),
        who_sees=_who_sees(session),
        assumptions=_assumptions(sharing) + _assumptions_of(session),
        not_protected=tuple(_not_protected(cost, session)) + _left_open_by(session),
        claim=_claim(cost),
    )


def _is_shared(sharing: Sharing) -> bool:
    return isinstance(sharing.noise, ParticipantGaussian) and sharing.noise.among > 1


def _delta(cost: SharingCost) -> float:
    """Return the delta that belongs to the epsilon stated: none where epsilons are simply added."""
    return 0.0 if _accountant(cost) == "basic" and isinstance(cost.sharing.noise, Laplace) else cost.delta


def _accountant(cost: SharingCost) -> str:
    whole = cost.record if protected_unit(cost.sharing) == "record" else cost.participant
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
    if isinstance(noise, PublishedLaplace | Laplace):
        order = "added before values are cut" if isinstance(noise, PublishedLaplace) else "added to values cut first"
        return f"{shared}; Laplace noise for epsilon = {noise.epsilon:g} per value, {order}"
    if isinstance(noise, ParticipantGaussian):
        among = f", shared among {noise.among} participants" if noise.among > 1 else ""
        return (
            f"{shared}, shortened to a length of {noise.clip:g}; Gaussian noise of {noise.noise_multiplier:.6g} times "
            f"that{among}"
        )
    if isinstance(noise, RecordGaussian):
        return (
            f"{shared}, after training in which each photo's gradient is shortened to {noise.clip:g} and their sum "
            f"gets Gaussian noise of {noise.noise_multiplier:.6g} times that"
        )
    return f"{shared}; no noise"


def _assumptions_of(session: Session | None) -> tuple[str, ...]:
    """Return what must be true for no single upload to be read, who may collude above all, in the session's words."""
    if session is None:
        return ()
    return tuple(f"under {session.scheme}: {line}" for line in session.statement().assumptions)


def _left_open_by(session: Session | None) -> tuple[str, ...]:
    """Return what adding up alone does not hide, such as values that one participant alone sends."""
    if session is None:
        return ()
    return tuple(f"by {session.scheme} alone: {line}" for line in session.statement().not_protected)


def _who_sees(session: Session | None) -> dict[str, str]:
    reads = "every upload of every participant: which places, which values, when, after how many photos"
    if session is not None:
        reads = f"the sum of a turn's uploads, added up under {session.scheme}, and who took part; no single upload"
    return {
        "participant": "its own photos and its own model; of the others what the downloaded parameters tell",
        "server": reads + "; the parameters and how often each was changed",
        "anyone with the model": "the parameters, which are made of all uploads",
    }


def _assumptions(sharing: Sharing) -> tuple[str, ...]:
    """Return what must be true for the guarantee; without noise there is none to assume anything for."""
    if sharing.noise is None:
        return ()
    lines = [
        "the participant's own device follows the protocol and keeps its photos and its noise to itself",
        "when an upload is made, and which photos make a batch, does not depend on what the photos show",
    ]
    if isinstance(sharing.noise, ParticipantGaussian):
        lines.append("whether a participant's change counts or is zero makes the difference; it uploads in both cases")
    if _is_shared(sharing):
        assert isinstance(sharing.noise, ParticipantGaussian)
        lines.append(
            f"nothing but sums of at least {sharing.noise.among} uploads at the same places is ever opened, and all "
            "these participants add their noise; one of them may know its own, or tell it, without harm: of n, each "
            "further one that tells or adds none takes 1/(n - 1) of the variance away"
        )
    if isinstance(sharing.noise, RecordGaussian):
        lines.append(
            "each photo is in exactly one batch; a photo that is removed leaves its place in the batch empty, so that "
            "the others stay in theirs"
        )
    return tuple(lines)


def _not_protected(cost: SharingCost, session: Session | None) -> list[str]:
    sharing = cost.sharing
    lines = ["that a participant takes part, how often it uploads, and so how many photos it gathered"]
    if _is_shared(sharing) and session is None:
        lines.append("single uploads: the server opens them, and each has only its part of the noise")
    if not cost.proven:
        lines.append("the photos behind an upload: no bound holds on what it tells about them")
        if sharing.select == "largest" and session is None:
            lines.append("which parameters changed most: their places are uploaded as they are")
    elif cost.epsilon > _LARGE_EPSILON:
        lines.append(
            f"anything in practice: with epsilon = {figure(cost.epsilon)} an upload may make any guess about the "
            f"{'photo' if protected_unit(sharing) == 'record' else 'photos'} certain"
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
    if not isinstance(sharing.noise, PublishedLaplace | Laplace):
        return None
    reasons = [cost.sentence()]
    if isinstance(sharing.noise, PublishedLaplace):
        reasons.append("Noise is added to changes that nothing bounds, so one value may tell any amount.")
    if sharing.select == "largest" and sharing.count(cost.dimension) < cost.dimension:
        reasons.append("The places of the largest changes are told without any noise.")
    return Claim(_PAPER, f"epsilon = {sharing.noise.epsilon:g}", " ".join(reasons))
