"""Permanent randomisation: a record's noisy code is drawn once and kept, so that asking again teaches nothing.

*The guarantee.* As long as this file is kept, a record of which a release would depend on the same (its *basis*, such
as its true symbol) is never drawn again: rebuilding an index, or a crash in the middle of it, costs nothing. (Noise
that is drawn afresh on every rebuild averages out.) What a record has lost is its number of releases times the
mechanism's loss:

- a record that is new, or whose basis changed, is one more release of it;
- deleting a record removes its code from the file. What was released stays released: the count remains, and should
  the record come back it is released once more.

*What is not protected.* That a record changed: whoever sees two versions of an index sees which releases were drawn
again, and those belong to records that changed.

*The ledger.* Each release concerns one record alone, and two datasets that differ in one record differ in its releases
only (parallel composition). So a scope has lost what its worst record has, whether a record is known by its id or by
its content: the ledger is charged the loss of one release whenever the largest number of releases of any id, or of any
content under whatever ids, rises by one, and nothing for all others that follow. Two different records with equal
features cost double, for they look like one that was renamed. A picture that changes its features and its id is a new
record here; that there are none such is the caller's word. Several stores add up under one scope.

*The order of things.* The codes are drawn and held back; the ledger records the spend; the file is replaced as a whole;
only then are codes returned. A process killed on the way has shown nobody anything, and at worst has paid for nothing.
A spend that the ledger refuses changes nothing. The ledger names the store, so that one which has not recorded what the
store already released (it is new, or the store was used without it) is charged for that before it returns any code.

*The file* is private (mode 0600): it tells who is in the collection. What it compares are HMAC-SHA256 under a key in
the file, so it holds no features; but whoever steals it can try out a guess, and of a basis there are few: take the
true symbols, and which pictures are or once were there, for lost with it. An older copy put back in its place has
forgotten releases, which may then be drawn again without a spend: keep one copy, beside the ledger. Every call reads
and replaces the file: release in batches.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.accounting import BoundedLoss
from blindsight.dp.ledger import Ledger
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path, exclusive_lock, read_arrays, write_arrays
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.function import Floats
from blindsight.search.hits import IdArray
from blindsight.search.ids import check_ids, check_unique
from blindsight.search.releasebook import Book, digests_of, plain_rows
from blindsight.statement import Unit
from blindsight.validation import check_features

_KIND = "blindsight/releases.1"
_ARRAYS = ("digests", "counts", "kept", "codes", "contents", "content_counts")


class RecordMechanism(Protocol):
    """What can be released record by record: a row in, a noisy row out, independently of all other rows.

    It may have a method ``basis(X)`` that returns whole numbers, one or one row per record: all that a release depends
    on. Without, that is the features to their last digit, which another machine may compute a little differently.
    """

    @property
    def loss(self) -> BoundedLoss:
        """What one release costs a record (or whatever the unit is)."""

    @property
    def digest(self) -> str:
        """Names everything that decides the distribution of a release."""

    def release(self, X: ArrayLike, *, source: ByteSource = ...) -> NDArray[Any]:
        """Return one noisy row per record."""


class Releases:
    """What was released of each record, in a private file or (without a path) in memory."""

    def __init__(
        self,
        path: AnyPath | None,
        mechanism: RecordMechanism,
        *,
        ledger: Ledger | None = None,
        scope: str | None = None,
        unit: Unit = "record",
        source: ByteSource = system_bytes,
    ) -> None:
        """Open the store at `path`, made with the first release; `scope` names the collection in the ledger."""
        path = None if path is None else as_path(path)
        if (ledger is None) != (scope is None):
            raise InputError("a ledger needs the scope under which it counts, and a scope needs a ledger.")
        self._path, self._mechanism, self._source = path, mechanism, source
        self._ledger, self._scope, self._unit = ledger, scope, unit
        self._mutex = threading.Lock()
        self._memory = Book.empty(source(32))
        with self._book():  # refuses at once a file that is damaged or of another mechanism
            pass

    def release(self, ids: ArrayLike, X: ArrayLike) -> NDArray[Any]:
        """Return one release per record: the stored one where its basis is the same, else a new one, paid for."""
        rows, wanted = check_features(X, least=0), check_ids(ids)
        check_unique(wanted)
        if len(rows) != len(wanted):
            raise InputError(f"there must be one id per row; got {len(wanted)} ids and {len(rows)} rows.")
        if not len(rows):
            raise InputError("there are no records to release.")
        with self._book() as book:
            digests = digests_of(book.key, self._basis(rows), (f"{one}\0" for one in wanted))
            fresh, after = ~book.unchanged(wanted, digests), book
            if fresh.any():
                drawn = np.asarray(self._mechanism.release(rows[fresh], source=self._source))
                contents = digests_of(book.key, plain_rows(rows[fresh]), repeat(""))
                after = book.released(wanted[fresh], digests[fresh], contents, drawn)
            self._pay(book, after.most)
            if after is not book:
                self._keep(after)
            return np.asarray(after.codes[after.positions(wanted)])

    def stored(self, ids: ArrayLike) -> NDArray[Any]:
        """Return the releases of records that are there, without asking for their content."""
        with self._book() as book:
            places = book.holding(check_ids(ids))
            self._pay(book, book.most)
            return np.asarray(book.codes[places])

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
        """How often the worst record was released, by id or content: times the mechanism's loss, what is lost."""
        with self._book() as book:
            return book.most

    def __len__(self) -> int:
        with self._book() as book:
            return int(book.kept.sum())

    def _basis(self, rows: Floats) -> NDArray[Any]:
        """Return what the releases of these rows depend on."""
        basis = getattr(self._mechanism, "basis", None)
        return plain_rows(rows) if basis is None else np.asarray(basis(rows)).astype("<i8")

    def _pay(self, book: Book, most: int) -> None:
        """Record at once all releases up to the `most`-th that the ledger lacks, or that this book is yet to make.

        After a crash, or with a copy of the file, the ledger may have more than the book: those are no advance payment.
        """
        if self._ledger is None or self._scope is None:
            return
        loss, mechanism = self._mechanism.loss, f"permanent release by {self._mechanism.digest[:16]} in {book.name}"
        paid = min(book.most, _recorded(self._ledger, self._scope, self._unit, mechanism, loss))
        if paid < most:
            self._ledger.spend(
                replace(loss, count=loss.count * (most - paid)),
                scope=self._scope,
                unit=self._unit,
                neighbours="replace",
                mechanism=mechanism,
                purpose=f"releases {paid + 1} to {most} of the records released most often",
            )

    @contextmanager
    def _book(self) -> Iterator[Book]:
        """Hold the store still and yield what is in it, whoever wrote it."""
        with self._mutex:
            if self._path is None:
                yield self._memory
                return
            with exclusive_lock(self._path.with_name(self._path.name + ".lock")):
                yield self._read(self._path) if self._path.exists() else self._memory

    def _read(self, path: Path) -> Book:
        document, arrays = read_arrays(path, _KIND)
        if document.get("mechanism") != self._mechanism.digest:
            raise InputError(
                f"{path} holds releases of another mechanism. A record released by both has lost to both: keep them "
                "in a file of their own, under the same scope of the ledger."
            )
        try:
            ids = arrays["ids"]
            book = Book(
                arrays["key"].tobytes(),
                ids.astype(object) if ids.dtype.kind == "U" else ids,
                *(arrays[name] for name in _ARRAYS),
            )
        except KeyError as error:
            raise CorruptFileError(f"{path} holds no releases: {error} is missing.") from None
        return book

    def _keep(self, book: Book) -> None:
        if self._path is None:
            self._memory = book
            return
        ids = book.ids if book.ids.dtype == np.int64 else book.ids.astype(str)
        arrays = {name: getattr(book, name) for name in _ARRAYS}
        arrays |= {"ids": ids, "key": np.frombuffer(book.key, dtype=np.uint8)}
        write_arrays(self._path, _KIND, {"mechanism": self._mechanism.digest}, arrays, private=True)


def _recorded(ledger: Ledger, scope: str, unit: Unit, mechanism: str, loss: BoundedLoss) -> int:
    """Return how many releases of this loss the ledger has of a mechanism."""
    try:
        spends = ledger.spends(scope, unit)
    except UnknownNameError:  # nothing was ever spent there
        return 0
    alike = [one.loss for one in spends if one.mechanism == mechanism and replace(one.loss, count=loss.count) == loss]
    return sum(one.count for one in alike) // loss.count
