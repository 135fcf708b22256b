"""Owners of pictures train one linear classifier, and nobody sees another's update: a scikit-learn estimator.

R. Yonetani, V. N. Boddeti, K. M. Kitani, Y. Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic
Encryption", ICCV 2017, sections 2.1 and 3; the rounds are `rounds`, an owner's part is `linear`, the sum is
`aggregation`. ::

    classifier = FederatedClassifier(rounds=10).fit([(X1, y1), (X2, y2), (X3, y3)], public=(X0, y0))
    classifier.predict(X), classifier.history_, print(classifier.statement_)

From pictures, whose classes are matched by name, and back to pictures (`pictures.load_model` reads what is saved)::

    sites = {name: load("folder", path=name) for name in ("north", "east", "west")}
    classifier = FederatedClassifier().fit(sites, public=load("folder", path="public"))
    classifier.predict(images), classifier.save("run")

| paper | here |
| --- | --- |
| initial weights from public data | ``fit(..., public=(X0, y0))``, which also standardises the features |
| users send sparse classifiers, their mean is the next one | ``scheme="dphe", target="classifier"`` |
| every sum is opened, one user's own too | ``minimum_per_position=1`` |
| elastic net, more than 90% zeros | ``sparsity=0.9`` (by the penalty for that target, see `linear`) |
| M = 0.1 D NC, the encryption capacity | (1 - sparsity) of the weights, in whole blocks for "block-dphe" |

By default owners send *differences* to the shared classifier under masks instead. In each round they send those of a
fifth of the weights, by a public schedule that is the same for all (`sums.support`): what is sent tells nothing about
them but its sum, and most of what they have learned elsewhere (`error_feedback`) is carried into the next round.

Owners of pictures find clusters together, and nobody sees another's: a scikit-learn estimator.

Yonetani et al., ICCV 2017, supplement, section 3: k-means++ on public data gives the first centroids, owners move them
by sparse stochastic k-means (`clustering`), the moves are added up under encryption (`aggregation`). ::

    clusters = FederatedKMeans(n_clusters=101).fit([X1, X2, X3], public=X0)
    clusters.predict(X), clusters.score(X, y)
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from blindsight.data.dataset import Dataset
from blindsight.data.features import Standardiser, pipeline
from blindsight.data.study import Study, gather, speaking_of
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError
from blindsight.files import AnyPath
from blindsight.learn.clustering import (
    ClusterLearner,
    ClusterModel,
    ClusterTraining,
    assign,
    initial_centroids,
    local_clusters,
    next_centroids,
)
from blindsight.learn.clustering import (
    Target as ClusterTarget,
)
from blindsight.learn.linear import LARGEST_WEIGHT, LinearLearner, LinearTraining, Loss, Target, train
from blindsight.learn.model import Attributes, Classes, Floats, Labels, LinearModel, PictureModel, Pictures
from blindsight.learn.owners import Owners, check_pair, name_owners, survey
from blindsight.learn.private import Privacy, PrivateLearner, PublicSpace, read_records
from blindsight.learn.rounds import Criterion, OnRound, Run, RunSettings, Seed, Selection, Sparsify, Task, alone, play
from blindsight.metrics import adjusted_mutual_information
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sums.noise import NoisePlan, NoiseUnit, noised
from blindsight.validation import check_features

_FEW_PASSES, _MANY_PASSES = 3, 20
FEEDBACK = 0.7  # on Caltech-101 as good as a half and better than all of it; on small, noisy data better than a half


class FederatedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier learned from several owners' data; with ``fit(X, y)``, from one's alone.

    Parameters
    ----------
    scheme : "masks", "bfv", "dphe", "block-dphe" or "plain"; how updates are added up (`aggregation`).
    rounds : how many times; `early_stopping` may end them before.
    sparsity : the share of weights that an owner does *not* send in a round; None is 0.8 for a schedule, else 0.9.
        Messages of bfv and masks are shorter for it with a schedule only.
    key_bits : of the Paillier key: 2048, 3072 or 4096; 1024 only with `insecure`.
    keys : "subgroup", or "conservative" without the assumption that makes those faster (`crypto.paillier`).
    loss : "hinge", "squared hinge" or "logistic".
    target : what is sent: "update", the difference to the shared classifier, or "classifier", as in the paper.
    selection : "schedule" sends the weights whose turn it is, the same for all owners, "topk" an owner's largest,
        "blocks" its largest blocks, "strength" what the elastic net leaves, "none" everything; "auto" is topk for
        "dphe", blocks for "block-dphe", strength for the classifier target, else schedule.
    error_feedback : the part of what an owner did not send that it carries on; None is 0.7 for a schedule, else 1.
    multilabel : labels are attributes (n, a) with 1, 0 and -1 for unknown, not one class per sample.
    classes : all classes there are, where the public data do not have an example of each.
    balanced : give rare classes the weight of frequent ones.
    ridge : see `linear.LinearTraining`; None is that of all owners' data pooled.
    passes : over an owner's data in a round; None is 3, and 20 where an elastic net makes updates sparse.
    minimum_per_position : withhold weights that fewer owners changed (dphe and block-dphe); they are sent later. None
        is 2, and 3 from five owners on; the paper opens every sum: 1.
    early_stopping : "score" stops after `patience` rounds without a validation score better by `tolerance`, "step" when
        the model moved less than `tolerance` of its length in as many. The last round's model is kept, not the best.
    epsilon, delta : what is to be proven of all rounds, by noise inside the sums (`private`, `sums.noise`); None is
        nothing. Then every weight is in every round, and loss, target, selection, sparsity, ridge, passes, batch_size
        and balanced do not count.
    unit : what epsilon protects: one "record", or all that one "owner" has.
    clip : the longest gradient of a record (None is 1, rows of features having length 1), or update of an owner.
    colluders, drop_outs : how many owners may tell the server their noise, and miss a round; None is what masks
        withstand (`sums.masks`). A round with more drop-outs is not opened.
    features, components : what is made of pictures (`data.pipeline`), where owners bring datasets of pictures.
    random_state : decides the order of samples in training; keys and noise never depend on it.
    record : keep, for one round, what each role held, as pictures (`views_`); for demonstrations only.

    Attributes
    ----------
    coef_, intercept_ : weights of *standardised* features, one row per class (one in all for two classes).
    classes_ : the classes, sorted; absent for attributes.
    model_ : the `LinearModel`, which can be saved.
    history_ : a `RoundReport` per round.
    public_score_ : the validation score of the public model, before any round; None without validation data.
    statement_ : the `PrivacyStatement`.
    noise_ : the `NoisePlan` of a run with epsilon; else None.
    views_ : a `RoleView` of what each role held, if recorded.
    recorded_ : the first round played, with everybody's messages and updates, if recorded: for audits only.
    n_features_in_ : the number of features.
    pictures_ : how pictures become features, where owners brought pictures; else None.
    """

    def __init__(
        self,
        scheme: str = "masks",
        *,
        rounds: int = 10,
        sparsity: float | None = None,
        key_bits: int = 3072,
        keys: str = "subgroup",
        loss: Loss = "hinge",
        target: Target = "update",
        selection: Selection = "auto",
        error_feedback: float | None = None,
        multilabel: bool = False,
        classes: ArrayLike | None = None,
        balanced: bool = False,
        ridge: float | None = None,
        passes: int | None = None,
        batch_size: int = 64,
        minimum_per_position: int | None = None,
        early_stopping: Criterion | None = None,
        patience: int = 3,
        tolerance: float = 1e-3,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: NoiseUnit | None = None,
        clip: float | None = None,
        colluders: int | None = None,
        drop_outs: int | None = None,
        features: str = "pixels",
        components: int | None = 200,
        random_state: Seed = 0,
        insecure: bool = False,
        record: bool = False,
    ) -> None:
        self.scheme = scheme
        self.rounds = rounds
        self.sparsity = sparsity
        self.key_bits = key_bits
        self.keys = keys
        self.loss = loss
        self.target = target
        self.selection = selection
        self.error_feedback = error_feedback
        self.multilabel = multilabel
        self.classes = classes
        self.balanced = balanced
        self.ridge = ridge
        self.passes = passes
        self.batch_size = batch_size
        self.minimum_per_position = minimum_per_position
        self.early_stopping = early_stopping
        self.patience = patience
        self.tolerance = tolerance
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.clip = clip
        self.colluders = colluders
        self.drop_outs = drop_outs
        self.features = features
        self.components = components
        self.random_state = random_state
        self.insecure = insecure
        self.record = record

    def fit(
        self,
        owners: Owners | ArrayLike,
        y: ArrayLike | None = None,
        *,
        public: tuple[ArrayLike, ArrayLike] | Dataset | None = None,
        validation: tuple[ArrayLike, ArrayLike] | Dataset | None = None,
        checkpoint: AnyPath | None = None,
        ledger: Ledger | None = None,
        scope: str | None = None,
        on_round: OnRound | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from several owners, or with features and labels `y` and no `public` data from one alone.

        `owners` is a list of (X, y), or a mapping from names to them; a function that returns (X, y) can stand for the
        pair and is called in every round. `public` data give the first model, the standardisation and the classes.
        Instead of pairs all may be a `Dataset`: features are made of its pictures, classes are matched by name.
        `validation` data are scored after every round. With a `checkpoint` folder, a run that was interrupted goes
        on where it stopped. `on_round` is called with each `RoundReport`. With epsilon, a `ledger` is charged under
        `scope` before anything is learned.
        """
        self.pictures_: Pictures | None = None
        if isinstance(public, Dataset):
            owners, public, validation = self._from_pictures(owners, public, validation, progress)
        privacy = Privacy.of(self)
        if privacy is None and ledger is not None:
            raise InputError("a ledger counts proven privacy; got one without epsilon, delta and unit.")
        if public is None:
            if privacy is not None:
                raise InputError("noise goes into sums of several owners, with public data. Leave epsilon away.")
            return self._fit_alone(owners, y)
        if y is not None:
            raise InputError("with public data every owner brings its own labels; got y as well.")
        if privacy is not None:
            return self._fit_private(privacy, owners, public, validation, checkpoint, ledger, scope, on_round, progress)
        task = self._task(owners, public, validation)
        run = play(
            task,
            RunSettings.of(self, len(task.owners)),
            random_state=self.random_state,
            checkpoint=checkpoint,
            on_round=on_round,
            progress=progress,
        )
        return self._adopt(LinearModel(run.state.shared, task.learner.standardiser, task.learner.labels), run)

    def check(self, owners: int) -> None:
        """Refuse settings that contradict themselves or do not fit so many owners, before any data are read."""
        RunSettings.of(self, owners)
        if (privacy := Privacy.of(self)) is not None:
            plan = privacy.plan(owners=owners, dimension=1, rounds=self.rounds, records=1, scheme=self.scheme)
            privacy.check(plan)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of every sample, or its attributes as 1 and 0."""
        return self._model.predict(self._features(X))

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return the scores: (n,) for two classes, where they rank for detection, else (n, classes or attributes)."""
        return self._model.decision_function(self._features(X))

    def score(
        self, X: ArrayLike | Dataset, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the share of right answers; for attributes, the mean over them of the known ones that are right.

        A dataset brings its own.
        """
        if isinstance(X, Dataset) and self.pictures_ is not None:
            y = self.pictures_.answered(X)
        if y is None:
            raise InputError("a score needs the right answers y, or a dataset that has them.")
        if not self.multilabel:
            return float(super().score(X, y, sample_weight))
        if sample_weight is not None:
            raise InputError("attributes are scored without sample weights.")
        return self._model.quality(self._features(X), y)

    @property
    def _model(self) -> LinearModel:
        check_is_fitted(self)
        model: LinearModel = self.model_
        return model

    def save(self, folder: AnyPath) -> None:
        """Write the model, and how pictures become features, for `pictures.load_model`."""
        if self.pictures_ is None:
            raise InputError("this classifier was fitted on features, not on pictures. Save model_ instead.")
        PictureModel(self._model, self.pictures_).save(folder)

    def _features(self, X: ArrayLike | Dataset) -> Any:
        check_is_fitted(self)
        if isinstance(X, Dataset) or (self.pictures_ is not None and np.ndim(X) == 4):
            if self.pictures_ is None:
                raise InputError("this classifier was fitted on features, not on pictures. Give features.")
            X = self.pictures_.transform(X if isinstance(X, Dataset) else np.asarray(X))
        return validate_data(self, X, reset=False)

    def _adopt(self, model: LinearModel, run: Run | None) -> Self:
        self.model_ = model
        self.coef_, self.intercept_ = model.weights[:, :-1], model.weights[:, -1]
        self.n_features_in_ = model.weights.shape[1] - 1
        if isinstance(model.labels, Classes):
            self.classes_ = model.labels.names
        self.history_ = [] if run is None else list(run.state.history)
        self.public_score_ = None if run is None else run.state.first_score
        self.noise_: NoisePlan | None = None
        self.statement_ = alone() if run is None else run.statement
        self.views_ = () if run is None else run.views
        self.recorded_ = None if run is None else run.recorded
        return self

    def _from_pictures(self, owners: Any, public: Dataset, test: Any, progress: Progress) -> tuple[Any, Any, Any]:
        """Return (features, classes by name) of everybody's pictures; what features learn they learn of public ones."""
        named = owners if isinstance(owners, Mapping) else {f"owner {i}": one for i, one in enumerate(owners, start=1)}
        name_owners(named)
        if not all(isinstance(one, Dataset) for one in (*named.values(), *([] if test is None else [test]))):
            raise InputError("where the public data are a dataset of pictures, so are each owner's and the validation.")
        if public.labels is None and not self.multilabel:
            raise InputError(f"{public.name} has no classes. To learn its attributes, say multilabel=True.")
        asked = public.attribute_names if self.multilabel else ()
        made = pipeline(self.features, components=self.components)
        dataset, division = gather(named, public, test=0.0 if test is None else test, attributes=asked)
        study = Study.prepare(dataset, division, made, progress=progress)
        self.pictures_ = Pictures(self.features, made, study.answers)
        names = np.array(study.answers)
        sides = {name: (X, y if study.multilabel else names[y]) for name, (X, y) in study.owners.items()}
        opened, held_out = ((X, y if study.multilabel else names[y]) for X, y in (study.public, study.test))
        return sides, opened, None if test is None else held_out

    def _fit_alone(self, X: Any, y: ArrayLike | None) -> Self:
        if y is None:
            raise InputError(
                "fit requires y to be passed, but the target y is None. Several owners also need public=(X, y)."
            )
        X, y = validate_data(self, X, y, multi_output=self.multilabel)
        if not self.multilabel:
            check_classification_targets(y)
        labels, standardiser = self._labels(np.asarray(y)), Standardiser.fit(X)
        weights = train(
            standardiser.apply(X),
            labels.signs(y),
            self._training("update", "none", self.ridge, RunSettings.of(self, 1)),
            random_state=self.random_state,
        )
        return self._adopt(LinearModel(weights, standardiser, labels), None)

    def _fit_private(
        self,
        privacy: Privacy,
        owners: Any,
        public: Any,
        validation: Any,
        checkpoint: AnyPath | None,
        ledger: Ledger | None,
        scope: str | None,
        on_round: OnRound | None,
        progress: Progress,
    ) -> Self:
        """Learn with noise inside the sums."""
        settings = self._private_settings(checkpoint)
        task = self._private_task(privacy, owners, public, validation)
        learner = task.learner
        privacy.check(learner.plan)
        if ledger is not None:
            if scope is None:
                raise InputError("a ledger is charged under a scope, the name of the data. Name it.")
            privacy.spend(ledger, scope, learner.plan)
        run = play(
            task, settings, random_state=self.random_state, checkpoint=None, on_round=on_round, progress=progress
        )
        statement = noised(run.statement, learner.plan, delta=privacy.delta, scheme=self.scheme)
        weights = learner.space.weights(run.state.shared)
        self._adopt(LinearModel(weights, learner.standardiser, learner.labels), replace(run, statement=statement))
        self.noise_ = learner.plan
        return self

    def _private_settings(self, checkpoint: AnyPath | None) -> RunSettings:
        if checkpoint is not None:
            raise InputError(
                "with noise there is no checkpoint: a round that was interrupted and played again would be a further "
                "release, which nobody has counted."
            )
        if self.record:
            raise InputError("a recorded round shows every owner's own noise. Record one without epsilon.")
        if self.minimum_per_position not in (None, 1):
            raise InputError(
                f"with noise every weight is in every round; got minimum_per_position={self.minimum_per_position}."
            )
        return replace(RunSettings.of(self, 1), minimum_per_position=1)

    def _private_task(self, privacy: Privacy, owners: Any, public: Any, validation: Any) -> Task[PrivateLearner]:
        with speaking_of("the public data"):
            X, y = check_pair(public)
            labels = self._labels(y)
            labels.signs(y)
        loads, standardiser, held_out, sizes = name_owners(owners), Standardiser.fit(X), None, []
        for name, load in loads.items():
            with speaking_of(name):
                sizes.append(len(read_records(load(), X.shape[1], labels)[0]))
        if validation is not None:
            with speaking_of("the validation data"):
                features, answers = check_pair(validation, X.shape[1])
                labels.signs(answers)
            held_out = standardiser.apply(features), answers
        public_rows = standardiser.apply(X)
        space = PublicSpace.fit(public_rows)
        size = labels.rows * space.size
        plan = privacy.plan(
            owners=len(loads), dimension=size, rounds=self.rounds, records=max(sizes), scheme=self.scheme
        )
        learner = PrivateLearner(loads, labels, standardiser, space, plan, sum(sizes), (public_rows, y), held_out)
        return Task(
            owners=tuple(loads), learner=learner, dimension=size, capacity=size, largest=1.0, identity={}, noise=plan
        )

    def _labels(self, y: NDArray[Any]) -> Labels:
        if self.multilabel:
            if y.ndim != 2:
                raise InputError(f"attributes have one column each; got labels of shape {y.shape}.")
            return Attributes(y.shape[1])
        return Classes(np.unique(y if self.classes is None else np.asarray(self.classes)))

    def _training(
        self, target: Target, sparsify: Sparsify, ridge: float | None, settings: RunSettings
    ) -> LinearTraining:
        passes = _MANY_PASSES if sparsify == "strength" else _FEW_PASSES
        feedback = FEEDBACK if sparsify == "schedule" else 1.0
        return LinearTraining(
            loss=self.loss,
            target=target,
            sparsify=sparsify,
            sparsity=settings.sparsity_of(sparsify),
            block_size=settings.block_size,
            ridge=ridge,
            class_weight="balanced" if self.balanced else "equal",
            passes=passes if self.passes is None else self.passes,
            batch_size=self.batch_size,
            error_feedback=feedback if self.error_feedback is None else self.error_feedback,
        )

    def _task(self, owners: Any, public: Any, validation: Any) -> Task[LinearLearner]:
        with speaking_of("the public data"):
            X, y = check_pair(public)
            labels = self._labels(y)
        dimensions, loads = X.shape[1], name_owners(owners)

        def checked(data: Any) -> tuple[Floats, NDArray[Any]]:
            features, answers = check_pair(data, dimensions)
            labels.signs(answers)
            return features, answers

        samples, prints = survey({"the public data": lambda: (X, y), **loads}, checked)
        standardiser, held_out = Standardiser.fit(X), None
        if validation is not None:
            with speaking_of("the validation data"):
                features, answers = checked(validation)
            held_out = standardiser.apply(features), answers
        settings = RunSettings.of(self, len(loads))
        sparsify = settings.sparsified(self.selection, by_penalty=self.target == "classifier", schedules=True)
        ridge = dimensions / samples if self.ridge is None else self.ridge
        training = self._training(self.target, sparsify, ridge, settings)
        start = standardiser.apply(X), labels.signs(y)
        learner = LinearLearner(loads, labels, standardiser, training, start, held_out)
        size = learner.shape[0] * learner.shape[1]
        return Task(
            owners=tuple(loads),
            learner=learner,
            dimension=size,
            capacity=settings.capacity(size, sparsify),
            largest=LARGEST_WEIGHT,
            share=settings.share(sparsify),
            identity={"training": asdict(training), "data": prints},
        )


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
        target: ClusterTarget = "update",
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
