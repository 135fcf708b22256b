"""What the cost model says of rounds that were measured, and of rounds of more owners than anyone has."""

from dataclasses import dataclass
from typing import TypedDict

from benchmarks.methods.costmodel import CostModel, Hierarchy, Network, Scheme, Setting, aggregator_bytes, calibrate


@dataclass(frozen=True)
class Question:
    """Which rounds are asked about: their weights, and their owners if there is one aggregator (`rounds`), and for
    the plan (`planned`), in regions of `region` owners with `shards` of the key service. `repeats` is for calibration.
    """

    weights: int
    key_bits: int
    density: float
    rounds: tuple[int, ...]
    planned: tuple[int, ...]
    region: int = 1_000
    shards: int = 4
    insecure: bool = False
    repeats: int = 3


class ModelAnswer(TypedDict):
    """Predicted figures: by owners, with one aggregator and as planned."""

    rounds: dict[int, dict[str, float]]
    planned: dict[int, dict[str, float]]


def run(given: Question, *, seed: int, scheme: Scheme, slot_bits: int) -> ModelAnswer:
    """Calibrate once on this machine, and predict everything from that."""
    setting = Setting(
        scheme, key_bits=given.key_bits, slot_bits=slot_bits, density=given.density, insecure=given.insecure
    )
    model = calibrate(setting, weights=given.weights, repeats=given.repeats)
    return ModelAnswer(
        rounds={number: model.predict(number, given.weights) for number in given.rounds},
        planned={number: _plan(model, number, given) for number in given.planned},
    )


def _plan(model: CostModel, owners: int, given: Question) -> dict[str, float]:
    network, regions = Network(), -(-owners // given.region)
    figures = model.predict(owners, given.weights)
    machines = Hierarchy(regions, given.shards).figures(model, owners, given.weights)
    return {
        **figures,
        **machines,
        "regions": float(regions),
        "held": aggregator_bytes(model.predict(min(owners, given.region), given.weights)),
        "wall, one aggregator": network.seconds(figures, owners),
        "wall": network.regional_seconds(figures, machines),
    }
