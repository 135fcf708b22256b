"""Accuracy against epsilon: noise inside the sum beside a trusted curator, local noise, the papers' noise and none."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.learning import OwnersData, Pair
from benchmarks.pictures import drawn, pictures, usable
from benchmarks.results import Result
from benchmarks.suites.dphe_tables import FILES
from benchmarks.table import Cell, Grid
from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy
from blindsight.rng import science

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
PUBLIC = 1000  # of CIFAR-10's test pictures
ROUNDS = 20
CALTECH = "caltech101"
_CURATOR, _SUMMED = "curator", "summed"
_ROWS = {
    "public": "the public data alone",
    "prr10": "PRR10, with the noise that is proven",
    "ra12": "RA12, with the noise that is proven",
    "local": "local noise: each owner trusts nobody",
    "summed-hostile": "noise in the sum, c = 1, d = n - t",
    _SUMMED: "noise in the sum, c = d = 0",
    _CURATOR: "a trusted curator of all records",
    "none": "no privacy",
}


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    posed = []
    if settings.quick:
        return [Task("drawn-5", "drawn numbers, 5 owners.", partial(_pose_drawn, 5))]
    if settings.recorded or _fetched():
        for owners in (5, 50):
            said = f"CIFAR-10, EfficientNet-lite0 features (1280): its 50,000 training pictures with {owners} owners,"
            said += f" {PUBLIC:,} of its test pictures public, the others to test."
            posed.append(Task(f"cifar10-{owners}", said, partial(_pose_cifar, settings, owners)))
    if path := settings.file(FILES["caltech101-1280"]):
        said = f"Caltech-101 without background ({path.name}): 3 public and 27 private pictures a class, 5 owners, at "
        posed.append(Task(CALTECH, f"{said}most 50 a class to test.", partial(_pose_caltech, settings, 5)))
    if not posed:
        raise InputError("learn-epsilon needs cifar10 (fetched) or, by --data-dir, Caltech-101; --quick needs none.")
    return posed


def _fetched() -> bool:
    try:
        return bool(usable(Settings(), ("cifar10",)))
    except InputError:
        return False


def _pose_drawn(owners: int, seed: int) -> Problem:
    (features, labels), rng = drawn(3000, 40), science(seed)
    order = rng.permutation(len(features))
    return _posed(features, labels, order[:200], order[200:2200], order[2200:], owners, rng)


def _pose_cifar(settings: Settings, owners: int, seed: int) -> Problem:
    (features, labels), rng = pictures(settings, "cifar10"), science(seed)
    test = 50_000 + rng.permutation(10_000)
    return _posed(features, labels, test[:PUBLIC], np.arange(50_000), test[PUBLIC:], owners, rng)


def _pose_caltech(settings: Settings, owners: int, seed: int) -> Problem:
    assert settings.data_dir is not None
    (features, labels), rng = _caltech(str(settings.data_dir / FILES["caltech101-1280"])), science(seed)
    rows = [rng.permutation(np.flatnonzero(labels == number)) for number in range(labels.max() + 1)]
    public, private, test = (
        np.concatenate([row[part] for row in rows]) for part in (slice(3), slice(3, 30), slice(30, 80))
    )
    return _posed(features, labels, public, private, test, owners, rng)


@cache
def _caltech(path: str) -> Pair:
    from blindsight.data import load

    dataset = load("caltech101", path=path, background=False)
    assert dataset.features is not None
    assert dataset.labels is not None
    return dataset.features, dataset.labels


def _posed(
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    public: NDArray[np.int64],
    private: NDArray[np.int64],
    test: NDArray[np.int64],
    owners: int,
    rng: np.random.Generator,
) -> Problem:
    shares = np.array_split(rng.permutation(private), owners)
    given = OwnersData(
        (features[public], labels[public]), tuple((features[share], labels[share]) for share in shares), features[test]
    )
    return Problem(given, partial(_score, labels[test]))


def _score(answers: NDArray[np.int64], scores: NDArray[np.float64]) -> dict[str, float]:
    return {"accuracy": 100 * balanced_accuracy(answers, scores.argmax(axis=1))}


def _methods() -> tuple[Method, ...]:
    made = [Method("public", "learning:public"), Method("none", "learning:none", {"rounds": 10})]
    for epsilon in EPSILONS:
        budget = {"epsilon": epsilon, "delta": DELTA}
        made += [Method(name, f"learning:proven_{name}", budget) for name in ("prr10", "ra12")]
        made.append(Method(_CURATOR, "learning:curator", {"rounds": ROUNDS, **budget}))
        for name, against in ((_SUMMED, "nobody"), ("summed-hostile", "one"), ("local", "all")):
            made.append(Method(name, "learning:summed", {"rounds": ROUNDS, "against": against, **budget}))
    return tuple(made)


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show a table per collection, and how far the sums are from the curator."""
    grids = []
    for dataset in dict.fromkeys(result.dataset for result in results):
        found = [result for result in results if result.dataset == dataset]

        def cell(method: str, epsilon: float, found: list[Result] = found) -> Cell:
            return tuple(
                result.score["accuracy"]
                for result in found
                if result.method == method and result.arguments.get("epsilon", epsilon) == epsilon
            )

        rows: list[tuple[Cell, ...]] = [
            (said, *(cell(name, epsilon) for epsilon in EPSILONS)) for name, said in _ROWS.items()
        ]
        gaps = tuple(_mean(cell(_SUMMED, epsilon)) - _mean(cell(_CURATOR, epsilon)) for epsilon in EPSILONS)
        rows.append(("the sum's points above the curator", *(f"{gap:+.2f}" for gap in gaps)))
        title = f"{dataset}: class-average accuracy in per cent by the epsilon of a record"
        grids.append(Grid(title, ("", *(f"epsilon {epsilon:g}" for epsilon in EPSILONS)), tuple(rows)))
    return grids


def _mean(values: Cell) -> float:
    return float(np.mean([float(value) for value in values])) if values else float("nan")


BENCHMARK = Benchmark(
    name="learn-epsilon",
    title="Learning together with a proven epsilon",
    tasks=tasks,
    methods=_methods(),
    sections=sections,
    notes=(
        f"Delta is {DELTA:g} everywhere; a record is added or removed. Rounds: {ROUNDS}; every record is in every one.",
        "The sums are added up in the clear here, which all schemes share bit for bit; t is floor(2n/3) + 1.",
        "The curator takes the same steps with textbook Gaussian noise on the pooled sum, in one place.",
        "PRR10 and RA12 have features clipped to the root of their number, public data appended to every owner's, and "
        "the noise that proves epsilon for one (replaced) record in all classes, weights and rounds. The papers count "
        "one binary classifier, PRR10 by Euclidean instead of L1 length, RA12 one gradient: that takes far less noise.",
        "The constants of the descent (the time it takes, its longest step, 512 components) were chosen by the test "
        "accuracy of two splits of Caltech-101 and one of CIFAR-10 such as these. It flatters the sum and the curator "
        "alike, and no epsilon here counts it; on data of one's own they are taken as they are.",
        "A figure without ± is of one run, seed 0.",
        "No privacy: ten rounds of FedAvg on all weights, as `FederatedClassifier` learns without epsilon.",
    ),
    runs=3,
)
