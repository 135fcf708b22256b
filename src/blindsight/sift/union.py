"""Sifts verified together: what several releases about one person tell whoever puts them side by side.

Two sifts that each hide an attribute can give it away together: one releases a + b, the other a - b. Enev et al.,
"SensorSift", ACSAC 2012, section 9, leave collusion open and suggest to treat all apps of a person "in unity": that is
what happens here. What is released of one window is put into one row and attacked (or, where all of it together has a
small alphabet, certified) like the release of a single sift.

Nobody knows which apps are given the same frames and which are given others, and either can be worse: a + b and a - b
of one frame give b away, and ten glimpses of ten frames through one sift average their noise away. So a window has as
many frames as all parts together, and every different sift is applied to every one of them. Whichever frames the apps
get, what they put side by side is a part of that, so a certificate of the whole holds for it.

Attributes that change within a window are kept frame by frame (`Windows.questions`).

Symbols that are drawn by randomised response (`personal`) are judged before they are drawn, and what is found shrinks
as the draw shrinks it, where all that is out is drawn.

A sift that is not linear can compute anything, an XOR with a hash included, in which no list of attackers finds its
way: with one among the parts, the whole is certified or refused.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from blindsight.errors import InputError, PrivacyError
from blindsight.progress import Progress, silent
from blindsight.sift.certificate import ROWS_PER_SYMBOL, fewest_rows
from blindsight.sift.labels import Labels
from blindsight.sift.personal import PersonalSift, drawn
from blindsight.sift.sift import LinearSift, Sift, natural_units
from blindsight.sift.stream import Windows
from blindsight.sift.verdict import Verdict, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Part:
    """A sift and how many frames of one person it may release."""

    sift: Sift
    frames: int


@dataclass(frozen=True)
class Examination:
    """What a sift tells by itself, and beside what others let out: None where there are none, or it fails alone."""

    alone: Verification
    together: Verification | None

    @property
    def verdict(self) -> Verdict:
        """Accept only what is accepted both ways."""
        return self.alone.verdict if self.together is None else self.together.verdict

    @property
    def certified(self) -> bool:
        """Whether nothing rests on a list of attackers."""
        return self.alone.certified and (self.together is None or self.together.certified)

    def reports(self) -> dict[str, Any]:
        return {
            "report": self.alone.to_dict(),
            "together": None if self.together is None else self.together.to_dict(),
        }

    @property
    def sentence(self) -> str:
        return self.alone.sentence if self.together is None else f"Together with other grants: {self.together.sentence}"


def examine(
    part: Part,
    others: Iterable[Part],
    private: tuple[str, ...],
    data: VerificationSet,
    verifier: Verifier,
    *,
    development: VerificationSet | None = None,
    progress: Progress = silent,
) -> Examination:
    """Verify a sift by itself, a single frame first where that can be certified, and then beside the others.

    All of it is done whatever comes out, so that the time it takes does not tell what failed.
    """
    beside = list(others)
    steps = [[part], [*beside, part]] if beside else [[part]]
    if part.frames > 1 and certifiable([part.sift.alphabet], data.private(private)):
        steps.insert(0, [replace(part, frames=1)])
    found: list[Verification] = []
    failed: Verification | Exception | None = None
    for step in steps:
        try:
            found.append(verify_together(step, private, data, verifier, development=development, progress=progress))
            failed = failed or (found[-1] if found[-1].verdict != "accept" and step is not steps[-1] else None)
        except (InputError, PrivacyError) as error:
            failed = failed or error
    if isinstance(failed, Exception):
        raise failed
    if failed is not None:
        return Examination(failed, None)
    return Examination(found[-2], found[-1]) if beside else Examination(found[-1], None)


def verify_together(
    parts: Iterable[Part],
    private: Iterable[str],
    data: VerificationSet,
    verifier: Verifier,
    *,
    development: VerificationSet | None = None,
    progress: Progress = silent,
) -> Verification:
    """Verify what all parts (at least one) let out about one person, whichever frames each of them is given.

    Attackers may learn from `development` rows as well, as an app may from data of its own.
    """
    members = list(parts)
    frames, sifts = sum(part.frames for part in members), {part.sift.digest: part.sift for part in members}.values()
    cut = _windows(data, frames, len(members))
    released = np.hstack([cut.concatenated(_certain(sift).apply(data.through(sift.pipeline))) for sift in sifts])
    labels, groups = cut.questions(data.private(private))
    certified = certifiable((sift.alphabet for sift in sifts), labels, frames, groups)
    opaque = [sift.kind for sift in sifts if not isinstance(_certain(sift), LinearSift)]
    if opaque and not certified:
        raise PrivacyError(
            f"a sift of kind {opaque[0]!r} is verified by certificate only, and {frames} frame(s) of all that would be "
            "out have too many symbols for that. Ask for fewer frames, or release fewer symbols."
        )
    found = verifier.verify(
        released,
        labels,
        persons=None if data.persons is None else cut.first(data.persons),
        certified=certified,
        groups=groups,
        learn=_further(sifts, cut, labels, data.private(private), development),
        natural=block_diag(*(units for sift in sifts for units in [natural_units(_certain(sift))] * frames)),
        progress=progress,
    )
    personal = [(one.sift, one.frames) for one in members if isinstance(one.sift, PersonalSift)]
    if len(personal) < len(members):
        return found  # drawing symbols tells no more than the symbols themselves
    kept = personal[0][0].kept if frames == 1 else 1.0
    return drawn(found, kept, sum(sift.epsilon * count for sift, count in personal))


def _certain(sift: Sift) -> Sift:
    """Return the sift before symbols are drawn at random: the same question must have the same answer."""
    return sift.certain if isinstance(sift, PersonalSift) else sift


def _further(
    sifts: Iterable[Sift],
    cut: Windows,
    questions: Iterable[str],
    private: Iterable[str],
    development: VerificationSet | None,
) -> tuple[NDArray[Any], Mapping[str, Labels]] | None:
    """Return what is released of development rows, in windows of the same length; None where that cannot be had."""
    names = list(private)
    if development is None or not set(names) <= set(development.labels):
        return None
    try:
        own = development.windows(cut.frames)
        features = {sift.pipeline: development.through(sift.pipeline) for sift in sifts}
        released = np.hstack([own.concatenated(_certain(sift).apply(features[sift.pipeline])) for sift in sifts])
    except (InputError, PrivacyError):
        return None
    asked, unknown = own.questions(development.private(names))[0], np.full(len(own), -1, dtype=np.int8)
    return released, {name: asked.get(name, unknown) for name in questions}


def certifiable(
    alphabets: Iterable[int | None],
    labels: Mapping[str, Labels],
    frames: int = 1,
    groups: Sequence[Sequence[str]] | None = None,
) -> bool:
    """Tell whether the symbols of all alphabets together, over so many frames, are few enough for these labels.

    >>> hidden = {"hidden": np.repeat([0, 1], [100, 70]).astype(np.int8)}
    >>> certifiable([2, 3], hidden), certifiable([2, 4], hidden), certifiable([2, None], hidden)
    (True, False, False)
    """
    sizes = list(alphabets)
    symbols = math.prod(int(size or 0) for size in sizes) ** frames
    return None not in sizes and symbols * ROWS_PER_SYMBOL <= fewest_rows(labels, groups)


def _windows(data: VerificationSet, frames: int, parts: int) -> Windows:
    try:
        return data.windows(frames)
    except InputError as error:
        if parts == 1:
            raise
        raise InputError(
            f"all that would be out about this person is {frames} frames, which must be verified together: {error}"
        ) from None
