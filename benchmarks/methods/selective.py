"""Selective sharing: lines of a figure over days, epochs, initial models, and what sharing adds to a plain loop.

Noise with a proof is calibrated to an epsilon over all days at `DELTA`. Lines "at equal bytes" are played beside the
line whose bytes they may use, which is part of their time.
"""

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.methods.processes import Clock
from blindsight.errors import UnknownNameError
from blindsight.extras import Module, load_torch
from blindsight.learn.training import NetworkTrainer
from blindsight.papers.selective.days import MakeTrainer, Method, Photos, Schedule, Setting, train_initial
from blindsight.papers.selective.methods import (
    Centralised,
    FederatedAveraging,
    LocalOnly,
    NeverUpdated,
    NoisySums,
    SelectiveMethod,
)
from blindsight.papers.selective.noise import Laplace, PublishedLaplace, Selection, Sharing
from blindsight.papers.selective.protocol import ParameterServer, Participant, Upload, upload_bytes
from blindsight.papers.selective.study import Model, Optimiser, PhotoStudy, Training, proven_methods, trainer_maker

Curve = dict[str, NDArray[np.float64]]

DELTA = 1e-5
GAMMA = 0.1  # the paper's bound
PAPER_EPSILON = 1.0  # per parameter and upload
BATCH = 32
_REFERENCE = "whose bytes"
_HONEST = ("photo", "participant", "dp-fedavg", "dp-fedavg-bytes")


def days(given: PhotoStudy, *, seed: int, kind: str, **arguments: float) -> Curve:
    """Play one kind of line over all days; see `lines` for the arguments."""
    timeline = given.simulate(lines(given.schedule, kind, **arguments), delta=DELTA)
    line = timeline.methods[-1]
    return {
        "accuracy": np.array(line.accuracy),
        "uploads": np.array(line.uploads, dtype=np.float64),
        "bytes up": np.array(line.bytes_up, dtype=np.float64),
        "bytes down": np.array(line.bytes_down, dtype=np.float64),
        "epsilon": np.array([math.inf if line.epsilon is None else line.epsilon]),
    }


def lines(
    plan: Schedule,
    kind: str,
    *,
    share: float = 0.1,
    epsilon: float = PAPER_EPSILON,
    clip: float = 1.0,
    server_rate: float = 1.0,
    step: float = 1.0,
) -> Sequence[Method]:
    """Return the line of this kind last, after those it needs beside it.

    With `step`, a learning rate, the paper's noise is made for gradients before they are multiplied by it.
    """
    reference = SelectiveMethod(_REFERENCE, Sharing(share))
    if kind in _HONEST:
        honest = proven_methods(
            plan,
            Sharing(share),
            epsilon=epsilon,
            delta=DELTA,
            clip=clip,
            server_rate=server_rate,
            as_bytes_of=_REFERENCE,
        )
        line = honest[_HONEST.index(kind)]
        return [reference, line] if kind == "dp-fedavg-bytes" else [line]
    if kind == "masks":
        return [_added_up(plan, epsilon, clip)]
    known: dict[str, Sequence[Method]] = {
        "centralised": [Centralised()],
        "never": [NeverUpdated()],
        "local": [LocalOnly()],
        "largest": [SelectiveMethod(kind, Sharing(share))],
        "random": [SelectiveMethod(kind, Sharing(share, "random"))],
        "residuals": [SelectiveMethod(kind, Sharing(share, residual=True))],
        "published": [SelectiveMethod(kind, published(share, step))],
        "laplace": [SelectiveMethod(kind, laplace(share))],
        "fedavg": [FederatedAveraging(kind, server_rate=server_rate)],
        "fedavg-bytes": [reference, FederatedAveraging(kind, as_bytes_of=_REFERENCE, server_rate=server_rate)],
    }
    if kind not in known:
        raise UnknownNameError("line", kind, [*known, *_HONEST, "masks"])
    return known[kind]


def published(share: float, step: float = 1.0) -> Sharing:
    """Return the paper's sharing with noise."""
    return Sharing(share, "random", bound=GAMMA * step, noise=PublishedLaplace(PAPER_EPSILON))


