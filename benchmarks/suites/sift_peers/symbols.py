"""Releases of one bit to 32 symbols under a cap, jointly too: what each certifies and what is left for the app.

Every maker aims at the same leak. Public accuracy is compared with the best that a release could have: the ceiling of
the policy, by the labels alone, or the best raw classifier, whichever is lower.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.harness import Method, Problem, Settings, Task
from benchmarks.methods import sift_fare
from benchmarks.methods.sifting import Pair, Released, classes_of, held_out_leak
from benchmarks.results import Result, argument_text
from benchmarks.suites.sift_matrix.cases import developer_data
from benchmarks.suites.sift_matrix.pictures import UTKFACE_FILE, People, drawn_numbers, few_of_utkface, utkface_path
from benchmarks.suites.sift_matrix.scores import CONFIDENCE, THRESHOLD, by_policy
from benchmarks.table import Cell, Grid
from blindsight.sift.attackers import LOOKUP
from blindsight.sift.certificate import ROWS_PER_SYMBOL, fewest_rows
from blindsight.sift.labels import verification_halves
from blindsight.sift.policy import public_ceiling_of_many
from blindsight.sift.publicclassifier import best_raw_accuracy
from blindsight.sift.verify import Verifier

FEW_PHOTOGRAPHS = 6_000
SYMBOLS, QUICK_SYMBOLS = "2 4 8 16 32", "2 4"
MOST_LOSS = 0.03
NAMES, QUICK_NAMES = ("female", "white", "under_30"), ("male", "smiling", "outdoors")
MAKERS = {
    "more-symbols": "capped symbols (ours)",
    "fare-probabilities": "tree of FARE's kind on probabilities",
    "fare-components": "tree of FARE's kind on 64 components",
    "exponentiated-gradient": "fairlearn ExponentiatedGradient, 1 bit",
}


def methods() -> tuple[Method, ...]:
    """Return the makers of symbols."""
    fare = "benchmarks.methods.sift_fare:run"
    return (
        Method("more-symbols", "benchmarks.methods.sift_learners:more_symbols", {"symbols": SYMBOLS}),
        Method("fare-probabilities", fare, {"symbols": SYMBOLS, "inputs": "probabilities"}),
        Method("fare-components", fare, {"symbols": SYMBOLS, "inputs": "components"}),
        Method("exponentiated-gradient", "benchmarks.methods.sift_exponentiated_gradient:run"),
    )


def policies(names: Sequence[str]) -> tuple[Pair, ...]:
    """Return every attribute as public, and the others private: each by itself, and any two jointly.

    >>> policies(("a", "b", "c"))[:3]
    (('a', 'b'), ('a', 'c'), ('a', 'b+c'))
    """
    found: list[Pair] = []
    for public in names:
        others = [name for name in names if name != public]
        found += [(public, private) for private in [*others, *("+".join(pair) for pair in combinations(others, 2))]]
    return tuple(found)


def task(settings: Settings) -> Task:
    """Pose all policies to the makers of symbols."""
    path = None if settings.quick else utkface_path(settings)
    people = drawn_numbers if path is None else partial(few_of_utkface, path, FEW_PHOTOGRAPHS)
    asked = policies(QUICK_NAMES if path is None else NAMES)
    text = "drawn numbers" if path is None else f"{FEW_PHOTOGRAPHS:,} faces of UTKFace ({UTKFACE_FILE}), as above"

    def pose(seed: int) -> Problem:
        found = people(seed)
        return Problem(developer_data(found, asked), SymbolJudge(found))

    return Task("utkface-symbols", f"{text}; 40% make the sifts, 60% certify them.", pose, tuple(MAKERS))


@dataclass(eq=False)
class SymbolJudge:
    """Counts symbols on the judged people: certificates, and what a table of symbols tells of the public attribute."""

    people: People
    _best: dict[str, float] = field(default_factory=dict)

    def __call__(self, answer: Released) -> dict[str, float]:
        """Return the figures of every answer, "policy/figure"."""
        first = self.people.developers
        labels = {name: column[first:] for name, column in self.people.labels.items()}
        scores: dict[str, float] = {}
        for name, released in answer.items():
            public, private = name.partition(":")[0].split("/")
            hidden = {one: labels[one] for one in private.split("+")}
            symbols = np.asarray(released, dtype=np.int64)
            bound, exposed = _certified(symbols, hidden)
            ceiling = public_ceiling_of_many(labels[public], np.stack(list(hidden.values()), axis=1), THRESHOLD)
            accuracy, area = told(symbols, labels[public])
            figures = {
                "accuracy": accuracy,
                "auc": area,
                "best": min(ceiling, self._raw(public)),
                "ceiling": ceiling,
                "leak": held_out_leak(symbols, classes_of(hidden, private)),
                "certified": bound,
                "exposed": exposed,
                "symbols": float(len(np.unique(symbols))),
            }
            if len(hidden) == 1:
                figures["fare_bound"] = sift_fare.bound(symbols, labels[private].astype(np.int64))
            scores |= {f"{name}/{figure}": value for figure, value in figures.items()}
        return scores

    def _raw(self, name: str) -> float:
        """Return the best balanced accuracy from raw features of a classifier that learned from the developer's."""
        if name not in self._best:
            first, X, y = self.people.developers, self.people.features, self.people.labels[name]
            self._best[name] = best_raw_accuracy(X[:first], y[:first], X[first:], y[first:]).accuracy
        return self._best[name]


