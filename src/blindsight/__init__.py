"""Learn from, search through and share images that nobody may see."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from blindsight.errors import BlindsightError
from blindsight.statement import Claim, PrivacyStatement

if TYPE_CHECKING:
    from blindsight.data import Dataset, load
    from blindsight.dp import Ledger, census

__version__ = version("blindsight-vision")

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

_HOMES = {"Dataset": "blindsight.data", "load": "blindsight.data", "Ledger": "blindsight.dp", "census": "blindsight.dp"}


def __getattr__(name: str) -> Any:
    """Load what was asked for when it is asked for: a node of a federation begins anew with every message."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
