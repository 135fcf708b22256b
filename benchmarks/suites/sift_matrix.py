"""All policies of one public and one private attribute (SensorSift, Figure 4): what sifts cost, leak, and why.

Numbers are attacked; symbols are counted. Against a finite alphabet a table of symbols is the best attacker there is,
so nobody else is asked, and `certificate` bounds all others.
"""

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifts import Pair, Released, SiftingData
from benchmarks.pictures import (
    COMPONENTS,
    FACE_ATTRIBUTES,
    FACES,
    QUICK_ATTRIBUTES,
    UTKFACE_ATTRIBUTES,
    UTKFACE_FILE,
    People,
    drawn_faces,
    drawn_numbers,
    utkface,
    utkface_path,
)
from benchmarks.results import Result
from benchmarks.table import Cell, Grid, Row, Section
from blindsight.errors import InputError
from blindsight.metrics import pub_loss
from blindsight.sift.analysis import LossRegression, entanglement, regress
from blindsight.sift.attackers import LOOKUP, MODERN, PAPER, RAW_CLASSIFIERS, Attacker, best_raw_accuracy
from blindsight.sift.labels import verification_halves
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import AttackResult, Verification
from blindsight.sift.verify import Verifier

THRESHOLD, CONFIDENCE = 0.10, 0.95
_PUBLISHED = {attacker.name for attacker in PAPER}


@dataclass(eq=False)
class Judge:
    """Attackers of private attributes and readers of public ones, on the judged people.

    PubLoss is measured from the best raw classifier, which like the readers learns from half of them. A `strict` judge
    also measures it from one that learns from everybody but the people it is tested on, the developer's included.
    """

    people: People
    attackers: Sequence[Attacker]
    readers: Sequence[Attacker]
    strict: bool = False
    entangled: bool = False
    """Whether to add correlation and overlap of the attributes."""
    _raw: dict[str, dict[str, float]] = field(default_factory=dict)

    def __call__(self, answer: Released) -> dict[str, float]:
        """Return the figures of every answer, "policy/figure"; policies without an answer have none."""
        scores: dict[str, float] = {}
        for name, released in answer.items():
            public, private = name.partition(":")[0].split("/")
            if len(released) != len(self._judged):
                raise InputError(f"{name}: {len(self._judged)} people are judged; got {len(released)} rows.")
            figures = self._costs(public, released) | self._leaks(private, released)
            scores |= {f"{name}/{figure}": value for figure, value in figures.items()}
        return scores | (self._entanglement() if self.entangled else {})

    @property
    def _judged(self) -> NDArray[np.float32]:
        return self.people.features[self.people.developers :]

    def _labels(self, name: str) -> NDArray[np.int8]:
        return self.people.labels[name][self.people.developers :]

    def _leaks(self, private: str, released: NDArray[np.generic]) -> dict[str, float]:
        found = self._read(private, released, self.attackers)
        figures = {"priv_loss": found.priv_loss, "bound": found.bound, **_paper_leaks(found.results)}
        return figures | ({"certified": found.bound} if found.certified else {})

    def _costs(self, public: str, released: NDArray[np.generic]) -> dict[str, float]:
        found, raw = self._read(public, released, self.readers), self.raw(public)
        figures = {"pub_loss": pub_loss(raw["balanced"], found.best.balanced_accuracy)}
        if "strict" in raw:
            figures["strict_pub_loss"] = pub_loss(raw["strict"], found.best.balanced_accuracy)
        published = [result for result in found.results if result.attacker in _PUBLISHED]
        if published:
            figures["paper/pub_loss"] = raw["balanced"] - max(r.balanced_accuracy for r in published)
            figures["paper/pub_loss_eq5"] = raw["eq5"] - max(r.mean_precision for r in published)
        return figures

    def raw(self, name: str) -> dict[str, float]:
        """Return how well an attribute is read off raw features, by every measure; measured once."""
        if name not in self._raw:
            results = self._read(name, self._judged, RAW_CLASSIFIERS).results
            balanced, precision = (max(getattr(r, m) for r in results) for m in ("balanced_accuracy", "mean_precision"))
            more = {"strict": self._strict_raw(name)} if self.strict else {}
            self._raw[name] = {"balanced": balanced, "eq5": precision, **more}
        return self._raw[name]

    def _strict_raw(self, name: str) -> float:
        train, test = verification_halves({name: self._labels(name)}, None, 0)
        features, labels, first = self.people.features, self.people.labels[name], self.people.developers
        learn, judged = np.concatenate([np.arange(first), first + train]), first + test
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = best_raw_accuracy(features[learn], labels[learn], features[judged], labels[judged])
        return best.accuracy

    def _read(self, name: str, released: NDArray[np.generic], attackers: Sequence[Attacker]) -> Verification:
        counted = released.dtype.kind in "iu"
        verifier = Verifier(
            (LOOKUP,) if counted else attackers, THRESHOLD, CONFIDENCE, stop_early=False, cross_fitted=0
        )
        return verifier.verify(released, {name: self._labels(name)}, certified=counted)

    def _entanglement(self) -> dict[str, float]:
        names = tuple(self.people.labels)
        found = entanglement(self.people.features, self.people.labels, names, scale=self.people.scale)
        return {
            f"{public}/{private}/{figure}": float(matrix[i, j])
            for figure, matrix in (("correlation", found.correlation), ("overlap", found.overlap))
            for i, public in enumerate(names)
            for j, private in enumerate(names)
            if i != j
        }


