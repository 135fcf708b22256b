"""A small service on a real socket: two people, two apps, an operator, and tokens that open nothing any more."""

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi import FastAPI
from PIL import Image
from sklearn.linear_model import LogisticRegression

from blindsight.client import Client
from blindsight.service.api import create_app
from blindsight.service.database import Database, open_database
from blindsight.service.frames import FrameStore
from blindsight.service.gateway import Gateway
from blindsight.service.jobs import Jobs
from blindsight.service.log import AuditLog
from blindsight.service.principals import Principals
from blindsight.service.settings import ServiceSettings
from blindsight.sift.attackers import Attacker
from blindsight.sift.platform import Platform
from blindsight.sift.sift import LinearSift
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

SIDE, WIDTH = 8, 64
NewDatabase = Callable[[str], str | None]
"""Makes a database of a name and returns its URL; None is the SQLite file that a service makes for itself."""
LOGISTIC = Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))


class Grey:
    """Features of a picture: its 64 grey values."""

    def fit(self, images: np.ndarray) -> "Grey":
        return self

    def transform(self, images: np.ndarray) -> np.ndarray:
        return images.mean(axis=3).reshape(len(images), WIDTH).astype(np.float32)

    def fingerprint(self) -> str:
        return "grey values of 8 x 8 pictures"


def drawn(people: int, first: int, seed: int) -> VerificationSet:
    """Two rows a person; the first half of the features shows gender, the other half smiling."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(first, first + people), 2)
    traits = np.repeat(rng.integers(0, 2, (people, 3)), 2, axis=0)
    X = 128 + 20 * rng.normal(size=(len(who), WIDTH))
    X[:, :8] += 20 * (2 * traits[:, :1] - 1)
    X[:, 8:16] += 20 * (2 * traits[:, 1:2] - 1)
    labels = dict(zip(("gender", "smiling", "age"), traits.T.astype(np.int8), strict=True))
    return VerificationSet(X.astype(np.float32), labels, who, Grey().fingerprint())


DEVELOPMENT, JUDGING = drawn(400, 0, 1), drawn(1000, 5000, 2)


@dataclass
class Service:
    """A running service, and who knocks at it."""

    url: str
    app: FastAPI
    gateway: Gateway
    tokens: dict[str, str]
    http: httpx.Client
    clients: dict[str, Client] = field(default_factory=dict)

    def as_(self, name: str) -> Client:
        if name not in self.clients:
            self.clients[name] = Client(self.url, self.tokens[name])
        return self.clients[name]

    def call(self, name: str, method: str, path: str, **sent: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name in self.tokens else {}
        headers |= sent.pop("headers", {})
        return self.http.request(method, path, headers=headers, **sent)

    @staticmethod
    def picture(seed: int = 0) -> bytes:
        """A PNG file that nobody has seen before."""
        pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        return stream.getvalue()

    @staticmethod
    def sift(first: int) -> LinearSift:
        """A sift that adds up eight features: from 0 on they show gender, from 8 on smiling."""
        matrix = np.zeros((WIDTH, 1))
        matrix[first : first + 8] = 1.0
        return LinearSift(np.full(WIDTH, 128.0), np.full(WIDTH, 20.0), matrix, pipeline=Grey().fingerprint())

    def work(self) -> None:
        """Do all jobs that wait."""
        while self.gateway.worker.run_one() is not None:
            pass

    def grant(self, person: str = "ann", app: str = "weather", frames: int = 1, **more: Any) -> int:
        """Let an app propose its label about a person, who allows it."""
        job = self.as_(app).propose(person, frames=frames, **more).id
        self.work()
        number = self.as_(person).answer(job, "allow").grant
        assert number is not None
        return number


class Services:
    """Starts services, each in a folder and with a database of its own, and stops them all."""

    def __init__(self, folder: Path, name: str, new_database: NewDatabase) -> None:
        self._folder, self._name, self._new_database = folder, name, new_database
        self._running: list[tuple[Service, uvicorn.Server, threading.Thread, Database]] = []

    def start(self, **limits: Any) -> Service:
        name = f"{self._name}_{len(self._running)}"
        folder = self._folder / name
        settings = ServiceSettings(folder, self._new_database(name), **{"requests_per_minute": 10**6} | limits)
        database = open_database(settings.database_url)
        clock = [datetime.now(UTC)]
        principals = Principals(database, clock=lambda: clock[0])
        verifier = Verifier([LOGISTIC], threshold=0.15)
        platform = Platform(JUDGING, verifier=verifier, development=DEVELOPMENT, folder=folder / "platform")
        frames = FrameStore(folder / "frames", database, Grey(), size=SIDE, pixels=settings.picture_pixels)
        gateway = Gateway(settings, platform, frames, Jobs(database), AuditLog(database), principals)
        app = create_app(settings, gateway)
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive()
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        tokens = _people(principals, clock)
        service = Service(url, app, gateway, tokens, httpx.Client(base_url=url, timeout=30))
        self._running.append((service, server, thread, database))
        return service

    def stop(self) -> None:
        for service, server, thread, database in self._running:
            for client in (service.http, *service.clients.values()):
                client.close()
            server.should_exit = True
            thread.join()
            database.close()


@pytest.fixture(scope="module")
def database_kind() -> str:
    """The kind of all services' databases; a file whose tests should run on others too has such a fixture itself."""
    return "sqlite"


@pytest.fixture(scope="module")
def new_database(request: pytest.FixtureRequest, database_kind: str) -> NewDatabase:
    """What makes databases of the kind."""
    return request.getfixturevalue("new_postgresql") if database_kind == "postgresql" else lambda name: None


@pytest.fixture
def services(tmp_path: Path, new_database: NewDatabase) -> Iterator[Services]:
    """What starts services with settings of their own; nobody has set anything in them yet."""
    started = Services(tmp_path, "own", new_database)
    yield started
    started.stop()


@pytest.fixture
def service(services: Services) -> Service:
    """A service with two people who hide smiling, each with two pictures, and two apps that ask for gender."""
    return _settled(services.start())


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Service]:
    """Such a service for all tests of a file: they may add to it, and must not count on what others left."""
    started = Services(tmp_path_factory.mktemp("shared"), "shared", new_database)
    yield _settled(started.start())
    started.stop()


def _settled(made: Service) -> Service:
    for person in ("ann", "bob"):
        made.as_(person).set_private(["smiling"])
        for seed in (1, 2):
            made.as_(person).add_frame(made.picture(seed + 10 * (person == "bob")))
    for app in ("weather", "rival"):
        made.as_(app).register_app(["gender"])
    made.work()
    return made


def _people(principals: Principals, clock: list[datetime]) -> dict[str, str]:
    tokens, who = {"operator": str(principals.first_run())}, {}
    roles = {"ann": "owner", "bob": "owner", "weather": "app", "rival": "app", "revoked": "app", "expired": "owner"}
    for name, role in roles.items():
        expires = clock[0] + timedelta(days=1) if name == "expired" else None
        who[name], token = principals.create(name, role, expires=expires)
        tokens[name] = str(token)
    principals.revoke(who["revoked"].id)
    clock[0] += timedelta(days=2)
    return tokens
