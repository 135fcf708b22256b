"""Permanent randomisation: a record's noisy code is drawn once and kept, so that asking again teaches nothing.

*The guarantee.* As long as this file is kept, a record whose content has not changed is never drawn again: rebuilding
an index, or a crash in the middle of it, costs nothing. (Noise that is drawn afresh on every rebuild averages out.)
What a record has lost is its number of releases times the mechanism's loss:

- a record that is new, or whose content changed, is one more release of it;
- deleting a record removes its code from the file. What was released stays released: the count remains, and should
  the record come back it is released once more.

*The ledger.* Each release concerns one record alone, and two datasets that differ in one record differ in its releases
only (parallel composition). So a scope has lost what its worst record has: the ledger is charged the loss of one
release whenever the largest number of releases of any record rises by one, and nothing for all others that follow.
Several mechanisms, one file each, add up under one scope. That one picture does not come under two ids is the caller's
word.

*The order of things.* The codes are drawn and held back; the ledger records the spend; the file is replaced as a whole;
only then are codes returned. A process killed on the way has shown nobody anything, and at worst has paid for nothing.
A spend that the ledger refuses changes nothing.

*The file* is private (mode 0600): it tells who is in the collection. Contents are compared by HMAC-SHA256 under a key
in the file, so it holds no features. An older copy put back in its place has forgotten releases, which would then be
drawn again without a spend: keep one copy, beside the ledger. Every call reads and replaces the file: release in
batches.
"""

import hmac
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.arrayfile import read_arrays, write_arrays
from blindsight.dp.ledger import Ledger
from blindsight.dp.losses import BoundedLoss
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import exclusive_lock
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.function import Floats, check_features
from blindsight.search.hits import IdArray
from blindsight.search.ids import check_ids, check_unique, id_table, kind_of
from blindsight.statement import Unit

_KIND = "blindsight/releases.1"


class RecordMechanism(Protocol):
    """What can be released record by record: a row in, a noisy row out, independently of all other rows."""

    @property
    def loss(self) -> BoundedLoss:
        """What one release costs a record (or whatever the unit is)."""

    @property
    def digest(self) -> str:
        """Names everything that decides the distribution of a release."""

    def release(self, X: ArrayLike, *, source: ByteSource = ...) -> NDArray[Any]:
        """Return one noisy row per record."""


@dataclass(frozen=True, eq=False)
class _Book:
    """One row per record that was ever released; a deleted one has no code and no digest, but keeps its count."""

    key: bytes
    ids: IdArray
    digests: NDArray[np.uint8]
    counts: NDArray[np.int64]
    kept: NDArray[np.bool_]
    codes: NDArray[Any]

    @classmethod
    def empty(cls, key: bytes) -> Self:
        ids = np.empty(0, dtype=np.int64)
        return cls(key, ids, np.empty((0, 32), np.uint8), ids.copy(), np.empty(0, np.bool_), np.empty(0, np.uint8))

    @property
    def most(self) -> int:
        """How often the record with most releases was released."""
        return int(self.counts.max(initial=0))

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
        """Tell which records are stored with this very content."""
        places = self.positions(ids)
        if not len(self.ids):
            return np.zeros(len(ids), dtype=np.bool_)
        same: NDArray[np.bool_] = (self.digests[places] == digests).all(axis=1)
        return same & (places >= 0) & self.kept[places]

    def released(self, ids: IdArray, digests: NDArray[np.uint8], codes: NDArray[Any]) -> "_Book":
        """Return the book after one more release of these records."""
        places = self.positions(ids)
        new = places < 0
        places[new] = len(self.ids) + np.arange(int(new.sum()))
        if len(self.ids) and (codes.dtype, codes.shape[1:]) != (self.codes.dtype, self.codes.shape[1:]):
            raise InputError("the mechanism's releases have another shape than those stored.")
        grown = _Book(
            self.key,
            np.concatenate([self.ids, ids[new]]) if len(self.ids) else ids[new],
            _grown(self.digests, int(new.sum())),
            _grown(self.counts, int(new.sum())),
            _grown(self.kept, int(new.sum())),
            _grown(self.codes if len(self.ids) else codes[:0], int(new.sum())),
        )
        grown.digests[places], grown.codes[places], grown.kept[places] = digests, codes, True
        grown.counts[places] += 1
        return grown

    def without(self, ids: IdArray) -> "_Book":
        """Return the book without the codes of these records."""
        places = self.holding(ids)
        digests, kept, codes = self.digests.copy(), self.kept.copy(), self.codes.copy()
        digests[places], kept[places], codes[places] = 0, False, 0
        return replace(self, digests=digests, kept=kept, codes=codes)


