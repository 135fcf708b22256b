"""What an inversion found: pictures side by side, whose faces they are, and what follows.

Four pictures side by side: the original, and what a plain update, the aggregator's view and a sift show of it.

A decoder of faces draws faces, whatever it is given: from noise it draws a ghost that is nobody. Whether a picture is a
likeness is for the figures to say, not for the eye alone.

Whose face is it? How often the nearest known face to a reconstructed one belongs to the same person.

The attacker has a gallery: pictures with names, say from a social network, and shows them through the same decoder as
the probes. A probe gets the name of the gallery picture with the largest cosine after the gallery's mean is taken from
both; ties are broken at random, so a reconstruction that is the same for everybody matches at chance, not never.

Chance is the rate of the best blind guess: always the person with the most probes; with as many probes of everybody,
1 / persons. Intervals are those of Clopper & Pearson. They take probes for independent: exact where reconstructions
tell nothing of persons, and where each person has one probe; with more, they speak of these persons only, since one
person's pictures are recognised together or not at all.

What an inversion found: pictures by view, how like the originals they are, whose faces they show, and what follows.

Every figure stands beside those without which it says nothing:

- *blind*: the SSIM of the average public picture, which is no reconstruction at all;
- *strangers*: the SSIM of a reconstruction with originals that it was not made from. If what a view holds tells nothing
  of its original, both have the same expectation, whatever the decoder draws; so their difference decides;
- the rate at which a blind guess names the right person.

A view at chance has told nothing to this decoder; that proves nothing of better ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.audit.inversion.decoder import Pictures
from blindsight.audit.leakage.recovery import mean_interval
from blindsight.data.contactsheet import contact_sheet
from blindsight.errors import InputError
from blindsight.rng import science

VIEWS = ("plain", "aggregator", "sift")
"""Who holds something of a picture: whoever gets a plain update, the aggregator of a scheme, an app with a sift."""

_CAPTIONS = {"plain": "plain update", "aggregator": "aggregator", "sift": "sift"}

Picture = NDArray[np.uint8]
"""(height, width, 3)."""


@dataclass(frozen=True, eq=False)
class PictureRow:
    """One original and its reconstructions, each with its SSIM; `blind` is the SSIM of the average public picture."""

    original: Picture
    plain: Picture
    aggregator: Picture
    sift: Picture
    similarity: tuple[float, float, float]
    """In the order of `VIEWS`."""
    blind: float

    @property
    def pictures(self) -> Pictures:
        """All four, original first."""
        return np.stack([self.original, self.plain, self.aggregator, self.sift])

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data; the pictures themselves are left out."""
        return {"ssim": dict(zip(VIEWS, self.similarity, strict=True)), "blind": self.blind}


def picture_strip(rows: Sequence[PictureRow], *, scale: int | None = None) -> Image.Image:
    """Return one line of four captioned pictures per row, to be looked at by a person."""
    if not rows:
        raise InputError("a strip needs one row of pictures at least.")
    captions = [caption for row in rows for caption in _captions(row)]
    return contact_sheet(np.concatenate([row.pictures for row in rows]), columns=4, captions=captions, scale=scale)


def _captions(row: PictureRow) -> list[str]:
    shown = [f"{_CAPTIONS[view]}: SSIM {score:.2f}" for view, score in zip(VIEWS, row.similarity, strict=True)]
    return [f"original (blind {row.blind:.2f})", *shown]


_TIED = 1e-6  # cosines this near are the same up to rounding


@dataclass(frozen=True)
class MatchRate:
    """How many of `probes` got the right name among so many `persons`, and the rate of a blind guess."""

    hits: int
    probes: int
    persons: int
    chance: float

    def interval(self, confidence: float = 0.95) -> Interval:
        """Return the rate with its exact interval."""
        return rate(self.hits, self.probes, confidence=confidence)

    def beats_chance(self, confidence: float = 0.95) -> bool:
        """Whether the rate is above a blind guess's; by luck alone it is with at most (1 - confidence) / 2."""
        return self.interval(confidence).low > self.chance

    def __str__(self) -> str:
        return f"{self.hits} of {self.probes} ({self.hits / self.probes:.0%}; blind {self.chance:.1%})"


