"""One round of encrypted averaging as in the DPHE paper: our schemes beside python-paillier and TenSEAL.

101 x 2048 weights, five users. What counts is the CPU time of one user's encryption, the aggregation and the
decryption, and what a user sends. A case is a whole round, or, where a ciphertext holds a single weight, the same round
with a 32nd of the weights: then its figures are multiplied by 32.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Method, Problem, Settings, Task
from benchmarks.methods.rounds import SLOT_BITS, Round, RoundAnswer
from benchmarks.results import Result
from benchmarks.table import Cell, Grid, Row, Section
from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError

WEIGHTS, PART = 101 * 2048, 101 * 64
PAPER_BITS, KEY_BITS = 1024, (2048, 3072)
PAPER_SPARSITIES, SPARSITIES = (0.0, 79.1, 95.6), (0.0, 79.1, 90.0, 95.6)
GROWTH = (10_000, 100_000, 1_000_000)

SINGLE = ("python-paillier", "dphe")
DENSE = ("plain", "masks", "bfv", "TenSEAL-BFV", "TenSEAL-CKKS")
CROWD, CONSERVATIVE = "block-dphe-crowd", "block-dphe-conservative"
NARROW = {"block-dphe-24": 24, "block-dphe-16": 16}

_ALLOWED_ERROR = 1e-6


class Setting(NamedTuple):
    """What a figure is about: rounds of the same setting are compared, however many of their weights were measured."""

    weights: int
    sparsity: float = 0.0  # per cent
    key_bits: int = 2048
    shared: bool = False  # whether all users changed the same weights
    users: int = 5
    capacity: float = 0.1  # share of the weights that a user may change per shard


@dataclass(frozen=True)
class Case:
    """A setting, and how it is measured: by which methods, on how many of its weights, changed in which blocks."""

    setting: Setting
    methods: tuple[str, ...]
    weights: int
    block: int = 1
    slot_bits: int = SLOT_BITS

    @property
    def dataset(self) -> str:
        """The name of the task."""
        setting = self.setting
        parts = (
            f"{setting.weights}-weights",
            f"{setting.users}-users",
            "dense" if self.methods == DENSE else f"{setting.key_bits}-bits-{setting.sparsity:g}-zero",
            "shared" if setting.shared else "",
            "" if self.weights == setting.weights else f"part-{self.weights}",
            "" if self.slot_bits == SLOT_BITS else f"slots-{self.slot_bits}",
        )
        return "-".join(filter(None, parts))

    @property
    def description(self) -> str:
        """What a reader of the table should know."""
        setting = self.setting
        of = "" if self.weights == setting.weights else f", a part of {setting.weights:,}"
        where = "the same" if setting.shared else "their own"
        unit = "weights" if self.block == 1 else f"blocks of {self.block}"
        changed = f"{where} {100 - setting.sparsity:g}% of the {unit}" if setting.sparsity else "all of them"
        return f"{setting.users} users, {self.weights:,} weights{of}; they change {changed}."

    def round(self, seed: int) -> Round:
        """Return what the methods are given."""
        setting, blocks = self.setting, -(-self.weights // self.block)
        return Round(
            users=tuple(f"user-{number}" for number in range(setting.users)),
            weights=self.weights,
            block=self.block,
            kept=math.floor((1 - setting.sparsity / 100) * blocks + 1e-9),
            shared=setting.shared,
            capacity=math.ceil(setting.capacity * self.weights),
            key_bits=setting.key_bits,
            whole=setting.weights,
            seed=seed,
            slot_bits=self.slot_bits,
        )


CROWD_SETTING = Setting(GROWTH[-1], 99.0, users=100, capacity=0.01)


def full_cases() -> list[Case]:
    """Return everything that is measured."""
    compared = [Setting(WEIGHTS, sparsity, PAPER_BITS) for sparsity in PAPER_SPARSITIES]
    for bits in KEY_BITS:
        compared += [Setting(WEIGHTS, sparsity, bits) for sparsity in SPARSITIES]
        compared.append(Setting(WEIGHTS, 90.0, bits, shared=True))
    return _cases(compared, PART, [Setting(size, 90.0) for size in GROWTH], CROWD_SETTING)


def quick_cases() -> list[Case]:
    """Return a little of each kind."""
    compared = [Setting(PART, 79.1, PAPER_BITS), Setting(PART, 90.0), Setting(PART, 90.0, shared=True)]
    growth = [Setting(size, 90.0) for size in (1_000, 10_000)]
    return _cases(compared, PART // 4, growth, Setting(20_000, 99.0, users=100, capacity=0.01))


def _cases(compared: list[Setting], part: int, growth: list[Setting], crowd: Setting) -> list[Case]:
    weights = compared[0].weights
    dense = Case(Setting(weights), DENSE, weights)
    pairs = [
        case
        for setting in compared
        for case in (Case(setting, SINGLE, part), _in_blocks(setting, "block-dphe", CONSERVATIVE), *_narrow(setting))
    ]
    return [dense, *pairs, *[_in_blocks(setting, "block-dphe") for setting in growth], _in_blocks(crowd, CROWD)]


def _in_blocks(setting: Setting, *methods: str, slot_bits: int = SLOT_BITS) -> Case:
    slots = SlotPacking.for_key(setting.key_bits, slot_bits=slot_bits).slots
    return Case(setting, methods, setting.weights, slots, slot_bits)


def _narrow(setting: Setting) -> list[Case]:
    compared = setting.sparsity == 90 and setting.key_bits > PAPER_BITS
    return [_in_blocks(setting, name, slot_bits=bits) for name, bits in NARROW.items() if compared]


def tasks(settings: Settings) -> list[Task]:
    """Pose each case: updates that are drawn at random, whose sum is asked for."""
    cases = quick_cases() if settings.quick else full_cases()
    return [Task(case.dataset, case.description, partial(_pose, case), case.methods) for case in cases]


def _pose(case: Case, seed: int) -> Problem:
    given = case.round(seed)
    truth = np.zeros(given.weights)
    for user in given.users:
        truth += given.update(user)  # exact: these are multiples of 2^-20
    return Problem(given, partial(score, case, truth))


def score(case: Case, truth: NDArray[np.float64], answer: RoundAnswer) -> dict[str, float]:
    """Return seconds and megabytes of the whole round, after a check that the sum is right."""
    places, total = answer["places"], answer["total"]
    if not len(places) or np.shape(total) != np.shape(places):
        raise InputError(f"a sum has one weight per place; got shape {np.shape(total)} for {np.shape(places)} places.")
    error = float(np.max(np.abs(total - truth[places])))
    if not error <= _ALLOWED_ERROR:
        raise InputError(f"the sum is wrong by up to {error:.3g}; {_ALLOWED_ERROR:g} is allowed.")
    scale = case.setting.weights / case.weights
    figures = {step: scale * amount / share for step, (amount, share) in answer["seconds"].items()}
    figures["table"] = answer["seconds"]["table"].amount if "table" in figures else 0.0  # the same for a part
    figures["encrypt"] += figures["table"]
    figures["megabytes"] = scale * answer["sent"].amount / answer["sent"].share / 1e6
    figures["share"] = min(share for _, share in answer["seconds"].values()) / scale
    return figures | {"error": error, "peak megabytes": answer["peak_bytes"] / 1e6}


PAPER = {0.0: 620, 79.1: 186, 95.6: 62}  # Table 2: seconds of encryption by sparsity

_TOTAL = ("encrypt", "aggregate", "decrypt")
_AS_PUBLISHED = ("encrypt", "aggregate", "decrypt all")
_COLUMNS = ("", "encrypt, a user", "(table)", "aggregate", "decrypt", "total", "MB a user", "measured")

Run = tuple[int, str]


class Pick(NamedTuple):
    """Figures that belong together: those of these names, added up, of one method in one setting."""

    setting: Setting
    method: str
    names: tuple[str, ...] = _TOTAL


class Figures:
    """Scores by setting, method and run."""

    def __init__(self, results: Sequence[Result]) -> None:
        """Sort results by what they are about."""
        known = {case.dataset: case.setting for case in (*full_cases(), *quick_cases())}
        self._scores: dict[tuple[Setting, str], dict[Run, Mapping[str, float]]] = {}
        for result in results:
            runs = self._scores.setdefault((known[result.dataset], result.method), {})
            runs[result.seed, result.session] = result.score

    def settings(self, *methods: str) -> list[Setting]:
        """Return the settings in which one of these methods was measured."""
        return list(dict.fromkeys(setting for setting, method in self._scores if method in methods))

    def of(self, setting: Setting, method: str, *names: str) -> tuple[float, ...]:
        """Return the sum of the named figures in every run."""
        return tuple(self._by_run(Pick(setting, method, names)).values())

    def ratios(self, above: Pick, below: Pick) -> tuple[float, ...]:
        """Return how much more one takes than the other, in every run that measured both."""
        top, bottom = self._by_run(above), self._by_run(below)
        return tuple(top[run] / bottom[run] for run in top if run in bottom)

    def _by_run(self, pick: Pick) -> dict[Run, float]:
        runs = self._scores.get((pick.setting, pick.method), {})
        return {run: sum(score[name] for name in pick.names) for run, score in runs.items()}


def sections(results: Sequence[Result]) -> list[Section | Grid]:
    """Return all tables that have a row."""
    figures = Figures(results)
    costs = [_costs(figures, bits) for bits in KEY_BITS]
    rest = [_dense(figures), _growth(figures), _crowd(figures)]
    tables: list[Section | Grid] = [_targets(figures), _paper(figures), *costs, *rest]
    return [table for table in tables if table.rows]


def _targets(figures: Figures) -> Grid:
    rows = [
        *_encryption_targets(figures),
        *(row for bits in KEY_BITS for row in _block_targets(figures, bits)),
        _target("bfv / TenSEAL's BFV", _between(figures, Setting(WEIGHTS), "bfv", "TenSEAL-BFV"), most=1.3),
        _target(
            "block-dphe, 1,000,000 / 100,000 weights",
            figures.ratios(*(Pick(Setting(size, 90.0), "block-dphe") for size in GROWTH[:0:-1])),
            most=11,
        ),
        _target(
            "block-dphe, 1,000,000 weights of 100 users, peak megabytes",
            figures.of(CROWD_SETTING, CROWD, "peak megabytes"),
            most=2000,
        ),
    ]
    note = "The targets are for the full size alone."
    return Grid("Targets, each within one run", ("", "target", "measured", "met"), tuple(rows), note)


def _encryption_targets(figures: Figures) -> list[tuple[Cell, ...]]:
    rows = []
    for bits, least in zip(KEY_BITS, (12, 15), strict=True):
        peer, ours = (Pick(Setting(WEIGHTS, 90.0, bits), method, ("encrypt",)) for method in SINGLE)
        name = f"{bits} bits, encryption a value: python-paillier / dphe"
        rows.append(_target(name, figures.ratios(peer, ours), least=least))
    return rows


def _block_targets(figures: Figures, bits: int) -> list[tuple[Cell, ...]]:
    rows = []
    for setting in (Setting(WEIGHTS, 90.0, bits), Setting(WEIGHTS, 90.0, bits, shared=True)):
        where = f"{bits} bits, {_where(setting)}"
        touched = 300 if bits == 2048 and not setting.shared else 600
        for names, what, least in ((_TOTAL, "touched", touched), (_AS_PUBLISHED, "all", touched)):
            ratios = figures.ratios(Pick(setting, "python-paillier", names), Pick(setting, "block-dphe"))
            rows.append(_target(f"{where}: python-paillier, {what} places / block-dphe", ratios, least=least))
        for name in NARROW:
            ratios = _between(figures, setting, "block-dphe", name)
            rows.append(_target(f"{where}: block-dphe / {name}", ratios, least=1.3))
        sent = figures.of(setting, "block-dphe", "megabytes")
        rows.append(_target(f"{where}: block-dphe, megabytes a user", sent, most=0.2))
    return rows


def _between(figures: Figures, setting: Setting, above: str, below: str) -> tuple[float, ...]:
    return figures.ratios(Pick(setting, above), Pick(setting, below))


def _target(
    name: str, values: tuple[float, ...], *, least: float | None = None, most: float | None = None
) -> tuple[Cell, ...]:
    bound = f"at most {most:g}" if least is None else f"at least {least:g}"
    met = [(least is None or value >= least) and (most is None or value <= most) for value in values]
    verdict = "-" if not met else "yes" if all(met) else f"in {sum(met)} of {len(met)} runs" if any(met) else "no"
    return name, bound, values, verdict


def _paper(figures: Figures) -> Section:
    rows = []
    for setting in figures.settings(*SINGLE):
        if setting.key_bits == PAPER_BITS:
            paper = PAPER[setting.sparsity] if setting.weights == WEIGHTS else None
            for method in (*SINGLE, "block-dphe"):
                seconds = figures.of(setting, method, "encrypt")
                rows.append(Row(f"{setting.sparsity:g}% zero: {method}", seconds, paper))
    title = "Table 2 of the paper: one user's encryption with a 1024-bit key (seconds)"
    return Section(
        title, tuple(rows), digits=1, note="The paper's column is the same for all: it used python-paillier."
    )


def _costs(figures: Figures, bits: int) -> Grid:
    rows = []
    for setting in figures.settings(*SINGLE):
        if setting.key_bits == bits:
            name = f"{_where(setting)}: python-paillier"
            rows += [
                _cost_row(figures, Pick(setting, "python-paillier", _AS_PUBLISHED), f"{name}, all places"),
                _cost_row(figures, Pick(setting, "python-paillier"), f"{name}, touched places"),
                _cost_row(figures, Pick(setting, "dphe"), f"{_where(setting)}: dphe"),
                *(
                    _cost_row(figures, Pick(setting, method), f"{_where(setting)}: {method}")
                    for method in ("block-dphe", CONSERVATIVE, *NARROW)
                    if method == "block-dphe" or figures.of(setting, method, "encrypt")
                ),
            ]
    note = "Where less than all was measured, the figures are extrapolated in proportion."
    return Grid(f"A round with a {bits}-bit key (CPU seconds)", _COLUMNS, tuple(rows), note)


def _dense(figures: Figures) -> Grid:
    settings = figures.settings(*DENSE)
    rows = [_cost_row(figures, Pick(setting, method), method) for setting in settings for method in DENSE]
    return Grid("A round of dense schemes (CPU seconds)", _COLUMNS, tuple(rows))


def _growth(figures: Figures) -> Grid:
    compared = figures.settings(*SINGLE)
    rows: list[tuple[Cell, ...]] = []
    for setting in figures.settings("block-dphe"):
        if setting not in compared:
            changed = setting.weights * (1 - setting.sparsity / 100)
            each = tuple(1e6 * seconds / changed for seconds in figures.of(setting, "block-dphe", *_TOTAL))
            rows.append((*_cost_row(figures, Pick(setting, "block-dphe"), f"{setting.weights:,}")[:-1], each))
    title = "block-dphe by size: 2048 bits, 90% zero, own supports (CPU seconds)"
    return Grid(title, ("weights", *_COLUMNS[1:-1], "microseconds a non-zero"), tuple(rows))


def _crowd(figures: Figures) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for setting in figures.settings(CROWD):
        name = f"{setting.users} users, {setting.weights:,} weights"
        peak = figures.of(setting, CROWD, "peak megabytes")
        rows.append((*_cost_row(figures, Pick(setting, CROWD), name)[:-1], peak))
    note = (
        "block-dphe with 2048 bits, 99% zeros and room for no more, to save time. Every contribution is made, added up "
        "and dropped before the next. All roles share the process whose peak is shown."
    )
    return Grid("Memory of a large round (CPU seconds)", (*_COLUMNS[:-1], "peak MB"), tuple(rows), note)


def _cost_row(figures: Figures, pick: Pick, name: str) -> tuple[Cell, ...]:
    setting, method, names = pick
    steps = [figures.of(setting, method, step) for step in names]
    steps.insert(1, figures.of(setting, method, "table"))
    share = figures.of(setting, method, "share")
    measured = "-" if not share else "all" if min(share) == 1 else f"{100 * min(share):.2g}%"
    return name, *steps, figures.of(*pick[:2], *names), figures.of(setting, method, "megabytes"), measured


def _where(setting: Setting) -> str:
    if not setting.sparsity:
        return "dense"
    return f"{setting.sparsity:g}% zero, {'shared' if setting.shared else 'own'} supports"


BENCHMARK = Benchmark(
    name="dphe-round",
    title="One round of encrypted averaging (DPHE, Table 2)",
    tasks=tasks,
    methods=(
        Method("plain", "rounds:dense", {"scheme": "plain", "rounds": 5}),
        Method("masks", "rounds:dense", {"scheme": "masks", "rounds": 5}),
        Method("bfv", "rounds:dense", {"scheme": "bfv", "rounds": 5}),
        Method("TenSEAL-BFV", "rounds:by_tenseal", {"scheme": "bfv", "degree": 4096, "rounds": 5}),
        Method("TenSEAL-CKKS", "rounds:by_tenseal", {"scheme": "ckks", "degree": 8192, "rounds": 5}),
        Method("python-paillier", "rounds:python_paillier", {"values": 32}),
        Method("dphe", "rounds:sparse", {"blocks": False}),
        Method("block-dphe", "rounds:sparse", {"blocks": True}),
        Method("block-dphe-conservative", "rounds:sparse", {"blocks": True, "keys": "conservative"}),
        *(Method(name, "rounds:sparse", {"blocks": True}) for name in NARROW),
        Method("block-dphe-crowd", "rounds:crowd"),
    ),
    sections=sections,
    notes=(
        "The paper times the encryption alone, with a 1024-bit key, on one CPU of a MacBook Pro (2.9 GHz Core i7). "
        "Ours are CPU seconds on the machine below; keys of 1024 bits serve that comparison only.",
        "The weights are random numbers here, classifiers there; the cost of a round does not depend on them.",
        "A user sends a tenth of the weights per shard, as in the paper (M): 10, 3, 1 and 1 shards at 0, 79.1, 90 and "
        "95.6% zeros. So 95.6% costs as much as 90%.",
        "python-paillier is measured on a few places, `dphe` on a 32nd of the weights, and both are extrapolated in "
        "proportion; everything else is measured whole.",
        "python-paillier and `dphe` encrypt weight by weight, zeros anywhere; `block-dphe` encrypts blocks of 63 "
        "weights (95 at 3072 bits), zeros in whole blocks.",
        "Our keys are subgroup keys, but for `block-dphe-conservative`. `block-dphe-24` and `-16` have slots of 24, 16 "
        "bits, 85 and 127 of them at 2048 bits: weights below 1/4 keep 20 and 14 fraction bits.",
        "Users with supports of their own touch up to five tenths of all places together (41%), users with shared "
        "supports a tenth. The paper decrypts all places.",
        "`dphe` packs 63 (95) sums into one ciphertext before they are decrypted: that is its aggregation's time.",
        "Encryption includes the table that a user makes once per key, as if there were a single round. Key generation "
        "and other set-up are not counted for anyone.",
        "TenSEAL's BFV has the parameters of our `bfv`; it neither signs nor checks anything.",
        "All sums are checked. All are exact but those of CKKS, which err by less than 1e-6.",
    ),
    runs=2,
)
