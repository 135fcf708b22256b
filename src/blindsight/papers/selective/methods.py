"""Ways to keep a model up to date from photos of many participants, each a method of the study (`timeline`).

*Selective sharing* (`SelectiveMethod`), Figure 3 of PPDL (Bu 2019): everyone trains whenever a batch has gathered, and
at the end of the day the server's parameters go on to the next. So photos are scored with the server's parameters, even
where a participant downloads only a part of them (theta_d, `download`) to train on. Top-k with residuals, as in
distributed training, is a sharing with ``select="largest", residual=True``.

*What it is compared with.* "No update" and "centralised" are the two benchmarks in Figure 4 of PPDL. The centralised
method makes the steps of a single participant who takes everybody's photos, so that only the sharing differs.

*FedAvg* (McMahan et al. 2017): in a round, some participants download the model, make local steps on the photos they
have gathered, and upload all that changed; the server moves the model by the average, weighted by photos. One batch
in each upload makes as many uploads as selective sharing (`period` = 1); every upload is many times as large. At equal
*bytes* (`as_bytes_of`) uploads are so rare that they cost no more than another method's, and each carries more steps.
With noise, who uploads when must not depend on what photos show, as the bytes of the other method may: each of its
uploads then counts as one at random places (`Traffic.bytes_allowed`), and how many there are follows from the
schedule, so this method's bytes come near the other's and may exceed them.

*DP-FedAvg* (McMahan et al. 2018), with `noise`: each change is shortened to a Euclidean length of at most `clip`, all
count alike, and the server adds Gaussian noise to their sum. A participant with all its photos then loses no more than
its rounds compose to, as far as everyone who sees models is concerned; the server itself sees every change.
Neighbouring runs differ in whether one participant's changes count or are zero; it uploads in both.

*`NoisySums`* is the same without a server that is trusted: every participant adds a share of the noise, and sums alone
are opened (`blindsight.sums.noise`).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from blindsight.crypto.encoding import SlotPacking
from blindsight.dp.accounting import GaussianLoss, compose
from blindsight.dp.ledger import Ledger
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.errors import BudgetExceededError, InputError, UnknownNameError
from blindsight.learn.modules import Vector
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.cost import compose_sharing, number_of, sharing_statement
from blindsight.papers.selective.days import Baseline, MethodRun, Photos, Setting, Traffic
from blindsight.papers.selective.noise import ParticipantGaussian, Sharing, SparseUpdate, every_place
from blindsight.papers.selective.protocol import (
    Order,
    ParameterServer,
    Participant,
    Trainer,
    Upload,
    asynchronous,
    download_bytes,
    random_order,
    round_robin,
    simulate,
    upload_bytes,
    usual_upload,
)
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.sums import open_session
from blindsight.sums.noise import NoisePlan, clipped, noised

OrderName = Literal["round-robin", "random", "asynchronous"]

SLOT_BITS = 32
"""Of the numbers that are added up under encryption."""


# --- nothing is shared, or everything ---


class _Learner:
    """One participant's own training: photos that wait until a batch of them has gathered, and steps on batches."""

    def __init__(self, setting: Setting, place: int) -> None:
        self._trainer = setting.make_trainer(record_noise=None)
        self._rng = setting.generator(place)
        self._batch = setting.batch
        self._waiting: Photos | None = None

    @property
    def batches(self) -> int:
        return 0 if self._waiting is None else len(self._waiting.labels) // self._batch

    def gather(self, photos: Photos) -> None:
        old = self._waiting
        self._waiting = photos if old is None else Photos(*map(np.concatenate, zip(old, photos, strict=True)))

    def step(self, parameters: Vector, batches: int) -> Vector:
        """Return the parameters after steps on the oldest `batches`, which wait no longer."""
        assert self._waiting is not None
        assert batches <= self.batches
        end = batches * self._batch
        for cut in range(0, end, self._batch):
            inputs, labels = (part[cut : cut + self._batch] for part in self._waiting)
            parameters = self._trainer.train(parameters, inputs, labels, int(self._rng.integers(2**63)))
        self._waiting = Photos(self._waiting.inputs[end:], self._waiting.labels[end:])
        return parameters


