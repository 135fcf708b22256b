"""Binary codes in this process, searched by Hamming distance with faiss.

*What is promised.* Up to a million codes every search is exact. Beyond, an inverted file answers if it was measured to
reach the wanted recall on the index's own codes for less than half of the work; `plan` says what was chosen and what
was measured. A radius and a real-valued query are always answered exactly. Changes happen whole or not at all; a file
gives back the same index or is refused.

Memory is the codes (8 MB for a million of 64 bits) and the ids, and the codes once more if there are lists.

Inverted lists: codes grouped around centroids, so that a search compares only those of the nearest groups.

This is faiss's IndexBinaryIVF over positions in a table of codes. It is an aid, never the record: everything in it can
be made again from the codes, the centroids and the list of every code.

How many lists a search must open: as few as reach the wanted recall, measured on codes like those that are asked.

Recall is the share of a search's k hits that are no farther than the true k-th neighbour (equal distances are equally
good). It is measured for a sample of queries: codes of the index itself, each looking for others than itself, or codes
that the caller says are typical. The estimate must exceed the target by two standard errors, so that other queries
reach it too. Codes with little noise need few lists; heavily flipped ones need so many that comparing all codes costs
less, and then that is the plan.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from threading import Lock, RLock
from typing import Any, Literal, Self, get_args

import faiss
import numpy as np
from faiss import swig_ptr
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, write_arrays
from blindsight.rng import science
from blindsight.search.codes import Codes, best_by_score, blocks, check_codes, code_bytes, nearest, neighbourhoods, pack
from blindsight.search.hits import Hits, IdArray, Neighbourhoods, ScoredHits, check_k, check_radius, check_recall
from blindsight.search.rows import Rows, check_ids, check_unique, pack_ids, read_index, unpack_ids
from blindsight.validation import check_features

_SAMPLE = 40  # codes per centroid that k-means learns from
_ROUNDS = 10
_ROWS = 1 << 20  # codes that are assigned at once


class Lists:
    """Positions and codes by nearest centroid; searches from several threads take turns."""

    def __init__(self, centroids: Codes, codes: Codes, assignment: NDArray[np.int64] | None = None) -> None:
        """Sort codes into lists: by nearest centroid, or as an earlier `assignment` says."""
        self.centroids = np.ascontiguousarray(centroids)
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
    def learned(cls, codes: Codes) -> Self:
        """Return about sqrt(n) lists around centroids that k-means finds in a sample of the n codes."""
        count = max(1, math.isqrt(len(codes)))
        sample = science(0).choice(len(codes), min(len(codes), _SAMPLE * count), replace=False)
        width = codes.shape[1]
        learner = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(8 * width), 8 * width, count)
        learner.cp.niter = _ROUNDS
        learner.cp.min_points_per_centroid = 1
        learner.train(np.ascontiguousarray(codes[np.sort(sample)]))
        return cls(learner.quantizer.reconstruct_n(0, count), codes)

    def __len__(self) -> int:
        """Return how many lists there are."""
        return len(self.centroids)

    @property
    def assignment(self) -> NDArray[np.int64]:
        """The list of every position."""
        places = np.empty(self._ivf.ntotal, dtype=np.int64)
        for number in range(len(self)):
            places[self._positions(number)] = number
        return places

    def search(self, queries: Codes, k: int, probes: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return distances and positions of the k nearest among the codes of the nearest lists, -1 where none is."""
        distances = np.empty((len(queries), k), dtype=np.int32)
        positions = np.empty((len(queries), k), dtype=np.int64)
        with self._turn:
            if self._probes != probes:
                self._ivf.nprobe = self._probes = probes
            self._ivf.search_c(len(queries), swig_ptr(queries), k, swig_ptr(distances), swig_ptr(positions))
        if _short(positions):
            distances[positions < 0] = -1
        return distances, positions

    def add(self, begin: int, codes: Codes) -> None:
        """Add codes whose positions are `begin` and on."""
        self._add(np.arange(begin, begin + len(codes), dtype=np.int64), codes)

    def replace(self, positions: NDArray[np.int64], codes: Codes) -> None:
        """Give positions other codes."""
        self._ivf.remove_ids(positions)
        self._add(positions, codes)

    def remove(self, kept: NDArray[np.bool_]) -> None:
        """Forget all positions but these, and close the gaps."""
        self._ivf.remove_ids(np.flatnonzero(~kept))
        new = np.cumsum(kept, dtype=np.int64) - 1
        for number in range(len(self)):
            positions = self._positions(number)
            positions[:] = new[positions]

    def _add(self, positions: NDArray[np.int64], codes: Codes, lists: NDArray[np.int64] | None = None) -> None:
        rows = np.ascontiguousarray(codes)
        if lists is None:
            self._ivf.add_with_ids(rows, positions)
        else:
            arrays: list[NDArray[Any]] = [rows, positions, np.ascontiguousarray(lists)]
            self._ivf.add_core(len(rows), *map(swig_ptr, arrays))

    def _positions(self, number: int) -> NDArray[Any]:
        """Return the positions in one list, not copied."""
        size = self._ivf.invlists.list_size(number)
        if not size:
            return np.empty(0, dtype=np.int64)
        positions: NDArray[Any] = faiss.rev_swig_ptr(self._ivf.invlists.get_ids(number), size)
        return positions


