"""Comparison of all ways to search one collection: how much they find, what they claim, and what is proven.

`METHODS` are in four groups. *Nothing hidden*: features, and codes by learners without or with public classes (networks
only if named). *The paper*: PHashing and PITQ as published, whose epsilon is far from that of a record. *A record is
protected wherever its code goes* (local): flipped bits, the Hamming ball, and symbols of a codebook, all made by
functions learned from public pictures (or shipped, if named: for embedding features). *The collection is protected, its
codes stay at home* (central): only a differentially private hash function is shown, learned from the private pictures,
or from a public start.

`SearchStudy` divides a collection into public pictures, private ones that are indexed, and queries, which look for
pictures of their class or, in a collection without classes, of their person. No picture is in two parts, and nobody on
a public picture is on a private one, unless persons are only another name for classes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

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
from blindsight.search.evaluation import CodeSearcher, FeatureSearcher, Ranking, Searcher, SymbolSearcher
from blindsight.search.flipping import HammingBall, flip, paper_beta, record_beta, record_loss
from blindsight.search.function import Floats, HashLearner, LinearHash
from blindsight.search.hashers import ITQ, KSH, LSH, SDH, SH
from blindsight.search.localmode import LocalHasher
from blindsight.search.published import PITQ, PHashing
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
        shown, (indexed,), queries = sought(dataset), division.owners, division.held_out
        findable = np.isin(shown[queries], shown[indexed])
        if not findable.any():
            raise DataError(f"no query of {dataset.name} has anything to find among the indexed pictures.")
        parts = (division.public, indexed, queries[findable])
        return cls(dataset.name, *(Part(features[rows], shown[rows], rows) for rows in parts))


def sought(dataset: Dataset) -> Rows:
    """Return what two pictures must have in common to be a right answer: their class or, without classes, person."""
    if dataset.labels is not None:
        return dataset.labels
    if dataset.persons is not None:
        return dataset.persons
    raise DataError(f"{dataset.name} has neither classes nor persons, so no answer can be told right from wrong.")


def divide(dataset: Dataset, *, queries: int = 500, public: float = 0.5, random_state: int = 0) -> Division:
    """Divide a collection: a share of it public, then `queries`, and the rest indexed for one owner."""
    persons = dataset.persons if dataset.labels is None else None
    return partition.divide(
        sought(dataset),
        public=public,
        held_out=queries,
        persons=persons,
        stratify=persons is None,
        random_state=random_state,
    )


Group = Literal["nobody", "the paper", "local", "central"]

_NETWORKS = ("DPSH", "DSH", "HashNet", "ADSH")
_IF_NAMED = (*_NETWORKS, "shipped codebook")
_LABELLED = ("KSH", "SDH", "labelled codebook")
_SHOWN = 6  # queries
_STRIP = 5  # answers to each of them


@dataclass(frozen=True, eq=False)
class ContestRow:
    """One way to search: the epsilon asked for (None where nothing is hidden), what it found, and what is proven."""

    method: str
    group: Group
    epsilon: float | None
    ranking: Ranking
    searcher: Searcher
    statement: PrivacyStatement | None

    @property
    def score(self) -> float:
        """Mean average precision over the whole ranking."""
        return self.ranking.mean_average_precision

    @property
    def at_best(self) -> float | None:
        """What a record would lose by the paper's flips if at least the hash function were public; None elsewhere."""
        if self.method != "PHashing (ITQ)" or self.epsilon is None or not isinstance(self.searcher, CodeSearcher):
            return None
        return record_loss(paper_beta(self.epsilon), self.searcher.function.bits)

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
class _Entry:
    study: SearchStudy
    bits: int
    epsilon: float
    delta: float
    random_state: int


Answer = tuple[Searcher, PrivacyStatement | None]
Method = Callable[[_Entry], Answer]


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
        for epsilon in ([None] if METHODS[name][0] == "nobody" else epsilons)
    ]
    rows = []
    for done, (name, epsilon) in enumerate(runs):
        progress("comparing searches", done, len(runs))
        entry = _Entry(study, min(bits, study.indexed.features.shape[1]), epsilon or 1.0, delta, random_state)
        group, method = METHODS[name]
        searcher, statement = method(entry)
        ranking = searcher.evaluate(study.queries.features, study.queries.labels, study.indexed.labels)
        rows.append(ContestRow(name, group, epsilon, ranking, searcher, statement))
    progress("comparing searches", len(runs), len(runs))
    return rows


def _suited(study: SearchStudy) -> list[str]:
    """Return all that need not be named; those that learn public labels only if kinds are neither too many nor few."""
    labelled = 2 <= len(np.unique(study.public.labels)) <= len(study.public) // 2
    return [name for name in METHODS if name not in _IF_NAMED and (labelled or name not in _LABELLED)]


