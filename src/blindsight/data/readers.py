"""Readers of the user's own pictures: a folder with one directory per class, or a table of files and what is on them.

Names in the Dataset are relative to the folder, never absolute. A cell that cannot be understood is named by line and
column; its value is not repeated, for it may be private.
"""

import csv
import os
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import UNKNOWN, PictureDataset
from blindsight.data.images import Entry, Fit, read_images
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.files import as_path, storage_errors
from blindsight.progress import Progress
from blindsight.rng import science

T = TypeVar("T")
Seed = int | np.random.Generator | None
NOT_STATED = "not stated"

_TRUTH = {"": UNKNOWN, "nan": UNKNOWN} | dict.fromkeys(("1", "1.0", "true", "yes", "t", "y"), 1)
_TRUTH |= dict.fromkeys(("0", "0.0", "-1", "-1.0", "false", "no", "f", "n"), 0)
_WHOLE_DAY = r"-?\d{1,7}"  # eight digits are a date: 20240301
_USUAL = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path", "image_id"),
    "label": ("label", "class", "category"),
    "person": ("person", "identity", "subject", "person_id"),
    "day": ("day", "date"),
}


class Reading(TypedDict, total=False):
    """The options every reader takes.

    `size` and `fit` give the pictures' square shape (64, "crop"). `limit` reads a random part of that many pictures
    (before unreadable ones and duplicates are dropped), the same for the same `random_state` (0) and part of any larger
    one. With `keep_copies` pictures of the same content all stay: their number then tells nothing of contents. Pixels
    beyond `limit_memory` bytes (2 GiB) are memory-mapped from the folder `cache` (the cache folder).
    """

    size: int
    fit: Fit
    keep_copies: bool
    limit: int | None
    random_state: Seed
    limit_memory: int
    cache: str | os.PathLike[str] | None
    progress: Progress


Facts = dict[str, Any]  # what is known of pictures before any is opened: parts of a Dataset


def read_folder(path: str | os.PathLike[str], **how: Unpack[Reading]) -> PictureDataset:
    """Read all pictures below a folder; each directory directly in it that holds files is a class.

    Files may lie deeper inside their class. Without such directories the pictures are unlabelled; with them, files that
    lie next to them are reported as skipped. Hidden files are ignored. `Reading` describes the options.
    """
    folder = as_path(path)
    return decode_entries(folder, *list_folder(folder), **how)


def list_folder(folder: Path, *, without: Collection[str] = ()) -> tuple[list[Entry], Facts]:
    with storage_errors("read", folder):
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = {entry.name: visible_files(entry) for entry in entries if entry.is_dir() and entry.name not in without}
    classes = {name: files for name, files in classes.items() if files}
    loose = [Path(entry.name) for entry in entries if not entry.is_dir()]
    files = [Path(name, file) for name, inner in classes.items() for file in inner] or loose
    return [(shown(file), folder / file) for file in files], {
        "name": shown(Path(folder.resolve().name)),
        "licence": NOT_STATED,
        "source": "a folder of pictures",
        "labels": np.repeat(np.arange(len(classes)), [len(inner) for inner in classes.values()]) if classes else None,
        "label_names": tuple(shown(Path(name)) for name in classes),
        "skipped": tuple(f"{shown(file)}: lies next to the class folders" for file in loose) if classes else (),
    }


def read_csv(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    person_column: str | None = None,
    day_column: str | None = None,
    attribute_columns: Sequence[str] | None = None,
    **how: Unpack[Reading],
) -> PictureDataset:
    """Read the pictures that a table names, with what it says of them.

    File names are absolute, or relative to `root` (default: the table's folder), and must not lead out of it. Columns
    that are not given are recognised by their usual names (path, file, filename, image; label, class; person, identity,
    subject; day, date); an empty string leaves one out. Attributes are yes/no cells: 1/0, true/false, yes/no or 1/-1,
    blank for unknown; without `attribute_columns` every other column that holds nothing else is one, and a note names
    the columns left unused. Days are whole numbers or ISO dates; the earliest becomes day 0. `Reading` has the options.
    """
    table = _read_table(as_path(path))
    named = {"path": path_column, "label": label_column, "person": person_column, "day": day_column}
    roles = {role: _column(table, role, name) for role, name in named.items()}
    folder = as_path(root) if root is not None else table.path.parent
    entries, facts = _list_table(table, folder, roles, attribute_columns)
    return decode_entries(table.path, entries, facts, **how)


