"""What should hold between the figures, whatever the features: asked of the paper's own figures and of ours alike."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from benchmarks.methods.searching import CLAIMED_EPSILONS
from benchmarks.suites.hash_tables.paper import LENGTHS, Figures

UNSUPERVISED = ("LSH", "ITQ", "SH")
SHALLOW = ("KSH", "SDH")
DEEP = ("DPSH", "DSH", "HashNet", "ADSH")
EVERYTHING = UNSUPERVISED + SHALLOW + DEEP
PITQ_EPSILONS = (0.25, 0.5, 1, 4)
CORRECTED = "PITQ, right rotation"
SHORTEST, LONGEST = LENGTHS[0], LENGTHS[-1]


@dataclass(frozen=True)
class Relation:
    """A figure that should be at least `least`; `measure` raises KeyError where what it needs was not measured."""

    said: str
    measure: Callable[[Figures], float]
    least: float

    def values(self, runs: Iterable[Figures]) -> tuple[float, ...]:
        """Return the figure in every run that has all it needs."""
        found = []
        for run in runs:
            try:
                found.append(self.measure(run))
            except KeyError:
                continue
        return tuple(found)


def verdict(values: Sequence[float], least: float, words: tuple[str, str] = ("confirmed", "refuted")) -> str:
    """Compare the mean with the bound, and say where that is little evidence."""
    if not values:
        return "not measured"
    margin = statistics.fmean(values) - least
    said = words[0] if margin >= 0 else words[1]
    if len(values) > 1 and abs(margin) < statistics.stdev(values):
        return f"{said} (within the spread of runs)"
    return said


def _lead(first: Sequence[str], second: Sequence[str], epsilon: float) -> Callable[[Figures], float]:
    """Measure by how much the worst of the first leads the best of the second, at the length where it leads least."""

    def measure(run: Figures) -> float:
        leads = []
        for bits in LENGTHS:
            worst = min(run[name, epsilon, bits] for name in first)
            leads.append(worst - max(run[name, epsilon, bits] for name in second))
        return min(leads)

    return measure


def _growth(learners: Sequence[str], epsilon: float) -> Callable[[Figures], float]:
    """Measure what 48 bits find more than 12."""
    return lambda run: min(run[name, epsilon, LONGEST] - run[name, epsilon, SHORTEST] for name in learners)


def _smallest_step(run: Figures) -> float:
    """Measure the least gain from one epsilon to the next larger, over all learners and lengths."""
    budgets = (*CLAIMED_EPSILONS, inf)
    return min(
        run[name, more, bits] - run[name, less, bits]
        for name in EVERYTHING
        for bits in LENGTHS
        for less, more in pairwise(budgets)
    )


def _kept(run: Figures) -> float:
    """Measure the least share of its mAP that a learner keeps at epsilon 4."""
    return min(run[name, 4, bits] / run[name, inf, bits] for name in EVERYTHING for bits in LENGTHS)


def _equal(method: str) -> Callable[[Figures], float]:
    """Measure the least share of ITQ's mAP that PITQ reaches."""
    return lambda run: min(
        run[method, epsilon, bits] / run["ITQ", inf, bits] for epsilon in PITQ_EPSILONS for bits in LENGTHS
    )


def _above_phashing(run: Figures) -> float:
    return min(run["PITQ", epsilon, bits] - run["ITQ", epsilon, bits] for epsilon in (1, 4) for bits in LENGTHS)


RELATIONS = (
    Relation("supervised above unsupervised: KSH, SDH against LSH, ITQ, SH", _lead(SHALLOW, UNSUPERVISED, inf), 0),
    *(
        Relation(f"deep above shallow supervised: {name} against KSH, SDH{said}", _lead([name], SHALLOW, epsilon), 0)
        for epsilon, said in ((inf, ""), (1, ", epsilon 1"))
        for name in DEEP
    ),
    Relation("mAP rises with epsilon: least step between 1, 2, 4 and none, all learners", _smallest_step, 0),
    *(
        Relation(f"longer codes stand flips better: {name}, 48 bits against 12, epsilon 1", _growth([name], 1), 0)
        for name in UNSUPERVISED
    ),
    Relation(
        "longer codes stand flips better: all supervised, 48 bits against 12, epsilon 1", _growth(SHALLOW + DEEP, 1), 0
    ),
    Relation("PHashing at epsilon 4 close to no privacy: share of mAP kept, all learners", _kept, 0.95),
    Relation("PITQ as good as ITQ, as published: share of ITQ's mAP", _equal("PITQ"), 0.98),
    Relation("PITQ as good as ITQ, right rotation: share of ITQ's mAP", _equal(CORRECTED), 0.98),
    Relation("PITQ above PHashing (ITQ) at epsilon 1 and 4", _above_phashing, 0),
)
