"""What a reader found out before any picture is opened, and how that becomes a Dataset."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import Dataset
from blindsight.data.reading.images import MEMORY_LIMIT, Entry, Fit, read_images
from blindsight.errors import DataError, InputError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import science

Seed = int | np.random.Generator | None


class Reading(TypedDict, total=False):
    """The options every reader takes.

    `size` and `fit` give the pictures' square shape (64, "crop"). `limit` reads a random part of that many pictures
    (before unreadable ones and duplicates are dropped), the same for the same `random_state` (0) and part of any larger
    one. Pixels beyond `limit_memory` bytes (2 GiB) are memory-mapped from the folder `cache` (the cache folder).
    """

    size: int
    fit: Fit
    limit: int | None
    random_state: Seed
    limit_memory: int
    cache: Path | None
    progress: Progress


@dataclass(frozen=True, eq=False)
class Listing:
    """The pictures of a collection, still undecoded, with what is known of them row by row (see Dataset)."""

    where: Path
    name: str
    licence: str
    source: str
    entries: Sequence[Entry]
    labels: NDArray[np.int64] | None = None
    label_names: tuple[str, ...] = ()
    attributes: NDArray[np.int8] | None = None
    attribute_names: tuple[str, ...] = ()
    persons: NDArray[np.int64] | None = None
    days: NDArray[np.int64] | None = None
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decode_listing(
    listing: Listing,
    *,
    size: int = 64,
    fit: Fit = "crop",
    limit: int | None = None,
    random_state: Seed = 0,
    limit_memory: int = MEMORY_LIMIT,
    cache: Path | None = None,
    progress: Progress = silent,
) -> Dataset:
    """Decode the pictures of a listing into a Dataset; Reading describes the options.

    Duplicates contradict each other when their labels, attributes or persons do; days may differ.
    """
    if not listing.entries:
        reasons = f" ({'; '.join(listing.skipped[:3])})" if listing.skipped else ""
        raise DataError(f"{listing.where} holds no pictures{reasons}.")
    chosen = some_rows(len(listing.entries), limit, random_state)
    entries = [listing.entries[row] for row in chosen]
    known = [part[chosen] for part in (listing.labels, listing.attributes, listing.persons) if part is not None]
    pictures = read_images(
        entries,
        where=str(listing.where),
        annotations=np.column_stack(known) if known else None,
        size=size,
        fit=fit,
        limit_memory=limit_memory,
        cache=cache,
        progress=progress,
    )
    rows = chosen[pictures.rows]
    columns = {part: getattr(listing, part) for part in ("labels", "attributes", "persons", "days")}
    per_row: dict[str, Any] = {part: column[rows] for part, column in columns.items() if column is not None}
    notes = list(listing.notes)
    if pictures.contradicting:
        notes.append(f"{pictures.contradicting} pictures dropped: identical to others that are described differently")
    if isinstance(pictures.images, np.memmap):
        notes.append(f"decoded pixels lie in the cache folder as pixels/{Path(str(pictures.images.filename)).name}")
    return Dataset(
        name=listing.name,
        licence=listing.licence,
        source=listing.source,
        images=pictures.images,
        label_names=listing.label_names,
        attribute_names=listing.attribute_names,
        names=tuple(entries[row][0] for row in pictures.rows),
        skipped=listing.skipped + pictures.skipped,
        duplicates=pictures.duplicates,
        notes=tuple(notes),
        **per_row,
    )


def some_rows(count: int, limit: int | None, random_state: Seed) -> NDArray[np.int64]:
    """Return `limit` of `count` rows, in order: the first of a seeded shuffle, so that a larger limit holds a smaller.

    >>> some_rows(10, 3, 0).tolist(), some_rows(10, 4, 0).tolist()
    ([2, 4, 6], [2, 4, 6, 7])
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit must be >= 1; got {limit}. Leave it out to read everything.")
    order = science(random_state).permutation(count)
    return np.sort(order[:limit]).astype(np.int64)


def shown(path: PurePath) -> str:
    """Return a relative path as a name for people: forward slashes, and printable whatever bytes it is made of."""
    return os.fsencode(path.as_posix()).decode("utf-8", "replace")


def visible_files(folder: Path) -> list[Path]:
    """Return all files under `folder` as paths relative to it, sorted; names that begin with a dot are left out."""

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    with storage_errors("read", folder):
        for parent, inner, files in os.walk(folder, onerror=refuse):
            inner[:] = [name for name in inner if not name.startswith(".")]
            found += [Path(parent, name).relative_to(folder) for name in files if not name.startswith(".")]
    return sorted(found)
