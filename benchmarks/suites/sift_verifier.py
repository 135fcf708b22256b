"""Which verdicts are wrong: sifts of 1 to 200 numbers by five methods, judged again with four times the rows.

The platform verifies with the rows it has: the paper's five attackers, ours, ours with the learning curve that is
extrapolated to an app's rows, and by certificate what few symbols of the same sift tell. The judges are classifiers of
other kinds, who learn from four times as many rows and are tested on others. A *false accept* is an accepted sift off
which a judge reads more than the threshold, a *false reject* one that is not accepted although no judge does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch
from sklearn.pipeline import make_pipeline

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifting import Pair, SiftingData
from benchmarks.results import Result
from benchmarks.suites.sift_matrix.pictures import (
    UTKFACE_FILE,
    People,
    drawn_faces,
    drawn_numbers,
    utkface_path,
    utkface_pixels,
)
from benchmarks.suites.sift_matrix.scores import CONFIDENCE, THRESHOLD
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError
from blindsight.sift.attackers import MODERN, PAPER, Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift, natural_units
from blindsight.sift.verdict import Verification, features_of, supported_width, with_all_rows
from blindsight.sift.verify import Verifier

MAKERS = ("ppls", "ppls-infinite", "leace", "inlp", "erased-components")
WIDTHS = (1, 2, 3, 5, 8, 12, 20, 31, 80, 200)
POLICIES: dict[str, tuple[Pair, ...]] = {
    "faces": (("male", "smiling"), ("smiling", "male")),
    "utkface": (("female", "white"), ("white", "female")),
}
ROWS = {"app": 1500, "verification": 1200, "development": 600, "judges learn from": 4800, "judges": 2400}
QUICK_ROWS = {"app": 300, "verification": 300, "development": 150, "judges learn from": 100, "judges": 50}
NUMBERS, LEVELS = 3, 2
"""Of the symbols that are certified: the first numbers of the hardened sift, of so many levels each."""

CURVE_ROWS = (500, 1000, 2000, 5000, 10_000, 20_000, 50_000)


def _sketch(seed: int) -> Any:
    features = PolynomialCountSketch(degree=2, coef0=1, n_components=500, random_state=seed)
    return make_pipeline(features, _discriminant())


def _nystroem(seed: int) -> Any:
    return make_pipeline(Nystroem(n_components=400, random_state=seed), _discriminant())


def _trees(seed: int) -> Any:
    return ExtraTreesClassifier(80, min_samples_leaf=5, class_weight="balanced", random_state=seed)


def _discriminant() -> Any:
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto", priors=[0.5, 0.5])


JUDGES = (
    Attacker("Nystroem features in natural units", _nystroem, "natural", tune=True),
    Attacker("quadratic sketch in natural units", _sketch, "natural", tune=True),
    Attacker("quadratic sketch, whitened", _sketch, "whitened", tune=True),
    Attacker("extremely randomised trees", _trees, "whitened", tune=True),
)
"""None of them is among the verifier's attackers; two are of kinds that it has too, shrinkage and quadratic."""

Rows = tuple[NDArray[np.float32], dict[str, NDArray[np.int8]]]


