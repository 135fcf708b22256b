"""Private search by the epsilon of a record: every mechanism, the paper's, and none; what was chosen, and P@10."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.hashing import RECORD_EPSILONS, Floats, Labels, PrivateCollection
from benchmarks.pictures import Pictures, described, pictures, usable
from benchmarks.results import Result
from benchmarks.suites.dphe_tables import FILES
from benchmarks.suites.hash_tables import score_first
from benchmarks.table import Cell, Grid, verdict
from blindsight.rng import science
from blindsight.search.flipping import paper_beta, record_loss

SIZES = (20_000, 20_000, 500)  # public, private, queries
CALTECH_SIZES = (5_681, 2_496, 500)
LENGTHS = (1, 2, 4, 8, 16, 48)
HALF, CALTECH, UNRELATED = "fashion-mnist-half", "caltech101", "caltech101-unrelated"
_LEARN_FROM_PUBLIC = ("codebook", "labels", "local", "local-labels")
_PIXELS = (*_LEARN_FROM_PUBLIC, "bits", "central", "central-start", "published", "nothing-hidden")


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    posed = []
    names = ("fashion-mnist",) if settings.quick else ("fashion-mnist", "cifar10")  # drawn numbers would be the same
    for name in usable(settings, names):
        text = f"{described(settings, name)}: {_sized(SIZES)}"
        asked = _PIXELS if name == "fashion-mnist" else None  # the shipped codebook is for embeddings
        posed.append(Task(name, f"{text}.", partial(_pose, settings, name), asked))
        if name == "fashion-mnist":
            half = partial(_pose, settings, name, half=True)
            posed.append(Task(HALF, f"{text}, the public ones of five of the ten classes.", half, _LEARN_FROM_PUBLIC))
    if settings.file(FILES["caltech101-1280"]) and not settings.quick:
        text = f"Caltech-101, 8,677 pictures of 101 kinds, EfficientNet-lite0 features (1280): {_sized(CALTECH_SIZES)}"
        posed.append(Task(CALTECH, f"{text}.", partial(_pose_caltech, settings)))
        if "cifar10" in usable(settings, ("fashion-mnist", "cifar10")):
            elsewhere = partial(_pose_caltech, settings, unrelated=True)
            text += ", the public ones of CIFAR-10"
            posed.append(Task(UNRELATED, f"{text}.", elsewhere, ("codebook", "local", "central-start")))
    return posed


def _sized(sizes: tuple[int, int, int]) -> str:
    return "{:,} public, {:,} private, {:,} queries, drawn by the seed".format(*sizes)


def _pose(settings: Settings, name: str, seed: int, *, half: bool = False) -> Problem:
    (features, labels), sizes = pictures(settings, name), (200, 300, 50) if settings.quick else SIZES
    public, private, queries = divided(labels, sizes, seed, half=half)
    return _problem((features, labels), (features[public], labels[public]), private, queries)


def _pose_caltech(settings: Settings, seed: int, *, unrelated: bool = False) -> Problem:
    assert settings.data_dir is not None
    with np.load(settings.data_dir / FILES["caltech101-1280"]) as held:
        shown = held["label"] != "BACKGROUND_Google"
        features, labels = held["X"][shown].astype(np.float32), np.unique(held["label"][shown], return_inverse=True)[1]
    public, private, queries = divided(labels, CALTECH_SIZES, seed)
    queries = queries[np.isin(labels[queries], labels[private])]
    known = features[public], labels[public]
    if unrelated:
        others, classes = pictures(settings, "cifar10")
        drawn = science(seed).permutation(len(others))[: CALTECH_SIZES[0]]
        known = others[drawn], classes[drawn]
    return _problem((features, labels), known, private, queries)


def _problem(all_of: Pictures, public: Pictures, private: Labels, queries: Labels) -> Problem:
    features, labels = all_of
    lengths = tuple(np.linalg.norm(features[rows], axis=1) for rows in (private, queries))
    given = PrivateCollection(
        _unit(public[0]), public[1], _unit(features[private]), _unit(features[queries]), (lengths[0], lengths[1])
    )
    return Problem(given, partial(score_first, labels[queries], labels[private]))


def divided(labels: Labels, sizes: tuple[int, int, int], seed: int, *, half: bool = False) -> tuple[Labels, ...]:
    """Draw public and private rows and queries; with `half`, half of the classes are never public."""
    rng = science(seed)
    order, classes = rng.permutation(len(labels)), rng.permutation(labels.max() + 1)
    queries, private, rest = np.split(order, np.cumsum(sizes[:0:-1]))
    if half:
        rest = rest[np.isin(labels[rest], classes[::2])]
    return rest[: sizes[0]], private, queries


def _unit(rows: Floats) -> Floats:
    """Scale every row to length one, which takes nothing but the row."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


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
    "shipped": "our local mode with the shipped codebook, no public pictures",
    "central": "our central mode: codes stay at home (delta 1e-6, 64 bits)",
    "central-start": "our central mode from a public ITQ",
    "public-itq": "that public ITQ as it is",
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
FASHION, CIFAR = "fashion-mnist", "cifar10"
COLLECTIONS = {FASHION: "Fashion-MNIST", CIFAR: "CIFAR-10", CALTECH: "Caltech-101"}
TARGETS: dict[tuple[str, str, str], tuple[float | None, ...]] = {
    (FASHION, "local", "at least"): (0.138, 0.194, 0.364, 0.499),
    (FASHION, "local", "hoped for"): (0.15, 0.22, 0.40, 0.52),
    (FASHION, "local", "with ten kinds, before they were counted"): (0.148, 0.239, 0.481, 0.629),
    (FASHION, "central", "at least"): (0.47, 0.50, 0.51, 0.53),
    (CIFAR, "local", "with ten kinds, before they were counted"): (0.144, 0.224, 0.482, 0.663),
    (CALTECH, "local", "at least"): (None, None, 0.14, 0.50),
    (CALTECH, "local-labels", "at least"): (None, None, 0.146, 0.775),
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
    """Return the targets, mAP and P@10 for every collection, what lacks privacy per record, and what was chosen."""
    fashion, cifar, half = (Measured.on(results, name) for name in (FASHION, CIFAR, HALF))
    caltech, elsewhere = (Measured.on(results, name) for name in (CALTECH, UNRELATED))
    grids = [_targets(results), _record_level("Fashion-MNIST", fashion, REFERENCE), _half(half, fashion)]
    grids += [
        _not_record_level("Fashion-MNIST: mAP of what does not protect a record, 48 bits", fashion, PUBLISHED),
        _record_level("CIFAR-10", cifar, {}),
        _not_record_level("CIFAR-10: mAP of what does not protect a record, 48 bits", cifar, {}),
        _record_level("Caltech-101", caltech, {}),
        _elsewhere(caltech, elsewhere),
        _not_record_level("Caltech-101: mAP of what does not protect a record, 48 bits", caltech, {}),
    ]
    grids += [_first_ten(said, Measured.on(results, name)) for name, said in COLLECTIONS.items()]
    return [*grids, _chosen(results)]


def _targets(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for (collection, mode, said), bounds in TARGETS.items():
        found, verdicts = Measured.on(results, collection), []
        for epsilon, bound in zip(RECORD_EPSILONS, bounds, strict=True):
            reached = "" if bound is None else verdict(found.of(f"{mode}/{epsilon}"), bound, ("reached", "missed"))
            verdicts.append("-" if bound is None else f"{bound:g}: {reached}")
        rows.append((f"{COLLECTIONS[collection]}, {mode} mode, {said}", *verdicts))
    columns = ("", *(f"epsilon {epsilon}" for epsilon in RECORD_EPSILONS))
    return Grid("Targets (mAP; local mode without labels unless they are named)", columns, tuple(rows))


def _first_ten(said: str, found: Measured) -> Grid:
    """Return the precision among the first ten; of codes with the length that has the best mAP."""
    rows: list[tuple[Cell, ...]] = []
    for name, what in NAMES.items():
        best = [found.best(name, epsilon)[1] for epsilon in RECORD_EPSILONS]
        bits = [{"bits": length} if name in ("response", "ball") else {} for length in best]
        cells = [found.of(f"P@10 {name}/{e}", **only) for e, only in zip(RECORD_EPSILONS, bits, strict=True)]
        if any(cells):
            rows.append((what, *cells))
    return Grid(f"{said}: P@10 by record-level epsilon", ("", *(f"epsilon {e}" for e in RECORD_EPSILONS)), tuple(rows))


def _chosen(results: Sequence[Result]) -> Grid:
    """Return how many cells public pictures showed, and to how many symbols they were joined."""
    rows: list[tuple[Cell, ...]] = []
    for name, said in COLLECTIONS.items():
        found = Measured.on(results, name)
        for mode in ("local", "local-labels", "shipped"):
            cells = found.of(f"cells {mode}/{RECORD_EPSILONS[0]}")
            if cells:
                symbols = [_whole(found.of(f"symbols {mode}/{epsilon}")) for epsilon in RECORD_EPSILONS]
                rows.append((f"{said}, {mode}", _whole(cells), *symbols))
    columns = ("", "cells", *(f"symbols at epsilon {epsilon}" for epsilon in RECORD_EPSILONS))
    return Grid("What local mode chose, run by run", columns, tuple(rows))


def _whole(values: Values) -> str:
    return ", ".join(f"{value:.0f}" for value in values) or "-"


def _elsewhere(caltech: Measured, elsewhere: Measured) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for what, found, name in (
        ("public pictures like the private ones, local mode", caltech, "local"),
        ("no public pictures: shipped codebook, local mode", caltech, "shipped"),
        ("public pictures of something else, local mode", elsewhere, "local"),
        ("public pictures of something else, public ITQ", elsewhere, "public-itq"),
        ("public pictures of something else, central mode from that ITQ", elsewhere, "central-start"),
    ):
        pairs = ((found.of(f"{name}/{epsilon}"), found.of(f"P@10 {name}/{epsilon}")) for epsilon in RECORD_EPSILONS)
        rows.append((what, *(cell for pair in pairs for cell in pair)))
    columns = ("", *(f"epsilon {epsilon}, {what}" for epsilon in RECORD_EPSILONS for what in ("mAP", "P@10")))
    return Grid("Caltech-101: where public pictures come from", columns, tuple(rows), "Something else is CIFAR-10.")


def _record_level(said: str, found: Measured, reference: dict[str, Values]) -> Grid:
    title, chance = f"{said}: mAP by record-level epsilon", "0.02" if said == "Caltech-101" else "0.10"
    rows: list[tuple[Cell, ...]] = []

    def add(said: str, ours: Sequence[Cell], known: Sequence[str] = DASHES) -> None:
        pairs = zip(known, ours, strict=True)
        rows.append((said, *(cell for pair in pairs for cell in (pair if reference else pair[1:]))))

    for name, said in NAMES.items():
        if name == "shipped" and not found.of(f"shipped/{RECORD_EPSILONS[0]}"):
            continue
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
    return Grid(title, columns, tuple(rows), f"Chance is {chance}.")


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


BENCHMARK = Benchmark(
    name="hash-private",
    title="Private search: what is found when a record is protected",
    tasks=tasks,
    methods=(
        *(Method("bits", "hashing:noisy_bits", {"bits": bits}) for bits in LENGTHS),
        Method("codebook", "hashing:plain_codebook"),
        Method("local", "hashing:local", {"labelled": False}),
        Method("labels", "hashing:plain_labels"),
        Method("local-labels", "hashing:local", {"labelled": True}),
        *(
            Method("central", "hashing:central", {"epsilon": epsilon, "delta": 1e-6, "bits": 64})
            for epsilon in RECORD_EPSILONS
        ),
        Method("central-start", "hashing:central_start", {"delta": 1e-6, "bits": 64}),
        Method("shipped", "hashing:shipped"),
        Method("published", "hashing:published", {"bits": 48}),
        *(
            Method("nothing-hidden", "hashing:hidden_nowhere", {"learner": learner, "bits": 48})
            for learner in ("ITQ", "LSH", "SH")
        ),
    ),
    sections=sections,
    notes=(
        "Epsilon is that of a record, exchanged for any other, with delta = 0 (central mode: delta 1e-6, and of the "
        "function alone). Queries carry no noise.",
        "mAP is over the whole ranking of private pictures with the query's class as relevant; ties are averaged over "
        "all orders; P@10 is the precision among the first ten, over all orders of ties too.",
        "Figures without a deviation come from one run (seed 0).",
        "Reference: an earlier measurement by other code with the same sizes and random ties.",
        "The best length is chosen by looking at the results, which nobody could do in earnest: it flatters randomised "
        "response and the Hamming ball. Lengths tried: " + ", ".join(map(str, LENGTHS)) + " bits of ITQ.",
        "The local mode counts kinds in the public pictures and chooses symbols from epsilon: see the last table.",
        "Features have unit length. Functions, codebooks and classifiers are learned from public pictures, except by "
        "the central mode and where nothing is hidden.",
    ),
    runs=3,
)
