"""Metrics: pure functions from arrays to numbers, by the papers' definitions and the standard ones.

Where a paper's definition flatters or hides something, its docstring says what. Every function refuses empty,
mismatched or not-a-number input with one sentence; none of them warns and carries on.
"""

from blindsight.metrics.classification import (
    Interval,
    accuracy,
    accuracy_interval,
    adjusted_mutual_information,
    balanced_accuracy,
    balanced_accuracy_interval,
    mean_label_accuracy,
    mean_precision,
    priv_loss,
    pub_loss,
)
from blindsight.metrics.retrieval import (
    average_precision,
    mean_average_precision,
    query_average_precision,
    radius_precision_recall,
    recall_at_k,
)

__all__ = [
    "Interval",
    "accuracy",
    "accuracy_interval",
    "adjusted_mutual_information",
    "average_precision",
    "balanced_accuracy",
    "balanced_accuracy_interval",
    "mean_average_precision",
    "mean_label_accuracy",
    "mean_precision",
    "priv_loss",
    "pub_loss",
    "query_average_precision",
    "radius_precision_recall",
    "recall_at_k",
]
