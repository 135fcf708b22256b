"""Searches by codes and symbols: what they are given, and what they answer, as raw as it comes.

What is released of a private record is drawn from the operating system's randomness. Hash functions, codebooks and
classifiers are learned from public rows, except where a method is said to learn from the private ones.
"""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from blindsight.papers.hashing.deep import ADSH, DPSH, DSH, HashNet
from blindsight.papers.hashing.flipping import HammingBall, flip, paper_beta, record_beta
from blindsight.papers.hashing.learners import KSH, LSH, SDH, SH
from blindsight.papers.hashing.published import PITQ
from blindsight.search.central import CentralHasher
from blindsight.search.channels import best_design
from blindsight.search.codebook import Codebook, shipped_codebook
from blindsight.search.codes import pack
from blindsight.search.function import HashLearner, LinearHash
from blindsight.search.itq import ITQ
from blindsight.search.localmode import KEPT_APART, LocalHasher
from blindsight.search.symbols import KaryResponse

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

Ranked = dict[str, NDArray[Any]]
"""Either codes of `queries` and `items`, or one of k `symbols` per item and the queries' `scores` of them, (q, k).

`chosen` may tell how many cells and symbols the method decided on.
"""

CLAIMED_EPSILONS = (1, 2, 4)
"""Those of PHashing in the paper's Table 1."""

RECORD_EPSILONS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Searchable:
    """Rows to learn from, rows to search and rows that ask; and, where labels help, a few rows with labels."""

    train: Floats
    database: Floats
    queries: Floats
    labelled: tuple[Floats, Labels] | None = None


@dataclass(frozen=True)
class PrivateCollection:
    """Public rows with their labels, private rows to be found, and rows that ask, all of unit length.

    `lengths` are those that private rows and queries had.
    """

    public: Floats
    labels: Labels
    private: Floats
    queries: Floats
    lengths: tuple[Floats, Floats]


def by_codes(queries: NDArray[np.uint8], items: NDArray[np.uint8]) -> Ranked:
    """Answer with packed codes: the nearest item comes first."""
    return {"queries": queries, "items": items}


def by_symbols(scores: NDArray[Any], symbols: NDArray[np.int64]) -> Ranked:
    """Answer with one symbol per item: that with the highest score comes first."""
    return {"scores": scores, "symbols": symbols}


def blindsight(given: Searchable, *, seed: int, bits: int) -> dict[str, Ranked]:
    """Learn by our ITQ with its defaults: 50 iterations over all rows."""
    function = ITQ(bits, random_state=seed).fit(given.train).function_
    return {"codes": by_codes(function(given.queries), function(given.database))}


def by_faiss(given: Searchable, *, seed: int, bits: int) -> dict[str, Ranked]:
    """Learn by faiss's ITQTransform with its defaults: 50 iterations over a sample of the rows; the seed is its own."""
    transform = faiss.ITQTransform(given.train.shape[1], bits, True)
    transform.train(given.train)

    def codes(rows: Floats) -> NDArray[np.uint8]:
        return pack(transform.apply(rows) >= 0)

    return {"codes": by_codes(codes(given.queries), codes(given.database))}


LEARNERS: dict[str, type[HashLearner]] = {
    learner.__name__: learner for learner in (LSH, ITQ, SH, KSH, SDH, DPSH, DSH, HashNet, ADSH)
}


def _learner(name: str, bits: int, seed: int) -> HashLearner:
    kind: Any = LEARNERS[name]
    learner: HashLearner = kind(bits) if kind is SH else kind(bits, random_state=seed)
    return learner


def phashing(given: Searchable, *, seed: int, learner: str, bits: int) -> dict[str, Ranked]:
    """Learn from what the learner can use; answer without flips ("inf") and for every epsilon."""
    hasher = _learner(learner, bits, seed)
    known = given.labelled if hasher.supervised and given.labelled else (given.train,)
    function = hasher.fit(*known).function_
    queries, codes = function(given.queries), function(given.database)
    flipped = {str(epsilon): flip(codes, bits, paper_beta(epsilon)) for epsilon in CLAIMED_EPSILONS}
    return {epsilon: by_codes(queries, items) for epsilon, items in {"inf": codes, **flipped}.items()}


def pitq(given: Searchable, *, seed: int, bits: int, epsilon: float, step: Any) -> dict[str, Ranked]:
    """Answer by PITQ (Algorithm 3) with the paper's rotation or with the right one."""
    hasher = PITQ(bits, epsilon, step=step, random_state=seed).fit(given.database)
    return {f"{epsilon:g}": by_codes(hasher.transform(given.queries), hasher.codes_)}


_SYMBOLS = {1: 3, 2: 6, 4: 10, 8: 32}


def hidden_nowhere(given: PrivateCollection, *, seed: int, learner: str, bits: int) -> dict[str, Ranked]:
    """Search by codes without noise, learned from the private rows themselves."""
    hasher = _learner(learner, bits, seed).fit(given.private)
    return {"none": by_codes(hasher.transform(given.queries), hasher.transform(given.private))}


