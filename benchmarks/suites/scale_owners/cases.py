"""What is measured: the same round with ever more owners, and what the model says of rounds that are too large."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.rounds import Round
from benchmarks.methods.scale_model import ModelAnswer, Question
from benchmarks.methods.scale_round import ScaleAnswer
from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError

WEIGHTS, OWNERS = 101 * 2048, (10, 100, 1_000)
PLANNED = (1_000, 10_000, 100_000)
DENSITY = 0.1
_SCHEMES = ("block-dphe", "bfv")


@dataclass(frozen=True)
class Case:
    """A round of so many owners; `scheme` decides whether they change everything or a tenth of the blocks."""

    scheme: str
    owners: int
    weights: int
    key_bits: int = 3072

    @property
    def dataset(self) -> str:
        """The name of the task."""
        kind = "dense" if self.scheme == "bfv" else f"{self.key_bits}-bits-90-zero"
        return f"{self.owners}-owners-{self.weights}-weights-{kind}"

    @property
    def description(self) -> str:
        """What a reader of the table should know."""
        changed = "all of them" if self.scheme == "bfv" else f"their own 10% of the blocks of {self._block}"
        return f"{self.owners:,} owners, {self.weights:,} weights; they change {changed}."

    @property
    def _block(self) -> int:
        return 1 if self.scheme == "bfv" else SlotPacking.for_key(self.key_bits).slots

    def round(self, seed: int) -> Round:
        """Return what the methods are given."""
        blocks = -(-self.weights // self._block)
        return Round(
            users=tuple(f"owner-{number}" for number in range(self.owners)),
            weights=self.weights,
            block=self._block,
            kept=blocks if self.scheme == "bfv" else math.floor(DENSITY * blocks),
            shared=False,
            capacity=math.ceil(DENSITY * self.weights),
            key_bits=self.key_bits,
            whole=self.weights,
            seed=seed,
        )


def full_cases() -> list[Case]:
    """Return the rounds of the full size."""
    return [Case(scheme, owners, WEIGHTS) for scheme in _SCHEMES for owners in OWNERS]


def quick_cases() -> list[Case]:
    """Return small ones."""
    return [Case(scheme, owners, 6_464, 2048) for scheme in _SCHEMES for owners in (5, 20)]


def tasks(settings: Settings) -> list[Task]:
    """Pose each case, and ask the model about all of them and about more owners."""
    cases = quick_cases() if settings.quick else full_cases()
    rounds = [Task(case.dataset, case.description, partial(_pose, case), (case.scheme,)) for case in cases]
    asked = question(cases)
    text = (
        f"the model's answers for {asked.weights:,} weights; the plan has regions of {asked.region:,} owners and "
        f"{asked.shards} shards of the key service."
    )
    return [*rounds, Task(f"model-{asked.weights}-weights", text, partial(_pose_model, asked), ("model",))]


def question(cases: Sequence[Case]) -> Question:
    """Return what the model is asked, to stand beside these cases."""
    owners = {case.owners: None for case in cases}
    return Question(cases[0].weights, cases[0].key_bits, DENSITY, tuple(owners), PLANNED)


def _pose(case: Case, seed: int) -> Problem:
    given = case.round(seed)
    truth = np.zeros(given.weights)
    for owner in given.users:
        truth += given.update(owner)  # exact: these are multiples of 2^-20
    return Problem(given, partial(score, truth))


def score(truth: NDArray[np.float64], answer: ScaleAnswer) -> dict[str, float]:
    """Return all figures, after a check that the sum is exact."""
    if not np.array_equal(answer["total"], truth):
        raise InputError("the sum is not that of the owners' updates.")
    figures = {f"measured/{name}": value for name, value in answer["measured"].items()}
    figures |= {"peak megabytes": answer["peak_bytes"] / 1e6, "seconds": answer["seconds"]}
    return figures | dict(zip(("set-up owner", "set-up generator"), answer["setup"], strict=True))


def _pose_model(asked: Question, seed: int) -> Problem:
    return Problem(asked, partial(score_model, asked))


def score_model(asked: Question, answer: ModelAnswer) -> dict[str, float]:
    """Return all predictions: "round/<owners>/..." and "plan/<owners>/..."."""
    if (tuple(answer["rounds"]), tuple(answer["planned"])) != (asked.rounds, asked.planned):
        raise InputError(f"the model was asked about {asked.rounds} and {asked.planned} owners and answers otherwise.")
    found = {f"round/{owners}": figures for owners, figures in answer["rounds"].items()}
    found |= {f"plan/{owners}": figures for owners, figures in answer["planned"].items()}
    return {f"{about}/{name}": value for about, figures in found.items() for name, value in figures.items()}
