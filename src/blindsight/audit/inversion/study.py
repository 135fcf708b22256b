"""From features back to faces: what is drawn from a plain update, from the aggregator's view, from a sift.

Supplement of Yonetani et al. (ICCV 2017), section 2.3: features that leak are pictures that leak. Decoders are trained
on public pictures of other people; what they show is measured in `fourpictures`.
"""

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.inversion.decoder import (
    ConvolutionalInversion,
    Floats,
    Inversion,
    Pictures,
    RidgeInversion,
    check_rows,
    mean_picture,
    ssim,
)
from blindsight.audit.inversion.evidence import plain_samples, sifted_rows
from blindsight.audit.inversion.pictures import FourPictures, MatchRate, match_rate
from blindsight.data.dataset import Dataset
from blindsight.data.embedding import Embedding, OnnxEmbedding
from blindsight.data.features import FeaturePipeline, extract
from blindsight.errors import InputError
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.sift import Sift

_NETWORK_SECONDS = 75.0  # on one core
_STRANGERS = 4  # with which each reconstruction is compared


def four_pictures(
    probes: Dataset,
    public: Dataset,
    *,
    pipeline: FeaturePipeline,
    sift: Sift | None,
    aggregator: ArrayLike,
    plain: ArrayLike | None = None,
    gallery: Dataset | None = None,
    inversion: Inversion | None = None,
    cache: AnyPath | None = None,
    random_state: int | np.random.Generator | None = 0,
    progress: Progress = silent,
) -> FourPictures:
    """Draw the owners' pictures (`probes`) from what each view holds of them, with decoders trained on `public`.

    `pipeline` is fitted to the public pictures unless it is fitted already. `aggregator` are the feature vectors that
    the aggregator takes for the owners', a row per probe (see `aggregator_samples`); `plain` those recovered from plain
    updates, by default from one step of SGD on each picture. `gallery` holds other pictures of the same persons, with
    names. `inversion` makes the decoder of the features (by default the one that suits the pipeline:
    `inversion_for`); what a sift lets out always gets a linear one, and without a sift that view is left out. Features
    are kept in the folder `cache`, if one is given.
    """
    known = extract(public, pipeline, cache=cache, progress=progress)
    rows = extract(probes, pipeline, cache=cache, progress=progress)
    generator = science(random_state)
    progress("training decoders", 0, 2)
    learner = inversion or inversion_for(pipeline, random_state=generator)
    decoder = learner.fit(known, _images(public), public.persons)
    progress("training decoders", 1, 2)
    leaked = plain_samples(rows, random_state=generator) if plain is None else check_rows(plain)
    shown = {
        "plain": decoder.decode(_one_each(leaked, probes)),
        "aggregator": decoder.decode(_one_each(check_rows(aggregator), probes)),
    }
    theirs = None if gallery is None else extract(gallery, pipeline, cache=cache, progress=progress)
    known_faces: dict[str, Pictures] = {}
    if gallery is not None and theirs is not None:
        drawn = decoder.decode(theirs)
        known_faces = {"original": _images(gallery), "plain": drawn, "aggregator": drawn}
    if sift is not None:
        sift_decoder = RidgeInversion().fit(sifted_rows(sift, known), _images(public), public.persons)
        shown["sift"] = sift_decoder.decode(sifted_rows(sift, rows))
        if theirs is not None:
            known_faces["sift"] = sift_decoder.decode(sifted_rows(sift, theirs))
    progress("training decoders", 2, 2)
    matches: dict[str, MatchRate] = {}
    if gallery is not None:
        matches = _matches({"original": _images(probes), **shown}, probes, known_faces, gallery, generator)
    return _measured(_images(probes), shown, mean_picture(_images(public)), matches, generator)


def inversion_for(pipeline: FeaturePipeline, *, random_state: int | np.random.Generator | None = 0) -> Inversion:
    """Return what draws best from features of this kind: of embeddings a network, where torch is there, else linear."""
    return ConvolutionalInversion(random_state=random_state) if _suits_network(pipeline) else RidgeInversion()


def seconds_to_learn(pipeline: FeaturePipeline) -> float:
    """Return about what training the decoder of `inversion_for` takes."""
    return _NETWORK_SECONDS if _suits_network(pipeline) else 1.0


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


def _measured(
    originals: Pictures,
    shown: Mapping[str, Pictures],
    average: NDArray[np.uint8],
    matches: Mapping[str, MatchRate],
    generator: np.random.Generator,
) -> FourPictures:
    similarity = {view: ssim(originals, pictures) for view, pictures in shown.items()}
    similarity["blind"] = ssim(originals, np.broadcast_to(average, originals.shape))
    shifts = 1 + generator.permutation(len(originals) - 1)[:_STRANGERS]
    others = [np.roll(originals, shift, axis=0) for shift in shifts]
    strangers = {
        view: np.asarray(np.mean([ssim(other, pictures) for other in others], axis=0))
        for view, pictures in shown.items()
        if others
    }
    return FourPictures(originals, shown, average, similarity, strangers, matches)
