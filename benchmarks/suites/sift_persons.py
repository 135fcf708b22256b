"""Whether bounds hold where people have several pictures: counted as if pictures were people, and as people.

A bound is drawn many times, from other people each time, and held against a truth that is known: *simulated* people,
whose bit gains .08; *drawn* people, whose truth is counted on all of them; and the forty people of *ORL* with an
attribute that is tossed for each of them, of which no picture tells anything. A certified bound below the truth is a
broken promise, a lower end above it a leak that was "proven" and is none: either may happen in 5% of the draws.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifts import Draw
from benchmarks.results import Result
from benchmarks.table import Cell, Grid
from blindsight.errors import DataError

DRAWS, PEOPLE, GAIN = 100, 1000, 0.08
PUBLIC, PRIVATE, PICTURES, DEVELOPERS, JUDGED = "smiling", "male", 6, 200, 250
DRAWN = 900


Draws = tuple[list[Draw], float]


def tasks(settings: Settings) -> list[Task]:
    """Pose simulated people alone where it must be quick; ORL where it was fetched."""
    draws = 20 if settings.quick else DRAWS
    several = f"{PEOPLE:,} people, one to ten pictures of each"
    found = [
        Task("simulated", f"{several}, alike with 70%.", partial(_pose, partial(_simulated, draws, 10))),
        Task("one-of-many", f"{several}, 527 of one of them.", partial(_pose, partial(_simulated, draws, 527))),
    ]
    if settings.quick:
        return found
    text = f"{JUDGED} of {DRAWN - DEVELOPERS:,} drawn people, 1 to {PICTURES} pictures each; a bit hides {PRIVATE}."
    found.append(Task("faces", text, partial(_pose, partial(_faces, draws))))
    if settings.recorded or _orl_pixels() is not None:
        text = "40 people, ten photographs of each; the sign of a principal component, an attribute tossed per person."
        found.append(Task("orl", text, partial(_pose, partial(_orl, draws))))
    return found


def _pose(make: Callable[[int], Draws], seed: int) -> Problem:
    draws, truth = make(seed)
    return Problem(draws, partial(_score, truth))


def _score(truth: float, answer: list[tuple[float, float]]) -> dict[str, float]:
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
    assert drawn.images is not None
    assert drawn.persons is not None
    who = np.unique(drawn.persons, return_inverse=True)[1]
    mine, theirs = who < DEVELOPERS, who >= DEVELOPERS
    pixels = PixelFeatures(max_components=60).fit(drawn.images[mine])
    X, labels = pixels.transform(drawn.images), {name: drawn.attribute(name) for name in (PUBLIC, PRIVATE)}
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
    assert photographs.images is not None
    small = np.asarray(photographs.images, dtype=np.float64)[:, ::4, ::4].reshape(len(photographs), -1)
    return small, np.unique(np.asarray(photographs.persons), return_inverse=True)[1]


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show every collection, pictures beside people."""
    figures = ("truth", "mean bound", "bounds below the truth", "leaks proven beyond it")
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        shown: list[Any] = [f"{result.score[name]:.3f}" for name in figures[:2]]
        shown += [f"{result.score[name]:.1%}" for name in figures[2:]]
        rows.append((result.dataset, result.method, *shown))
    note = f"PrivLoss of one bit; {DRAWS} draws of people. Bounds at 95%: the last two columns may reach 5%."
    return [Grid("Bounds over people", ("collection", "counted", *figures), tuple(rows), note)]


BENCHMARK = Benchmark(
    name="sift-persons",
    title="Bounds where people have several pictures",
    tasks=tasks,
    methods=tuple(Method(name, "sifts:persons", {"persons": name == "people"}) for name in ("pictures", "people")),
    sections=sections,
    notes=(
        "Draws of drawn people overlap, since there are only so many; the truth is counted on all of them.",
        "ORL has no attributes, so one is tossed for each person: whoever counts pictures finds what is not there.",
    ),
    runs=1,
)
