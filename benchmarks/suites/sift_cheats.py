"""Sifts that are made to cheat: what each verifier says of them, what the app really reads, and what is left of it.

An app builds its sift from pictures of its own. The platform attacks what the sift lets out of other people, as the
paper's verifier does and as ours does; then it takes its own version of the sift, and then few symbols of that, which
it can certify. Eight ways around a platform's verdict follow, before and after they were closed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.sifts import Floats, LabelledRows, Labels
from benchmarks.pictures import FACES, UTKFACE_FILE, People, divided, utkface_path
from benchmarks.suites.sift_matrix import CONFIDENCE, THRESHOLD
from benchmarks.table import Ask, Found, Grid, Table, Values, listed
from blindsight.metrics import balanced_accuracy, priv_loss
from blindsight.papers.sensorsift.cheats import Cheat
from blindsight.sift.attackers import LOOKUP, MODERN, PAPER, Attacker
from blindsight.sift.certificate import certify
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift
from blindsight.sift.trial import QUICK
from blindsight.sift.verify import Verifier
from tests.adversaries.holes import Hole

NUMBERS, LEVELS = 3, 2
"""Of the sift that is certified: so many numbers of a sift at most, of so many levels each."""

Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Platform:
    """People to verify with, the public and the private attribute, and attackers: the paper's, and everybody."""

    people: People
    policy: tuple[str, str]
    published: Sequence[Attacker]
    everybody: Sequence[Attacker]

    def __call__(self, cheat: Cheat) -> dict[str, float]:
        """Return what is read off the cheat as the app wrote it, and off what the platform makes of it."""
        released = cheat.release(self.people.judged)
        scores = {"decoded": self._decoded(cheat, released), "serves": self._serves(released)}
        for kind, attackers in (("paper", self.published), ("all", self.everybody)):
            scores |= self._attacked(kind, attackers, released)
        if cheat.sift is not None:
            return scores | self._hardened(cheat, cheat.sift)
        return scores | (self._counted(released) if released.dtype.kind in "iu" else {})

    def _hardened(self, cheat: Cheat, sift: LinearSift) -> dict[str, float]:
        """Return what is read off the platform's own version, and what its symbols can tell at most."""
        own = harden(sift, self.people.judged)
        released = own.apply(self.people.judged)
        table = (LOOKUP,) if own.width == 1 else ()
        scores = self._attacked("hardened", (*table, *self.everybody), released)
        scores |= {"hardened/numbers": own.width, "hardened/serves": self._serves(released)}
        if own.width == sift.width:
            scores["hardened/decoded"] = self._decoded(cheat, released)
        few = replace(own, matrix=own.matrix[:, :NUMBERS], quantiser=None)
        symbols = with_few_levels(few, self.people.own, LEVELS)  # levels must not be chosen on rows that are counted
        return scores | self._counted(symbols.apply(self.people.judged))

    def _attacked(self, kind: str, attackers: Sequence[Attacker], released: Array) -> dict[str, float]:
        verifier = Verifier(attackers, THRESHOLD, CONFIDENCE, stop_early=False)
        found = verifier.verify(released, {self.policy[1]: self.people.truth(self.policy[1])})
        low = max(result.interval.low for result in found.results) - 0.5
        return {f"{kind}/reads": found.priv_loss, f"{kind}/low": low, f"{kind}/limit": found.bound}

    def _decoded(self, cheat: Cheat, released: Array) -> float:
        return priv_loss(balanced_accuracy(self.people.truth(self.policy[1]), cheat.decode(released)))

    def _serves(self, released: Array) -> float:
        """Return the balanced accuracy of the public attribute, as a tuned linear classifier reads it."""
        return (
            Verifier(QUICK[:1])
            .verify(released, {self.policy[0]: self.people.truth(self.policy[0])})
            .best.balanced_accuracy
        )

    def _counted(self, symbols: Array) -> dict[str, float]:
        found = certify(symbols, self.people.truth(self.policy[1]), confidence=CONFIDENCE)
        return {"symbols/count": found.symbols, "symbols/estimate": found.estimate, "symbols/bound": found.bound}


SIDE = 16
POLICIES = {"faces": ("male", "smiling"), "utkface": ("female", "white")}

Rows = tuple[Floats, dict[str, Labels]]
"""Features and labels."""


