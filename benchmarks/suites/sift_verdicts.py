"""Which verdicts are wrong, whether bounds hold, and what apps get accepted that learn from answers.

`sift-verifier`: sifts of 1 to 200 numbers, judged again with four times the rows. Beside what the platform does now
stand the paper's five attackers by the paper's rule (all estimates within .10) and the verifiers of version 0.1, whose
attackers learned from half of the verification rows: three quick attackers, and all that version had. The judges are
classifiers of other kinds, who learn from four times as many rows and are tested on others. A *false accept* is an
accepted sift off which a judge reads more than the threshold, a *false reject* one that is not accepted although no
judge does.

`sift-persons`: bounds where people have several pictures, counted as if pictures were people, and as people. A bound is
drawn many times, from other people each time, and held against a truth that is known: *simulated* people, whose bit
gains .08; *drawn* people, whose truth is counted on all of them; and the forty people of *ORL* with an attribute that
is tossed for each of them, of which no picture tells anything. A certified bound below the truth is a broken promise, a
lower end above it a leak that was "proven" and is none: either may happen in 5% of the draws.

`sift-adaptive`: rows whose truth is known (`tests.adversaries.holes.Segments`) judge sift after sift. One schedule
gives try n the error alpha / (n (n + 1)), which is right for a list that is fixed beforehand; the other gives it its
place in the tree of all answers (`blindsight.sift.adaptive`).
"""

from collections.abc import Callable, Mapping, Sequence
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
from benchmarks.methods.sifts import Draw, Pair, SiftingData
from benchmarks.pictures import People, people
from benchmarks.suites.sift_matrix import CONFIDENCE, THRESHOLD
from benchmarks.table import Found, Grid, Rows, Table
from blindsight.errors import DataError, InputError
from blindsight.sift.attackers import MODERN, PAPER, Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift, natural_units
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import supported_width
from blindsight.sift.verify import Verifier
from tests.adversaries.holes import Segments

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

Labelled = tuple[NDArray[np.float32], dict[str, NDArray[np.int8]]]


@dataclass(frozen=True, eq=False)
class Panel:
    """What becomes of a sift on the platform, and what the judges read off the same release."""

    rows: dict[str, Labelled]
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
    total, shares = sum(rows.values()), ", ".join(f"{name} {count:,}" for name, count in rows.items())
    return [
        Task(
            name,
            f"{text}; {COMPONENTS} components at most; rows: {shares}.",
            partial(_pose, name, load, rows, settings.quick),
        )
        for name, (text, load) in people(settings, total, total, few=True).items()
    ]


def _pose(name: str, load: Callable[[int], People], rows: dict[str, int], quick: bool, seed: int) -> Problem:
    found, parts, start = load(seed), {}, 0
    if len(found.features) < sum(rows.values()):
        raise InputError(f"{sum(rows.values()):,} rows are needed; got {len(found.features):,}.")
    for part, count in rows.items():
        span = slice(start, start + count)
        parts[part] = (found.features[span], {one: column[span] for one, column in found.labels.items()})
        start += count
    if found.features.shape[1] > COMPONENTS:
        centre, turn = _components(parts["app"][0])
        parts = {
            part: (np.asarray((rows - centre) @ turn, np.float32), columns) for part, (rows, columns) in parts.items()
        }
    features, labels = parts["app"]
    earlier = tuple(attacker for attacker in MODERN if attacker.name not in ADDED)
    crowds = ((PAPER[0], QUICK[0]), (QUICK[0],), JUDGES[:1]) if quick else (earlier, MODERN, JUDGES)
    policies = POLICIES[name][: 1 if quick else None]
    given = SiftingData(features, labels, parts["judges"][0], policies, found.scale and quick)
    return Problem(given, Panel(parts, *crowds))


