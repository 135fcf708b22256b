"""Run methods on problems and judge their answers. The harness trusts no method: it hands out a copy of what a method
may see, keeps the right answers to itself, times the call, scores the raw answer and writes everything down at once.

A *benchmark* is tasks times methods. A *task* poses a *problem* for every seed. A *method* is a function named
"module:function" and its arguments; it is imported before the clock starts. What fails is recorded with its reason and
measured again next time; what succeeded is kept until it is measured again by force.
"""

import copy
import hashlib
import math
import pkgutil
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import Cost, commit, machine, measured, package_versions
from benchmarks.results import Argument, Result, argument_text, read_result, result_path, write_result
from benchmarks.table import Show
from blindsight.errors import InputError, UnknownNameError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """What the person who runs a benchmark decides."""

    data_dir: Path | None = None  # where data that are not shipped are kept
    quick: bool = False  # a small version, to see whether everything works
    full: bool = False  # a large version, where a benchmark has one
    recorded: bool = False  # only show what was measured: no data need be here

    def file(self, name: str) -> Path | None:
        """Return where a file of the data folder is, or would be if only records are shown; None if it is missing."""
        path = (self.data_dir or Path()) / name
        return path if self.recorded or (self.data_dir is not None and path.is_file()) else None


@dataclass(frozen=True)
class Problem:
    """What a method is given, and how its answer is judged. The right answers live in `score` alone."""

    given: Any
    score: Callable[[Any], Mapping[str, float]]


@dataclass(frozen=True)
class Task:
    """Data and a question about them. `dataset` names both in paths; `description` tells a reader of the table."""

    dataset: str
    description: str
    pose: Callable[[int], Problem]
    methods: tuple[str, ...] | None = None  # names of those that are asked; None: all
    runs: int | None = None  # seeds; None: as many as the benchmark says

    def asks(self, method: "Method") -> bool:
        """Tell whether the method is given this task."""
        return self.methods is None or method.name in self.methods


@dataclass(frozen=True)
class Method:
    """A function `adapter` ("module:function" below `methods`), called as function(given, seed=..., **arguments)."""

    name: str
    adapter: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name} ({argument_text(self.arguments)})"

    @classmethod
    def over(cls, name: str, adapter: str, **arguments: Argument | tuple[Argument, ...]) -> tuple["Method", ...]:
        """Return a method for each combination of those arguments that are given several values."""
        lists = [value if isinstance(value, tuple) else (value,) for value in arguments.values()]
        return tuple(cls(name, adapter, dict(zip(arguments, each, strict=True))) for each in product(*lists))

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        place = self.adapter if "." in self.adapter else f"benchmarks.methods.{self.adapter}"
        function: Callable[..., Any] = pkgutil.resolve_name(place)
        return function


@dataclass(frozen=True)
class Benchmark:
    """Tasks, methods, and how their results become a table beside the paper's figures."""

    name: str
    title: str
    tasks: Callable[[Settings], Sequence[Task]]
    methods: tuple[Method, ...]
    tables: tuple[Show, ...]
    notes: tuple[str, ...] = ()  # what differs from the paper, and anything else a reader must know
    runs: int = 3


def never(result: Result) -> bool:
    """Keep nothing: measure by force, also over a file that cannot be read."""
    return False


def choose(methods: Iterable[Method], only: str | None) -> tuple[Method, ...]:
    """Return the methods whose names match `only`, a name or a pattern of the shell's; or all of them."""
    known = tuple(methods)
    chosen = tuple(method for method in known if fnmatchcase(method.name, only or "*"))
    if not chosen:
        raise UnknownNameError("method", str(only), {method.name for method in known})
    return chosen


def run(
    benchmark: Benchmark,
    settings: Settings,
    folder: Path,
    *,
    seeds: Sequence[int] | None = None,
    only: str | None = None,
    keep: Callable[[Result], bool] = lambda result: True,
    say: Say = lambda line: None,
) -> list[Result]:
    """Measure what is not in `folder` yet or not worth to `keep`; write each result at once, return all asked for.

    Without `seeds` each task is posed as often as it, or the benchmark, says.
    """
    methods = choose(benchmark.methods, only)
    session = secrets.token_hex(8)
    results = []
    tasks = [
        (task, range(task.runs or benchmark.runs) if seeds is None else seeds) for task in benchmark.tasks(settings)
    ]
    for seed in sorted({seed for _, own in tasks for seed in own}):
        for task in (task for task, own in tasks if seed in own):
            problem = None
            for method in filter(task.asks, methods):
                wanted = _blank(benchmark, settings, task, method, seed)
                path = result_path(folder, wanted)
                result = read_result(path) if path.exists() and keep is not never else None
                result = result if result is not None and result.ok and keep(result) else None
                if result is None:
                    problem = problem or task.pose(seed)
                    result = _measure(replace(wanted, session=session), method, problem)
                    write_result(path, result)
                    say(f"{_place(result)}: {_outcome(result)}")
                else:
                    say(f"{_place(result)}: kept from {result.finished}")
                results.append(result)
    return results


def recorded(benchmark: Benchmark, settings: Settings, folder: Path) -> Iterator[Result]:
    """Yield every result in `folder` that belongs to the benchmark as it stands, whatever its seed."""
    for task in benchmark.tasks(settings):
        for method in filter(task.asks, benchmark.methods):
            first = result_path(folder, _blank(benchmark, settings, task, method, 0))
            siblings = re.compile(re.escape(first.name.removesuffix("0.json")) + r"\d+\.json")
            paths = [path for path in first.parent.glob("*.json") if siblings.fullmatch(path.name)]
            yield from sorted(map(read_result, paths), key=lambda result: result.seed)


def label(benchmark: Benchmark, settings: Settings) -> str:
    """Return the name under which results and tables are kept; quick and full ones never mix with the others."""
    return benchmark.name + "-quick" * settings.quick + "-full" * settings.full


def _blank(benchmark: Benchmark, settings: Settings, task: Task, method: Method, seed: int) -> Result:
    return Result(label(benchmark, settings), task.dataset, method.name, dict(method.arguments), seed)


def _measure(wanted: Result, method: Method, problem: Problem) -> Result:
    cost, score, output, error = Cost(), {}, None, None
    try:
        function = method.load()
        given = copy.deepcopy(problem.given)
        with measured() as cost:
            answer = function(given, seed=wanted.seed, **method.arguments)
        output = summary(answer)
        score = _finite({name: float(value) for name, value in problem.score(answer).items()})
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}".splitlines()[0]
    return replace(
        wanted,
        error=error,
        score=score,
        output=output,
        machine=machine(),
        packages=package_versions(),
        commit=commit(Path(__file__).parent),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        **asdict(cost),
    )


def summary(answer: Any) -> Any:
    """Describe an answer for the record: arrays by shape, type and SHA-256, containers part by part."""
    if isinstance(answer, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(answer).data).hexdigest()
        return {"shape": list(answer.shape), "dtype": str(answer.dtype), "sha256": digest}
    if isinstance(answer, Mapping):
        return {str(name): summary(part) for name, part in answer.items()}
    return {"type": type(answer).__name__}


def _finite(score: dict[str, float]) -> dict[str, float]:
    for name, value in score.items():
        if not math.isfinite(value):
            raise InputError(f"the score {name!r} is {value}, not a number that can be compared.")
    return score


def _place(result: Result) -> str:
    return f"{result.dataset} {result.method} {argument_text(result.arguments)} seed {result.seed}"


def _outcome(result: Result) -> str:
    return f"failed, {result.error}" if result.error else f"{result.wall_seconds:.2f} s"
