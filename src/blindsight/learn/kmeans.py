"""Members find clusters together, and no one sees another's data: a scikit-learn estimator.

Yonetani et al., ICCV 2017, supplement, section 3: k-means++ on public data gives the first centroids, members move them
on their own data (`clustering`), the moves are added up unseen (`sums`). ::

    clusters = FederatedKMeans(n_clusters=101).fit([X1, X2, X3], public=X0)
    clusters.predict(X), clusters.score(X, y)
"""

from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from blindsight.data.features import Standardiser
from blindsight.data.sites import check_members_data, check_pair, error_context, name_members
from blindsight.errors import InputError
from blindsight.files import AnyPath
from blindsight.learn.classifier import USUAL_SHARE, FrozenParameters, Members
from blindsight.learn.clustering import (
    ClusterLearner,
    ClusterModel,
    ClusterTraining,
    assign,
    initial_centroids,
    local_clusters,
    next_centroids,
)
from blindsight.learn.model import describe_public, single_member_statement
from blindsight.learn.recording import RoundRecorder
from blindsight.metrics import adjusted_mutual_information
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds import EarlyStopping, Run, Sums, Task, register_learner, run_here
from blindsight.rounds.run import OnRound
from blindsight.rounds.task import Seed
from blindsight.validation import check_features

K_MEANS = "k-means"
_MOST_PASSES = 100  # of one member alone


class FederatedKMeans(FrozenParameters, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters found in several members' data; with ``fit(X)``, in one's alone.

    Parameters are those of `FederatedClassifier`; in a round, a fifth of the moves are sent unless `sums` names a
    share. Fitted: `cluster_centers_` (of *standardised* features), `model_` (a `ClusterModel`, which can be saved),
    `history_`, `public_score_`, `statement_`, `views_` and `recorded_` if recorded, `n_features_in_`, and for one
    member alone `labels_`.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        sums: str | Sums = "masks",
        *,
        rounds: int = 20,
        passes: int = 1,
        batch_size: int = 1024,
        early_stopping: EarlyStopping | None = None,
        random_state: Seed = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.sums = sums
        self.rounds = rounds
        self.passes = passes
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.random_state = random_state

    def fit(
        self,
        members: Members | ArrayLike,
        y: object = None,
        *,
        public: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        checkpoint: AnyPath | None = None,
        record: bool = False,
        on_round: OnRound | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Find clusters in several members' features, or without `public` features in those of one alone.

        As in `FederatedClassifier.fit`, but members and the public have features without labels; `validation` data are
        features and known groups, whose adjusted mutual information with the clusters is the score. `y` is ignored.
        """
        if public is None:
            return self._fit_alone(members)
        with error_context("the public data"):
            X = check_features(public, precision="wide")
        dimensions, loaders = X.shape[1], name_members(members)  # type: ignore[arg-type]
        samples, prints = check_members_data(
            loaders, lambda data: (check_features(data, dimensions, precision="wide"),)
        )
        held_out = None
        if validation is not None:
            with error_context("the validation data"):
                held_out = check_pair(validation, dimensions)
        recorder = RoundRecorder() if record else None
        run = run_here(
            self._task(X, self._sums, samples + len(X)),
            self._sums,
            loaders,
            rounds=self.rounds,
            random_state=self.random_state,
            validation=held_out,
            prints=prints,
            checkpoint=checkpoint,
            stopping=self.early_stopping,
            recorder=recorder,
            on_round=on_round,
            progress=progress,
        )
        learner = run.learner
        assert isinstance(learner, ClusterLearner)
        return self._adopt(ClusterModel(run.state.shared, learner.standardiser), run, recorder)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest cluster of every sample."""
        check_is_fitted(self)
        model: ClusterModel = self.model_
        return model.predict(validate_data(self, X, reset=False))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the adjusted mutual information of the clusters with known groups."""
        return adjusted_mutual_information(y, self.predict(X))

    @property
    def _sums(self) -> Sums:
        return Sums.of(self.sums).with_share(USUAL_SHARE)

    def _task(self, public: NDArray[Any], sums: Sums, samples: int) -> Task:
        """Return what members learn, from so many samples in all; a subclass may let them learn something else."""
        training = ClusterTraining(**sums.selection, passes=self.passes, batch_size=self.batch_size)
        return cluster_task(public, self.n_clusters, training, most_samples=samples)

    def _adopt(self, model: ClusterModel, run: Run | None, recorder: RoundRecorder | None = None) -> Self:
        self.model_, self.cluster_centers_ = model, model.centroids
        self.n_features_in_ = model.centroids.shape[1]
        self.history_ = [] if run is None else list(run.state.history)
        self.public_score_ = None if run is None else run.state.first_score
        self.statement_ = single_member_statement() if run is None else run.statement
        self.views_ = () if recorder is None else recorder.views
        self.recorded_ = None if recorder is None else recorder.recorded
        return self

    def _fit_alone(self, X: Any) -> Self:
        """Lloyd's algorithm from k-means++ centroids, until no centroid moves."""
        X = validate_data(self, X)
        standardiser, generator = Standardiser.fit(X), science(self.random_state)
        features, training = standardiser.apply(X), ClusterTraining(sparsify="none", batch_size=max(len(X), 1))
        centroids = initial_centroids(features, self.n_clusters, random_state=generator)
        for _ in range(_MOST_PASSES):
            sent = local_clusters(centroids, features, training, random_state=generator).sent
            before, centroids = centroids, next_centroids(centroids, sent)
            if np.array_equal(before, centroids):
                break
        self.labels_ = assign(centroids, features)
        return self._adopt(ClusterModel(centroids, standardiser), None)


def cluster_task(
    public: NDArray[Any],
    n_clusters: int,
    training: ClusterTraining,
    *,
    most_samples: int,
    kind: str = K_MEANS,
    **settings: Any,
) -> Task:
    """Return the task of clustering that begins among public samples; `most_samples` are those of all members."""
    if not 1 <= n_clusters <= len(public):
        raise InputError(f"n_clusters must be in 1 ... {len(public)}, the public samples; got {n_clusters}.")
    standardiser = Standardiser.fit(public)
    settings |= {"training": asdict(training), "clusters": int(n_clusters), "most_samples": int(most_samples)}
    return Task(kind=kind, settings=settings, arrays=describe_public(standardiser, standardiser.apply(public)))


register_learner(K_MEANS, ClusterLearner.of)
