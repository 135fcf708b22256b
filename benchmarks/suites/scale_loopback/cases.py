"""What is measured: rounds of 3, 5 and 8 owners with contributions of 1, 10 and 100 MB, and those of the DPHE paper."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.latency_round import LatencyAnswer, Rounds
from benchmarks.methods.loopback_round import Deployment, LoopbackAnswer
from blindsight.errors import InputError
from blindsight.learn import FederatedClassifier
from blindsight.learn.rounds import Selection

LATENCY = Rounds(5, 101 * 2048, rounds=3)
LATENCIES = (("fedavg", "stock"), ("fedavg", "warm"), ("secagg", "stock"), ("masks", "stock"), ("masks", "warm"))
OWNERS, MEGABYTES = (3, 5, 8), (1, 10, 100)
_ATTRIBUTES_PER_MEGABYTE, _FEATURES = 60, 1023  # with a bias 15 BFV ciphertexts of 4,096 weights


@dataclass(frozen=True)
class Case:
    """A deployment under a scheme."""

    scheme: str
    given: Deployment

    @property
    def dataset(self) -> str:
        """The name of the task."""
        return f"{self.given.owners}-owners-{self.given.weights}-weights-{self.scheme}"

    @property
    def name(self) -> str:
        """Its row in the tables."""
        return f"{self.scheme}, {self.given.owners} owners, {self.given.weights:,} weights"

    @property
    def description(self) -> str:
        """What a reader of the table should know."""
        sent = f"{1 - self.given.sparsity:.0%} of the weights at most" if self.scheme == "block-dphe" else "all weights"
        size = f"{self.given.attributes:,} attributes x ({self.given.features:,} features + 1)"
        return f"{self.given.owners} owners learn {size} from {self.given.samples} samples each; they send {sent}."


def full_cases() -> list[Case]:
    """Return the deployments of the full size, small ones first."""
    return [_paper(), *(dense(owners, megabytes) for megabytes in MEGABYTES for owners in OWNERS)]


def quick_cases() -> list[Case]:
    """Return the smallest, and one twice as large: two points are enough for a prediction."""
    return [dense(3, 1), dense(3, 2)]


def dense(owners: int, megabytes: int) -> Case:
    """Return a deployment under BFV whose owners send about so much."""
    rounds = Deployment(owners, _ATTRIBUTES_PER_MEGABYTE * megabytes, _FEATURES, sparsity=0.0, key_bits=3072)
    return Case("bfv", rounds)


def _paper() -> Case:
    return Case("block-dphe", Deployment(5, 101, 2047, sparsity=0.9, key_bits=3072))


def tasks(settings: Settings) -> list[Task]:
    """Pose each case."""
    rounds = replace(LATENCY, owners=3) if settings.quick else LATENCY
    latency = Task(
        f"latency-{rounds.owners}-owners-{rounds.weights}-weights",
        f"{rounds.owners} owners add one to each of {rounds.weights:,} weights in {rounds.rounds} rounds.",
        lambda seed: Problem(rounds, partial(latency_score, rounds)),
        tuple(f"{kind}-{launcher}" for kind, launcher in LATENCIES),
    )
    cases = quick_cases() if settings.quick else full_cases()
    return [latency, *(Task(case.dataset, case.description, partial(_pose, case), (case.scheme,)) for case in cases)]


def latency_score(given: Rounds, answer: LatencyAnswer) -> dict[str, float]:
    """Return the seconds of the first round, with all that comes before it, and of the later ones, after a check."""
    expected = np.arange(given.rounds + 1)
    if not np.allclose(answer["means"], expected, atol=1e-2 * expected[-1]):
        raise InputError(f"the mean weights are {answer['means']}, not those of FedAvg.")
    later, cpu = np.diff(answer["ends"][1:]), answer["cpu"]
    owners = [seconds for name, seconds in cpu.items() if name.startswith("node owner-")]
    return {
        "first": answer["ends"][1],
        "later": float(later.mean()),
        "slowest": float(later.max()),
        "whole": answer["submitted"],
        "cpu": sum(cpu.values()),
        "SuperLink": cpu["superlink"],
        "server": cpu["aggregator"],
        "owner": sum(owners) / len(owners),
        "others": answer["others"],
    }


def _pose(case: Case, seed: int) -> Problem:
    return Problem(case.given, partial(score, in_one_process(case, seed)))


def in_one_process(case: Case, seed: int) -> NDArray[np.float64]:
    """Return the model that the same owners learn in this process, under a scheme that costs nothing.

    The sparse scheme opens every block there (`Deployment.settings`), so that all schemes give the same model.
    """
    shares, public = case.given.data(seed)
    selection: Selection = "blocks" if case.scheme == "block-dphe" else "topk"
    ridge = case.given.features / (case.given.samples * (case.given.owners + 1))
    settings = case.given.settings("plain")
    classifier = FederatedClassifier(**settings, selection=selection, multilabel=True, ridge=ridge)
    return classifier.fit(shares, public=public).model_.weights


def score(truth: NDArray[np.float64], answer: LoopbackAnswer) -> dict[str, float]:
    """Return all figures, means over the rounds that count, after a check that nobody is missing in the model."""
    if not answer["complete"].all():
        raise InputError("not all owners were in every sum.")
    if not np.array_equal(answer["weights"], truth):
        raise InputError("the model is not the one that the same owners learn in one process.")
    figures = {f"round/{name}": float(values.mean()) for name, values in answer["rounds"].items()}
    figures |= {f"slowest/{name}": float(answer["rounds"][name].max()) for name in ("wall",)}
    figures |= {f"predicted/{name}": value for name, value in answer["predicted"].items()}
    return figures | {f"run/{name}": value for name, value in answer["run"].items()}