def _certified(symbols: NDArray[np.int64], hidden: dict[str, NDArray[np.int8]]) -> tuple[float, float]:
    """Return the bound on everything hidden and the share of exposed people; nothing where symbols are too many."""
    if fewest_rows(hidden) < ROWS_PER_SYMBOL * len(np.unique(symbols)):
        return 0.5, 1.0
    found = Verifier((LOOKUP,), THRESHOLD, CONFIDENCE).verify(symbols[:, None], hidden, certified=True)
    return found.bound, found.exposed


def told(symbols: NDArray[np.int64], public: NDArray[np.int8]) -> tuple[float, float]:
    """Return balanced accuracy and area under the curve of a table learned from one half, on the other."""
    learn, judge = verification_halves({"public": public}, None, 0)
    counts = [np.bincount(symbols[learn][public[learn] == c], minlength=int(symbols.max()) + 1) for c in (0, 1)]
    no, yes = (np.maximum(one, 0.5) / one.sum() for one in counts)
    score, truth = (yes / no)[symbols[judge]], public[judge]
    recalls = [np.mean((score[truth == c] > 1) == c) for c in (0, 1)]
    return float(np.mean(recalls)), float(roc_auc_score(truth, score))


def grids(results: Sequence[Result]) -> list[Grid]:
    """Return certified public accuracy beside the best possible, policy by policy, and means by number of symbols."""
    runs = {
        (r.method, argument_text(r.arguments)): by_policy(r.score) for r in results if r.dataset == "utkface-symbols"
    }
    rows: list[tuple[Cell, ...]] = []
    means: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (method, _), answers in runs.items():
        for name, figures in answers.items():
            policy, _, count = name.partition(":")
            means.setdefault((method, count), []).append(figures)
            within = figures["best"] - figures["accuracy"] <= MOST_LOSS and figures["certified"] <= THRESHOLD
            shown = [(figures[one],) for one in ("best", "accuracy", "auc", "leak", "certified")]
            fare: Cell = (figures["fare_bound"],) if "fare_bound" in figures else "-"
            said = policy.replace("/", ", hidden ")
            rows.append((said, MAKERS[method], count, *shown, fare, "reached" if within else "missed"))
    rows.sort(key=lambda row: (str(row[0]), list(MAKERS.values()).index(str(row[1])), int(str(row[2]))))
    columns: tuple[str, ...] = (
        "public, hidden",
        "maker",
        "symbols",
        "best possible",
        "accuracy",
        "AUC",
        "leak",
        "certified",
    )
    columns += ("FARE's bound", f"certified <= {THRESHOLD:g}, loss <= {MOST_LOSS:g}")
    summary: list[tuple[Cell, ...]] = []
    for (method, count), found in sorted(
        means.items(), key=lambda one: (list(MAKERS).index(one[0][0]), int(one[0][1]))
    ):
        good = [one for one in found if one["certified"] <= THRESHOLD]
        near = sum(one["best"] - one["accuracy"] <= MOST_LOSS for one in good)
        loss, area = fmean(one["best"] - one["accuracy"] for one in found), fmean(one["auc"] for one in found)
        bound = fmean(one["certified"] for one in found)
        counts = (f"{len(good)} of {len(found)}", f"{near} of {len(found)}")
        summary.append((MAKERS[method], count, (loss,), (area,), (bound,), *counts))
    heads = ("maker", "symbols", "mean loss", "mean AUC", "mean certified", "certified", "and within the loss")
    text = "The best possible is the policy's ceiling or the best raw classifier, whichever is lower."
    return [
        Grid("One bit to 32 symbols: means over nine policies", heads, tuple(summary), text),
        Grid("One bit to 32 symbols, policy by policy", columns, tuple(rows)),
    ]
