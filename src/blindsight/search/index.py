"""Binary codes and released symbols in this process, searched with faiss.

*Codes* (`HammingIndex`). Up to a million every search is exact. Beyond, an inverted file answers if it was measured to
reach the wanted recall on the index's own codes for less than half of the work; `plan` says what was chosen and what
was measured. A radius and a real-valued query are always answered exactly. Changes happen whole or not at all; a file
gives back the same index or is refused. Memory is codes (8 MB for a million of 64 bits), again in lists, and ids.

*Lists* group codes around centroids, so that a search compares only those of the nearest groups: faiss's IndexBinaryIVF
over positions in a table of codes. They can be made again from the codes, the centroids and the list of every code. A
search opens as few as reach the wanted recall, the share of its k hits that are no farther than the true k-th neighbour
(equal distances are equally good). It is measured for a sample of queries: codes of the index itself, each looking for
others than itself, or codes that the caller says are typical. The estimate must exceed the target by two standard
errors, so that other queries reach it too. Where comparing all codes costs less (heavy noise), that is done.

*Symbols* (`SymbolIndex`): every record is one public symbol, every symbol a list of records. The asker scores the
symbols (the posterior probability of a match, for instance); all records of a symbol tie, so a search opens the lists
in the order of their scores and stops after k records, whatever the size of the collection.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from threading import Lock, RLock
from typing import Any, Literal, Self, get_args

import faiss
import numpy as np
from faiss import swig_ptr
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.rng import science
from blindsight.search.codes import (
    Codes,
    best_by_score,
    blocks,
    check_codes,
    check_whole,
    code_bytes,
    nearest,
    neighbourhoods,
    pack,
)
from blindsight.search.rows import (
    Hits,
    IdArray,
    Neighbourhoods,
    Positions,
    Rows,
    ScoredHits,
    check_ids,
    check_k,
    check_radius,
    check_recall,
    check_unique,
    pack_ids,
    unpack_ids,
)
from blindsight.validation import check_features

Parts = tuple[dict[str, Any], dict[str, NDArray[Any]]]  # a document and arrays, for a file
Found = tuple[NDArray[np.int32], IdArray]
Kind = Literal["auto", "exact", "ivf"]

_SAMPLE, _ROUNDS = 40, 10  # codes per centroid that k-means learns from, and how long
_ROWS = 1 << 20  # codes that are assigned at once
_QUERIES, _K = 256, 100  # with which, and up to how many hits, recall is measured first
_WORTHWHILE = 0.5  # share of the lists above which comparing all codes is about as cheap
_EXACT_ROWS = 1_000_000  # up to here all codes are compared unless lists are asked for
_SPARE = 16  # hits searched beyond those wanted, in case removed ones are among them
_FEWEST = 64  # codes below which lists make no sense
_TOMBSTONES = 32  # that any index may have
_CODES, _SYMBOLS = "blindsight/code-index.1", "blindsight/symbol-index.1"
_HALF = 16  # symbols that fit into half a byte


@dataclass(frozen=True)
class Plan:
    """What was measured for searches of up to k hits: open `probes` of `lists`, or, if `probes` is 0, compare all."""

    k: int
    lists: int
    probes: int
    recall: float

    def __str__(self) -> str:
        measured = f"recall@{self.k} {self.recall:.3f} measured"
        if self.probes:
            return f"{self.probes} of {self.lists} lists are opened, {measured}"
        return f"all codes are compared: {self.lists} lists gave only {measured} for half of the work"


class Lists:
    """Positions and codes by nearest centroid, with measured plans (see `HammingIndex.build`); searches take turns."""

    def __init__(
        self,
        centroids: Codes,
        codes: Codes,
        assignment: Positions | None = None,
        *,
        plans: Sequence[Plan] = (),
        queries: Codes | None = None,
        flips: float = 0.0,
    ) -> None:
        """Sort codes into lists: by nearest centroid, or as an earlier `assignment` says."""
        self.centroids, self.plans = np.ascontiguousarray(centroids), {plan.k: plan for plan in plans}
        self._made_for, self._queries, self._flips = len(codes), queries, flips
        count, width = self.centroids.shape
        quantizer = faiss.IndexBinaryFlat(8 * width)
        quantizer.add(self.centroids)
        self._ivf: Any = faiss.IndexBinaryIVF(quantizer, 8 * width, count)
        self._ivf.is_trained = True
        self._turn, self._probes = Lock(), 0
        positions = np.arange(len(codes), dtype=np.int64)
        for span in blocks(len(codes), _ROWS):
            self._add(positions[span], codes[span], None if assignment is None else assignment[span])

    @classmethod
    def learned(cls, codes: Codes, queries: Codes | None = None, flips: float = 0.0) -> Self:
        """Return about sqrt(n) lists around centroids that k-means finds in a sample of the n codes."""
        count, width = max(1, math.isqrt(len(codes))), codes.shape[1]
        sample = science(0).choice(len(codes), min(len(codes), _SAMPLE * count), replace=False)
        learner = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(8 * width), 8 * width, count)
        learner.cp.niter, learner.cp.min_points_per_centroid = _ROUNDS, 1
        learner.train(np.ascontiguousarray(codes[np.sort(sample)]))
        return cls(learner.quantizer.reconstruct_n(0, count), codes, queries=queries, flips=flips)

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def assignment(self) -> Positions:
        places = np.empty(self._ivf.ntotal, dtype=np.int64)
        for number in range(len(self)):
            places[self._positions(number)] = number
        return places

    def suit(self, rows: int) -> bool:
        """Tell whether the lists still suit this many codes: not if they were made for half or for twice as many."""
        return self._made_for / 2 < rows < 2 * self._made_for

    def plan_for(self, codes: Codes, bits: int, k: int, recall: float, *, always: bool) -> Plan:
        """Return the plan for searches of k hits; measured once for all up to 100, and once for every doubling.

        Where the recall takes too many lists, all codes are compared (unless lists are `always` wanted).
        """
        ceiling = _K
        while ceiling < k:
            ceiling *= 2
        if ceiling not in self.plans:
            (queries, own), more = self._drawn(codes, bits), min(ceiling + 1, len(codes))  # a query finds itself
            truth = nearest(codes, queries, more)
            probes, reached, enough = fewest(
                lambda effort: measured_recall(self.search(queries, more, effort), truth, own, ceiling),
                recall,
                len(self) if always else max(1, int(_WORTHWHILE * len(self))),
            )
            self.plans[ceiling] = Plan(ceiling, len(self), probes if enough or always else 0, reached)
        return self.plans[ceiling]

    def search(self, queries: Codes, k: int, probes: int) -> tuple[NDArray[np.int32], Positions]:
        """Return distances and positions of the k nearest among the codes of the nearest lists, -1 where none is."""
        distances, positions = np.empty((len(queries), k), dtype=np.int32), np.empty((len(queries), k), dtype=np.int64)
        with self._turn:
            if self._probes != probes:
                self._ivf.nprobe = self._probes = probes
            self._ivf.search_c(len(queries), swig_ptr(queries), k, swig_ptr(distances), swig_ptr(positions))
        if _short(positions):
            distances[positions < 0] = -1
        return distances, positions

    def add(self, begin: int, codes: Codes) -> None:
        self._add(np.arange(begin, begin + len(codes), dtype=np.int64), codes)

    def replace(self, positions: Positions, codes: Codes) -> None:
        self._ivf.remove_ids(positions)
        self._add(positions, codes)

    def remove(self, kept: NDArray[np.bool_]) -> None:
        self._ivf.remove_ids(np.flatnonzero(~kept))
        new = np.cumsum(kept, dtype=np.int64) - 1
        for number in range(len(self)):
            positions = self._positions(number)
            positions[:] = new[positions]

    def _drawn(self, codes: Codes, bits: int) -> tuple[Codes, Positions]:
        """Return queries, and the position of the code that each was made from (-1 if from none)."""
        if self._queries is not None:
            return self._queries, np.full(len(self._queries), -1, dtype=np.int64)
        generator = science(0)
        own = np.sort(generator.choice(len(codes), min(_QUERIES, len(codes)), replace=False)).astype(np.int64)
        return codes[own] ^ pack(generator.random((len(own), bits)) < self._flips), own

    def _add(self, positions: Positions, codes: Codes, lists: Positions | None = None) -> None:
        rows = np.ascontiguousarray(codes)
        if lists is None:
            self._ivf.add_with_ids(rows, positions)
        else:
            arrays: list[NDArray[Any]] = [rows, positions, np.ascontiguousarray(lists)]
            self._ivf.add_core(len(rows), *map(swig_ptr, arrays))

    def _positions(self, number: int) -> NDArray[Any]:
        size = self._ivf.invlists.list_size(number)
        positions: NDArray[Any] = (
            faiss.rev_swig_ptr(self._ivf.invlists.get_ids(number), size) if size else np.empty(0, dtype=np.int64)
        )
        return positions


def fewest(measure: Callable[[int], tuple[float, float]], recall: float, most: int) -> tuple[int, float, bool]:
    """Return the least effort in [1, most] whose recall is enough, what it reaches, and whether any is enough.

    `measure` returns the recall of an effort and a lower bound of it, which has to be enough; both grow with effort.
    """
    low, high = 0, 1
    reached, bound = measure(high)
    while bound < recall and high < most:
        low, high = high, min(2 * high, most)
        reached, bound = measure(high)
    enough = bound >= recall
    while enough and high - low > 1:
        middle = (low + high) // 2
        other, bound = measure(middle)
        if bound >= recall:
            high, reached = middle, other
        else:
            low = middle
    return high, reached, enough


def measured_recall(found: Found, truth: Found, own: IdArray, k: int) -> tuple[float, float]:
    """Return the mean recall@k over the queries, and the same less two standard errors.

    `found` and `truth` are distances (-1 for none) and ids or positions of k + 1 hits; `own`, the query, is left out.
    """
    near, true = (_others(*hits, own)[:, :k] for hits in (found, truth))
    good = (near >= 0) & (near <= true.max(axis=1, keepdims=True))
    shares = np.count_nonzero(good, axis=1) / np.maximum(1, np.count_nonzero(true >= 0, axis=1))
    mean, error = float(np.mean(shares)), float(np.std(shares)) / len(shares) ** 0.5
    return mean, mean - 2 * error


def _others(distances: NDArray[np.int32], ids: IdArray, own: IdArray) -> NDArray[np.int32]:
    """Return the distances of all hits but the query itself; those that are missing, -1, come last."""
    others = np.where(ids == own[:, None], -1, distances)
    return np.take_along_axis(others, np.argsort(others < 0, axis=1, kind="stable"), axis=1)


class _Index:
    _rows: Rows

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    @property
    def ids(self) -> IdArray:
        """All ids, oldest first."""
        return self._rows.ids

    def parts(self) -> Parts:
        raise NotImplementedError


class HammingIndex(_Index):
    """Packed codes of `bits` bits under ids that are integers or text, all of one kind.

    `kind` is "exact", "ivf" (inverted lists whatever the size) or "auto"; `recall` is what lists must reach, `threads`
    how many it may use (None: as faiss decides). Several threads may search at once, while none changes it.
    """

    def __init__(self, bits: int, *, kind: Kind = "auto", recall: float = 0.99, threads: int | None = None) -> None:
        if kind not in get_args(Kind):
            raise UnknownNameError("kind of index", str(kind), get_args(Kind))
        if threads is not None:
            check_whole("threads, unless it is None,", threads, 1)
        self._rows = Rows(np.empty((0, code_bytes(bits)), dtype=np.uint8))
        self.bits, self.kind, self.recall, self.threads = int(bits), kind, check_recall(recall), threads
        self._lists: Lists | None = None
        self._building = RLock()

    def __repr__(self) -> str:
        return f"HammingIndex(bits={self.bits}, kind={self.kind!r}), {len(self):,} codes"

    @property
    def codes(self) -> Codes:
        """All codes in the order of `ids`; not to be written to, and good until the next change."""
        view = self._rows.kept.view()
        view.flags.writeable = False
        return view

    @property
    def plan(self) -> str:
        """How searches are answered now, in words, with the measured recall."""
        if not self._wants_lists():
            return f"exact: all {len(self):,} codes are compared."
        if self._lists is None or not self._lists.plans:
            return f"{self.kind}: lists are made and measured at the first search, or by build()."
        return "; ".join(f"up to {plan.k:,} hits: {plan}" for plan in self._lists.plans.values()) + "."

    def add(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Add codes under new ids; an id that exists already is refused."""
        packed = check_codes(codes, self.bits)
        if self._rows.buries(ids):
            self._close_gaps()
        begin = len(self._rows.values)
        self._rows.add(ids, packed)
        if lists := self._still_suited():
            lists.add(begin, packed)

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were. One in about sqrt(n) removals moves all codes."""
        removed = self._rows.remove(ids)
        if len(self._rows.gone) > max(_TOMBSTONES, math.isqrt(len(self._rows.values))):
            self._close_gaps()
        return removed

    def update(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Give ids that exist other codes; they keep their age."""
        packed = check_codes(codes, self.bits)
        places = self._rows.update(ids, packed)
        if self._lists and len(places):
            self._lists.replace(places, packed)

    def build(self, queries: ArrayLike | None = None, *, flips: float = 0.0) -> None:
        """Make the lists again and measure them now instead of at the first search.

        They are measured with typical `queries`, or with codes of the index, each bit flipped with probability `flips`.
        """
        if not 0 <= flips <= 0.5:
            raise InputError(f"flips is the share of a query's bits that noise turns over, in [0, 0.5]; got {flips!r}.")
        asked = None if queries is None else np.array(check_codes(queries, self.bits, "queries"))
        if asked is not None and not len(asked):
            raise InputError("there are no queries to measure with. Leave them out to use the index's own codes.")
        with self._building, _threads(self.threads):
            self._lists = None
            if self._wants_lists():
                self._close_gaps()
                self._lists = Lists.learned(self.codes, asked, flips)
                self._plan_for(1)

    def search(self, codes: ArrayLike, k: int) -> Hits:
        """Return the k nearest of each query, filled up with -1 if there are fewer."""
        queries, k = self._queries(codes), check_k(k)
        wanted = min(k, len(self))
        with _threads(self.threads):
            distances, positions = self._without_gone(lambda more: self._nearest(queries, more), wanted)
        if wanted < k:
            gap = ((0, 0), (0, k - wanted))
            distances, positions = (np.pad(part, gap, constant_values=-1) for part in (distances, positions))
        return Hits(self._rows.take(positions), distances)

    def within(self, codes: ArrayLike, radius: int) -> Neighbourhoods:
        """Return all codes that differ from a query in at most `radius` bits; always exact."""
        queries, radius = self._queries(codes), check_radius(radius)
        with _threads(self.threads):
            distances, positions, bounds = neighbourhoods(self._rows.values, queries, min(radius, self.bits))
        if len(self._rows.gone):
            there = ~np.isin(positions, self._rows.gone)
            counted = np.concatenate([[0], np.cumsum(there, dtype=np.int64)])
            distances, positions, bounds = distances[there], positions[there], counted[bounds]
        return Neighbourhoods(self._rows.take(positions), distances, bounds)

    def search_scores(self, scores: ArrayLike, k: int) -> ScoredHits:
        """Rank codes of -1 and +1 by inner product with `HashFunction.scores` (queries, bits); always exact."""
        queries, positions, values = _to_fill(scores, self.bits, k)
        wanted = min(positions.shape[1], len(self))
        if wanted and len(queries):
            with _threads(self.threads):
                found, best = self._without_gone(
                    lambda more: best_by_score(self._rows.values, self.bits, queries, more)[::-1], wanted
                )
            positions[:, :wanted], values[:, :wanted] = best, found
        return ScoredHits(self._rows.take(positions), values)

    def save(self, path: AnyPath, *, private: bool = False) -> None:
        """Write everything to one file, whole or not at all; a `private` one can be read by its owner alone."""
        write_arrays(path, _CODES, *self.parts(), private=private)

    def parts(self) -> Parts:
        self._close_gaps()
        sections: dict[str, NDArray[Any]] = {"codes": self._rows.values, **pack_ids(self.ids)}
        plans: list[dict[str, Any]] = []
        if self._lists:
            sections["centroids"] = self._lists.centroids
            sections["lists"] = self._lists.assignment.astype(np.int32)
            plans = [asdict(plan) for plan in self._lists.plans.values()]
        return {"bits": self.bits, "kind": self.kind, "recall": self.recall, "plans": plans}, sections

    @classmethod
    def load(cls, path: AnyPath, *, mmap: bool = False, verify: bool = True, threads: int | None = None) -> Self:
        """Read what `save` wrote; a damaged, older or foreign file raises `CorruptFileError`.

        With `mmap=True` the codes stay on disk until the first change copies them into memory. `verify=False` skips the
        checksums of codes and ids (one reading of the file), for files that cannot have changed.
        """
        return cls.from_parts(*read_arrays(path, _CODES, mapped=mmap, verify=verify), where=str(path), threads=threads)

    @classmethod
    def from_parts(
        cls, document: dict[str, Any], sections: dict[str, NDArray[Any]], *, where: str, threads: int | None = None
    ) -> Self:
        """Return the index that these parts describe; `where` they come from is named if they are unusable."""
        try:
            index = cls(document["bits"], kind=document["kind"], recall=document["recall"], threads=threads)
            index._restore(sections, [Plan(**plan) for plan in document["plans"]])
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise CorruptFileError(f"{where} holds no usable index: {error}") from None
        return index

    def _restore(self, sections: dict[str, NDArray[Any]], plans: list[Plan]) -> None:
        codes, ids = check_codes(sections["codes"], self.bits), unpack_ids(sections)
        if ids.ndim != 1 or len(ids) != len(codes):
            raise InputError(f"there are {len(codes)} codes and {len(ids)} ids.")
        check_unique(ids if ids.dtype == np.int64 else check_ids(ids), len(codes))
        self._rows = Rows(codes, ids if len(ids) else None)
        if plans:
            lists = sections["lists"].astype(np.int64)
            centroids = check_codes(sections["centroids"], 8 * codes.shape[1])
            if lists.shape != ids.shape or not 0 <= lists.min() <= lists.max() < len(centroids):
                raise InputError("its lists do not fit its codes.")
            if not all(0 <= plan.probes <= plan.lists == len(centroids) for plan in plans):
                raise InputError("its plans do not fit its lists.")
            self._lists = Lists(centroids, codes, lists, plans=plans)

    def _close_gaps(self) -> None:
        """Move all codes to where removed ones were; costly, so done once in a while."""
        kept = self._rows.close_gaps()
        if not kept.all() and (lists := self._still_suited()):
            lists.remove(kept)

    def _without_gone(
        self, search: Callable[[int], tuple[NDArray[Any], Positions]], k: int
    ) -> tuple[NDArray[Any], Positions]:
        """Return the k best of each query that were not removed; `search` returns values and positions of k hits."""
        gone = self._rows.gone
        if not len(gone) or not k:
            return search(k)
        for more in (k + min(len(gone), _SPARE), k + len(gone)):
            values, positions = search(more)
            there = (positions >= 0) & ~np.isin(positions, gone)
            if there.sum(axis=1).min(initial=more) >= k:
                break
        order = np.argsort(~there, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(values, order, axis=1), np.take_along_axis(positions, order, axis=1)

    def _queries(self, codes: ArrayLike) -> Codes:
        return np.ascontiguousarray(check_codes(codes, self.bits, "queries"))

    def _nearest(self, queries: Codes, k: int) -> tuple[NDArray[np.int32], Positions]:
        lists, probes = self._plan_for(k) if k and self._wants_lists() else (None, 0)
        if lists is None or not probes:
            return nearest(self._rows.values, queries, k)
        distances, positions = lists.search(queries, k, probes)
        if _short(positions):  # the opened lists held fewer than k
            short = positions[:, -1] < 0
            distances[short], positions[short] = nearest(self._rows.values, queries[short], k)
        return distances, positions

    def _wants_lists(self) -> bool:
        return len(self) > _EXACT_ROWS if self.kind == "auto" else self.kind == "ivf" and len(self) >= _FEWEST

    def _plan_for(self, k: int) -> tuple[Lists, int]:
        """Return the lists and how many of them to open for k hits; make and measure them if need be."""
        lists = self._lists
        if lists is not None and k <= _K and (plan := lists.plans.get(_K)):
            return lists, plan.probes
        with self._building:
            if self._lists is None:
                self._lists = Lists.learned(self._rows.values)
            always = self.kind == "ivf"
            plan = self._lists.plan_for(self._rows.values, self.bits, k, self.recall, always=always)
            return self._lists, plan.probes

    def _still_suited(self) -> Lists | None:
        """Return the lists, or drop them if they no longer suit the number of codes; the next search makes others."""
        if self._lists and not (self._wants_lists() and self._lists.suit(len(self))):
            self._lists = None
        return self._lists


class SymbolIndex(_Index):
    """Records by released symbol 0 ... outputs - 1, under ids that are integers or text, all of one kind.

    Changes happen whole or not at all. Several threads may search at once, while none changes the index.
    """

    def __init__(self, outputs: int) -> None:
        self.outputs = check_whole("outputs, of a codebook,", outputs, 1)
        self._rows = Rows(np.empty(0, dtype=np.int64))
        self._lists: tuple[Positions, Positions] | None = None

    def __repr__(self) -> str:
        return f"SymbolIndex(outputs={self.outputs}), {len(self):,} records"

    @property
    def symbols(self) -> NDArray[np.int64]:
        return self._rows.values

    def add(self, ids: ArrayLike, symbols: ArrayLike) -> None:
        """Add records under new ids; an id that exists already is refused."""
        self._rows.add(ids, self._check(symbols))
        self._lists = None

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were."""
        removed = self._rows.remove(ids)
        self._rows.close_gaps()  # lists are laid out again anyhow
        self._lists = None
        return removed

    def update(self, ids: ArrayLike, symbols: ArrayLike) -> None:
        """Give ids that exist other symbols; they keep their age."""
        self._rows.update(ids, self._check(symbols))
        self._lists = None

    def search(self, scores: ArrayLike, k: int) -> ScoredHits:
        """Return the k records of the highest `scores` (queries, outputs); ties by lower symbol, then oldest first."""
        queries, positions, values = _to_fill(scores, self.outputs, k)
        k, (records, bounds) = positions.shape[1], self._posting_lists()
        sizes = np.diff(bounds)
        for query, ranked in enumerate(np.argsort(-queries, axis=1, kind="stable")):
            opened = ranked[: np.searchsorted(np.cumsum(sizes[ranked]), k) + 1]
            found = np.concatenate([records[bounds[symbol] : bounds[symbol + 1]] for symbol in opened])[:k]
            positions[query, : len(found)] = found
            values[query, : len(found)] = np.repeat(queries[query, opened], sizes[opened])[:k]
        return ScoredHits(self._rows.take(positions), values)

    def save(self, path: AnyPath, *, private: bool = False) -> None:
        write_arrays(path, _SYMBOLS, *self.parts(), private=private)

    @classmethod
    def load(cls, path: AnyPath) -> Self:
        """Read what `save` wrote; a damaged or foreign file raises `CorruptFileError`."""
        return cls.from_parts(*read_arrays(path, _SYMBOLS), where=str(path))

    def parts(self) -> Parts:
        """Return everything for a file: half a byte a symbol, or the fewest bytes; ids that are 0, 1, ... take none."""
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

    def _posting_lists(self) -> tuple[Positions, Positions]:
        """Return positions by symbol, oldest first, and where each symbol's begin; laid out again after a change."""
        if self._lists is None:
            symbols = self._rows.values
            counts = np.bincount(symbols, minlength=self.outputs)
            bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            self._lists = np.argsort(symbols, kind="stable"), bounds
        return self._lists


def _to_fill(scores: ArrayLike, width: int, k: int) -> tuple[NDArray[np.float32], Positions, NDArray[np.float32]]:
    queries, shape = check_features(scores, width, what="scores of a query", least=0), check_k(k)
    missing = np.full((len(queries), shape), -1, dtype=np.int64)
    return queries, missing, np.full(missing.shape, -np.inf, dtype=np.float32)


def _short(positions: Positions) -> bool:
    return bool(positions[0, -1] < 0) if len(positions) == 1 else bool((positions[:, -1] < 0).any())


class _threads:  # noqa: N801 - used like a function, and cheaper than a generator
    """Let faiss use this many threads in a block; others that search at the same time keep theirs."""

    __slots__ = ("_before", "_wanted")

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted

    def __enter__(self) -> None:
        if self._wanted is not None:
            self._before = faiss.omp_get_max_threads()
            if self._before != self._wanted:
                faiss.omp_set_num_threads(self._wanted)

    def __exit__(self, *raised: object) -> None:
        if self._wanted is not None and self._before != self._wanted:
            faiss.omp_set_num_threads(self._before)