@dataclass(frozen=True, eq=False)
class Panel:
    """What becomes of a sift on the platform, and what the judges read off the same release."""

    rows: dict[str, Rows]
    paper: Sequence[Attacker]
    others: Sequence[Attacker]
    judges: Sequence[Attacker]

    def __call__(self, answer: dict[str, LinearSift]) -> dict[str, float]:
        """Return the figures of every policy, "policy/figure"."""
        scores: dict[str, float] = {}
        for policy, sift in answer.items():
            private = policy.split("/")[1]
            own = harden(sift, self.rows["verification"][0])
            figures = self._verdicts(own, private) | self._judged(own, private) | self._counted(own, private)
            scores |= {f"{policy}/{name}": float(value) for name, value in figures.items()}
        return scores

    def _verdicts(self, sift: LinearSift, private: str) -> dict[str, float]:
        """Attack with the paper's five, then with all others until a leak is proven."""
        features, labels = self.rows["verification"]
        more, known = self.rows["development"]
        learn = (sift.apply(more), {private: known[private]})
        planned = len(self.paper) + len(self.others)
        error = (1 - CONFIDENCE) * len(self.others) / planned  # the intervals of all attackers hold together
        found: list[Verification] = []
        for attackers, sure in ((self.paper, CONFIDENCE), (self.others, 1 - error)):
            verifier = Verifier(attackers, THRESHOLD, sure, stop_early=attackers is self.others)
            hidden = {private: labels[private]}
            found.append(verifier.verify((sift, features), hidden, certified=False, learn=learn))
        paper, other = found
        results = (*paper.results, *other.results)
        low = max(result.interval.low for result in results) - 0.5
        return {
            "width": sift.width,
            "learned": paper.setting.train,
            "paper/limit": max(result.limit for result in paper.results) - 0.5,
            "paper/low": max(result.interval.low for result in paper.results) - 0.5,
            "all/reads": max(result.balanced_accuracy for result in results) - 0.5,
            "all/low": low,
            "all/limit": max(result.limit for result in results) - 0.5,
            "all/wide": float(paper.too_wide),
            "all/complete": float(other.ending == "complete"),
        }

    def _judged(self, sift: LinearSift, private: str) -> dict[str, float]:
        (train, known), (test, truth) = self.rows["judges learn from"], self.rows["judges"]
        seen, shown, units = sift.apply(train), sift.apply(test), natural_units(sift)
        figures, best, least = {}, -0.5, -0.5
        for judge in self.judges:
            pair = (seen @ units, shown @ units) if judge.view == "natural" else (seen, shown)
            guess = judge.attack(pair[0], known[private], pair[1])
            right = [float((guess[truth[private] == value] == value).mean()) for value in (0, 1)]
            counts = [int((truth[private] == value).sum()) for value in (0, 1)]
            read = sum(right) / 2 - 0.5
            spread = np.sqrt(sum(rate * (1 - rate) / count for rate, count in zip(right, counts, strict=True))) / 2
            best, least = max(best, read), max(least, read - 2.24 * spread)  # 95% for four judges together
            figures[f"judge/{judge.name}"] = read
        return figures | {"judges/read": best, "judges/low": least}

    def _counted(self, sift: LinearSift, private: str) -> dict[str, float]:
        """Certify few symbols of the sift, and read them off a table that was counted on all of the judges' rows."""
        features, labels = self.rows["verification"]
        few = replace(sift, matrix=sift.matrix[:, :NUMBERS], quantiser=None)
        few = with_few_levels(few, self.rows["development"][0], LEVELS)
        found = certify(few.apply(features), labels[private], confidence=CONFIDENCE)
        everybody = [self.rows[name] for name in ("judges learn from", "judges")]
        symbols = few.symbols(np.concatenate([rows for rows, _ in everybody]))
        truth = np.concatenate([columns[private] for _, columns in everybody])
        rates = [np.bincount(symbols[truth == value], minlength=LEVELS**NUMBERS) for value in (0, 1)]
        apart = float(np.abs(rates[0] / rates[0].sum() - rates[1] / rates[1].sum()).sum()) / 4
        return {"symbols/bound": found.bound, "symbols/exposed": found.exposed, "symbols/read": apart}


def tasks(settings: Settings) -> list[Task]:
    """Pose two policies on drawn faces and on photographs."""
    rows = QUICK_ROWS if settings.quick else ROWS
    total = sum(rows.values())
    people: dict[str, tuple[str, Callable[[int], People]]] = {}
    if settings.quick:
        people["faces"] = ("drawn numbers in place of pictures", drawn_numbers)
    else:
        people["faces"] = (
            f"{total:,} drawn faces, one of each person, principal components",
            partial(drawn_faces, total),
        )
        path = utkface_path(settings)
        if path is not None:
            text = f"{total:,} faces of UTKFace ({UTKFACE_FILE}), principal components"
            people["utkface"] = (text, partial(utkface_pixels, path, total))
    shares = ", ".join(f"{name} {count:,}" for name, count in rows.items())
    return [
        Task(name, f"{text}; rows: {shares}.", partial(_pose, name, load, rows, settings.quick))
        for name, (text, load) in people.items()
    ]


def _pose(name: str, load: Callable[[int], People], rows: dict[str, int], quick: bool, seed: int) -> Problem:
    people, parts, start = load(seed), {}, 0
    if len(people.features) < sum(rows.values()):
        raise InputError(f"{sum(rows.values()):,} rows are needed; got {len(people.features):,}.")
    for part, count in rows.items():
        span = slice(start, start + count)
        parts[part] = (people.features[span], {one: column[span] for one, column in people.labels.items()})
        start += count
    features, labels = parts["app"]
    others = tuple(attacker for attacker in MODERN if attacker not in PAPER)
    crowds = (PAPER[:1], others[:3], JUDGES[:1]) if quick else (PAPER, others, JUDGES)
    policies = POLICIES[name][: 1 if quick else None]
    given = SiftingData(features, labels, parts["judges"][0], policies, people.scale)
    return Problem(given, Panel(parts, *crowds))


def _accepted(figures: dict[str, float]) -> dict[str, tuple[bool, float]]:
    """Return for every verifier whether it accepts, and what a judge reads off what would then go out."""
    read = figures["judges/read"]
    proven = figures["all/low"] > THRESHOLD
    limits = figures["all/complete"] and not proven and figures["all/limit"] <= THRESHOLD
    return {
        "paper's five": (figures["paper/limit"] <= THRESHOLD, read),
        "ours, limits alone": (bool(limits), read),
        "ours, learning curve": (bool(limits and _reach(figures) <= THRESHOLD and not figures["all/wide"]), read),
        "certificate of 8 symbols": (
            figures["symbols/bound"] <= THRESHOLD and figures["symbols/exposed"] <= Verifier().exempt,
            figures["symbols/read"],
        ),
    }


