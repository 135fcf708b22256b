"""Ways to make a sift, side by side: what each costs and leaks under the paper's attackers and under all.

Makers of symbols all aim at the same leak. Public accuracy is compared with the best that a release could have: the
ceiling of the policy, by the labels alone, or the best raw classifier, whichever is lower.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifts import Pair, Released, classes_of, fare_bound, held_out_leak
from benchmarks.pictures import UTKFACE_FILE, People, drawn_numbers, few_of_utkface, utkface, utkface_path
from benchmarks.results import Result, argument_text
from benchmarks.suites.sift_matrix import CONFIDENCE, THRESHOLD, Judge, by_policy, developer_data
from benchmarks.table import Cell, Grid, heads
from blindsight.errors import InputError
from blindsight.sift.attackers import LOOKUP, MODERN, PAPER, best_raw_accuracy
from blindsight.sift.certificate import ROWS_PER_SYMBOL, fewest_rows
from blindsight.sift.labels import verification_halves
from blindsight.sift.policy import public_ceiling_of_many
from blindsight.sift.trial import QUICK
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


def symbol_methods() -> tuple[Method, ...]:
    """Return the makers of symbols."""
    fare = "sifts:fare"
    return (
        Method("more-symbols", "sifts:more_symbols", {"symbols": SYMBOLS}),
        Method("fare-probabilities", fare, {"symbols": SYMBOLS, "inputs": "probabilities"}),
        Method("fare-components", fare, {"symbols": SYMBOLS, "inputs": "components"}),
        Method("exponentiated-gradient", "sifts:exponentiated_gradient"),
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


def symbol_task(settings: Settings) -> Task:
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
                figures["fare_bound"] = fare_bound(symbols, labels[private].astype(np.int64))
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
    columns = heads(
        "public, hidden | maker | symbols | best possible | accuracy | AUC | leak | certified | FARE's bound | "
        f"certified <= {THRESHOLD:g}, loss <= {MOST_LOSS:g}"
    )
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
    kept = heads("maker | symbols | mean loss | mean AUC | mean certified | certified | and within the loss")
    text = "The best possible is the policy's ceiling or the best raw classifier, whichever is lower."
    return [
        Grid("One bit to 32 symbols: means over nine policies", kept, tuple(summary), text),
        Grid("One bit to 32 symbols, policy by policy", columns, tuple(rows)),
    ]


PHOTOGRAPHS = 12_000
TARGETED: tuple[Pair, ...] = (("female", "white"), ("white", "female"), ("under_30", "female"))
POLICIES = (*TARGETED, ("female", "under_30"))
QUICK_POLICIES: tuple[Pair, ...] = (("male", "smiling"),)
BLIND = ("pls", "ppls", "leace", "inlp", "symbols")
"""Who never learns the private label of anybody who is judged."""

DEEP, TOLD = ("adversarial",), ("correlation-remover",)


def tasks(settings: Settings) -> list[Task]:
    """Pose the policies once to those who need no private label, once to the one who is told it."""
    path = None if settings.quick else utkface_path(settings)
    if path is None and not settings.quick:
        raise InputError(f"sift-peers needs a folder with {UTKFACE_FILE} (--data-dir); --quick draws numbers instead.")
    text = (
        "drawn numbers in place of photographs, to see whether everything works"
        if path is None
        else f"{PHOTOGRAPHS:,} faces of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
    )
    people = drawn_numbers if path is None else partial(utkface, path, PHOTOGRAPHS)
    policies = QUICK_POLICIES if settings.quick else POLICIES
    said = f"{text}; 40% make the sifts, 30% teach the attackers, 30% judge."

    def pose(seed: int, *, told: bool) -> Problem:
        return _pose(people(seed), policies, told, settings.quick)

    return [
        Task("utkface", said, partial(pose, told=False), BLIND if settings.quick else BLIND + DEEP),
        Task("utkface-told", "the same, with everybody's private label.", partial(pose, told=True), TOLD),
        symbol_task(settings),
    ]


def _pose(people: People, policies: tuple[Pair, ...], told: bool, quick: bool) -> Problem:
    given = developer_data(people, policies, told=told)
    attackers = (PAPER[0], *QUICK[:2]) if quick else MODERN
    return Problem(given, Judge(people, attackers, attackers, strict=True))


Values = tuple[float, ...]

MOST_PUB_LOSS = 0.03


@dataclass(frozen=True)
class Peer:
    """A maker by method, arguments and, where it answers with several, kind; PubLoss and PrivLoss of the reference."""

    said: str
    method: str
    arguments: str
    kind: str = ""
    reference: tuple[str, str] = ("-", "-")


PEERS = (
    Peer("PLS, K = 5", "pls", "components=5,privacy=0", reference=("-.003", ".248")),
    Peer("PPLS, K = 5, lambda 1", "ppls", "components=5,privacy=1", reference=("-.004", ".162")),
    Peer("PPLS, K = 5, lambda infinity", "ppls", "components=5,privacy=inf", reference=(".004", ".152")),
    Peer("PPLS, K = 1, lambda infinity", "ppls", "components=1,privacy=inf", reference=(".095", ".063")),
    Peer("LEACE and PLS, K = 5", "leace", "components=5", reference=(".004", ".185")),
    Peer("INLP, 15 rounds, and PLS, K = 5", "inlp", "components=5,rounds=15", reference=(".015", ".160")),
    Peer("CorrelationRemover and PLS, K = 5", "correlation-remover", "components=5", reference=("-.002", ".290")),
    Peer("adversarial encoder, K = 5", "adversarial", "components=5", reference=(".017", ".059")),
    Peer("adversarial encoder, K = 1", "adversarial", "components=1", reference=(".007", ".044")),
    Peer("public label, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "label", ("-.018", ".064")),
    Peer("capped symbol, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "capped"),
    Peer("parity symbol, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "parity", ("-.013", ".059")),
)


@dataclass(frozen=True)
class Measured:
    """All runs of one peer: by policy, its figures."""

    runs: tuple[dict[str, dict[str, float]], ...]

    @classmethod
    def of(cls, results: Sequence[Result], peer: Peer) -> "Measured":
        """Keep the runs of this peer and kind."""
        chosen = [r for r in results if r.method == peer.method and argument_text(r.arguments) == peer.arguments]
        return cls(tuple(_of_kind(by_policy(result.score), peer.kind) for result in chosen))

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that were answered."""
        return tuple(dict.fromkeys(policy for run in self.runs for policy in run))

    def means(self, figure: str) -> Values:
        """Return the mean over policies, run by run; nothing where it was not measured."""
        runs = [[figures[figure] for figures in run.values() if figure in figures] for run in self.runs]
        return tuple(statistics.fmean(found) for found in runs if found)

    def by_published(self, figure: str) -> Values:
        """Return the mean by the paper's five; on symbols a table stands for them, as for everybody."""
        return self.means(f"paper/{figure}") or self.means(figure)

    def of_policy(self, policy: str, figure: str) -> Values:
        """Return a figure of one policy, run by run."""
        return tuple(run[policy][figure] for run in self.runs if figure in run.get(policy, {}))

    def passing(self, figure: str) -> str:
        """Return how many policies have at most the threshold, of how many that were answered, on average."""
        if not self.runs:
            return "-"
        passed = statistics.fmean(sum(f[figure] <= THRESHOLD for f in run.values()) for run in self.runs)
        return f"{passed:g} of {statistics.fmean(map(len, self.runs)):g}"


