"""Learning together without showing anything: encrypted federated averaging and its mathematics."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindsight.data.sites import Study
    from blindsight.learn.classifier import FederatedClassifier
    from blindsight.learn.clustering import ClusterModel
    from blindsight.learn.kmeans import FederatedKMeans
    from blindsight.learn.model import LinearModel, PictureModel, load_model
    from blindsight.learn.network import FederatedNetwork, NetworkModel
    from blindsight.rounds import RoundReport
    from blindsight.sums import open_session

__all__ = [
    "ClusterModel",
    "FederatedClassifier",
    "FederatedKMeans",
    "FederatedNetwork",
    "LinearModel",
    "NetworkModel",
    "PictureModel",
    "RoundReport",
    "Study",
    "load_model",
    "open_session",
]

_HOMES = {
    "ClusterModel": "blindsight.learn.clustering",
    "FederatedClassifier": "blindsight.learn.classifier",
    "FederatedKMeans": "blindsight.learn.kmeans",
    "FederatedNetwork": "blindsight.learn.network",
    "LinearModel": "blindsight.learn.model",
    "NetworkModel": "blindsight.learn.network",
    "PictureModel": "blindsight.learn.model",
    "RoundReport": "blindsight.rounds",
    "Study": "blindsight.data.sites",
    "load_model": "blindsight.learn.model",
    "open_session": "blindsight.sums",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
