"""From features back to faces: what is drawn from a plain update, from the aggregator's view, from a sift.

Supplement of Yonetani et al. (ICCV 2017), section 2.3: features that leak are pictures that leak. Decoders are trained
on public pictures of other people (`decoders`). What each side holds of a picture, as vectors that can be turned back:

- `plain_samples`: an owner makes one step of SGD with hinge loss on one picture, for a linear classifier with a bias,
  and sends the new weights in the clear. The features come back exactly (`audit.recovery`), sign and length included.
- `aggregator_samples`: the same updates go through a round of a scheme; the aggregator reads what it received in every
  way that could make sense (`audit.views`) and takes the reading that looks most like public features. Nobody tells
  it which one is right, so what comes out speaks of the scheme alone: of `plain` it mostly is the true features.
- `sifted_rows`: the numbers that a sift lets out; symbols become one-hot rows, since their order means nothing.

A decoder of faces draws faces, whatever it is given: from noise it draws a ghost that is nobody. Whether a picture is a
likeness is for the figures to say, not for the eye alone. Each stands beside those without which it says nothing:

- *blind*: the SSIM of the average public picture, which is no reconstruction at all;
- *strangers*: the SSIM of a reconstruction with originals that it was not made from. If what a view holds tells nothing
  of its original, both have the same expectation, whatever the decoder draws; so their difference decides;
- *whose face is it* (`match_rate`): the attacker has a gallery, pictures with names, say from a social network, and
  shows them through the same decoder as the probes. A probe gets the name of the gallery picture with the largest
  cosine after the gallery's mean is taken from both; ties are broken at random, so a reconstruction that is the same
  for everybody matches at chance, not never. Chance is the rate of the best blind guess: always the person with the
  most probes; with as many probes of everybody, 1 / persons. Intervals are those of Clopper & Pearson. They take probes
  for independent: exact where reconstructions tell nothing of persons, and where each person has one probe; with more,
  they speak of these persons only, since one person's pictures are recognised together or not at all.

A view at chance has told nothing to this decoder; that proves nothing of better ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from blindsight.audit.checks import Evidence
from blindsight.audit.decoders import Decoder, Floats, Pictures, check_rows, fit_linear, fit_network, mean_picture, ssim
from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.audit.recovery import gradient_step, mean_interval, recover_sample
from blindsight.audit.views import Recorder, guesses_from_view
from blindsight.data.contactsheet import contact_sheet
from blindsight.data.dataset import Dataset
from blindsight.data.embedding import Embedding, OnnxEmbedding
from blindsight.data.features import FeaturePipeline, extract
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.sift import Sift
from blindsight.sums.session import open_session

_LEARNING_RATE = 0.1
_OWNERS = ("ann", "bob", "cem")
SHOWN = 3  # originals in a report
_MOST_SYMBOLS = 256  # alphabets up to here become one-hot rows


def plain_samples(features: ArrayLike, *, random_state: int | np.random.Generator | None = 0) -> Floats:
    """Return the features that an attacker recovers from one plain update for each row."""
    rows = check_rows(features)
    before, updates = _updates(rows, science(random_state))
    return np.array(
        [recover_sample(before, before + update, bias=True).best.sample for update in updates],
        dtype=np.float32,
    )


def aggregator_samples(
    features: ArrayLike,
    public: ArrayLike,
    *,
    scheme: str,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = 0,
    progress: Progress = silent,
) -> Floats:
    """Return the features that the aggregator of a scheme takes for those behind each update, three owners a round.

    `public` holds features of public pictures, which tell the attacker what features look like.
    """
    rows, plausible = check_rows(features), _Plausible.like(check_rows(public))
    updates = _updates(rows, science(random_state))[1]
    recorder, dimension = Recorder(), updates.shape[1]
    session = open_session(
        scheme,
        members=_OWNERS,
        dimension=dimension,
        minimum_per_position=1,  # as in the paper
        key_bits=key_bits,
        insecure=insecure,
        record=recorder,
    )
    samples = np.empty_like(rows)
    for number, start in enumerate(range(0, len(rows), len(_OWNERS))):
        taking_part = dict(zip(_OWNERS, np.arange(start, start + len(_OWNERS)) % len(rows), strict=True))
        recorder.forget_rounds()
        session.round({owner: updates[row] for owner, row in taking_part.items()}, number)
        for owner, row in taking_part.items():
            samples[row] = plausible.choose(guesses_from_view(recorder.received, owner, dimension).rows)
        progress("reading the aggregator's view", min(start + len(_OWNERS), len(rows)), len(rows))
    return samples


def sifted_rows(sift: Sift, features: ArrayLike) -> Floats:
    """Return what a sift lets out of each row: its numbers, or one-hot rows of its symbols."""
    if sift.alphabet is None or sift.alphabet > _MOST_SYMBOLS:
        return np.asarray(sift.apply(features), dtype=np.float32)
    return np.eye(sift.alphabet, dtype=np.float32)[sift.symbols(features)]


def _updates(rows: Floats, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weights that all owners start from, and what the owner of each row adds to them; the bias is last."""
    samples = rows.astype(np.float64)
    size = samples.shape[1]
    # Margins of these weights stay well below one, as those of a classifier that has yet to learn something.
    length = max(float(np.mean(np.linalg.norm(samples, axis=1))), 1e-300)
    before = np.append(generator.normal(size=size) * 0.1 / np.sqrt(size) / length, 0.0)
    labels = generator.choice([-1, 1], size=len(samples))
    steps = [
        gradient_step(before, sample[None], [label], loss="hinge", learning_rate=_LEARNING_RATE, bias=True) - before
        for sample, label in zip(samples, labels, strict=True)
    ]
    return before, np.array(steps)


