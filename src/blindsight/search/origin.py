"""Who is who in a gallery: the owner's table from numbers that mean nothing to pictures that do.

An index that is given away must not name its pictures: a path such as "smith/holiday/7.png" tells what no noise can
hide. So every picture gets a random number, drawn once from the operating system, and the index is in the order of
these numbers. The table that leads back, and which pictures are public or held out, stays with the owner. A picture
keeps its number and its part when the collection grows; what is new is indexed.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, load
from blindsight.data.catalogue import reader_options
from blindsight.errors import CorruptFileError, DataError, InputError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, random_words, science, system_bytes

Part = Literal["indexed", "held out", "public"]
_PARTS: tuple[Part, ...] = ("indexed", "held out", "public")
_KIND = "blindsight/gallery-origin.1"


@dataclass(frozen=True)
class Source:
    """Where the pictures can be read again: a collection by name, and by path where it has one."""

    name: str
    path: str | None = None
    count: int | None = None
    random_state: int = 0
    side: int | None = None  # in pixels at which files are read; None: as the collection's reader has it

    def load(self, progress: Progress = silent) -> Dataset:
        """Read the pictures; copies of one picture all count, so that their number tells nothing of what they show."""
        files: dict[str, Any] = {}
        if "keep_copies" in reader_options(self.name, self.path):
            files = {"keep_copies": True, "size": self.side}
        return load(
            self.name,
            path=self.path,
            count=self.count,
            random_state=self.random_state,
            progress=progress,
            **files,
        )


@dataclass(frozen=True, eq=False)
class Origin:
    """The pictures of a gallery by name, each with its number and its part."""

    source: Source
    names: NDArray[np.str_]
    numbers: NDArray[np.int64]
    parts: NDArray[np.int8]  # an index into _PARTS

    @classmethod
    def begin(
        cls,
        source: Source,
        dataset: Dataset,
        *,
        public: float,
        held_out: int,
        random_state: int,
        secret: ByteSource = system_bytes,
    ) -> Self:
        """Divide a collection for the first time: a share of it public, so many held out, the rest indexed."""
        size = len(dataset)
        opened = round(size * public)
        if opened + held_out >= size:
            raise InputError(f"{size} pictures leave none to index after {opened} public and {held_out} held out.")
        parts = np.zeros(size, dtype=np.int8)
        order = science(random_state).permutation(size)
        parts[order[:opened]] = _PARTS.index("public")
        parts[order[opened : opened + held_out]] = _PARTS.index("held out")
        return cls(source, _names(dataset), _fresh_numbers(size, secret), parts)

    def grown(self, source: Source, dataset: Dataset, secret: ByteSource = system_bytes) -> "Origin":
        """Return the table with what is new in the collection, which is indexed; nothing known changes."""
        new = np.setdiff1d(_names(dataset), self.names)
        numbers = np.concatenate([self.numbers, _fresh_numbers(len(new), secret)])
        parts = np.concatenate([self.parts, np.zeros(len(new), dtype=np.int8)])
        return Origin(source, np.concatenate([self.names, new]), numbers, parts)

    def rows(self, dataset: Dataset, part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the numbers of one part, rising, and the rows of the collection that they stand for."""
        where = {name: row for row, name in enumerate(_names(dataset).tolist())}
        places = np.flatnonzero(self.parts == _PARTS.index(part))
        present = [place for place in places if str(self.names[place]) in where]
        chosen = np.array(sorted(present, key=lambda place: int(self.numbers[place])), dtype=np.int64)
        found = np.array([where[str(self.names[place])] for place in chosen], dtype=np.int64)
        return self.numbers[chosen], found

    def missing(self, dataset: Dataset) -> NDArray[np.int64]:
        """Return the numbers of indexed pictures that are no longer in the collection."""
        gone = ~np.isin(self.names, _names(dataset)) & (self.parts == _PARTS.index("indexed"))
        return np.asarray(self.numbers[gone])

    def names_of(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the names behind some numbers."""
        where = {int(number): str(name) for number, name in zip(self.numbers, self.names, strict=True)}
        try:
            return [where[int(number)] for number in numbers]
        except KeyError as unknown:
            raise DataError(f"number {unknown} is not in the table of this gallery's pictures.") from None

    def save(self, path: AnyPath) -> None:
        """Write the table so that its owner alone can read it."""
        arrays = {"names": self.names, "numbers": self.numbers, "parts": self.parts}
        write_arrays(path, _KIND, asdict(self.source), arrays, private=True)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        document, arrays = read_arrays(path, _KIND)
        try:
            return cls(Source(**document), arrays["names"], arrays["numbers"], arrays["parts"])
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{path} holds no usable table of pictures: {json.dumps(str(error))}.") from None


def _names(dataset: Dataset) -> NDArray[np.str_]:
    """Return what pictures are called: by name, or by row where there is no name or the same one twice."""
    if len(set(dataset.names)) == len(dataset):
        return np.array(dataset.names, dtype=np.str_)
    return np.arange(len(dataset)).astype(np.str_)


def _fresh_numbers(count: int, secret: ByteSource) -> NDArray[np.int64]:
    """Draw numbers of 62 bits; that two are equal is as likely as a broken disk."""
    words = random_words(count, secret).astype(np.uint64)
    numbers = (words >> np.uint64(2)).astype(np.int64)
    assert len(np.unique(numbers)) == count
    return numbers
