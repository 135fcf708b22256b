"""Permanent randomisation: a record's noisy code is drawn once and kept, so that asking again teaches nothing.

*The guarantee.* As long as this file is kept, a record that was not edited is never drawn again: rebuilding an index,
or a crash in the middle of it, costs nothing. (Noise that is drawn afresh on every rebuild averages out.) What a record
has lost is its number of releases times the mechanism's loss:

- a record that is new or was edited is one more release of it, *whatever the edit changed*: were it drawn again only
  where its true symbol changed, two versions of an index would tell that it did;
- deleting a record removes its code from the file. What was released stays released: the count remains, and should
  the record come back it is released once more;
- erasing a record (`erase_releases`) removes its id too. Its count remains under a keyed digest of its *name*, so that
  a name that comes back, whatever it shows by then, continues its count. Where persons are the unit, an erased person
  has a digest as well: their next records, under any name, continue from the largest count of the store by then.

*What is not protected*: that a record was edited (two versions of an index show it). To what it was edited is.

*What may be published* is how often the record with most releases was released (`most_releases`). That counts edits of
ids and returns of names, and is the same whatever the records hold. Which records are equal is a secret: it is recorded
in the ledger, which is the owner's own, and decides nothing, not even whether a budget refuses a release.

*The ledger.* Each release concerns one record alone, and two datasets that differ in one record differ in its releases
only (parallel composition). So a scope has lost what its worst record has: the ledger is charged the loss of one
release whenever the largest number of releases of any id rises by one, and nothing for all others that follow. Of a
content that is there under several ids, or came back under another one, more was lost: that is recorded under a purpose
of its own (`EQUAL_CONTENTS`) beside the budget, which is that of an id. A picture that changes its content and its id
is a new record here; that there are none such is the caller's word. Several stores add up under one scope.

*The order.* The codes are drawn and held back; the ledger records the spend; the file is replaced as a whole; only then
are codes returned. A killed process has shown nobody anything, and at worst has paid for nothing. A spend that the
ledger refuses changes nothing. The ledger names the store, so one that lacks what the store already released (it is
new, or the store was used without it) is charged for that before any code is returned.

*The file* is private (mode 0600): it tells who is in the collection. What it compares are HMAC-SHA256 under a key in
the file, so it holds no features and no erased name; but a thief can try out guesses and learn which pictures and names
are or once were there. An older copy put back in its place has forgotten releases, which may then be drawn again
without a spend: keep one copy, with the ledger. A symbolic link is another name of the same store; hard links are
refused, since each would become a copy when the file is replaced. Every call reads and replaces the file: release in
batches. A file of an older version is refused and stays as it is: taken for an empty one it would spend twice.
"""

import hmac
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.accounting import BoundedLoss
from blindsight.dp.ledger import EQUAL_CONTENTS, Ledger
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, as_path, file_lock, only_link, read_arrays, write_arrays
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.function import Floats
from blindsight.search.rows import IdArray, Ids, check_ids, check_unique, kind_of
from blindsight.statement import Unit
from blindsight.validation import check_features