Found = tuple[NDArray[np.int32], IdArray]

_QUERIES = 256
_K = 100
_WORTHWHILE = 0.5  # share of the lists above which comparing all codes is about as cheap


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


@dataclass(frozen=True)
class Questions:
    """What to measure with: `typical` queries, or codes of the index with each bit flipped with probability `flips`."""

    typical: Codes | None = None
    flips: float = 0.0

    def drawn(self, codes: Codes, bits: int) -> tuple[Codes, NDArray[np.int64]]:
        """Return queries, and the position of the code that each was made from (-1 if from none)."""
        if self.typical is not None:
            return self.typical, np.full(len(self.typical), -1, dtype=np.int64)
        generator = science(0)
        own = np.sort(generator.choice(len(codes), min(_QUERIES, len(codes)), replace=False)).astype(np.int64)
        return codes[own] ^ pack(generator.random((len(own), bits)) < self.flips), own


@dataclass
class TunedLists:
    """Lists, and the plans that were measured with them. `rows` is how many codes there were when they were made."""

    lists: Lists
    rows: int
    questions: Questions = Questions()
    plans: dict[int, Plan] = field(default_factory=dict)

    def plan_for(self, codes: Codes, bits: int, k: int, recall: float, *, always: bool) -> Plan:
        """Return the plan for searches of k hits; measured once for all up to 100, and once for every doubling."""
        ceiling = _K
        while ceiling < k:
            ceiling *= 2
        if ceiling not in self.plans:
            queries, own = self.questions.drawn(codes, bits)
            self.plans[ceiling] = tune(self.lists, codes, queries, own, ceiling, recall, always=always)
        return self.plans[ceiling]

    def fit(self, rows: int) -> bool:
        """Tell whether the lists still suit so many codes: not if they were made for half or for twice as many."""
        return self.rows / 2 < rows < 2 * self.rows


def tune(
    lists: Lists, codes: Codes, queries: Codes, own: NDArray[np.int64], k: int, recall: float, *, always: bool
) -> Plan:
    """Find the fewest probes that reach the recall@k; compare all codes if that takes too many (unless `always`)."""
    more = min(k + 1, len(codes))  # one more, for a query finds itself
    truth = nearest(codes, queries, more)

    def measure(probes: int) -> tuple[float, float]:
        return measured_recall(lists.search(queries, more, probes), truth, own, k)

    most = len(lists) if always else max(1, int(_WORTHWHILE * len(lists)))
    probes, reached, enough = fewest(measure, recall, most)
    return Plan(k, len(lists), probes if enough or always else 0, reached)


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

    `found` and `truth` are distances (-1 for none) and ids or positions of k + 1 hits; `own` is what each query may not
    find: itself.
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


Kind = Literal["auto", "exact", "ivf"]

_EXACT_ROWS = 1_000_000  # up to here all codes are compared unless lists are asked for
_SPARE = 16  # hits searched beyond those wanted, in case removed ones are among them
_FEWEST = 64  # codes below which lists make no sense
_FILE = "blindsight/code-index.1"


