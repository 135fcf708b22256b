"""Members train one linear classifier, and no one sees another's update: a scikit-learn estimator.

R. Yonetani, V. N. Boddeti, K. M. Kitani, Y. Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic
Encryption", ICCV 2017, sections 2.1 and 3; a member's part is `linear`, the rounds are `rounds.run`, the sum is `sums`.
::

    classifier = FederatedClassifier(rounds=10).fit([(X1, y1), (X2, y2), (X3, y3)], public=(X0, y0))
    classifier.predict(X), classifier.history_, print(classifier.statement_)

From pictures, whose classes are matched by name, and back to pictures (`model.load_model` reads what is saved)::

    sites = {name: load("folder", path=name) for name in ("north", "east", "west")}
    classifier = FederatedClassifier().fit(sites, public=load("folder", path="public"))
    classifier.predict(images), classifier.save("run")

Members send *differences* to the shared classifier, by default under masks. In each round they send those of a fifth of
the weights, by a public schedule that is the same for all (`sums.support`): what is sent tells nothing about them but
its sum, and most of what they have learned elsewhere (`error_feedback`) is carried into the next round. The paper's
sparse classifiers are `papers.dphe.PublishedClassifier`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from blindsight.data.dataset import Dataset
from blindsight.data.features import Standardiser, pipeline
from blindsight.data.sites import (
    Loader,
    MemberData,
    Study,
    check_members_data,
    check_pair,
    error_context,
    gather,
    name_members,
)
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, UnknownNameError
from blindsight.files import AnyPath
from blindsight.learn.linear import ClassWeight, LinearLearner, LinearTraining, Loss, train
from blindsight.learn.model import (
    Attributes,
    Classes,
    Floats,
    Labels,
    LinearModel,
    PictureModel,
    Pictures,
    describe_labels,
    describe_public,
    single_member_statement,
)
from blindsight.learn.private import PrivateLearner, private_task, read_records
from blindsight.learn.recording import RoundRecorder
from blindsight.progress import Progress, silent
from blindsight.rounds import EarlyStopping, Privacy, Run, Sums, Task, register_learner, run_here
from blindsight.rounds.run import OnRound
from blindsight.rounds.task import Pair, Seed

CLASSIFIER = "classifier"
USUAL_SHARE = 0.2
FEEDBACK = 0.7  # on Caltech-101 as good as a half and better than all of it; on small, noisy data better than a half
_PASSES = 3

Members = Mapping[str, MemberData] | Sequence[MemberData]


class FrozenParameters:
    """Parameters that are frozen dataclasses, as `privacy`, have parameters themselves: `privacy__epsilon`."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        params: dict[str, Any] = super().get_params(deep)  # type: ignore[misc]
        for name, value in list(params.items()) if deep else ():
            if is_dataclass(value) and not isinstance(value, type):
                params |= {f"{name}__{one.name}": getattr(value, one.name) for one in fields(value)}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; a frozen object is replaced by one that differs in what is named."""
        inner: dict[str, dict[str, Any]] = {}
        for name in [name for name in params if "__" in name]:
            outer, _, field = name.partition("__")
            inner.setdefault(outer, {})[field] = params.pop(name)
        super().set_params(**params)  # type: ignore[misc]
        for name, changes in inner.items():
            value = self.get_params(deep=False).get(name)
            value = Sums.of(value) if name == "sums" and isinstance(value, str) else value
            known = [one.name for one in fields(value)] if is_dataclass(value) and not isinstance(value, type) else []
            for field in changes.keys() - set(known):
                raise UnknownNameError(f"parameter of {name}={value!r}:", field, known)
            setattr(self, name, replace(value, **changes))  # type: ignore[type-var]
        return self


class FederatedClassifier(FrozenParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier learned from several members' data; with ``fit(X, y)``, from one's alone.

    Parameters
    ----------
    sums : how updates are added up: the name of a scheme, "masks", "bfv", "dphe", "block-dphe" or "plain", or
        `Sums(...)`. Without a `share`, a round is about a fifth of the weights, under dphe and block-dphe about all.
    rounds : how many; `early_stopping` may end them before.
    privacy : what is to be proven of all rounds, by noise inside the sums: `Privacy(...)`; None is nothing. With it
        every weight is in every round, and loss, ridge, passes, batch_size and class_weight do not count.
    loss : "hinge", "squared hinge" or "logistic".
    ridge : see `linear.LinearTraining`; None is that of all members' data pooled.
    passes : over a member's data in a round; None is 3.
    batch_size : of mini-batches of the training.
    class_weight : None, "balanced" to give rare classes the weight of frequent ones, or weights by class.
    multilabel : labels are attributes (n, a) with 1, 0 and -1 for unknown, not one class per sample.
    classes : all classes there are, where the public data do not have an example of each.
    error_feedback : the part of what a member did not send that it carries on; None is 0.7 for a schedule, else 1.
    early_stopping : `EarlyStopping(...)`; None plays all rounds.
    features, components : what is made of pictures (`data.pipeline`), where members bring datasets of pictures.
    random_state : decides the order of samples in training; keys and noise never depend on it.

    Attributes
    ----------
    coef_, intercept_ : weights of *standardised* features, one row per class (one in all for two classes).
    classes_ : the classes, sorted; absent for attributes.
    model_ : the `LinearModel`, which can be saved.
    history_ : a `RoundReport` per round.
    public_score_ : the validation score of the public model, before any round; None without validation data.
    statement_ : the `PrivacyStatement`.
    noise_ : the `NoisePlan` of a run with privacy; else None.
    views_ : a `RoleView` of what each role held, if recorded.
    recorded_ : the first round played, with all messages and updates, if recorded: for audits only.
    n_features_in_ : the number of features.
    pictures_ : how pictures become features, where members brought pictures; else None.
    """

    def __init__(
        self,
        sums: str | Sums = "masks",
        *,
        rounds: int = 10,
        privacy: Privacy | None = None,
        loss: Loss = "hinge",
        ridge: float | None = None,
        passes: int | None = None,
        batch_size: int = 64,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        multilabel: bool = False,
        classes: ArrayLike | None = None,
        error_feedback: float | None = None,
        early_stopping: EarlyStopping | None = None,
        features: str = "pixels",
        components: int | None = 200,
        random_state: Seed = 0,
    ) -> None:
        self.sums = sums
        self.rounds = rounds
        self.privacy = privacy
        self.loss = loss
        self.ridge = ridge
        self.passes = passes
        self.batch_size = batch_size
        self.class_weight = class_weight
        self.multilabel = multilabel
        self.classes = classes
        self.error_feedback = error_feedback
        self.early_stopping = early_stopping
        self.features = features
        self.components = components
        self.random_state = random_state

    def fit(
        self,
        members: Members | ArrayLike,
        y: ArrayLike | None = None,
        *,
        public: tuple[ArrayLike, ArrayLike] | Dataset | None = None,
        validation: tuple[ArrayLike, ArrayLike] | Dataset | None = None,
        checkpoint: AnyPath | None = None,
        ledger: Ledger | None = None,
        scope: str | None = None,
        record: bool = False,
        on_round: OnRound | None = None,
        progress: Progress = silent,
    ) -> Self:
        """Learn from several members, or with features and labels `y` and no `public` data from one alone.

        `members` is a list of (X, y), or a mapping from names to them; a function that returns (X, y) can stand for the
        pair and is called in every round. `public` data give the first model, the standardisation and the classes.
        Instead of pairs all may be a `Dataset`: features are made of its pictures, classes are matched by name.
        `validation` data are scored after every round. With a `checkpoint` folder, a run that was interrupted resumes.
        `on_round` is called with each `RoundReport`. With privacy, a `ledger` is charged under `scope` before anything
        is learned. `record` keeps the first round with every update in the clear: for audits and demonstrations.
        """
        self.check()
        if self.privacy is not None and record:
            raise InputError("a recorded round shows every member's own noise. Record one without privacy.")
        self.pictures_: Pictures | None = None
        if isinstance(public, Dataset):
            members, public, validation = self._from_pictures(members, public, validation, progress)
        if self.privacy is None and ledger is not None:
            raise InputError("a ledger counts proven privacy; got one without privacy=.")
        if public is None:
            if self.privacy is not None:
                raise InputError("noise goes into sums of several members, with public data. Omit privacy.")
            return self._fit_alone(members, y)
        if y is not None:
            raise InputError("with public data every member brings its own labels; got y as well.")
        task, loaders, prints, labels, held_out = self._prepared(members, public, validation)
        if self.privacy is not None and ledger is not None and task.noise is not None:
            if scope is None:
                raise InputError("a ledger is charged under a scope, the name of the data. Name it.")
            task.terms(self._sums, run="ledger", members=tuple(loaders))  # nothing is spent on what cannot be played
            self.privacy.spend(ledger, scope, task.noise)
        recorder = RoundRecorder() if record else None
        run = run_here(
            task,
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
        assert isinstance(learner, LinearLearner | PrivateLearner)
        weights = learner.weights(run.state.shared)
        return self._adopt(LinearModel(weights, learner.standardiser, labels), run, recorder)

    def check(self) -> None:
        """Refuse parameters that contradict each other, before any data are read."""
        if self.privacy is not None and not isinstance(self.privacy, Privacy):
            raise InputError(f"privacy must be Privacy(...) or None; got {type(self.privacy).__name__}.")
        if self.early_stopping is not None and not isinstance(self.early_stopping, EarlyStopping):
            raise InputError(f"early_stopping must be EarlyStopping(...) or None; got {self.early_stopping!r}.")
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1; got {self.rounds}.")
        if self.privacy is not None and self._sums.scheduled:
            raise InputError(f"with noise every weight is in every round; got share={self._sums.share}. Omit it.")
        self._training(self._sums, self.ridge, None)

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
        """Write the model, and how pictures become features, for `model.load_model`."""
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

    def _adopt(self, model: LinearModel, run: Run | None, recorder: RoundRecorder | None = None) -> Self:
        self.model_ = model
        self.coef_, self.intercept_ = model.weights[:, :-1], model.weights[:, -1]
        self.n_features_in_ = model.weights.shape[1] - 1
        if isinstance(model.labels, Classes):
            self.classes_ = model.labels.names
        self.history_ = [] if run is None else list(run.state.history)
        self.public_score_ = None if run is None else run.state.first_score
        self.noise_ = None if run is None else run.task.noise
        self.statement_ = single_member_statement() if run is None else run.statement
        self.views_ = () if recorder is None else recorder.views
        self.recorded_ = None if recorder is None else recorder.recorded
        return self

    def _from_pictures(self, members: Any, public: Dataset, test: Any, progress: Progress) -> tuple[Any, Any, Any]:
        """Return (features, classes by name) of all pictures; what features learn they learn of public ones."""
        named = members
        if not isinstance(members, Mapping):
            named = {f"member {i}": one for i, one in enumerate(members, start=1)}
        name_members(named)
        if not all(isinstance(one, Dataset) for one in (*named.values(), *([] if test is None else [test]))):
            raise InputError(
                "where the public data are a dataset of pictures, all members' and the validation data are too."
            )
        if public.labels is None and not self.multilabel:
            raise InputError(f"{public.name} has no classes. To learn its attributes, use multilabel=True.")
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
                "fit requires y to be passed, but the target y is None. Several members also need public=(X, y)."
            )
        X, y = validate_data(self, X, y, multi_output=self.multilabel)
        if not self.multilabel:
            check_classification_targets(y)
        labels, standardiser = self._labels(np.asarray(y)), Standardiser.fit(X)
        training = self._training(Sums(scheme="plain"), self.ridge, labels)
        weights = train(standardiser.apply(X), labels.signs(y), training, random_state=self.random_state)
        return self._adopt(LinearModel(weights, standardiser, labels), None)

    @property
    def _sums(self) -> Sums:
        return Sums.of(self.sums).with_share(USUAL_SHARE if self.privacy is None else 1.0)

    def _prepared(
        self, members: Any, public: Any, validation: Any
    ) -> tuple[Task, dict[str, Loader], list[str], Labels, Pair | None]:
        """Return the task, the members' data and fingerprints of them, the labels, and checked validation data."""
        with error_context("the public data"):
            X, y = check_pair(public)
            labels = self._labels(y)
        dimensions, loaders, held_out = X.shape[1], name_members(members), None

        def checked(data: Any) -> tuple[Floats, NDArray[Any]]:
            features, answers = check_pair(data, dimensions)
            labels.signs(answers)
            return features, answers

        prints: list[str] = []
        with error_context("the public data"):
            checked((X, y))
        if self.privacy is None:
            samples, prints = check_members_data(loaders, checked)
        if validation is not None:
            with error_context("the validation data"):
                held_out = checked(validation)
        if self.privacy is None:
            return self._task((X, y), labels, self._sums, samples + len(X)), loaders, prints, labels, held_out
        sizes = []
        for name, load in loaders.items():
            with error_context(name):
                sizes.append(len(read_records(load(), dimensions, labels)[0]))
        task = private_task((X, y), labels, self.privacy, sizes=sizes, rounds=self.rounds, scheme=self._sums.scheme)
        learner = task.learner()
        assert isinstance(learner, PrivateLearner)
        return task, {name: learner.reader(load) for name, load in loaders.items()}, prints, labels, held_out

    def _task(self, public: Pair, labels: Labels, sums: Sums, samples: int) -> Task:
        """Return what members learn, from so many samples in all; a subclass may let them learn something else."""
        ridge = public[0].shape[1] / samples if self.ridge is None else self.ridge
        return classifier_task(public, labels, self._training(sums, ridge, labels))

    def _training(self, sums: Sums, ridge: float | None, labels: Labels | None) -> LinearTraining:
        feedback = FEEDBACK if sums.scheduled else 1.0
        return LinearTraining(
            **sums.selection,
            loss=self.loss,
            ridge=ridge,
            class_weight=self._class_weight(labels),
            passes=_PASSES if self.passes is None else self.passes,
            batch_size=self.batch_size,
            error_feedback=feedback if self.error_feedback is None else self.error_feedback,
        )

    def _class_weight(self, labels: Labels | None) -> ClassWeight:
        wanted = self.class_weight
        if not isinstance(wanted, Mapping):
            return "equal" if wanted is None else wanted
        if labels is None:
            return "equal"
        if isinstance(labels, Attributes):
            raise InputError("weights by class are for classes; got attributes. Use class_weight='balanced'.")
        return tuple(float(wanted.get(name, 1.0)) for name in labels.names.tolist())

    def _labels(self, y: NDArray[Any]) -> Labels:
        if self.multilabel:
            if y.ndim != 2:
                raise InputError(f"attributes have one column each; got labels of shape {y.shape}.")
            return Attributes(y.shape[1])
        return Classes(np.unique(y if self.classes is None else np.asarray(self.classes)))


def classifier_task(
    public: Pair, labels: Labels, training: LinearTraining, *, kind: str = CLASSIFIER, **settings: Any
) -> Task:
    """Return the task of a linear classifier of the classes, or attributes, of public features and labels."""
    standardiser = Standardiser.fit(public[0])
    described, arrays = describe_labels(labels)
    arrays |= describe_public(standardiser, standardiser.apply(public[0])) | {"signs": labels.signs(public[1])}
    return Task(kind=kind, settings=described | {"training": asdict(training)} | settings, arrays=arrays)


register_learner(CLASSIFIER, LinearLearner.of)
