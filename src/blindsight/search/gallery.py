"""A searchable gallery in a folder: an index made of pictures, without the pictures.

One file, ``gallery.npz``, holds what a search needs: the kind of features, the hash function or codebook, the index by
random numbers, and the privacy statement. So saving is one atomic step: a reader, or a crash, finds the gallery before
it or after it. In local mode everything but ``private/`` may be given away. In central and open mode the codes carry no
noise: the file can be read by its owner alone, and the function that central mode may publish is also written to
``function.npz``.

Features are of a kind that learns nothing from pictures (thumbnails, a ready-made embedding), so none leaves that way.

*Numbers* (`Origin`). A path such as "smith/holiday/7.png" tells what no noise can hide. So every picture gets a random
number, drawn once from the operating system, and the index is in the order of these numbers. The table that leads back,
and which pictures are public or held out, stays with the owner. A picture keeps its number and its part when the
collection grows; what is new is indexed.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self, get_args, overload

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, Embedding, FeaturePipeline, load, pipeline
from blindsight.data.catalogue import reader_options
from blindsight.data.features import LearningPipeline
from blindsight.data.images import decode
from blindsight.errors import BlindsightError, CorruptFileError, DataError, InputError, PrivacyError
from blindsight.extras import install_hint
from blindsight.files import (
    AnyPath,
    as_path,
    file_bytes,
    folder_content,
    folder_lock,
    read_arrays,
    storage_errors,
    write_arrays,
)
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, random_words, science, system_bytes
from blindsight.search.evaluation import CodeSearcher, Searcher, SymbolSearcher
from blindsight.search.function import HashFunction, function_from, save_function
from blindsight.search.index import HammingIndex, SymbolIndex
from blindsight.search.localmode import LocalHasher
from blindsight.statement import PrivacyStatement, facts_table

PRIVATE, ORIGIN = "private", "origin.npz"  # the owner's subfolder of a gallery
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
        public: float,
        held_out: int,
        *,
        random_state: int,
        secret: ByteSource = system_bytes,
    ) -> Self:
        """Divide a collection for the first time: a share of it public, some held out, the rest indexed."""
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


Mode = Literal["local", "central", "open"]
_KIND_GALLERY = "blindsight/gallery.2"
_FILE = "gallery.npz"
FUNCTION = "function.npz"  # what central mode publishes
LEARNED_FROM, OF_PUBLIC, OF_PRIVATE = "learned from", "public pictures", "the pictures of the index"
"""The setting of an open gallery that says what its hash function was learned from, and the two answers."""
_OLDER = "gallery.json"  # of versions that are not read any more


@dataclass(frozen=True)
class Found:
    """One answer: the number of a picture and how near it is (a Hamming distance, or the score of a symbol)."""

    number: int
    nearness: float


def places_of(found: Sequence[Found]) -> list[int]:
    values = [hit.nearness for hit in found]
    return [values.index(value) + 1 for value in values]


@dataclass(frozen=True)
class Answers(Sequence[Found]):
    """The nearest pictures to one query, nearest first, by name where the owner's table is there, else by number.

    Of all `pictures`, `tied` are as near as the last answer (in local mode: have the same release), `nearer` nearer.
    """

    found: tuple[Found, ...]
    names: tuple[str, ...]
    tied: int
    local: bool
    nearer: int = 0
    pictures: int = 0

    @overload
    def __getitem__(self, place: int) -> Found: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Found, ...]: ...
    def __getitem__(self, place: int | slice) -> Found | tuple[Found, ...]:
        return self.found[place]

    def __len__(self) -> int:
        return len(self.found)

    @property
    def places(self) -> list[int]:
        """The places, from 1 on; equally near answers share one."""
        return places_of(self.found)

    @property
    def ties(self) -> str:
        """Why answers share a place, if some do."""
        places = self.places
        if len(set(places)) == len(places) and self.tied <= 1:
            return ""
        same = "the same release" if self.local else "codes at the same distance"
        return (
            f"{self.tied:,} pictures tie for place {places[-1]}; showing {places.count(places[-1])}. Pictures with "
            f"{same} tie, and nothing tells which is nearer: they come in the order of their numbers, which are random."
        )

    @property
    def chance(self) -> float:
        """How likely a picture of the index that is drawn at random comes as near as the last answer."""
        return (self.nearer + self.tied) / max(self.pictures, 1)

    @property
    def luck(self) -> str:
        """What the answers are worth beside chance."""
        near = self.nearer + self.tied
        return (
            f"Chance level: {near:,} of all {self.pictures:,} pictures are this near; a picture that has nothing to do "
            f"with the query is so with probability {self.chance:.1%}."
        )

    def __repr__(self) -> str:
        rows = zip(self.places, self.names, self.found, strict=True)
        lines = [f"{place}. {name} ({hit.nearness:g})" for place, name, hit in rows]
        return "\n".join([*lines, *filter(None, (self.ties,)), self.luck])

    def _repr_html_(self) -> str:
        rows = zip(self.places, self.names, self.found, strict=True)
        facts = {name: f"place {place}, {hit.nearness:g}" for place, name, hit in rows}
        return facts_table("Nearest pictures", facts | {"ties": self.ties, "chance": self.luck})


@dataclass(frozen=True, eq=False)
class Gallery:
    """An index that can be asked, and what is known of how it came to be."""

    mode: Mode
    features: str
    side: int  # of the pictures in pixels, as they were read
    statement: PrivacyStatement
    hasher: HashFunction | LocalHasher
    index: HammingIndex | SymbolIndex
    settings: dict[str, Any] = field(default_factory=dict)  # epsilon, delta, bits as asked for, and what was decided
    notes: tuple[str, ...] = ()  # to the owner, of the build that made it; not saved
    short: NDArray[np.int8] | None = None  # embeddings for encrypted queries, in the order of the index; never public
    folder: AnyPath | None = None  # where it was read from

    def __repr__(self) -> str:
        return f"Gallery({self.mode!r}, {len(self):,} pictures, {self.features}; {self.statement.headline()})"

    def __len__(self) -> int:
        return len(self.index)

    def search(self, images: NDArray[np.uint8], k: int) -> list[list[Found]]:
        """Return the k nearest pictures of every query picture, nearest first."""
        return self._search(self._asked(images), k)

    def _asked(self, images: NDArray[np.uint8]) -> NDArray[Any]:
        """Return what the index is asked with: scores of all symbols, or codes."""
        rows = feature_pipeline(self.features).transform(images)
        return self.hasher.symbol_scores(rows) if isinstance(self.hasher, LocalHasher) else self.hasher(rows)

    def _search(self, asked: NDArray[Any], k: int) -> list[list[Found]]:
        if isinstance(self.index, SymbolIndex):
            best = self.index.search(asked, k)
            found = zip(best.ids, best.scores, best.scores > -np.inf, strict=True)
        else:
            near = self.index.search(asked, k)
            found = zip(near.ids, near.distances, near.distances >= 0, strict=True)
        return [
            [Found(int(number), float(value)) for number, value in zip(ids[there], values[there], strict=True)]
            for ids, values, there in found
        ]

    def query(self, image: AnyPath | NDArray[np.uint8], k: int = 10) -> Answers:
        """Return the k nearest pictures of one: a file, or pixels (height, width, 3) of any size."""
        try:
            pixels = decode(image, size=self.side)
        except DataError as error:
            if isinstance(image, np.ndarray):
                raise
            raise DataError(f"cannot ask with {image}: {error}.") from None
        asked = self._asked(pixels[None])
        (found,) = self._search(asked, k)
        numbers = np.array([hit.number for hit in found], dtype=np.int64)
        names = [str(number) for number in numbers]
        if self.folder is not None and (table := as_path(self.folder) / PRIVATE / ORIGIN).exists():
            with suppress(BlindsightError):  # numbers do, where the table is of another gallery
                names = Origin.load(table).names_of(numbers)
        tied, nearer = self._as_near(asked, found[-1].nearness) if found else (0, 0)
        return Answers(tuple(found), tuple(names), tied, self.mode == "local", nearer, len(self))

    def _as_near(self, asked: NDArray[Any], last: float) -> tuple[int, int]:
        """Count the pictures that are as near as the last answer, and those that are nearer."""
        if isinstance(self.index, SymbolIndex):
            far = -asked[0][self.index.symbols].astype(np.float32)  # as the index has them
            last = float(-np.float32(last))
        else:
            far = np.bitwise_count(self.index.codes ^ asked).sum(axis=1)
        return int((far == last).sum()), int((far < last).sum())

    def searcher(self) -> tuple[NDArray[np.int64], Searcher]:
        """Return all numbers and a searcher over them in this order, for evaluation."""
        if isinstance(self.index, SymbolIndex):
            assert isinstance(self.hasher, LocalHasher)
            return self.index.ids, SymbolSearcher(self.hasher, self.index.symbols)
        assert isinstance(self.hasher, HashFunction)
        return self.index.ids, CodeSearcher(self.hasher, self.index.codes)

    def save(self, folder: AnyPath) -> None:
        """Write the gallery to a folder, all at once; saves take turns and remove what killed ones left."""
        folder = as_path(folder)
        refuse_older(folder)
        with storage_errors("write into", folder):
            folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(folder):
            write_arrays(folder / _FILE, _KIND_GALLERY, *self._parts(), private=self.mode != "local")
            if isinstance(self.hasher, HashFunction) and self.mode == "central":
                save_function(self.hasher, folder / FUNCTION)
            stale = [] if self.mode == "central" else [folder / FUNCTION]
            with storage_errors("write into", folder):
                for path in (*stale, *folder.glob(".*.part")):
                    path.unlink(missing_ok=True)

    def given_away(self, *, numbers: bool = True) -> bytes:
        """Return the file that an asker may have, to rank on their own machine; there is one only in local mode.

        Without `numbers` pictures are known by their position in this version, which saves eight bytes each.
        """
        if not isinstance(self.index, SymbolIndex):
            raise PrivacyError(f"the codes of a {self.mode} index carry no noise: they are not given away.")
        index = self.index
        if not numbers:
            index = SymbolIndex(index.outputs)
            index.add(np.arange(len(self)), self.index.symbols)
        return file_bytes(_KIND_GALLERY, *replace(self, index=index)._parts())

    @classmethod
    def receive(cls, content: bytes, folder: AnyPath) -> Self:
        """Check what somebody gave away, and keep it in a folder of one's own."""
        with TemporaryDirectory(prefix="blindsight-pull-") as scratch:
            (Path(scratch) / _FILE).write_bytes(content)
            gallery = cls.load(scratch)
        gallery.save(folder)
        return gallery

    @classmethod
    def load(cls, folder: AnyPath) -> Self:
        """Read what `save` wrote; what is missing, damaged, older or of another gallery is refused."""
        folder = as_path(folder)
        refuse_older(folder)
        if not (folder / _FILE).exists():
            raise InputError(
                f"{folder} holds no finished gallery; it holds {folder_content(folder)}. Run: blindsight search build"
            )
        made = cls.from_parts(*read_arrays(folder / _FILE, _KIND_GALLERY), where=str(folder / _FILE))
        return replace(made, folder=folder)

    @classmethod
    def from_parts(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]], *, where: str) -> Self:
        hasher, index = (
            {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}
            for part in ("hasher", "index")
        )
        try:
            mode, features, side = document["mode"], document["features"], document["side"]
            if mode not in get_args(Mode) or not isinstance(features, str) or not isinstance(side, int):
                raise ValueError(f"mode {mode!r}, features {features!r}, side {side!r}")
            statement, settings = PrivacyStatement.from_dict(document["statement"]), dict(document["settings"])
            made: HashFunction | LocalHasher
            if mode == "local":
                made = LocalHasher.from_parts(document["hasher"], hasher, where=where)
            else:
                made = function_from(str(document["hasher"]["function"]), hasher)
            kind = SymbolIndex if mode == "local" else HammingIndex
            held, short = kind.from_parts(document["index"], index, where=where), arrays.get("short")
            if short is not None and (mode == "local" or short.dtype != np.int8 or len(short) != len(held)):
                raise ValueError(f"embeddings {short.dtype} {short.shape}")
            return cls(mode, features, side, statement, made, held, settings, short=short)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, InputError) as error:
            raise CorruptFileError(f"{where} holds no usable gallery ({error}). Build it again.") from None

    def _parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if isinstance(self.hasher, LocalHasher):
            told, hasher = self.hasher.parts()
        else:
            told, hasher = {"function": self.hasher.name}, self.hasher.arrays()
        listed, index = self.index.parts()
        document = {
            "mode": self.mode,
            "features": self.features,
            "side": self.side,
            "settings": self.settings,
            "statement": self.statement.to_dict(),
            "hasher": told,
            "index": listed,
        }
        named = {f"hasher.{name}": array for name, array in hasher.items()}
        named |= {f"index.{name}": array for name, array in index.items()}
        return document, named if self.short is None else {**named, "short": self.short}


