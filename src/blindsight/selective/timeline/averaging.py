"""Federated averaging as one line of the figure, with or without noise on the average.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from blindsight.crypto.wire import encode
from blindsight.dp.accounting import Composition, GaussianLoss, compose
from blindsight.dp.ledger import Ledger
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.errors import BudgetExceededError, InputError, UnknownNameError
from blindsight.selective.accounting import number_of
from blindsight.selective.messages import Answer, Upload
from blindsight.selective.noise import ParticipantGaussian
from blindsight.selective.sparsecodec import encode_sparse
from blindsight.selective.sparseupdate import SparseUpdate, Vector
from blindsight.selective.timeline.gathering import Gathering
from blindsight.selective.timeline.line import Against, Photos, Setting, Traffic
from blindsight.statement import PrivacyStatement, randomness_of

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