_KIND = "blindsight/releases.4"
_ROWS = ("ids", "digests", "counts", "kept", "codes")
_COUNTED = ("contents", "content_counts", "erased", "erased_counts")


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
class Book:
    """What a store remembers: a row per record released; a deleted one has no code and no digest, but its count.

    `rows` has an array each of ids, digests, counts, codes, and which are `kept`. Releases of each content are counted
    apart, in the order of digests, which tells of no id; so are those of `erased` names and persons.
    """

    key: bytes
    rows: Mapping[str, NDArray[Any]]
    contents: NDArray[np.uint8]
    content_counts: NDArray[np.int64]
    erased: NDArray[np.uint8]
    erased_counts: NDArray[np.int64]

    @classmethod
    def empty(cls, key: bytes) -> Self:
        none, no_digest, no_flag = np.empty(0, np.int64), np.empty((0, 32), np.uint8), np.empty(0, np.bool_)
        first = (none, no_digest, none, no_flag, np.empty(0, np.uint8))
        return cls(key, dict(zip(_ROWS, first, strict=True)), no_digest, none, no_digest, none)

    def __len__(self) -> int:
        return len(self.rows["ids"])

    @property
    def name(self) -> str:
        """What the ledger calls this store."""
        return hmac.digest(self.key, b"name", "sha256").hex()[:16]

    @property
    def most(self) -> int:
        """How often the id, or erased name, with most releases was released."""
        return max(int(counts.max(initial=0)) for counts in (self.rows["counts"], self.erased_counts))

    @property
    def excess(self) -> int:
        """How much more often than that some content was released, under several ids."""
        return max(0, int(self.content_counts.max(initial=0)) - self.most)

    def positions(self, ids: IdArray) -> NDArray[np.int64]:
        if not len(self) or not len(ids):
            return np.full(len(ids), -1, dtype=np.int64)
        if kind_of(ids) != kind_of(self.rows["ids"]):
            raise InputError(f"the ids of these releases are {kind_of(self.rows['ids'])}; got {kind_of(ids)}.")
        return Ids(self.rows["ids"]).positions(ids)

    def holding(self, ids: IdArray) -> NDArray[np.int64]:
        places = self.positions(ids)
        missing = (places < 0) | ~self.rows["kept"][places] if len(self) else places < 0
        if missing.any():
            raise InputError(f"no release is stored for {ids[missing].tolist()[0]!r}. Nothing was changed.")
        return places

    def unchanged(self, ids: IdArray, digests: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which records are stored with these digests."""
        places = self.positions(ids)
        if not len(self):
            return np.zeros(len(ids), dtype=np.bool_)
        same = (self.rows["digests"][places] == digests).all(axis=1)
        return np.asarray(same & (places >= 0) & self.rows["kept"][places])

    def changed(self, places: NDArray[np.int64], **values: Any) -> "Book":
        rows = dict(self.rows)
        for name, value in values.items():
            rows[name] = rows[name].copy()
            rows[name][places] = value
        return replace(self, rows=rows)

    def released(
        self,
        ids: IdArray,
        digests: NDArray[np.uint8],
        contents: NDArray[np.uint8],
        codes: NDArray[Any],
        before: NDArray[np.int64],
    ) -> "Book":
        """Return the book after one more release of these, which erased names had `before`."""
        rows = dict(self.rows) if len(self) else {**self.rows, "ids": ids[:0], "codes": codes[:0]}
        if (codes.dtype, codes.shape[1:]) != (rows["codes"].dtype, rows["codes"].shape[1:]):
            raise InputError("the mechanism's releases have another shape than those stored.")
        places = self.positions(ids)
        new = places < 0
        places[new] = len(self) + np.arange(int(new.sum()))
        for name, array in rows.items():
            more = np.zeros((int(new.sum()), *array.shape[1:]), dtype=array.dtype)
            rows[name] = np.concatenate([array, more])
        rows["counts"][places] = np.maximum(rows["counts"][places], before) + 1
        grown = replace(self, rows=rows).changed(places, ids=ids, digests=digests, codes=codes, kept=True)
        counts = np.concatenate([self.content_counts, np.ones(len(contents), dtype=np.int64)])
        shown, often = _tallied(np.concatenate([self.contents, contents]), counts, np.add)
        return replace(grown, contents=shown, content_counts=often)

    def before(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each name, or the person in whose folder it lies, was released before it was erased."""
        counts = dict(zip((one.tobytes() for one in self.erased), self.erased_counts.tolist(), strict=True))
        if not counts:
            return np.zeros(len(names), dtype=np.int64)
        return np.array([max(counts.get(one, 0) for one in _known_as(self.key, name)) for name in names], np.int64)

    def without(self, ids: IdArray, names: Sequence[str], person: str | None) -> "Book":
        """Return the book without the rows of these ids, and with the counts of their names and of the person."""
        places = self.positions(ids)
        held = [(place, name) for place, name in zip(places.tolist(), names, strict=True) if place >= 0]
        if not held:
            return self
        gone = [place for place, _ in held]
        digests, counts = [_erased(self.key, "name", name) for _, name in held], self.rows["counts"][gone].tolist()
        if person is not None:
            digests, counts = [*digests, _erased(self.key, "person", person)], [*counts, self.most]
        more = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, 32)
        erased, often = _tallied(
            np.concatenate([self.erased, more]), np.concatenate([self.erased_counts, counts]), np.maximum
        )
        rows = {name: np.delete(array, gone, axis=0) for name, array in self.rows.items()}
        return replace(self, rows=rows, erased=erased, erased_counts=often)


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

    def release(
        self, ids: ArrayLike, X: ArrayLike, *, versions: ArrayLike | None = None, names: Sequence[str] | None = None
    ) -> NDArray[Any]:
        """Return one release per record: the stored one where it was not edited, else a new one, paid for.

        `versions` holds what tells a record from an edited one, a row of whole numbers each: its pixels, or a digest of
        its file. Without, that is the features to their last digit, which another machine may compute differently.
        `names` are what records may have been erased by (`erase_releases`); without, none counts as erased before.
        """
        rows = check_features(X, least=0)
        wanted = check_unique(check_ids(ids), len(rows))
        if names is not None and len(names) != len(rows):
            raise InputError(f"every record needs a name; got {len(names)} names for {len(rows)} records.")
        if not len(rows):
            raise InputError("there are no records to release.")
        told = _plain_rows(rows) if versions is None else _whole_rows(versions, len(rows))
        with self._book() as book:
            digests, after = digests_of(book.key, told, (f"{one}\0" for one in wanted)), book
            fresh = ~book.unchanged(wanted, digests)
            if fresh.any():
                drawn = np.asarray(self._mechanism.release(rows[fresh], source=self._source))
                contents = digests_of(book.key, told[fresh], repeat(""))
                before = np.zeros(len(rows), dtype=np.int64) if names is None else book.before(names)
                after = after.released(wanted[fresh], digests[fresh], contents, drawn, before[fresh])
            self._pay(book, after)
            if after is not book:
                self._keep(after)
            return np.asarray(after.rows["codes"][after.positions(wanted)])

    def stored(self, ids: ArrayLike) -> NDArray[Any]:
        """Return the releases of records that are there, without asking for their content."""
        with self._book() as book:
            places = book.holding(check_ids(ids))
            self._pay(book, book)
            return np.asarray(book.rows["codes"][places])

    def delete(self, ids: ArrayLike) -> None:
        """Remove the releases of records from the store; what they have lost stays lost."""
        wanted = check_ids(ids)
        check_unique(wanted, len(wanted))
        with self._book() as book:
            self._keep(book.changed(book.holding(wanted), digests=0, codes=0, kept=False))

    @property
    def ids(self) -> IdArray:
        """The ids of all records that are there."""
        with self._book() as book:
            return np.asarray(book.rows["ids"][book.rows["kept"]])

    @property
    def most_releases(self) -> int:
        """How often the id, or name, with most releases was released: times the mechanism's loss, what is lost."""
        with self._book() as book:
            return book.most

    @property
    def excess(self) -> int:
        """How many more releases there are of some content that is or was there under several ids: for the owner."""
        with self._book() as book:
            return book.excess

    def __len__(self) -> int:
        with self._book() as book:
            return int(book.rows["kept"].sum())

    def _pay(self, book: Book, after: Book) -> None:
        """Record at once all releases of the book `after` that the ledger lacks, or that this book is yet to make.

        After a crash, or with a copy of the file, the ledger may have more than the book: those are no advance payment.
        """
        if self._ledger is None or self._scope is None:
            return
        loss, mechanism = self._mechanism.loss, f"permanent release by {self._mechanism.digest[:16]} in {book.name}"
        paid, equal = _recorded(self._ledger, self._scope, self._unit, mechanism, loss)
        paid, equal = min(book.most, paid), min(book.excess, equal)
        more, doubled = max(0, after.most - paid), max(0, after.excess - equal)
        purpose = f"releases {paid + 1} to {after.most} of the records released most often"
        for number, why in ((more, purpose), (doubled, EQUAL_CONTENTS)):  # first what a budget may refuse
            if number:
                self._ledger.spend(
                    replace(loss, count=loss.count * number),
                    scope=self._scope,
                    unit=self._unit,
                    neighbours="replace",
                    mechanism=mechanism,
                    purpose=why,
                )

    @contextmanager
    def _book(self) -> Iterator[Book]:
        """Lock the store and yield what is in it, also of other processes."""
        with self._mutex:
            if self._path is None:
                yield self._memory
                return
            with file_lock(self._path, replaced=True) as real:
                yield self._read(real) if real.exists() else self._memory

    def _read(self, path: Path) -> Book:
        mechanism, book = _read_store(path)
        if mechanism != self._mechanism.digest:
            raise InputError(
                f"{path} holds releases of another mechanism. A record released by both has lost to both: keep them "
                "in a file of their own, under the same scope of the ledger."
            )
        return book

    def _keep(self, book: Book) -> None:
        if self._path is None:
            self._memory = book
        else:
            _write_store(only_link(self._path), self._mechanism.digest, book)


