"""What sharing adds to training: the same steps by a plain torch loop and by a participant and a server, in turn."""

import copy
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.extras import Module, load_torch
from blindsight.selective import ParameterServer, Participant, SelectiveTerms, Sharing
from blindsight.selective.trainers import NetworkTrainer

Answer = Mapping[str, NDArray[Any]]

BATCH = 32
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


def both(given: Steps, *, seed: int, share: float, half: bool = False, journal: bool = False) -> Answer:
    """Train the same network twice, block by block in turn; return CPU seconds, bytes and both results."""
    with _one_thread(), TemporaryDirectory() as folder:
        plain = PlainLoop(given.network)
        shared = SharedLoop(
            given.network, Sharing(share, half=half), Path(folder) / "server" if journal else None, seed
        )
        seconds, served = [], []
        for number, photos in enumerate([given.blocks[0], *given.blocks]):  # the first to warm up
            before = shared.server_seconds
            pair = [_timed(loop, given.photos[photos], given.labels[photos]) for loop in _turns(plain, shared, number)]
            seconds.append(pair if number % 2 == 0 else pair[::-1])
            served.append(shared.server_seconds - before)
        return {
            "seconds": np.array(seconds[1:]),
            "served": np.array(served[1:]),
            "uploads": np.array(shared.uploads),
            "downloads": np.array(shared.downloads),
            "plain": plain.parameters(),
            "shared": shared.close(),
        }


def receive(given: Steps, *, seed: int, share: float, journal: bool) -> Answer:
    """Let a server receive uploads that were made before; return CPU and wall seconds of each."""
    with _one_thread(), TemporaryDirectory() as folder:
        made = SharedLoop(given.network, Sharing(share), None, seed)
        made.train(given.photos, given.labels)
        server = ParameterServer(made.terms, made.initial, folder=Path(folder) / "server" if journal else None)
        seconds = []
        for upload in made.sent:
            cpu, wall = time.process_time(), time.perf_counter()
            server.receive(upload)
            seconds.append((time.process_time() - cpu, time.perf_counter() - wall))
        parameters = server.parameters
        server.close()
        return {"receive": np.array(seconds), "plain": made.close(), "shared": parameters}


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

    def __init__(self, network: Module, sharing: Sharing, folder: Path | None, seed: int) -> None:
        """Begin with the network's parameters on the server, kept in the folder if there is one."""
        trainer = NetworkTrainer(network, learning_rate=RATE)
        self.terms = SelectiveTerms.of(trainer.layout, run="cost", participants=("one",), batch=BATCH)
        self.initial = trainer.initial()
        self.sent: list[bytes] = []
        self.downloads: list[int] = []
        self.server_seconds = 0.0
        self._server = ParameterServer(self.terms, self.initial, folder=folder)
        self._participant = Participant("one", self.terms, trainer, sharing, random_state=seed)

    @property
    def uploads(self) -> list[int]:
        """The bytes of every upload."""
        return [len(upload) for upload in self.sent]

    def train(self, photos: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
        """Download, train, upload and settle for each batch."""
        participant, server = self._participant, self._server
        participant.gather(photos, labels)
        while participant.ready:
            request = participant.request()
            begun = time.process_time()
            answer = server.answer(request)
            answered = time.process_time()
            participant.take(answer)
            upload = participant.train()
            sent = time.process_time()
            receipt = server.receive(upload)
            self.server_seconds += answered - begun + time.process_time() - sent
            participant.settle(receipt)
            self.downloads.append(len(answer))
            self.sent.append(upload)

    def close(self) -> NDArray[np.float32]:
        """Return what the server learned, and let its folder go."""
        parameters = self._server.parameters
        self._server.close()
        return parameters


def _turns(plain: PlainLoop, shared: SharedLoop, number: int) -> tuple[PlainLoop | SharedLoop, ...]:
    """Return who is timed first and second: they take turns."""
    return (plain, shared) if number % 2 == 0 else (shared, plain)


def _timed(loop: PlainLoop | SharedLoop, photos: NDArray[np.uint8], labels: NDArray[np.int64]) -> float:
    begun = time.process_time()
    loop.train(photos, labels)
    return time.process_time() - begun


@contextmanager
def _one_thread() -> Iterator[None]:
    torch = load_torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