def _list_table(
    table: "_Table", root: Path, roles: dict[str, str | None], attribute_columns: Sequence[str] | None
) -> tuple[list[Entry], Facts]:
    if roles["path"] is None:
        known = ", ".join(table.columns)
        raise InputError(f"no column of {table.path.name} is known to name files. Give path_column, one of: {known}.")
    labels, label_names = _codes(table, roles["label"])
    days, day_zero = _days(table, roles["day"])
    others = [name for name in table.columns if name and name not in roles.values()]
    attributes = _attributes(table, others, attribute_columns)
    unused = ", ".join(name for name in others if name not in attributes)
    return _files(table, roles["path"], root), {
        "name": table.path.stem,
        "licence": NOT_STATED,
        "source": "a table of pictures",
        "labels": labels,
        "label_names": label_names,
        "attributes": np.column_stack(list(attributes.values())) if attributes else None,
        "attribute_names": tuple(attributes),
        "persons": _codes(table, roles["person"])[0],
        "days": days,
        "notes": ((f"unused columns: {unused}",) if unused else ()) + ((day_zero,) if day_zero else ()),
    }


def decode_entries(where: Path, entries: Sequence[Entry], facts: Facts, **how: Unpack[Reading]) -> PictureDataset:
    """Decode pictures into a Dataset; duplicates contradict each other by labels, attributes or persons, not days."""
    skipped, notes = facts.get("skipped", ()), [*facts.get("notes", ())]
    if not entries:
        reasons = f" ({'; '.join(skipped[:3])})" if skipped else ""
        raise DataError(f"{where} holds no pictures{reasons}.")
    chosen = some_rows(len(entries), how.get("limit"), how.get("random_state", 0))
    decoding: dict[str, Any] = {name: value for name, value in how.items() if name not in ("limit", "random_state")}
    known = [facts[part][chosen] for part in ("labels", "attributes", "persons") if facts.get(part) is not None]
    pictures = read_images(
        [entries[row] for row in chosen],
        where=str(where),
        annotations=np.column_stack(known) if known else None,
        **decoding,
    )
    rows = chosen[pictures.rows]
    if pictures.contradicting:
        notes.append(f"{pictures.contradicting} pictures dropped: identical to others that are described differently")
    if isinstance(pictures.images, np.memmap):
        notes.append(f"decoded pixels lie in the cache folder as pixels/{Path(str(pictures.images.filename)).name}")
    found = {
        "images": pictures.images,
        "names": tuple(entries[row][0] for row in rows),
        "skipped": skipped + pictures.skipped,
        "duplicates": pictures.duplicates,
        "notes": tuple(notes),
    }
    per_row = {part: column[rows] for part, column in facts.items() if isinstance(column, np.ndarray)}
    return PictureDataset(**facts | per_row | found)


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


@dataclass(frozen=True)
class _Table:
    path: Path
    columns: dict[str, list[str]]
    lines: list[int]  # where each row stands in the file

    def parse(self, column: str, meaning: Callable[[str], T], expected: str) -> list[T]:
        """Give every cell of a column its meaning, or name the first that has none."""
        parsed: list[T] = []
        for line, cell in zip(self.lines, self.columns[column], strict=True):
            try:
                parsed.append(meaning(cell))
            except (KeyError, ValueError):
                raise DataError(f"line {line}, column {column!r} of {self.path.name}: expected {expected}.") from None
        return parsed


