"""Photos that wait until enough of them have gathered for a step of training.

What sharing is compared with: a model that never learns on, everyone learning alone, and all photos in one place.

"No update" and "centralised" are the two benchmarks in Figure 4 of PPDL (Bu 2019). The centralised line makes the steps
of a single participant who takes everybody's photos, so that only the sharing differs from the other lines.


Selective sharing as one line of the figure: participants and a parameter server that exchange bytes.

Figure 3 of PPDL (Bu 2019): everyone trains whenever a batch has gathered, and at the end of the day the server's
parameters go on to the next. So photos are scored with the server's parameters, even where a participant downloads only
a part of them (theta_d, `download`) to train on. Top-k with residuals, as in distributed training, is a sharing with
``select="largest", residual=True``.


Federated averaging as one line of the figure, with or without noise on the average.

*FedAvg* (McMahan et al. 2017): in a round, some participants download the model, make local steps on the photos they
have gathered, and upload all that changed; the server moves the model by the average, weighted by photos. One batch
in each upload makes as many uploads as selective sharing (`period` = 1); every upload is many times as large. At equal
*bytes* (`as_bytes_of`) uploads are so rare that they cost no more than another line's, and each carries more steps.
With noise, who uploads when must not depend on what photos show, as the bytes of the other line may: its uploads then
count as the longest they can be at its share (`Traffic.bytes_allowed`), and how many there are follows from the plan of
days, so this line's bytes come near the other's and may exceed them.

*DP-FedAvg* (McMahan et al. 2018), with `noise`: each change is shortened to a Euclidean length of at most `clip`, all
count alike, and the server adds Gaussian noise to their sum. A participant with all its photos then loses no more than
its rounds compose to, as far as everyone who sees models is concerned; the server itself sees every change.
Neighbouring runs differ in whether one participant's changes count or are zero; it uploads in both.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from blindsight.crypto.wire import encode
from blindsight.dp.accounting import Composition, GaussianLoss, compose
from blindsight.dp.ledger import Ledger
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.errors import BudgetExceededError, InputError, UnknownNameError
from blindsight.selective.accounting import (
    check_hiding,
    compose_sharing,
    neighbouring,
    number_of,
    protected_unit,
    sharing_statement,
)
from blindsight.selective.codec import ParameterLayout, SparseUpdate, Vector, encode_sparse, most_bytes
from blindsight.selective.noise import ParticipantGaussian, RecordGaussian
from blindsight.selective.participant import Participant
from blindsight.selective.protection import Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.simulation import (
    EncryptedTurns,
    Order,
    TooFewError,
    asynchronous,
    play,
    random_order,
    round_robin,
)
from blindsight.selective.terms import Answer, SelectiveTerms, Upload
from blindsight.selective.timeline import Against, Photos, Setting, Traffic
from blindsight.selective.trainers import Trainer
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.sums import Session, open_session


class Gathering:
    """One participant's photos that no step has used yet, in the order of arrival."""

    def __init__(self, batch: int) -> None:
        """Begin with none; `batch` of them make a step."""
        self._batch = batch
        self._waiting: Photos | None = None

    @property
    def batches(self) -> int:
        """How many steps there are photos for."""
        return 0 if self._waiting is None else len(self._waiting.labels) // self._batch

    def add(self, photos: Photos) -> None:
        """Take in new photos behind those that wait."""
        old = self._waiting
        if old is None or not len(old.labels):
            self._waiting = photos
        else:
            self._waiting = Photos(
                np.concatenate([old.inputs, photos.inputs]), np.concatenate([old.labels, photos.labels])
            )

    def take(self, batches: int) -> list[Photos]:
        """Return the oldest `batches`, which wait no longer."""
        assert self._waiting is not None
        assert batches <= self.batches
        inputs, labels = self._waiting
        cuts = range(0, batches * self._batch, self._batch)
        taken = [Photos(inputs[cut : cut + self._batch], labels[cut : cut + self._batch]) for cut in cuts]
        self._waiting = Photos(inputs[batches * self._batch :], labels[batches * self._batch :])
        return taken


@dataclass(frozen=True)
class NeverUpdated:
    """The initial model stays as it is."""

    name: str = "never updated"

    def begin(self, setting: Setting) -> "_NeverUpdated":
        """Return the line at the end of day 0."""
        return _NeverUpdated(setting)


