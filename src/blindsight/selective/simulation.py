"""A run in one process: who downloads and uploads when, and turns of which the server sees the sum alone.

An *order* yields one move after the other, of those who have enough photos, until nobody has; `simulate` carries
them out. A participant and the server exchange bytes and nothing else. In turn or at random (Shokri and Shmatikov
2015, section 5.4), a participant trains on what it has just downloaded. Asynchronously it downloads, trains for as
long as it takes it, and uploads when others have uploaded meanwhile: its download has become stale, and may be too old
for the terms.

*`EncryptedTurns`*: what participants share goes into a session of `blindsight.sums` and nowhere else; the server is
given the opened sum, one vector. What the session hides, from whom, is in its statement. Neither PPDL nor DPHE has this
combination: PPDL's server reads every upload, DPHE's owners add no noise. It also allows *shared* noise: each of n
participants adds a part, and only the sum of at least n uploads, the one thing that is opened, carries all of it, also
for one of them who takes its own part off again. So with shared noise a turn of fewer is refused, and so are
participants who do not all share alike (a value would lack the noise of those who send nothing there, or add less), a
session that hides nothing, or one that rounds more coarsely than the noise (its parts would not add up to the noise
that was accounted for).

Every scheme adds the same integers, hence leads to the same parameters bit for bit unless it withholds some (`dphe` and
`block-dphe`, values that too few send). The session rounds to a fixed point
and cuts what is beyond its range; participants with residuals remember both. The server's counters count the turns
whose sum changed a parameter.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from blindsight.crypto.wire import decode, encode
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError
from blindsight.rng import science
from blindsight.selective.codec import SparseUpdate, Vector, encode_sparse
from blindsight.selective.participant import Participant
from blindsight.selective.protection import ParticipantGaussian, Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.terms import Receipt, Total
from blindsight.sums import RoundResult, Session

Move = tuple[Participant, Literal["download", "upload"]]
Order = Callable[[Sequence[Participant]], Iterator[Move]]


class Door(Protocol):
    """A parameter server, here or elsewhere."""

    def answer(self, request: bytes) -> bytes: ...

    def receive(self, upload: bytes) -> bytes: ...


@dataclass(frozen=True)
class Exchange:
    """One upload: its bytes, those of the downloads before it, how many uploads came in between, why it was refused.

    `staleness` is None where no receipt tells it.
    """

    participant: str
    uploaded: int
    downloaded: int
    staleness: int | None
    refused: str | None


def round_robin(participants: Sequence[Participant]) -> Iterator[Move]:
    """One after the other, always in the same order."""
    while any(participant.ready for participant in participants):
        for participant in participants:
            if participant.ready:
                yield participant, "download"
                yield participant, "upload"


def random_order(random_state: int | np.random.Generator | None = None) -> Order:
    """Return the order in which any of those who are ready may be next."""
    rng = science(random_state)

    def order(participants: Sequence[Participant]) -> Iterator[Move]:
        while ready := [participant for participant in participants if participant.ready]:
            participant = ready[int(rng.integers(len(ready)))]
            yield participant, "download"
            yield participant, "upload"

    return order


def asynchronous(
    speeds: Mapping[str, float], *, spread: float = 0.1, random_state: int | np.random.Generator | None = None
) -> Order:
    """Return the order in which all train at once: participant i, on average, ``speeds[i]`` batches per unit of time.

    The time for a batch varies by the fraction `spread` around its mean, evenly.
    """
    if not all(0 < speed < np.inf for speed in speeds.values()) or not 0 <= spread < 1:
        raise InputError("speeds must be positive and finite, and spread in [0, 1).")
    rng = science(random_state)

    def order(participants: Sequence[Participant]) -> Iterator[Move]:
        if missing := [participant.name for participant in participants if participant.name not in speeds]:
            raise InputError(f"no speed was given for {', '.join(missing)}.")
        training: list[tuple[float, int]] = []  # when each will be done, and who

        def begin(now: float, place: int) -> None:
            needed = rng.uniform(1 - spread, 1 + spread) / speeds[participants[place].name]
            heapq.heappush(training, (now + needed, place))

        for place, participant in enumerate(participants):
            if participant.ready:
                yield participant, "download"
                begin(0.0, place)
        while training:
            now, place = heapq.heappop(training)
            yield participants[place], "upload"
            if participants[place].ready:
                yield participants[place], "download"
                begin(now, place)

    return order


def simulate(server: Door, participants: Sequence[Participant], order: Order = round_robin) -> Iterator[Exchange]:
    """Let the participants train on what they have gathered, and yield every upload as it was made.

    A refused upload is withdrawn. One whose receipt is damaged stays under way, and a download follows at once, which
    tells what became of it. A participant whose budget is spent stops; the others go on. If the server cannot store an
    upload, its `StorageError` is passed on and the upload stays under way: `resend` or `withdraw` it.
    """
    downloaded = dict.fromkeys((participant.name for participant in participants), 0)
    for participant, move in order(participants):
        if move == "download":
            downloaded[participant.name] += _download(server, participant)
        else:
            yield _upload(server, participant, downloaded[participant.name])
            downloaded[participant.name] = 0


def _download(server: Door, participant: Participant) -> int:
    answer = server.answer(participant.request())
    participant.take(answer)
    return len(answer)


def _upload(server: Door, participant: Participant, downloaded: int) -> Exchange:
    try:
        upload = participant.train()
    except BudgetExceededError as error:
        return Exchange(participant.name, 0, downloaded, None, str(error))
    try:
        receipt = server.receive(upload)
    except MessageError as error:
        participant.withdraw()
        return Exchange(participant.name, len(upload), downloaded, None, str(error))
    try:
        participant.settle(receipt)
    except MessageError:
        downloaded += _download(server, participant)
        return Exchange(participant.name, len(upload), downloaded, None, None)
    staleness = decode(receipt, Receipt).version - 1 - participant.version
    return Exchange(participant.name, len(upload), downloaded, staleness, None)


class TooFewError(PrivacyError):
    """Fewer participants have enough photos and budget than a sum needs; nothing was opened."""


class EncryptedTurns:
    """A server, the participants of its run, and the session that adds up what they share."""

    def __init__(self, server: ParameterServer, participants: Sequence[Participant], session: Session) -> None:
        """Check that all are of one run, and that the session protects what is shared."""
        self._server, self._participants, self._session = server, tuple(participants), session
        self._last = server.turn
        terms = server.terms
        if any(participant.terms != terms for participant in participants):
            raise InputError("all participants must be of the server's run.")
        names = {participant.name for participant in participants}
        if not names <= set(session.terms.members) or session.terms.dimension != terms.dimension:
            raise InputError("the session must add vectors of the run's dimension, for all its participants.")
        if terms.together < 2 or session.terms.minimum < terms.together:
            raise PrivacyError(
                f"by the terms sums of {terms.together} uploads may be opened, in the session sums of "
                f"{session.terms.minimum}. Agree on together >= 2, and on a minimum of at least as many."
            )
        for participant in participants:
            if (shared := participant.sharing.shared) is not None:
                self._check_shared_noise(shared, participant.sharing)
        self.needed = session.needed
        self.limit = float(session.terms.values(np.array(session.terms.max_integer)))

    def _check_shared_noise(self, noise: ParticipantGaussian, sharing: Sharing) -> None:
        if others := [other.name for other in self._participants if other.sharing != sharing]:
            raise PrivacyError(
                "noise that is shared adds up only if all participants share alike: the same places, clip and noise; "
                f"{', '.join(others)} would share in another way."
            )

        if self._session.scheme == "plain":
            raise PrivacyError("noise that is shared protects sums alone, and a plain session shows every upload.")
        terms = self._session.terms
        step = noise.grid(sharing.count(terms.dimension)).step
        most = 2**24 * step  # in absolute value, of any one noisy number
        if 2.0**-terms.fraction_bits > step or float(terms.values(np.array(terms.max_integer))) < most:
            raise InputError(
                f"noise that is shared needs a session that adds multiples of {step:g} up to {most:g} exactly. Choose "
                f"fraction_bits={round(-np.log2(step))} and wide enough slots."
            )

    def turn(self) -> RoundResult:
        """Let all who are ready download, train and share; add the sum to the server's parameters.

        With fewer than the session needs it raises `TooFewError`, before anyone trains unless budgets run out on the
        way. If the session fails, every contribution is withdrawn and the parameters stay as they were.
        """
        ready = [participant for participant in self._participants if participant.ready]
        self._check_enough(len(ready))
        self._last += 1
        shared: dict[str, SparseUpdate] = {}
        try:
            for participant in ready:
                self._contribute(participant, shared)
            self._check_enough(len(shared))
            result = self._session.round({name: self._vector(update) for name, update in shared.items()}, self._last)
            self._server.receive_total(self._total(result))
        except BaseException:
            for participant in ready:
                participant.withdraw()
            raise
        for participant in ready:
            if participant.name in result.contributors:
                participant.entered(self._arrived(shared[participant.name], result))
            else:
                participant.withdraw()
        return result

    def _check_enough(self, count: int) -> None:
        if count < self.needed:
            raise TooFewError(f"{count} participants have enough photos and budget; a sum needs {self.needed}.")

    def _contribute(self, participant: Participant, shared: dict[str, SparseUpdate]) -> None:
        participant.take(self._server.answer(participant.request()))
        try:
            shared[participant.name] = participant.contribute(self._last)
        except BudgetExceededError:
            return  # it has stopped; the others go on while they are enough

    def _vector(self, update: SparseUpdate) -> Vector:
        return np.clip(update.dense(), -self.limit, self.limit)

    def _total(self, result: RoundResult) -> bytes:
        places = np.flatnonzero(result.total)
        update = SparseUpdate(result.total.size, places, result.values[places].astype(np.float32))
        return encode(Total(self._server.terms.digest, result.round, result.contributors, encode_sparse(update)))

    def _arrived(self, update: SparseUpdate, result: RoundResult) -> SparseUpdate:
        """Return what of an update is in the sum: rounded, cut, and nothing where the sum was withheld."""
        terms = self._session.terms
        vector = terms.values(terms.integers(self._vector(update))).astype(np.float32)
        places = np.setdiff1d(update.indices, result.withheld)
        return SparseUpdate(update.dimension, places, vector[places])
