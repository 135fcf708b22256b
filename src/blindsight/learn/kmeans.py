"""Owners of pictures find clusters together, and nobody sees another's: a scikit-learn estimator.

Yonetani et al., ICCV 2017, supplement, section 3: k-means++ on public data gives the first centroids, owners move them
by sparse stochastic k-means (`clustering`), the moves are added up under encryption (`aggregation`). ::

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
from blindsight.errors import InputError
from blindsight.files import AnyPath
from blindsight.learn.clustering import (
    ClusterLearner,
    ClusterModel,
    ClusterTraining,
    Target,
    assign,
    initial_centroids,
    local_clusters,
    next_centroids,
)
from blindsight.learn.owners import Owners, check_pair, name_owners, speaking_of, survey
from blindsight.learn.rounds import Criterion, OnRound, Run, RunSettings, Seed, Selection, Task, alone, play
from blindsight.metrics import adjusted_mutual_information
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.validation import check_features

_MOST_PASSES = 100  # of one owner alone


class FederatedKMeans(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters found in several owners' data; with ``fit(X)``, in one's alone.

    `target` is "update", the difference to the shared centroids weighed by the samples behind it, or "centroids", which
    are sparse and whose plain mean is taken, as in the paper. Other parameters are those of `FederatedClassifier`.

    Fitted: `cluster_centers_` (of *standardised* features), `model_` (a `ClusterModel`, which can be saved),
    `history_`, `public_score_`, `statement_`, `views_` if recorded, `n_features_in_`, and for one owner alone
    `labels_`.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        scheme: str = "masks",
        rounds: int = 20,
        sparsity: float | None = None,
        key_bits: int = 3072,
        keys: str = "subgroup",
        target: Target = "update",
        selection: Selection = "auto",
        passes: int = 1,
        batch_size: int = 1024,
        minimum_per_position: int | None = None,
        early_stopping: Criterion | None = None,
        patience: int = 3,
        tolerance: float = 1e-3,
        random_state: Seed = 0,
        insecure: bool = False,
        record: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.scheme = scheme
        self.rounds = rounds
        self.sparsity = sparsity
        self.key_bits = key_bits
        self.keys = keys
        self.target = target
        self.selection = selection
        self.passes = passes
        self.batch_size = batch_size
        self.minimum_per_position = minimum_per_position
        self.early_stopping = early_stopping
        self.patience = patience
        self.tolerance = tolerance
        self.random_state = random_state
        self.insecure = insecure
        self.record = record

    def fit(
        self,
        owners: Owners | ArrayLike,
        y: object = None,
        *,
        public: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        checkpoint: AnyPath | None = None,
        on_round: OnRound | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Find clusters in several owners' features, or without `public` features in those of one alone.

        As in `FederatedClassifier.fit`, but owners and the public have features without labels; `validation` data are
        features and known groups, whose adjusted mutual information with the clusters is the score. `y` is ignored.
        """
        if public is None:
            return self._fit_alone(owners)
        task = self._task(owners, public, validation)
        run = play(
            task,
            RunSettings.of(self, len(task.owners)),
            random_state=self.random_state,
            checkpoint=checkpoint,
            on_round=on_round,
            progress=progress,
        )
        return self._adopt(ClusterModel(run.state.shared, task.learner.standardiser), run)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the nearest cluster of every sample."""
        check_is_fitted(self)
        model: ClusterModel = self.model_
        return model.predict(validate_data(self, X, reset=False))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the adjusted mutual information of the clusters with known groups."""
        return adjusted_mutual_information(y, self.predict(X))

    def _adopt(self, model: ClusterModel, run: Run | None) -> Self:
        self.model_, self.cluster_centers_ = model, model.centroids
        self.n_features_in_ = model.centroids.shape[1]
        self.history_ = [] if run is None else list(run.state.history)
        self.public_score_ = None if run is None else run.state.first_score
        self.statement_ = alone() if run is None else run.statement
        self.views_ = () if run is None else run.views
        return self

    def _fit_alone(self, X: Any) -> Self:
        """Lloyd's algorithm from k-means++ centroids, until no centroid moves."""
        X = validate_data(self, X)
        standardiser, generator = Standardiser.fit(X), science(self.random_state)
        features, training = standardiser.apply(X), ClusterTraining(sparsify="none", batch_size=max(len(X), 1))
        centroids = initial_centroids(features, self.n_clusters, random_state=generator)
        for _ in range(_MOST_PASSES):
            sent = local_clusters(centroids, features, training, random_state=generator).sent
            before, centroids = centroids, next_centroids(centroids, sent, training)
            if np.array_equal(before, centroids):
                break
        self.labels_ = assign(centroids, features)
        return self._adopt(ClusterModel(centroids, standardiser), None)

    def _task(self, owners: Any, public: ArrayLike, validation: Any) -> Task[ClusterLearner]:
        with speaking_of("the public data"):
            X = check_features(public, precision="wide")
        if not 1 <= self.n_clusters <= len(X):
            raise InputError(f"n_clusters must be in 1 ... {len(X)}, the public samples; got {self.n_clusters}.")
        loads, dimensions = name_owners(owners), X.shape[1]
        samples, prints = survey(
            {"the public data": lambda: X, **loads}, lambda data: (check_features(data, dimensions, precision="wide"),)
        )
        standardiser, held_out = Standardiser.fit(X), None
        if validation is not None:
            with speaking_of("the validation data"):
                features, groups = check_pair(validation, dimensions)
            held_out = standardiser.apply(features), groups
        settings = RunSettings.of(self, len(loads))
        sparsify = settings.sparsified(self.selection, by_penalty=self.target == "centroids", schedules=True)
        training = ClusterTraining(
            target=self.target,
            sparsify=sparsify,
            sparsity=settings.sparsity_of(sparsify),
            block_size=settings.block_size,
            passes=self.passes,
            batch_size=self.batch_size,
        )
        learner = ClusterLearner(loads, self.n_clusters, standardiser, training, standardiser.apply(X), held_out)
        size = self.n_clusters * (dimensions + 1)
        return Task(
            owners=tuple(loads),
            learner=learner,
            dimension=size,
            capacity=settings.capacity(size, sparsify),
            largest=4.0 * max(samples, 16),  # what is sent is a sum over the samples of a cluster
            share=settings.share(sparsify),
            always=self.n_clusters,  # the counts
            identity={"training": asdict(training), "clusters": self.n_clusters, "data": prints},
        )
