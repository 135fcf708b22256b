"""How often a classifier is right, and what a sift costs: accuracies, PubLoss and PrivLoss.

Enev et al., "SensorSift", ACSAC 2012, sections 6.2 and 6.3; Yonetani et al., "Privacy-Preserving Visual Learning Using
Doubly Permuted Homomorphic Encryption", ICCV 2017, section 3.

| paper | here |
| --- | --- |
| SensorSift Eq. 4, AggregateAccuracy | `accuracy` |
| SensorSift Eq. 5, ClassAvgAccuracy | `mean_precision` |
| DPHE, "accuracies averaged over all the categories" (Caltech-101/256) | `balanced_accuracy` |
| DPHE, "mean accuracies over 40 face attribute labels" | `mean_label_accuracy` |
| SensorSift section 6.2, PubLoss and PrivLoss | `pub_loss`, `priv_loss` of either accuracy |

SensorSift describes Eq. 5 as weighing presence and absence equally, which the mean of the *recalls* does; its formula
divides by tP + fP and tN + fN and so averages the *precisions*. The two disagree exactly where it matters, on rare
attributes. Figures under the paper's name use the formula; decisions here rest on `balanced_accuracy`.
"""

import numpy as np
from numpy.typing import ArrayLike

from blindsight.errors import InputError
from blindsight.metrics.inputs import binary_pair, label_pair


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of right answers, (tP + tN) / tS (SensorSift Eq. 4).

    Hides the prevalence: always saying "no" about an attribute 5% of people have scores .95.

    >>> accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.75
    """
    truth, guess = label_pair(y_true, y_pred)
    return float(np.mean(truth == guess))


def balanced_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the mean over the classes in `y_true` of the share of that class which was recognised (its recall).

    For two classes (tP / (tP + fN) + tN / (tN + fP)) / 2. A guess that ignores the picture scores 1 / classes, whatever
    the prevalences. For many classes this is DPHE's accuracy averaged over the categories. Hides how rare the classes
    are, so also how many of the positives that are reported are false. With a single class in `y_true` a blind guess
    would score 1: refused.

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    truth, guess = label_pair(y_true, y_pred)
    classes, index = np.unique(truth, return_inverse=True)
    if classes.size < 2:
        raise InputError(f"balanced accuracy needs two classes or more in y_true; got only {classes[0]}.")
    return float(np.mean(np.bincount(index, weights=truth == guess) / np.bincount(index)))


def mean_precision(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return (tP / (tP + fP) + tN / (tN + fN)) / 2, SensorSift's ClassAvgAccuracy (Eq. 5), for 0/1 labels.

    For a class that is never predicted the formula reads 0 / 0; here its precision is 0, so that a constant guess
    scores half the prevalence of its class and never looks informed. A `y_true` of one class is scored as it stands.

    Hides rare attributes, in both directions. One lucky positive at prevalence .2 scores .90 though balanced accuracy
    stays near .50; an attacker who recognises 75% of either class at prevalence .05 scores .56 and would be called
    harmless:

    >>> lucky = [1] + [0] * 99
    >>> round(mean_precision([1] * 20 + [0] * 80, lucky), 2)
    0.9
    >>> truth, attack = [1] * 40 + [0] * 760, [1] * 30 + [0] * 10 + [0] * 570 + [1] * 190
    >>> round(mean_precision(truth, attack), 2), balanced_accuracy(truth, attack)
    (0.56, 0.75)
    """
    truth, guess = binary_pair(y_true, y_pred)
    positive, negative = int(guess.sum()), int((~guess).sum())
    right_positive, right_negative = int((truth & guess).sum()), int((~truth & ~guess).sum())
    return (right_positive / max(positive, 1) + right_negative / max(negative, 1)) / 2  # Eq. 5


def mean_label_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the accuracy averaged over the labels (columns) of 0/1 matrices of shape (pictures, labels).

    Hides rare labels even more than `accuracy` does: on forty mostly rare attributes, saying "no" to all looks fine.

    >>> mean_label_accuracy([[1, 0], [0, 0]], [[1, 0], [1, 0]])
    0.75
    """
    truth, guess = binary_pair(y_true, y_pred, dimensions=2)
    return float(np.mean(truth == guess))


def pub_loss(raw: float, sifted: float) -> float:
    """Return PubLoss: the accuracy of a public attribute from raw data less that from sifted data (section 6.2).

    Both accuracies are of one kind: `mean_precision` gives the paper's PubLoss, `balanced_accuracy` the standard one.
    Negative where the sift helps. Hides a classifier that was weak on the raw data.

    >>> round(pub_loss(0.9286, 0.8756), 3)
    0.053
    """
    return _share(raw, "raw") - _share(sifted, "sifted")


def priv_loss(sifted: float, classes: int = 2) -> float:
    """Return PrivLoss: the accuracy of a private attribute from sifted data less blind guessing, 1 / classes.

    The paper writes .5 because its attributes are binary, and takes `mean_precision`, for which .5 is *not* what a
    blind guess scores; with `balanced_accuracy` it is. Hides every attacker that was not tried, and the error of the
    estimate: see `balanced_accuracy_interval`.

    >>> round(priv_loss(0.575), 3)
    0.075
    """
    if classes < 2:
        raise InputError(f"classes must be >= 2; got {classes}.")
    return _share(sifted, "sifted") - 1 / classes


def _share(value: float, name: str) -> float:
    if not 0 <= value <= 1:
        raise InputError(f"{name} must be an accuracy in [0, 1]; got {value}. Divide percentages by 100.")
    return float(value)