def published(given: PrivateCollection, *, seed: int, bits: int) -> dict[str, Ranked]:
    """Search as in the paper: PHashing around ITQ, and PITQ, both learned from the private rows."""
    function = ITQ(bits, random_state=seed).fit(given.private).function_
    queries, codes = function(given.queries), function(given.private)
    found = {f"phashing/{e}": by_codes(queries, flip(codes, bits, paper_beta(e))) for e in RECORD_EPSILONS}
    for epsilon in RECORD_EPSILONS:
        pitq = PITQ(bits, epsilon, random_state=seed).fit(given.private)
        found[f"pitq/{epsilon}"] = by_codes(pitq.transform(given.queries), pitq.codes_)
    return found


def noisy_bits(given: PrivateCollection, *, seed: int, bits: int) -> dict[str, Ranked]:
    """Release ITQ's codes by randomised response on every bit, and by the Hamming ball."""
    function = ITQ(bits, random_state=seed).fit(given.public).function_
    queries, codes = function(given.queries), function(given.private)
    found = {f"response/{e}": by_codes(queries, flip(codes, bits, record_beta(e, bits))) for e in RECORD_EPSILONS}
    balls = {f"ball/{e}": by_codes(queries, HammingBall(bits, e).release(codes)) for e in RECORD_EPSILONS}
    return found | balls


def plain_codebook(given: PrivateCollection, *, seed: int) -> dict[str, Ranked]:
    """Release the nearest of k centroids by k-ary response; rank by the query's distance from the released one."""
    found = {}
    for epsilon, k in _SYMBOLS.items():
        clusters = KMeans(k, n_init=1, random_state=seed).fit(given.public)
        symbols = KaryResponse(k, epsilon).release(clusters.predict(given.private).astype(np.int64))
        found[f"codebook/{epsilon}"] = by_symbols(-clusters.transform(given.queries), symbols)
    return found


def plain_labels(given: PrivateCollection, *, seed: int) -> dict[str, Ranked]:
    """Release a classifier's answer by k-ary response; rank by how likely the query is of the released class."""
    classifier = LogisticRegression(C=10.0, max_iter=1000).fit(given.public, given.labels)
    scores = classifier.predict_proba(given.queries)
    answers = classifier.predict_proba(given.private).argmax(axis=1)
    k = scores.shape[1]
    return {f"labels/{e}": by_symbols(scores, KaryResponse(k, e).release(answers)) for e in RECORD_EPSILONS}


def local(given: PrivateCollection, *, seed: int, labelled: bool) -> dict[str, Ranked]:
    """Search by the library's local mode with its defaults, without or with the labels of the public rows.

    The codebook is the same for every epsilon and takes nearly all of the time: it is learned once.
    """
    hasher = LocalHasher(RECORD_EPSILONS[0], random_state=seed)
    codebook = hasher.fit(given.public, given.labels if labelled else None).codebook_
    name = "local-labels" if labelled else "local"
    return _by_cells(name, codebook, given.private, given.queries, KEPT_APART if labelled else 1.0)


def shipped(given: PrivateCollection, *, seed: int) -> dict[str, Ranked]:
    """Search by the library's local mode with the codebook that it ships, which takes features of any length."""
    private, queries = given.lengths
    rows = given.private * private[:, None], given.queries * queries[:, None]
    return _by_cells("shipped", shipped_codebook(), *rows, 1.0)


def _by_cells(name: str, codebook: Codebook, private: Floats, queries: Floats, nearly: float) -> dict[str, Ranked]:
    cells, relevance = codebook.cells_of(private), codebook.relevance_of(queries)
    found = {}
    for epsilon in RECORD_EPSILONS:
        design = best_design(codebook.prior, codebook.relevance, epsilon, nearly=nearly)
        scores = relevance @ design.posterior(codebook.prior).T
        answer = by_symbols(scores, design.release(design.symbol_of_cell[cells]))
        found[f"{name}/{epsilon}"] = answer | {"chosen": np.array([codebook.cells, design.mechanism.k])}
    return found


def central(given: PrivateCollection, *, seed: int, epsilon: float, delta: float, bits: int) -> dict[str, Ranked]:
    """Search by the library's central mode: a private function, learned from the private rows, codes without noise."""
    hasher = CentralHasher(epsilon, delta, clip=1.0, bits=bits, random_state=seed).fit(given.private)
    found = by_codes(hasher.transform(given.queries), hasher.transform(given.private))
    return {f"central/{epsilon:g}": found}


def central_start(given: PrivateCollection, *, seed: int, delta: float, bits: int) -> dict[str, Ranked]:
    """Search by the central mode from a public ITQ, and by that ITQ as it is."""
    start = ITQ(bits, random_state=seed).fit(given.public).function_
    assert isinstance(start, LinearHash)
    found = {}
    for epsilon in RECORD_EPSILONS:
        hasher = CentralHasher(epsilon, delta, 1.0, bits, start=start, start_rows=given.public).fit(given.private)
        found[f"central-start/{epsilon}"] = by_codes(hasher.transform(given.queries), hasher.transform(given.private))
        found[f"public-itq/{epsilon}"] = by_codes(start(given.queries), start(given.private))
    return found
