"""Which verdicts are wrong: sifts of 1 to 200 numbers, judged again with four times the rows.

Beside what the platform does now stand the paper's five attackers by the paper's rule (all estimates within .10) and
the verifiers of version 0.1, whose attackers learned from half of the verification rows: three quick attackers, and all
that version had. The judges are classifiers of other kinds, who learn from four times as many rows and are
tested on others. A *false accept* is an accepted sift off which a judge reads more than the threshold, a *false reject*
one that is not accepted although no judge does.
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
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifts import Pair, SiftingData
from benchmarks.pictures import UTKFACE_FILE, People, drawn_faces, drawn_numbers, few_of_utkface, utkface_path
from benchmarks.results import Result
from benchmarks.suites.sift_matrix import CONFIDENCE, THRESHOLD
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError
from blindsight.sift.attackers import MODERN, PAPER, Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift, natural_units
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import supported_width
from blindsight.sift.verify import Verifier

MAKERS = ("ppls", "ppls-infinite", "leace", "inlp", "erased-components")
WIDTHS = (1, 2, 3, 5, 8, 12, 20, 31, 80, 200)
TOLD, TOLD_WIDTHS = "correlation-remover", (5, 31, 200)
"""A maker whose sifts are told the private label, to subtract it."""

POLICIES: dict[str, tuple[Pair, ...]] = {
    "faces": (("male", "smiling"), ("smiling", "male")),
    "utkface": (("female", "white"), ("white", "female")),
}
ROWS = {"app": 1500, "verification": 1200, "development": 600, "judges learn from": 4800, "judges": 2400}
QUICK_ROWS = {"app": 300, "verification": 300, "development": 150, "judges learn from": 100, "judges": 50}
NUMBERS, LEVELS = 3, 2
"""Of the symbols that are certified: the first numbers of the hardened sift, of so many levels each."""

COMPONENTS = 300
"""Of photographs as a network sees them, learned from the app's rows."""

ADDED = {
    "shrinkage discriminant, tuned",
    "quadratic discriminant, tuned",
    "random features, tuned",
    "kernel SVM in natural units, tuned",
    "kernel SVM on what tells, tuned",
}
"""Attackers that version 0.1 did not have."""

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


def _logistic(seed: int) -> Any:
    return LogisticRegression(C=0.1, class_weight="balanced", max_iter=300)


