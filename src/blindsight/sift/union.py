"""Sifts verified together: what several releases about one person tell whoever puts them side by side.

Two sifts that each hide an attribute can give it away together: one releases a + b, the other a - b. Enev et al.,
"SensorSift", ACSAC 2012, section 9, leave collusion open and suggest to treat all apps of a person "in unity": that is
what happens here. What is released of one window of frames, by every sift up to its own number of frames, is put into
one row and attacked (or, where all of it together has a small alphabet, certified) like the release of a single sift.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from blindsight.progress import Progress, silent
from blindsight.sift.certificate import ROWS_PER_SYMBOL
from blindsight.sift.labels import Labels
from blindsight.sift.sift import Sift
from blindsight.sift.stream import Windows
from blindsight.sift.verdict import Verdict, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Part:
    """A sift and how many frames of one person it may release."""

    sift: Sift
    frames: int

    @property
    def alphabet(self) -> int | None:
        """How many different windows there can be, or None where numbers are real."""
        return None if self.sift.alphabet is None else int(self.sift.alphabet) ** self.frames


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

    @property
    def sentence(self) -> str:
        """The verdict in one line."""
        return self.alone.sentence if self.together is None else f"Together with other grants: {self.together.sentence}"


def examine(
    part: Part,
    others: Iterable[Part],
    private: tuple[str, ...],
    data: VerificationSet,
    verifier: Verifier,
    *,
    progress: Progress = silent,
) -> Examination:
    """Verify a sift by itself and then beside the others; the same release twice tells nothing twice."""
    alone = verify_together([part], private, data, verifier, progress=progress)
    different = {(other.sift.digest, other.frames): other for other in others}
    different.pop((part.sift.digest, part.frames), None)
    if not different or alone.verdict != "accept":
        return Examination(alone, None)
    union = [*different.values(), part]
    return Examination(alone, verify_together(union, private, data, verifier, progress=progress))


def verify_together(
    parts: Iterable[Part],
    private: Iterable[str],
    data: VerificationSet,
    verifier: Verifier,
    *,
    progress: Progress = silent,
) -> Verification:
    """Verify what all parts (at least one) let out about one person, against all private attributes."""
    members = list(parts)
    cut = data.windows(max(part.frames for part in members))
    released = np.hstack(
        [Windows(cut.rows[:, : part.frames]).concatenated(part.sift.apply(data.features)) for part in members]
    )
    labels = {name: cut.labels(column) for name, column in data.private(private).items()}
    return verifier.verify(
        released,
        labels,
        persons=None if data.persons is None else cut.first(data.persons),
        certified=certifiable((part.alphabet for part in members), labels),
        progress=progress,
    )


def certifiable(alphabets: Iterable[int | None], labels: Mapping[str, Labels]) -> bool:
    """Tell whether the symbols of all alphabets together are few enough for these labels to certify.

    >>> hidden = {"hidden": np.repeat([0, 1], [100, 70]).astype(np.int8)}
    >>> certifiable([2, 3], hidden), certifiable([2, 4], hidden), certifiable([2, None], hidden)
    (True, False, False)
    """
    sizes = list(alphabets)
    fewest = min(int((column == value).sum()) for column in labels.values() for value in (0, 1))
    return None not in sizes and math.prod(size or 0 for size in sizes) * ROWS_PER_SYMBOL <= fewest