@dataclass(frozen=True)
class LocalOnly:
    """Everyone learns from its own photos, shares nothing, and is scored with its own model."""

    name: str = "local only"

    def begin(self, setting: Setting) -> "_LocalOnly":
        """Return the line at the end of day 0."""
        return _LocalOnly(setting)


@dataclass(frozen=True)
class Centralised:
    """Everyone gives its photos away, and one model learns from all of them.

    Its uploads are photos; their bytes are those of the arrays that the trainer takes.
    """

    name: str = "centralised"

    def begin(self, setting: Setting) -> "_Centralised":
        """Return the line at the end of day 0."""
        return _Centralised(setting)


class _NeverUpdated:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._parameters = setting.initial

    def day(self, photos: Mapping[str, Photos]) -> None:
        pass

    def parameters_for(self, participant: str) -> Vector:
        return self._parameters

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves("nothing is learned from the participants' photos")

    def against(self) -> Against:
        return "everybody"


class _Learner:
    """A model that makes a step whenever enough photos have gathered."""

    def __init__(self, setting: Setting, place: int) -> None:
        self.parameters = setting.initial
        self._trainer = setting.make_trainer(record_noise=None)
        self._rng = setting.generator(place)
        self._gathering = Gathering(setting.batch)

    def learn(self, photos: Photos) -> None:
        self._gathering.add(photos)
        for batch in self._gathering.take(self._gathering.batches):
            seed = int(self._rng.integers(2**63))
            self.parameters = self._trainer.train(self.parameters, batch.inputs, batch.labels, seed)


class _LocalOnly:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._learners = {name: _Learner(setting, place) for place, name in enumerate(setting.participants)}

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            self._learners[name].learn(taken)

    def parameters_for(self, participant: str) -> Vector:
        return self._learners[participant].parameters

    def statement(self) -> PrivacyStatement:
        return _nothing_leaves(
            "everyone learns from its own photos, and what it learned stays with it",
            "what a participant's own model tells about its photos, if it is passed on",
        )

    def against(self) -> Against:
        return "everybody"


class _Centralised:
    def __init__(self, setting: Setting) -> None:
        self.traffic = Traffic()
        self._learner = _Learner(setting, 0)
        self._given: Counter[str] = Counter()

    def day(self, photos: Mapping[str, Photos]) -> None:
        pooled = _interleaved([taken for taken in photos.values() if len(taken.labels)])
        self.traffic.uploads += len(pooled.labels)
        self._given.update({name: len(taken.labels) for name, taken in photos.items()})
        self.traffic.most_each = max(self._given.values())
        self.traffic.bytes_up += pooled.inputs.nbytes + pooled.labels.nbytes
        self._learner.learn(pooled)

    def parameters_for(self, participant: str) -> Vector:
        return self._learner.parameters

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

    def against(self) -> Against:
        return "nobody"


def _nothing_leaves(why: str, *not_protected: str) -> PrivacyStatement:
    """Return the statement of a line in which nobody else sees anything that depends on a participant's photos."""
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


OrderName = Literal["round-robin", "random", "asynchronous"]

LEAST_TOGETHER = 3
"""So many an encrypted sum has at least."""

_MOST_UPLOADS = 2**31  # a number of uploads that no study reaches
_FRACTION_BITS = 20  # of changes added up under encryption, unless shared noise needs its own


@dataclass(frozen=True)
class SelectiveLine:
    """Participants upload as `sharing` says.

    They come in `order`; asynchronously the fastest is `speed_ratio` times as fast as the slowest, and uploads that are
    more than `max_staleness` uploads late are refused. With `encrypted`, a scheme of `blindsight.sums`, the server is
    given only the sum of what all who are ready share in a turn. With a `budget`, an epsilon, nobody makes an upload
    that would make it spend more.
    """

    name: str
    sharing: Sharing
    download: float = 1.0
    order: OrderName = "round-robin"
    speed_ratio: float = 4.0
    max_staleness: int | None = None
    encrypted: str | None = None
    budget: float | None = None

    def __post_init__(self) -> None:
        if self.order not in get_args(OrderName):
            raise UnknownNameError("order", self.order, get_args(OrderName))
        if not 1 <= self.speed_ratio < math.inf:
            raise InputError(f"speed_ratio must be at least 1; got {self.speed_ratio}.")
        if self.encrypted is not None:
            check_hiding(self.encrypted)

    def begin(self, setting: Setting) -> "_SelectiveCourse":
        """Return the line at the end of day 0."""
        return _SelectiveCourse(self, setting)

    def terms(self, layout: ParameterLayout, setting: Setting) -> SelectiveTerms:
        """Return what the participants and the server agree on."""
        among = self.sharing.noise.among if isinstance(self.sharing.noise, ParticipantGaussian) else 1
        return SelectiveTerms.of(
            layout,
            run=self.name,
            participants=setting.participants,
            batch=setting.batch,
            download=self.download,
            max_staleness=self.max_staleness,
            together=1 if self.encrypted is None else max(LEAST_TOGETHER, among),
        )


