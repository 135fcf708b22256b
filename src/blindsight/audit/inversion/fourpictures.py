"""What an inversion found: pictures by view, how like the originals they are, whose faces they show, and what follows.

Every figure stands beside those without which it says nothing:

- *blind*: the SSIM of the average public picture, which is no reconstruction at all;
- *strangers*: the SSIM of a reconstruction with originals that it was not made from. If what a view holds tells nothing
  of its original, both have the same expectation, whatever the decoder draws; so their difference decides;
- the rate at which a blind guess names the right person.

A view at chance has told nothing to this decoder; that proves nothing of better ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.inversion.decoder import Pictures
from blindsight.audit.inversion.identity import MatchRate
from blindsight.audit.inversion.pictures import VIEWS, Picture, PictureRow, picture_strip
from blindsight.audit.leakage.intervals import mean_interval

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
