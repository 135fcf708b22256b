"""From features back to faces, measured: how like the originals reconstructions are, and whose faces they show.

Supplement of Yonetani et al. (ICCV 2017), section 2.3: features that leak are pictures that leak. Decoders are trained
on public pictures of other people. Every figure stands beside those without which it says nothing:

- *blind*: the SSIM of the average public picture, which is no reconstruction at all;
- *strangers*: the SSIM of a reconstruction with originals that it was not made from. If what a view holds tells nothing
  of its original, both have the same expectation, whatever the decoder draws; so their difference decides;
- the rate at which a blind guess names the right person.

A view at chance has told nothing to this decoder; that proves nothing of better ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.inversion.decoder import Floats, Inversion, Pictures, check_rows
from blindsight.audit.inversion.evidence import plain_samples, sifted_rows
from blindsight.audit.inversion.identity import MatchRate, match_rate
from blindsight.audit.inversion.pictures import VIEWS, Picture, PictureRow, picture_strip
from blindsight.audit.inversion.ridge import RidgeInversion
from blindsight.audit.inversion.similarity import mean_picture, ssim
from blindsight.audit.leakage.intervals import mean_interval
from blindsight.data.dataset import Dataset
from blindsight.data.features import FeaturePipeline, extract
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.sift import Sift

_STRANGERS = 4  # with which each reconstruction is compared

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
        """Return a line per view for likeness, and one for identity where persons are known.

        A view that tells nothing is called a leak with probability at most (1 - confidence) / 2 per line.
        """
        found = [self._likeness(view, confidence) for view in VIEWS if view in self.strangers]
        return (*found, *(self._identity(view, confidence) for view in VIEWS if view in self.matches))

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
        measure = (
            f"mean SSIM over {len(scores)} pictures; with pictures of strangers {others:.2f}, of the average public "
        )
        measure += f"picture {blind:.2f}"
        details = {"strangers": others, "blind": blind, "gain": gain.value, "surely": gain.low}
        return self._finding(view, measure, mean_interval(scores, confidence), gain.low > 0, details)

    def _identity(self, view: str, confidence: float) -> Finding:
        match, original = self.matches[view], self.matches["original"]
        measure = f"right names among {match.persons} persons; a blind guess {match.chance:.3g}, the originals "
        measure += f"{original.hits / original.probes:.2g}"
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


def four_pictures(
    probes: Dataset,
    public: Dataset,
    *,
    pipeline: FeaturePipeline,
    sift: Sift,
    aggregator: ArrayLike,
    plain: ArrayLike | None = None,
    gallery: Dataset | None = None,
    inversion: Inversion | None = None,
    cache: Path | None = None,
    random_state: int | np.random.Generator | None = 0,
    progress: Progress = silent,
) -> FourPictures:
    """Draw the owners' pictures (`probes`) from what each view holds of them, with decoders trained on `public`.

    `pipeline` is fitted to the public pictures unless it is fitted already. `aggregator` are the feature vectors that
    the aggregator takes for the owners', a row per probe (see `aggregator_samples`); `plain` those recovered from plain
    updates, by default from one step of SGD on each picture. `gallery` holds other pictures of the same persons, with
    names. `inversion` makes the decoder of the features (by default linear; `ConvolutionalInversion` suits embeddings);
    what a sift lets out always gets a linear one. Features are kept in the folder `cache`, if one is given.
    """
    known = extract(public, pipeline, cache=cache, progress=progress)
    rows = extract(probes, pipeline, cache=cache, progress=progress)
    progress("training decoders", 0, 2)
    decoder = (inversion or RidgeInversion()).fit(known, _images(public), public.persons)
    progress("training decoders", 1, 2)
    sift_decoder = RidgeInversion().fit(sifted_rows(sift, known), _images(public), public.persons)
    progress("training decoders", 2, 2)
    generator = science(random_state)
    leaked = plain_samples(rows, random_state=generator) if plain is None else check_rows(plain)
    shown = {
        "plain": decoder.decode(_one_each(leaked, probes)),
        "aggregator": decoder.decode(_one_each(check_rows(aggregator), probes)),
        "sift": sift_decoder.decode(sifted_rows(sift, rows)),
    }
    matches = {}
    if gallery is not None:
        theirs = extract(gallery, pipeline, cache=cache, progress=progress)
        drawn, sifted = decoder.decode(theirs), sift_decoder.decode(sifted_rows(sift, theirs))
        lenses = {"original": _images(gallery), "plain": drawn, "aggregator": drawn, "sift": sifted}
        for view, faces in {"original": _images(probes), **shown}.items():
            matches[view] = _match(faces, probes, lenses[view], gallery, generator)
    originals, average = _images(probes), mean_picture(_images(public))
    similarity = {view: ssim(originals, pictures) for view, pictures in shown.items()}
    similarity["blind"] = ssim(originals, np.broadcast_to(average, originals.shape))
    strangers = {}
    if len(originals) > 1:
        strangers = {view: _with_strangers(originals, pictures, generator) for view, pictures in shown.items()}
    return FourPictures(originals, shown, average, similarity, strangers, matches)


def split_persons(
    dataset: Dataset, *, random_state: int | np.random.Generator | None = 0
) -> tuple[Dataset, Dataset, Dataset]:
    """Split by persons into public pictures (half of the persons), and gallery and probes of the others, half each.

    >>> from blindsight.data import faces
    >>> [len(part) for part in split_persons(faces(40, pictures_per_person=10))]
    [20, 10, 10]
    """
    if dataset.persons is None:
        raise InputError(f"dataset {dataset.name!r} does not say who is on its pictures.")
    generator = science(random_state)
    names, counts = np.unique(dataset.persons, return_counts=True)
    shuffled = generator.permutation(names[counts >= 2])
    if len(shuffled) < 3:
        raise InputError(f"a split takes 3 persons with 2 pictures or more; {dataset.name!r} has {len(shuffled)}.")
    private = shuffled[len(shuffled) // 2 :]
    rows = [generator.permutation(np.flatnonzero(dataset.persons == name)) for name in np.sort(private)]
    gallery = np.concatenate([each[: len(each) // 2] for each in rows])
    probes = np.concatenate([each[len(each) // 2 :] for each in rows])
    public = ~np.isin(dataset.persons, private)
    return dataset.take(public), dataset.take(gallery), dataset.take(probes)


def _images(dataset: Dataset) -> Pictures:
    if dataset.images is None:
        raise InputError(f"dataset {dataset.name!r} has no pictures, only features: nothing can be drawn.")
    return dataset.images


def _one_each(vectors: Floats, probes: Dataset) -> Floats:
    if len(vectors) != len(probes):
        raise InputError(f"every probe needs one vector; got {len(vectors)} for {len(probes)} probes.")
    return vectors


def _with_strangers(originals: Pictures, pictures: Pictures, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the mean SSIM of each picture with a few originals of others."""
    shifts = 1 + generator.permutation(len(originals) - 1)[:_STRANGERS]
    scores = [ssim(np.roll(originals, shift, axis=0), pictures) for shift in shifts]
    return np.asarray(np.mean(scores, axis=0))


def _match(
    faces: Pictures, probes: Dataset, known: Pictures, gallery: Dataset, generator: np.random.Generator
) -> MatchRate:
    if probes.persons is None or gallery.persons is None:
        raise InputError("matching faces needs the persons of the probes and of the gallery.")
    return match_rate(
        faces, known, probe_persons=probes.persons, gallery_persons=gallery.persons, random_state=generator
    )