def match_rate(
    probes: ArrayLike,
    gallery: ArrayLike,
    *,
    probe_persons: ArrayLike,
    gallery_persons: ArrayLike,
    random_state: int | np.random.Generator | None = 0,
) -> MatchRate:
    """Name every probe, pictures or features (n, ...), after its nearest neighbour in the gallery.

    >>> faces = np.eye(3)
    >>> str(match_rate(faces + 0.1, faces, probe_persons=[0, 1, 2], gallery_persons=[0, 1, 2]))
    '3 of 3 (100%; blind 33.3%)'
    """
    known, asked = _rows(gallery), _rows(probes)
    names, truth = np.asarray(gallery_persons), np.asarray(probe_persons)
    _check(known, asked, names, truth)
    mean = known.mean(axis=0)
    cosines = _unit(asked - mean) @ _unit(known - mean).T
    nearest = cosines >= cosines.max(axis=1, keepdims=True) - _TIED
    draw = science(random_state).random(cosines.shape, dtype=np.float32)
    found = names[np.argmax(np.where(nearest, draw, -1), axis=1)]
    counts = np.unique(truth, return_counts=True)[1]
    return MatchRate(int(np.sum(found == truth)), len(asked), len(np.unique(names)), float(counts.max() / len(asked)))


def _rows(pictures: ArrayLike) -> NDArray[np.float32]:
    """Return everything known of each picture as one row."""
    rows = np.asarray(pictures)
    if rows.ndim < 2 or not rows.size or rows.dtype.kind not in "biuf":
        raise InputError(f"faces to match must be numbers of shape (n, ...); got {rows.dtype} {rows.shape}.")
    return rows.reshape(len(rows), -1).astype(np.float32)


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


def _check(known: NDArray[Any], asked: NDArray[Any], names: NDArray[Any], truth: NDArray[Any]) -> None:
    if known.shape[1] != asked.shape[1]:
        raise InputError(
            f"probes and gallery must be of one kind; got {asked.shape[1]} and {known.shape[1]} numbers a face."
        )
    if names.shape != known.shape[:1] or truth.shape != asked.shape[:1]:
        raise InputError(
            f"every face needs its person; got {truth.shape} persons of {len(asked)} probes and {names.shape} of "
            f"{len(known)} in the gallery."
        )
    if len(np.unique(names)) < 2:
        raise InputError("a gallery needs 2 persons or more: with one, every match is right.")
    if not np.isin(truth, names).all():
        raise InputError("every person of the probes must be in the gallery: others could never be matched.")


_CLAIMS = {
    "plain": ("a picture can be drawn from one plain update", "Yonetani et al. 2017, supplement, section 2.3"),
    "aggregator": ("the aggregator cannot draw a picture from what it receives", "the statement of the scheme"),
    "sift": ("a sift hides what it is asked to hide; faces are not part of the claim", "Enev et al. 2012"),
}
_PROVEN = {
    "plain": "nothing is protected",
    "aggregator": "cryptographically, under the assumptions of the statement",
    "sift": "nothing of faces",
}
_ABOVE: Mapping[str, Verdict] = {"plain": "as stated", "aggregator": "refuted", "sift": "leaks"}
"""What it means that a view beats chance."""