class HammingIndex:
    """Packed codes of `bits` bits under ids that are integers or text, all of one kind.

    `kind` is "exact", "ivf" (inverted lists whatever the size) or "auto"; `recall` is what lists must reach, `threads`
    how many it may use (None: as faiss decides). Several threads may search at once, while none changes it.
    """

    def __init__(self, bits: int, *, kind: Kind = "auto", recall: float = 0.99, threads: int | None = None) -> None:
        if kind not in get_args(Kind):
            raise UnknownNameError("kind of index", str(kind), get_args(Kind))
        if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
            raise InputError(f"threads must be a whole number >= 1, or None; got {threads!r}.")
        self._width = code_bytes(bits)
        self._bits, self.kind, self.recall, self.threads = int(bits), kind, check_recall(recall), threads
        self._rows = Rows(np.empty((0, self._width), dtype=np.uint8))
        self._tuned: TunedLists | None = None
        self._building = RLock()

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: object) -> bool:
        return self._rows.has(key)

    def __repr__(self) -> str:
        return f"HammingIndex(bits={self.bits}, kind={self.kind!r}), {len(self):,} codes"

    @property
    def bits(self) -> int:
        """Length of a code."""
        return self._bits

    @property
    def ids(self) -> IdArray:
        """All ids, oldest first."""
        return self._rows.ids

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
        if self._tuned is None or not self._tuned.plans:
            return f"{self.kind}: lists are made and measured at the first search, or by build()."
        return "; ".join(f"up to {plan.k:,} hits: {plan}" for plan in self._tuned.plans.values()) + "."

    def add(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Add codes under new ids; an id that exists already is refused."""
        packed = check_codes(codes, self.bits)
        if self._rows.buries(ids):
            self._close_gaps()
        begin = len(self._rows.values)
        self._rows.add(ids, packed)
        if tuned := self._still_tuned():
            tuned.lists.add(begin, packed)

    def remove(self, ids: ArrayLike) -> int:
        """Remove what is there of these ids; return how many were. One in about sqrt(n) removals moves all codes."""
        removed = self._rows.remove(ids)
        if self._rows.crowded:
            self._close_gaps()
        return removed

    def update(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Give ids that exist other codes; they keep their age."""
        packed = check_codes(codes, self.bits)
        places = self._rows.update(ids, packed)
        if self._tuned and len(places):
            self._tuned.lists.replace(places, packed)

    def build(self, queries: ArrayLike | None = None, *, flips: float = 0.0) -> None:
        """Make the lists anew and measure them now instead of at the first search.

        They are measured with `queries` if there are some that are typical, else with codes of the index itself, each
        bit flipped with the probability `flips`.
        """
        if not 0 <= flips <= 0.5:
            raise InputError(f"flips is the share of a query's bits that noise turns over, in [0, 0.5]; got {flips!r}.")
        asked = None if queries is None else np.array(check_codes(queries, self.bits, "queries"))
        if asked is not None and not len(asked):
            raise InputError("there are no queries to measure with. Leave them out to use the index's own codes.")
        with self._building, _threads(self.threads):
            self._tuned = None
            if self._wants_lists():
                self._close_gaps()
                self._tuned = TunedLists(Lists.learned(self.codes), len(self), Questions(asked, flips))
                self._plan_for(1)

    def search(self, codes: ArrayLike, k: int) -> Hits:
        """Return the k nearest of each query, filled up with -1 if there are fewer."""
        queries, k = self._queries(codes), check_k(k)
        wanted = min(k, len(self))
        with _threads(self.threads):
            distances, positions = self._without_gone(lambda more: self._nearest(queries, more), wanted)
        if wanted < k:
            gap = ((0, 0), (0, k - wanted))
            distances = np.pad(distances, gap, constant_values=-1)
            positions = np.pad(positions, gap, constant_values=-1)
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
        """Rank by the inner product with a real-valued query (queries, bits) of codes as -1 and +1; always exact.

        The scores are what a hash function gives before its sign is taken (`HashFunction.scores`).
        """
        queries, k = check_features(scores, self.bits, what="scores of a query", least=0), check_k(k)
        wanted = min(k, len(self))
        positions = np.full((len(queries), k), -1, dtype=np.int64)
        values = np.full((len(queries), k), -np.inf, dtype=np.float32)
        if wanted and len(queries):
            with _threads(self.threads):
                found, best = self._without_gone(
                    lambda more: best_by_score(self._rows.values, self.bits, queries, more)[::-1], wanted
                )
            positions[:, :wanted], values[:, :wanted] = best, found
        return ScoredHits(self._rows.take(positions), values)

    def save(self, path: AnyPath, *, private: bool = False) -> None:
        """Write everything to one file, whole or not at all; a `private` one can be read by its owner alone."""
        write_arrays(path, _FILE, *self.parts(), private=private)

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything as a document and arrays for a file."""
        self._close_gaps()
        sections: dict[str, NDArray[Any]] = {"codes": self._rows.values, **pack_ids(self.ids)}
        plans: list[dict[str, Any]] = []
        if self._tuned:
            sections["centroids"] = self._tuned.lists.centroids
            sections["lists"] = self._tuned.lists.assignment.astype(np.int32)
            plans = [asdict(plan) for plan in self._tuned.plans.values()]
        return {"bits": self.bits, "kind": self.kind, "recall": self.recall, "plans": plans}, sections

    @classmethod
    def load(cls, path: AnyPath, *, mmap: bool = False, verify: bool = True, threads: int | None = None) -> Self:
        """Read what `save` wrote; a damaged, older or foreign file raises `CorruptFileError`.

        With `mmap=True` the codes stay on disk and are read as they are searched; the first change copies them into
        memory. `verify=False` skips the checksums of codes and ids (one reading of the file), for files that cannot
        have changed.
        """
        return cls.from_parts(*read_index(path, _FILE, mapped=mmap, verify=verify), where=str(path), threads=threads)

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
        if ids.dtype != np.int64:
            ids = check_ids(ids)
        check_unique(ids)
        if ids.shape != codes.shape[:1]:
            raise InputError(f"there are {len(codes)} codes and {len(ids)} ids.")
        self._rows = Rows(codes, ids if len(ids) else None)
        if plans:
            lists = sections["lists"].astype(np.int64)
            centroids = check_codes(sections["centroids"], 8 * self._width)
            if lists.shape != ids.shape or not 0 <= lists.min() <= lists.max() < len(centroids):
                raise InputError("its lists do not fit its codes.")
            if not all(0 <= plan.probes <= plan.lists == len(centroids) for plan in plans):
                raise InputError("its plans do not fit its lists.")
            self._tuned = TunedLists(Lists(centroids, codes, lists), len(codes), plans={plan.k: plan for plan in plans})

    def _close_gaps(self) -> None:
        """Move all codes to where removed ones were; dear, so done once in a while."""
        kept = self._rows.close_gaps()
        if not kept.all() and (tuned := self._still_tuned()):
            tuned.lists.remove(kept)

    def _without_gone(
        self, search: Callable[[int], tuple[NDArray[Any], NDArray[np.int64]]], k: int
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the k best of each query that were not removed; `search` returns values and positions of so many."""
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

    def _nearest(self, queries: Codes, k: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        lists, probes = self._plan_for(k) if k and self._wants_lists() else (None, 0)
        if lists is None or not probes:
            return nearest(self._rows.values, queries, k)
        distances, positions = lists.search(queries, k, probes)
        if _short(positions):  # the opened lists held fewer than k
            short = positions[:, -1] < 0
            distances[short], positions[short] = nearest(self._rows.values, queries[short], k)
        return distances, positions

    def _wants_lists(self) -> bool:
        if self.kind == "auto":
            return len(self) > _EXACT_ROWS
        return self.kind == "ivf" and len(self) >= _FEWEST

    def _plan_for(self, k: int) -> tuple[Lists, int]:
        """Return the lists and how many of them to open for k hits; make and measure them if need be."""
        tuned = self._tuned
        if tuned is not None and k <= _K and (plan := tuned.plans.get(_K)):
            return tuned.lists, plan.probes
        with self._building:
            if self._tuned is None:
                self._tuned = TunedLists(Lists.learned(self._rows.values), len(self))
            always = self.kind == "ivf"
            plan = self._tuned.plan_for(self._rows.values, self.bits, k, self.recall, always=always)
            return self._tuned.lists, plan.probes

    def _still_tuned(self) -> TunedLists | None:
        """Return the lists, or drop them if they no longer suit the number of codes; the next search makes others."""
        if self._tuned and not (self._wants_lists() and self._tuned.fit(len(self))):
            self._tuned = None
        return self._tuned


def _short(positions: NDArray[np.int64]) -> bool:
    """Tell whether some query has fewer hits than there are columns; one query is asked for most often."""
    return bool(positions[0, -1] < 0) if len(positions) == 1 else bool((positions[:, -1] < 0).any())


class _threads:  # noqa: N801 - used like a function, and cheaper than a generator
    """Let faiss use so many threads in this block; others that search at the same time keep theirs."""

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