def tasks(settings: Settings) -> list[Task]:
    """Pose one policy on every collection."""
    path = None if settings.quick else utkface_path(settings)
    text = "drawn numbers in place of pictures" if settings.quick else f"{FACES:,} drawn faces, one of each person"
    sources: dict[str, tuple[str, Callable[[], Rows]]] = {
        "faces": (text, _drawn_numbers if settings.quick else _drawn_faces)
    }
    if path is not None:
        sources["utkface"] = (f"{2 * FACES:,} faces of UTKFace ({UTKFACE_FILE})", partial(_photographs, path))
    numbers = 1000 if settings.quick else 3000
    apps = ("honest", "collinear_pair", "low_digits", "xor_hash", "few_symbols")
    said = f"{{}}, {SIDE}x{SIDE} grey pixels as whole numbers; public {{}}, private {{}}; 40% are the app's."
    return [
        Task(name, said.format(text, *POLICIES[name]), partial(_pose, name, load, settings.quick), apps)
        for name, (text, load) in sources.items()
    ] + [Task("holes", f"{numbers:,} drawn rows whose truth is known.", partial(_pose_holes, numbers), ("holes",))]


def _pose_holes(numbers: int, seed: int) -> Problem:
    def score(found: tuple[Hole, ...]) -> dict[str, float]:
        figures = ("read", "before", "now")
        return {f"{hole.name}/{figure}": float(getattr(hole, figure)) for hole in found for figure in figures}

    return Problem(numbers, score)


def _pose(name: str, load: Callable[[], Rows], quick: bool, seed: int) -> Problem:
    people, (public, private) = divided(*load(), seed, scale=True), POLICIES[name]
    given = LabelledRows(people.own, *(people.labels[name][: people.developers] for name in (public, private)))
    crowds = (PAPER[:2], (PAPER[0], *QUICK[:2])) if quick else (PAPER, MODERN)
    return Problem(given, Platform(people, (public, private), *crowds))


@cache
def _drawn_numbers(count: int = 1500, dimensions: int = 30) -> Rows:
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 2, (count, 2)).astype(np.int8)
    told = 0.6 * (answers - 0.5) @ rng.standard_normal((2, dimensions))
    rows = np.clip(np.rint(128 + 40 * (told + rng.standard_normal(told.shape))), 0, 255)
    return rows.astype(np.float32), dict(zip(POLICIES["faces"], answers.T, strict=True))


@cache
def _drawn_faces() -> Rows:
    from blindsight.data.faces import faces

    drawn = faces(FACES, size=64, random_state=0, pictures_per_person=1)
    return _grey(np.asarray(drawn.images)), {name: drawn.attribute(name) for name in POLICIES["faces"]}


@cache
def _photographs(path: Path) -> Rows:
    from blindsight.data import load

    dataset = load("utkface", path=path, count=2 * FACES)
    return _grey(np.asarray(dataset.images)), {name: dataset.attribute(name) for name in POLICIES["utkface"]}


def _grey(images: NDArray[np.uint8]) -> Floats:
    """Return square pictures as means of blocks, rounded to whole numbers, one row each."""
    block = images.shape[1] // SIDE
    grey = images.mean(axis=3, dtype=np.float32).reshape(len(images), SIDE, block, SIDE, block)
    return np.asarray(np.rint(grey.mean(axis=(2, 4))), dtype=np.float32).reshape(len(images), -1)


CHEATS = {
    "honest PPLS, K = 5": {"method": "honest"},
    "collinear pair": {"method": "collinear_pair"},
    "low digits": {"method": "low_digits"},
    "XOR with a hash": {"method": "xor_hash"},
    "XOR with a hash, 16 symbols": {"method": "few_symbols"},
}
EARLIER = {  # what the paper's verifier read and the app decoded, measured by other code on other photographs
    "honest PPLS, K = 5": (".060", "-"),
    "collinear pair": (".061", ".327"),
    "low digits": (".059", ".327"),
    "XOR with a hash": (".043", ".327"),
}


def _says(kind: str, found: Found) -> str:
    limits = zip(found.of(f"{kind}/low"), found.of(f"{kind}/limit"), strict=True)
    return ", ".join(dict.fromkeys(verdict(*pair) for pair in limits)) or "-"


