"""The price of noise that keeps its promise: our exact samplers beside numpy's fast and leaky ones and a plain loop."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.noise import NoiseRequest
from benchmarks.results import Result
from benchmarks.table import Row, Section
from blindsight.errors import InputError

SCALE = 2.0
NAMES = {"blindsight": "Blindsight, exact", "numpy": "numpy, insecure", "python_loop": "Python loop, OS randomness"}
LAWS: tuple[Literal["laplace", "gaussian"], ...] = ("laplace", "gaussian")


def tasks(settings: Settings) -> list[Task]:
    """Pose one task per law: independent draws around zero, as many as the method's arguments say."""
    return [Task(law, f"Draws of scale {SCALE:g}; no data.", partial(_pose, law)) for law in LAWS]


def _pose(law: Literal["laplace", "gaussian"], seed: int) -> Problem:
    return Problem(NoiseRequest(law, SCALE), partial(score, law))


def score(law: str, drawn: NDArray[np.float64]) -> dict[str, float]:
    """Count the values, after a check that they follow the law: speed is worth nothing otherwise.

    A right sampler is refused with probability below 1e-9 (Dvoretzky-Kiefer-Wolfowitz; .0005 are granted to steps of
    the grid on which secure noise lives).
    """
    values = np.sort(np.asarray(drawn, dtype=np.float64))
    if values.ndim != 1 or not values.size:
        raise InputError(f"noise must be a list of numbers; got shape {values.shape}.")
    below = _distribution(law, values / SCALE)
    places = np.arange(values.size + 1) / values.size
    distance = float(max(np.max(places[1:] - below), np.max(below - places[:-1])))
    bound = float(np.sqrt(np.log(2e9) / (2 * values.size))) + 0.0005
    if not distance <= bound:
        raise InputError(f"this is not {law} noise: its distribution is {distance:.4f} away; {bound:.4f} is allowed.")
    return {"values": float(values.size), "distance": distance}


def _distribution(law: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
    if law == "gaussian":
        return np.asarray(ndtr(x))
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def sections(results: Sequence[Result]) -> list[Section]:
    """Show CPU time per value, and ours as a multiple of the others' in the same run."""
    cost = {(r.dataset, r.method, r.seed, r.session): 1e9 * r.cpu_seconds / r.score["values"] for r in results}
    runs = dict.fromkeys((result.seed, result.session) for result in results)

    def times(law: str, method: str) -> tuple[float, ...]:
        return tuple(cost[law, method, *run] for run in runs if (law, method, *run) in cost)

    def ratios(law: str, above: str, below: str) -> tuple[float, ...]:
        both = [run for run in runs if (law, above, *run) in cost and (law, below, *run) in cost]
        return tuple(cost[law, above, *run] / cost[law, below, *run] for run in both)

    pairs = [(law, method) for law in LAWS for method in NAMES]
    slower = [Row(f"{law}: ours / numpy", ratios(law, "blindsight", "numpy")) for law in LAWS]
    faster = [Row(f"{law}: Python loop / ours", ratios(law, "python_loop", "blindsight")) for law in LAWS]
    return [
        Section("CPU nanoseconds a value", tuple(Row(f"{a}: {NAMES[b]}", times(a, b)) for a, b in pairs), digits=1),
        Section("Ratios in the same run", (*slower, *faster), digits=1),
    ]


BENCHMARK = Benchmark(
    name="noise",
    title="The price of secure noise",
    tasks=tasks,
    methods=(
        Method("blindsight", "noise:secure", {"values": 1_000_000}),
        Method("numpy", "noise:by_numpy", {"values": 1_000_000}),
        Method("python_loop", "noise:python_loop", {"values": 50_000}),
    ),
    sections=sections,
    notes=(
        "Ours draws from the operating system and from an exact distribution on a grid; numpy "
        "is seeded and leaves floating-point gaps; the loop has the gaps but not the seed.",
    ),
    runs=5,
)
