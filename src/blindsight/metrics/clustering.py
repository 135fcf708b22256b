"""How well clusters agree with known groups."""

from typing import Literal

from numpy.typing import ArrayLike

from blindsight.metrics.inputs import label_pair


def adjusted_mutual_information(
    y_true: ArrayLike, clusters: ArrayLike, average: Literal["arithmetic", "max", "min", "geometric"] = "arithmetic"
) -> float:
    """Return (MI - E[MI]) / (average(H(y), H(clusters)) - E[MI]), as DPHE's supplement reports for k-means (Table 2).

    The expectation is over random clusterings of the same sizes (Vinh, Epps & Bailey, JMLR 2010): 0 is chance, 1 is
    agreement up to the names of the clusters. The supplement does not say which average of the two entropies it
    divides by; scikit-learn took "max" when it was written and takes "arithmetic" since 0.22. One group that is all
    one cluster scores 1. Hides which groups were merged. Computed by scikit-learn.

    >>> adjusted_mutual_information([0, 0, 1, 1], [7, 7, 3, 3])
    1.0
    """
    from sklearn.metrics import adjusted_mutual_info_score

    truth, found = label_pair(y_true, clusters)
    return float(adjusted_mutual_info_score(truth, found, average_method=average))
