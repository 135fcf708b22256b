"""Who downloads and uploads when: in turn, at random, or each at its own speed.

An *order* yields one move after the other, of whoever has enough photos, until nobody has; `play` carries them out. A
participant and the server exchange bytes and nothing else. In turn or at random (Shokri and Shmatikov 2015, section
5.4), a participant trains on what it has just downloaded. Asynchronously it downloads, trains for as long as it takes
it, and uploads when others have uploaded meanwhile: its download has become stale, and may be too old for the terms.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from blindsight.crypto.wire import decode
from blindsight.errors import BudgetExceededError, InputError, MessageError
from blindsight.rng import science
from blindsight.selective.messages import Receipt
from blindsight.selective.participant import Participant

Move = tuple[Participant, Literal["download", "upload"]]
Order = Callable[[Sequence[Participant]], Iterator[Move]]


class Door(Protocol):
    """A parameter server, here or elsewhere."""

    def answer(self, request: bytes) -> bytes:
        """Return the parameters asked for."""

    def receive(self, upload: bytes) -> bytes:
        """Add an upload and return its receipt."""


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


def play(server: Door, participants: Sequence[Participant], order: Order = round_robin) -> Iterator[Exchange]:
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
    """Let a participant download, and return how many bytes."""
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
