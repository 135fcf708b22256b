"""Files that come with published collections: tables of words and packed arrays, whole or with one sentence why not."""

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.data.reading.images import Entry
from blindsight.errors import CorruptFileError, DataError
from blindsight.files import storage_errors


def first_existing(root: Path, *names: str) -> Path:
    """Return the first of these files that is there."""
    for name in names:
        if (root / name).is_file():
            return root / name
    raise DataError(f"{root} does not hold {names[0]}. Give the folder that does.")


def read_words(table: Path) -> Iterator[list[str]]:
    """Yield the words of each line, separated by spaces or commas; blank lines are left out."""
    with storage_errors("read", table), table.open(encoding="utf-8", errors="replace") as stream:
        yield from filter(None, (line.replace(",", " ").split() for line in stream))


def read_numbered(table: Path) -> dict[int, str]:
    """Return a table whose lines are a number and a name, by number."""
    try:
        return {int(number): name for number, name in read_words(table)}
    except ValueError:
        raise CorruptFileError(f"{table} is damaged: a line is not a number and a name.") from None


def read_npz(path: Path, *keys: str) -> dict[str, NDArray[Any]]:
    """Return arrays of a .npz file; nothing in it is ever executed."""
    try:
        with storage_errors("read", path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as packed:
            missing = [key for key in keys if key not in packed]
            if missing:
                raise DataError(f"{path} does not hold {', '.join(missing)}; it needs {', '.join(keys)}.")
            return {key: packed[key] for key in keys}
    except (EOFError, MemoryError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise CorruptFileError(f"{path} is damaged or not a .npz file of plain arrays.") from None


def locate(root: Path, names: Iterable[str], table: Path) -> list[Entry]:
    """Return the files a table names, refusing names that lead out of the folder of the pictures."""
    found: list[Entry] = []
    for name in names:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise CorruptFileError(f"{table} is damaged: it names a file outside {root}.")
        found.append((name, root / name))
    return found


def snake_case(names: Iterable[str], table: Path) -> tuple[str, ...]:
    """Return names in small letters and underscores, still all different.

    >>> snake_case(["5_o_Clock_Shadow", "has_bill_shape::curved_(up_or_down)"], Path("attributes.txt"))
    ('5_o_clock_shadow', 'has_bill_shape_curved_up_or_down')
    """
    snakes = tuple(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") for name in names)
    if len(set(snakes)) < len(snakes):
        raise CorruptFileError(f"{table} is damaged: it names an attribute twice.")
    return snakes
