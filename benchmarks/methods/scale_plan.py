"""What rounds of more owners than anyone has would take, by the cost model, on machines in regions."""

from dataclasses import dataclass
from typing import TypedDict

from blindsight.federated.costmodel import (
    Hierarchy,
    Network,
    Scheme,
    Setting,
    aggregate_seconds,
    aggregator_bytes,
    calibrate,
)


@dataclass(frozen=True)
class Plan:
    """So many owners and weights; the machines by how many owners a region has and how many shards open the sum."""

    owners: tuple[int, ...]
    weights: int
    key_bits: int
    region: int = 1_000
    shards: int = 4
    insecure: bool = False


class PlanAnswer(TypedDict):
    """Predicted figures by number of owners: of one owner, of every kind of machine, and wall seconds."""

    figures: dict[int, dict[str, float]]


def run(given: Plan, *, seed: int, scheme: Scheme, slot_bits: int) -> PlanAnswer:
    """Calibrate on this machine and predict."""
    model = calibrate(
        Setting(scheme, key_bits=given.key_bits, slot_bits=slot_bits, insecure=given.insecure), weights=given.weights
    )
    network, found = Network(), {}
    for owners in given.owners:
        regions = -(-owners // given.region)
        figures = model.predict(owners, given.weights)
        machines = Hierarchy(regions, given.shards).figures(model, owners, given.weights)
        found[owners] = {
            **figures,
            **machines,
            "regions": float(regions),
            "one aggregator": aggregate_seconds(figures, owners),
            "held": aggregator_bytes(model.predict(min(owners, given.region), given.weights)),
            "wall, one aggregator": network.seconds(figures, owners),
            "wall": network.regional_seconds(figures, machines),
        }
    return PlanAnswer(figures=found)