@dataclass(frozen=True, eq=False)
class _Plausible:
    """What features look like, by public ones: the usual size of each, and the lengths that pictures have."""

    sizes: NDArray[np.float64]
    lengths: tuple[float, float]

    @classmethod
    def like(cls, public: Floats) -> Self:
        sizes, lengths = np.abs(public).mean(axis=0, dtype=np.float64), np.linalg.norm(public, axis=1)
        return cls(sizes, (max(float(lengths.min()), 1e-12), max(float(lengths.max()), 1e-12)))

    def choose(self, guesses: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sample behind the guess of an update that looks most like a picture's.

        An update is a multiple of (features, 1), so its last entry tells sign and length. A sample looks right if large
        features are where they usually are and if public pictures are as long; other lengths are cut.
        """
        samples = guesses[:, :-1] / np.where(guesses[:, -1:] == 0, 1.0, guesses[:, -1:])
        lengths = np.maximum(np.linalg.norm(samples, axis=1), 1e-300)
        likeness = np.abs(samples) @ self.sizes / lengths / np.linalg.norm(self.sizes)
        cut = np.clip(lengths, *self.lengths)
        best = int(np.argmax(likeness - np.abs(np.log(lengths / cut))))
        chosen: NDArray[np.float64] = samples[best] * (cut[best] / lengths[best])
        return chosen


VIEWS = ("plain", "aggregator", "sift")
"""Who holds something of a picture: whoever gets a plain update, the aggregator of a scheme, an app with a sift."""

_CAPTIONS = {"plain": "from a plain update", "aggregator": "from what the aggregator holds", "sift": "from a sift"}


@dataclass(frozen=True, eq=False)
class PictureRow:
    """One original and its reconstructions in the order of `VIEWS`, each with its SSIM.

    `blind` is the SSIM of the average public picture.
    """

    pictures: Pictures
    similarity: tuple[float, ...]
    blind: float

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


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows of length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return units


_CLAIMS: Mapping[str, tuple[str, str, str, Verdict]] = {
    "plain": (
        "a picture can be drawn from one plain update",
        "Yonetani et al. 2017, supplement, section 2.3",
        "nothing is protected",
        "as stated",
    ),
    "aggregator": (
        "the aggregator cannot draw a picture from what it receives",
        "the statement of the scheme",
        "cryptographically, under the assumptions of the statement",
        "refuted",
    ),
    "sift": (
        "a sift hides what it is asked to hide; faces are not part of the claim",
        "Enev et al. 2012",
        "nothing of faces",
        "leaks",
    ),
}
"""Of each view: what is claimed, by whom, what is proven, and what it means that it beats chance."""


@dataclass(frozen=True, eq=False)
class FourPictures:
    """Originals and what each view shows of them; `matches` has no entries where nobody knows who is on a picture.

    `matches` also has "original": how well the originals themselves are recognised by this simple comparison.
    """

    originals: Pictures
    shown: Mapping[str, Pictures]
    similarity: Mapping[str, NDArray[np.float64]]
    """SSIM with the originals, by view, and of the average public picture as "blind"."""
    strangers: Mapping[str, NDArray[np.float64]]
    """Mean SSIM of each reconstruction with originals of others, by view; empty if there is but one."""
    matches: Mapping[str, MatchRate]

    def row(self, index: int) -> PictureRow:
        """Return the four pictures of one original."""
        pictures = np.stack([self.originals[index], *(self.shown[view][index] for view in VIEWS)])
        similarity = tuple(float(self.similarity[view][index]) for view in VIEWS)
        return PictureRow(pictures, similarity, float(self.similarity["blind"][index]))

    def evidence(self, views: Sequence[str] = VIEWS) -> Evidence:
        """Return the rows about some views, and the first originals with what is drawn of them from all."""
        rows = tuple(row for row in self.findings() if row.details["view"] in views)
        shown = min(SHOWN, len(self.originals)) if set(VIEWS) <= set(self.shown) else 0  # all four, or none
        return Evidence(rows, tuple(self.row(index) for index in range(shown)))

    def findings(self, *, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view for likeness, and one for identity where the originals themselves are recognised.

        A view that tells nothing is called a leak with probability at most (1 - confidence) / 2 per line.
        """
        return (*self.likeness(confidence), *self.identity(confidence))

    def likeness(self, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view: how like the originals it is."""
        return _with_power(self._likeness(view, confidence) for view in VIEWS if view in self.strangers)

    def identity(self, confidence: float = 0.99) -> tuple[Finding, ...]:
        """Return a line per view: whose faces it shows; none where not even the originals are recognised."""
        if not self.matches or not self.matches["original"].beats_chance(confidence):
            return ()
        return _with_power(self._identity(view, confidence) for view in VIEWS if view in self.matches)

    def notes(self) -> tuple[str, ...]:
        """Say where persons are known and yet nothing can be said about identity."""
        if not self.matches or self.identity():
            return ()
        return (
            "who is on the drawn pictures was not judged: this comparison does not recognise the originals either "
            f"({self.matches['original']}).",
        )

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
        claim, source, proven, beaten = _CLAIMS[view]
        return Finding(
            claim=claim,
            source=source,
            proven=proven,
            measure=measure,
            measured=measured,
            verdict=beaten if above else "at chance",
            attack="decoder trained on public pictures",
            details={"view": view, **details},
        )


def _with_power(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return rows, plain updates first: where not even these show anything, the attack has no power over the others."""
    rows = tuple(findings)
    if not rows or rows[0].verdict != "at chance":
        return rows
    return tuple(replace(row, verdict="undecided") if row.verdict == "at chance" else row for row in rows)


_NETWORK_SECONDS = 75.0  # on one core
_STRANGERS = 4  # with which each reconstruction is compared


def four_pictures(
    probes: Dataset,
    public: Dataset,
    *,
    pipeline: FeaturePipeline,
    sift: Sift | None,
    scheme: str = "plain",
    aggregator: ArrayLike | None = None,
    plain: ArrayLike | None = None,
    gallery: Dataset | None = None,
    random_state: int | np.random.Generator | None = 0,
    progress: Progress = silent,
) -> FourPictures:
    """Draw the owners' pictures (`probes`) from what each view holds of them, with decoders trained on `public`.

    `pipeline` is fitted to the public pictures unless it is fitted already. `aggregator` are the feature vectors that
    the aggregator takes for the owners', a row per probe, by default those it reads in rounds of the `scheme`; `plain`
    those recovered from plain updates, by default from one step of SGD on each picture. `gallery` holds other pictures
    of the same persons, with names. The features of embeddings are drawn by a network, where torch is there; what a
    sift lets out always gets a linear decoder, and without a sift that view is left out.
    """
    known, rows = (extract(part, pipeline, progress=progress) for part in (public, probes))
    generator = science(random_state)
    if aggregator is None:
        aggregator = aggregator_samples(rows, known, scheme=scheme, random_state=generator, progress=progress)
    progress("training decoders", 0, 2)
    decoder = learn_decoder(pipeline, known, public, generator)
    progress("training decoders", 1, 2)
    leaked = plain_samples(rows, random_state=generator) if plain is None else check_rows(plain)
    shown = {
        "plain": decoder.decode(_one_each(leaked, probes)),
        "aggregator": decoder.decode(_one_each(check_rows(aggregator), probes)),
    }
    theirs = None if gallery is None else extract(gallery, pipeline, progress=progress)
    known_faces: dict[str, Pictures] = {}
    if gallery is not None and theirs is not None:
        drawn = decoder.decode(theirs)
        known_faces = {"original": _images(gallery), "plain": drawn, "aggregator": drawn}
    if sift is not None:
        sift_decoder, _ = fit_linear(sifted_rows(sift, known), _images(public), public.persons)
        shown["sift"] = sift_decoder.decode(sifted_rows(sift, rows))
        if theirs is not None:
            known_faces["sift"] = sift_decoder.decode(sifted_rows(sift, theirs))
    progress("training decoders", 2, 2)
    matches: dict[str, MatchRate] = {}
    if gallery is not None:
        matches = _matches({"original": _images(probes), **shown}, probes, known_faces, gallery, generator)
    originals = _images(probes)
    similarity = {view: ssim(originals, pictures) for view, pictures in shown.items()}
    similarity["blind"] = ssim(originals, np.broadcast_to(mean_picture(_images(public)), originals.shape))
    others = [np.roll(originals, 1 + shift, axis=0) for shift in generator.permutation(len(originals) - 1)[:_STRANGERS]]
    strangers = {
        view: np.asarray(np.mean([ssim(other, pictures) for other in others], axis=0))
        for view, pictures in shown.items()
        if others
    }
    return FourPictures(originals, shown, similarity, strangers, matches)


def learn_decoder(
    pipeline: FeaturePipeline, known: ArrayLike, public: Dataset, generator: np.random.Generator
) -> Decoder:
    """Return what draws best from features of this kind: of embeddings a network, where torch is there, else linear."""
    if _suits_network(pipeline):
        return fit_network(known, _images(public), public.persons, random_state=generator)
    return fit_linear(known, _images(public), public.persons)[0]


def seconds_to_learn(pipeline: FeaturePipeline) -> float:
    """Return about what `learn_decoder` takes."""
    return _NETWORK_SECONDS if _suits_network(pipeline) else 1.0


def _suits_network(pipeline: FeaturePipeline) -> bool:
    return isinstance(pipeline, Embedding | OnnxEmbedding) and find_spec("torch") is not None


def _images(dataset: Dataset) -> Pictures:
    if dataset.images is None:
        raise InputError(f"dataset {dataset.name!r} has no pictures, only features: nothing can be drawn.")
    return dataset.images


def _one_each(vectors: Floats, probes: Dataset) -> Floats:
    if len(vectors) != len(probes):
        raise InputError(f"every probe needs one vector; got {len(vectors)} for {len(probes)} probes.")
    return vectors


def _matches(
    shown: Mapping[str, Pictures],
    probes: Dataset,
    known: Mapping[str, Pictures],
    gallery: Dataset,
    generator: np.random.Generator,
) -> dict[str, MatchRate]:
    """Return how often each view gives the right name, by a gallery seen through the same decoder."""
    if probes.persons is None or gallery.persons is None:
        raise InputError("matching faces needs the persons of the probes and of the gallery.")
    return {
        view: match_rate(
            faces, known[view], probe_persons=probes.persons, gallery_persons=gallery.persons, random_state=generator
        )
        for view, faces in shown.items()
    }