class NeverUpdated(Baseline):
    """The initial model stays as it is."""

    name = "never updated"

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves("nothing is learned from the participants' photos")


class LocalOnly(Baseline):
    """Everyone learns from its own photos, shares nothing, and is scored with its own model."""

    name = "local only"

    def start(self, setting: Setting) -> None:
        super().start(setting)
        self._learners = {name: _Learner(setting, place) for place, name in enumerate(setting.participants)}
        self._models = dict.fromkeys(setting.participants, setting.initial)

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            learner = self._learners[name]
            learner.gather(taken)
            self._models[name] = learner.step(self._models[name], learner.batches)

    def parameters_for(self, participant: str) -> Vector:
        return self._models[participant]

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves(
            "everyone learns from its own photos, and what it learned stays with it",
            "what a participant's own model tells about its photos, if it is passed on",
        )


class Centralised(Baseline):
    """Everyone gives its photos away, and one model learns from all of them.

    Its uploads are photos; their bytes are those of the arrays that the trainer takes.
    """

    name = "centralised"

    def start(self, setting: Setting) -> None:
        super().start(setting)
        self._learner = _Learner(setting, 0)
        self._given: Counter[str] = Counter()

    def day(self, photos: Mapping[str, Photos]) -> None:
        pooled = _interleaved([taken for taken in photos.values() if len(taken.labels)])
        self.traffic.uploads += len(pooled.labels)
        self._given.update({name: len(taken.labels) for name, taken in photos.items()})
        self.traffic.most_each = max(self._given.values())
        self.traffic.bytes_up += pooled.inputs.nbytes + pooled.labels.nbytes
        self._learner.gather(pooled)
        self.parameters = self._learner.step(self.parameters, self._learner.batches)

    def statement(self) -> PrivacyStatement:
        return PrivacyStatement(
            guarantee="none",
            mechanism="none: photos are given away",
            unit=None,
            epsilon=None,
            delta=None,
            randomness="none",
            who_sees={"server": "every photo of every participant", "anyone with the model": "the parameters"},
            not_protected=("anything",),
        )


def _nothing_leaves(why: str, *not_protected: str) -> PrivacyStatement:
    """Return the statement of a method in which nobody else sees anything that depends on a participant's photos."""
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=f"none needed: {why}",
        unit="person",
        epsilon=0.0,
        delta=0.0,
        neighbours="add/remove",
        accountant="basic",
        randomness="none",
        who_sees={"participant": "its own photos and its own model", "everybody else": "the initial model"},
        not_protected=("the photos of day 0, which are public", *not_protected),
    )


def _interleaved(parts: list[Photos]) -> Photos:
    """Return all photos of a day, those of each participant evenly spread over the day and in their order."""
    moments = np.concatenate([(np.arange(len(labels)) + 0.5) / len(labels) for _, labels in parts])
    order = np.argsort(moments, kind="stable")
    inputs, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Photos(inputs[order], labels[order])


# --- a part is shared ---


@dataclass(frozen=True)
class SelectiveMethod:
    """Participants upload as `sharing` says.

    They come in `order`; asynchronously the fastest is `speed_ratio` times as fast as the slowest, and uploads that are
    more than `max_staleness` uploads late are refused. With `half_download` parameters come as float16. With a
    `budget`, an epsilon, nobody makes an upload that would make it spend more. `record` is called with every upload
    that the server receives; `server` is the kind of server, in an audit a hostile one.
    """

    name: str
    sharing: Sharing
    download: float = 1.0
    order: OrderName = "round-robin"
    speed_ratio: float = 4.0
    max_staleness: int | None = None
    budget: float | None = None
    half_download: bool = False
    record: Callable[[Upload], object] = field(default=lambda upload: None, compare=False, repr=False)
    server: type[ParameterServer] = ParameterServer

    def __post_init__(self) -> None:
        if self.order not in get_args(OrderName):
            raise UnknownNameError("order", self.order, get_args(OrderName))
        if not 1 <= self.speed_ratio < math.inf:
            raise InputError(f"speed_ratio must be at least 1; got {self.speed_ratio}.")

    def begin(self, setting: Setting) -> "SelectiveRun":
        return SelectiveRun(self, setting)

    def ordered(self, participants: Sequence[str], rng: np.random.Generator) -> Order:
        if self.order == "random":
            return random_order(rng)
        if self.order == "asynchronous":
            speeds = rng.permutation(np.geomspace(1, self.speed_ratio, len(participants)))
            return asynchronous(dict(zip(participants, speeds.tolist(), strict=True)), random_state=rng)
        return round_robin


