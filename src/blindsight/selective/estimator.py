"""One's own torch module, learned from several participants' pictures with a stated (epsilon, delta).

*The guarantee* is that of the statement: `unit` "record" protects each picture (gradients of single pictures are
clipped and their sum gets Gaussian noise inside training, Abadi et al. 2016), "participant" all that one participant
has (each upload is clipped and gets noise). What is shared of a change, `share` of its values, is chosen afterwards
(PPDL, Bu 2019). Epsilon is said once: noise, budget and statement follow from it.

*Rate and batch from epsilon.* A step of DP-SGD with batch B, noise multiplier s and d parameters has a second moment
G^2 = clip^2 (1 + d s^2 / B^2). Stochastic descent over T such steps ends R G / sqrt(T) above the optimum if its rate is
R / (G sqrt(T)) (Nemirovski et al. 2009). So a rate that suits training without noise is divided by
sqrt(1 + d s^2 / B^2); and with T = N / B the bound is least at B = s sqrt(d). For noise on uploads the same holds with
the k values of an upload in place of d, B = 1, and `clip` in place of the rate. All these need is public: the numbers
of pictures and parameters, and the public pictures, on whose gradients a clip that nobody names is measured.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from blindsight.data.dataset import Dataset
from blindsight.data.sites import error_context
from blindsight.dp.ledger import Ledger
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.extras import Module, load_torch, to_batch
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.selective.accounting import check_hiding, upload_loss
from blindsight.selective.codec import Vector
from blindsight.selective.methods import LEAST_TOGETHER, SelectiveMethod
from blindsight.selective.networks import FlatParameters, module_from, rate_of
from blindsight.selective.protection import (
    ParticipantGaussian,
    RecordGaussian,
    Selection,
    Sharing,
    calibrate_participant,
    calibrate_record,
    check_whole,
)
from blindsight.selective.timeline import Photos, PreparedRun, Setting, train_initial
from blindsight.selective.trainers import (
    DECAY,
    LOCAL_STEPS,
    NetworkTrainer,
    RecordGradients,
    check_outputs,
    check_passes,
)
from blindsight.statement import PrivacyStatement
from blindsight.sums.roles import Record, forget

Collection = Dataset | tuple[ArrayLike, ArrayLike]
ProtectedUnit = Literal["record", "participant"]

BATCH = 32
"""Pictures that a step takes where no noise asks for more."""

_LEAST_UPLOADS = 4  # of the participant with fewest pictures, however large a batch would be best
_UPLOADS = 10  # with noise on uploads: more cost as much noise as they bring
_KIND = "blindsight/network.1"


class SwampedWarning(UserWarning):
    """The noise is larger than what can be learned under it."""


@dataclass(frozen=True)
class TrainingPlan:
    """How participants train: chosen or as asked for. `noise_ratio` is the noise of a step over the longest signal."""

    batch_size: int
    local_steps: int
    learning_rate: float
    decay: float
    clip: float | None
    noise_multiplier: float
    noise_ratio: float
    steps: int  # of all participants together


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A learned module with the names of its classes and the statement: it can only be applied, saved and read.

    `side` is the size at which picture files are read, `source` where the module's code is (`module_from`).
    """

    module: Module
    classes: NDArray[Any]
    statement: PrivacyStatement
    side: int | None = None
    source: str | None = None
    multilabel = False

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes.tolist()))

    def decision_function(self, pictures: Dataset | ArrayLike) -> NDArray[Any]:
        trainer = NetworkTrainer(self.module)
        return trainer.scores(trainer.initial(), _inputs(pictures))

    def predict(self, pictures: Dataset | ArrayLike) -> NDArray[Any]:
        answers: NDArray[Any] = self.classes[self.decision_function(pictures).argmax(axis=1)]
        return answers

    def save(self, path: AnyPath) -> None:
        """Write all numbers of the module to one file; its code stays where it is."""
        state = {name: value.detach().cpu().numpy() for name, value in self.module.state_dict().items()}
        document = {"statement": self.statement.to_dict(), "side": self.side, "source": self.source}
        arrays = {f"state {place}": value for place, value in enumerate(state.values())}
        write_arrays(path, _KIND, document | {"names": list(state)}, arrays | {"classes": self.classes})

    @classmethod
    def load(cls, path: AnyPath, module: Module | None = None) -> Self:
        """Read what `save` wrote into a copy of `module`; None: into one made by the file of code it names."""
        document, arrays = read_arrays(path, _KIND)
        torch = load_torch()
        try:
            classes, source = arrays["classes"], document["source"]
            if module is None:
                if source is None:
                    raise InputError(f"{path} does not say where the code of its module is. Give the module.")
                module = module_from(source, len(classes))
            state = {name: torch.tensor(arrays[f"state {i}"]) for i, name in enumerate(document["names"])}
            learned = deepcopy(module)
            learned.load_state_dict(state, strict=True)
            statement = PrivacyStatement.from_dict(document["statement"])
            return cls(learned.eval(), classes, statement, document["side"], source)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{path} holds no usable network: {error}.") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path} was learned by another module than this one: {reason}") from None


class SelectiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A torch module that several participants teach, each sharing a part of what its training changed.

    Parameters
    ----------
    module : a `torch.nn.Module` that turns a batch into (n, classes) scores. It is copied, never changed.
    epsilon, delta : what is proven of the whole run; epsilon None: nothing, there is no noise.
    unit : what epsilon protects: each "record", or a "participant" with all its pictures.
    share : the fraction of the parameters in an upload (theta_u).
    select : "largest" or "random"; None is random for noise on uploads, else the largest.
    clip : longest gradient of a picture, or upload; None is measured on the public pictures.
    batch_size, local_steps, learning_rate, decay : pictures of an upload, passes over them, and the rate, divided by
        1 + decay t in the t-th upload; None is chosen from epsilon (`plan_`).
    optimiser : "sgd", "rmsprop" or "adam".
    passes : how often all pictures are gone through; with unit "record" once (take `local_steps`).
    residual : send later what was not sent; None where there is no noise.
    scheme : a scheme of `blindsight.sums` under which the server sees sums of uploads only.
    classes : the names of all classes; None is those of the public pictures, else 0, 1, ...
    public_epochs : passes over the public pictures before anything is shared.
    random_state : decides orders and selections; noise never depends on it.

    Attributes
    ----------
    model_ : the `NetworkModel`, which can be saved.   plan_ : the `TrainingPlan`.
    classes_ : the names of the classes.               statement_ : the `PrivacyStatement`.
    uploads_ : how many were made.                     public_score_, score_ : on the test pictures before and after.
    initial_ : the parameters before anything was shared.
    """

    def __init__(
        self,
        module: Module,
        *,
        epsilon: float | None,
        delta: float | None = None,
        unit: ProtectedUnit | None = None,
        share: float = 0.1,
        select: Selection | None = None,
        clip: float | None = None,
        batch_size: int | None = None,
        local_steps: int | None = None,
        learning_rate: float | None = None,
        decay: float | None = None,
        optimiser: str = "sgd",
        passes: int = 1,
        residual: bool | None = None,
        scheme: str | None = None,
        classes: ArrayLike | None = None,
        public_epochs: int = 10,
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.module = module
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.share = share
        self.select = select
        self.clip = clip
        self.batch_size = batch_size
        self.local_steps = local_steps
        self.learning_rate = learning_rate
        self.decay = decay
        self.optimiser = optimiser
        self.passes = passes
        self.residual = residual
        self.scheme = scheme
        self.classes = classes
        self.public_epochs = public_epochs
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        participants: Sequence[Collection] | Mapping[str, Collection] | ArrayLike,
        y: ArrayLike | None = None,
        *,
        public: Collection | None = None,
        test: Collection | None = None,
        ledger: Ledger | None = None,
        scope: str | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
    ) -> Self:
        """Learn from several participants' pictures and classes, or with `y` from one's.

        `public` pictures give the first model, the names of the classes, and a clip that nobody names. `test` pictures
        are scored before and after. A `ledger` is charged under `scope` before anything is learned from them. `record`
        is called with every message that the parameter server receives, for audits.
        """
        if ledger is not None and (self.unit is None or scope is None):
            raise InputError("a ledger counts proven privacy under a scope, the name of the pictures; name both.")
        brought: Any = participants if y is None else [(participants, y)]
        ready = self.prepare(brought, public=public, test=test, source=source)
        setting, dimension = ready.setting, ready.setting.initial.size
        self._warn(dimension)
        name = f"{len(ready.photos)} participants"
        method = SelectiveMethod(name, ready.sharing, encrypted=self.scheme, budget=self.epsilon, record=record)
        run = method.begin(setting)
        if ledger is not None and scope is not None:
            self._charge(ledger, scope, ready.sharing, dimension, ready.uploads)
        for orders in ready.passes:
            run.day({name: ready.photos[name].take(order) for name, order in orders.items()})
        self.statement_, self.uploads_, self.initial_ = run.statement(), run.traffic.uploads, setting.initial
        learned = deepcopy(self.module).cpu().eval()
        FlatParameters(learned).write(run.parameters)
        self.model_ = NetworkModel(learned, self.classes_, self.statement_)
        self.public_score_ = self.score_ = None
        if ready.test is not None:
            trainer = NetworkTrainer(self.module, device=self.device)
            self.public_score_, self.score_ = (
                float((trainer.scores(model, ready.test.inputs).argmax(axis=1) == ready.test.labels).mean())
                for model in (setting.initial, run.parameters)
            )
        return self

    def prepare(
        self,
        participants: Sequence[Collection] | Mapping[str, Collection],
        *,
        public: Collection | None = None,
        test: Collection | None = None,
        source: ByteSource = system_bytes,
    ) -> PreparedRun:
        """Return all that `fit` does before the first upload; the same of the same pictures, but for their noise."""
        self.check()
        named = _named(participants)
        if self.scheme is not None and len(named) < LEAST_TOGETHER:
            raise InputError(f"an encrypted sum needs {LEAST_TOGETHER} participants at least; got {len(named)}.")
        first = NetworkTrainer(self.module, optimiser=self.optimiser, batch=BATCH, device=self.device)
        self.classes_ = self._class_names(public)
        known = None if public is None else self._photos("the public pictures", public, first)
        photos = {name: self._photos(name, collection, first) for name, collection in named.items()}
        held_out = None if test is None else self._photos("the test pictures", test, first)
        sizes = {name: len(taken.labels) for name, taken in photos.items()}
        self.plan_, uploads, among = self._plan([*sizes.values()], first.layout.dimension)
        if self.unit is not None and self.clip is None and known is None:
            raise InputError("noise needs a clip, which is measured on public pictures. Give public ones, or a clip.")
        initial = first.initial()
        if known is not None:
            initial = train_initial(first, known, epochs=self.public_epochs, random_state=self.random_state)
        noise = None
        if self.unit is not None:
            clip = self._measured_clip(first, initial, known) if self.clip is None else self.clip
            self.plan_ = replace(self.plan_, clip=clip)
            noise = self._noise(clip, uploads, among)
        residual = self.unit is None if self.residual is None else self.residual
        sharing = Sharing(self.share, select=self._select, residual=residual, noise=noise)
        make = partial(
            NetworkTrainer,
            self.module,
            optimiser=self.optimiser,
            learning_rate=self.plan_.learning_rate,
            decay=self.plan_.decay,
            epochs=self.plan_.local_steps,
            batch=self.plan_.batch_size if self.unit == "record" else BATCH,
            device=self.device,
            source=source,
        )
        stated, rng = 1e-5 if self.delta is None else self.delta, science(self.random_state)
        setting = Setting(tuple(photos), initial, make, self.plan_.batch_size, stated, self.random_state, source=source)
        passes = [{name: rng.permutation(size) for name, size in sizes.items()} for _ in range(self.passes)]
        return PreparedRun(setting, sharing, len(self.classes_), known, photos, passes, held_out, uploads)

    def predict(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return self.model_.predict(X)

    def decision_function(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return self.model_.decision_function(X)

    def check(self) -> None:
        """Refuse settings that contradict themselves, before any picture is read."""
        if self.unit not in (None, "record", "participant"):
            raise UnknownNameError("unit", str(self.unit), ("record", "participant"))
        if (self.epsilon is None) != (self.unit is None) or (self.epsilon is None) != (self.delta is None):
            raise InputError("epsilon, delta and unit belong together: name all three, or epsilon=None alone.")
        for name, least in (("batch_size", 1), ("local_steps", 1), ("passes", 1), ("public_epochs", 0)):
            if (value := getattr(self, name)) is not None:
                check_whole(name, value)
                if value < least:
                    raise InputError(f"{name} must be at least {least}; got {value}.")
        if self.unit == "record" and self.passes > 1:
            raise InputError(
                "pictures are gone through once only where each record is protected; got "
                f"passes={self.passes}. Use local_steps, which are counted."
            )
        rate_of(self.optimiser, self.learning_rate)
        check_passes(1, 1, DECAY if self.decay is None else self.decay)
        Sharing(self.share, select=self._select)
        if self.unit is not None:
            self._noise(1.0 if self.clip is None else self.clip, 1)
        if self.scheme is not None:
            check_hiding(self.scheme)

    @property
    def _select(self) -> Selection:
        return self.select or ("random" if self.unit == "participant" else "largest")

    def _noise(self, clip: float, uploads: int, among: int = 1) -> ParticipantGaussian | RecordGaussian:
        """Return the noise with which all uploads, or all steps on a record, cost (epsilon, delta)."""
        assert self.epsilon is not None
        assert self.delta is not None
        if self.unit == "record":
            steps = self.local_steps or LOCAL_STEPS
            return calibrate_record(epsilon=self.epsilon, delta=self.delta, steps=steps, clip=clip)
        return calibrate_participant(epsilon=self.epsilon, delta=self.delta, uploads=uploads, clip=clip, among=among)

    def _class_names(self, public: Collection | None) -> NDArray[Any]:
        """Return the names of the classes; none where they are counted."""
        if self.classes is not None:
            names = np.asarray(self.classes)
        elif public is not None:
            names = np.unique(_labels(public))
        else:
            return np.arange(0)
        if len(names) < 2 or len(np.unique(names)) < len(names):
            raise InputError(
                f"a classifier tells at least two classes apart, each named once; got {', '.join(map(str, names))}."
            )
        return names

    def _photos(self, whose: str, collection: Collection, trainer: NetworkTrainer) -> Photos:
        """Return a collection as the module takes it, with classes counted as in `classes_`."""
        with error_context(whose):
            inputs, labels = _inputs(collection), _labels(collection)
            if labels.shape != (len(inputs),) or not len(inputs):
                raise InputError(f"there must be a class for each of {len(inputs)} pictures; got {labels.shape}.")
            if not len(self.classes_):  # nobody has named them: they are counted
                if labels.dtype.kind not in "iu" or (labels < 0).any():
                    raise InputError("name the classes (`classes`), or give public pictures that show them.")
                self.classes_ = np.arange(trainer.scores(trainer.initial(), inputs[:1]).shape[1])
            check_outputs(trainer, inputs, self.classes_)
            place = {name: number for number, name in enumerate(self.classes_.tolist())}
            if strange := sorted({str(name) for name in labels.tolist() if name not in place}):
                raise InputError(
                    f"classes that are not known: {', '.join(strange)}. Known are {', '.join(map(str, place))}."
                )
            counted = np.array([place[name] for name in labels.tolist()], dtype=np.int64)
            trainer.check(inputs, counted)
            return Photos(inputs, counted)

    def _plan(self, sizes: list[int], dimension: int) -> tuple[TrainingPlan, int, int]:
        """Return how everybody trains, how many uploads are paid for, and how many participants share their noise."""
        smallest, steps, rate = min(sizes), self.local_steps or LOCAL_STEPS, rate_of(self.optimiser)
        batch, among, multiplier, ratio = self.batch_size or BATCH, 1, 0.0, 0.0
        if self.batch_size is None and self.unit is not None:
            best = smallest // _UPLOADS
            if self.unit == "record":
                best = min(
                    round(self._noise(1.0, 1).noise_multiplier * math.sqrt(dimension)), smallest // _LEAST_UPLOADS
                )
            batch = max(best, min(BATCH, smallest))
        if batch > max(sizes):
            raise InputError(
                f"an upload takes {batch} pictures and the participants have {smallest} to {max(sizes)}. Use a "
                "smaller batch_size, or more pictures."
            )
        uploads = max(1, self.passes * max(sizes) // batch)
        if self.unit == "participant" and self.scheme is not None:
            uploads, among = max(1, self.passes * smallest // batch), max(LEAST_TOGETHER, len(sizes))
        if self.unit is not None:
            multiplier = self._noise(1.0, uploads, among).noise_multiplier
            values = dimension if self.unit == "record" else Sharing(self.share).count(dimension)
            ratio = multiplier * math.sqrt(values) / (batch if self.unit == "record" else 1)
        if self.unit == "record" and self.optimiser == "sgd":
            rate /= math.sqrt(1 + ratio**2)
        total = max(1, steps * self.passes * sum(size // batch for size in sizes))
        decay = DECAY if self.decay is None else self.decay
        rate = rate if self.learning_rate is None else self.learning_rate
        return TrainingPlan(batch, steps, rate, decay, self.clip, multiplier, ratio, total), uploads, among

    def _measured_clip(self, trainer: NetworkTrainer, initial: Vector, public: Photos | None) -> float:
        """Return a clip by public pictures: the median length of their gradients, or that of a whole training.

        An upload carries a share of a change, and the more noise it gets the shorter it should be.
        """
        assert public is not None
        inputs, labels = (part[: 4 * BATCH] for part in public)
        if self.unit == "participant":
            local = NetworkTrainer(
                self.module, optimiser=self.optimiser, epochs=self.plan_.local_steps, device=self.device
            )
            length = float(np.linalg.norm(local.train(initial, inputs, labels, self.random_state) - initial)) or 1.0
            return length * math.sqrt(self.share) / math.sqrt(1 + self.plan_.noise_ratio**2)
        torch = load_torch()
        module = deepcopy(self.module).to(self.device).eval()
        FlatParameters(module).write(initial)
        gradients = RecordGradients(module, RecordGaussian(1.0, 1.0))
        lengths = [
            torch.sqrt(sum((part.flatten(1).double() ** 2).sum(dim=1) for part in parts)).cpu().numpy()
            for parts in gradients.per_record(to_batch(inputs, self.device), torch.tensor(labels, device=self.device))
        ]
        return float(np.median(np.concatenate(lengths))) or 1.0

    def _warn(self, dimension: int) -> None:
        """Say when noise is longer than all that can be learned under it, and what to choose."""
        plan = self.plan_
        if self.unit is None:
            return
        signal = math.sqrt(plan.steps)
        if plan.noise_ratio > signal:
            warnings.warn(
                f"at epsilon={self.epsilon:g} the noise of a step is {plan.noise_ratio:.3g} times the longest step of "
                f"{dimension:,} parameters, and {plan.steps} steps average only {signal:.3g} of it out. Take more "
                "pictures, a larger epsilon, or fewer parameters (freeze layers; a smaller share for participants).",
                SwampedWarning,
                stacklevel=3,
            )
        best = rate_of(self.optimiser) / math.sqrt(1 + plan.noise_ratio**2)
        if self.unit == "record" and self.optimiser == "sgd" and plan.learning_rate > 3 * best:
            batch = round(plan.noise_multiplier * math.sqrt(dimension))
            warnings.warn(
                f"with the noise of epsilon={self.epsilon:g} a learning_rate of {plan.learning_rate:g} may end below "
                f"no training at all. Choose about {best:.2g} at this batch_size, or a batch_size of {batch} if all "
                "have as many pictures.",
                SwampedWarning,
                stacklevel=3,
            )

    def _charge(self, ledger: Ledger, scope: str, sharing: Sharing, dimension: int, uploads: int) -> None:
        loss = upload_loss(sharing, dimension=dimension, steps=self.plan_.local_steps)
        assert loss is not None
        for number in range(1 if self.unit == "record" else uploads):
            ledger.spend(
                loss,
                scope=scope,
                unit=sharing.unit,
                neighbours=sharing.neighbours,
                mechanism=str(sharing.noise),
                purpose=f"upload {number + 1} of {uploads}",
            )


def _inputs(collection: Collection | Dataset | ArrayLike) -> NDArray[Any]:
    if isinstance(collection, Dataset):
        held = collection.features if collection.images is None else collection.images
        if held is None:
            raise InputError(f"{collection.name} has neither pictures nor features.")
        return np.asarray(held)
    return np.asarray(collection[0] if isinstance(collection, tuple) else collection)


def _labels(collection: Collection) -> NDArray[Any]:
    if not isinstance(collection, Dataset):
        return np.asarray(collection[1])
    if collection.labels is None:
        raise InputError(f"{collection.name} has no classes to learn.")
    return np.asarray(collection.label_names)[collection.labels] if collection.label_names else collection.labels


def _named(participants: Any) -> dict[str, Collection]:
    if isinstance(participants, Mapping):
        named = {str(name): collection for name, collection in participants.items()}
    elif isinstance(participants, Sequence):
        named = {f"participant {number}": collection for number, collection in enumerate(participants, start=1)}
    else:
        raise InputError("participants are a list of (pictures, classes), one for each, or a mapping from names.")
    for name, collection in named.items():
        if not isinstance(collection, Dataset) and not (isinstance(collection, tuple) and len(collection) == 2):
            raise InputError(f"{name}: a participant brings a dataset or a pair (pictures, classes).")
    if not named:
        raise InputError("somebody must take part; got no participant.")
    return named