def _reach(figures: dict[str, float]) -> float:
    """Return where the largest limit leads along the learning curve; both classes have about as many rows."""
    half = round(figures["learned"] / 2)
    return with_all_rows(0.5 + figures["all/limit"], features_of(round(figures["width"])), (half, half)) - 0.5


def _numbers(result: Result) -> int:
    return int(str(result.arguments["components"]))


def _sifts(results: Sequence[Result]) -> list[tuple[Result, dict[str, float]]]:
    found = []
    for result in results:
        policies: dict[str, dict[str, float]] = {}
        for name, value in result.score.items():
            public, private, figure = name.split("/", 2)
            policies.setdefault(f"{public}/{private}", {})[figure] = value
        found += [(result, figures) for figures in policies.values()]
    return found


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show wrong verdicts by width, then by method, then how wide a release the rows support."""
    sifts = _sifts(results)
    return [
        _wrong("Wrong verdicts by width", "numbers", sifts, _numbers),
        _wrong("Wrong verdicts by method", "method", sifts, lambda result: str(result.arguments["maker"])),
        _wrong("Wrong verdicts by collection", "collection", sifts, lambda result: result.dataset),
        _curve(sifts),
        _support(),
    ]


def _wrong(
    title: str, what: str, sifts: Sequence[tuple[Result, dict[str, float]]], by: Callable[[Result], Any]
) -> Grid:
    verifiers = ("paper's five", "ours, limits alone", "ours, learning curve", "certificate of 8 symbols")
    columns: tuple[str, ...] = (what, "sifts", "harmless")
    for verifier in verifiers:
        columns += (f"{verifier}: accepts", "false", "false rejects")
    rows: list[tuple[Cell, ...]] = []
    groups: dict[Any, list[dict[str, float]]] = {}
    for result, figures in sifts:
        groups.setdefault(by(result), []).append(figures)
    for name, members in [*sorted(groups.items()), ("all", [figures for _, figures in sifts])]:
        row: tuple[Cell, ...] = (
            str(name),
            str(len(members)),
            str(sum(one["judges/read"] <= THRESHOLD for one in members)),
        )
        for verifier in verifiers:
            told = [_accepted(one)[verifier] for one in members]
            accepts = [read for yes, read in told if yes]
            refused = [read for yes, read in told if not yes]
            row += (
                str(len(accepts)),
                str(sum(read > THRESHOLD for read in accepts)),
                str(sum(read <= THRESHOLD for read in refused)),
            )
        rows.append(row)
    note = (
        "False: accepted, and a judge with four times the rows reads more than .10. Harmless: no judge does. Symbols "
        "are judged by what their own table reads."
    )
    return Grid(title, columns, tuple(rows), note)


def _curve(sifts: Sequence[tuple[Result, dict[str, float]]]) -> Grid:
    """Show what attackers read with the platform's rows, what the curve says of an app's, and what judges read."""
    rows: list[tuple[Cell, ...]] = []
    for width in sorted({_numbers(result) for result, _ in sifts}):
        members = [figures for result, figures in sifts if _numbers(result) == width]
        judged, reached = [one["judges/read"] for one in members], [_reach(one) for one in members]
        turns = [one["all/complete"] > 0 for one in members]
        over = sum(read > reach for read, reach, turn in zip(judged, reached, turns, strict=True) if turn)
        means = [float(np.mean([one[name] for one in members])) for name in ("all/reads", "all/limit")]
        figures = (*means, float(np.mean(reached)), float(np.mean(judged)), max(judged))
        rows.append((str(width), *(f"{value:.3f}" for value in figures), f"{over} of {sum(turns)}"))
    columns = ("numbers", "attackers read", "limit", "reach", "judges read, mean", "most", "judges beyond the reach")
    note = (
        "PrivLoss, means over sifts. The reach extrapolates the limit to any number of rows. The last column counts "
        "those sifts for which all attackers had their turn."
    )
    return Grid("Learning curve", columns, tuple(rows), note)


def _support() -> Grid:
    """Show how wide a release can be accepted without a certificate, computed from the learning curve."""
    rows: list[tuple[Cell, ...]] = []
    for count in CURVE_ROWS:
        widths = (
            supported_width(learned, count // 2, threshold=THRESHOLD, confidence=CONFIDENCE)
            for learned in (count // 2, count // 2 + count)
        )
        rows.append((f"{count:,}", *map(str, widths)))
    columns = ("verification rows", "widest release", "with as many development rows")
    return Grid("Rows and widths", columns, tuple(rows), "Of a release off which attackers read nothing; computed.")


BENCHMARK = Benchmark(
    name="sift-verifier",
    title="Verdicts that are wrong, by the width of the release",
    tasks=tasks,
    methods=tuple(
        Method(maker, "benchmarks.methods.sift_wide:run", {"maker": maker, "components": width})
        for width in WIDTHS
        for maker in MAKERS
    ),
    sections=sections,
    notes=(
        "All sifts go through the platform's hardening first, as they would before a release.",
        "An attacker of the platform learns from half of its verification rows and from its development rows; judges "
        "learn from four times as many.",
        "Verdicts at .10 and 95%. After a proven leak the remaining attackers are spared.",
    ),
    runs=1,
)
