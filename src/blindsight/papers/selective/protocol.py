"""PPDL's parameter server, its participants and the orders in which they come, in one process.

M. Bu, "Privacy Preserving Deep Learning for Image Classification" (2019), section 6 and Figure 3, after R. Shokri and
V. Shmatikov, "Privacy-Preserving Deep Learning", CCS 2015, section 5::

    server = ParameterServer(trainer.initial())
    ann = Participant("ann", trainer, Sharing(0.1, select="largest", residual=True), batch=32)
    ann.gather(photos, labels)
    for exchange in simulate(server, [ann, ...], round_robin):
        ...

| Table 3 of Bu | here |
| --- | --- |
| alpha, the learning rate | the trainer's |
| theta_u, gamma | `Sharing.share`, `Sharing.bound` |
| theta_d, fraction of parameters to download | `ParameterServer.download` |
| batch size, the photos that trigger local training | `Participant.batch` |
| w_global, stat (Shokri and Shmatikov) | `ParameterServer.parameters`, `ParameterServer.counters` |

*Server.* Upload: w += dw, stat += 1; download: the fraction theta_d of the parameters with the largest stat. Neither
paper says what a participant begins with: here its first download holds all parameters. The server sees every upload
with its author.

*Participant.* When enough photos have gathered it trains, and uploads what `protect` makes of the change. With
`residual` (error feedback), all that was not sent is added to the next change; without, it stays in the participant's
own copy until a download overwrites it, as in the paper. A ledger records the cost of a batch before it is trained on;
when the budget is spent, training stops.

*What training changed* (`change_between`). The server adds in float32. The rounded difference of two float32 numbers,
added to the first, can miss the second: therefore what is sent is corrected where a neighbour of it hits. The numbers
that hit lie in an interval around the exact difference, so if there is one, it is the rounded difference or one of its
two neighbours. After one step of gradient descent, after = fl(before - step), there always is one: -step. Training that
rounds less often has results which no float32 number leads to, at parameters that change their sign or lose more than
half of their size; there the server's parameter differs from the trained one by about half a unit in the last place of
the change. So with one participant that shares and downloads everything, unbounded and without noise, the server's
parameters are those of plain training bit for bit.

*A hostile server* chooses the parameters it hands out. Those beyond `LARGEST_PARAMETER` are refused as they arrive, and
under noise no photo makes training fail: with noise per record one that is not finite counts as zero
(`learn.training`), with any other noise a training that diverges counts as no change, and what is uploaded is noise
alone. Without noise nothing is promised, and training that diverges is an error.

*Bytes.* An upload is its values, the gaps between their places compressed by zlib, and a header (`upload_bytes`). On
random places zlib takes 1 to 2% more than an upload of the best code.
"""

import heapq
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError
from blindsight.learn.modules import ParameterLayout, Vector
from blindsight.learn.protection import RecordGaussian, check_number, check_whole
from blindsight.learn.training import DivergedError, UnknownClassError, check_labels, check_photos
from blindsight.papers.selective.cost import upload_loss
from blindsight.papers.selective.noise import (
    Sharing,
    SparseUpdate,
    as_half,
    every_place,
    protect,
    remainder,
    select_largest,
)
from blindsight.rng import ByteSource, science, system_bytes

LARGEST_PARAMETER = 2.0**20
"""The largest magnitude of a parameter that a server hands out and a participant accepts.

No network that learns comes near it; near the end of float32 a server could choose weights that fail on some photos.
"""

UPLOAD_HEADER, DOWNLOAD_HEADER = 156, 197
"""Bytes of a message besides its values and places: names, numbers, and digests of the run and of the last upload."""


# --- bytes ---


def upload_bytes(update: SparseUpdate, *, half: bool = False) -> int:
    """Return the bytes of an upload: values, gaps between places (of present or absent ones, the fewer), header.

    >>> places = np.arange(0, 5120, 10)
    >>> upload_bytes(SparseUpdate(5120, places, np.ones(512, dtype=np.float32))) - UPLOAD_HEADER < 512 * 4 + 20
    True
    """
    return UPLOAD_HEADER + _body_bytes(update, half)


def download_bytes(update: SparseUpdate, *, half: bool = False) -> int:
    """Return the bytes of a download."""
    return DOWNLOAD_HEADER + _body_bytes(update, half)


def usual_upload(count: int, dimension: int, *, half: bool = False) -> int:
    """Return the bytes of an upload of `count` values at random places, which compress least: nothing of any photo."""
    places = np.sort(np.random.default_rng(0).choice(dimension, size=count, replace=False))
    return upload_bytes(SparseUpdate(dimension, places, np.zeros(count, dtype=np.float32)), half=half)


