"""A searchable gallery in a folder: an index made of pictures, and none of the pictures.

The folder holds what a search needs: which features the pictures become, the hash function or codebook, the index by
numbers that mean nothing (`origin`), and the privacy statement; `gallery.json` names the checksums of them all, so that
parts of two galleries are never mixed. In local mode everything but ``private/`` may be given away. In central and open
mode the codes carry no noise: the index can be read by its owner alone.

Features are of a kind that learns nothing from pictures (thumbnails, a ready-made embedding), so none leaves that way.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.data import FeaturePipeline, pipeline
from blindsight.data.features import LearningPipeline
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, as_path, atomic_writer, sha256_of, storage_errors
from blindsight.search.function import HashFunction
from blindsight.search.functionfile import load_function, save_function
from blindsight.search.index import HammingIndex
from blindsight.search.localmode import LocalHasher
from blindsight.search.postings import SymbolIndex
from blindsight.search.rankings import CodeSearcher, Searcher, SymbolSearcher
from blindsight.statement import PrivacyStatement

Mode = Literal["local", "central", "open"]
_FORMAT = 1
_ABOUT, _STATEMENT, _HASHER, _INDEX = "gallery.json", "statement.json", "hasher.npz", "index.bin"


@dataclass(frozen=True)
class Found:
    """One answer: the number of a picture and how near it is (a Hamming distance, or the score of a symbol)."""

    number: int
    nearness: float


@dataclass(frozen=True, eq=False)
class Gallery:
    """An index that can be asked, and what is known of how it came to be."""

    mode: Mode
    features: str
    side: int  # of the pictures in pixels, as they were read
    statement: PrivacyStatement
    hasher: HashFunction | LocalHasher
    index: HammingIndex | SymbolIndex
    settings: dict[str, Any] = field(default_factory=dict)  # epsilon, delta, bits as they were asked for

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

    def searcher(self) -> tuple[NDArray[np.int64], Searcher]:
        """Return all numbers and a searcher over them in this order, for evaluation."""
        if isinstance(self.index, SymbolIndex):
            assert isinstance(self.hasher, LocalHasher)
            return self.index.ids, SymbolSearcher(self.hasher, self.index.symbols)
        assert isinstance(self.hasher, HashFunction)
        return self.index.ids, CodeSearcher(self.hasher, self.index.codes)

    def save(self, folder: AnyPath) -> None:
        """Write the gallery to a folder; the file that makes it whole comes last."""
        folder = as_path(folder)
        with storage_errors("write into", folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _ABOUT).unlink(missing_ok=True)  # until the new one is whole there is none
        if isinstance(self.hasher, LocalHasher):
            self.hasher.save(folder / _HASHER)
        else:
            save_function(self.hasher, folder / _HASHER, private=self.mode == "open")
        self.index.save(folder / _INDEX, private=self.mode != "local")
        _write_text(folder / _STATEMENT, self.statement.to_json())
        parts = {name: sha256_of(folder / name) for name in (_HASHER, _INDEX, _STATEMENT)}
        about = {"format": _FORMAT, "mode": self.mode, "features": self.features, "side": self.side}
        _write_text(folder / _ABOUT, json.dumps(about | {"settings": self.settings, "sha256": parts}, indent=2))

    @classmethod
    def load(cls, folder: AnyPath) -> Self:
        """Read what `save` wrote; a part that is missing, damaged or of another gallery is refused."""
        folder = as_path(folder)
        about = _read_about(folder)
        for name in (_HASHER, _INDEX, _STATEMENT):
            with storage_errors("read", folder / name):
                if sha256_of(folder / name) != about["sha256"][name]:
                    raise CorruptFileError(f"{folder / name} is damaged or of another gallery. Build it again.")
        local = about["mode"] == "local"
        return cls(
            mode=about["mode"],
            features=about["features"],
            side=about["side"],
            statement=PrivacyStatement.from_json((folder / _STATEMENT).read_text()),
            hasher=LocalHasher.load(folder / _HASHER) if local else load_function(folder / _HASHER),
            index=SymbolIndex.load(folder / _INDEX) if local else HammingIndex.load(folder / _INDEX),
            settings=about["settings"],
        )


def holds_gallery(folder: AnyPath) -> bool:
    """Tell whether a folder holds a finished gallery."""
    folder = as_path(folder)
    return (folder / _ABOUT).exists()


def feature_pipeline(kind: str) -> FeaturePipeline:
    """Return the pipeline of this name, unless it learns from pictures."""
    made = pipeline(kind)
    if isinstance(made, LearningPipeline):
        raise InputError(f"{kind} features are learned from pictures and would show them. Take thumbnail or embedding.")
    return made


def _answers(numbers: NDArray[np.int64], values: NDArray[Any]) -> list[Found]:
    present = values > -np.inf if values.dtype.kind == "f" else values >= 0
    return [Found(int(number), float(value)) for number, value in zip(numbers[present], values[present], strict=True)]


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
        whole = (
            about["format"] == _FORMAT
            and about["mode"] in get_args(Mode)
            and isinstance(about["features"], str)
            and isinstance(about["side"], int)
            and isinstance(about["settings"], dict)
            and about["sha256"].keys() == {_HASHER, _INDEX, _STATEMENT}
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise CorruptFileError(f"{path} is damaged or of another version. Build the gallery again.")
    return about