class SelectiveRun(MethodRun):
    """The participants and the parameter server of one run."""

    def __init__(self, method: SelectiveMethod, setting: Setting) -> None:
        self.start(setting)
        self._method, self._setting = method, setting
        noise = method.sharing.noise
        inside = noise if isinstance(noise, RecordGaussian) else None
        self._server = method.server(
            setting.initial,
            download=method.download,
            half=method.half_download,
            max_staleness=method.max_staleness,
            record=method.record,
        )
        trainers = {name: setting.make_trainer(record_noise=inside) for name in setting.participants}
        self._participants = self._join(trainers)  # which refuses trainers that do not name their epochs
        self._steps = 1 if inside is None else next(iter(trainers.values())).epochs
        self._order = method.ordered(setting.participants, setting.generator(len(setting.participants)))
        self._uploads: Counter[str] = Counter()
        dimension = setting.initial.size
        self._allowed = usual_upload(method.sharing.count(dimension), dimension, half=method.sharing.half)

    def _join(self, trainers: Mapping[str, Trainer]) -> list[Participant]:
        sharing, budget, setting = self._method.sharing, self._method.budget, self._setting
        ledger = None if budget is None else Ledger()
        joined = []
        for place, (name, trainer) in enumerate(trainers.items()):
            joined.append(
                Participant(
                    name,
                    trainer,
                    sharing,
                    batch=setting.batch,
                    ledger=ledger,
                    random_state=setting.generator(place),
                    source=setting.source,
                )
            )
            if ledger is not None and budget is not None:
                ledger.set_budget(
                    joined[-1].scope,
                    unit=sharing.unit,
                    neighbours=sharing.neighbours,
                    epsilon=budget,
                    delta=setting.delta,
                )
        return joined

    def day(self, photos: Mapping[str, Photos]) -> None:
        """Let all gather their photos, and train and share while they have batches."""
        for participant in self._participants:
            taken = photos.get(participant.name)
            if taken is not None and len(taken.labels):
                participant.gather(taken.inputs, taken.labels)
        for exchange in simulate(self._server, self._participants, self._order):
            if exchange.uploaded:
                self._uploads[exchange.participant] += 1
                self.traffic.uploads += 1
                self.traffic.bytes_up += exchange.uploaded
                self.traffic.most_each = max(self._uploads.values())
                self.traffic.bytes_allowed += self._allowed
        self.traffic.bytes_down = self._server.bytes_down
        self.parameters = self._server.parameters.copy()

    def statement(self) -> PrivacyStatement:
        cost = compose_sharing(
            self._method.sharing,
            dimension=self._setting.initial.size,
            uploads=max(1, self.traffic.most_each),
            delta=self._setting.delta,
            steps=self._steps,
        )
        return sharing_statement(cost, source=self._setting.source)


# --- averages of whole changes ---


@dataclass(frozen=True)
class FederatedAveraging:
    """Participants upload all that changed after `period` batches each; with None, after all batches of a day.

    With `as_bytes_of`, the name of a method that is begun before this one, those who have gathered most upload at the
    end of a day, as many as that method's bytes allow, with all batches shared out among them. `server_rate` multiplies
    the average. With `noise` it is DP-FedAvg. With a `budget`, an epsilon, nobody takes part in a round beyond it.
    """

    name: str
    period: int | None = 1
    as_bytes_of: str | None = None
    server_rate: float = 1.0
    noise: ParticipantGaussian | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.period is not None and self.period < 1:
            raise InputError(f"period must be at least 1 batch; got {self.period}.")
        if not 0 < self.server_rate < math.inf:
            raise InputError(f"server_rate must be positive and finite; got {self.server_rate}.")
        if self.budget is not None and self.noise is None:
            raise InputError("nothing is proven without noise, so there is nothing to spend. Omit the budget.")

    def begin(self, setting: Setting) -> MethodRun:
        if self.as_bytes_of is not None and self.as_bytes_of not in setting.runs:
            raise UnknownNameError("method begun before", self.as_bytes_of, setting.runs)
        return _AveragingRun(self, setting)


