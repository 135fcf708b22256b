"""Figure 4 as numbers, what should hold between its lines, what the noise composes to, and Table 2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.methods.daylines import DELTA, laplace, published
from benchmarks.results import Argument, Result
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.suites.ppdl_days.cases import DIMENSION, UPLOADS
from benchmarks.suites.ppdl_days.linelist import (
    CLIPS,
    EPSILONS,
    LINES,
    SAID,
    SERVER_RATES,
    TRIED_CLIPS,
    TRIED_RATES,
    Played,
)
from benchmarks.table import Cell, Grid, Row, Section
from blindsight.selective.accounting import compose_sharing, figure
from blindsight.selective.noise import calibrate_participant, calibrate_record
from blindsight.selective.protection import Sharing
from blindsight.selective.study import Model

Values = tuple[float, ...]

MODELS: Mapping[Model, str] = {"head": "a head on a frozen backbone", "cnn": "a network from scratch"}
TABLE_2 = {  # training and validation accuracy in percent
    ("cnn", "sgd"): (75.9, 72.1),
    ("cnn", "rmsprop"): (78.3, 74.8),
    ("cnn", "adam"): (79.2, 77.7),
    ("head", "sgd"): (83.5, 79.6),
    ("head", "rmsprop"): (84.1, 81.4),
    ("head", "adam"): (85.4, 83.5),
}
OPTIMISERS = {"sgd": "SGD", "rmsprop": "RMSProp", "adam": "Adam"}
_WITHIN = -1.0  # percent points


@dataclass(frozen=True)
class Measured:
    """All results on one set of days."""

    results: Sequence[Result]

    @classmethod
    def on(cls, results: Sequence[Result], dataset: str) -> "Measured":
        """Keep the results on these days."""
        return cls([result for result in results if result.dataset == dataset])

    def by_seed(self, arguments: Mapping[str, Argument], measure: str) -> dict[int, float]:
        """Return a figure of the method with exactly these arguments in every run that has it."""
        chosen = (result for result in self.results if result.arguments == arguments)
        return {result.seed: result.score[measure] for result in chosen if measure in result.score}

    def of(self, arguments: Mapping[str, Argument], measure: str, scale: float = 1.0) -> Values:
        """Return the same as plain values."""
        return tuple(scale * value for value in self.by_seed(arguments, measure).values())

    def leads(self, first: Played, second: Played) -> Values:
        """Return by how many points the first line leads the second in the last week, run by run."""
        ahead, behind = (self.by_seed(line.arguments, "last week") for line in (first, second))
        return tuple(100 * (ahead[seed] - behind[seed]) for seed in ahead if seed in behind)


def sections(results: Sequence[Result]) -> list[Section | Grid]:
    """Return the figure for both models, relations, composition, Table 2 and tuning."""
    tables: list[Section | Grid] = []
    for model, said in MODELS.items():
        found = Measured.on(results, model)
        if found.results:
            tables += [_figure(found, model, said), _relations(found, model, said)]
    return [*tables, _composition(), *_table_2(results), *_tuning(results)]


def _figure(found: Measured, model: Model, said: str) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for line in LINES[model]:
        days = [_digits(found.of(line.arguments, f"day {day}", 100)) for day in (1, 14, 28)]
        week = _digits(found.of(line.arguments, "last week", 100))
        uploads, megabytes = (found.of(line.arguments, name) for name in ("uploads", "megabytes up"))
        proven = _proven(uploads, found.of(line.arguments, "epsilon"))
        rows.append((line.said, *days, week, uploads[:1], megabytes[:1], proven))
    columns = ("line", "day 1", "day 14", "day 28", "last week", "uploads", "MB up", "epsilon proven")
    note = (
        f"Percent of the day's new photos told rightly by the model of the day before. Epsilon at delta = {DELTA:g}, "
        "over all days: of a participant with all its photos, or, for noise per photo, of a photo. Centralised uploads "
        "are photos: of the features, or pixels. The paper gives this figure as a picture without numbers."
    )
    return Grid(f"Figure 4 with {said}", columns, tuple(rows), note)


def _digits(values: Values) -> Cell:
    """Write percents with one decimal, and their deviation."""
    if not values:
        return "-"
    mean = sum(values) / len(values)
    if len(values) == 1:
        return f"{mean:.1f}"
    spread = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    return f"{mean:.1f} ± {spread:.1f}"


def _proven(uploads: Values, epsilons: Values) -> str:
    if not any(uploads):
        return "nothing is sent" if uploads else "-"
    return figure(max(epsilons)) if epsilons else "none"


def _relations(found: Measured, model: Model, said: str) -> Grid:
    lines = {line.said: line for line in LINES[model]}
    central, never = lines["centralised"], lines["never updated"]
    plain = [line for name, line in lines.items() if "noise" not in name and "Laplace" not in name and "DP" not in name]
    others = [line for line in plain if line not in (central, never)]
    noisy = [lines[f"the paper's noise, {share}"] for share in ("10%", "20%")]
    asked: list[tuple[str, Values, float]] = [
        (f"{name} within 1 point of centralised", found.leads(lines[name], central), _WITHIN)
        for name in ("largest 10%", "largest 20%")
    ]
    asked += [
        ("never updated is lowest: lead of the lowest other line without noise", _least(found, others, never), 0.0),
        ("centralised is highest: lead over the highest other line without noise", _most(found, central, others), 0.0),
        (
            "the paper's noise keeps accuracy: 10% within 1 point of centralised",
            found.leads(noisy[0], central),
            _WITHIN,
        ),
        (
            "the paper's noise keeps accuracy: 20% within 1 point of centralised",
            found.leads(noisy[1], central),
            _WITHIN,
        ),
        ("the paper's noise, 10%, is better than no update", found.leads(noisy[0], never), 0.0),
        (
            "the paper's noise read as noise on gradients, 10%, is better than no update",
            found.leads(lines["the paper's noise, 10%, on gradients instead of changes"], never),
            0.0,
        ),
        ("residuals help: largest 10% with and without", _residuals(found, lines), 0.0),
    ]
    for name, line in lines.items():
        if "epsilon" in name:
            asked.append((f"{name}, is better than no update", found.leads(line, never), 0.0))
    rows = tuple((text, _digits(values), f"{least:+g}", verdict(values, least)) for text, values, least in asked)
    columns = ("relation, last week", "points measured", "at least", "verdict")
    return Grid(f"Relations with {said}", columns, rows)


def _residuals(found: Measured, lines: Mapping[str, Played]) -> Values:
    return found.leads(lines["largest 10% with residuals (top-k)"], lines["largest 10%"])


def _least(found: Measured, lines: Sequence[Played], other: Played) -> Values:
    """Return by how much the lowest of the lines leads the other, run by run."""
    return tuple(map(min, zip(*(found.leads(line, other) for line in lines), strict=False)))


def _most(found: Measured, line: Played, others: Sequence[Played]) -> Values:
    """Return by how much the line leads the highest of the others, run by run."""
    return tuple(map(min, zip(*(found.leads(line, other) for other in others), strict=False)))


def _composition() -> Grid:
    """Compose what the head's participants upload: it takes no measurement."""
    noises = {
        "the paper's noise, 10%": published(0.1),
        "the paper's noise, 20%": published(0.2),
        "Laplace noise on changes cut first, random 10%": laplace(0.1),
    }
    for epsilon in EPSILONS:
        noise = calibrate_participant(epsilon=epsilon, delta=DELTA, uploads=UPLOADS, clip=1.0)
        noises[f"noise per participant, epsilon {epsilon}"] = Sharing(0.1, "random", noise=noise)
    for epsilon in EPSILONS:
        inside = calibrate_record(epsilon=epsilon, delta=DELTA, steps=1, clip=1.0)
        noises[f"noise per photo, epsilon {epsilon}"] = Sharing(0.1, noise=inside)
    rows: list[tuple[Cell, ...]] = []
    for said, sharing in noises.items():
        cost = compose_sharing(sharing, dimension=DIMENSION, uploads=UPLOADS, delta=DELTA)
        counted = "-" if cost.counted is None else f"{cost.counted:g}"
        composed = [
            cell
            for part in (cost.upload, cost.participant)
            for cell in (("-", "-") if part is None else (figure(part.basic), figure(part.epsilon)))
        ]
        photo = "-" if cost.record is None else figure(cost.record.epsilon)
        rows.append((said, counted, *composed, photo, "yes" if cost.proven else "no"))
    columns = (
        "noise",
        "one parameter, one upload",
        "one upload, basic",
        "one upload, PLD",
        f"participant, {UPLOADS} uploads, basic",
        f"participant, {UPLOADS} uploads, PLD",
        "a photo",
        "proven",
    )
    note = (
        f"Epsilons for {DIMENSION:,} parameters, those composed (PLD) at delta = {DELTA:g}; basic adds up and knows no "
        "delta (Gaussian noise: each release at a part of it). Where nothing is proven the figures would hold at best, "
        "if no change were beyond the bound. A photo's traces stay in what a participant uploads later, so it pays for "
        "all uploads, except where noise is per photo."
    )
    return Grid("What epsilon = 1 composes to", columns, tuple(rows), note)