def _paper_leaks(results: Sequence[AttackResult]) -> dict[str, float]:
    """Return PrivLoss by the paper's attackers, by balanced accuracy and by Eq. 5, where they were asked."""
    published = [result for result in results if result.attacker in _PUBLISHED]
    if not published:
        return {}
    return {
        "paper/priv_loss": max(result.priv_loss for result in published),
        "paper/priv_loss_eq5": max(result.mean_precision for result in published) - 0.5,
    }


def by_policy(score: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Return the figures of every answer, by its policy "public/private" and, where it has one, its kind."""
    found: dict[str, dict[str, float]] = {}
    for name, value in score.items():
        public, private, figure = name.split("/", 2)
        found.setdefault(f"{public}/{private}", {})[figure] = value
    return found


PHOTOGRAPHS = 8000


@dataclass(frozen=True)
class Crowd:
    """Who attacks: the paper's and tuned ones, tuned ones only, or everybody; and who reads public attributes."""

    both: tuple[Attacker, ...]
    tuned: tuple[Attacker, ...]
    everybody: tuple[Attacker, ...]
    readers: tuple[Attacker, ...]


CROWD = Crowd((*PAPER, *QUICK), QUICK, MODERN, (PAPER[0], PAPER[3], *QUICK))
QUICK_CROWD = Crowd((PAPER[0], QUICK[0]), QUICK[:1], (PAPER[0], *QUICK[:2]), (PAPER[0],))

HANDFULS: dict[str, tuple[Pair, ...]] = {
    "faces": (
        ("male", "smiling"),
        ("smiling", "male"),
        ("beard", "youth"),
        ("outdoors", "frowning"),
        ("eyeglasses", "pale_skin"),
    ),
    "utkface": (("female", "white"), ("white", "female"), ("under_30", "female"), ("over_59", "female")),
}
"""Policies whose sifts are also attacked by everybody."""


def tasks(settings: Settings) -> list[Task]:
    """Pose all policies of every collection, then a handful of them to be attacked by everybody."""
    if settings.quick:
        text = "drawn numbers in place of pictures, to see whether everything works"
        return _posed("faces", text, drawn_numbers, QUICK_ATTRIBUTES, QUICK_CROWD)
    posed = _posed(
        "faces",
        f"{FACES:,} drawn faces of 64x64 pixels, one of each person; at most {COMPONENTS} principal components of the "
        "paper's six planes, learned from the developer's pictures",
        partial(drawn_faces, FACES),
        FACE_ATTRIBUTES,
    )
    path = utkface_path(settings)
    if path is not None:
        text = f"{PHOTOGRAPHS:,} faces of UTKFace ({UTKFACE_FILE}) by EfficientNet-lite0 (1280), drawn by the seed"
        posed += _posed("utkface", text, partial(utkface, path, PHOTOGRAPHS), UTKFACE_ATTRIBUTES)
    return posed


def _posed(
    name: str, text: str, people: Callable[[int], People], attributes: Sequence[str], crowd: Crowd = CROWD
) -> list[Task]:
    policies = tuple(permutations(attributes, 2))
    handful = tuple(policy for policy in HANDFULS[name] if policy in policies)
    share = f"{text}; 40% make the sifts, 30% teach the attackers, 30% judge. {len(policies)} policies"

    def task(suffix: str, said: str, chosen: tuple[Pair, ...], attackers: tuple[Attacker, ...], *methods: str) -> Task:
        readers = attackers if attackers is crowd.tuned else crowd.readers
        return Task(f"{name}{suffix}", said, partial(_pose, people, chosen, attackers, readers), methods)

    return [
        task("", f"{share}, attacked by the paper's and tuned ones.", policies, crowd.both, "ppls"),
        task("-tuned", "the same, attacked by tuned ones.", policies, crowd.tuned, "ppls-infinite", "symbol"),
        task(
            "-everybody",
            f"{len(handful)} policies, by every attacker of the verifier.",
            handful,
            crowd.everybody,
            "ppls",
        ),
    ]


def _pose(
    people: Callable[[int], People],
    policies: tuple[Pair, ...],
    attackers: tuple[Attacker, ...],
    readers: tuple[Attacker, ...],
    seed: int,
) -> Problem:
    found = people(seed)
    return Problem(developer_data(found, policies), Judge(found, attackers, readers, entangled=True))


def developer_data(people: People, policies: tuple[Pair, ...], *, told: bool = False) -> SiftingData:
    """Return what a maker of sifts may see: labels of the developer's people; if `told`, private ones of the others."""
    first = people.developers
    labels = {name: column[:first] for name, column in people.labels.items()}
    private = {name: people.labels[name][first:] for _, name in policies} if told else {}
    return SiftingData(people.features[:first], labels, people.features[first:], policies, people.scale, private)


Values = tuple[float, ...]
Figures = dict[str, float]

UNCORRELATED = 0.2
COLLECTIONS = {"faces": "drawn faces", "utkface": "UTKFace"}
MAKERS = {
    "ppls": "PPLS, K = 5, lambda = 1",
    "ppls-infinite": "PPLS, K = 5, lambda = infinity",
    "symbol": "one symbol under a cap of .10, certified",
}
PAPER_AVERAGES = {"pub": (("abstract", 5.3), ("section 7", 6.49)), "priv": (("abstract", 7.5), ("section 7", 5.17))}
PAPER_SHARES = {"pub_loss": 63.0, "priv_loss": 67.0}
PAPER_ALONE = 315.0
PASSES = {
    "paper/priv_loss_eq5": "the paper's five, Eq. 5",
    "paper/priv_loss": "the paper's five, balanced",
    "priv_loss": "all asked, balanced",
    "bound": "accepted (upper limit, 95%)",
}


_KINDS = (("paper/", "_eq5"), ("paper/", ""), ("", ""))  # around "pub_loss" and "priv_loss"
_BOTH = ("priv_loss", "bound")


@dataclass(frozen=True)
class Measured:
    """All runs of one maker on one collection: by policy, its figures."""

    runs: tuple[dict[str, Figures], ...]

    @classmethod
    def of(cls, results: Sequence[Result], collection: str, maker: str, *, everybody: bool = False) -> "Measured":
        """Keep the runs of this maker; those attacked by everybody, or the others."""
        names = (f"{collection}-everybody",) if everybody else (collection, f"{collection}-tuned")
        return cls(tuple(by_policy(r.score) for r in results if r.dataset in names and r.method == maker))

    def means(self, figure: str) -> Values:
        """Return the mean over all policies that have a sift, run by run."""
        return tuple(
            statistics.fmean(found)
            for run in self.runs
            if (found := [figures[figure] for figures in run.values() if figure in figures])
        )

    def of_policy(self, policy: str, figure: str) -> Values:
        """Return a figure of one policy, run by run."""
        return tuple(run[policy][figure] for run in self.runs if figure in run.get(policy, {}))

    def passing(self, leak: str) -> str:
        """Return how many policies have at most the threshold, of how many that have a sift, on average."""
        leaks = [[figures[leak] for figures in _sifted(run).values() if leak in figures] for run in self.runs]
        if not any(leaks):
            return "-"
        passed = statistics.fmean(sum(value <= THRESHOLD for value in found) for found in leaks)
        return f"{passed:g} of {statistics.fmean(map(len, leaks)):g}"


def _sifted(run: dict[str, Figures]) -> dict[str, Figures]:
    return {policy: figures for policy, figures in run.items() if "bound" in figures}


def _accepted(run: dict[str, Figures]) -> set[str]:
    return {policy for policy, figures in _sifted(run).items() if figures["bound"] <= THRESHOLD}


def sections(results: Sequence[Result]) -> list[Section | Grid]:
    """Return the expectation, then every collection's tables."""
    shown = [name for name in COLLECTIONS if Measured.of(results, name, "ppls").runs]
    tables: list[Section | Grid] = [_expectation(results, shown)]
    for name in shown:
        ppls = Measured.of(results, name, "ppls")
        tables += [_averages(name, ppls), _passing(name, results), _regressions(name, ppls)]
        tables += [_everybody(name, results), _matrix(name, ppls)]
    return tables


def _expectation(results: Sequence[Result], collections: Sequence[str]) -> Grid:
    """Count the pairs of small correlation that have an accepted sift, and name the others."""
    rows: list[tuple[Cell, ...]] = []
    for name in collections:
        first = {maker: found.runs[0] for maker in MAKERS if (found := Measured.of(results, name, maker)).runs}
        pairs = {pair for pair, figures in first["ppls"].items() if abs(figures["correlation"]) < UNCORRELATED}
        accepted = {maker: pairs & _accepted(run) for maker, run in first.items()}
        together = set().union(*accepted.values())
        counts = [str(len(accepted[maker])) if maker in accepted else "-" for maker in MAKERS]
        without = ", ".join(sorted(pairs - together)) or "none"
        rows.append((COLLECTIONS[name], str(len(pairs)), *counts, str(len(together)), without))
    columns = ("", "pairs", "PPLS, lambda 1", "PPLS, lambda infinity", "symbol", "any of them", "without")
    title = f"Pairs with |correlation| < {UNCORRELATED:g} that have an accepted sift"
    return Grid(title, columns, tuple(rows), "The first run's. Expected on drawn faces: all of them.")


def _averages(name: str, ppls: Measured) -> Section:
    rows = []
    for side, said in (("pub", "PubLoss"), ("priv", "PrivLoss")):
        eq5, balanced, best = (ppls.means(f"{kind}{side}_loss{by}") for kind, by in _KINDS)
        for where, known in PAPER_AVERAGES[side]:
            rows.append(Row(f"{said}, Eq. 5, the paper's ({where})", _hundred(eq5), known))
        rows.append(Row(f"{said}, balanced accuracy, the paper's", _hundred(balanced)))
        rows.append(Row(f"{said}, balanced accuracy, tuned ones too", _hundred(best)))
    return Section(f"Averages on {COLLECTIONS[name]}, {MAKERS['ppls']} (points)", tuple(rows))


def _passing(name: str, results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for maker, said in MAKERS.items():
        found = Measured.of(results, name, maker)
        losses = (found.means("pub_loss"), found.means("priv_loss"))
        rows.append((said, *losses, *(found.passing(leak) for leak in PASSES)))
    columns = ("sift", "PubLoss", "PrivLoss", *PASSES.values())
    note = (
        "PrivLoss by all that were asked: the paper's five and three tuned ones at lambda = 1, the tuned ones alone at "
        "infinity, a table on symbols, where the limit is the certificate's."
    )
    return Grid(f"How many pass at .10 on {COLLECTIONS[name]}", columns, tuple(rows), note)


def _regressions(name: str, ppls: Measured) -> Section:
    rows = []
    for figure, said in (("pub_loss", "PubLoss"), ("priv_loss", "PrivLoss")):
        fits = [_regression(run, figure) for run in ppls.runs]
        shares = tuple(100 * fit.correlation_share for fit in fits)
        alone = tuple(100 * fit.correlation_alone for fit in fits)
        rows += [
            Row(f"{said}: share of correlation, the rest overlap's (per cent)", shares, PAPER_SHARES[figure]),
            Row(f"{said}: squared error larger with correlation alone (per cent)", alone, PAPER_ALONE),
            Row(f"{said}: variance explained by both (per cent)", tuple(100 * fit.r_squared for fit in fits)),
        ]
    return Section(f"Losses explained by correlation and overlap on {COLLECTIONS[name]}", tuple(rows), digits=1)


def _regression(run: dict[str, Figures], figure: str) -> LossRegression:
    sifted = _sifted(run).values()
    return regress(*([figures[each] for figures in sifted] for each in (figure, "correlation", "overlap")))


def _everybody(name: str, results: Sequence[Result]) -> Grid:
    """Set what all of the verifier's attackers read beside what the few read, for a handful of policies."""
    few, all_of_them = (Measured.of(results, name, "ppls", everybody=wider) for wider in (False, True))
    asked = [policy for run in all_of_them.runs[:1] for policy in _sifted(run)]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (policy, *(found.of_policy(policy, figure) for found in (few, all_of_them) for figure in _BOTH))
        for policy in asked
    )
    columns = ("public/private", "paper's and tuned", "upper limit", "all", "upper limit of all")
    title = f"PrivLoss of a handful of policies on {COLLECTIONS[name]}, attacked by everybody, {MAKERS['ppls']}"
    return Grid(title, columns, rows)


def _matrix(name: str, ppls: Measured) -> Grid:
    """Show PubLoss and PrivLoss of every policy (Figure 4), means over runs."""
    attributes = list(dict.fromkeys(policy.split("/")[0] for run in ppls.runs for policy in run))
    rows = tuple((a, *(_losses(ppls, f"{a}/{b}") for b in attributes)) for a in attributes)
    columns = ("public, below; private, right", *attributes)
    return Grid(f"PubLoss and PrivLoss on {COLLECTIONS[name]}, {MAKERS['ppls']} (points)", columns, rows)


def _losses(ppls: Measured, policy: str) -> str:
    runs = [run[policy] for run in ppls.runs if "bound" in run.get(policy, {})]
    if not runs:
        return "-"
    costs, leaks = (100 * statistics.fmean(run[figure] for run in runs) for figure in ("pub_loss", "priv_loss"))
    return f"{costs:z.0f} {leaks:z.0f}"


def _hundred(values: Values) -> Values:
    return tuple(100 * value for value in values)


BENCHMARK = Benchmark(
    name="sift-matrix",
    title="Every public attribute against every private one (SensorSift, Figure 4)",
    tasks=tasks,
    methods=(
        Method("ppls", "sifts:ppls", {"components": 5, "privacy": 1}),
        Method("ppls-infinite", "sifts:ppls", {"components": 5, "privacy": "inf"}),
        Method("symbol", "sifts:symbols", {"kinds": "capped"}),
    ),
    sections=sections,
    notes=(
        "The data differ: 45,135 photographs of 200 celebrities and ten attributes there; here drawn faces with ten "
        "attributes of known correlation, and UTKFace with seven.",
        "PubLoss is the lowest, PrivLoss the highest over all classifiers asked, as in the paper. Eq. 5, its measure, "
        "is the mean of the precisions: a few lucky guesses of a rare attribute raise it, one who is mostly right "
        "about either class of one hardly does. Verdicts here rest on balanced accuracy.",
        "The paper compares bare estimates with .10. Accepted here means that the upper limit (95%) is at most .10.",
        "The symbol is one bit, the best under a cap on its leak; it is certified against every attacker, by counts.",
        "The accepted of several sifts for one policy are judged by the same people: of three tries each may pass "
        "by luck with probability 5%.",
        "Public attributes are read by the paper's linear and kernel SVM, which it found the best, and by the tuned "
        "attackers (a linear SVM, a kernel screen, gradient boosting); the raw ceiling is the better of logistic "
        "regression and kernel SVM.",
        "Correlation and overlap (Eq. 6) are those of the measured people, not of the population.",
    ),
    runs=1,
)
