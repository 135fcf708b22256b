"""A searchable gallery in a folder: an index made of pictures, and none of the pictures.

The folder holds what a search needs: which features the pictures become, the hash function or codebook, the index by
the name (or row) of each picture, and the privacy statement. In local mode everything but ``private/`` may be given
away; that subfolder keeps the permanent releases (see `releases`), so that building again draws nothing anew. In
central and open mode the codes carry no noise: the index can be read by its owner alone.

The pictures stay where they are. Whoever may read them can have results shown; to others they are names. Features are
of a kind that learns nothing from pictures (thumbnails, a ready-made embedding), so none of them leaves that way.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, FeaturePipeline, load, pipeline
from blindsight.data.features.cache import LearningPipeline
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import atomic_writer, storage_errors
from blindsight.search.central import CentralHasher
from blindsight.search.function import Floats, HashFunction
from blindsight.search.functionfile import load_function, save_function
from blindsight.search.hits import IdArray
from blindsight.search.index import HammingIndex
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.search.postings import SymbolIndex
from blindsight.search.private import PrivateHasher
from blindsight.search.rankings import CodeSearcher, Searcher, SymbolSearcher
from blindsight.statement import PrivacyStatement

Mode = Literal["local", "central", "open"]
_FORMAT = 1
_ABOUT, _STATEMENT, _HASHER, _INDEX = "gallery.json", "statement.json", "hasher.npz", "index.bin"


@dataclass(frozen=True)
class Source:
    """Where the indexed pictures can be read again: a collection by name, and by path where it has one."""

    name: str
    path: str | None = None
    count: int | None = None
    random_state: int = 0

    def load(self) -> Dataset:
        """Read the pictures."""
        return load(self.name, path=self.path, count=self.count, random_state=self.random_state)


@dataclass(frozen=True)
class Found:
    """One answer: the id of a picture and how near it is (a Hamming distance, or the rank score of a symbol)."""

    id: int | str
    nearness: float


@dataclass(frozen=True, eq=False)
class Gallery:
    """An index that can be asked, and what is known of how it came to be."""

    mode: Mode
    features: str
    source: Source
    side: int  # of the pictures in pixels, as they were read
    held_out: tuple[int, ...]  # rows of the source that were left out, to ask with
    statement: PrivacyStatement
    hasher: HashFunction | LocalHasher
    index: HammingIndex | SymbolIndex

    def __len__(self) -> int:
        return len(self.index)

    def search(self, images: NDArray[np.uint8], k: int) -> list[list[Found]]:
        """Return the k nearest pictures of every query picture, nearest first."""
        rows = feature_pipeline(self.features).transform(images)
        if isinstance(self.index, SymbolIndex):
            assert isinstance(self.hasher, LocalHasher)
            hits = self.index.search(self.hasher.symbol_scores(rows), k)
            return [_answers(ids, values) for ids, values in zip(hits.ids, hits.scores, strict=True)]
        assert isinstance(self.hasher, HashFunction)
        near = self.index.search(self.hasher(rows), k)
        return [_answers(ids, values) for ids, values in zip(near.ids, near.distances, strict=True)]

    def searcher(self) -> tuple[IdArray, Searcher]:
        """Return all ids and a searcher over them in this order, for evaluation."""
        if isinstance(self.index, SymbolIndex):
            assert isinstance(self.hasher, LocalHasher)
            return self.index.ids, SymbolSearcher(self.hasher, self.index.symbols)
        assert isinstance(self.hasher, HashFunction)
        return self.index.ids, CodeSearcher(self.hasher, self.index.codes)

    def save(self, folder: Path) -> None:
        """Write the gallery to a folder; the file that makes it whole comes last."""
        private = self.mode != "local"
        with storage_errors("write into", folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _ABOUT).unlink(missing_ok=True)  # until the new one is whole there is none
        if isinstance(self.hasher, LocalHasher):
            self.hasher.save(folder / _HASHER)
        else:
            save_function(self.hasher, folder / _HASHER)
        self.index.save(folder / _INDEX, private=private)
        _write_text(folder / _STATEMENT, self.statement.to_json())
        about: dict[str, Any] = {
            "format": _FORMAT,
            "mode": self.mode,
            "features": self.features,
            "source": asdict(self.source),
        }
        about |= {"side": self.side, "held_out": self.held_out}
        _write_text(folder / _ABOUT, json.dumps(about, indent=2))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote; a part that is missing or damaged is refused."""
        about = _read_about(folder)
        with storage_errors("read", folder / _STATEMENT):
            statement = PrivacyStatement.from_json((folder / _STATEMENT).read_text())
        local = about["mode"] == "local"
        return cls(
            mode=about["mode"],
            features=about["features"],
            source=Source(**about["source"]),
            side=about["side"],
            held_out=tuple(about["held_out"]),
            statement=statement,
            hasher=LocalHasher.load(folder / _HASHER) if local else load_function(folder / _HASHER),
            index=SymbolIndex.load(folder / _INDEX) if local else HammingIndex.load(folder / _INDEX),
        )