@contextmanager
def whole_json(path: Path, remedy: str) -> Iterator[Any]:
    """Lend what a JSON file holds; the file is called damaged if it cannot be read, or not by the block."""
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        yield json.loads(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorruptFileError(f"{path} is damaged {remedy}.") from None


def gallery_file(folder: AnyPath) -> Path | None:
    """Return the file that makes a folder a finished gallery, whose time of change is that of the gallery; or None."""
    path = as_path(folder) / _FILE
    return path if path.exists() else None


def refuse_older(folder: Path) -> None:
    """Raise if a folder holds a gallery of a version that is not read any more."""
    if (folder / _OLDER).exists():
        raise CorruptFileError(
            f"{folder} holds a gallery of an older version ({_OLDER}), which is not read. What it released stays "
            "released: keep the folder, and build in another one with the same ledger, which adds both up."
        )


@cache
def _network(kind: str) -> FeaturePipeline:
    return pipeline(kind)


def feature_pipeline(kind: str) -> FeaturePipeline:
    """Return the pipeline of this name, unless it learns from pictures; a network is loaded once in a process."""
    made = _network(kind) if kind == "embedding" else pipeline(kind)
    if isinstance(made, LearningPipeline):
        raise InputError(f"{kind} features are learned from pictures and would show them. Take thumbnail or embedding.")
    return made


def choose_features(source: Source) -> tuple[str, str]:
    """Return the features that find most in pictures of a source, and a note on what is missing for better ones.

    Networks are for photographs; of pictures whose size the collection fixes, thumbnails find as much.
    """
    photographs = "keep_copies" in reader_options(source.name, source.path)
    if not photographs:
        return "thumbnail", ""
    if all(map(find_spec, Embedding.libraries)):
        return "embedding", ""
    return "thumbnail", (
        "Features are grey thumbnails, which find little in photographs. For better ones, with the extra 'deep': "
        f"{install_hint('deep')}; then build with --relearn."
    )
