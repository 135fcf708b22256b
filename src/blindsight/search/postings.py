"""The index of a codebook release: every record is one public symbol, every symbol a list of records.

Whoever asks scores the symbols (the posterior probability of a match, for instance); all records of a symbol tie, so a
search opens the lists in the order of their scores and stops after k records, whatever the size of the collection.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, write_arrays
from blindsight.search.hits import IdArray, ScoredHits, check_k
from blindsight.search.rows import Rows, pack_ids, read_index, unpack_ids
from blindsight.validation import check_features

_KIND = "blindsight/symbol-index.1"
_HALF = 16  # symbols that fit into half a byte


class SymbolIndex:
    """Records by released symbol 0 ... outputs - 1, under ids that are integers or text, all of one kind.

    Changes happen whole or not at all. Several threads may search at once, while none changes the index.
    """

    def __init__(self, outputs: int) -> None:
        if isinstance(outputs, bool) or not isinstance(outputs, int | np.integer) or outputs < 1:
            raise InputError(f"a codebook needs a whole number of outputs >= 1; got {outputs!r}.")
        self.outputs = int(outputs)
        self._rows = Rows(np.empty(0, dtype=np.int64))
        self._lists: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return self._rows.has(key)

    def __repr__(self) -> str:
        return f"SymbolIndex(outputs={self.outputs}), {len(self):,} records"

    @property
    def ids(self) -> IdArray:
        return self._rows.ids

    @property
    def symbols(self) -> NDArray[np.int64]:
        """The symbols of all records, in the order of `ids`."""
        return self._rows.values

    def add(self, ids: ArrayLike, symbols: ArrayLike) -> None:
        """Add records under new ids; an id that exists already is refused."""
        self._rows.add(ids, self._check(symbols))
        self._lists = None

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were."""
        removed = self._rows.remove(ids)
        self._rows.close_gaps()  # lists are laid out anew anyhow
        self._lists = None
        return removed

    def update(self, ids: ArrayLike, symbols: ArrayLike) -> None:
        """Give ids that exist other symbols; they keep their age."""
        self._rows.update(ids, self._check(symbols))
        self._lists = None

    def search(self, scores: ArrayLike, k: int) -> ScoredHits:
        """Return the k records whose symbols score highest, for queries of shape (queries, outputs).

        Records of one symbol come oldest first; of symbols that score the same, the lower comes first.
        """
        queries, k = check_features(scores, self.outputs, what="scores of a query", least=0), check_k(k)
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), -np.inf, dtype=np.float32)
        records, bounds = self._posting_lists()
        sizes = np.diff(bounds)
        for query, ranked in enumerate(np.argsort(-queries, axis=1, kind="stable")):
            opened = ranked[: np.searchsorted(np.cumsum(sizes[ranked]), k) + 1]
            found = np.concatenate([records[bounds[symbol] : bounds[symbol + 1]] for symbol in opened])[:k]
            positions[query, : len(found)] = found
            values[query, : len(found)] = np.repeat(queries[query, opened], sizes[opened])[:k]
        return ScoredHits(self._rows.take(positions), values)

    def save(self, path: AnyPath, *, private: bool = False) -> None:
        write_arrays(path, _KIND, *self.parts(), private=private)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; a damaged or foreign file raises `CorruptFileError`."""
        return cls.from_parts(*read_index(path, _KIND), where=str(path))

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the index as a document and arrays for a file.

        Symbols take half a byte each, or the fewest bytes that hold them; ids that are 0, 1, ... take none.
        """
        symbols, ids, count = self._rows.values, self.ids, len(self)
        if self.outputs <= _HALF:
            even = np.append(symbols, 0)[: count + count % 2].astype(np.uint8)
            arrays = {"halves": even[::2] | even[1::2] << 4}
        else:
            arrays = {"symbols": symbols.astype(np.min_scalar_type(self.outputs - 1))}
        plain = ids.dtype == np.int64 and np.array_equal(ids, np.arange(count))
        return {"outputs": self.outputs, "records": count}, arrays | ({} if plain else pack_ids(ids))

    @classmethod
    def from_parts(cls, document: dict[str, Any], arrays: dict[str, NDArray[Any]], *, where: str) -> Self:
        """Return the index that these parts describe; `where` they come from is named if they are unusable."""
        try:
            index, symbols = cls(document["outputs"]), arrays.get("symbols")
            if symbols is None:
                halves = arrays["halves"]
                symbols = np.stack([halves & 15, halves >> 4], axis=1).ravel()[: document["records"]]
            stored = "ids" in arrays or "id bytes" in arrays
            index.add(unpack_ids(arrays) if stored else np.arange(len(symbols)), symbols)
        except (KeyError, TypeError, InputError) as error:
            raise CorruptFileError(f"{where} holds no usable index: {error}") from None
        return index

    def _check(self, symbols: ArrayLike) -> NDArray[np.int64]:
        released = np.asarray(symbols)
        if released.ndim != 1 or (released.dtype.kind not in "iu" and released.size):
            raise InputError(f"symbols must be a list of whole numbers; got {released.dtype} {released.shape}.")
        if released.size and not 0 <= released.min() <= released.max() < self.outputs:
            raise InputError(f"symbols must lie in [0, {self.outputs}). Were they released with another codebook?")
        return released.astype(np.int64)

    def _posting_lists(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return positions by symbol, oldest first, and where each symbol's begin; laid out anew after a change."""
        if self._lists is None:
            symbols = self._rows.values
            counts = np.bincount(symbols, minlength=self.outputs)
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self._lists = np.argsort(symbols, kind="stable"), bounds
        return self._lists
