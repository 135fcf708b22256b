"""From a collection of pictures to a gallery, and back to pictures: what `blindsight search` does with folders.

`build_gallery` reads the pictures, sets apart what is public and what is held out, and indexes the rest. In local mode
the same folder built again releases nothing anew: what was released of an unchanged picture is kept under ``private/``,
with the ledger that counts what the collection has spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import Dataset, contact_sheet, extract
from blindsight.dp.ledger import Ledger
from blindsight.dp.losses import check_positive
from blindsight.errors import BlindsightError, DataError, InputError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.search.evaluation import Ranking
from blindsight.search.gallery import (
    Found,
    Gallery,
    Mode,
    Pictures,
    Source,
    build_central,
    build_local,
    build_open,
    feature_pipeline,
    picture_ids,
)
from blindsight.search.hits import IdArray
from blindsight.search.private import PrivateHasher
from blindsight.search.study import sought

_PRIVATE, _RELEASES, _LEDGER = "private", "releases.npz", "ledger.jsonl"
_CLIP = 1.0  # thumbnails have unit norm; longer rows of other features are shortened to it
_CELL = 96  # side of a picture on a sheet of answers


@dataclass(frozen=True)
class Wish:
    """How a gallery is to be made. `epsilon` is needed unless the mode is open; `budget` is the ledger's, if any."""

    mode: Mode
    epsilon: float | None
    delta: float
    bits: int
    features: str = "thumbnail"
    public_share: float | None = None
    hold_out: int = 0
    budget: float | None = None
    random_state: int = 0

    def check(self, has_public: bool) -> None:
        """Refuse what cannot be done before a picture is read."""
        if self.mode == "open":
            if self.epsilon is not None:
                raise InputError("an open index has no noise and no epsilon. Take --mode local or central.")
        elif self.epsilon is None:
            raise InputError(f"{self.mode} mode needs --epsilon: what one record may lose.")
        else:
            check_positive("epsilon", self.epsilon)
        if self.mode == "local" and has_public == (self.public_share is not None):
            raise InputError(
                "local mode learns what codes mean from public pictures, never from private ones: name some with "
                "--public, or declare a part of these public with --public-share (one of the two)."
            )
        if self.public_share is not None and not 0 < self.public_share < 1:
            raise InputError(f"the public share must be in (0, 1); got {self.public_share}.")
        feature_pipeline(self.features)


