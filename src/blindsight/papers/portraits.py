"""Faces drawn from what each side holds of them (Yonetani et al. 2017, supplement, section 2.3).

An owner of Algorithm 1 without encryption sends a plain update, the aggregator of DPHE holds ciphertexts, an app of
SensorSift what a sift lets out. `audit.inversion` draws faces from each.
"""

import math
from dataclasses import replace

import numpy as np

import blindsight.papers.collections  # noqa: F401  (makes its photographs known to `load`)
from blindsight.audit.checks import Evidence
from blindsight.audit.inversion import FourPictures, four_pictures
from blindsight.data.catalogue import catalogue, load
from blindsight.data.dataset import Dataset
from blindsight.data.features import extract
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.ppls import PPLS


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


_COMPONENTS = 200
_PROBES = 60  # pictures that are really sent through a round
_PHOTOGRAPHS = "orl"


def portraits(
    dataset: Dataset,
    *,
    public: str,
    private: str,
    scheme: str = "block-dphe",
    photographs: Dataset | None = None,
    random_state: int = 0,
    progress: Progress = silent,
) -> Evidence:
    """Draw faces from what each side holds of them; the sift lets `public` through and hides `private`.

    Likeness is measured on drawn faces, whose attributes a sift needs. Identity is measured on `photographs` where
    there are some, without a sift, since nobody labelled them; else on the drawn faces. Each person has one probe, so
    that the interval holds for further persons; where not even the originals are recognised, nothing is said of the
    rest.
    """
    drawn = _drawn(dataset, (public, private), scheme, random_state, progress)
    judged = drawn if photographs is None else _drawn(photographs, None, scheme, random_state, progress)
    named = (photographs or dataset).name
    identity = tuple(replace(row, attack=f"{row.attack}, on {named}") for row in judged.identity())
    return replace(drawn.evidence(), findings=(*drawn.likeness(), *identity), notes=judged.notes())


def cached_photographs() -> Dataset | None:
    """Return the photographs if they were fetched before; an audit downloads nothing."""
    there = any(entry.is_here() for entry in catalogue() if entry.name == _PHOTOGRAPHS)
    return load(_PHOTOGRAPHS) if there else None


def _drawn(
    dataset: Dataset, policy: tuple[str, str] | None, scheme: str, random_state: int, progress: Progress
) -> FourPictures:
    """Draw one picture of each of some persons; with a policy, of public and private, also through a sift."""
    known, gallery, probes = split_persons(dataset, random_state=random_state)
    probes = _one_of_each(probes)
    assert known.images is not None
    assert gallery.persons is not None
    assert probes.persons is not None
    gallery = gallery.take(np.isin(gallery.persons, probes.persons))
    pipeline = PixelFeatures(max_components=_COMPONENTS, random_state=random_state).fit(known.images)
    sift = None
    if policy is not None:
        columns = (known.attribute(name) for name in policy)
        sift = PPLS(5, math.inf, scale=False).fit(extract(known, pipeline), *columns).sift_
    progress("a round of the real protocol", 0, None)
    return four_pictures(
        probes,
        known,
        pipeline=pipeline,
        sift=sift,
        scheme=scheme,
        gallery=gallery,
        random_state=random_state,
        progress=progress,
    )


def _one_of_each(probes: Dataset) -> Dataset:
    """Return one picture of each person, of at most so many persons as are sent through a round."""
    assert probes.persons is not None
    return probes.take(np.unique(probes.persons, return_index=True)[1][:_PROBES])