def _body_bytes(update: SparseUpdate, half: bool) -> int:
    count, dimension = update.indices.size, update.dimension
    places = update.indices
    if 2 * count > dimension:
        absent = np.ones(dimension, dtype=np.bool_)
        absent[places] = False
        places = np.flatnonzero(absent)
    return (2 if half else 4) * count + (len(zlib.compress(_gaps(places), 9)) if places.size else 0)


def _gaps(places: NDArray[np.int64]) -> bytes:
    """Return the gaps between places, a byte each; 255 stands for 255 and what the next byte adds."""
    gaps = np.diff(places, prepend=-1) - 1
    ends = np.cumsum(gaps // 255 + 1)
    data = np.full(int(ends[-1]), 255, dtype=np.uint8)
    data[ends - 1] = gaps % 255
    return data.tobytes()


# --- the server ---


@dataclass(frozen=True, eq=False)
class Upload:
    """What a participant adds after training on the parameters of version `base`."""

    participant: str
    base: int
    update: SparseUpdate


class ParameterServer:
    """The server: it adds up uploads and hands out the parameters that were updated most.

    `max_staleness` is how many uploads may have come since the parameters that an upload builds on (None: any number).
    With `half` parameters are handed out rounded to float16. `refusals` counts what was refused, by reason.
    """

    def __init__(
        self,
        initial: Vector,
        *,
        download: float = 1.0,
        half: bool = False,
        max_staleness: int | None = None,
        record: Callable[[Upload], object] = lambda upload: None,
    ) -> None:
        fits = initial.ndim == 1 and initial.dtype == np.float32
        if not fits or not (np.abs(initial) <= LARGEST_PARAMETER).all():
            raise InputError(
                f"the initial parameters must be a row of finite float32 of at most {LARGEST_PARAMETER:,.0f}; got "
                f"{initial.dtype} of shape {initial.shape}, or larger ones."
            )
        check_number("download", download)
        if not 0 < download <= 1:
            raise InputError(f"download must be in (0, 1]; got {download}.")
        if max_staleness is not None:
            check_whole("max_staleness", max_staleness, 0)
        self.parameters = initial.copy()
        self.counters = np.zeros(initial.size, dtype=np.int64)
        self.version = 0
        self.download, self.half, self.max_staleness = download, half, max_staleness
        self.refusals: Counter[str] = Counter()
        self.bytes_down = 0
        self._record = record

    def answer(self, version: int = -1) -> SparseUpdate:
        """Return the most updated parameters; all to a participant that has none yet (version -1)."""
        dimension = self.parameters.size
        count = dimension if version < 0 else max(1, math.floor(self.download * dimension + 1e-9))
        if count == dimension:
            places, values = every_place(dimension), self.parameters.copy()
        else:
            places = select_largest(self.counters.astype(np.float64), count)
            values = self.parameters[places]
        news = SparseUpdate(dimension, places, as_half(values) if self.half else values)
        self.bytes_down += download_bytes(news, half=self.half)
        return news

    def receive(self, upload: Upload) -> None:
        """Add an upload. One that is late, not finite or makes parameters too large is refused and changes nothing."""
        self._record(upload)
        age = self.version - upload.base
        if self.max_staleness is not None and age > self.max_staleness:
            self.refusals["late"] += 1
            raise MessageError(
                f"the upload of {upload.participant!r} builds on parameters {age} uploads old, at most "
                f"{self.max_staleness} are accepted. Download and train again."
            )
        where = upload.update.where
        with np.errstate(over="ignore", invalid="ignore"):
            sums = self.parameters[where] + upload.update.values
        if not (np.abs(sums) <= LARGEST_PARAMETER).all():
            self.refusals["not finite"] += 1
            raise MessageError(
                f"the upload of {upload.participant!r} makes parameters larger than {LARGEST_PARAMETER:,.0f}."
            )
        self._add(upload.update, sums)
        self.version += 1

    def _add(self, update: SparseUpdate, sums: Vector) -> None:
        self.parameters[update.where] = sums
        self.counters[update.where] += 1


# --- a participant ---


class Trainer(Protocol):
    """The local training of one participant; a network's is `learn.training.NetworkTrainer`."""

    @property
    def layout(self) -> ParameterLayout:
        """Which parameters the vectors hold."""

    @property
    def epochs(self) -> int:
        """In how many steps of one training each photo takes part."""

    @property
    def record_noise(self) -> RecordGaussian | None:
        """The noise that is added inside training; None if there is none."""

    def initial(self) -> Vector: ...

    def check(self, inputs: NDArray[Any], labels: NDArray[np.int64]) -> None:
        """Refuse photos that the model cannot take and classes that it does not have: called as they are gathered."""

    def train(self, parameters: Vector, inputs: NDArray[Any], labels: NDArray[Any], seed: int) -> Vector:
        """Return the parameters after training on these photos, a function of the arguments and its own memory.

        With `record_noise` nothing about a photo may make it fail: one whose gradient is not finite counts as zero.
        """

    def scores(self, parameters: Vector, inputs: NDArray[Any]) -> NDArray[Any]:
        """Return a score for each photo and class, (n, classes)."""


def change_between(before: Vector, after: Vector) -> Vector:
    """Return the change that, added to `before` in float32, gives `after` bit for bit wherever there is such a number.

    >>> before, after = np.float32([0.1, -1.0]), np.float32([0.1, 0.5])
    >>> change_between(before, after).tolist()
    [0.0, 1.5]
    """
    with np.errstate(over="ignore"):
        change = after - before
        missed = np.flatnonzero(before + change != after)
        rounded = change[missed]
        for toward in (np.inf, -np.inf):
            neighbour = np.nextafter(rounded, np.float32(toward))
            hits = before[missed] + neighbour == after[missed]
            change[missed[hits]] = neighbour[hits]
    zeros = np.flatnonzero(change == 0)
    change[zeros] = np.copysign(change[zeros], after[zeros])  # -0.0 + 0.0 would be 0.0
    return change


class Participant:
    """One participant: its photos, its copy of the model, and what it held back.

    `ledger` is charged under `scope` for each upload or, with noise per record, once for all: each photo is in one
    batch only (parallel composition).
    """

    def __init__(
        self,
        name: str,
        trainer: Trainer,
        sharing: Sharing,
        *,
        batch: int = 32,
        ledger: Ledger | None = None,
        random_state: int | np.random.Generator | None = None,
        source: ByteSource = system_bytes,
        scope: str | None = None,
    ) -> None:
        check_whole("batch", batch, 1)
        if isinstance(sharing.noise, RecordGaussian):
            if getattr(trainer, "record_noise", None) != sharing.noise:
                raise PrivacyError(
                    "noise per record is added inside training; this trainer adds none, or another. Give it the same."
                )
            if not isinstance(getattr(trainer, "epochs", None), int):
                raise PrivacyError(
                    "noise per record is counted by how often a training uses a photo, which this trainer does not "
                    "tell. Give it `epochs`, a whole number."
                )
        self.name, self.sharing, self.batch = name, sharing, batch
        self.scope = name if scope is None else scope
        self.version = -1  # of the server's parameters that were downloaded last
        self.spent = False  # whether the ledger allowed no further upload
        self.residual: Vector | None = None
        self._trainer, self._ledger, self._source = trainer, ledger, source
        self._rng = science(random_state)
        steps = trainer.epochs if isinstance(sharing.noise, RecordGaussian) else 1
        self._loss = upload_loss(sharing, dimension=trainer.layout.dimension, steps=steps)
        if self._loss is None and ledger is not None:
            raise PrivacyError(
                "nothing is proven of what is shared this way, so a ledger cannot count it. Use Gaussian noise, or no "
                "ledger."
            )
        self._local: Vector | None = None
        self._inputs: NDArray[Any] | None = None
        self._labels = np.zeros(0, dtype=np.int64)
        self._sent: tuple[Vector, SparseUpdate] | None = None  # what there was to send, and what of it was
        self._charged = False
        self._uploads = 0

    @property
    def parameters(self) -> Vector:
        return self._downloaded().copy()

    @property
    def waiting(self) -> int:
        """The number of photos that were not trained on yet."""
        return len(self._labels)

    @property
    def ready(self) -> bool:
        """Whether it can train now: enough photos, and budget left."""
        return self.waiting >= self.batch and not self.spent

    def gather(self, inputs: ArrayLike, labels: ArrayLike) -> None:
        """Take in new photos and their classes, counted from 0; each is trained on once, in the order of arrival."""
        rows = check_photos(inputs, None if self._inputs is None else self._inputs.shape[1:])
        truth = check_labels(labels, len(rows))
        self._trainer.check(rows, truth)
        self._inputs = rows.copy() if self._inputs is None else np.concatenate([self._inputs, rows])
        self._labels = np.concatenate([self._labels, truth])

    def take(self, news: SparseUpdate, version: int) -> None:
        """Overwrite its own parameters by the downloaded ones."""
        if news.values.size and not np.abs(news.values).max() <= LARGEST_PARAMETER:
            raise MessageError(f"the answer holds parameters larger than {LARGEST_PARAMETER:,.0f}; none is accepted.")
        if self._local is None and news.indices.size < news.dimension:
            raise MessageError("the first answer must hold all parameters.")
        if news.indices.size == news.dimension:
            local = news.values.copy()
        else:
            local = self._downloaded().copy()
            local[news.indices] = news.values
        self._local, self.version = local, version

    def train(self) -> Upload:
        """Train on a batch of gathered photos and return the upload; `BudgetExceededError` stops all training."""
        before = self._downloaded()
        if self.spent:
            raise BudgetExceededError(f"the budget of {self.scope!r} is spent: it trains no more.")
        if self.waiting < self.batch or self._inputs is None:
            raise InputError(f"{self.name!r} has gathered {self.waiting} photos; it trains on {self.batch}.")
        self._charge()
        after = self._trained(before, self._inputs[: self.batch], self._labels[: self.batch])
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = after - before
            if self.residual is not None:
                wanted += self.residual
        if self.sharing.noise is not None:
            np.nan_to_num(wanted, copy=False)
        update = protect(wanted, self.sharing, rng=self._rng, source=self._source)
        if self.residual is None and not self._noise_outside and not self.sharing.half:
            places = update.where
            wanted[places] = change_between(before[places], after[places])
            update.values[:] = self.sharing.cut(wanted[places])
        self._inputs, self._labels = self._inputs[self.batch :], self._labels[self.batch :]
        self._local, self._sent, self._charged = after, (wanted, update), True
        return Upload(self.name, self.version, update)

    def settle(self, *, added: bool) -> None:
        """Remember, with residuals, what of the last upload was not added; all of it if it was refused."""
        if self._sent is None:
            raise InputError(f"no upload of {self.name!r} is under way.")
        wanted, update = self._sent
        if self.sharing.residual:
            self.residual = remainder(wanted, update, self.sharing) if added else wanted
        self._uploads += added
        self._sent = None

    def _trained(self, before: Vector, inputs: NDArray[Any], labels: NDArray[np.int64]) -> Vector:
        shown = before.view()
        shown.flags.writeable = False
        try:
            after = self._trainer.train(shown, inputs, labels, int(self._rng.integers(2**63)))
        except (DivergedError, UnknownClassError):
            if not self._noise_outside:
                raise
            return before
        if after.shape != before.shape or after.dtype != np.float32:
            raise InputError(f"a trainer returns {before.size} float32 parameters; got {after.dtype} {after.shape}.")
        if np.isfinite(after).all():
            return after
        if self._noise_outside:
            return before
        raise DivergedError(f"the training of {self.name!r} diverged. Lower the learning rate; nothing was sent.")

    @property
    def _noise_outside(self) -> bool:
        """Whether the promise is about what training returns, so that its failure would tell what noise is to hide."""
        return self.sharing.noise is not None and not isinstance(self.sharing.noise, RecordGaussian)

    def _charge(self) -> None:
        """Record what the upload costs before anything is done for it; a batch whose training failed, once more."""
        unit, charged, self._charged = self.sharing.unit, self._charged, False
        if self._ledger is None or self._loss is None or (unit == "record" and charged):
            return
        try:
            self._ledger.spend(
                self._loss,
                scope=self.scope,
                unit=unit,
                neighbours=self.sharing.neighbours,
                mechanism=str(self.sharing.noise),
                purpose=f"upload {self._uploads + 1}",
            )
        except BudgetExceededError:
            self.spent = True
            raise

    def _downloaded(self) -> Vector:
        if self._local is None:
            raise InputError(f"{self.name!r} has no parameters yet. Let it take an answer of the server first.")
        return self._local


# --- who downloads and uploads when ---

Move = tuple[Participant, Literal["download", "upload"]]
Order = Callable[[Sequence[Participant]], Iterator[Move]]


@dataclass(frozen=True)
class Exchange:
    """One upload: its bytes, how many uploads came since its download, and why it was refused.

    `uploaded` is 0 and `staleness` None of one that was never made or added.
    """

    participant: str
    uploaded: int
    staleness: int | None
    refused: str | None


def round_robin(participants: Sequence[Participant]) -> Iterator[Move]:
    """One after the other, always in the same order (Shokri and Shmatikov, section 5.4)."""
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

    Others upload while one trains: its download has become stale, and may be too old for the server. The time for a
    batch varies by the fraction `spread` around its mean, evenly.
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


def simulate(
    server: ParameterServer, participants: Sequence[Participant], order: Order = round_robin
) -> Iterator[Exchange]:
    """Let the participants train on what they have gathered, and yield every upload as it was made.

    A participant whose budget is spent stops; the others go on.
    """
    for participant, move in order(participants):
        if move == "download":
            participant.take(server.answer(participant.version), server.version)
        else:
            yield _uploaded(server, participant)


def _uploaded(server: ParameterServer, participant: Participant) -> Exchange:
    try:
        upload = participant.train()
    except BudgetExceededError as error:
        return Exchange(participant.name, 0, None, str(error))
    size = upload_bytes(upload.update, half=participant.sharing.half)
    try:
        server.receive(upload)
    except MessageError as error:
        participant.settle(added=False)
        return Exchange(participant.name, size, None, str(error))
    participant.settle(added=True)
    return Exchange(participant.name, size, server.version - 1 - upload.base, None)