def build_gallery(
    source: Source,
    wish: Wish,
    folder: Path,
    *,
    public: Dataset | None = None,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Gallery:
    """Index the pictures of a source in a folder, as wished."""
    wish.check(public is not None)
    dataset = source.load()
    if dataset.images is None:
        raise DataError(f"{dataset.name} comes without pictures. A gallery is made of pictures.")
    features = extract(dataset, feature_pipeline(wish.features), cache=cache, progress=progress)
    opened, left, kept = _rows(len(dataset), wish)
    pictures = Pictures(
        picture_ids(dataset, kept),
        features[kept],
        wish.features,
        source,
        side=dataset.images.shape[1],
        held_out=tuple(left.tolist()),
    )
    progress("building the index", 0, None)
    if wish.mode == "open":
        gallery = build_open(pictures, min(wish.bits, features.shape[1]), wish.random_state)
    elif wish.mode == "central":
        gallery = build_central(pictures, _hasher(wish, folder))
    else:
        known = features[opened]
        if public is not None:
            known = extract(public, feature_pipeline(wish.features), cache=cache, progress=progress)
        gallery = build_local(pictures, _hasher(wish, folder), known)
    gallery.save(folder)
    return gallery


def evaluate_gallery(
    gallery: Gallery,
    queries: Dataset | None = None,
    *,
    count: int = 500,
    random_state: int = 0,
    progress: Progress = silent,
) -> Ranking:
    """Measure how well a gallery finds the class (or person) of query pictures: others, or those it held out."""
    dataset = gallery.source.load()
    ids, searcher = gallery.searcher()
    labels = sought(dataset)[_positions(dataset, ids)]
    asked = queries if queries is not None else dataset.take(np.array(gallery.held_out, dtype=np.int64))
    if not len(asked):
        raise InputError("no picture was held out of this gallery: name some to ask with, or build it with --hold-out.")
    wanted = _class_names(asked, sought(asked))
    offered = _class_names(dataset, labels)
    findable = np.flatnonzero(np.isin(wanted, offered))
    if not findable.size:
        raise DataError(f"no query of {asked.name} is of a class that the gallery of {dataset.name} has.")
    chosen = science(random_state).permutation(findable)[:count]
    rows = extract(asked.take(chosen), feature_pipeline(gallery.features), progress=progress)
    return searcher.evaluate(rows, wanted[chosen], offered, progress=progress)


def answer_sheet(gallery: Gallery, query: NDArray[np.uint8], found: Sequence[Found]) -> Image.Image | None:
    """Draw the query and its answers; None if the pictures are no longer where they were."""
    try:
        dataset = gallery.source.load()
        rows = _positions(dataset, np.array([hit.id for hit in found]))
    except BlindsightError:
        return None
    assert dataset.images is not None
    captions = ["query", *(f"{rank}. {hit.id}" for rank, hit in enumerate(found, start=1))]
    pictures = np.stack([query, *dataset.images[rows]])
    return contact_sheet(
        pictures, columns=min(6, len(pictures)), captions=captions, scale=max(1, _CELL // gallery.side)
    )


def _positions(dataset: Dataset, ids: IdArray) -> NDArray[np.int64]:
    """Return the rows of a collection that have these ids."""
    if ids.dtype.kind in "iu":
        if len(ids) and (ids.min() < 0 or ids.max() >= len(dataset)):
            raise DataError(f"{dataset.name} is smaller than it was when the gallery was built.")
        return ids.astype(np.int64)
    rows = {name: row for row, name in enumerate(dataset.names)}
    missing = [name for name in ids if name not in rows]
    if missing:
        raise DataError(f"{missing[0]} is no longer in {dataset.name}.")
    return np.array([rows[name] for name in ids], dtype=np.int64)


def _class_names(dataset: Dataset, numbers: NDArray[np.int64]) -> NDArray[np.str_]:
    """Return what rows show in words, so that two collections can be compared."""
    if dataset.labels is not None and dataset.label_names:
        return np.array(dataset.label_names)[numbers]
    return numbers.astype(np.str_)


def _rows(size: int, wish: Wish) -> tuple[NDArray[np.int64], ...]:
    """Return which rows are public, held out and indexed: the same for the same wish."""
    order = science(wish.random_state).permutation(size)
    public = round(size * (wish.public_share or 0))
    if public + wish.hold_out >= size:
        raise InputError(f"{size} pictures leave none to index after {public} public and {wish.hold_out} held out.")
    parts = np.split(order, [public, public + wish.hold_out])
    return tuple(np.sort(part) for part in parts)


def _hasher(wish: Wish, folder: Path) -> PrivateHasher:
    private = folder / _PRIVATE
    with storage_errors("write into", private):
        private.mkdir(parents=True, exist_ok=True, mode=0o700)
    ledger = Ledger(private / _LEDGER)
    central = wish.mode == "central"
    delta = wish.delta if central else 0.0
    if wish.budget is not None:
        ledger.set_budget("pictures", unit="record", neighbours="replace", epsilon=wish.budget, delta=delta)
    assert wish.epsilon is not None
    return PrivateHasher(
        wish.epsilon,
        mode="central" if central else "local",
        bits=wish.bits,
        delta=wish.delta if central else None,
        clip=_CLIP if central else None,
        path=None if central else private / _RELEASES,
        ledger=ledger,
        scope="pictures",
        random_state=wish.random_state,
    )
