"""Releases that add up: what several frames of one person tell together, and how many of them may go out.

A sift that is safe for one picture need not be for ten: independent glimpses of the same attribute average their noise
away. So the *window* that is released is what must be verified, and no more than a verified window may ever be
released: `ReleaseBudget` counts. Enev et al., "SensorSift", ACSAC 2012, section 7, apply a sift to concatenations of 10
frames of a video, taken away from the boundaries of smiles: a window counts only where its frames agree on the label.

| paper | here |
| --- | --- |
| "concatenated sets of 10 sequential frames" | `windows(sequences, frames=10)` |
| PrivLoss of those | `leak_over_frames`, concatenated; also that of the mean over the frames |

*Permanent symbols* let a stream go on for ever. Of an attribute that never changes, such as a birth year, a person has
one symbol, the one most frames of the first window give, and every app, now and later, gets that one. What is certified
is this smoothed symbol, a person a row (`union.verify_together`): noise that averages out over frames is in it.
`PermanentSymbols` draws it once for a person and an attribute, whichever app asks, whichever version of the sift is
installed, whether grants were revoked or the person came back; a symbol of another sift, or of as many other frames, is
a further charge: what was drawn from one frame is never given under the certificate of nine. With a
`PersonalSift` the smoothed symbol is drawn by randomised response, once (the permanent response of Erlingsson, Pihur &
Korolova, "RAPPOR", CCS 2014), so epsilon is paid once, too.

The paper's video shows one person. Attackers who may learn from the very person they attack measure something else, so
windows of one person stay on one side of the split here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import UNKNOWN
from blindsight.errors import BudgetExceededError, InputError, PrivacyError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.sift.labels import Labels, check_labels, check_released, enough
from blindsight.sift.personal import PersonalSift, respond
from blindsight.sift.sift import Features, Sift
from blindsight.sift.verdict import Verification
from blindsight.sift.verify import Verifier
from blindsight.validation import check_shape

FRAMES = 10

Then = Literal["refuse", "repeat", "permanent"]
Reading = Literal["concatenated", "mean"]


@dataclass(frozen=True, eq=False)
class Windows:
    """Runs of frames of one sequence each: `rows` (windows, frames) are indices of rows."""

    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def frames(self) -> int:
        return int(self.rows.shape[1])

    def concatenated(self, released: NDArray[Any]) -> NDArray[Any]:
        return released[self.rows].reshape(len(self), -1)

    def mean(self, released: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(released[self.rows].mean(axis=1, dtype=np.float64))

    def labels(self, column: Labels) -> Labels:
        """The label that all frames of a window share; unknown where they differ."""
        labels = column[self.rows]
        return np.where((labels == labels[:, :1]).all(axis=1), labels[:, 0], UNKNOWN).astype(np.int8)

    def questions(self, columns: Mapping[str, Labels]) -> tuple[dict[str, Labels], list[tuple[str, ...]]]:
        """Return the labels of each window by question, and which questions are about the same frame.

        An attribute that never changes within a window is one question. Of a momentary one, such as smiling, every
        frame's own label is a question, given the whole window, and once more in those windows alone in which it
        changes: two frames tell their difference. Of more than four frames only the first, middle and last are asked
        about.
        """
        frames = range(self.frames) if self.frames <= 4 else (0, self.frames // 2, self.frames - 1)
        asked: dict[str, Labels] = {}
        groups: list[tuple[str, ...]] = []
        for frame in frames:
            group = []
            for name, column in columns.items():
                labels = column[self.rows]
                known = np.where(labels == UNKNOWN, labels.max(axis=1, keepdims=True), labels)  # unknown is no change
                changes = known.min(axis=1) != known.max(axis=1)
                own = name if not changes.any() else f"{name} in frame {frame + 1}"
                asked[own] = self.labels(column) if own == name else labels[:, frame]
                group.append(own)
                there = np.where(changes, labels[:, frame], UNKNOWN).astype(np.int8)
                if own != name and enough(there):
                    asked[f"{own}, where it changes"] = there
            if tuple(group) not in groups:
                groups.append(tuple(group))
        return asked, groups

    def first(self, per_row: NDArray[Any]) -> NDArray[Any]:
        return per_row[self.rows[:, 0]]


def windows(sequences: ArrayLike, frames: int = FRAMES) -> Windows:
    """Cut every sequence, in the order of its rows, into windows of this many frames; what is left over is dropped.
    `sequences` names the video of each row, or the person where only that is known.

    >>> windows(["a", "b", "a", "a", "b", "a", "a"], frames=2).rows.tolist()
    [[0, 2], [3, 5], [1, 4]]
    """
    names = np.asarray(sequences)
    if names.ndim != 1 or frames < 1:
        raise InputError(f"windows need one sequence per row and 1 frame or more; got {names.shape} and {frames}.")
    order = np.argsort(np.unique(names, return_inverse=True)[1], kind="stable")
    _, starts, counts = np.unique(names[order], return_index=True, return_counts=True)
    parts = [
        order[start : start + count // frames * frames].reshape(-1, frames)
        for start, count in zip(starts, counts, strict=True)
    ]
    rows = np.concatenate(parts) if parts else np.zeros((0, frames), dtype=np.int64)
    if not len(rows):
        longest = int(counts.max(initial=0))
        raise InputError(f"no sequence has {frames} frames; the longest has {longest}. Ask for shorter windows.")
    return Windows(rows.astype(np.int64))


@dataclass(frozen=True)
class FrameLeak:
    """What several frames of one person tell, concatenated or as their mean."""

    frames: int
    reading: Reading
    windows: int
    verification: Verification


def leak_over_frames(
    released: ArrayLike,
    private: Mapping[str, ArrayLike],
    sequences: ArrayLike,
    *,
    verifier: Verifier,
    frames: Sequence[int] = (1, 2, 5, FRAMES),
    persons: ArrayLike | None = None,
    progress: Progress = silent,
) -> tuple[FrameLeak, ...]:
    """Attack windows of every length in `frames`: PrivLoss after t frames, from released numbers (n, K).

    `persons` keeps both halves of the verification apart; where it is left out each sequence is a person. Fewer windows
    mean wider bounds: a long window that leaks no more may still come out inconclusive.
    """
    numbers = check_released(released)
    columns = {
        name: check_labels(labels, len(numbers), f"labels of {name!r}")[:, 0] for name, labels in private.items()
    }
    who = np.asarray(sequences if persons is None else persons)
    found = []
    for done, count in enumerate(frames):
        progress("frames", done, len(frames))
        cut = windows(sequences, count)
        labels = {name: cut.labels(column) for name, column in columns.items()}
        readings: dict[Reading, NDArray[Any]] = {"concatenated": cut.concatenated(numbers), "mean": cut.mean(numbers)}
        if count == 1:
            del readings["mean"]  # one frame is its own mean
        for reading, seen in readings.items():
            verification = verifier.verify(seen, labels, persons=cut.first(who))
            found.append(FrameLeak(count, reading, len(cut), verification))
    progress("frames", len(frames), len(frames))
    return tuple(found)


@dataclass(frozen=True)
class ReleaseBudget:
    """At most `frames` different releases about one person to one app: the window that was verified. Then the app is
    refused, or gets its last release again, which tells it nothing new. "permanent" is one smoothed symbol for ever.
    """

    frames: int = 1
    then: Then = "refuse"

    def __post_init__(self) -> None:
        if isinstance(self.frames, bool) or not isinstance(self.frames, int) or self.frames < 1:
            raise InputError(f"a budget allows a whole number of frames, 1 or more; got {self.frames!r}.")
        if self.then not in get_args(Then):
            raise UnknownNameError("way to go on after the last frame", str(self.then), get_args(Then))

    @property
    def permanent(self) -> bool:
        return self.then == "permanent"

    def fresh(self, used: int, asked: int) -> int:
        """Return how many of `asked` frames may be released when `used` were before; the rest repeats the last one.

        >>> ReleaseBudget(10, "repeat").fresh(used=8, asked=5)
        2
        """
        if asked < 1:
            raise InputError(f"a release has one frame or more; got {asked}.")
        left = max(0, self.frames - used)
        if self.then == "refuse" and asked > left:
            raise BudgetExceededError(
                f"{self.frames} frame(s) of this person were verified for this app and {used} are released; "
                f"{asked} more would tell what nobody has verified. Nothing was released. Verify a longer window."
            )
        return min(asked, left)


def smoothed(sift: Sift, X: Features, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every row of indices (persons, frames) the symbol that most of these pictures give."""
    given = sift.symbols(X)[rows]
    counts = np.stack([(given == symbol).sum(axis=1) for symbol in range(sift.alphabet or 0)], axis=1)
    return np.asarray(counts.argmax(axis=1), dtype=np.int64)


