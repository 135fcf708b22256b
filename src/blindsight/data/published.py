"""Published collections, read from the files their authors give out, with the terms they come under.

- **UTKFace** (Zhang, Song & Qi, CVPR 2017). Age, gender and race stand in the file names; gender 0 is male, 1 female.
- **CelebA** (Liu, Luo, Wang & Tang, ICCV 2015). Forty yes/no attributes, and who is on the picture.
- **CUB-200-2011** (Wah, Branson, Welinder, Perona & Belongie, 2011). 200 kinds of birds, 312 yes/no attributes.
- **Caltech-101** (Fei-Fei, Fergus & Perona, 2004). 101 kinds of objects and a background class, or features of them.

None of them is fetched here: each reader takes the path of what its user has downloaded under those terms.
"""

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from blindsight.data.dataset import UNKNOWN, Dataset
from blindsight.data.images import Entry
from blindsight.data.readers import (
    Facts,
    Reading,
    Seed,
    decode_entries,
    list_folder,
    shown,
    some_rows,
    visible_files,
)
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import as_path, storage_errors

_RACES = ("white", "black", "asian", "indian")  # 4 is "other": none of these
_DECADES = (*(f"{age}-{age + 9}" for age in range(0, 90, 10)), "90+")
_UTKFACE_NAME = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+\D*jpg", re.IGNORECASE)
_BACKGROUND = "BACKGROUND_Google"
_NON_COMMERCIAL = "non-commercial research only; the pictures belong to their owners"
_CC_BY = "CC BY 4.0"
_UTKFACE = "UTKFace: Zhang, Song & Qi, Age Progression/Regression by Conditional Adversarial Autoencoder, CVPR 2017"
_CALTECH101 = (
    "Caltech-101: Fei-Fei, Fergus & Perona, Learning Generative Visual Models from Few Training Examples, "
    "CVPR Workshop on Generative-Model Based Vision, 2004"
)