def _read_table(path: Path) -> _Table:
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        with storage_errors("read", path), path.open(newline="", encoding="utf-8-sig") as stream:
            first = stream.readline()
            stream.seek(0)
            reader = csv.reader(stream, delimiter=max(",;\t", key=first.count), strict=True)
            for row in reader:
                if row:
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except (csv.Error, UnicodeDecodeError):
        raise DataError(f"{path.name} is not a table of UTF-8 text with one row a line.") from None
    if not rows:
        raise DataError(f"{path.name} is empty; its first line must name the columns.")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            raise DataError(f"line {line} of {path.name} has {len(row)} cells where the first has {len(rows[0])}.")
    if len(set(rows[0])) < len(rows[0]):
        raise DataError(f"two columns of {path.name} have the same name.")
    return _Table(path, {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}, lines[1:])


def _column(table: _Table, role: str, name: str | None) -> str | None:
    if name is None:
        usual = {column.lower(): column for column in table.columns}
        return next((usual[candidate] for candidate in _USUAL[role] if candidate in usual), None)
    if name and name not in table.columns:
        raise UnknownNameError("column", name, table.columns)
    return name or None


def _files(table: _Table, column: str, root: Path) -> list[Entry]:
    """Return the files a column names; neither a name nor a link may lead out of the root."""
    base = os.path.realpath(root)

    def locate(cell: str) -> Entry:
        file = Path(os.path.realpath(Path(base, _text(cell))))
        return shown(file.relative_to(base)), file  # a ValueError where it lies elsewhere

    inside = (
        f"the name of a file inside {shown(Path(base))}, relative or absolute; give a root (--root) that holds them all"
    )
    return table.parse(column, locate, inside)


def _text(cell: str) -> str:
    if not cell:
        raise ValueError
    return cell


def _codes(table: _Table, column: str | None) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Number the different values of a column, in the order of numbers if all are, else of text."""
    if column is None:
        return None, ()
    cells = table.parse(column, _text, "a value")
    numbers = all(re.fullmatch(r"-?\d+", cell) for cell in cells)
    names = sorted(set(cells), key=(lambda cell: (int(cell), cell)) if numbers else None)
    code = {name: number for number, name in enumerate(names)}
    return np.array([code[cell] for cell in cells], dtype=np.int64), tuple(names)


def _days(table: _Table, column: str | None) -> tuple[NDArray[np.int64] | None, str]:
    """Count days from the earliest; the text tells its date where dates are given."""
    if column is None or not table.lines:
        return None, ""
    remedy = f"a whole number or an ISO date (YYYY-MM-DD), as in the other rows; day_column='' leaves {column!r} out"
    is_date = not re.fullmatch(_WHOLE_DAY, table.columns[column][0])

    def day(cell: str) -> int:
        if is_date:
            return datetime.fromisoformat(cell).toordinal()
        return int(_text(cell if re.fullmatch(_WHOLE_DAY, cell) else ""))

    days = np.array(table.parse(column, day, remedy), dtype=np.int64)
    first = int(days.min())
    return days - first, f"day 0 is {datetime.fromordinal(first).date()}" if is_date else f"day 0 is {column} {first}"


def _attributes(table: _Table, candidates: list[str], named: Sequence[str] | None) -> dict[str, NDArray[np.int8]]:
    found: dict[str, NDArray[np.int8]] = {}
    for column in candidates if named is None else named:
        if column not in table.columns:
            raise UnknownNameError("column", column, table.columns)
        try:
            values = table.parse(column, lambda cell: _TRUTH[cell.lower()], "yes or no (1/0, true/false) or blank")
            cells = set(table.columns[column])
            if cells & {"-1", "-1.0"} and cells & {"0", "0.0"}:  # nobody knows whether -1 means no or unknown
                raise DataError(f"column {column!r} of {table.path.name} holds both 0 and -1; blank means unknown.")
        except DataError:
            if named is not None:
                raise
            continue
        if named is not None or any(value != UNKNOWN for value in values):
            found[column] = np.array(values, dtype=np.int8)
    return found