def _codes(entry: _Entry, learner: Callable[..., HashLearner], *, labelled: bool = False) -> Answer:
    """Search codes of a function learned from the indexed pictures, or from the public ones and their classes."""
    features, public = entry.study.indexed.features, entry.study.public
    chosen = {} if learner is SH else {"random_state": entry.random_state}
    learned = learner(entry.bits, **chosen)
    function = (learned.fit(public.features, public.labels) if labelled else learned.fit(features)).function_
    return CodeSearcher(function, function(features)), None


def _deep(entry: _Entry, name: str) -> Answer:
    from blindsight.search import deep  # with the extra `deep`

    return _codes(entry, getattr(deep, name), labelled=True)


def _published(entry: _Entry, hasher: PHashing | PITQ) -> Answer:
    hasher.fit(entry.study.indexed.features)
    return CodeSearcher(hasher.function_, hasher.codes_), hasher.statement_


def _noisy(entry: _Entry, *, ball: bool) -> Answer:
    """Codes of so few bits that something survives: about epsilon in a Hamming ball, half as many of flipped ones."""
    bits = max(1 + ball, min(entry.bits, round(entry.epsilon / (1 if ball else 2))))
    function = _itq(entry, bits).fit(entry.study.public.features).function_
    codes = function(entry.study.indexed.features)
    if ball:
        mechanism = HammingBall(bits, entry.epsilon)
        return CodeSearcher(function, mechanism.release(codes)), _record_statement(str(mechanism), mechanism.loss)
    what = f"randomised response on each of {bits} bits, epsilon / {bits} each"
    flipped = flip(codes, bits, record_beta(entry.epsilon, bits))
    return CodeSearcher(function, flipped), _record_statement(what, entry.epsilon)


def _local(entry: _Entry, *, labelled: bool = False, shipped: bool = False) -> Answer:
    hasher, public = LocalHasher(entry.epsilon, random_state=entry.random_state), entry.study.public
    if shipped:
        codebook, found = shipped_codebook(), public.features.shape[1]
        if found != codebook.dimension:
            raise InputError(f"the shipped codebook is for embedding features, {codebook.dimension}; got {found}.")
        hasher.take(codebook)
    else:
        hasher.fit(public.features, public.labels if labelled else None)
    return SymbolSearcher(hasher, hasher.release(entry.study.indexed.features)), hasher.statement()


def _central(entry: _Entry, *, started: bool = False) -> Answer:
    """Central mode; the usual length of public rows is where private ones are clipped."""
    features, public = entry.study.indexed.features, entry.study.public.features
    bits = min(entry.bits, len(public) - 1) if started else entry.bits
    start = _itq(entry, bits).fit(public).function_ if started else None
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


def _record_statement(mechanism: str, epsilon: float) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=mechanism,
        unit="record",
        epsilon=epsilon,
        delta=0.0,
        randomness="operating system",
        neighbours="replace",
        accountant="exact",
        who_sees={"holder of the index": "the released codes and the public hash function", "owner": "its pictures"},
        assumptions=("the hash function was learned from public pictures", "each record is released once"),
        not_protected=("that a record is in the index", "people with many pictures: their losses add up"),
    )


def _itq(entry: _Entry, bits: int) -> ITQ:
    return ITQ(bits, random_state=entry.random_state)


METHODS: dict[str, tuple[Group, Method]] = {
    "features": ("nobody", lambda entry: (FeatureSearcher(entry.study.indexed.features), None)),
    **{kind.__name__: ("nobody", partial(_codes, learner=kind)) for kind in (ITQ, LSH, SH)},
    **{kind.__name__: ("nobody", partial(_codes, learner=kind, labelled=True)) for kind in (KSH, SDH)},
    **{name: ("nobody", partial(_deep, name=name)) for name in _NETWORKS},
    "PHashing (ITQ)": (
        "the paper",
        lambda entry: _published(entry, PHashing(_itq(entry, entry.bits), entry.epsilon, force=True)),
    ),
    "PITQ": (
        "the paper",
        lambda entry: _published(entry, PITQ(entry.bits, entry.epsilon, random_state=entry.random_state)),
    ),
    "flipped bits": ("local", partial(_noisy, ball=False)),
    "Hamming ball": ("local", partial(_noisy, ball=True)),
    "codebook": ("local", _local),
    "labelled codebook": ("local", partial(_local, labelled=True)),
    "shipped codebook": ("local", partial(_local, shipped=True)),
    "central": ("central", _central),
    "central, public start": ("central", partial(_central, started=True)),
}