def verdict(low: float, limit: float) -> str:
    """Return what a verifier says."""
    return "reject" if low > THRESHOLD else "accept" if limit <= THRESHOLD else "inconclusive"


def _fate(found: Found) -> str:
    limits = found.of("symbols/bound")
    if not found or limits:
        return "-" if not limits else "accept" if max(limits) <= THRESHOLD else "refuse"
    return "refused unseen: code, not a sift"


_BEFORE: dict[str, Ask] = {
    "public accuracy": {"figure": "serves"},
    "app decodes, earlier": {"text": {cheat: decoded for cheat, (_, decoded) in EARLIER.items()}},
    "app decodes": {"figure": "decoded"},
    "paper's five read, earlier": {"text": {cheat: read for cheat, (read, _) in EARLIER.items()}},
    "paper's five read": {"figure": "paper/reads"},
    "and they say": {"values": partial(_says, "paper")},
    "all read": {"figure": "all/reads"},
    "and say": {"values": partial(_says, "all")},
}
_AFTER: dict[str, Ask] = {
    "hardened: numbers": {"figure": "hardened/numbers", "form": listed},
    "public accuracy": {"figure": "hardened/serves"},
    "app decodes": {"figure": "hardened/decoded"},
    "all read": {"figure": "hardened/reads"},
    "and say": {"values": partial(_says, "hardened")},
    "as symbols: how many": {"figure": "symbols/count", "form": listed},
    "best attacker": {"figure": "symbols/estimate"},
    "certified": {"figure": "symbols/bound"},
    "fate as symbols": {"values": _fate},
}


def _cheats(found: Found) -> list[Grid]:
    """Show the cheats before and after, collection by collection."""
    before = "As the app wrote it. What is read or decoded is PrivLoss; the public accuracy is balanced."
    after = (
        f"Hardened: the platform's own version. As symbols: {LEVELS} levels of each of the first {NUMBERS} hardened "
        "numbers, or the app's own. Where a number is gone, so is what the app would decode it from."
    )
    shown = (("Before", before, _BEFORE), ("After", after, _AFTER))
    return [
        grid
        for dataset in POLICIES
        for when, note, columns in shown
        if found(dataset)
        for grid in Table(f"{when}, {dataset}", CHEATS, "app", note, more=columns)(found(dataset))
    ]


def _fate_of_hole(values: Values) -> str:
    return "let out" if any(values) else "kept in"


BENCHMARK = Benchmark(
    name="sift-cheats",
    title="Sifts made to cheat: verdicts, and what the app really reads",
    tasks=tasks,
    methods=(
        Method("honest", "sifts:honest"),
        *(Method(cheat, "sifts:cheating", {"cheat": cheat}) for cheat in ("collinear_pair", "low_digits", "xor_hash")),
        Method("few_symbols", "sifts:few_symbols", {"levels": 8}),
        Method("holes", "sifts:eight_holes"),
    ),
    tables=(
        _cheats,
        Table(
            "Eight ways around a verdict",
            "way",
            "way | read = read",
            "PrivLoss of whoever made it, if it is let out (.10 is allowed); by an earlier rule, and now.",
            more={when: {"figure": when, "form": _fate_of_hole} for when in ("before", "now")},
            of=lambda found: found("holes").parts("way"),
        ),
    ),
    notes=(
        "An app decodes with its own knowledge of the trick; verifiers know nothing but the released numbers.",
        "Attackers alone, the paper's or ours, do not find what hides in low digits or behind a hash.",
        "After hardening, the app's decoder of low digits sees whole numbers and is blind by construction: what counts "
        "there is what all read, a table of the 256 levels among them, and the certificate.",
        "Verdicts at .10 and 95%: accept, if the upper limit of every attacker is at most that; reject, if the lower "
        "end of one is above; the paper's verifier here is its five attackers under the same rule.",
        "The honest sift of UTKFace is inconclusive before hardening by a hair: random features and a kernel SVM in "
        "natural units read .084 and .083, and with an app's rows it might be .102. Before these attackers and limits "
        "along a learning curve there were, .068 was read of the same sift (at most .082), and it was accepted. "
        "Cross-fitted attackers read less, .077.",
        "XOR with a hash takes code. A platform that takes sifts as data never runs it; as few declared symbols it is "
        "counted, and the count does not care how the attribute is hidden.",
    ),
    runs=1,
)
