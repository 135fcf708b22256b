"""How the cost of a round grows with the number of owners, and whether the cost model foretells it.

101 x 2048 weights; 10, 100 and 1,000 owners in one process, one at a time; regions below a root are a plan.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.rounds import Round
from benchmarks.methods.scale import ModelAnswer, Question, ScaleAnswer, aggregate_seconds
from benchmarks.results import Result
from benchmarks.table import Cell, Grid, heads, verdict
from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError

WEIGHTS, OWNERS = 101 * 2048, (10, 100, 1_000)
PLANNED = (1_000, 10_000, 100_000)
DENSITY = 0.1
_SCHEMES = ("block-dphe", "bfv")


@dataclass(frozen=True)
class Case:
    """A round of so many owners; `scheme` decides whether they change everything or a tenth of the blocks."""

    scheme: str
    owners: int
    weights: int
    key_bits: int = 3072

    @property
    def dataset(self) -> str:
        """The name of the task."""
        kind = "dense" if self.scheme == "bfv" else f"{self.key_bits}-bits-90-zero"
        return f"{self.owners}-owners-{self.weights}-weights-{kind}"

    @property
    def description(self) -> str:
        """What a reader of the table should know."""
        changed = "all of them" if self.scheme == "bfv" else f"their own 10% of the blocks of {self._block}"
        return f"{self.owners:,} owners, {self.weights:,} weights; they change {changed}."

    @property
    def _block(self) -> int:
        return 1 if self.scheme == "bfv" else SlotPacking.for_key(self.key_bits).slots

    def round(self, seed: int) -> Round:
        """Return what the methods are given."""
        blocks = -(-self.weights // self._block)
        return Round(
            users=tuple(f"owner-{number}" for number in range(self.owners)),
            weights=self.weights,
            block=self._block,
            kept=blocks if self.scheme == "bfv" else math.floor(DENSITY * blocks),
            shared=False,
            capacity=math.ceil(DENSITY * self.weights),
            key_bits=self.key_bits,
            whole=self.weights,
            seed=seed,
        )


def full_cases() -> list[Case]:
    """Return the rounds of the full size."""
    return [Case(scheme, owners, WEIGHTS) for scheme in _SCHEMES for owners in OWNERS]


def quick_cases() -> list[Case]:
    """Return small ones."""
    return [Case(scheme, owners, 6_464, 2048) for scheme in _SCHEMES for owners in (5, 20)]


def tasks(settings: Settings) -> list[Task]:
    """Pose each case, and ask the model about all of them and about more owners."""
    cases = quick_cases() if settings.quick else full_cases()
    rounds = [Task(case.dataset, case.description, partial(_pose, case), (case.scheme,)) for case in cases]
    asked = question(cases)
    text = (
        f"the model's answers for {asked.weights:,} weights; the plan has regions of {asked.region:,} owners and "
        f"{asked.shards} shards of the key service."
    )
    return [*rounds, Task(f"model-{asked.weights}-weights", text, partial(_pose_model, asked), ("model",))]


def question(cases: Sequence[Case]) -> Question:
    """Return what the model is asked, to stand beside these cases."""
    owners = {case.owners: None for case in cases}
    return Question(cases[0].weights, cases[0].key_bits, DENSITY, tuple(owners), PLANNED)


def _pose(case: Case, seed: int) -> Problem:
    given = case.round(seed)
    truth = np.zeros(given.weights)
    for owner in given.users:
        truth += given.update(owner)  # exact: these are multiples of 2^-20
    return Problem(given, partial(score, truth))


def score(truth: NDArray[np.float64], answer: ScaleAnswer) -> dict[str, float]:
    """Return all figures, after a check that the sum is exact."""
    if not np.array_equal(answer["total"], truth):
        raise InputError("the sum is not that of the owners' updates.")
    figures = {f"measured/{name}": value for name, value in answer["measured"].items()}
    figures |= {"peak megabytes": answer["peak_bytes"] / 1e6, "seconds": answer["seconds"]}
    return figures | dict(zip(("set-up owner", "set-up generator"), answer["setup"], strict=True))


def _pose_model(asked: Question, seed: int) -> Problem:
    return Problem(asked, partial(score_model, asked))


def score_model(asked: Question, answer: ModelAnswer) -> dict[str, float]:
    """Return all predictions: "round/<owners>/..." and "plan/<owners>/..."."""
    if (tuple(answer["rounds"]), tuple(answer["planned"])) != (asked.rounds, asked.planned):
        raise InputError(f"the model was asked about {asked.rounds} and {asked.planned} owners and answers otherwise.")
    found = {f"round/{owners}": figures for owners, figures in answer["rounds"].items()}
    found |= {f"plan/{owners}": figures for owners, figures in answer["planned"].items()}
    return {f"{about}/{name}": value for about, figures in found.items() for name, value in figures.items()}


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
    columns = heads(
        " | an owner encrypts | an owner reads | aggregator, a contribution | aggregator, once | "
        "key generator, once | everyone's, by owners | set-up, an owner | set-up, key generator | peak MB"
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


BENCHMARK = Benchmark(
    name="scale-owners",
    title="Rounds of many owners",
    tasks=tasks,
    methods=(
        Method("block-dphe", "scale:played", {"scheme": "block-dphe"}),
        Method("bfv", "scale:played", {"scheme": "bfv"}),
        *(
            Method("model", "scale:model", {"scheme": scheme, "slot_bits": slot_bits})
            for scheme in ("block-dphe", "bfv")
            for slot_bits in (32, 40)
        ),
    ),
    sections=sections,
    notes=(
        "All sums are checked: each is that of the owners' updates, bit for bit.",
        "All roles are in one process. An owner draws its update, contributes and is dropped before the next; the peak "
        "is that of the whole process, with Python and its libraries.",
        "`block-dphe` has 3072-bit keys; owners change their own tenth of the blocks of 95 weights. `bfv` sends all.",
        "An owner is charged for the window table or the lattice key that it prepares, as in a process of its own. "
        "Its seconds are the median over all owners; those of reading the answer, over ten.",
        "Making the Paillier or lattice key is not counted. Seconds are CPU seconds of one core.",
        "The model is calibrated once for each scheme, on rounds of 3, 9 and 60 owners, and foretells all others. That "
        "is not at the time of the measurements: on a busy machine, CPU seconds of the two differ by that alone.",
        "The plan is predicted, not measured. Its machines have 8 cores and 1 Gbit/s, owners 10 Mbit/s; nodes ask for "
        "work every 3 seconds; nothing overlaps but what different machines do.",
    ),
    runs=1,
)
