"""How much of a change must be shared, chosen how, and what residuals bring."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.selective import SHARES, OwnPhotos
from benchmarks.pictures import usable
from benchmarks.results import Argument, Result
from benchmarks.suites.ppdl_days import CLASSES, Labelled, features
from benchmarks.table import Cell, Grid, verdict
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.extras import Module, load_torch, seeded
from blindsight.rng import science
from blindsight.selective.timeline import MakeTrainer, Photos
from blindsight.selective.trainers import NetworkTrainer, SoftmaxTrainer

PARTICIPANTS = 10
EPOCHS = {"digits": 30, "photos": 1}
TRAINING = {"digits": 1_437, "photos": 20_000}
THRESHOLDS = {"digits": 2e-4, "photos": 3e-4}  # set from the changes of one step each
RATES = {"digits": 0.2, "photos": 0.01}
_PUBLIC = 200  # photos that give the scales of features


def tasks(settings: Settings) -> list[Task]:
    """Pose both collections, as far as they and torch are here."""
    posed = []
    if find_spec("torch"):
        text = "1,437 of 1,797 handwritten digits (8 x 8) of ten participants, the others to be told; 13,706 parameters"
        posed.append(Task("digits", f"{text}.", partial(_pose_digits, settings)))
    usable(settings, ("cifar10",))
    what = "drawn numbers" if settings.quick else "CIFAR-10, EfficientNet-lite0 features (1280)"
    text = f"{what} of {', '.join(CLASSES)}, 20,000 photos of ten participants, the others to be told; 5,124 parameters"
    return [*posed, Task("photos", f"{text}.", partial(_pose_photos, settings))]


def _pose_digits(settings: Settings, seed: int) -> Problem:
    from sklearn.datasets import load_digits

    bundle = load_digits()
    pictures = (bundle.images[:, None] / 16).astype(np.float32)
    make = partial(NetworkTrainer, small_network(seed), learning_rate=RATES["digits"])
    epochs = 1 if settings.quick else EPOCHS["digits"]
    return _pose("digits", (pictures, bundle.target.astype(np.int64)), make, epochs, seed, TRAINING["digits"])


def _pose_photos(settings: Settings, seed: int) -> Problem:
    rows, labels = features(settings)
    order = science(seed).permutation(len(labels))
    public, rest = order[:_PUBLIC], order[_PUBLIC:]
    make = partial(
        SoftmaxTrainer, standardiser=Standardiser.fit(rows[public]), classes=len(CLASSES), learning_rate=RATES["photos"]
    )
    count = 800 if settings.quick else TRAINING["photos"]
    return _pose("photos", (rows[rest], labels[rest]), make, EPOCHS["photos"], seed, count)


def _pose(name: str, labelled: Labelled, make: MakeTrainer, epochs: int, seed: int, count: int) -> Problem:
    inputs, labels = labelled
    order = science(seed).permutation(len(labels))
    shares = np.array_split(order[:count], PARTICIPANTS)
    participants: Mapping[str, Photos] = {
        f"participant {number}": Photos(inputs[rows], labels[rows]) for number, rows in enumerate(shares, start=1)
    }
    test = order[count:]
    given = OwnPhotos(participants, make, epochs, THRESHOLDS[name], inputs[test])
    return Problem(given, partial(score, labels[test]))


def score(truth: NDArray[np.int64], told: NDArray[np.int64]) -> dict[str, float]:
    """Return the fraction of photos told rightly, on average over the models there are."""
    if told.ndim != 2 or told.shape[1] != len(truth):
        raise InputError(f"each model answers to all {len(truth)} photos; got shape {told.shape}.")
    return {"accuracy": float(np.mean(told == truth))}


def small_network(seed: int) -> Module:
    """Return two convolutions and two linear layers with fresh weights: 13,706 parameters."""
    nn: Any = load_torch().nn
    with seeded(science(seed), "cpu"):
        return nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)),
        )


Values = tuple[float, ...]

TITLES = {"digits": "Digits, a network of 13,706 parameters", "photos": "CIFAR-10, a head of 5,124 parameters"}
WAYS = tuple((select, residual) for select in ("largest", "random", "threshold") for residual in (False, True))
REFERENCE: Mapping[str, Mapping[float, str]] = {
    "largest": {0.1: ".971", 0.01: ".929"},
    "largest with residuals": {0.1: ".976", 0.01: ".973"},
    "random": {0.1: ".934", 0.01: ".202"},
}


def arguments(share: float, select: str, residual: bool) -> dict[str, Argument]:
    """Return the arguments of one way to share; where everything is shared there is nothing to select."""
    return {"share": share, "select": select, "residual": residual}


def measured_ways() -> list[dict[str, Argument]]:
    """Return all that are measured: the threshold, which few changes reach, only below a half."""
    ways = [arguments(1.0, "largest", residual=False)]
    ways += [arguments(s, select, r) for s in SHARES if s < 1 for select, r in WAYS if select != "threshold" or s < 0.5]
    return ways


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return a table for each collection, then the relations."""
    tables = [_shares(results, name) for name in TITLES if any(r.dataset == name for r in results)]
    return [*tables, _relations(results)]


