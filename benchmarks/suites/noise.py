"""The price of noise that keeps its promise: our exact samplers beside numpy's fast and leaky ones and a plain loop."""

from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import laplace, norm

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.noise import NoiseRequest
from benchmarks.results import Result
from benchmarks.table import Found, Table, ratios
from blindsight.errors import InputError

SCALE = 2.0
NAMES = {"blindsight": "Blindsight, exact", "numpy": "numpy, insecure", "python_loop": "Python loop, OS randomness"}
LAWS: tuple[Literal["laplace", "gaussian"], ...] = ("laplace", "gaussian")
_RATIOS = {"ours / numpy": ("blindsight", "numpy"), "Python loop / ours": ("python_loop", "blindsight")}


def tasks(settings: Settings) -> list[Task]:
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
    below = (norm if law == "gaussian" else laplace).cdf(values / SCALE)
    places = np.arange(values.size + 1) / values.size
    distance = float(max(np.max(places[1:] - below), np.max(below - places[:-1])))
    bound = float(np.sqrt(np.log(2e9) / (2 * values.size))) + 0.0005
    if not distance <= bound:
        raise InputError(f"this is not {law} noise: its distribution is {distance:.4f} away; {bound:.4f} is allowed.")
    return {"values": float(values.size), "distance": distance}


def nanoseconds(result: Result) -> float:
    return 1e9 * result.cpu_seconds / result.score["values"]


def _ratio(above: str, below: str, found: Found) -> tuple[float, ...]:
    return ratios(found(method=above), found(method=below), nanoseconds)


BENCHMARK = Benchmark(
    name="noise",
    title="The price of secure noise",
    tasks=tasks,
    methods=(
        Method("blindsight", "noise:secure", {"values": 1_000_000}),
        Method("numpy", "noise:by_numpy", {"values": 1_000_000}),
        Method("python_loop", "noise:python_loop", {"values": 50_000}),
    ),
    tables=(
        Table(
            "CPU nanoseconds a value",
            {f"{law}: {said}": {"dataset": law, "method": name} for law in LAWS for name, said in NAMES.items()},
            common={"figure": nanoseconds},
            digits=1,
        ),
        Table(
            "Ratios in the same run",
            {
                f"{law}: {said}": {"dataset": law, "values": partial(_ratio, *pair)}
                for said, pair in _RATIOS.items()
                for law in LAWS
            },
            digits=1,
        ),
    ),
    notes=(
        "Ours draws from the operating system and from an exact distribution on a grid; numpy "
        "is seeded and leaves floating-point gaps; the loop has the gaps but not the seed.",
    ),
    runs=5,
)