def laplace(share: float) -> Sharing:
    """Return the same with changes that are cut before the noise, so that it is proven."""
    return Sharing(share, "random", bound=GAMMA, noise=Laplace(PAPER_EPSILON))


def _added_up(plan: Schedule, epsilon: float, clip: float) -> NoisySums:
    """Return the line of which the server sees sums only, in which all participants share the noise."""
    return NoisySums("masks", "masks", clip=clip, epsilon=epsilon, rounds=plan.turns(BATCH))


@dataclass(frozen=True)
class PublicPhotos:
    """Photos with their classes to learn from, and photos to be told apart."""

    training: Photos
    validation: NDArray[Any]
    classes: int


def initial_model(
    given: PublicPhotos, *, seed: int, model: Model, optimiser: Optimiser, learning_rate: float, epochs: int
) -> dict[str, NDArray[np.int64]]:
    """Return the classes that the trained model sees in the photos it has learned from, and in the others."""
    training = Training(
        model=model, optimiser=optimiser, learning_rate=learning_rate, initial_epochs=epochs, local_steps=1, decay=0.0
    )
    photos = given.training
    trainer = trainer_maker(training, photos.inputs, given.classes, seed)(record_noise=None)
    parameters = train_initial(trainer, photos, epochs=epochs, random_state=seed)
    told = {"training": photos.inputs, "validation": given.validation}
    return {name: trainer.scores(parameters, inputs).argmax(axis=1) for name, inputs in told.items()}


SHARES = (1.0, 0.5, 0.2, 0.1, 0.01)
_UNSHARED: Mapping[str, Method] = {"centralised": Centralised(), "alone": LocalOnly()}


@dataclass(frozen=True, eq=False)
class OwnPhotos:
    """What each participant has, the model they begin with, how often each photo is used, and photos to tell apart.

    `threshold` is what a change must reach, on these data, for the selection of that name.
    """

    participants: Mapping[str, Photos]
    make_trainer: MakeTrainer
    epochs: int
    threshold: float
    test: NDArray[Any]


def selective(given: OwnPhotos, *, seed: int, share: float, select: Selection, residual: bool) -> NDArray[np.int64]:
    """Share a part; answer with the classes of the test photos, one row for the model that all have."""
    least = given.threshold if select == "threshold" else None
    return _played(given, SelectiveMethod(select, Sharing(share, select, threshold=least, residual=residual)), seed)


def unshared(given: OwnPhotos, *, seed: int, line: str) -> NDArray[np.int64]:
    """Learn from all photos in one place, or everyone alone; one row for each model there is."""
    return _played(given, _UNSHARED[line], seed)


def _played(given: OwnPhotos, method: Method, seed: int) -> NDArray[np.int64]:
    trainer = given.make_trainer(record_noise=None)
    names = tuple(given.participants)
    run = method.begin(Setting(names, trainer.initial(), given.make_trainer, batch=32, delta=1e-5, seed=seed))
    rng = np.random.default_rng(seed)
    for _ in range(given.epochs):
        shuffled = {}
        for name, photos in given.participants.items():
            order = rng.permutation(len(photos.labels))
            shuffled[name] = Photos(photos.inputs[order], photos.labels[order])
        run.day(shuffled)
    every = [run.parameters_for(name) for name in names]
    models = {id(parameters): parameters for parameters in every}.values()  # those that are the same only once
    return np.stack([trainer.scores(model, given.test).argmax(axis=1) for model in models])


Answer = Mapping[str, NDArray[Any]]

RATE = 0.0625  # a power of two, so that sharing everything gives the plain loop's parameters bit for bit


@dataclass(frozen=True, eq=False)
class Steps:
    """A network, photos (n, height, width, 3) with their classes, and how many steps are timed at once."""

    network: Module
    photos: NDArray[np.uint8]
    labels: NDArray[np.int64]
    block: int

    @property
    def blocks(self) -> list[slice]:
        """The photos of each block of steps."""
        size = self.block * BATCH
        return [slice(start, start + size) for start in range(0, len(self.labels) - size + 1, size)]


