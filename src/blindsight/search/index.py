"""Binary codes in this process, searched by Hamming distance with faiss.

*What is promised.* Up to a million codes every search is exact. Beyond, an inverted file answers if it was measured to
reach the wanted recall on the index's own codes for less than half of the work; `plan` says what was chosen and what
was measured. A radius and a real-valued query are always answered exactly. Changes happen whole or not at all; a file
gives back the same index or is refused.

Memory is the codes (8 MB for a million of 64 bits) and the ids, and the codes once more if there are lists.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from threading import RLock
from typing import Any, Literal, Self, get_args

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, write_arrays
from blindsight.search.asymmetric import best_by_score
from blindsight.search.codes import Codes, check_codes, code_bytes
from blindsight.search.exact import nearest, neighbourhoods
from blindsight.search.hits import Hits, IdArray, Neighbourhoods, ScoredHits, check_k, check_radius, check_recall
from blindsight.search.ids import check_ids, check_unique
from blindsight.search.indexfile import pack_ids, read_index, unpack_ids
from blindsight.search.lists import Lists
from blindsight.search.rows import Rows
from blindsight.search.tuning import Plan, Questions, TunedLists
from blindsight.validation import check_features

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
        short = np.flatnonzero(positions[:, -1] < 0)  # the opened lists held fewer than k
        if short.size:
            distances[short], positions[short] = nearest(self._rows.values, queries[short], k)
        return distances, positions

    def _wants_lists(self) -> bool:
        if self.kind == "auto":
            return len(self) > _EXACT_ROWS
        return self.kind == "ivf" and len(self) >= _FEWEST

    def _plan_for(self, k: int) -> tuple[Lists, int]:
        """Return the lists and how many of them to open for k hits; make and measure them if need be."""
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


@contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    """Let faiss use so many threads in this block; others that search at the same time keep theirs."""
    if wanted is None:
        yield
        return
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(wanted)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