def erase_releases(path: Path, ids: ArrayLike, names: Sequence[str], *, person: str | None = None) -> None:
    """Remove records from a store for good: ids and codes.

    How often each name was released stays, under a keyed digest, as does how often each content was: should one come
    back, its count continues. Where persons are the unit, `person` names the folder of which no record stays.
    """
    with file_lock(path, replaced=True) as real:
        mechanism, book = _read_store(real)
        after = book.without(check_ids(ids), names, person)
        if after is not book:
            _write_store(real, mechanism, after)


def check_store(path: Path) -> None:
    """Raise if a store of releases is damaged or of an older version; nothing is locked or changed."""
    _read_store(path)


def _read_store(path: Path) -> tuple[str, Book]:
    """Return the digest of a store's mechanism, and its book."""
    try:
        document, arrays = read_arrays(path, _KIND)
    except CorruptFileError as refusal:
        raise CorruptFileError(
            f"{refusal} What such a file released stays released: keep it, and release into another one under the same "
            "scope of the ledger, which adds both up."
        ) from None
    try:
        rows = {name: arrays[name] for name in _ROWS}
        if rows["ids"].dtype.kind == "U":
            rows["ids"] = rows["ids"].astype(object)
        return document["mechanism"], Book(arrays["key"].tobytes(), rows, **{name: arrays[name] for name in _COUNTED})
    except KeyError as error:
        raise CorruptFileError(f"{path} holds no releases: {error} is missing.") from None