class _MeteredServer(ParameterServer):
    """A server that counts what is downloaded from it."""

    traffic: Traffic

    def answer(self, request: bytes) -> bytes:
        answer = super().answer(request)
        self.traffic.bytes_down += len(answer)
        return answer


class _SelectiveCourse:
    def __init__(self, line: SelectiveLine, setting: Setting) -> None:
        self.traffic = Traffic()
        self._line, self._delta, self._source = line, setting.delta, setting.source
        noise = line.sharing.noise
        inside = noise if isinstance(noise, RecordGaussian) else None
        trainers = {name: setting.make_trainer(record_noise=inside) for name in setting.participants}
        first = next(iter(trainers.values()))
        self._terms = line.terms(first.layout, setting)
        self._server = _MeteredServer(self._terms, setting.initial)
        self._server.traffic = self.traffic
        self._parameters = setting.initial
        self._participants = self._join(trainers, setting)  # which refuses trainers that do not tell their epochs
        self._steps = 1 if inside is None else first.epochs
        self._order = self._ordered(setting.generator(len(trainers)))
        self._session = None if line.encrypted is None else self._opened(line.encrypted)
        self._turns: EncryptedTurns | None = None
        if self._session is not None:
            self._turns = EncryptedTurns(self._server, list(self._participants.values()), self._session)
        self._uploads: Counter[str] = Counter()
        self._longest = self._longest_upload()

    def _join(self, trainers: Mapping[str, Trainer], setting: Setting) -> dict[str, Participant]:
        """Return the participants, each with its budget if there is one."""
        sharing, budget = self._line.sharing, self._line.budget
        ledger = None if budget is None else Ledger()
        joined = {}
        for place, (name, trainer) in enumerate(trainers.items()):
            rng = setting.generator(place)
            joined[name] = Participant(
                name, self._terms, trainer, sharing, ledger=ledger, random_state=rng, source=setting.source
            )
            if ledger is not None and budget is not None:
                ledger.set_budget(
                    joined[name].scope,
                    unit=protected_unit(sharing),
                    neighbours=neighbouring(sharing),
                    epsilon=budget,
                    delta=setting.delta,
                )
        return joined

    def _ordered(self, rng: np.random.Generator) -> Order:
        if self._line.order == "random":
            return random_order(rng)
        if self._line.order == "asynchronous":
            speeds = rng.permutation(np.geomspace(1, self._line.speed_ratio, len(self._terms.participants)))
            named = zip(self._terms.participants, speeds.tolist(), strict=True)
            return asynchronous(dict(named), random_state=rng)
        return round_robin

    def _longest_upload(self) -> int:
        """Return how many bytes an upload takes, not encrypted, with as many values as may be sent, anywhere."""
        sharing, dimension = self._line.sharing, self._terms.dimension
        body = bytes(most_bytes(sharing.count(dimension), dimension, half=sharing.half))
        name = max(self._terms.participants, key=lambda name: len(name.encode()))
        return len(encode(Upload(self._terms.digest, name, _MOST_UPLOADS, _MOST_UPLOADS, body)))

    def _opened(self, scheme: str) -> Session:
        sharing, dimension = self._line.sharing, self._terms.dimension
        bits, noise = _FRACTION_BITS, sharing.noise
        if isinstance(noise, ParticipantGaussian) and noise.among > 1:
            bits = round(-math.log2(noise.grid(sharing.count(dimension)).step))
        return open_session(
            scheme,
            members=self._terms.participants,
            dimension=dimension,
            fraction_bits=bits,
            minimum=self._terms.together,
            minimum_per_position=1,  # no scheme withholds anything: all lead to the same parameters
            capacity=sharing.count(dimension),
            source=self._source,
        )

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            if len(taken.labels):
                self._participants[name].gather(taken.inputs, taken.labels)
        if self._turns is None:
            self._exchange()
        else:
            self._add_up(self._turns)
        self._parameters = self._server.parameters

    def _exchange(self) -> None:
        for exchange in play(self._server, list(self._participants.values()), self._order):
            if exchange.uploaded:
                self._count(exchange.participant, exchange.uploaded)

    def _add_up(self, turns: EncryptedTurns) -> None:
        while sum(participant.ready for participant in self._participants.values()) >= turns.needed:
            try:
                result = turns.turn()
            except TooFewError:
                return  # budgets ran out on the way
            for name in result.contributors:
                self._count(name, result.cost.sent(name))
                self.traffic.bytes_down += result.cost.received(name)

    def _count(self, name: str, sent: int) -> None:
        self._uploads[name] += 1
        self.traffic.uploads += 1
        self.traffic.bytes_up += sent
        self.traffic.most_each = max(self.traffic.most_each, self._uploads[name])
        self.traffic.bytes_allowed += self._longest

    def parameters_for(self, participant: str) -> Vector:
        return self._parameters

    def statement(self) -> PrivacyStatement:
        cost = compose_sharing(
            self._line.sharing,
            dimension=self._terms.dimension,
            uploads=max(1, self.traffic.most_each),
            delta=self._delta,
            steps=self._steps,
        )
        return sharing_statement(cost, session=self._session, source=self._source)

    def against(self) -> Against:
        return "nobody" if self.statement().guarantee == "none" else "everybody"


