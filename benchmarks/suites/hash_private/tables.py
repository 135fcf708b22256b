"""What is found at each record-level epsilon, beside the reference and the targets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.methods.searching import RECORD_EPSILONS
from benchmarks.results import Result
from benchmarks.suites.hash_private.cases import HALF, LENGTHS
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.table import Cell, Grid
from blindsight.search.flipping import paper_beta, record_loss

Values = tuple[float, ...]

LONGEST = LENGTHS[-1]
DASHES = ("-",) * len(RECORD_EPSILONS)
NAMES = {
    "response": "randomised response on every bit",
    "ball": "Hamming ball",
    "codebook": "plain k-means codebook (k = 3, 6, 10, 32) and k-ary response",
    "local": "our local mode",
    "labels": "plain classifier of public labels and k-ary response",
    "local-labels": "our local mode with public labels",
    "central": "our central mode: codes stay at home (delta 1e-6, 64 bits)",
}
REFERENCE: dict[str, Values] = {  # by method, at epsilon 1, 2, 4 and 8
    "response, 48 bits": (0.103, 0.107, 0.115, 0.133),
    "response": (0.131, 0.156, 0.213, 0.280),
    "ball, 48 bits": (0.121, 0.147, 0.217, 0.338),
    "ball": (0.136, 0.188, 0.293, 0.392),
    "codebook": (0.138, 0.194, 0.364, 0.499),
    "labels": (0.137, 0.233, 0.545, 0.690),
    "central": (0.471, 0.500, 0.511, 0.527),
}
PUBLISHED: dict[str, tuple[str, ...]] = {
    "phashing": ("0.249", "0.471", "0.526", "-"),
    "pitq": ("0.533", "-", "-", "-"),
    "ITQ": ("0.533",),
    "LSH": ("0.396",),
    "SH": ("0.295",),
}
TARGETS: dict[tuple[str, str], Values] = {
    ("local", "at least"): (0.138, 0.194, 0.364, 0.499),
    ("local", "hoped for"): (0.15, 0.22, 0.40, 0.52),
    ("central", "at least"): (0.47, 0.50, 0.51, 0.53),
}


@dataclass(frozen=True)
class Measured:
    """All figures on one collection."""

    results: Sequence[Result]

    @classmethod
    def on(cls, results: Sequence[Result], dataset: str) -> "Measured":
        """Keep the results on this collection."""
        return cls([result for result in results if result.dataset == dataset])

    def of(self, measure: str, **arguments: object) -> Values:
        """Return a figure's value in all runs, of the methods with these arguments."""
        chosen = (r for r in self.results if arguments.items() <= r.arguments.items())
        return tuple(r.score[measure] for r in chosen if measure in r.score)

    def best(self, mechanism: str, epsilon: int) -> tuple[Values, int]:
        """Return the figures with the number of bits that finds most, and that number; 0 if nothing was measured."""
        by_length = {bits: self.of(f"{mechanism}/{epsilon}", bits=bits) for bits in LENGTHS}
        measured = {bits: values for bits, values in by_length.items() if values}
        if not measured:
            return (), 0
        bits = max(measured, key=lambda length: statistics.fmean(measured[length]))
        return measured[bits], bits


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return the targets, then a table for every collection, then what lacks privacy per record."""
    fashion, cifar, half = (Measured.on(results, name) for name in ("fashion-mnist", "cifar10", HALF))
    return [
        _targets(fashion),
        _record_level("Fashion-MNIST: mAP by record-level epsilon", fashion, REFERENCE),
        _half(half, fashion),
        _not_record_level("Fashion-MNIST: mAP of what does not protect a record, 48 bits", fashion, PUBLISHED),
        _record_level("CIFAR-10: mAP by record-level epsilon", cifar, {}),
        _not_record_level("CIFAR-10: mAP of what does not protect a record, 48 bits", cifar, {}),
    ]


def _targets(found: Measured) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for (mode, said), bounds in TARGETS.items():
        verdicts = []
        for epsilon, bound in zip(RECORD_EPSILONS, bounds, strict=True):
            reached = verdict(found.of(f"{mode}/{epsilon}"), bound, ("reached", "missed"))
            verdicts.append(f"{bound:g}: {reached}")
        rows.append((f"{mode} mode, {said}", *verdicts))
    columns = ("", *(f"epsilon {epsilon}" for epsilon in RECORD_EPSILONS))
    return Grid("Targets on Fashion-MNIST (mAP; local mode without labels)", columns, tuple(rows))


def _record_level(title: str, found: Measured, reference: dict[str, Values]) -> Grid:
    rows: list[tuple[Cell, ...]] = []

    def add(said: str, ours: Sequence[Cell], known: Sequence[str] = DASHES) -> None:
        pairs = zip(known, ours, strict=True)
        rows.append((said, *(cell for pair in pairs for cell in (pair if reference else pair[1:]))))

    for name, said in NAMES.items():
        if name in ("response", "ball"):
            fixed = [found.of(f"{name}/{epsilon}", bits=LONGEST) for epsilon in RECORD_EPSILONS]
            add(f"{said}, {LONGEST} bits", fixed, _texts(reference, f"{name}, {LONGEST} bits"))
            best = [found.best(name, epsilon) for epsilon in RECORD_EPSILONS]
            add(f"{said}, the best length", [values for values, _ in best], _texts(reference, name))
            add("that length", [str(bits or "-") for _, bits in best])
        else:
            add(said, [found.of(f"{name}/{epsilon}") for epsilon in RECORD_EPSILONS], _texts(reference, name))
    whose = (", reference", ", ours") if reference else ("",)
    columns = ("", *(f"epsilon {epsilon}{who}" for epsilon in RECORD_EPSILONS for who in whose))
    return Grid(title, columns, tuple(rows), "Chance is 0.10.")


def _texts(reference: dict[str, Values], name: str) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in reference[name]) if name in reference else DASHES


def _half(half: Measured, whole: Measured) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for name in ("codebook", "local", "labels", "local-labels"):
        pairs = ((whole.of(f"{name}/{epsilon}"), half.of(f"{name}/{epsilon}")) for epsilon in RECORD_EPSILONS)
        rows.append((NAMES[name], *(cell for pair in pairs for cell in pair)))
    columns = ("", *(f"epsilon {epsilon}, {kept}" for epsilon in RECORD_EPSILONS for kept in ("all", "half")))
    title = "Fashion-MNIST: mAP where the public pictures lack half of the classes"
    note = "Public pictures of all ten classes, as above, or of five. Reference, codebook, epsilon 4: 0.36 and 0.29."
    return Grid(title, columns, tuple(rows), note)


def _not_record_level(title: str, found: Measured, reference: dict[str, tuple[str, ...]]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for name, said in (("phashing", "PHashing (ITQ)"), ("pitq", "PITQ, as published")):
        ours = [found.of(f"{name}/{epsilon}") for epsilon in RECORD_EPSILONS]
        rows.append((said, *ours, "-"))
        if name in reference:
            rows.append((f"{said}, reference", *reference[name], "-"))
    for name in ("ITQ", "LSH", "SH"):
        known = f" (reference {reference[name][0]})" if name in reference else ""
        rows.append((f"{name}, nothing hidden{known}", *DASHES, found.of("none", learner=name)))
    true = (f"{record_loss(paper_beta(epsilon), LONGEST):.1f}" for epsilon in RECORD_EPSILONS)
    rows.insert(0, ("PHashing's true epsilon per record, were its function public", *true, "-"))
    columns = ("", *(f"claimed {epsilon}" for epsilon in RECORD_EPSILONS), "none")
    note = (
        "Functions are learned from the private rows, as in the paper; with that, PHashing has no finite epsilon. "
        "PITQ has none in any case: it releases the true codes."
    )
    return Grid(title, columns, tuple(rows), note)
