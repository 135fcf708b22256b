"""Learning together without showing anything: encrypted federated averaging, its mathematics and its baselines."""

from blindsight.learn.aggregation import open_session
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.clustermodel import ClusterModel
from blindsight.learn.comparison import compare
from blindsight.learn.kmeans import FederatedKMeans
from blindsight.learn.model import LinearModel
from blindsight.learn.rounds import RoundReport
from blindsight.learn.study import Study

__all__ = [
    "ClusterModel",
    "FederatedClassifier",
    "FederatedKMeans",
    "LinearModel",
    "RoundReport",
    "Study",
    "compare",
    "open_session",
]