class _Member(_Learner):
    """One participant of FedAvg: how many rounds it took part in, and whether its budget is spent."""

    def __init__(self, name: str, place: int, setting: Setting) -> None:
        super().__init__(setting, place)
        self.name, self.rounds, self.spent = name, 0, False


class _AveragingRun(MethodRun):
    protects = "everybody but the server"

    def __init__(self, method: FederatedAveraging, setting: Setting) -> None:
        self.start(setting)
        self._method, self._setting = method, setting
        self._members = {name: _Member(name, place, setting) for place, name in enumerate(setting.participants)}
        self._ledger = Ledger()
        if method.budget is not None:
            limit = {"epsilon": method.budget, "delta": setting.delta}
            for name in self._members:
                self._ledger.set_budget(name, unit="person", neighbours="add/remove", **limit)

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            self._members[name].gather(taken)
        period, as_bytes_of = self._method.period, self._method.as_bytes_of
        if as_bytes_of is not None:
            self._upload_by_bytes(self._setting.runs[as_bytes_of].traffic)
        elif period is None:
            self._round(self._ready(1), max(member.batches for member in self._members.values()))
        else:
            while ready := self._ready(period):
                self._round(ready, period)

    def _ready(self, batches: int) -> list[_Member]:
        """Return those who have photos for so many batches and budget left, who have most photos first."""
        ready = [member for member in self._members.values() if member.batches >= batches and not member.spent]
        return sorted(ready, key=lambda member: -member.batches)

    def _upload_by_bytes(self, other: Traffic) -> None:
        """Play rounds of as many uploads as bring this method's bytes up to the other's, over all batches there are."""
        while ready := self._ready(1):
            cost = upload_bytes(_whole(self.parameters))
            allowed = other.bytes_up if self._method.noise is None else other.bytes_allowed
            uploads = (allowed - self.traffic.bytes_up) // cost
            if uploads < 1:
                return
            waiting = sum(member.batches for member in ready)
            self._round(ready[:uploads], math.ceil(waiting / uploads))

    def _round(self, members: Sequence[_Member], batches: int) -> None:
        """Let members upload what they learn from up to so many batches, as their budgets allow; move the model."""
        changes: list[Vector] = []
        weights: list[int] = []
        whole = _whole(self.parameters)  # a change is as long
        for member in members:
            if self._charge(member):
                weights.append(min(batches, member.batches))
                self.traffic.uploads += 1
                self.traffic.bytes_up += upload_bytes(whole)
                self.traffic.bytes_allowed += upload_bytes(whole)
                self.traffic.bytes_down += download_bytes(whole)
                changes.append(member.step(self.parameters, weights[-1]) - self.parameters)
                member.rounds += 1
                self.traffic.most_each = max(self.traffic.most_each, member.rounds)
        if changes:
            self.parameters = self.parameters + np.float32(self._method.server_rate) * self._average(changes, weights)

    def _charge(self, member: _Member) -> bool:
        """Record what taking part costs; tell whether the budget allows it."""
        noise = self._method.noise
        if noise is not None:
            try:
                self._ledger.spend(
                    GaussianLoss(noise.noise_multiplier),
                    scope=member.name,
                    unit="person",
                    neighbours="add/remove",
                    mechanism=str(noise),
                    purpose=f"round {member.rounds + 1}",
                )
            except BudgetExceededError:
                member.spent = True
                return False
        return True

    def _average(self, changes: Sequence[Vector], weights: Sequence[int]) -> Vector:
        noise = self._method.noise
        if noise is None:
            return np.average(changes, axis=0, weights=weights).astype(np.float32)
        total = np.sum([noise.shorten(change.astype(np.float64)) for change in changes], axis=0)
        mechanism = GaussianMechanism(sensitivity=noise.clip, sigma=noise.sigma)
        return (mechanism.release(total, self._setting.source) / len(changes)).astype(np.float32)

    def statement(self) -> PrivacyStatement:
        rounds, noise = self.traffic.most_each, self._method.noise
        mechanism = f"average of whole changes, in up to {number_of(rounds, 'round')} a participant"
        proven = None
        assumptions: tuple[str, ...] = ()
        if noise is not None:
            proven = compose([GaussianLoss(noise.noise_multiplier, count=max(rounds, 1))], delta=self._setting.delta)
            mechanism += (
                f", each change shortened to a length of {noise.clip:g}; the server adds Gaussian noise of "
                f"{noise.noise_multiplier:.6g} times that to their sum"
            )
            assumptions = (
                "the server is trusted: it sees what noise is to hide, adds the noise and shows nobody anything "
                "without it",
                "when a participant takes part does not depend on what its photos show",
            )
        return PrivacyStatement(
            guarantee="none" if proven is None else "differential privacy",
            mechanism=mechanism,
            unit="person",
            epsilon=math.inf if proven is None else proven.epsilon,
            delta=None if proven is None else proven.delta,
            neighbours=None if proven is None else "add/remove",
            accountant=None if proven is None else proven.accountant,
            randomness="none" if noise is None else randomness_of(self._setting.source),
            who_sees={
                "participant": "its own photos, and the model of every round it takes part in",
                "server": "every change of every participant, before any noise",
                "anyone with the model": "the parameters, which are made of all changes",
            },
            assumptions=assumptions,
            not_protected=(
                "any change, from the server",
                "that a participant takes part, and how often",
                "what is true of photos in general, one participant's part in them or not",
            ),
        )