def _write_store(path: Path, mechanism: str, book: Book) -> None:
    ids = book.rows["ids"] if kind_of(book.rows["ids"]) == "integers" else book.rows["ids"].astype(str)
    arrays = {**book.rows, "ids": ids, "key": np.frombuffer(book.key, dtype=np.uint8)}
    arrays |= {name: getattr(book, name) for name in _COUNTED}
    write_arrays(path, _KIND, {"mechanism": mechanism}, arrays, private=True)


def _known_as(key: bytes, name: str) -> list[bytes]:
    """Return the digests under which a name may have been erased: its own, and that of each folder as a person."""
    folders = name.split("/")[:-1]
    persons = ("/".join(folders[:depth]) for depth in range(1, len(folders) + 1))
    return [_erased(key, "name", name), *(_erased(key, "person", one) for one in persons)]


def _erased(key: bytes, kind: str, name: str) -> bytes:
    return hmac.digest(key, f"erased {kind}\0{name}".encode("utf-8", "surrogatepass"), "sha256")


def _tallied(
    digests: NDArray[np.uint8], counts: NDArray[np.int64], join: np.ufunc
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the different digests, in their order, each with its counts joined."""
    different, places = np.unique(np.ascontiguousarray(digests).view("V32").ravel(), return_inverse=True)
    joined = np.zeros(len(different), dtype=np.int64)
    join.at(joined, places, counts)
    return different.view(np.uint8).reshape(-1, 32), joined


def _recorded(ledger: Ledger, scope: str, unit: Unit, mechanism: str, loss: BoundedLoss) -> tuple[int, int]:
    """Return how many releases of this loss the ledger has of a mechanism, and how many more of equal contents."""
    try:
        spends = ledger.spends(scope, unit)
    except UnknownNameError:  # nothing was ever spent there
        return 0, 0
    counts = [0, 0]
    for one in spends:
        if one.mechanism == mechanism and replace(one.loss, count=loss.count) == loss:
            counts[one.purpose == EQUAL_CONTENTS] += one.loss.count
    return counts[0] // loss.count, counts[1] // loss.count


def _plain_rows(rows: Floats) -> NDArray[Any]:
    """Return features of which equal ones have equal bytes."""
    return np.ascontiguousarray(rows + np.float32(0), dtype="<f4")  # -0 and 0 are the same content


def digests_of(key: bytes, rows: NDArray[Any], labels: Iterable[str]) -> NDArray[np.uint8]:
    pairs = zip(labels, rows, strict=False)
    joined = b"".join(hmac.digest(key, label.encode() + row.tobytes(), "sha256") for label, row in pairs)
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), 32)


def _whole_rows(versions: ArrayLike, rows: int) -> NDArray[Any]:
    told = np.ascontiguousarray(versions)
    if told.dtype.kind not in "iu" or told.ndim < 1 or len(told) != rows:
        raise InputError(f"versions must be whole numbers, a row for each of {rows} records; got {told.shape}.")
    return told