_DIGEST = bytes(32)


@dataclass(frozen=True)
class FederatedAveraging:
    """Participants upload all that changed after `period` batches each; with None, after all batches of a day.

    With `as_bytes_of`, the name of a line that is played before this one, those who have gathered most upload at the
    end of a day, as many as that line's bytes allow, with all batches shared out among them. `server_rate` multiplies
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
        if self.noise is not None and self.noise.among != 1:
            raise InputError(
                f"the server adds the noise of DP-FedAvg; got noise shared among {self.noise.among}. Use among=1."
            )
        if self.budget is not None and self.noise is None:
            raise InputError("nothing is proven without noise, so there is nothing to spend. Leave the budget out.")

    def begin(self, setting: Setting) -> "_AveragingCourse":
        """Return the line at the end of day 0."""
        if self.as_bytes_of is not None and self.as_bytes_of not in setting.courses:
            raise UnknownNameError("line to be played before", self.as_bytes_of, setting.courses)
        return _AveragingCourse(self, setting)


class _AveragingCourse:
    def __init__(self, line: FederatedAveraging, setting: Setting) -> None:
        self.traffic = Traffic()
        self._line, self._setting = line, setting
        self._parameters = setting.initial
        self._members = {name: _Member(name, place, setting) for place, name in enumerate(setting.participants)}
        self._ledger = Ledger()
        if line.budget is not None:
            limit = {"epsilon": line.budget, "delta": setting.delta}
            for name in self._members:
                self._ledger.set_budget(name, unit="person", neighbours="add/remove", **limit)

    def day(self, photos: Mapping[str, Photos]) -> None:
        for name, taken in photos.items():
            self._members[name].gathering.add(taken)
        if self._line.as_bytes_of is not None:
            self._upload_by_bytes(self._setting.courses[self._line.as_bytes_of].traffic)
        elif self._line.period is None:
            self._round(self._ready(1), max(member.gathering.batches for member in self._members.values()))
        else:
            while ready := self._ready(self._line.period):
                self._round(ready, self._line.period)

    def _ready(self, batches: int) -> list["_Member"]:
        """Return those who have photos for so many batches and budget left, who have most photos first."""
        ready = [
            member for member in self._members.values() if member.gathering.batches >= batches and not member.spent
        ]
        return sorted(ready, key=lambda member: -member.gathering.batches)

    def _upload_by_bytes(self, other: Traffic) -> None:
        """Play rounds of as many uploads as bring this line's bytes up to the other's, over all batches there are."""
        while ready := self._ready(1):
            body = _dense(self._parameters)
            cost = max(member.upload_bytes(body) for member in ready)
            allowed = other.bytes_up if self._line.noise is None else other.bytes_allowed
            uploads = (allowed - self.traffic.bytes_up) // cost
            if uploads < 1:
                return
            waiting = sum(member.gathering.batches for member in ready)
            self._round(ready[:uploads], math.ceil(waiting / uploads))

    def _round(self, members: Sequence["_Member"], batches: int) -> None:
        """Let members upload what they learn from up to so many batches, as their budgets allow; move the model."""
        changes: list[Vector] = []
        weights: list[int] = []
        body = _dense(self._parameters)  # a change is as long
        for member in members:
            if self._charge(member):
                weights.append(min(batches, member.gathering.batches))
                self.traffic.uploads += 1
                sent = member.upload_bytes(body)
                self.traffic.bytes_up += sent
                self.traffic.bytes_allowed += sent
                self.traffic.bytes_down += member.download_bytes(body)
                changes.append(member.change(self._parameters, weights[-1]))
                self.traffic.most_each = max(self.traffic.most_each, member.rounds)
        if changes:
            self._parameters = self._parameters + np.float32(self._line.server_rate) * self._average(changes, weights)

    def _charge(self, member: "_Member") -> bool:
        """Record what taking part costs; tell whether the budget allows it."""
        noise = self._line.noise
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
        noise = self._line.noise
        if noise is None:
            return np.average(changes, axis=0, weights=weights).astype(np.float32)
        total = np.sum([noise.shorten(change.astype(np.float64)) for change in changes], axis=0)
        mechanism = GaussianMechanism(sensitivity=noise.clip, sigma=noise.sigma)
        return (mechanism.release(total, self._setting.source) / len(changes)).astype(np.float32)

    def parameters_for(self, participant: str) -> Vector:
        return self._parameters

    def statement(self) -> PrivacyStatement:
        rounds = self.traffic.most_each
        noise, proven = self._line.noise, None
        if noise is not None:
            proven = compose([GaussianLoss(noise.noise_multiplier, count=max(rounds, 1))], delta=self._setting.delta)
        return _statement(rounds, noise, proven, self._setting)

    def against(self) -> Against:
        return "nobody" if self._line.noise is None else "everybody but the server"


class _Member:
    """One participant: what it has gathered, and whether its budget is spent."""

    def __init__(self, name: str, place: int, setting: Setting) -> None:
        self.name = name
        self.gathering = Gathering(setting.batch)
        self.rounds = 0
        self.spent = False
        self._trainer = setting.make_trainer(record_noise=None)
        self._rng = setting.generator(place)

    def change(self, parameters: Vector, steps: int) -> Vector:
        """Make local steps and return what they changed."""
        after = parameters
        for batch in self.gathering.take(steps):
            after = self._trainer.train(after, batch.inputs, batch.labels, int(self._rng.integers(2**63)))
        self.rounds += 1
        return after - parameters

    def upload_bytes(self, body: bytes) -> int:
        """Return the length of an upload with this body, in the messages of selective sharing."""
        return len(encode(Upload(_DIGEST, self.name, self.rounds + 1, self.rounds, body)))

    def download_bytes(self, body: bytes) -> int:
        """Return the length of an answer with this body."""
        return len(encode(Answer(_DIGEST, self.name, self.rounds, self.rounds, _DIGEST, body)))


def _dense(vector: Vector) -> bytes:
    """Return a whole vector as it is sent."""
    return encode_sparse(SparseUpdate(vector.size, np.arange(vector.size), vector))


def _statement(
    rounds: int, noise: ParticipantGaussian | None, proven: Composition | None, setting: Setting
) -> PrivacyStatement:
    mechanism = f"average of whole changes, in up to {number_of(rounds, 'round')} a participant"
    if noise is not None:
        mechanism += (
            f", each change shortened to a length of {noise.clip:g}; the server adds Gaussian noise of "
            f"{noise.noise_multiplier:.6g} times that to their sum"
        )
    return PrivacyStatement(
        guarantee="none" if proven is None else "differential privacy",
        mechanism=mechanism,
        unit="person",
        epsilon=math.inf if proven is None else proven.epsilon,
        delta=None if proven is None else proven.delta,
        neighbours=None if proven is None else "add/remove",
        accountant=None if proven is None else proven.accountant,
        randomness="none" if noise is None else randomness_of(setting.source),
        who_sees={
            "participant": "its own photos, and the model of every round it takes part in",
            "server": "every change of every participant, before any noise",
            "anyone with the model": "the parameters, which are made of all changes",
        },
        assumptions=()
        if proven is None
        else (
            "the server is trusted: it sees what noise is to hide, adds the noise and shows nobody anything without it",
            "when a participant takes part does not depend on what its photos show",
        ),
        not_protected=(
            "any change, from the server",
            "that a participant takes part, and how often",
            "what is true of photos in general, one participant's part in them or not",
        ),
    )