def _components(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the leading principal directions of standardised features."""
    mean, deviation = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-6)
    turn = np.linalg.svd((X - mean) / deviation, full_matrices=False).Vh[:COMPONENTS].T / deviation[:, None]
    return mean, turn.astype(np.float32)


VERIFIERS = ("paper's five", "0.1, quick", "0.1, modern", "now", "certificate of 8 symbols")


def _accepted(figures: Mapping[str, float]) -> dict[str, tuple[bool, float]]:
    """Return for every verifier whether it accepts, and what a judge reads off what would then go out."""
    read = figures["judges/read"]
    few = figures["symbols/bound"] <= THRESHOLD and figures["symbols/exposed"] <= Verifier().exempt
    accepts = (*(figures[name] <= THRESHOLD for name in ("paper/reads", "quick/limit", "modern/limit")),)
    told = ((yes, read) for yes in (*accepts, bool(figures["now/accepts"])))
    return dict(zip(VERIFIERS, (*told, (few, figures["symbols/read"])), strict=True))


def _sifts(found: Found) -> Found:
    return found.parts("policy", 2)


def _by(what: str, found: Found) -> list[Any]:
    """Return the values of an argument, or the datasets, in order."""
    return sorted(value for (value,) in found.names(what))


def _wrong(title: str, what: str, by: str, found: Found) -> Grid:
    """Count wrong verdicts by width, maker or collection."""
    columns = [what, "sifts", "harmless"]
    for verifier in VERIFIERS:
        columns += [f"{verifier}: accepts", "false", "false rejects"]
    sifts = _sifts(found)
    rows: Rows = []
    for name, some in [*((value, sifts(**{by: value})) for value in _by(by, sifts)), ("all", sifts)]:
        row = [str(name), str(len(some)), str(sum(value <= THRESHOLD for value in some.of("judges/read")))]
        for verifier in VERIFIERS:
            told = [_accepted(one.score)[verifier] for one in some]
            accepts, refused = ([read for yes, read in told if yes == kind] for kind in (True, False))
            false = sum(read > THRESHOLD for read in accepts), sum(read <= THRESHOLD for read in refused)
            row += [str(len(accepts)), *map(str, false)]
        rows.append(row)
    note = (
        "False: accepted, and a judge with four times the rows reads more than .10. Harmless: no judge does. Symbols "
        "are judged by what their own table reads."
    )
    return Grid(title, columns, rows, note)


def _worst(found: Found) -> Grid:
    """Show what each verifier accepted that leaks most."""
    rows: Rows = []
    for verifier, said in zip(VERIFIERS, ("paper/reads", "quick/limit", "modern/limit", "now/bound"), strict=False):
        wrong = [one for one in _sifts(found) if _accepted(one.score)[verifier][0]]
        for one in sorted(wrong, key=lambda one: -one.score["judges/read"])[:3]:
            name = f"{one.dataset}, {one.method}, {one.arguments['components']} numbers"
            rows.append((verifier, name, *(f"{one.score[figure]:.3f}" for figure in (said, "judges/read"))))
    return Grid("Worst accepted", "verifier | sift | it said | a judge reads", rows, "PrivLoss.")


def _curve(found: Found) -> Grid:
    """Show what attackers read with the platform's rows, what the curve says of an app's, and what judges read."""
    sifts, rows = _sifts(found), []
    for width in _by("components", sifts):
        some = sifts(components=width)
        judged, complete = some.of("judges/read"), [one.score for one in some if one.score["now/complete"]]
        over = sum(one["judges/read"] > one["now/bound"] for one in complete)
        means = [np.mean(some.of(name)) for name in ("now/reads", "now/limit", "now/reach", "now/bound", "judges/read")]
        crossed, turned = (sum(value > 0 for value in some.of(name)) for name in ("now/crossed", "now/turned"))
        told = (f"{over} of {len(complete)}", f"{turned} of {crossed}")
        rows.append((str(width), *(f"{value:.3f}" for value in (*means, max(judged))), *told))
    return Grid(
        "Learning curve",
        "numbers | attackers read | limit | reach | bound | judges read, mean | most | beyond the bound | taken back",
        rows,
        "PrivLoss, means over sifts. The reach extrapolates the limit to any number of rows; the bound is the largest "
        "reach, of cross-fitted attackers too. Beyond the bound: sifts of which a judge reads more, among those for "
        "which all attackers had their turn. Taken back: acceptances that did not outlast cross-fitting.",
    )


def _support(found: Found) -> Grid:
    """Show how wide a release can be accepted without a certificate, computed from the learning curve."""
    rows = []
    for count in CURVE_ROWS:
        widths = (
            supported_width(learned, count // 2, threshold=THRESHOLD, confidence=CONFIDENCE)
            for learned in (count // 2, count // 2 + count)
        )
        rows.append((f"{count:,}", *map(str, widths)))
    columns = "verification rows | widest release | with as many development rows"
    return Grid("Rows and widths", columns, rows, "Of a release off which attackers read nothing; computed.")


VERIFIER = Benchmark(
    name="sift-verifier",
    title="Verdicts that are wrong, by the width of the release",
    tasks=tasks,
    methods=tuple(
        Method(maker, "sifts:wide", {"maker": maker, "components": width})
        for width in WIDTHS
        for maker in (*MAKERS, TOLD)
        if maker != TOLD or width in TOLD_WIDTHS
    ),
    tables=(
        partial(_wrong, "Wrong verdicts by width", "numbers", "components"),
        partial(_wrong, "Wrong verdicts by method", "method", "maker"),
        partial(_wrong, "Wrong verdicts by collection", "collection", "dataset"),
        _worst,
        _curve,
        _support,
    ),
    notes=(
        "All sifts go through the platform's hardening first, as they would before a release.",
        "An attacker of the platform learns from half of its verification rows and from its development rows, "
        "cross-fitted from four fifths of them; judges learn from four times as many as the former.",
        "fairlearn's CorrelationRemover is told the private label of every row, which no app knows.",
        "Verdicts at .10 and 95%. After a proven leak the remaining attackers are spared.",
    ),
    runs=1,
)


DRAWS, PEOPLE, GAIN = 100, 1000, 0.08
PUBLIC, PRIVATE, PICTURES, DEVELOPERS, JUDGED = "smiling", "male", 6, 200, 250
DRAWN = 900

Draws = tuple[list[Draw], float]


def person_tasks(settings: Settings) -> list[Task]:
    """Pose simulated people alone where it must be quick; ORL where it was fetched."""
    draws = 20 if settings.quick else DRAWS
    several = f"{PEOPLE:,} people, one to ten pictures of each"
    found = [
        Task("simulated", f"{several}, alike with 70%.", partial(_pose_persons, partial(_simulated, draws, 10))),
        Task("one-of-many", f"{several}, 527 of one of them.", partial(_pose_persons, partial(_simulated, draws, 527))),
    ]
    if settings.quick:
        return found
    text = f"{JUDGED} of {DRAWN - DEVELOPERS:,} drawn people, 1 to {PICTURES} pictures each; a bit hides {PRIVATE}."
    found.append(Task("faces", text, partial(_pose_persons, partial(_faces, draws))))
    if settings.recorded or _orl_pixels() is not None:
        text = "40 people, ten photographs of each; the sign of a principal component, an attribute tossed per person."
        found.append(Task("orl", text, partial(_pose_persons, partial(_orl, draws))))
    return found


def _pose_persons(make: Callable[[int], Draws], seed: int) -> Problem:
    draws, truth = make(seed)
    return Problem(draws, partial(_score_persons, truth))


def _score_persons(truth: float, answer: list[tuple[float, float]]) -> dict[str, float]:
    bounds, lows = np.array(answer).T
    return {
        "truth": truth,
        "mean bound": float(bounds.mean()),
        "bounds below the truth": float((bounds < truth).mean()),
        "leaks proven beyond it": float((lows > truth).mean()),
    }


def _simulated(draws: int, most: int, seed: int) -> Draws:
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        pictures = rng.integers(1, 11, PEOPLE)
        pictures[0] = most
        who, private = np.repeat(np.arange(PEOPLE), pictures), np.arange(PEOPLE) % 2
        chance = np.where(private == 1, 0.5 + GAIN, 0.5 - GAIN)
        mine, again = rng.random(PEOPLE) < chance, rng.random(len(who)) < chance[who]
        symbols = np.where(rng.random(len(who)) < 0.7, mine[who], again)
        found.append(Draw(symbols.astype(np.int64), private[who].astype(np.int8), who))
    return found, GAIN


def _faces(draws: int, seed: int) -> Draws:
    """Fit a bit to some drawn people; draw from the others, with one to six pictures of each."""
    from blindsight.data.faces import faces
    from blindsight.data.pixels import PixelFeatures
    from blindsight.sift.harden import with_few_levels
    from blindsight.sift.ppls import PPLS

    drawn = faces(DRAWN * PICTURES, size=64, random_state=seed, pictures_per_person=PICTURES)
    images, who = np.asarray(drawn.images), np.unique(np.asarray(drawn.persons), return_inverse=True)[1]
    mine, theirs = who < DEVELOPERS, who >= DEVELOPERS
    pixels = PixelFeatures(max_components=60).fit(images[mine])
    X, labels = pixels.transform(images), {name: drawn.attribute(name) for name in (PUBLIC, PRIVATE)}
    sift = PPLS(1, 1.0, scale=False).fit(X[mine], labels[PUBLIC][mine], labels[PRIVATE][mine]).sift_
    bits = with_few_levels(sift, X[mine], 2).apply(X)[:, 0]
    everybody, rng, found = np.unique(who[theirs]), np.random.default_rng(seed), []
    for _ in range(draws):
        chosen = rng.choice(everybody, JUDGED, replace=False)
        rows = np.concatenate([np.flatnonzero(who == one)[: rng.integers(1, PICTURES + 1)] for one in chosen])
        found.append(Draw(bits[rows], labels[PRIVATE][rows], who[rows]))
    rates = [bits[theirs & (labels[PRIVATE] == value)].mean() for value in (0, 1)]
    return found, abs(float(rates[1] - rates[0])) / 2


def _orl(draws: int, seed: int) -> Draws:
    read = _orl_pixels()
    assert read is not None
    pixels, who = read
    centred = pixels - pixels.mean(axis=0)
    component = centred @ np.linalg.svd(centred, full_matrices=False).Vh[0]
    bits, rng = (component > np.median(component)).astype(np.int64), np.random.default_rng(seed)
    halves = (rng.permutation(40) % 2 for _ in range(draws))
    return [Draw(bits, half[who].astype(np.int8), who) for half in halves], 0.0


def _orl_pixels() -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
    from blindsight.data import load

    try:
        photographs = load("orl")
    except DataError:
        return None
    small = np.asarray(photographs.images, dtype=np.float64)[:, ::4, ::4].reshape(len(photographs), -1)
    return small, np.unique(np.asarray(photographs.persons), return_inverse=True)[1]


def _bounds(found: Found) -> Grid:
    """Show every collection, pictures beside people."""
    figures = {"truth": ".3f", "mean bound": ".3f", "bounds below the truth": ".1%", "leaks proven beyond it": ".1%"}
    rows = [(r.dataset, r.method, *(f"{r.score[name]:{form}}" for name, form in figures.items())) for r in found]
    note = f"PrivLoss of one bit; {DRAWS} draws of people. Bounds at 95%: the last two columns may reach 5%."
    return Grid("Bounds over people", ["collection", "counted", *figures], rows, note)


PERSONS = Benchmark(
    name="sift-persons",
    title="Bounds where people have several pictures",
    tasks=person_tasks,
    methods=tuple(Method(name, "sifts:persons", {"persons": name == "people"}) for name in ("pictures", "people")),
    tables=(_bounds,),
    notes=(
        "Draws of drawn people overlap, since there are only so many; the truth is counted on all of them.",
        "ORL has no attributes, so one is tossed for each person: whoever counts pictures finds what is not there.",
    ),
    runs=1,
)

SEGMENTS, TRIES = 3000, (100, 307, 1000, 1500)


def adaptive_tasks(settings: Settings) -> list[Task]:
    """Pose every number of tries."""
    counts, said = TRIES[:1] if settings.quick else TRIES, f"{SEGMENTS:,} rows, {{:,}} tries and a search."
    return [Task(f"tries-{n}", said.format(n), partial(_pose_tries, n)) for n in counts]


def _pose_tries(tries: int, seed: int) -> Problem:
    rows = Segments.draw(SEGMENTS, random_state=seed)
    return Problem((rows, tries, 1 - CONFIDENCE), lambda got: {"most let out": float(got)})


def _beyond(found: Found) -> str:
    values = found.of("most let out")
    return f"{sum(value > THRESHOLD for value in values)} of {len(values)}"


ADAPTIVE = Benchmark(
    name="sift-adaptive",
    title="Apps that learn from yes and no",
    tasks=adaptive_tasks,
    methods=(Method("forgetful", "sifts:adaptive", {"tree": False}), Method("tree", "sifts:adaptive", {"tree": True})),
    tables=(
        Table(
            "What an adaptive app gets accepted",
            {f"{tries}": {"dataset": f"tries-{tries}"} for tries in TRIES},
            "tries",
            "True PrivLoss; .10 is allowed.",
            more={
                "fixed list: most let out": {"method": "forgetful", "figure": "most let out"},
                "of it beyond .10": {"method": "forgetful", "values": _beyond},
                "tree of answers: most let out": {"method": "tree", "figure": "most let out"},
                "beyond .10": {"method": "tree", "values": _beyond},
            },
        ),
    ),
    notes=("In the tree every answer is used up: after many of them nothing is accepted any more on the same rows.",),
    runs=5,
)
