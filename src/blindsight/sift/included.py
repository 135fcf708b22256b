"""Included mode: the platform's own sift and classifier, folded into one sift that lets out a label per attribute.

Enev et al., "SensorSift", ACSAC 2012, section 3: for attributes the platform knows, an app gets the classifier's
judgement instead of numbers. The sift is linear and so is the classifier; together they are one `LinearSift` whose
numbers have two levels: data that can be saved, hashed and certified like any other.
"""

import copy

import numpy as np

from blindsight.errors import UnknownNameError
from blindsight.sift.labels import label_columns
from blindsight.sift.lossbench import SiftLearner
from blindsight.sift.policy import Policy
from blindsight.sift.publicclassifier import train_public_classifier
from blindsight.sift.quantiser import Quantiser
from blindsight.sift.sift import LinearSift, Sift, without_negligible
from blindsight.sift.verificationset import VerificationSet


def included_sift(learner: SiftLearner, policy: Policy, development: VerificationSet) -> Sift:
    """Return a sift that lets out 1 or 0 for each public attribute of the policy.

    `development` must be other rows than those the sift will be verified on. A learner whose sift has few levels
    already is taken as it is.
    """
    for name in policy.public:
        if name not in development.labels:
            raise UnknownNameError("public attribute", name, development.labels)
    sides = (label_columns(development.labels, side) for side in (policy.public, policy.private))
    sift: Sift = copy.deepcopy(learner).fit(development.features, *sides).sift_
    if not isinstance(sift, LinearSift) or sift.levels is not None:
        return sift
    released = sift.project(development.features)
    classifiers = [train_public_classifier(released, development.labels[name]) for name in policy.public]
    weights = np.stack([classifier.weights for classifier in classifiers], axis=1)
    edges = [classifier.threshold + classifier.mean @ classifier.weights for classifier in classifiers]
    return LinearSift(
        sift.mean,
        sift.scale,
        without_negligible(sift.matrix.astype(np.float64) @ weights).astype(np.float32),
        Quantiser(np.array(edges, dtype=np.float32)[:, None]),
        development.pipeline,
        name=str(policy),
    )
