"""Learn from, search through and share images that nobody may see."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight import audit
    from blindsight.data import Dataset, load
    from blindsight.dp import Ledger, census
    from blindsight.errors import BlindsightError
    from blindsight.learn import FederatedClassifier, FederatedKMeans, FederatedNetwork
    from blindsight.rounds import EarlyStopping, Privacy, Sums
    from blindsight.search import HammingIndex, PrivateHasher
    from blindsight.search.gallery import Gallery
    from blindsight.sift import Verifier
    from blindsight.sift.sift import SymbolSift
    from blindsight.statement import PrivacyStatement

    __version__: str

__all__ = [
    "BlindsightError",
    "Dataset",
    "EarlyStopping",
    "FederatedClassifier",
    "FederatedKMeans",
    "FederatedNetwork",
    "Gallery",
    "HammingIndex",
    "Ledger",
    "Privacy",
    "PrivacyStatement",
    "PrivateHasher",
    "Sums",
    "SymbolSift",
    "Verifier",
    "audit",
    "census",
    "load",
]

_HOMES = {
    "BlindsightError": "errors",
    "Dataset": "data",
    "EarlyStopping": "rounds",
    "FederatedClassifier": "learn",
    "FederatedKMeans": "learn",
    "FederatedNetwork": "learn",
    "Gallery": "search.gallery",
    "HammingIndex": "search",
    "Ledger": "dp",
    "Privacy": "rounds",
    "PrivacyStatement": "statement",
    "PrivateHasher": "search",
    "Sums": "rounds",
    "SymbolSift": "sift.sift",
    "Verifier": "sift",
    "census": "dp",
    "load": "data",
}
_ROOMS = (
    *("audit", "client", "crypto", "data", "dp", "learn"),
    *("metrics", "report", "rounds", "search", "sift", "sums"),
)


def __getattr__(name: str) -> Any:
    """Load what was asked for when it is asked for: a command, or a node of a federation, starts in no time."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("blindsight-vision")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS, "__version__"})