@dataclass(frozen=True, eq=False)
class FourPictures:
    """Originals and what each view shows of them; `matches` has no entries where nobody knows who is on a picture.

    `matches` also has "original": how well the originals themselves are recognised by this simple comparison.
    """

    originals: Pictures
    shown: Mapping[str, Pictures]
    average: Picture
    similarity: Mapping[str, NDArray[np.float64]]
    """SSIM with the originals, by view, and of the average public picture as "blind"."""
    strangers: Mapping[str, NDArray[np.float64]]
    """Mean SSIM of each reconstruction with originals of others, by view; empty if there is but one."""
    matches: Mapping[str, MatchRate]

    def row(self, index: int) -> PictureRow:
        """Return the four pictures of one original."""
        plain, aggregator, sift = (self.shown[view][index] for view in VIEWS)
        scores = {view: float(values[index]) for view, values in self.similarity.items()}
        similarity = (scores["plain"], scores["aggregator"], scores["sift"])
        return PictureRow(self.originals[index], plain, aggregator, sift, similarity, scores["blind"])

    def strip(self, indices: ArrayLike, *, scale: int | None = None) -> Image.Image:
        """Return the rows of some originals as one picture."""
        return picture_strip([self.row(int(index)) for index in np.ravel(indices)], scale=scale)

    def findings(self, *, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view for likeness, and one for identity where the originals themselves are recognised.

        A view that tells nothing is called a leak with probability at most (1 - confidence) / 2 per line.
        """
        return (*self.likeness(confidence=confidence), *self.identity(confidence=confidence))

    def likeness(self, *, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view: how like the originals it is."""
        return tuple(self._likeness(view, confidence) for view in VIEWS if view in self.strangers)

    def identity(self, *, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view: whose faces it shows; none where not even the originals are recognised."""
        if not self.matches or not self.matches["original"].beats_chance(confidence):
            return ()
        return tuple(self._identity(view, confidence) for view in VIEWS if view in self.matches)

    def notes(self, *, confidence: float = 0.99) -> tuple[str, ...]:
        """Say where persons are known and yet nothing can be said about identity."""
        if not self.matches or self.matches["original"].beats_chance(confidence):
            return ()
        return (
            "who is on the drawn pictures was not judged: this comparison does not recognise the originals either "
            f"({self.matches['original']}).",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data; the pictures themselves are left out."""
        means = {view: float(scores.mean()) for view, scores in self.similarity.items()}
        matches = {
            view: {"hits": match.hits, "probes": match.probes, "persons": match.persons, "chance": match.chance}
            for view, match in self.matches.items()
        }
        strangers = {view: float(scores.mean()) for view, scores in self.strangers.items()}
        return {"pictures": len(self.originals), "ssim": means, "strangers": strangers, "matches": matches}

    def _likeness(self, view: str, confidence: float) -> Finding:
        scores, strangers = self.similarity[view], self.strangers[view]
        others, blind = float(strangers.mean()), float(self.similarity["blind"].mean())
        gain = mean_interval(scores - strangers, confidence)
        measure = f"mean SSIM over {len(scores)} pictures; with those of strangers {others:.2f}; blind {blind:.2f}"
        details = {"strangers": others, "blind": blind, "gain": gain.value, "surely": gain.low}
        return self._finding(view, measure, mean_interval(scores, confidence), gain.low > 0, details)

    def _identity(self, view: str, confidence: float) -> Finding:
        match, original = self.matches[view], self.matches["original"]
        clear = original.hits / original.probes
        measure = f"right names among {match.persons} persons; blind {match.chance:.2g}, from the originals {clear:.2g}"
        details = {"chance": match.chance, "hits": match.hits, "probes": match.probes, "originals": original.hits}
        return self._finding(view, measure, match.interval(confidence), match.beats_chance(confidence), details)

    @staticmethod
    def _finding(view: str, measure: str, measured: Interval, above: bool, details: Mapping[str, Any]) -> Finding:
        claim, source = _CLAIMS[view]
        return Finding(
            claim=claim,
            source=source,
            proven=_PROVEN[view],
            measure=measure,
            measured=measured,
            verdict=_ABOVE[view] if above else "at chance",
            attack="decoder trained on public pictures",
            details={"view": view, **details},
        )
