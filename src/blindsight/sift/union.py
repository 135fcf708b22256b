"""Sifts verified together: what several releases about one person tell somebody who combines them.

Two sifts that each hide an attribute can give it away together: one releases a + b, the other a - b. Enev et al.,
"SensorSift", ACSAC 2012, section 9, leave collusion open and suggest to treat all apps of a person "in unity", as is
done here: what is released of one window is put into one row and attacked (or, where all of it together has a small
alphabet, certified) like the release of a single sift.

Nobody knows which apps are given the same frames and which are given others, and either can be worse: a + b and a - b
of one frame give b away, and ten glimpses of ten frames through one sift average their noise away. So a window has as
many frames as all parts together, and every different sift is applied to every one of them. Whichever frames the apps
get, what they combine is a part of that, so a certificate of the whole holds for it. Attributes that change within a
window are kept frame by frame (`Windows.questions`).

Symbols drawn by randomised response (`personal`) are judged before they are drawn, and what is found shrinks as the
draw shrinks it, where all that is out is drawn. A sift that is not linear can compute anything, an XOR with a hash
included, in which no list of attackers finds its way: with one among the parts, the whole is certified or refused.
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
from blindsight.sift.stream import Windows, certain, changes, smoothed
from blindsight.sift.verdict import Verdict, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Part:
    """A sift and how many frames of one person it may release, or smooths to one symbol that is `permanent`."""

    sift: Sift
    frames: int
    permanent: bool = False

    @property
    def named(self) -> tuple[str, int | str]:
        return self.sift.digest, f"{self.frames}, permanent" if self.permanent else self.frames


@dataclass(frozen=True)
class Examination:
    """What a sift tells alone, and together with what others let out: None where there are none, or it fails alone."""

    alone: Verification
    together: Verification | None

    @property
    def verdict(self) -> Verdict:
        return self.alone.verdict if self.together is None else self.together.verdict

    @property
    def certified(self) -> bool:
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
    """Verify a sift by itself, a single frame first where that can be certified, and then together with the others. All
    of it is done whatever comes out, so that the time it takes does not tell what failed.
    """
    company = list(others)
    steps = [[part], [*company, part]] if company else [[part]]
    if part.frames > 1 and not part.permanent and certifiable([part.sift.alphabet], data.private(private)):
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
    return Examination(found[-2], found[-1]) if company else Examination(found[-1], None)


def verify_together(
    parts: Iterable[Part],
    private: Iterable[str],
    data: VerificationSet,
    verifier: Verifier,
    *,
    development: VerificationSet | None = None,
    progress: Progress = silent,
) -> Verification:
    """Verify what all parts (at least one) let out about one person, whichever frames each of them is given. Attackers
    may learn from `development` rows as well, as an app may from data of its own.
    """
    members = list(parts)
    stay = list({part.named: part for part in members if part.permanent}.values())
    passing = [part for part in members if not part.permanent]
    sifts = {part.sift.digest: part.sift for part in passing}.values()
    block = max((part.frames for part in stay), default=0)
    frames = sum(part.frames for part in passing) + block * len(stay)
    cut = _windows(data, frames, len(members))
    columns = [cut.concatenated(certain(sift).apply(data.through(sift.pipeline))) for sift in sifts]
    columns += _smoothed(stay, block, cut, data)
    hidden = data.private(private)
    momentary = [name for name, column in hidden.items() if data.persons is not None and changes(column, data.persons)]
    if stay and momentary:
        raise InputError(
            f"{momentary[0]} changes between pictures of one person: a symbol that stays cannot be certified for it. "
            "Release windows instead."
        )
    labels, groups = cut.questions(hidden)
    alphabets = [sift.alphabet for sift in sifts] * frames + [part.sift.alphabet for part in stay] * len(stay)
    certified = certifiable(alphabets, labels, groups=groups)
    opaque = [sift.kind for sift in sifts if not isinstance(certain(sift), LinearSift)]
    if (opaque or stay) and not certified:
        raise PrivacyError(
            f"{f'a sift of kind {opaque[0]!r}' if opaque else 'a permanent symbol'} is verified by certificate only, "
            f"and {frames} frame(s) of all that would be out have too many symbols for that. Ask for fewer frames, or "
            "release fewer symbols."
        )
    found = verifier.verify(
        np.hstack(columns),
        labels,
        persons=None if data.persons is None else cut.first(data.persons),
        certified=certified,
        groups=groups,
        learn=None if certified else _further(sifts, cut, labels, hidden, data, development),
        natural=None if stay else block_diag(*(u for one in sifts for u in [natural_units(certain(one))] * frames)),
        progress=progress,
    )
    personal = [(one.sift, 1 if one.permanent else one.frames) for one in (*passing, *stay)]
    drawn_at_random = [(sift, count) for sift, count in personal if isinstance(sift, PersonalSift)]
    if len(drawn_at_random) < len(personal):
        return found  # drawing symbols tells no more than the symbols themselves
    kept = drawn_at_random[0][0].kept if sum(count for _, count in drawn_at_random) == 1 else 1.0
    return drawn(found, kept, sum(sift.epsilon * count for sift, count in drawn_at_random))


def _smoothed(stay: Sequence[Part], block: int, cut: Windows, data: VerificationSet) -> list[NDArray[np.int64]]:
    """Return the smoothed symbols of every permanent part, on as many blocks of frames as there are such parts: nobody
    knows whether two of them were drawn from the same frames.
    """
    return [
        smoothed(certain(part.sift), data.through(part.sift.pipeline), cut.rows[:, start : start + part.frames])[
            :, None
        ]
        for part in stay
        for start in range(0, block * len(stay), block)
    ]


def _further(
    sifts: Iterable[Sift],
    cut: Windows,
    questions: Iterable[str],
    private: Iterable[str],
    data: VerificationSet,
    development: VerificationSet | None,
) -> tuple[NDArray[Any], Mapping[str, Labels]] | None:
    """The release of development rows, in windows of the same length; None where that cannot be had."""
    names = list(private)
    if development is None or not set(names) <= set(development.labels):
        return None
    try:
        own = development.windows(cut.frames)
        features = {name: data.seen(development.through(name), name) for name in {sift.pipeline for sift in sifts}}
        released = np.hstack([own.concatenated(certain(sift).apply(features[sift.pipeline])) for sift in sifts])
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
    """Tell whether all alphabets together, over these frames, have few enough symbols for these labels.

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
