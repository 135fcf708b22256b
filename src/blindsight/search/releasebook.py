"""What a store of permanent releases remembers: of every record its count and, while it is there, its code.

See `releases` for what that is good for. Records and contents are compared by keyed digests, which hold no features.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.search.function import Floats
from blindsight.search.hits import IdArray
from blindsight.search.ids import id_table, kind_of


@dataclass(frozen=True, eq=False)
class Book:
    """One row per record that was ever released; a deleted one has no code and no digest, but keeps its count.

    How often each content was released is counted apart, in the order of digests, which tells of no id.
    """

    key: bytes
    ids: IdArray
    digests: NDArray[np.uint8]
    counts: NDArray[np.int64]
    kept: NDArray[np.bool_]
    codes: NDArray[Any]
    contents: NDArray[np.uint8]
    content_counts: NDArray[np.int64]

    @classmethod
    def empty(cls, key: bytes) -> Self:
        """Return a book in which nothing was released."""
        none, no_digest = np.empty(0, dtype=np.int64), np.empty((0, 32), np.uint8)
        return cls(key, none, no_digest, none, np.empty(0, np.bool_), np.empty(0, np.uint8), no_digest, none)

    @property
    def name(self) -> str:
        """What the ledger calls this store."""
        return hmac.digest(self.key, b"name", "sha256").hex()[:16]

    @property
    def most(self) -> int:
        """How often the id or the content with most releases was released."""
        return int(max(self.counts.max(initial=0), self.content_counts.max(initial=0)))

    def positions(self, ids: IdArray) -> NDArray[np.int64]:
        """Return where records stand, -1 for those never released."""
        if not len(self.ids) or not len(ids):
            return np.full(len(ids), -1, dtype=np.int64)
        if kind_of(ids) != kind_of(self.ids):
            raise InputError(f"the ids of these releases are {kind_of(self.ids)}; got {kind_of(ids)}.")
        return id_table(self.ids).positions(ids)

    def holding(self, ids: IdArray) -> NDArray[np.int64]:
        """Return where records stand that are all there."""
        places = self.positions(ids)
        missing = (places < 0) | ~self.kept[places] if len(self.ids) else places < 0
        if missing.any():
            raise InputError(f"no release is stored for {ids[missing].tolist()[0]!r}. Nothing was changed.")
        return places

    def unchanged(self, ids: IdArray, digests: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Tell which records are stored with this very basis."""
        places = self.positions(ids)
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.bool_)
        same: NDArray[np.bool_] = (self.digests[places] == digests).all(axis=1)
        return same & (places >= 0) & self.kept[places]

    def released(
        self, ids: IdArray, digests: NDArray[np.uint8], contents: NDArray[np.uint8], codes: NDArray[Any]
    ) -> "Book":
        """Return the book after one more release of these records."""
        places = self.positions(ids)
        new = places < 0
        places[new] = len(self.ids) + np.arange(int(new.sum()))
        if len(self.ids) and (codes.dtype, codes.shape[1:]) != (self.codes.dtype, self.codes.shape[1:]):
            raise InputError("the mechanism's releases have another shape than those stored.")
        grown = Book(
            self.key,
            np.concatenate([self.ids, ids[new]]) if len(self.ids) else ids[new],
            _grown(self.digests, int(new.sum())),
            _grown(self.counts, int(new.sum())),
            _grown(self.kept, int(new.sum())),
            _grown(self.codes if len(self.ids) else codes[:0], int(new.sum())),
            *self._counted(contents),
        )
        grown.digests[places], grown.codes[places], grown.kept[places] = digests, codes, True
        grown.counts[places] += 1
        return grown

    def _counted(self, contents: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return all contents, each once, and their counts after one more release of these."""
        rows = np.ascontiguousarray(np.concatenate([self.contents, contents]))
        different, places = np.unique(rows.view("V32").ravel(), return_inverse=True)
        counts = np.zeros(len(different), dtype=np.int64)
        np.add.at(counts, places, np.concatenate([self.content_counts, np.ones(len(contents), dtype=np.int64)]))
        return different.view(np.uint8).reshape(-1, 32), counts

    def without(self, ids: IdArray) -> "Book":
        """Return the book without the codes of these records."""
        places = self.holding(ids)
        digests, kept, codes = self.digests.copy(), self.kept.copy(), self.codes.copy()
        digests[places], kept[places], codes[places] = 0, False, 0
        return replace(self, digests=digests, kept=kept, codes=codes)


def _grown(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Return a copy with so many rows of zeros at its end."""
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])


def plain_rows(rows: Floats) -> NDArray[Any]:
    """Return features of which equal ones have equal bytes."""
    return np.ascontiguousarray(rows + np.float32(0), dtype="<f4")  # -0 and 0 are the same content


def digests_of(key: bytes, rows: NDArray[Any], labels: Iterable[str]) -> NDArray[np.uint8]:
    """Return a keyed digest of each row under its label."""
    pairs = zip(labels, rows, strict=False)
    joined = b"".join(hmac.digest(key, label.encode() + row.tobytes(), "sha256") for label, row in pairs)
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), 32)