def _of_kind(found: dict[str, dict[str, float]], kind: str) -> dict[str, dict[str, float]]:
    pairs = ((name.partition(":"), figures) for name, figures in found.items())
    return {policy: figures for (policy, _, sort), figures in pairs if sort == kind}


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return the targets, the means over policies, and every policy by itself."""
    measured = {peer: Measured.of(results, peer) for peer in PEERS}
    policies = dict.fromkeys(policy for found in measured.values() for policy in found.policies)
    return [_targets(measured), _means(measured), *(_one(measured, policy) for policy in policies)]


def _targets(measured: dict[Peer, Measured]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for policy in map("/".join, TARGETED):
        for peer, found in measured.items():
            cost, strict, bound = (found.of_policy(policy, f) for f in ("pub_loss", "strict_pub_loss", "certified"))
            if bound:
                rows.append((policy, peer.said, cost, strict, bound, _reached(cost, strict, bound)))
    columns = ("public/private", "certified sift", "PubLoss", "strict PubLoss", "certified PrivLoss", "target")
    title = f"Targets: PubLoss <= {MOST_PUB_LOSS:g} at certified PrivLoss <= {THRESHOLD:g} (95%)"
    return Grid(title, columns, tuple(rows))


def _reached(cost: Values, strict: Values, bound: Values) -> str:
    """Judge the worst run, with the stricter of the two losses."""
    within = max(bound) <= THRESHOLD
    if within and max(strict) <= MOST_PUB_LOSS:
        return "reached"
    return "reached, but for the strict PubLoss" if within and max(cost) <= MOST_PUB_LOSS else "missed"


def _means(measured: dict[Peer, Measured]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for peer, found in measured.items():
        costs = (found.by_published("pub_loss"), found.means("pub_loss"), found.means("strict_pub_loss"))
        leaks = (found.by_published("priv_loss"), found.means("priv_loss"), found.means("certified"))
        passes = (found.passing("priv_loss"), found.passing("bound"))
        rows.append((peer.said, peer.reference[0], *costs, peer.reference[1], *leaks, *passes))
    columns = heads(
        "sift | PubLoss, reference | PubLoss, paper's five | PubLoss, all | strict PubLoss, all | "
        "PrivLoss, reference | PrivLoss, paper's five | PrivLoss, all | certified | pass | accepted"
    )
    return Grid("Means over the policies", columns, tuple(rows))


def _one(measured: dict[Peer, Measured], policy: str) -> Grid:
    figures = ("pub_loss", "strict_pub_loss", "priv_loss", "bound")
    rows: list[tuple[Cell, ...]] = [
        (peer.said, *(found.of_policy(policy, figure) for figure in figures))
        for peer, found in measured.items()
        if policy in found.policies
    ]
    columns = ("sift", "PubLoss", "strict PubLoss", "PrivLoss, all", "upper limit")
    return Grid(f"Public {policy.replace('/', ', private ')}", columns, tuple(rows))


BENCHMARK = Benchmark(
    name="sift-peers",
    title="Sifts and their peers: PubLoss at PrivLoss <= .10",
    tasks=tasks,
    methods=(
        Method("pls", "sifts:ppls", {"components": 5, "privacy": 0}),
        Method("ppls", "sifts:ppls", {"components": 5, "privacy": 1}),
        Method("ppls", "sifts:ppls", {"components": 5, "privacy": "inf"}),
        Method("ppls", "sifts:ppls", {"components": 1, "privacy": "inf"}),
        Method("leace", "sifts:leace", {"components": 5}),
        Method("inlp", "sifts:inlp", {"rounds": 15, "components": 5}),
        Method("correlation-remover", "sifts:correlation_remover", {"components": 5}),
        Method("adversarial", "sifts:adversarial", {"components": 5}),
        Method("adversarial", "sifts:adversarial", {"components": 1}),
        Method("symbols", "sifts:symbols", {"kinds": "label capped parity"}),
        *symbol_methods(),
    ),
    sections=lambda results: sections(results) + grids(results),
    notes=(
        "Makers of symbols all aim at the leak that should be certified within .10 on the judged rows. Two private "
        "attributes are hidden jointly: every question about both. FARE's kind: a tree grown by Gini impurities of "
        "both attributes (Jovanovic et al., ICML 2023), written anew, gamma chosen on a quarter of the rows. "
        "Its bound is of the paper's kind (Clopper-Pearson for all cells, Hoeffding), for one private attribute.",
        "PubLoss by the best of all classifiers asked, from the best raw classifier, which learns from the same 30% of "
        "people; the strict one is measured from a raw classifier that learns from 70%, the developer's people "
        "included. PrivLoss by the best attacker: of the paper's five, or of all 13 of the verifier.",
        "Symbols are read by a table, which no attacker can beat; their certificate is counted on 60% of the people.",
        "Passes: the estimate is at most .10. Accepted: the upper limit (95%) is, of the best attacker asked or, where "
        "there is a certificate, of every attacker there can be.",
        "Reference: an earlier measurement by other code with nine attackers and four policies, not all of them these.",
        "CorrelationRemover cannot be applied without the private label of the person, which an app's platform lacks.",
        "INLP is Ravfogel et al.'s with 15 logistic regressions. PLS follows LEACE, INLP and CorrelationRemover, which "
        "by themselves release all dimensions.",
        "The adversarial encoder has the library's default weight of privacy, 1.",
        "The label is the public attribute as well as the features tell it; capped, the best bit that should be "
        "certified within .10; parity, as frequent with the private attribute as without.",
        "Policies are few and share people and attributes: differences of a point or two between means say little.",
    ),
    runs=1,
)
