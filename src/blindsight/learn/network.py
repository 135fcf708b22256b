"""A torch module of one's own, learned from several members' pictures, with a stated (epsilon, delta) or none.

::

    model = FederatedNetwork(net, privacy=Privacy(epsilon=4, delta=1e-5, unit="record")).fit(sites, public=public)
    model.predict(pictures), model.plan_, print(model.statement_), model.save("network.npz")

*A round.* Every member trains from the shared model on all its pictures; the mean of the changes moves the shared
model, with momentum (FedAvgM: McMahan et al. 2017; Hsu, Qi and Brown 2019):

    velocity <- momentum velocity + mean,    model <- model + velocity.

What is sent is the part of the change whose turn it is by the public schedule (`Sums.share`); what was not sent stays
with the member, which goes on training from the shared model *and* what it holds back, until its turn comes (error
feedback). PPDL, from which the sharing of a part comes, lets a server add the changes up one after the other; changes
that are made side by side must be averaged, as their sum grows with the number of members.

*Privacy, unit "record".* A member sends the sum of the gradients of *all* its records at the shared model, each cut to
`clip`, with its share of noise. The model moves against the noisy mean, with the same momentum. *Unit "member".* The
change of a round is cut to `clip` and sent with its share of noise. In both, noise is in the sum once
(`sums.noise.NoisePlan`), every number is in every round, and nothing is carried over. Nothing about a record can make a
round fail: what is not finite, or of a class that the module does not have, counts as zero, and so does a training that
diverges.

*One member* trains alone: with privacy by DP-SGD on all its records (Abadi et al. 2016).

All that is random in training follows from `random_state`; keys and noise never do. A public first model is part of the
task, to which everything that members sign is bound.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from blindsight.data.dataset import Dataset
from blindsight.data.embedding import resized
from blindsight.data.sites import Loader, MemberData, check_members_data, error_context, name_members
from blindsight.dp.accounting import GaussianLoss
from blindsight.dp.ledger import Ledger
from blindsight.errors import CorruptFileError, InputError
from blindsight.extras import Module, load_torch, to_batch
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.learn.accounting import (
    LARGEST_BATCH,
    TrainingPlan,
    alone_statement,
    usual_batch,
    usual_rate,
    usual_rounds,
    warn_if_swamped,
)
from blindsight.learn.classifier import FrozenParameters
from blindsight.learn.model import Classes
from blindsight.learn.modules import FlatParameters, Vector, layout_of, module_from, rate_of
from blindsight.learn.private import targets
from blindsight.learn.protection import RecordGaussian, calibrate_record, check_number, check_whole
from blindsight.learn.training import Batch, DivergedError, NetworkTrainer, RecordGradients, check_outputs
from blindsight.metrics import balanced_accuracy
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.rounds import Memory, Privacy, RoundReport, RoundSum, Sums, Task, Update, run_here
from blindsight.rounds.member import Array
from blindsight.rounds.run import OnRound
from blindsight.rounds.task import Pair
from blindsight.statement import PrivacyStatement
from blindsight.sums import Terms
from blindsight.sums.dphe import DpheOptions
from blindsight.sums.noise import NoisePlan, clipped

NETWORK = "network"
_KIND = "blindsight/network.2"
_LARGEST = 16.0  # change of a parameter in a round that is to be expected; a larger one is sent in several rounds


@dataclass(frozen=True, eq=False)
class NetworkModel:
    """A learned module with the names of its classes and the statement: it can only be applied, saved and read.

    `side` is the size at which picture files are read, `source` where the module's code is (`modules.module_from`).
    """

    module: Module
    classes: NDArray[Any]
    statement: PrivacyStatement
    side: int | None = None
    source: str | None = None
    multilabel: ClassVar[bool] = False

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(map(str, self.classes.tolist()))

    def decision_function(self, pictures: Dataset | ArrayLike) -> NDArray[Any]:
        """Return a score for each picture and class, (n, classes)."""
        trainer = NetworkTrainer(self.module)
        return trainer.scores(trainer.initial(), read_inputs(pictures, None))

    def predict_proba(self, pictures: Dataset | ArrayLike) -> NDArray[Any]:
        """Return the probability of each class by the softmax of the scores."""
        scores = self.decision_function(pictures).astype(np.float64)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def predict(self, pictures: Dataset | ArrayLike) -> NDArray[Any]:
        """Return the class of every picture."""
        return np.asarray(self.classes[self.decision_function(pictures).argmax(axis=1)])

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
                    raise InputError(f"{path} does not name the code of its module. Give the module.")
                module = module_from(source, len(classes))
            state = {name: torch.tensor(arrays[f"state {i}"]) for i, name in enumerate(document["names"])}
            learned = deepcopy(module)
            learned.load_state_dict(state, strict=True)
            statement = PrivacyStatement.from_dict(document["statement"])
            return cls(learned.eval(), classes, statement, document["side"], source)
        except (KeyError, TypeError) as error:
            raise CorruptFileError(f"{path} does not hold a usable network: {error}.") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path} was learned by another module than this one: {reason}") from None


@dataclass(frozen=True, eq=False)
class SeenRounds:
    """What the server of a run sees, round by round: the shared model and the mean of what members sent."""

    models: list[Array] = field(default_factory=list)
    means: list[Array] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkTask(Task):
    """The task of a network. Its module, which is code, is not part of the bytes; its layout and first weights are."""

    module: Module = field(repr=False)
    device: str = "cpu"
    source: ByteSource = field(default=system_bytes, repr=False)
    seen: SeenRounds | None = field(default=None, repr=False)

    def _made(self, validation: Pair | None) -> "NetworkLearner":
        return NetworkLearner(self, validation)

    def statement(self, said: PrivacyStatement, terms: Terms, rounds: int) -> PrivacyStatement:
        """Return what a number of rounds protect; without noise, that nothing is proven of what the sums show."""
        told = super().statement(said, terms, rounds)
        if self.noise is not None:
            return told
        line = "the pictures from what sums and model show: there is no noise, so nothing bounds what they give away"
        return replace(told, not_protected=(line, *told.not_protected))


class NetworkLearner:
    """How members improve the shared network, and how the mean of their changes becomes the next one.

    The shared state is (2, size): the parameters, and the velocity of the server's momentum.
    """

    always: ClassVar[int] = 0
    largest: ClassVar[float] = _LARGEST
    additive: ClassVar[bool] = True

    def __init__(self, task: NetworkTask, validation: Pair | None) -> None:
        settings = task.settings
        self.noise, self.validation = task.noise, None if validation is None else Batch(*validation)
        self._source, self._seen = task.source, task.seen
        self._first: Vector = np.asarray(task.arrays["first"], dtype=np.float32)
        self._rate, self._momentum = float(settings["learning_rate"]), float(settings["server_momentum"])
        self._records, self._members = int(settings["records"]), int(settings["members"])
        self._device = task.device
        self._trainer = NetworkTrainer(
            task.module,
            optimiser=settings["optimiser"],
            learning_rate=self._rate,
            epochs=settings["local_epochs"],
            batch=settings["batch_size"] or LARGEST_BATCH,
            device=task.device,
        )
        self._gradients: RecordGradients | None = None
        if settings["unit"] == "record":
            module = deepcopy(task.module).to(task.device).eval()
            self._flat = FlatParameters(module)
            self._gradients = RecordGradients(module, RecordGaussian(settings["clip"], 1.0))

    @property
    def size(self) -> int:
        return self._first.size

    def first(self, seed: int) -> Array:
        return np.stack([self._first, np.zeros_like(self._first)]).astype(np.float64)

    def update(self, data: Batch, shared: Array, memory: Memory, seed: int) -> Update:
        """Return the change of a round and, where nothing is noisy, what is to be sent later."""
        if self.noise is not None:
            parts = self.clipped_sums(shared, data) if self._gradients else self._clipped_change(shared, data, seed)
            return Update(self.noise.contribution(parts, self._source).astype(np.float64))
        held = 0.0 if memory.held is None else memory.held
        start = (shared[0] + held).astype(np.float32)
        after = self._trained(start, data, seed)
        return Update(held + (after.astype(np.float64) - start), Memory(np.zeros(self.size)))

    def clipped_sums(self, shared: Array, data: Batch) -> Iterator[Array]:
        """Yield sums of the clipped gradients of all records at the shared model."""
        assert self._gradients is not None
        self._flat.write(shared[0])
        truth = load_torch().tensor(data.labels, device=self._device)
        return self._gradients.clipped_sums(to_batch(data.inputs, self._device), truth)

    def _clipped_change(self, shared: Array, data: Batch, seed: int) -> Array:
        """Return the clipped change of a training, zero if it diverged."""
        assert self.noise is not None
        start = shared[0].astype(np.float32)
        known = data.labels < self._trainer.classes_of(data.inputs)
        try:
            after = self._trained(start, Batch(data.inputs[known], data.labels[known]), seed) if known.any() else start
        except DivergedError:
            after = start
        return clipped(after.astype(np.float64) - start, self.noise.clip)

    def trained_alone(self, shared: Array, data: Batch, seed: int) -> Array:
        """Return the state after the passes of a round over the pictures of a member that is alone."""
        after = self._trained(shared[0].astype(np.float32), data, seed).astype(np.float64)
        return np.stack([after, shared[1]])

    def _trained(self, start: Vector, data: Batch, seed: int) -> Vector:
        self._trainer.reset()  # what an optimiser remembers would be of another member
        return self._trainer.train(start, data.inputs, data.labels, seed)

    def combine(self, shared: Array, total: RoundSum) -> Array:
        """Return the next parameters and velocity from the sum of a round."""
        count = len(total.contributors)
        if self.noise is None:  # what had no turn, or was withheld, does not move
            return self._moved(shared, self.mean_of(total.values, count), total.total != 0)
        return self._moved(shared, self.mean_of(total.total, count))

    def mean_of(self, total: NDArray[Any], count: int) -> Array:
        """Return the mean change of the model from the sum of what `count` members sent."""
        if self.noise is None:
            return np.asarray(total / count)
        values = self.noise.values(total)
        return values / count if self._gradients is None else self._descent(values, count / self._members)

    def stepped(self, shared: Array, gradients: Array) -> Array:
        """Return the next state after a step against the noisy sum of the gradients of all records."""
        return self._moved(shared, self._descent(gradients, 1.0))

    def _descent(self, gradients: Array, share: float) -> Array:
        """Return the step against a sum of gradients of this share of all records."""
        return np.asarray(-self._rate * gradients / (share * self._records))

    def _moved(self, shared: Array, mean: Array, turn: NDArray[np.bool_] | bool = True) -> Array:
        if self._seen is not None:
            self._seen.models.append(shared[0])
            self._seen.means.append(mean)
        velocity = self._momentum * shared[1] + mean
        return np.stack([np.where(turn, shared[0] + velocity, shared[0]), velocity])

    def score(self, shared: Array) -> float | None:
        """Return the accuracy on the validation pictures, averaged over classes."""
        if self.validation is None:
            return None
        scores = self._trainer.scores(shared[0].astype(np.float32), self.validation.inputs)
        return balanced_accuracy(self.validation.labels, scores.argmax(axis=1))


class FederatedNetwork(FrozenParameters, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A torch module learned from several members' pictures; with ``fit(X, y)``, from one's alone.

    Parameters
    ----------
    module : a `torch.nn.Module` that turns a batch into (n, classes) scores. It is copied, never changed.
    privacy : what is to be proven of all rounds: `Privacy(...)`, or None: nothing. It must be named. Without a clip,
        that of records is measured on the public pictures.
    sums : how changes are added up: the name of a scheme, "masks", "bfv", "dphe", "block-dphe" or "plain", or
        `Sums(...)`, with the `share` of the parameters that a round is about (theta_u of PPDL).
    rounds : how many; None is 20, and more with a `share` below 1.
    batch_size : pictures of a step; None is 4 to 32, for 16 steps in a pass. With privacy of records every step
        is on all records.
    local_epochs : passes of a member over its pictures in a round.
    learning_rate : None is 0.1 for "sgd", 0.001 otherwise, and by the noise with privacy of records.
    optimiser : of members: "sgd", "rmsprop" or "adam".
    server_momentum : how much of its last move the shared model repeats in a round.
    classes : the names of all classes; None is those of the public pictures, else 0, 1, ...
    public_epochs : passes over the public pictures before the first round.
    size : pictures are brought to size x size pixels; None leaves them.
    device : where torch computes.
    random_state : decides first steps, order of pictures and schedule; keys and noise never depend on it.

    Attributes
    ----------
    model_ : the `NetworkModel`, which can be saved.
    plan_ : the `TrainingPlan`.
    classes_ : the names of the classes.
    history_ : a `RoundReport` per round.
    public_score_ : the validation score of the public model, before any round; None without validation data.
    statement_ : the `PrivacyStatement`.
    noise_ : the `NoisePlan` of several members with privacy; else None.
    seen_ : what the server saw in every round (`SeenRounds`), if recorded.
    initial_ : the parameters of the public model.
    """

    def __init__(
        self,
        module: Module,
        *,
        privacy: Privacy | None,
        sums: str | Sums = "masks",
        rounds: int | None = None,
        batch_size: int | None = None,
        local_epochs: int = 1,
        learning_rate: float | None = None,
        optimiser: str = "sgd",
        server_momentum: float = 0.9,
        classes: ArrayLike | None = None,
        public_epochs: int = 10,
        size: int | None = None,
        device: str = "cpu",
        random_state: int = 0,
    ) -> None:
        self.module = module
        self.privacy = privacy
        self.sums = sums
        self.rounds = rounds
        self.batch_size = batch_size
        self.local_epochs = local_epochs
        self.learning_rate = learning_rate
        self.optimiser = optimiser
        self.server_momentum = server_momentum
        self.classes = classes
        self.public_epochs = public_epochs
        self.size = size
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        members: Mapping[str, MemberData] | Sequence[MemberData] | ArrayLike,
        y: ArrayLike | None = None,
        *,
        public: MemberData | None = None,
        validation: MemberData | None = None,
        checkpoint: AnyPath | None = None,
        ledger: Ledger | None = None,
        scope: str | None = None,
        record: bool = False,
        on_round: OnRound | None = None,
        progress: Progress = silent,
        source: ByteSource = system_bytes,
    ) -> Self:
        """Learn from several members' pictures and classes, or with `y` from one's.

        `members` is a list of datasets or pairs (pictures, classes), or a mapping from names to them; a function that
        returns such can stand for them and is called in every round. `public` pictures give the first model, the names
        of the classes, and a clip that is not named. `validation` pictures are scored after every round. With a
        `checkpoint` folder, a run without privacy that was interrupted resumes. A `ledger` is charged under `scope`
        before anything is learned. `record` keeps what the server sees of every round, for audits.
        """
        self.check()
        if ledger is not None and (self.privacy is None or scope is None):
            raise InputError("a ledger counts proven privacy under a scope, the name of the pictures. Name both.")
        if record and checkpoint is not None:
            raise InputError("the rounds of a run that is resumed are not recorded. Omit record or checkpoint.")
        loaders = _loaders(members, y)
        task, sums, known, held_out, prints = self.prepare(loaders, public, validation, source=source, record=record)
        charged = partial(_charge, ledger, scope) if ledger is not None and scope is not None else None
        if len(loaders) == 1:
            if checkpoint is not None:
                raise InputError("a member that trains alone keeps no checkpoint. Omit it.")
            return self._fit_alone(task, known["member"](), held_out, charged, on_round, progress)
        if task.noise is not None:
            warn_if_swamped(self.plan_, self.privacy.epsilon, self.initial_.size)  # type: ignore[union-attr]
            if charged is not None:
                task.terms(sums, run="ledger", members=tuple(known))  # nothing is spent on what cannot be played
                charged(task.noise.loss(task.delta), task.noise.unit, str(task.noise))
        run = run_here(
            task,
            sums,
            known,
            rounds=self.plan_.rounds,
            random_state=self.random_state,
            validation=held_out,
            prints=prints,
            checkpoint=checkpoint,
            on_round=on_round,
            progress=progress,
        )
        return self._adopt(
            task, run.state.shared[0], run.state.first_score, run.state.history, run.statement, task.noise
        )

    def prepare(
        self,
        loaders: Mapping[str, Loader],
        public: MemberData | None,
        validation: MemberData | None,
        *,
        source: ByteSource = system_bytes,
        record: bool = False,
    ) -> tuple[NetworkTask, Sums, dict[str, Loader], Pair | None, list[str]]:
        """Return what a run agrees on, how it adds up, the members' batches, the validation's, and fingerprints."""
        trainer = NetworkTrainer(self.module, device=self.device)
        self.classes_ = self._class_names(public)
        known = None if public is None else self._read("the public pictures", public, trainer)
        private = self.privacy is not None
        readers = {name: self._reader(name, load, trainer, private) for name, load in loaders.items()}
        sizes: list[int] = []

        def measured(batch: Batch) -> tuple[NDArray[Any], ...]:
            sizes.append(len(batch.labels))
            return tuple(batch)

        _, prints = check_members_data(readers, measured)
        held_out = None if validation is None else self._read("the validation pictures", validation, trainer)
        initial = self._public_start(trainer, known)
        self.initial_ = initial
        sums = self._sums
        self.plan_, noise = self._planned(trainer, initial, known, sizes, sums)
        settings = {
            "layout": layout_of(self.module).digest,
            "classes": len(self.classes_),
            "unit": None if self.privacy is None else self.privacy.unit,
            "clip": self.plan_.clip,
            "records": sum(sizes),
            "members": len(sizes),
            "optimiser": self.optimiser,
            "learning_rate": self.plan_.learning_rate,
            "batch_size": self.plan_.batch_size,
            "local_epochs": self.plan_.local_epochs,
            "server_momentum": self.server_momentum,
        }
        task = NetworkTask(
            kind=NETWORK,
            settings=settings,
            arrays={"first": initial},
            noise=noise,
            delta=0.0 if self.privacy is None else self.privacy.delta,
            module=self.module,
            device=self.device,
            source=source,
            seen=SeenRounds() if record else None,
        )
        return task, sums, readers, None if held_out is None else (held_out.inputs, held_out.labels), prints

    def read(self, data: MemberData) -> Batch:
        """Return pictures as the module takes them, with classes counted as in `classes_`."""
        return self._read("the pictures", data, NetworkTrainer(self.module, device=self.device))

    def predict(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        """Return the class of every picture."""
        return self._model.predict(self._sized(X))

    def decision_function(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        """Return a score for each picture and class, (n, classes)."""
        return self._model.decision_function(self._sized(X))

    def predict_proba(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        """Return the probability of each class."""
        return self._model.predict_proba(self._sized(X))

    def score(
        self, X: Dataset | ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the share of right answers; a dataset brings its own."""
        if y is None and not isinstance(X, Dataset):
            raise InputError("a score needs the right answers y, or a dataset that has them.")
        return float(super().score(X, _labels(X) if y is None else y, sample_weight))

    def save(self, path: AnyPath) -> None:
        """Write the model to one file; `NetworkModel.load` reads it."""
        self._model.save(path)

    @property
    def _model(self) -> NetworkModel:
        check_is_fitted(self)
        model: NetworkModel = self.model_
        return model

    def _sized(self, X: Dataset | ArrayLike) -> NDArray[Any]:
        return read_inputs(X, self.size)

    def check(self) -> None:
        """Refuse settings that contradict themselves, before any picture is read."""
        rate_of(self.optimiser, self.learning_rate)
        least = {"rounds": 1, "batch_size": 1, "local_epochs": 1, "public_epochs": 0, "size": 1}
        for name, bound in least.items():
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), bound)
        check_number("server_momentum", self.server_momentum)
        if not 0 <= self.server_momentum < 1:
            raise InputError(f"server_momentum must be in [0, 1); got {self.server_momentum}.")
        if self.privacy is not None and not isinstance(self.privacy, Privacy):
            raise InputError(f"privacy must be Privacy(...) or None; got {type(self.privacy).__name__}.")
        if self.privacy is not None and self.privacy.unit == "record":
            fixed = {"batch_size": None, "local_epochs": 1, "optimiser": "sgd"}
            for name, only in fixed.items():
                if getattr(self, name) != only:
                    raise InputError(
                        f"with privacy of records a round is one step on all records; got {name}="
                        f"{getattr(self, name)!r}. Omit it."
                    )
        _ = self._sums

    @property
    def _sums(self) -> Sums:
        sums = Sums.of(self.sums).with_share(1.0)
        if sums.traits.options is DpheOptions and sums.options is None:
            return replace(sums, options=DpheOptions(sparsity=0.0))  # changes of a network are dense
        return sums

    def _class_names(self, public: MemberData | None) -> NDArray[Any]:
        """Return the names of the classes; none where they are counted."""
        if self.classes is not None:
            names = np.asarray(self.classes)
        elif public is not None:
            names = np.unique(_labels(public))
        else:
            return np.arange(0)
        if len(names) < 2 or len(np.unique(names)) < len(names):
            raise InputError(f"classes must be two or more different names; got {', '.join(map(str, names))}.")
        return names

    def _reader(self, name: str, load: Loader, trainer: NetworkTrainer, private: bool) -> Loader:
        return lambda: self._read(name, load(), trainer, private=private)

    def _read(self, whose: str, data: MemberData, trainer: NetworkTrainer, *, private: bool = False) -> Batch:
        """Return pictures as the module takes them, with classes counted as in `classes_`.

        If they are `private`, only what is public about them is refused: the shape and type of arrays.
        """
        with error_context(whose):
            if not isinstance(data, Dataset) and not (isinstance(data, tuple | list) and len(data) == 2):
                raise InputError("data must be a dataset, or a pair (pictures, classes).")
            inputs, labels = read_inputs(data, self.size), _labels(data)
            if len(labels) != len(inputs) or not len(inputs):
                raise InputError(f"there must be a class for each of {len(inputs)} pictures; got {len(labels)}.")
            if not len(self.classes_):  # nobody has named them: they are counted
                self.classes_ = np.arange(trainer.scores(trainer.initial(), inputs[:1]).shape[1])
            if private:
                inputs, numbers = _readable(inputs, self._numbers(labels))
            else:
                numbers = self._numbers(labels)
                if (numbers < 0).any():
                    strange = sorted({str(label) for label, n in zip(labels, numbers, strict=True) if n < 0})
                    raise InputError(
                        f"unknown classes {', '.join(strange)}; known are {', '.join(map(str, self.classes_))}."
                    )
            check_outputs(trainer, inputs, self.classes_)
            trainer.check(inputs, np.clip(numbers, 0, len(self.classes_) - 1))
            return Batch(inputs, np.where(numbers < 0, len(self.classes_), numbers))

    def _numbers(self, labels: NDArray[Any] | Sequence[Any]) -> NDArray[np.int64]:
        """Return labels as positions in `classes_`, -1 where they are unknown; each is read on its own."""
        order = np.argsort(self.classes_, kind="stable")
        wanted = targets(Classes(self.classes_[order]), labels)
        if wanted.shape[1] == 1:  # two classes: -1 or 1, 0 where unknown
            found, known = (wanted[:, 0] > 0).astype(np.int64), wanted[:, 0] != 0
        else:
            found, known = wanted.argmax(axis=1), wanted.any(axis=1)
        return np.where(known, order[found], -1)

    def _public_start(self, trainer: NetworkTrainer, known: Batch | None) -> Vector:
        """Return the parameters of the module after some passes over the public pictures."""
        first = trainer.initial()
        if known is None or not self.public_epochs:
            return first
        rng = science(self.random_state)
        public = NetworkTrainer(self.module, optimiser=self.optimiser, batch=LARGEST_BATCH, device=self.device)
        for _ in range(self.public_epochs):
            first = public.train(first, known.inputs, known.labels, int(rng.integers(2**63)))
        return first

    def _planned(
        self, trainer: NetworkTrainer, initial: Vector, known: Batch | None, sizes: list[int], sums: Sums
    ) -> tuple[TrainingPlan, NoisePlan | None]:
        """Return how members train, and the noise of a run of several."""
        rounds = usual_rounds(sums.share) if self.rounds is None else self.rounds
        rate = usual_rate(self.optimiser) if self.learning_rate is None else self.learning_rate
        batch = usual_batch(min(sizes)) if self.batch_size is None else self.batch_size
        plan = TrainingPlan(rounds=rounds, batch_size=batch, local_epochs=self.local_epochs, learning_rate=rate)
        privacy = self.privacy
        if privacy is None:
            return plan, None
        if sums.scheduled:
            raise InputError(f"with privacy every number is in every round; got share={sums.share}. Omit it.")
        if privacy.unit == "member" and len(sizes) == 1:
            raise InputError("unit='member' protects one of several members; got one. Use unit='record'.")
        if privacy.clip is None:
            privacy = replace(privacy, clip=self._measured_clip(initial, known))
        noise, dimension = None, initial.size
        if len(sizes) == 1:
            alone = calibrate_record(epsilon=privacy.epsilon, delta=privacy.delta, steps=rounds, clip=1.0)
            multiplier = alone.noise_multiplier
        else:
            noise = privacy.plan(
                members=len(sizes), dimension=dimension, rounds=rounds, records=max(sizes), scheme=sums.scheme
            )
            multiplier = noise.deviation / noise.clip
        units = sum(sizes) if privacy.unit == "record" else len(sizes)
        ratio = multiplier * math.sqrt(dimension) / units
        changes: dict[str, Any] = {"clip": privacy.clip, "noise_multiplier": multiplier, "noise_ratio": ratio}
        if privacy.unit == "record":
            changes["batch_size"] = None
            changes["learning_rate"] = usual_rate("sgd", ratio) if self.learning_rate is None else self.learning_rate
        return replace(plan, **changes), noise

    def _measured_clip(self, initial: Vector, known: Batch | None) -> float:
        """Return the median length of the gradients of public pictures."""
        if known is None:
            raise InputError("privacy needs a clip, which is measured on public pictures. Give public=, or a clip.")
        torch = load_torch()
        module = deepcopy(self.module).to(self.device).eval()
        FlatParameters(module).write(initial)
        gradients, some = RecordGradients(module, RecordGaussian(1.0, 1.0)), slice(4 * LARGEST_BATCH)
        lengths = [
            torch.sqrt(sum((part.flatten(1).double() ** 2).sum(dim=1) for part in parts)).cpu().numpy()
            for parts in gradients.per_record(
                to_batch(known.inputs[some], self.device), torch.tensor(known.labels[some], device=self.device)
            )
        ]
        return float(np.median(np.concatenate(lengths))) or 1.0

    def _fit_alone(
        self,
        task: NetworkTask,
        data: Batch,
        held_out: Pair | None,
        charged: Any,
        on_round: OnRound | None,
        progress: Progress,
    ) -> Self:
        """Train on the pictures of one member, with noise in every step if something is to be proven."""
        plan, privacy, learner = self.plan_, self.privacy, NetworkLearner(task, held_out)
        noise = None
        if privacy is not None and plan.clip is not None:
            noise = RecordGaussian(plan.clip, plan.noise_multiplier)
            warn_if_swamped(plan, privacy.epsilon, self.initial_.size)
            if charged is not None:
                charged(GaussianLoss(noise.noise_multiplier, count=plan.rounds), "record", str(noise))
        shared, rng = learner.first(self.random_state), science(self.random_state)
        first_score, history = learner.score(shared), list[RoundReport]()
        for number in range(1, plan.rounds + 1):
            before = shared
            if noise is None:
                shared = learner.trained_alone(shared, data, int(rng.integers(2**63)))
            else:
                total = np.sum([*learner.clipped_sums(shared, data)], axis=0)
                shared = learner.stepped(shared, noise.release(total, task.source))
            step = float(np.linalg.norm(shared[0] - before[0]) / max(float(np.linalg.norm(shared[0])), 1e-300))
            history.append(RoundReport(round=number, score=learner.score(shared), step=step, contributors=("member",)))
            progress("rounds", number, plan.rounds)
            if on_round is not None:
                on_round(history[-1])
        statement = alone_statement(noise, plan.rounds, task.delta, task.source)
        return self._adopt(task, shared[0], first_score, history, statement, None)

    def _adopt(
        self,
        task: NetworkTask,
        parameters: NDArray[Any],
        first_score: float | None,
        history: Sequence[RoundReport],
        statement: PrivacyStatement,
        noise: NoisePlan | None,
    ) -> Self:
        learned = deepcopy(self.module).cpu().eval()
        FlatParameters(learned).write(parameters)
        self.statement_, self.noise_, self.history_ = statement, noise, list(history)
        self.public_score_, self.seen_ = first_score, task.seen
        self.model_ = NetworkModel(learned, self.classes_, statement, self.size)
        return self


def _loaders(members: Any, y: ArrayLike | None) -> dict[str, Loader]:
    """Return the data loaders of several members, or of one that is alone."""
    if y is None and not isinstance(members, Dataset):
        return name_members(members)
    alone = members if y is None else (members, y)
    return {"member": lambda: alone}


def _charge(ledger: Ledger, scope: str, loss: Any, unit: str, mechanism: str) -> None:
    ledger.spend(
        loss,
        scope=scope,
        unit="record" if unit == "record" else "person",
        neighbours="add/remove",
        mechanism=mechanism,
        purpose="learning a network",
    )


def read_inputs(data: MemberData, size: int | None) -> NDArray[Any]:
    """Return the pictures, or features, of a dataset, a pair or an array; pictures at one size, if one is named."""
    if isinstance(data, Dataset):
        held = data.features if data.images is None else data.images
        if held is None:
            raise InputError(f"{data.name} has neither pictures nor features.")
        inputs: NDArray[Any] = np.asarray(held)
    else:
        try:
            inputs = np.asarray(data[0] if isinstance(data, tuple | list) and len(data) == 2 else data)
        except ValueError:
            raise InputError("pictures must all have one shape; got different ones.") from None
    if size is not None and inputs.ndim == 4 and inputs.dtype == np.uint8 and inputs.shape[1:3] != (size, size):
        return resized(inputs.astype(np.uint8, copy=False), size)
    return inputs


def _labels(data: Any) -> NDArray[Any] | Sequence[Any]:
    if not isinstance(data, Dataset):
        given = data[1]
        return given if isinstance(given, list | tuple) else np.asarray(given)
    if data.labels is None:
        raise InputError(f"{data.name} has no classes to learn.")
    return np.asarray(data.label_names)[data.labels] if data.label_names else data.labels


def _readable(inputs: NDArray[Any], numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return pictures without numbers that are not finite: a picture that has one is zero and of no class."""
    if inputs.dtype.kind != "f" or np.isfinite(inputs).all():
        return inputs, numbers
    finite = np.isfinite(inputs).reshape(len(inputs), -1).all(axis=1)
    return np.where(finite.reshape(-1, *[1] * (inputs.ndim - 1)), inputs, 0), np.where(finite, numbers, -1)