def _table_2(results: Sequence[Result]) -> list[Section]:
    rows = []
    for (model, optimiser), known in TABLE_2.items():
        found = [r for r in results if r.dataset == f"{model}-initial" and r.arguments["optimiser"] == optimiser]
        for name, paper in zip(("training", "validation"), known, strict=True):
            ours = tuple(100 * result.score[name] for result in found)
            what = "CNN from scratch" if model == "cnn" else "frozen backbone, last layer"
            rows.append(Row(f"{what}, {OPTIMISERS[optimiser]}, {name}", ours, paper))
    note = "Other photos, another backbone and fewer epochs than the paper's: the order of rows can be compared."
    return [Section("Table 2: accuracy of initial models, percent", tuple(rows), digits=1, note=note)]


def _tuning(results: Sequence[Result]) -> list[Grid]:
    tables = []
    for model in MODELS:
        found = Measured.on(results, f"{model}-tuning")
        rows: list[tuple[Cell, ...]] = []
        for kind, said in (("fedavg", "FedAvg, equal uploads"), ("fedavg-bytes", "FedAvg, equal bytes")):
            tried = {
                rate: found.of({"kind": kind, "server_rate": rate}, "last week", 100) for rate in TRIED_RATES[model]
            }
            rows.append((f"{said}: server rate", _candidates(tried, SERVER_RATES[model][kind])))
        for kind, clips in TRIED_CLIPS.items() if model == "head" else ():
            for epsilon, chosen in zip(EPSILONS, CLIPS[kind], strict=True):
                arguments: dict[str, Argument] = {"kind": kind, "epsilon": epsilon}
                tried = {clip: found.of({**arguments, "clip": clip}, "last week", 100) for clip in clips}
                rows.append((f"{SAID[kind]}, epsilon {epsilon}: clip", _candidates(tried, chosen)))
        if found.results:
            title = f"What was tried on another seed, with {MODELS[model]}"
            tables.append(Grid(title, ("", "value: percent in the last week"), tuple(rows), "Bold was chosen."))
    return tables


def _candidates(tried: Mapping[float, Values], chosen: float) -> str:
    texts = [f"{value:g}: {_digits(figures)}" for value, figures in tried.items()]
    return ", ".join(f"**{text}**" if value == chosen else text for value, text in zip(tried, texts, strict=True))
