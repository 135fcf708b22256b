"""Apps that talk to each other, and one that looks again and again: what accepted sifts tell together.

A sift is accepted for one release; its statement says that several releases about one person may tell more. How much
more is measured here with the verifier's own attackers: two apps that put their numbers about the same picture side by
side, and one app that averages many frames of a person. (What the platform does about it is `sift.union` and the
`ReleaseBudget` of `sift.stream`: it verifies all of it together, before any of it is released.)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.finding import Finding, Interval, of_verifier
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.sift.sift import Sift
from blindsight.sift.stream import FRAMES, FrameLeak, leak_over_frames
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True)
class PooledSifts:
    """What each app reads by itself, and what all read who put the same picture's numbers side by side."""

    alone: tuple[Verification, ...]
    together: Verification


def pool_sifts(
    sifts: Sequence[Sift],
    private: Iterable[str],
    data: VerificationSet,
    verifier: Verifier,
    *,
    progress: Progress = silent,
) -> PooledSifts:
    """Attack the releases of several apps one by one and together, with every attacker of the verifier."""
    if len(sifts) < 2:
        raise InputError(f"apps pool two sifts or more; got {len(sifts)}.")
    labels, thorough = data.private(private), replace(verifier, stop_early=False)
    released = [sift.apply(data.features) for sift in sifts]
    found = []
    for done, numbers in enumerate([*released, np.hstack(released)]):
        progress("attacking pooled sifts", done, len(sifts) + 1)
        found.append(thorough.verify(numbers, labels, persons=data.persons, certified=False))
    progress("attacking pooled sifts", len(sifts) + 1, len(sifts) + 1)
    return PooledSifts(tuple(found[:-1]), found[-1])


def average_frames(
    released: ArrayLike,
    private: Mapping[str, ArrayLike],
    persons: ArrayLike,
    verifier: Verifier,
    *,
    frames: Sequence[int] = (1, 2, 5, FRAMES),
    progress: Progress = silent,
) -> tuple[FrameLeak, ...]:
    """Attack what an app makes of so many frames of each person, concatenated and averaged; see `leak_over_frames`."""
    thorough = replace(verifier, stop_early=False)
    return leak_over_frames(released, private, persons, verifier=thorough, frames=frames, progress=progress)


def pooled_finding(pooled: PooledSifts) -> Finding:
    """Return a row: each sift may have been accepted, and this is what they tell together."""
    alone = [f"{one.priv_loss:.3f} ({one.verdict})" for one in pooled.alone]
    accepted = all(one.verdict == "accept" for one in pooled.alone)
    which = "each accepted by itself" if accepted else "not all accepted by themselves"
    return _finding(
        pooled.together,
        whose=f"{len(alone)} sifts, {which}, together",
        accepted=accepted,
        attack="apps that put their releases side by side",
        details={"PrivLoss of each alone": ", ".join(alone)},
    )


def frames_findings(leaks: Sequence[FrameLeak]) -> tuple[Finding, ...]:
    """Return a row per window that is longer than a frame."""
    single = next((leak.verification for leak in leaks if leak.frames == 1), None)
    before = {} if single is None else {"PrivLoss of one frame": f"{single.priv_loss:.3f} ({single.verdict})"}
    accepted = single is not None and single.verdict == "accept"
    which = "accepted for one" if accepted else "not accepted for one"
    return tuple(
        _finding(
            leak.verification,
            whose=f"{leak.frames} frames of a person through a sift that is {which}",
            accepted=accepted,
            attack=f"an app with {leak.frames} frames of a person, {leak.reading}",
            details=before | {"windows": str(leak.windows)},
        )
        for leak in leaks
        if leak.frames > 1
    )


def _finding(
    verification: Verification, *, whose: str, accepted: bool, attack: str, details: dict[str, str]
) -> Finding:
    """Judge by the verifier's threshold.

    Statements of accepted sifts admit that several releases may be beyond it; a sift that was not accepted has none.
    """
    best, threshold = verification.best, verification.setting.threshold
    low, high = best.interval
    return Finding(
        claim=f"{whose}: nobody reads what is private {threshold:g} better than a blind guess",
        source="nobody",
        proven="nothing: a sift's statement excepts several releases about one person",
        measure=f"PrivLoss of {best.attribute}, best attacker (allowed: {threshold:g})",
        measured=Interval(best.priv_loss, low - 0.5, high - 0.5, verification.setting.confidence),
        verdict=of_verifier(verification.verdict, beyond="as stated" if accepted else "leaks"),
        attack=attack,
        details=details | {"attacker": best.attacker, "verdict of the verifier": verification.verdict},
    )
