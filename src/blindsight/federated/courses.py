"""What the server of a federation teaches: the first model, the lesson, and how the sum becomes the next model.

The same learning as `FederatedClassifier` and `FederatedKMeans`, whose owners are in one process. Here nobody knows how
many samples the others have: the penalty takes each owner to have as many as are public, unless `ridge` is given, and
`most_samples` bounds what the clusters of all owners together hold.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError
from blindsight.federated.lessons import Lesson
from blindsight.federated.sums.runterms import RunTerms, briefing_digest
from blindsight.learn.clustering import ClusterLearner, ClusterTraining
from blindsight.learn.linear import LARGEST_WEIGHT, LinearLearner, LinearTraining
from blindsight.learn.model import Attributes, Classes, Labels, Standardiser
from blindsight.learn.owners import check_pair, speaking_of
from blindsight.learn.rounds import SLOT_BITS, RunSettings, fraction_bits
from blindsight.validation import check_features

Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class CourseSettings:
    """How owners learn and what they send; `FederatedClassifier` explains them."""

    scheme: str = "block-dphe"
    sparsity: float = 0.9
    key_bits: int = 3072
    minimum_per_position: int = 1
    insecure: bool = False
    ridge: float | None = None
    passes: int | None = None
    clusters: int = 8
    most_samples: int = 100_000

    @property
    def run(self) -> RunSettings:
        """The same settings as a run in one process has them."""
        return RunSettings(
            scheme=self.scheme,
            key_bits=self.key_bits,
            minimum_per_position=self.minimum_per_position,
            insecure=self.insecure,
            sparsity=self.sparsity,
            rounds=1,
            early_stopping=None,
            patience=1,
            tolerance=0.0,
            record=False,
        )


@dataclass(frozen=True, eq=False)
class Course:
    """What is taught: `learner` is the server's part, without owners."""

    settings: CourseSettings
    lesson: Lesson
    learner: LinearLearner | ClusterLearner
    dimension: int
    largest: float

    def terms(self, run: str, users: tuple[str, ...], *, minimum: int) -> RunTerms:
        """Return the terms of a run that adds up what these users learn."""
        sparsify = self.lesson.training.sparsify
        return RunTerms(
            scheme=self.settings.scheme,
            run=run,
            users=users,
            dimension=self.dimension,
            fraction_bits=fraction_bits(len(users), self.largest),
            slot_bits=SLOT_BITS,
            minimum=minimum,
            capacity=self.settings.run.capacity(self.dimension, sparsify),
            key_bits=self.settings.key_bits,
            minimum_per_position=self.settings.minimum_per_position,
            insecure=self.settings.insecure,
            briefing=briefing_digest(self.lesson.to_bytes()),
        )


def classifier_course(public: Pair, validation: Pair | None, owners: int, settings: CourseSettings) -> Course:
    """Return a course of linear classification of the classes, or attributes, of the public data."""
    with speaking_of("the public data"):
        X, y = check_pair(public)
        labels: Labels = Attributes(y.shape[1]) if y.ndim == 2 else Classes(np.unique(y))
    samples = len(X) * (owners + 1)
    training = LinearTraining(
        sparsify=settings.run.sparsified("auto", by_penalty=False),
        sparsity=settings.sparsity,
        block_size=settings.run.block_size,
        ridge=X.shape[1] / samples if settings.ridge is None else settings.ridge,
        passes=3 if settings.passes is None else settings.passes,
    )
    standardiser = Standardiser.fit(X)
    lesson = Lesson(training, standardiser, standardiser.apply(X), labels, labels.signs(y))
    learner = lesson.learner("", lambda: None, _held_out(validation, standardiser, X.shape[1]))
    return Course(settings, lesson, learner, labels.rows * (X.shape[1] + 1), LARGEST_WEIGHT)


def cluster_course(public: NDArray[Any], validation: Pair | None, settings: CourseSettings) -> Course:
    """Return a course of clustering that begins among the public samples."""
    with speaking_of("the public data"):
        X = check_features(public, precision="wide")
    if not 1 <= settings.clusters <= len(X):
        raise InputError(f"clusters must be in 1 ... {len(X)}, the public samples; got {settings.clusters}.")
    training = ClusterTraining(
        sparsify=settings.run.sparsified("auto", by_penalty=False),
        sparsity=settings.sparsity,
        block_size=settings.run.block_size,
        passes=1 if settings.passes is None else settings.passes,
    )
    standardiser = Standardiser.fit(X)
    lesson = Lesson(training, standardiser, standardiser.apply(X), clusters=settings.clusters)
    learner = lesson.learner("", lambda: None, _held_out(validation, standardiser, X.shape[1]))
    size = settings.clusters * (X.shape[1] + 1)
    return Course(settings, lesson, learner, size, 4.0 * max(settings.most_samples, 16))


def _held_out(validation: Pair | None, standardiser: Standardiser, dimensions: int) -> Pair | None:
    if validation is None:
        return None
    with speaking_of("the validation data"):
        features, answers = check_pair(validation, dimensions)
    return standardiser.apply(features), answers