def _values(results: Sequence[Result], dataset: str, **wanted: Argument) -> dict[int, float]:
    chosen = (r for r in results if r.dataset == dataset and r.arguments == wanted)
    return {result.seed: result.score["accuracy"] for result in chosen}


def _way(results: Sequence[Result], dataset: str, share: float, select: str, residual: bool) -> dict[int, float]:
    if share == 1:
        select, residual = "largest", False
    return _values(results, dataset, **arguments(share, select, residual))


def _shares(results: Sequence[Result], dataset: str) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for select, residual in WAYS:
        said = f"{select}{' with residuals' if residual else ''}"
        cells = [
            "-"
            if select == "threshold" and share == 1
            else tuple(_way(results, dataset, share, select, residual).values())
            for share in SHARES
        ]
        rows.append((said, *cells))
        if dataset == "digits" and said in REFERENCE:
            rows.append((f"{said}, reference", *(REFERENCE[said].get(share, "-") for share in SHARES)))
    dashes = ("-",) * (len(SHARES) - 1)
    for line, known in (("centralised", ".979"), ("alone", ".818")):
        beside = f" (reference {known})" if dataset == "digits" else ""
        rows.append((f"{line}{beside}", tuple(_values(results, dataset, line=line).values()), *dashes))
    columns = ("selection", *(f"share {share:g}" for share in SHARES))
    return Grid(TITLES[dataset], columns, tuple(rows), "Fraction of the test photos told rightly.")


def _relations(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for dataset in TITLES:
        central = _values(results, dataset, line="centralised")

        def way(share: float, select: str, residual: bool, dataset: str = dataset) -> dict[int, float]:
            return _way(results, dataset, share, select, residual)

        asked = [
            ("largest 0.1 within 1 point of centralised", _points(way(0.1, "largest", False), central), -1.0),
            (
                "residuals rescue 0.01: within 1 point of centralised",
                _points(way(0.01, "largest", True), central),
                -1.0,
            ),
            (
                "residuals rescue 0.01: with and without, largest",
                _points(way(0.01, "largest", True), way(0.01, "largest", False)),
                0.0,
            ),
            ("largest above random, 0.1", _points(way(0.1, "largest", False), way(0.1, "random", False)), 0.0),
            ("largest above random, 0.01", _points(way(0.01, "largest", False), way(0.01, "random", False)), 0.0),
            (
                "sharing 0.01 at random is better than learning alone",
                _points(way(0.01, "random", False), _values(results, dataset, line="alone")),
                0.0,
            ),
        ]
        rows += [(f"{dataset}: {said}", values, f"{least:+g}", verdict(values, least)) for said, values, least in asked]
    return Grid("Relations", ("relation", "points measured", "at least", "verdict"), tuple(rows))


def _points(first: Mapping[int, float], second: Mapping[int, float]) -> Values:
    return tuple(100 * (first[seed] - second[seed]) for seed in first if seed in second)


BENCHMARK = Benchmark(
    name="ppdl-share",
    title="Selective sharing: how much, chosen how, with residuals or without",
    tasks=tasks,
    methods=(
        *(Method("unshared", "selective:unshared", {"line": line}) for line in ("centralised", "alone")),
        *(Method("selective", "selective:selective", arguments) for arguments in measured_ways()),
    ),
    sections=sections,
    notes=(
        "Ten participants upload in turn, after every 32 photos, and download everything; no bound, no noise. What is "
        "shared is scored by the server's model, learning alone by everyone's own.",
        f"Plain gradients: digits {EPOCHS['digits']} epochs with a learning rate of {RATES['digits']}, photos "
        f"{EPOCHS['photos']} epoch with {RATES['photos']}. For digits three rates were tried on another seed: with "
        "this one the centralised line was best, and figures came nearest to the reference.",
        f"The threshold is {THRESHOLDS['digits']} for digits and {THRESHOLDS['photos']} for photos: about what a fifth "
        "of all changes reached in one step that was looked at, of digits at half the learning rate. Of those that "
        "reach it, as many as the share allows are drawn at random.",
        "Reference: an earlier measurement on digits by other code with a network of the same size; its number of "
        "epochs and its learning rate are not known.",
    ),
    runs=3,
)