JUDGES = (
    Attacker("logistic regression in natural units", _logistic, "natural", tune=True),
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
    earlier: Sequence[Attacker]
    today: Sequence[Attacker]
    judges: Sequence[Attacker]

    def __call__(self, answer: dict[str, LinearSift]) -> dict[str, float]:
        """Return the figures of every policy, "policy/figure"."""
        scores: dict[str, float] = {}
        for policy, sift in answer.items():
            private = policy.split("/")[1]
            panel = self if sift.dimension == self.rows["app"][0].shape[1] else self._told(private)
            own = harden(sift, panel.rows["verification"][0])
            figures = panel._before(own, private) | panel._now(own, private)
            figures |= panel._judged(own, private) | panel._counted(own, private)
            scores |= {f"{policy}/{name}": float(value) for name, value in figures.items()}
        return scores

    def _told(self, private: str) -> "Panel":
        """Return the panel with the private label as one more feature."""
        told = {
            part: (np.column_stack([rows, labels[private]]).astype(np.float32), labels)
            for part, (rows, labels) in self.rows.items()
        }
        return replace(self, rows=told)

    def _before(self, sift: LinearSift, private: str) -> dict[str, float]:
        """Attack as version 0.1 did, with half of the verification rows."""
        features, labels = self.rows["verification"]
        verifier = Verifier(self.earlier, THRESHOLD, CONFIDENCE, stop_early=False, cross_fitted=0)
        results = verifier.verify((sift, features), {private: labels[private]}, certified=False).results
        paper, quick = ({attacker.name for attacker in some} for some in (PAPER, QUICK))
        return {
            "paper/reads": max(one.priv_loss for one in results if one.attacker in paper),
            "quick/limit": max(one.limit for one in results if one.attacker in quick) - 0.5,
            "modern/limit": max(one.limit for one in results) - 0.5,
        }

    def _now(self, sift: LinearSift, private: str) -> dict[str, float]:
        """Verify as the platform does."""
        features, labels = self.rows["verification"]
        more, known = self.rows["development"]
        learn = (sift.apply(more), {private: known[private]})
        verifier = Verifier(self.today, THRESHOLD, CONFIDENCE)
        found = verifier.verify((sift, features), {private: labels[private]}, certified=False, learn=learn)
        first, again = ([one for one in found.results if (one.folds > 1) == crossed] for crossed in (False, True))
        return {
            "width": sift.width,
            "learned": found.setting.train,
            "now/accepts": found.verdict == "accept",
            "now/reads": max(one.priv_loss for one in found.results),
            "now/limit": max(one.limit for one in first) - 0.5,
            "now/reach": max(one.reach for one in first) - 0.5,
            "now/bound": found.bound,
            "now/complete": found.ending == "complete",
            "now/crossed": len(again),
            "now/turned": bool(again) and max(one.reach for one in first) - 0.5 <= THRESHOLD < found.bound,
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
            best, least = max(best, read), max(least, read - 2.33 * spread)  # 95% for five judges together
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
            text = f"{total:,} faces of UTKFace ({UTKFACE_FILE}), EfficientNet-lite0, {COMPONENTS} principal components"
            people["utkface"] = (text, partial(few_of_utkface, path, total))
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
    if people.features.shape[1] > COMPONENTS:
        centre, turn = _components(parts["app"][0])
        parts = {
            part: (np.asarray((rows - centre) @ turn, np.float32), columns) for part, (rows, columns) in parts.items()
        }
    features, labels = parts["app"]
    earlier = tuple(attacker for attacker in MODERN if attacker.name not in ADDED)
    crowds = ((PAPER[0], QUICK[0]), (QUICK[0],), JUDGES[:1]) if quick else (earlier, MODERN, JUDGES)
    policies = POLICIES[name][: 1 if quick else None]
    given = SiftingData(features, labels, parts["judges"][0], policies, people.scale and quick)
    return Problem(given, Panel(parts, *crowds))


def _components(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the leading principal directions of standardised features."""
    mean, deviation = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-6)
    turn = np.linalg.svd((X - mean) / deviation, full_matrices=False).Vh[:COMPONENTS].T / deviation[:, None]
    return mean, turn.astype(np.float32)


VERIFIERS = ("paper's five", "0.1, quick", "0.1, modern", "now", "certificate of 8 symbols")


def _accepted(figures: dict[str, float]) -> dict[str, tuple[bool, float]]:
    """Return for every verifier whether it accepts, and what a judge reads off what would then go out."""
    read = figures["judges/read"]
    few = figures["symbols/bound"] <= THRESHOLD and figures["symbols/exposed"] <= Verifier().exempt
    accepts = (*(figures[name] <= THRESHOLD for name in ("paper/reads", "quick/limit", "modern/limit")),)
    told = ((yes, read) for yes in (*accepts, bool(figures["now/accepts"])))
    return dict(zip(VERIFIERS, (*told, (few, figures["symbols/read"])), strict=True))


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
        _worst(sifts),
        _curve(sifts),
        _support(),
    ]


def _wrong(
    title: str, what: str, sifts: Sequence[tuple[Result, dict[str, float]]], by: Callable[[Result], Any]
) -> Grid:
    columns: tuple[str, ...] = (what, "sifts", "harmless")
    for verifier in VERIFIERS:
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
        for verifier in VERIFIERS:
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


def _worst(sifts: Sequence[tuple[Result, dict[str, float]]]) -> Grid:
    """Show what each verifier accepted that leaks most."""
    rows: list[tuple[Cell, ...]] = []
    for verifier in VERIFIERS[:-1]:
        wrong = [(one["judges/read"], result, one) for result, one in sifts if _accepted(one)[verifier][0]]
        for read, result, one in sorted(wrong, key=lambda row: -row[0])[:3]:
            name = f"{result.dataset}, {result.method}, {_numbers(result)} numbers"
            said = {"paper's five": "paper/reads", "0.1, quick": "quick/limit", "0.1, modern": "modern/limit"}
            rows.append((verifier, name, f"{one[said.get(verifier, 'now/bound')]:.3f}", f"{read:.3f}"))
    return Grid("Worst accepted", ("verifier", "sift", "it said", "a judge reads"), tuple(rows), "PrivLoss.")


def _curve(sifts: Sequence[tuple[Result, dict[str, float]]]) -> Grid:
    """Show what attackers read with the platform's rows, what the curve says of an app's, and what judges read."""
    rows: list[tuple[Cell, ...]] = []
    for width in sorted({_numbers(result) for result, _ in sifts}):
        members = [figures for result, figures in sifts if _numbers(result) == width]
        judged, turns = [one["judges/read"] for one in members], [one["now/complete"] > 0 for one in members]
        over = sum(one["judges/read"] > one["now/bound"] for one in members if one["now/complete"])
        names = ("now/reads", "now/limit", "now/reach", "now/bound")
        means = [float(np.mean([one[name] for one in members])) for name in names]
        crossed, turned = (int(sum(one[name] > 0 for one in members)) for name in ("now/crossed", "now/turned"))
        figures = (*means, float(np.mean(judged)), max(judged))
        told = (f"{over} of {sum(turns)}", f"{turned} of {crossed}")
        rows.append((str(width), *(f"{value:.3f}" for value in figures), *told))
    columns = ("numbers", "attackers read", "limit", "reach", "bound", "judges read, mean", "most", "beyond the bound")
    note = (
        "PrivLoss, means over sifts. The reach extrapolates the limit to any number of rows; the bound is the largest "
        "reach, of cross-fitted attackers too. Beyond the bound: sifts of which a judge reads more, among those for "
        "which all attackers had their turn. Taken back: acceptances that did not outlast cross-fitting."
    )
    return Grid("Learning curve", (*columns, "taken back"), tuple(rows), note)


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
        Method(maker, "sifts:wide", {"maker": maker, "components": width})
        for width in WIDTHS
        for maker in (*MAKERS, TOLD)
        if maker != TOLD or width in TOLD_WIDTHS
    ),
    sections=sections,
    notes=(
        "All sifts go through the platform's hardening first, as they would before a release.",
        "An attacker of the platform learns from half of its verification rows and from its development rows, "
        "cross-fitted from four fifths of them; judges learn from four times as many as the former.",
        "fairlearn's CorrelationRemover is told the private label of every row, which no app knows.",
        "Verdicts at .10 and 95%. After a proven leak the remaining attackers are spared.",
    ),
    runs=1,
)
