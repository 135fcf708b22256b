"""Comparison of ways to search one collection: how much each finds, what it claims, and what is proven.

`METHODS` is a registry to which other modules add (`register`). Here: exact features and open codes (nothing is
hidden); symbols of a codebook learned from public pictures or shipped (*local*: a record is protected wherever its code
goes); codes of a differentially private hash function, from the private pictures or a public start (*central*: the
collection is protected, its codes stay at home).

`SearchStudy` divides a collection into public pictures, private ones that are indexed, and queries, which look for
pictures of their class or, in a collection without classes, of their person. No picture is in two parts, and nobody on
a public picture is on a private one, unless persons are only another name for classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.data.partition import Division
from blindsight.data.sites import Prepared
from blindsight.dp.accounting import check_positive
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.search.central import CentralHasher
from blindsight.search.codebook import shipped_codebook
from blindsight.search.evaluation import (
    CodeSearcher,
    FeatureSearcher,
    Ranking,
    Searcher,
    SymbolSearcher,
    ground_truth,
)
from blindsight.search.function import Floats, HashLearner, LinearHash
from blindsight.search.itq import ITQ
from blindsight.search.localmode import LocalHasher
from blindsight.statement import PrivacyStatement

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """Features (n, d), what each row shows (class or person), and the row of the collection it is."""

    features: Floats
    labels: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class SearchStudy(Prepared):
    """The three parts, ready to be searched."""

    name: str
    public: Part
    indexed: Part
    queries: Part

    @property
    def chance(self) -> float:
        """Mean average precision of a random order: the share of right answers."""
        return float((self.queries.labels[:, None] == self.indexed.labels).mean())

    def first_queries(self, each: int = 1) -> list[int]:
        labels = self.queries.labels
        return [int(place) for label in np.unique(labels) for place in np.flatnonzero(labels == label)[:each]]

    @classmethod
    def of(cls, dataset: Dataset, features: Floats, division: Division) -> Self:
        """Put a collection's features where its rows belong; a query without anything to find is left out."""
        shown, (indexed,), queries = ground_truth(dataset), division.owners, division.held_out
        findable = np.isin(shown[queries], shown[indexed])
        if not findable.any():
            raise DataError(f"no query of {dataset.name} has anything to find among the indexed pictures.")
        parts = (division.public, indexed, queries[findable])
        return cls(dataset.name, *(Part(features[rows], shown[rows], rows) for rows in parts))


def divide(dataset: Dataset, *, queries: int = 500, public: float = 0.5, random_state: int = 0) -> Division:
    """Divide a collection: a share of it public, then `queries`, and the rest indexed for one owner."""
    persons = dataset.persons if dataset.labels is None else None
    return partition.divide(
        ground_truth(dataset),
        public=public,
        held_out=queries,
        persons=persons,
        stratify=persons is None,
        random_state=random_state,
    )


_SHOWN = 6  # queries
_STRIP = 5  # answers to each of them


