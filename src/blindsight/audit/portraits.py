"""The row of four pictures on faces whose persons are known: original, from a plain update, from what the aggregator
really holds, from a sift; and whether who is on them can be told.

Likeness is measured on drawn faces, whose attributes a sift needs. Identity is measured on photographs (`orl`) where
they lie in the cache, without a sift, since nobody labelled them; else on the drawn faces. Each person has one probe,
so that the interval holds for further persons; where not even the originals are recognised, nothing is said of the
rest.
"""

import math
from dataclasses import replace

import numpy as np

from blindsight.audit.checks import Evidence
from blindsight.audit.inversion.evidence import aggregator_samples
from blindsight.audit.inversion.pictures import FourPictures
from blindsight.audit.inversion.study import four_pictures, split_persons
from blindsight.data.catalogue import catalogue, load
from blindsight.data.dataset import Dataset
from blindsight.data.features import extract
from blindsight.data.pixels import PixelFeatures
from blindsight.progress import Progress, silent
from blindsight.sift.ppls import PPLS

SHOWN = 3
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

    With `photographs`, of known persons, identity is judged on them.
    """
    drawn = _drawn(dataset, (public, private), scheme, random_state, progress)
    judged = drawn if photographs is None else _drawn(photographs, None, scheme, random_state, progress)
    named = (photographs or dataset).name
    identity = tuple(replace(row, attack=f"{row.attack}, on {named}") for row in judged.identity())
    rows = tuple(drawn.row(index) for index in range(min(SHOWN, len(drawn.originals))))
    return Evidence((*drawn.likeness(), *identity), rows, notes=judged.notes())


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
    features, theirs = extract(known, pipeline), extract(probes, pipeline)
    sift = None
    if policy is not None:
        sift = PPLS(5, math.inf, scale=False).fit(features, *(known.attribute(name) for name in policy)).sift_
    progress("a round of the real protocol", 0, None)
    held = aggregator_samples(theirs, features, scheme=scheme, random_state=random_state)
    return four_pictures(
        probes,
        known,
        pipeline=pipeline,
        sift=sift,
        aggregator=held,
        gallery=gallery,
        random_state=random_state,
        progress=progress,
    )


def _one_of_each(probes: Dataset) -> Dataset:
    """Return one picture of each person, of at most so many persons as are sent through a round."""
    assert probes.persons is not None
    return probes.take(np.unique(probes.persons, return_index=True)[1][:_PROBES])