def both(given: Steps, *, seed: int, share: float, half: bool = False) -> Answer:
    """Train the same network twice, block by block in turn; return CPU seconds, bytes and both results."""
    with _one_thread():
        plain = PlainLoop(given.network)
        shared = SharedLoop(given.network, Sharing(share, half=half), seed)
        seconds, served = [], []
        turns: list[tuple[str, PlainLoop | SharedLoop]] = [("plain", plain), ("shared", shared)]
        for photos in [given.blocks[0], *given.blocks]:  # the first to warm up
            before, clock = shared.server_seconds, Clock()
            for name, loop in turns:
                with clock(name):
                    loop.train(given.photos[photos], given.labels[photos])
            seconds.append((clock.seconds["plain"], clock.seconds["shared"]))
            served.append(shared.server_seconds - before)
            turns.reverse()
        return {
            "seconds": np.array(seconds[1:]),
            "served": np.array(served[1:]),
            "uploads": np.array(shared.uploads),
            "downloads": np.array(shared.downloads),
            "plain": plain.parameters(),
            "shared": shared.parameters(),
        }


def receive(given: Steps, *, seed: int, share: float) -> Answer:
    """Let a server receive uploads that were made before; return CPU and wall seconds of each."""
    with _one_thread():
        made = SharedLoop(given.network, Sharing(share), seed)
        made.train(given.photos, given.labels)
        server = ParameterServer(made.initial)
        seconds = []
        for upload in made.sent:
            cpu, wall = time.process_time(), time.perf_counter()
            server.receive(upload)
            seconds.append((time.process_time() - cpu, time.perf_counter() - wall))
        return {"receive": np.array(seconds), "plain": made.parameters(), "shared": server.parameters}


class PlainLoop:
    """Training as anybody writes it."""

    def __init__(self, network: Module) -> None:
        """Begin with a copy of the network."""
        self._torch = load_torch()
        self._network = copy.deepcopy(network).train()
        self._optimiser = self._torch.optim.SGD(self._network.parameters(), lr=RATE)

    def train(self, photos: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        """Make one step for each batch."""
        torch = self._torch
        for start in range(0, len(labels), BATCH):
            inputs = torch.tensor(photos[start : start + BATCH]).permute(0, 3, 1, 2).float() / 255
            truth = torch.tensor(labels[start : start + BATCH])
            self._optimiser.zero_grad()
            torch.nn.functional.cross_entropy(self._network(inputs), truth).backward()
            self._optimiser.step()

    def parameters(self) -> NDArray[np.float32]:
        """Return what was learned."""
        parts = [parameter.detach().numpy().ravel() for parameter in self._network.parameters()]
        return np.concatenate(parts)


class SharedLoop:
    """The same steps by one participant, which downloads everything and uploads a share after each, and a server."""

    def __init__(self, network: Module, sharing: Sharing, seed: int) -> None:
        """Begin with the network's parameters on the server."""
        trainer = NetworkTrainer(network, learning_rate=RATE)
        self.initial = trainer.initial()
        self.sent: list[Upload] = []
        self.downloads: list[int] = []
        self.server_seconds = 0.0
        self._server = ParameterServer(self.initial)
        self._participant = Participant("one", trainer, sharing, batch=BATCH, random_state=seed)

    @property
    def uploads(self) -> list[int]:
        """The bytes of every upload."""
        half = self._participant.sharing.half
        return [upload_bytes(upload.update, half=half) for upload in self.sent]

    def train(self, photos: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        """Download, train, upload and settle for each batch."""
        participant, server = self._participant, self._server
        participant.gather(photos, labels)
        while participant.ready:
            begun, down = time.process_time(), server.bytes_down
            answer = server.answer(participant.version)
            answered = time.process_time()
            participant.take(answer, server.version)
            upload = participant.train()
            sent = time.process_time()
            server.receive(upload)
            self.server_seconds += answered - begun + time.process_time() - sent
            participant.settle(added=True)
            self.downloads.append(server.bytes_down - down)
            self.sent.append(upload)

    def parameters(self) -> NDArray[np.float32]:
        """Return what the server learned."""
        return self._server.parameters


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = load_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
