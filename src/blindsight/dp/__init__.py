"""Differential privacy: mechanisms with a proof, accounting, and the ledger that remembers what was spent."""

from blindsight.dp.accounting import (
    BoundedLoss,
    Composition,
    GaussianLoss,
    LaplaceLoss,
    SampledGaussianLoss,
    compose,
    delta_of,
    epsilon_of,
)
from blindsight.dp.census import Census, census
from blindsight.dp.ledger import Ledger
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism, RandomisedResponse

__all__ = [
    "BoundedLoss",
    "Census",
    "Composition",
    "GaussianLoss",
    "GaussianMechanism",
    "LaplaceLoss",
    "LaplaceMechanism",
    "Ledger",
    "RandomisedResponse",
    "SampledGaussianLoss",
    "census",
    "compose",
    "delta_of",
    "epsilon_of",
]
