"""What is measured: rounds with more or fewer zeros, longer or shorter keys, more weights, more users.

A case is a whole round, or, where a ciphertext holds a single weight, the same round with a 32nd of the weights: then
its figures are multiplied by 32 here.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.rounds import SLOT_BITS, Round, RoundAnswer
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
