"""Selective sharing as one line of the figure: participants and a parameter server that exchange bytes.

Figure 3 of PPDL (Bu 2019): everyone trains whenever a batch has gathered, and at the end of the day the server's
parameters go on to the next. So photos are scored with the server's parameters, even where a participant downloads only
a part of them (theta_d, `download`) to train on. Top-k with residuals, as in distributed training, is a sharing with
``select="largest", residual=True``.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from blindsight.crypto.wire import encode
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError, UnknownNameError
from blindsight.selective.accounting import compose_sharing, neighbouring, protected_unit
from blindsight.selective.disclosure import sharing_statement
from blindsight.selective.encrypted import EncryptedTurns, TooFewError, check_hiding
from blindsight.selective.layout import ParameterLayout
from blindsight.selective.messages import Upload
from blindsight.selective.noise import ParticipantGaussian, RecordGaussian
from blindsight.selective.orders import Order, asynchronous, play, random_order, round_robin
from blindsight.selective.participant import Participant
from blindsight.selective.protection import Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.sparsecodec import most_bytes
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.terms import SelectiveTerms
from blindsight.selective.timeline.line import Against, Photos, Setting, Traffic
from blindsight.selective.trainer import Trainer
from blindsight.statement import PrivacyStatement
from blindsight.sums import Session, open_session

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