class Releases:
    """What was released of each record, in a private file or (without a path) in memory."""

    def __init__(
        self,
        path: Path | None,
        mechanism: RecordMechanism,
        *,
        ledger: Ledger | None = None,
        scope: str | None = None,
        unit: Unit = "record",
        source: ByteSource = system_bytes,
    ) -> None:
        """Open the store at `path`, made with the first release; `scope` names the collection in the ledger."""
        if (ledger is None) != (scope is None):
            raise InputError("a ledger needs the scope under which it counts, and a scope needs a ledger.")
        self._path, self._mechanism, self._source = path, mechanism, source
        self._ledger, self._scope, self._unit = ledger, scope, unit
        self._mutex = threading.Lock()
        self._memory = _Book.empty(source(32))
        with self._book():  # refuses at once a file that is damaged or of another mechanism
            pass

    def release(self, ids: ArrayLike, X: ArrayLike) -> NDArray[Any]:
        """Return one release per record: the stored one where its content is the same, else a new one, paid for."""
        rows, wanted = check_features(X), check_ids(ids)
        check_unique(wanted)
        if len(rows) != len(wanted):
            raise InputError(f"there must be one id per row; got {len(wanted)} ids and {len(rows)} rows.")
        if not len(rows):
            raise InputError("there are no records to release.")
        with self._book() as book:
            digests = _digests(book.key, rows)
            fresh = ~book.unchanged(wanted, digests)
            if fresh.any():
                drawn = np.asarray(self._mechanism.release(rows[fresh], source=self._source))
                after = book.released(wanted[fresh], digests[fresh], drawn)
                if after.most > book.most:
                    self._spend(after.most)
                self._keep(after)
                book = after
            return np.asarray(book.codes[book.positions(wanted)])

    def stored(self, ids: ArrayLike) -> NDArray[Any]:
        """Return the releases of records that are there, without asking for their content."""
        with self._book() as book:
            return np.asarray(book.codes[book.holding(check_ids(ids))])

    def delete(self, ids: ArrayLike) -> None:
        """Remove the releases of records from the store; what they have lost stays lost."""
        wanted = check_ids(ids)
        check_unique(wanted)
        with self._book() as book:
            self._keep(book.without(wanted))

    @property
    def ids(self) -> IdArray:
        """The ids of all records that are there."""
        with self._book() as book:
            return np.asarray(book.ids[book.kept])

    @property
    def most_releases(self) -> int:
        """How often the record with most releases was released: times the mechanism's loss, what the scope has lost."""
        with self._book() as book:
            return book.most

    def __len__(self) -> int:
        with self._book() as book:
            return int(book.kept.sum())

    def _spend(self, number: int) -> None:
        if self._ledger is not None and self._scope is not None:
            self._ledger.spend(
                self._mechanism.loss,
                scope=self._scope,
                unit=self._unit,
                neighbours="replace",
                mechanism=f"permanent release by {self._mechanism.digest[:16]}",
                purpose=f"release number {number} of the records released most often",
            )

    @contextmanager
    def _book(self) -> Iterator[_Book]:
        """Hold the store still and yield what is in it, whoever wrote it."""
        with self._mutex:
            if self._path is None:
                yield self._memory
                return
            with exclusive_lock(self._path.with_name(self._path.name + ".lock")):
                yield self._read(self._path) if self._path.exists() else self._memory

    def _read(self, path: Path) -> _Book:
        document, arrays = read_arrays(path, _KIND)
        if document.get("mechanism") != self._mechanism.digest:
            raise InputError(
                f"{path} holds releases of another mechanism. A record released by both has lost to both: keep them "
                "in a file of their own, under the same scope of the ledger."
            )
        try:
            ids = arrays["ids"]
            book = _Book(
                arrays["key"].tobytes(),
                ids.astype(object) if ids.dtype.kind == "U" else ids,
                *(arrays[name] for name in ("digests", "counts", "kept", "codes")),
            )
        except KeyError as error:
            raise CorruptFileError(f"{path} holds no releases: {error} is missing.") from None
        return book

    def _keep(self, book: _Book) -> None:
        if self._path is None:
            self._memory = book
            return
        ids = book.ids if book.ids.dtype == np.int64 else book.ids.astype(str)
        arrays = {name: getattr(book, name) for name in ("digests", "counts", "kept", "codes")}
        arrays |= {"ids": ids, "key": np.frombuffer(book.key, dtype=np.uint8)}
        write_arrays(self._path, _KIND, {"mechanism": self._mechanism.digest}, arrays, private=True)


def _grown(array: NDArray[Any], more: int) -> NDArray[Any]:
    """Return a copy with so many rows of zeros at its end."""
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])


def _digests(key: bytes, rows: Floats) -> NDArray[np.uint8]:
    """Return a keyed digest of each row."""
    positive = np.ascontiguousarray(rows + np.float32(0), dtype="<f4")  # -0 and 0 are the same content
    joined = b"".join(hmac.digest(key, row.tobytes(), "sha256") for row in positive)
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), 32)
