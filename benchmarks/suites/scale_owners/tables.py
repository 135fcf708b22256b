"""The tables: whether the targets are met, what a round costs, what was predicted, and the plan for more owners."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.methods.costmodel import aggregate_seconds
from benchmarks.results import Result
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.suites.scale_owners.cases import PLANNED, Case, full_cases, quick_cases
from benchmarks.table import Cell, Grid

MOST_MEGABYTES, MOST_GROWTH = 4000.0, 1.2
_MEASURED_BITS = 32  # of a slot, in every round that is measured
_SECONDS = ("encrypt", "read", "aggregate", "decrypt")
_MESSAGES = ("contribution", "request", "answer", "set-up message")
_COSTS = ("encrypt", "read", "add", "close", "decrypt")
_PER_OWNER = ("measured/encrypt", "measured/read", "measured/add")
_SENT = ("measured/contribution",)

Values = tuple[float, ...]


class Figures:
    """Scores by case."""

    def __init__(self, results: Sequence[Result]) -> None:
        """Sort results by what they are about."""
        known = {case.dataset: case for case in (*full_cases(), *quick_cases())}
        self._results: dict[Case, list[Result]] = {}
        for result in results:
            if result.dataset in known:
                self._results.setdefault(known[result.dataset], []).append(result)
        self._models = [r for r in results if r.method == "model" and r.arguments["slot_bits"] == _MEASURED_BITS]
        self.cases = list(self._results)

    def of(self, case: Case, *names: str, scale: float = 1.0) -> Values:
        """Return the sum of the named figures in every run."""
        return tuple(scale * sum(result.score[name] for name in names) for result in self._results[case])

    def measured(self, case: Case, name: str) -> Values:
        """Return a figure in seconds or kilobytes; "aggregate" is the aggregator's whole round."""
        return tuple(_figure(result.score, "measured", name, case.owners) for result in self._results[case])

    def predicted(self, case: Case, name: str) -> Values:
        """Return the same as the model has it."""
        about = f"round/{case.owners}"
        models = (model for model in self._models if model.arguments["scheme"] == case.scheme)
        return tuple(_figure(model.score, about, name, case.owners) for model in models)

    def of_scheme(self, scheme: str) -> list[Case]:
        """Return the cases of a scheme that were measured, with ever more owners."""
        return sorted((case for case in self.cases if case.scheme == scheme), key=lambda case: case.owners)


def _figure(score: Mapping[str, float], about: str, name: str, owners: int) -> float:
    if name == "aggregate":
        return aggregate_seconds({part: score[f"{about}/{part}"] for part in ("add", "close")}, owners)
    return score[f"{about}/{name}"] * (1e-3 if name in _MESSAGES else 1.0)


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return all tables that have a row."""
    figures = Figures(results)
    tables = [_targets(figures), _costs(figures), _sizes(figures), _predictions(figures), _plan(results)]
    return [table for table in tables if table.rows]


def _targets(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for scheme in ("block-dphe", "bfv"):
        cases = figures.of_scheme(scheme)
        if len(cases) < 2:
            continue
        few, many = cases[0], cases[-1]
        name = f"{scheme}, {many.owners:,} owners"
        rows.append(_target(f"{name}: peak megabytes", figures.of(many, "peak megabytes"), MOST_MEGABYTES))
        for what, names in (("CPU seconds", _PER_OWNER), ("bytes sent", _SENT)):
            pairs = zip(figures.of(many, *names), figures.of(few, *names), strict=False)
            ratios = tuple(above / below for above, below in pairs)
            rows.append(_target(f"{name}: {what} an owner, to those with {few.owners}", ratios, MOST_GROWTH))
    note = (
        "An owner's seconds are its encryption, its reading of the sum and what the aggregator does for it. What comes "
        "once a round, whoever takes part, is in the next table."
    )
    return Grid("Targets", ("", "measured", "at most", "verdict"), tuple(rows), note)


def _target(name: str, values: Values, most: float) -> tuple[Cell, ...]:
    return name, values, f"{most:g}", verdict([-value for value in values], -most, ("reached", "missed"))


def _costs(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = [
        (
            _name(case),
            *(figures.of(case, f"measured/{name}") for name in _COSTS),
            figures.of(case, "seconds", scale=1 / case.owners),
            *(figures.of(case, name) for name in ("set-up owner", "set-up generator", "peak megabytes")),
        )
        for case in figures.cases
    ]
    columns = (
        "",
        "an owner encrypts",
        "an owner reads",
        "aggregator, a contribution",
        "aggregator, once",
        "key generator, once",
        "everyone's, by owners",
        "set-up, an owner",
        "set-up, key generator",
        "peak MB",
    )
    return Grid("CPU seconds of a round, and memory", columns, tuple(rows))


def _sizes(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = [
        (_name(case), *(figures.measured(case, name) for name in _MESSAGES)) for case in figures.cases
    ]
    columns = ("", "a contribution", "the request", "the answer", "a set-up message")
    return Grid("Kilobytes of messages", columns, tuple(rows))


def _predictions(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    errors: dict[str, float] = {}
    for case in figures.cases:
        for name in (*_SECONDS, *_MESSAGES):
            measured, predicted = figures.measured(case, name), figures.predicted(case, name)
            if predicted:
                ratio, what = statistics.fmean(predicted) / statistics.fmean(measured), f"{_name(case)}: {name}"
                errors[what] = abs(ratio - 1)
                rows.append((what, measured, predicted, (ratio,)))
    worst = max(errors, key=errors.__getitem__, default="")
    note = f"Seconds, or kilobytes of a message. The largest error is {errors[worst]:.0%} ({worst})." if worst else ""
    return Grid("Predicted beside measured", ("", "measured", "predicted", "predicted / measured"), tuple(rows), note)


def _plan(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    models = [result for result in results if result.method == "model"]
    for arguments in dict.fromkeys((str(r.arguments["scheme"]), r.arguments["slot_bits"]) for r in models):
        chosen = [r for r in models if (r.arguments["scheme"], r.arguments["slot_bits"]) == arguments]
        for owners in PLANNED:
            cells = [tuple(scale * r.score[f"plan/{owners}/{name}"] for r in chosen) for _, name, scale in _PLAN]
            rows.append((f"{arguments[0]}, {arguments[1]} bits, {owners:,} owners", *cells))
    note = "CPU seconds and megabytes of one machine of each kind in one round; wall seconds of the round. Predicted."
    return Grid("Plan: regions below a root, a key service in shards", ("", *(c[0] for c in _PLAN)), tuple(rows), note)


_PLAN = (
    ("regions", "regions", 1.0),
    ("owner, s", "encrypt", 1.0),
    ("owner sends, MB", "contribution", 1e-6),
    ("aggregator holds, MB", "held", 1e-6),
    ("region, s", "region seconds", 1.0),
    ("region, MB", "region bytes", 1e-6),
    ("root, s", "root seconds", 1.0),
    ("root, MB", "root bytes", 1e-6),
    ("shard, s", "shard seconds", 1.0),
    ("shard, MB", "shard bytes", 1e-6),
    ("wall, s", "wall", 1.0),
    ("wall with one aggregator, s", "wall, one aggregator", 1.0),
)


def _name(case: Case) -> str:
    return f"{case.scheme}, {case.owners:,} owners"
