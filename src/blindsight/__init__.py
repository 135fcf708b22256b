"""Learn from, search through and share images that nobody may see."""

from importlib.metadata import version

from blindsight.data import Dataset, load
from blindsight.dp import Ledger, census
from blindsight.errors import BlindsightError
from blindsight.statement import Claim, PrivacyStatement

__version__ = version("blindsight")

__all__ = [
    "BlindsightError",
    "Claim",
    "Dataset",
    "Ledger",
    "PrivacyStatement",
    "__version__",
    "census",
    "load",
]