@dataclass(frozen=True, eq=False)
class Pictures:
    """What is indexed: ids and features, and what the gallery remembers of where they came from."""

    ids: IdArray
    rows: Floats
    features: str
    source: Source
    side: int
    held_out: tuple[int, ...] = ()

    def gallery(
        self,
        mode: Mode,
        statement: PrivacyStatement,
        hasher: HashFunction | LocalHasher,
        index: HammingIndex | SymbolIndex,
    ) -> Gallery:
        """Return the gallery of these pictures."""
        return Gallery(mode, self.features, self.source, self.side, self.held_out, statement, hasher, index)


def build_local(pictures: Pictures, hasher: PrivateHasher, public: Floats) -> Gallery:
    """Release every picture once and index the releases."""
    hasher.fit(public=public)
    assert isinstance(hasher.hasher_, LocalHasher)
    index = SymbolIndex(hasher.hasher_.outputs_)
    index.add(pictures.ids, hasher.release(pictures.ids, pictures.rows))
    return pictures.gallery("local", hasher.statement_, hasher.hasher_, index)


def build_central(pictures: Pictures, hasher: PrivateHasher) -> Gallery:
    """Learn a private hash function from the pictures, and index their exact codes for the owner alone."""
    hasher.fit(pictures.rows)
    assert isinstance(hasher.hasher_, CentralHasher)
    function = hasher.hasher_.function_
    return pictures.gallery("central", hasher.statement_, function, _code_index(function, pictures))


def build_open(pictures: Pictures, bits: int, random_state: int = 0) -> Gallery:
    """Index codes that hide nothing: ITQ, learned from the pictures themselves."""
    function = ITQ(bits, random_state=random_state).fit(pictures.rows).function_
    statement = PrivacyStatement(
        guarantee="none",
        mechanism=f"codes of {bits} bits by ITQ, without noise",
        unit="record",
        epsilon=math.inf,
        delta=None,
        randomness="none",
        neighbours="replace",
        who_sees={"whoever has the index": "every picture's exact code, and a function learned from all pictures"},
        not_protected=("any picture: a code tells what it shows, and similar pictures are found by it",),
    )
    return pictures.gallery("open", statement, function, _code_index(function, pictures))


def feature_pipeline(kind: str) -> FeaturePipeline:
    """Return the pipeline of this name, unless it learns from pictures."""
    made = pipeline(kind)
    if isinstance(made, LearningPipeline):
        raise InputError(f"{kind} features are learned from pictures and would show them. Take thumbnail or embedding.")
    return made


def picture_ids(dataset: Dataset, rows: NDArray[np.int64]) -> IdArray:
    """Return the names of pictures, or their rows where the collection has no names or the same name twice."""
    if len(set(dataset.names)) == len(dataset):
        return np.array([dataset.names[row] for row in rows], dtype=object)
    return np.asarray(rows, dtype=np.int64)


def _code_index(function: HashFunction, pictures: Pictures) -> HammingIndex:
    index = HammingIndex(function.bits)
    index.add(pictures.ids, function(pictures.rows))
    index.build()
    return index


def _answers(ids: IdArray, values: NDArray[Any]) -> list[Found]:
    present = values > -np.inf if values.dtype.kind == "f" else values >= 0
    return [Found(name, float(value)) for name, value in zip(ids[present], values[present], strict=True)]


def _write_text(path: Path, text: str) -> None:
    with atomic_writer(path) as stream:
        stream.write(text.encode())


def _read_about(folder: Path) -> dict[str, Any]:
    path = folder / _ABOUT
    if not path.exists():
        raise InputError(f"{folder} holds no gallery, or one that was not finished. Run: blindsight search build")
    with storage_errors("read", path):
        text = path.read_text()
    try:
        about: dict[str, Any] = json.loads(text)
        mode, version = about["mode"], about["format"]
        Source(**about["source"])
        int(about["side"]), len(about["held_out"])
    except (ValueError, KeyError, TypeError):
        raise CorruptFileError(f"{path} is damaged. Build the gallery again.") from None
    if version != _FORMAT:
        raise CorruptFileError(
            f"{path} is of format {version!r}; this version reads {_FORMAT}. Build the gallery again."
        )
    if mode not in get_args(Mode):
        raise UnknownNameError("mode of a gallery", str(mode), get_args(Mode))
    return about
