"""What a verification costs: SensorSift's five attackers as our verifier runs them, beside plain scikit-learn."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sift_attacks import ReleasedNumbers
from benchmarks.results import Result
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.attackers import PAPER
from blindsight.sift.evidence import Confidence

WIDTH, THRESHOLD, CONFIDENCE = 5, 0.10, 0.95
LEAKS = {"leaking": 0.9, "harmless": 0.12}
ATTACKERS = tuple(attacker.name for attacker in PAPER)


def tasks(settings: Settings) -> list[Task]:
    """Pose two: a sift that must be rejected, and one that must be accepted, for which all attackers have to run."""
    rows = 1_000 if settings.quick else 20_000
    text = f"{rows:,} drawn rows of {WIDTH} released numbers, {rows // 2:,} to learn from; the sift is {{}}."
    return [Task(f"{name}-{rows}", text.format(name), partial(_pose, leak, rows)) for name, leak in LEAKS.items()]


def _pose(leak: float, rows: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    released = rng.standard_normal((rows, WIDTH)) @ rng.standard_normal((WIDTH, WIDTH))
    z = np.linalg.qr(released - released.mean(axis=0))[0] * np.sqrt(rows)
    signal = 0.6 * z[:, 0] + 0.6 * z[:, 1] * z[:, 2] + 0.5 * np.sin(2 * z[:, 3])
    private = (leak * signal + rng.standard_normal(rows) > 0).astype(np.int8)
    half = rows // 2
    given = ReleasedNumbers(released[:half], private[:half], released[half:])
    return Problem(given, partial(score, private[half:]))


def score(truth: NDArray[np.int8], guess: NDArray[np.int8]) -> dict[str, float]:
    """Judge an attacker's guesses as the verifier does: balanced accuracy, lower end, upper limit."""
    if guess.shape != truth.shape:
        raise InputError(f"guesses must have shape {truth.shape}; got {guess.shape}.")
    interval, limit = Confidence(CONFIDENCE, len(ATTACKERS)).bounds(truth, guess, None)
    return {"balanced_accuracy": balanced_accuracy(truth, guess), "low": interval.low, "limit": limit}


def verdict(results: Sequence[Result]) -> str:
    """Return what follows from all attackers together."""
    if any(result.score["low"] - 0.5 > THRESHOLD for result in results):
        return "reject"
    return "accept" if all(result.score["limit"] - 0.5 <= THRESHOLD for result in results) else "inconclusive"


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show CPU seconds of every attacker, of all five, and the verdicts, task by task."""
    return [
        _grid(dataset, [r for r in results if r.dataset == dataset])
        for dataset in dict.fromkeys(r.dataset for r in results)
    ]


def _grid(dataset: str, results: Sequence[Result]) -> Grid:
    found = {(r.method, str(r.arguments["attacker"]), r.seed, r.session): r for r in results}
    runs = dict.fromkeys((r.seed, r.session) for r in results)
    rows: list[tuple[Cell, ...]] = []
    for attacker in ATTACKERS:
        both = [run for run in runs if ("plain", attacker, *run) in found and ("ours", attacker, *run) in found]
        plain, ours = ([found[method, attacker, *run] for run in both] for method in ("plain", "ours"))
        rows.append((attacker, *_costs([[r] for r in plain], [[r] for r in ours]), *_accuracies(plain, ours)))
    whole = [run for run in runs if all((m, a, *run) in found for m in ("plain", "ours") for a in ATTACKERS)]
    plain_runs, our_runs = ([[found[m, a, *run] for a in ATTACKERS] for run in whole] for m in ("plain", "ours"))
    verdicts = [", ".join(sorted({verdict(run) for run in side})) for side in (plain_runs, our_runs)]
    rows.append(("all five", *_costs(plain_runs, our_runs), *verdicts))
    columns = ("attacker", "scikit-learn, CPU s", "ours, CPU s", "ratio", "scikit-learn reads", "ours reads")
    return Grid(dataset, columns, tuple(rows))


def _costs(
    plain: Sequence[Sequence[Result]], ours: Sequence[Sequence[Result]]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
    slow, fast = (tuple(sum(r.cpu_seconds for r in run) for run in side) for side in (plain, ours))
    return slow, fast, tuple(a / b for a, b in zip(slow, fast, strict=True))


def _accuracies(plain: Sequence[Result], ours: Sequence[Result]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    first, second = (tuple(r.score["balanced_accuracy"] for r in side) for side in (plain, ours))
    return first, second


BENCHMARK = Benchmark(
    name="sift-speed",
    title="Verifying a sift with SensorSift's five attackers",
    tasks=tasks,
    methods=tuple(
        Method(name, f"benchmarks.methods.{module}:run", {"attacker": attacker})
        for name, module in (("plain", "sift_attack_plain"), ("ours", "sift_attack"))
        for attacker in ATTACKERS
    ),
    sections=sections,
    notes=(
        "Both have the paper's parameters and see standardised numbers; scikit-learn's other settings are defaults.",
        "Ours uses scikit-learn-intelex where it is installed (extra `fast`), single precision, and a neural network "
        "with a larger step and an earlier stop. Its random forest splits at 256 quantiles.",
        "CPU seconds add up those of all threads. Set OMP_NUM_THREADS=1 to compare like with like.",
        "What an attacker reads is its balanced accuracy on the rows it did not learn from.",
    ),
    runs=3,
)