def _whole(vector: Vector) -> SparseUpdate:
    return SparseUpdate(vector.size, every_place(vector.size), vector)


@dataclass(frozen=True)
class NoisySums:
    """Whole changes, cut to a length of `clip` and added up under `scheme` with noise inside the sum.

    In each of `rounds` all participants learn from one batch; (epsilon, delta) is for a participant with all its
    photos, against the server and one other participant.
    """

    name: str
    scheme: str
    clip: float
    epsilon: float
    rounds: int

    def begin(self, setting: Setting) -> MethodRun:
        return _SummedRun(self, setting)


class _SummedRun(MethodRun):
    def __init__(self, method: NoisySums, setting: Setting) -> None:
        self.start(setting)
        self._method, self._setting = method, setting
        names, dimension = setting.participants, setting.initial.size
        self._members = {name: _Member(name, place, setting) for place, name in enumerate(names)}
        self._plan = NoisePlan.calibrated(
            epsilon=method.epsilon,
            delta=setting.delta,
            unit="member",
            clip=method.clip,
            members=len(names),
            drop_outs=0,
            colluders=1,
            dimension=dimension,
            rounds=method.rounds,
            largest=SlotPacking(SLOT_BITS, 1).max_value(len(names)),
            reach=1.0,
        )
        self._session = open_session(
            method.scheme,
            members=names,
            dimension=dimension,
            fraction_bits=0,
            slot_bits=SLOT_BITS,
            minimum=len(names),
            minimum_per_position=1,
            source=setting.source,
        )

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            self._members[name].gather(taken)
        while self.traffic.most_each < self._method.rounds and all(one.batches for one in self._members.values()):
            self._round()

    def _round(self) -> None:
        plan = self._plan
        sent = {
            name: plan.contribution(
                clipped(member.step(self.parameters, 1) - self.parameters, plan.clip), self._setting.source
            ).astype(np.float64)
            for name, member in self._members.items()
        }
        self.traffic.most_each += 1
        result = self._session.round(sent, self.traffic.most_each)
        self.parameters = self.parameters + plan.values(result.total).astype(np.float32)
        self.traffic.uploads += len(result.contributors)
        self.traffic.bytes_up += sum(map(result.cost.sent, result.contributors))
        self.traffic.bytes_allowed = self.traffic.bytes_up
        self.traffic.bytes_down += sum(map(result.cost.received, result.contributors))

    def statement(self) -> PrivacyStatement:
        return noised(
            self._session.statement(),
            self._plan,
            delta=self._setting.delta,
            scheme=self._method.scheme,
            source=self._setting.source,
        )