def certain(sift: Sift) -> Sift:
    """The sift before symbols are drawn at random: the same question must have the same answer."""
    return sift.certain if isinstance(sift, PersonalSift) else sift


def changes(labels: Labels, persons: NDArray[Any]) -> bool:
    known = labels >= 0
    numbers = np.unique(persons[known], return_inverse=True)[1]
    yes = np.bincount(numbers, labels[known])
    return bool(((yes > 0) & (yes < np.bincount(numbers))).any())


@dataclass(frozen=True)
class PermanentSymbol:
    """The symbol that a person has for an attribute, by which sift, and the epsilon it cost, 0 where it is certain.
    `frames` is the number of frames it was drawn from.
    """

    person: str
    attribute: str
    sift: str
    symbol: int
    epsilon: float
    frames: int

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise InputError(f"a permanent symbol is drawn from 1 frame or more; got frames={self.frames}.")


class PermanentSymbols:
    """Every person's symbols of `unchanging` attributes, each drawn once, whatever is revoked or enrolled again.

    `keep` stores one for ever, before anybody has it: where it raises nothing goes out. `known` returns all that were
    ever kept of a person, in their order, also by other processes. The caller must draw one symbol at a time.
    """

    def __init__(
        self,
        unchanging: Iterable[str],
        keep: Callable[[PermanentSymbol], object],
        known: Callable[[str], Iterable[PermanentSymbol]],
    ) -> None:
        self.unchanging = frozenset(unchanging)
        self._keep, self._known = keep, known

    def check(self, attributes: Sequence[str], sift: Sift) -> None:
        if len(attributes) != 1:
            raise InputError(f"a permanent symbol tells one attribute; got {' and '.join(attributes)}.")
        if attributes[0] not in self.unchanging:
            raise PrivacyError(
                f"{attributes[0]} is not declared unchanging, so it has no permanent symbol. Release windows of "
                "verified length instead."
            )
        if sift.alphabet is None:
            raise InputError(
                "a permanent symbol needs a sift of few symbols. Quantise real numbers to few levels first."
            )

    def symbol(
        self,
        person: str,
        attribute: str,
        sift: Sift,
        frames: Callable[[], Features],
        *,
        count: int,
        another: bool = False,
    ) -> PermanentSymbol:
        """Return the person's symbol, whichever app asks; the first `count` frames are looked at only where there is
        none yet. With `another` the symbol of this very sift and count is returned, a further charge where it was not
        drawn before.
        """
        self.check([attribute], sift)
        known = self.charges(person)
        for one in known:
            if (one.sift, one.frames) == (sift.digest, count) or (one.attribute == attribute and not another):
                return one
        rows = check_shape(frames(), sift.dimension)
        if rows.shape[0] < count:
            raise InputError(
                f"a permanent symbol is drawn from {count} frames, once; got {rows.shape[0]}. Give more frames."
            )
        found, epsilon = smoothed(certain(sift), rows, np.arange(count)[None]), 0.0
        if isinstance(sift, PersonalSift):
            found, epsilon = respond(found, sift.alphabet or 0, sift.epsilon), sift.epsilon
        new = PermanentSymbol(person, attribute, sift.digest, int(found[0]), epsilon, count)
        self._keep(new)
        return new

    def charges(self, person: str) -> tuple[PermanentSymbol, ...]:
        """Return every symbol that was ever drawn of a person: what must be certified together."""
        return tuple(self._known(person))