@dataclass(frozen=True, eq=False)
class ContestRow:
    """One way to search: the epsilon asked for (None where nothing is hidden), what it found, and what is proven."""

    method: str
    group: str  # who is protected: nobody, every record (local) or the collection (central)
    epsilon: float | None
    ranking: Ranking
    searcher: Searcher
    statement: PrivacyStatement | None

    @property
    def score(self) -> float:
        """Mean average precision over the whole ranking."""
        return self.ranking.mean_average_precision

    @property
    def proven(self) -> float:
        """Epsilon per record as proven; infinite where nothing is."""
        if self.statement is None or self.statement.epsilon is None:
            return math.inf
        return self.statement.epsilon

    @property
    def promise(self) -> str:
        if self.epsilon is None:
            return "-"
        if self.proven == math.inf or self.statement is None:
            return "nothing"
        delta = f", {self.statement.delta:g}" if self.statement.delta else ""
        return f"{self.proven:.2f}{delta}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "protects": self.group,
            "epsilon": self.epsilon,
            "mean_average_precision": self.score,
            "precision_at_10": self.ranking.precision_at_10,
            "statement": None if self.statement is None else self.statement.to_dict(),
        }


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A contest of searches over one collection, with the first answers to some queries."""

    dataset: Dataset
    study: SearchStudy
    rows: Sequence[ContestRow]
    features: str  # what a picture is to the searches, in words
    epsilon: float  # the budget at which answers and statements are shown
    shown: Sequence[int]  # places of the queries that are shown, one of each of the first six classes
    answers: Mapping[str, Rows]  # places (queries shown, 5) among the indexed pictures, by search

    @classmethod
    def of(
        cls, dataset: Dataset, study: SearchStudy, rows: Sequence[ContestRow], features: str, *, epsilon: float
    ) -> Self:
        """Ask by exact features, by open codes and by the private codebook, as far as these took part."""
        shown = study.first_queries()[:_SHOWN]
        titles = {"features": "features", "ITQ": "open codes", "codebook": f"codebook, epsilon {epsilon:g}"}
        found = cls(dataset, study, rows, features, epsilon, shown, {})
        asked = {titles[method]: row for method in titles if (row := found.row(method, epsilon)) is not None}
        queries = study.queries.features[shown]
        return replace(found, answers={title: row.searcher.nearest(queries, _STRIP) for title, row in asked.items()})

    def row(self, method: str, epsilon: float | None = None) -> ContestRow | None:
        found = [row for row in self.rows if row.method == method and row.epsilon in (epsilon, None)]
        return found[0] if found else None


@dataclass(frozen=True)
class Entry:
    """What a method is given: a budget, and the pictures it may learn from."""

    study: SearchStudy
    bits: int
    epsilon: float
    delta: float
    random_state: int

    def itq(self, bits: int) -> ITQ:
        return ITQ(bits, random_state=self.random_state)


Answer = tuple[Searcher, PrivacyStatement | None]


@dataclass(frozen=True)
class Method:
    """A way to search; `labelled` ones learn the classes of public pictures, others run only `if_named`."""

    group: str
    search: Callable[[Entry], Answer]
    labelled: bool = False
    if_named: bool = False


METHODS: dict[str, Method] = {}


def register(name: str, method: Method) -> None:
    """Make a way to search known to `contest`; a name has one meaning."""
    if METHODS.setdefault(name, method) != method:
        raise InputError(f"a way to search called {name!r} is registered already. Choose another name.")


def contest(
    study: SearchStudy,
    *,
    epsilons: Sequence[float],
    delta: float,
    methods: Sequence[str] | None = None,
    bits: int = 48,
    random_state: int = 0,
    progress: Progress = silent,
) -> list[ContestRow]:
    """Search the study's collection by every method, or by those named, at every epsilon.

    `delta` is that of the central mode; the other mechanisms need none. `bits` is cut to the features' dimensions.
    """
    for budget in epsilons:
        check_positive("epsilon", budget)
    if not epsilons or not 0 < delta < 1:
        raise InputError(f"a comparison needs at least one epsilon, and a delta in (0, 1); got {epsilons}, {delta}.")
    unknown = [name for name in methods or () if name not in METHODS]
    if unknown:
        raise UnknownNameError("method of search", unknown[0], METHODS)
    runs = [
        (name, epsilon)
        for name in methods or _suited(study)
        for epsilon in ([None] if METHODS[name].group == "nobody" else epsilons)
    ]
    rows = []
    for done, (name, epsilon) in enumerate(runs):
        progress("comparing searches", done, len(runs))
        entry = Entry(study, min(bits, study.indexed.features.shape[1]), epsilon or 1.0, delta, random_state)
        searcher, statement = METHODS[name].search(entry)
        ranking = searcher.evaluate(study.queries.features, study.queries.labels, study.indexed.labels)
        rows.append(ContestRow(name, METHODS[name].group, epsilon, ranking, searcher, statement))
    progress("comparing searches", len(runs), len(runs))
    return rows


def _suited(study: SearchStudy) -> list[str]:
    """Return all that need not be named; those that learn public labels only if kinds are neither too many nor few."""
    labelled = 2 <= len(np.unique(study.public.labels)) <= len(study.public) // 2
    return [name for name, one in METHODS.items() if not one.if_named and (labelled or not one.labelled)]


def search_codes(entry: Entry, learner: HashLearner, *, labelled: bool = False) -> Answer:
    """Search codes of a function learned from the indexed pictures, or from the public ones and their classes."""
    features, public = entry.study.indexed.features, entry.study.public
    function = (learner.fit(public.features, public.labels) if labelled else learner.fit(features)).function_
    return CodeSearcher(function, function(features)), None


def _local(entry: Entry, *, labelled: bool = False, shipped: bool = False) -> Answer:
    hasher, public = LocalHasher(entry.epsilon, random_state=entry.random_state), entry.study.public
    if shipped:
        codebook, found = shipped_codebook(), public.features.shape[1]
        if found != codebook.dimension:
            raise InputError(f"the shipped codebook is for embedding features, {codebook.dimension}; got {found}.")
        hasher.take(codebook)
    else:
        hasher.fit(public.features, public.labels if labelled else None)
    return SymbolSearcher(hasher, hasher.release(entry.study.indexed.features)), hasher.statement()


def _central(entry: Entry, *, started: bool = False) -> Answer:
    """Central mode; the usual length of public rows is where private ones are clipped."""
    features, public = entry.study.indexed.features, entry.study.public.features
    bits = min(entry.bits, len(public) - 1) if started else entry.bits
    start = entry.itq(bits).fit(public).function_ if started else None
    assert start is None or isinstance(start, LinearHash)
    hasher = CentralHasher(
        entry.epsilon,
        entry.delta,
        clip=float(np.median(np.linalg.norm(public, axis=1))) or 1.0,
        bits=bits,
        start=start,
        start_rows=public if started else None,
        random_state=entry.random_state,
    ).fit(features)
    return CodeSearcher(hasher.function_, hasher.transform(features)), hasher.statement_


for _name, _method in {
    "features": Method("nobody", lambda entry: (FeatureSearcher(entry.study.indexed.features), None)),
    "ITQ": Method("nobody", lambda entry: search_codes(entry, entry.itq(entry.bits))),
    "codebook": Method("local", _local),
    "labelled codebook": Method("local", partial(_local, labelled=True), labelled=True),
    "shipped codebook": Method("local", partial(_local, shipped=True), if_named=True),
    "central": Method("central", _central),
    "central, public start": Method("central", partial(_central, started=True)),
}.items():
    register(_name, _method)