def read_utkface(path: str | os.PathLike[str], **how: Unpack[Reading]) -> Dataset:
    """Read UTKFace from its folder, or from one packed file.

    In the folder, files are called `[age]_[gender]_[race]_[date&time].jpg` (also `.jpg.chip.jpg`); others are reported
    as skipped. The packed .npz file holds all JPEG files one after another in `jpeg`, their n + 1 bounds in `offset`,
    and `age`, `female`, `race`. Labels are decades of age ("90+" is the last); attributes are female, under_30,
    over_59, white, black, asian and indian (of race "other" none is true). `Reading` describes the options.
    """
    path = as_path(path)
    if path.is_file():
        entries, told = _packed_faces(path)
        skipped: tuple[str, ...] = ()
    else:
        names = {file: _UTKFACE_NAME.fullmatch(file.name) for file in visible_files(path)}
        entries = [(shown(file), path / file) for file, match in names.items() if match]
        told = np.array([match.groups() for match in names.values() if match], dtype=np.int64).reshape(-1, 3)
        skipped = tuple(
            f"{shown(file)}: the name does not tell age, gender and race" for file in names if not names[file]
        )
    age, female, race = told.T
    columns = [female == 1, age < 30, age > 59, *(race == number for number in range(len(_RACES)))]
    facts: Facts = {
        "name": "utkface",
        "licence": _NON_COMMERCIAL,
        "source": _UTKFACE,
        "labels": np.minimum(age // 10, len(_DECADES) - 1),
        "label_names": _DECADES,
        "attributes": np.column_stack(columns).astype(np.int8),
        "attribute_names": ("female", "under_30", "over_59", *_RACES),
        "skipped": skipped,
    }
    return decode_entries(path, entries, facts, **how)


def _packed_faces(path: Path) -> tuple[list[Entry], NDArray[np.int64]]:
    packed = _read_npz(path, "jpeg", "offset", "age", "female", "race")
    pixels, offset = packed["jpeg"], packed["offset"]
    facts = [packed[key] for key in ("age", "female", "race")]
    whole = (
        all(part.ndim == 1 and part.dtype.kind in "iu" for part in packed.values())
        and pixels.dtype == np.uint8
        and len(offset) > 1
        and all(len(part) == len(offset) - 1 for part in facts)
        and (offset[0], offset[-1]) == (0, len(pixels))
        and bool(np.all(offset[1:] >= offset[:-1]))
        and all(part.min() >= 0 and part.max() <= top for part, top in zip(facts, (150, 1, 4), strict=True))
    )
    if not whole:
        raise CorruptFileError(f"{path} is damaged: its offsets, ages, genders and races do not belong together.")
    bounds, files = offset.tolist(), pixels.data
    entries: list[Entry] = [(f"{row:06d}.jpg", files[bounds[row] : bounds[row + 1]]) for row in range(len(bounds) - 1)]
    return entries, np.column_stack(facts).astype(np.int64)


def read_celeba(path: str | os.PathLike[str], **how: Unpack[Reading]) -> Dataset:
    """Read CelebA from the folder that holds `list_attr_celeba.txt` (or .csv), `identity_CelebA.txt` and the pictures.

    The tables may also lie in `Anno`, the pictures in `img_align_celeba`, `Img/img_align_celeba` or the folder itself.
    Without the table of identities nobody's person is known. Attribute names are in small letters: `wearing_hat`.
    `Reading` describes the options.
    """
    root = as_path(path)
    table = _first_existing(
        root, *(f"{inner}list_attr_celeba.{end}" for inner in ("", "Anno/") for end in ("txt", "csv"))
    )
    files, names, attributes = _celeba_attributes(table)
    folders = [
        root / name for name in ("img_align_celeba", "Img/img_align_celeba", "img_align_celeba/img_align_celeba")
    ]
    pictures = next((folder for folder in (*folders, root) if (folder / files[0]).is_file()), folders[0])
    places = (root / "identity_CelebA.txt", root / "Anno" / "identity_CelebA.txt")
    identities = next((place for place in places if place.is_file()), None)
    facts: Facts = {
        "name": "celeba",
        "licence": _NON_COMMERCIAL,
        "source": "CelebA: Liu, Luo, Wang & Tang, Deep Learning Face Attributes in the Wild, ICCV 2015",
        "attributes": attributes,
        "attribute_names": names,
        "persons": _celeba_persons(identities, files) if identities else None,
        "notes": () if identities else ("who is on the pictures is unknown: identity_CelebA.txt is not there",),
    }
    return decode_entries(root, _locate(pictures, files, table), facts, **how)


def _celeba_attributes(table: Path) -> tuple[list[str], tuple[str, ...], NDArray[np.int8]]:
    """Parse both forms of the table: a count, names, then rows; or a comma-separated head and rows."""
    lines = _read_words(table)
    first = next(lines, [])
    head = next(lines, []) if len(first) == 1 else first[1:]
    yes_no = {"1": 1, "-1": 0, "0": 0}
    files: list[str] = []
    answers: list[bytes] = []
    for name, *cells in lines:
        if len(cells) != len(head):
            raise CorruptFileError(f"{table} is damaged: not every picture has {len(head)} attributes.")
        try:
            answers.append(bytes(map(yes_no.__getitem__, cells)))
        except KeyError:
            raise CorruptFileError(f"{table} is damaged: an attribute is neither 1 nor -1.") from None
        files.append(name)
    if not files or (len(first) == 1 and first[0] != str(len(files))):
        raise CorruptFileError(f"{table} is truncated: it announces another number of pictures than it lists.")
    attributes = np.frombuffer(b"".join(answers), dtype=np.int8).reshape(len(files), len(head))
    return files, _snake_case(head, table), attributes


def _celeba_persons(identities: Path, files: list[str]) -> NDArray[np.int64]:
    try:
        person = {name: int(number) for name, number in _read_words(identities)}
        return np.array([person[name] for name in files], dtype=np.int64)
    except (KeyError, ValueError):
        raise CorruptFileError(f"{identities} is damaged: it does not tell who is on every picture.") from None


def read_cub(path: str | os.PathLike[str], *, certainty: int = 2, **how: Unpack[Reading]) -> Dataset:
    """Read CUB-200-2011 from its folder `CUB_200_2011`, or the one that holds it.

    Attributes answered with less than this `certainty` are unknown: 1 not visible, 2 guessing, 3 probably,
    4 definitely. Without `attributes/image_attribute_labels.txt` there are none. `Reading` describes the options.
    """
    if not 1 <= certainty <= 4:
        raise InputError(f"certainty must be in 1..4 (not visible, guessing, probably, definitely); got {certainty}.")
    root = _first_existing(as_path(path), "images.txt", "CUB_200_2011/images.txt").parent
    files, classes = _read_numbered(root / "images.txt"), _read_numbered(root / "classes.txt")
    label_of = _read_numbered(root / "image_class_labels.txt")
    order = {number: row for row, number in enumerate(classes)}
    try:
        labels = np.array([order[int(label_of[image])] for image in files], dtype=np.int64)
    except (KeyError, ValueError):
        raise CorruptFileError(f"{root / 'image_class_labels.txt'} is damaged: it does not fit images.txt.") from None
    answers = root / "attributes" / "image_attribute_labels.txt"
    names, attributes = _cub_attributes(answers, list(files), certainty) if answers.is_file() else ((), None)
    facts: Facts = {
        "name": "cub",
        "licence": "non-commercial research and education only",
        "source": "CUB-200-2011: Wah, Branson, Welinder, Perona & Belongie, Caltech report CNS-TR-2011-001, 2011",
        "labels": labels,
        "label_names": tuple(name.split(".", 1)[-1] for name in classes.values()),
        "attributes": attributes,
        "attribute_names": names,
    }
    return decode_entries(root, _locate(root / "images", files.values(), root / "images.txt"), facts, **how)


def _cub_attributes(answers: Path, images: list[int], certainty: int) -> tuple[tuple[str, ...], NDArray[np.int8]]:
    """Return attribute names and answers; a line is image, attribute, present, certainty and how long it took."""
    near = answers.parent
    named = _read_numbered(_first_existing(near, "attributes.txt", "../attributes.txt", "../../attributes.txt"))
    attributes = np.full((len(images), len(named)), UNKNOWN, dtype=np.int8)
    try:
        with storage_errors("read", answers):
            table = np.loadtxt(answers, dtype=np.int64, usecols=(0, 1, 2, 3), ndmin=2)
        image, attribute, present = table[table[:, 3] >= certainty, :3].T
        attributes[_places(images, image), _places(list(named), attribute)] = present == 1
    except (IndexError, OverflowError, ValueError):
        raise CorruptFileError(f"{answers} is damaged or does not fit images.txt and attributes.txt.") from None
    return _snake_case(named.values(), near / "attributes.txt"), attributes


def _places(numbers: list[int], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    known = np.array(numbers, dtype=np.int64)
    order = np.argsort(known)
    places = order[np.searchsorted(known, wanted, sorter=order)]  # an IndexError where it is beyond them all
    if np.any(known[places] != wanted):
        raise ValueError
    return places


def read_caltech101(path: str | os.PathLike[str], *, background: bool = True, **how: Unpack[Reading]) -> Dataset:
    """Read Caltech-101 from its folder `101_ObjectCategories` (or the one that holds it), or features of it.

    A .npz file of features holds `X` (n, d), `label` and `name` (class/file); the Dataset then has no images, and of
    the options only `limit` and `random_state` matter. `background=False` leaves out BACKGROUND_Google, which is not
    one of the 101 classes. `Reading` describes the options.
    """
    path = as_path(path)
    if path.is_file():
        return _caltech_features(path, background, how.get("limit"), how.get("random_state", 0))
    inner = path / "101_ObjectCategories"
    folder = inner if inner.is_dir() else path
    entries, facts = list_folder(folder, without=() if background else (_BACKGROUND,))
    named = {"name": "caltech101", "licence": _CC_BY, "source": _CALTECH101}
    return decode_entries(folder, entries, facts | named, **how)


def _caltech_features(path: Path, background: bool, limit: int | None, random_state: Seed) -> Dataset:
    packed = _read_npz(path, "X", "label", "name")
    features, label, name = packed["X"], packed["label"], packed["name"]
    if features.ndim != 2 or features.dtype.kind != "f" or not label.shape == name.shape == features.shape[:1]:
        raise CorruptFileError(f"{path} is damaged: X, label and name do not belong together.")
    folder = np.array([PurePosixPath(str(text)).parent.name for text in name], dtype=str)
    kept = np.ones(len(folder), dtype=bool) if background else folder != _BACKGROUND
    label_names, labels = np.unique(folder[kept], return_inverse=True)
    if not len(label_names):
        raise DataError(f"{path} holds no features of pictures in class folders.")
    pairs = np.unique(np.column_stack([labels, np.unique(label[kept], return_inverse=True)[1]]), axis=0)
    if not len(pairs) == len(label_names) == len(np.unique(pairs[:, 1])):
        raise CorruptFileError(f"{path} is damaged: label and the folders in name disagree.")
    broken = int(np.sum(~np.isfinite(features).all(axis=1)))
    if broken:
        raise DataError(f"{broken} of the {len(features)} rows of X in {path} hold values that are not finite numbers.")
    dataset = Dataset(
        name="caltech101",
        licence=_CC_BY,
        source=_CALTECH101,
        features=features[kept].astype(np.float32),
        labels=labels.astype(np.int64),
        label_names=tuple(map(str, label_names)),
        names=tuple(map(str, name[kept])),
    )
    return dataset.take(some_rows(len(dataset), limit, random_state))


def _first_existing(root: Path, *names: str) -> Path:
    for name in names:
        if (root / name).is_file():
            return root / name
    raise DataError(f"{root} does not hold {names[0]}. Give the folder that does.")


def _read_words(table: Path) -> Iterator[list[str]]:
    """Yield the words of each line, separated by spaces or commas; blank lines are left out."""
    with storage_errors("read", table), table.open(encoding="utf-8", errors="replace") as stream:
        yield from filter(None, (line.replace(",", " ").split() for line in stream))


def _read_numbered(table: Path) -> dict[int, str]:
    try:
        return {int(number): name for number, name in _read_words(table)}
    except ValueError:
        raise CorruptFileError(f"{table} is damaged: a line is not a number and a name.") from None


def _read_npz(path: Path, *keys: str) -> dict[str, NDArray[Any]]:
    """Return arrays of a .npz file; nothing in it is ever executed."""
    try:
        with storage_errors("read", path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as packed:
            missing = [key for key in keys if key not in packed]
            if missing:
                raise DataError(f"{path} does not hold {', '.join(missing)}; it needs {', '.join(keys)}.")
            return {key: packed[key] for key in keys}
    except (EOFError, MemoryError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise CorruptFileError(f"{path} is damaged or not a .npz file of plain arrays.") from None


def _locate(root: Path, names: Iterable[str], table: Path) -> list[Entry]:
    """Return the files a table names, refusing names that lead out of the folder of the pictures."""
    found: list[Entry] = []
    for name in names:
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise CorruptFileError(f"{table} is damaged: it names a file outside {root}.")
        found.append((name, root / name))
    return found


def _snake_case(names: Iterable[str], table: Path) -> tuple[str, ...]:
    """Return names in small letters and underscores, still all different.

    >>> _snake_case(["5_o_Clock_Shadow", "has_bill_shape::curved_(up_or_down)"], Path("attributes.txt"))
    ('5_o_clock_shadow', 'has_bill_shape_curved_up_or_down')
    """
    snakes = tuple(re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") for name in names)
    if len(set(snakes)) < len(snakes):
        raise CorruptFileError(f"{table} is damaged: it names an attribute twice.")
    return snakes
