"""A service with many features and a sift that lets few numbers out, filled and then run; and the barest of services.

Its pictures are noise, its features random projections of them, its sift a random matrix, and its attacker says the
same of everybody: what is measured is the way out, from a request to an answer that is in the log, not the verdict. One
verification is behind the grants of all people, each of which lets `FRAMES` frames out.
"""

import io
import json
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.dummy import DummyClassifier

from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.service.api import run_service
from blindsight.service.frames import FrameStore
from blindsight.service.gateway import Gateway
from blindsight.service.jobs import Jobs
from blindsight.service.keys import Keys
from blindsight.service.log import LogRecords, open_log
from blindsight.service.principals import Principals
from blindsight.service.releases import MOST_STREAMS
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import open_database
from blindsight.sift.attackers import Attacker
from blindsight.sift.platform import Platform
from blindsight.sift.sift import LinearSift
from blindsight.sift.stream import Then
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

APP, FRAMES, SIDE = "camera", 10, 8
_JUDGING = 280  # persons, a fifth of which are reference
_OWNER = ExchangeKey.generate().public.hex()  # everybody's
_BLIND = Attacker("blind", lambda seed: DummyClassifier(strategy="most_frequent"))


class RandomFeatures:
    """As many features as one likes: random projections of all pixels."""

    def __init__(self, dimension: int) -> None:
        self._matrix = np.random.default_rng(0).normal(size=(SIDE * SIDE * 3, dimension)).astype(np.float32)

    def fit(self, images: NDArray[np.uint8]) -> Self:
        """Return itself: there is nothing to learn."""
        return self

    def transform(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features, (n, d)."""
        scaled = images.reshape(len(images), -1).astype(np.float32) / 255 - 0.5
        return np.asarray(scaled @ self._matrix, dtype=np.float32)

    def fingerprint(self) -> str:
        """Name the features."""
        return f"{self._matrix.shape[1]} random projections"


def open_gateway(settings: ServiceSettings, dimension: int) -> Gateway:
    """Return a gateway whose verification rows are noise."""
    rng, pipeline = np.random.default_rng(0), RandomFeatures(dimension)
    pictures = rng.integers(0, 256, (_JUDGING * FRAMES, SIDE, SIDE, 3), dtype=np.uint8)
    persons = np.repeat(np.arange(_JUDGING), FRAMES)
    rows = VerificationSet(
        pipeline.transform(pictures), {"hidden": (persons % 2).astype(np.int8)}, persons, pipeline.fingerprint()
    )
    verifier = Verifier([_BLIND], threshold=0.49, confidence=0.51, rows_per_number=0)
    database = open_database(settings.database_url)
    log = open_log(settings.folder, database)
    records = LogRecords(log, database)
    platform = Platform(rows, verifier=verifier, folder=settings.folder / "platform", records=records)
    keys = Keys(settings.open_keys, database)
    store = FrameStore(settings.folder / "frames", database, pipeline, keys, size=SIDE)
    return Gateway(settings, platform, store, keys, Jobs(database), log, Principals(database))


def fill(gateway: Gateway, width: int, *, people: int = 0, repeating: int = 0, streams: int = 0) -> dict[str, Any]:
    """Grant apps as many frames of people as they will ask for; return the first one's token, what it may ask once each
    or as often as it likes, and token and person of streams.
    """
    rng, platform, dimension = np.random.default_rng(0), gateway.platform, gateway.platform.data.dimension
    matrix = rng.normal(size=(dimension, width)).astype(np.float32)
    none, one = np.zeros(dimension, dtype=np.float32), np.ones(dimension, dtype=np.float32)
    sift = LinearSift(none, one, matrix, pipeline=platform.data.pipeline)

    def grant(app: str, names: list[str], then: Then) -> tuple[str, list[dict[str, Any]]]:
        _, token = gateway.principals.redeem(gateway.principals.create(app, "app")[1])
        platform.add_app(app, ["shown"])
        platform.note_preferences(names[0], ["hidden"])
        proposal, asks = platform.propose(names[0], app, sift, frames=FRAMES, then=then), []
        for name in names:
            platform.note_preferences(name, ["hidden"])
            platform.allow(replace(proposal, person=name))
            gateway.keys.begin(name, _OWNER, keep=True)
            asks.append({"person": name, "frames": [gateway.frames.add(name, _png(rng))]})
        return str(token), asks

    with gateway.principals.database.session():
        every: Then = "refuse" if people else "repeat"
        token, asks = grant(APP, [f"person {number}" for number in range(people or repeating)], every)
        told: dict[str, Any] = {"token": token, "asks": asks, "streams": []}
        for first in range(0, streams, MOST_STREAMS):
            names = [f"streamed {number}" for number in range(first, min(first + MOST_STREAMS, streams))]
            token, _ = grant(f"{APP} {first}", names, "repeat")
            told["streams"] += [(token, name) for name in names]
    return told


def _png(rng: np.random.Generator) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def serve(settings: ServiceSettings, dimension: int) -> None:
    """Serve until stopped; one line says where."""
    run_service(settings, lambda: open_gateway(settings, dimension), lambda url, _: print(url, flush=True), page=False)


def serve_bare(folder: Path) -> None:
    """Serve the least that FastAPI and SQLite can do: a row for each request, on disk before it is answered."""
    import socket

    import uvicorn
    from fastapi import FastAPI, Request

    app, lines = FastAPI(), sqlite3.connect(folder / "bare.db", check_same_thread=False, isolation_level=None)
    lines.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE log (line TEXT)")

    @app.post("/")
    async def add(request: Request) -> dict[str, str]:
        lines.execute("INSERT INTO log VALUES (?)", [(await request.body()).decode()])
        return {"status": "ok"}

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning")).run(sockets=[listener])


def main(what: str, given: str) -> None:
    """Do what `release_load` asks for."""
    told = json.loads(given)
    folder = Path(told["folder"])
    if what == "bare":
        serve_bare(folder)
        return
    many: dict[str, Any] = {"requests_per_minute": 10**9, "connections": 10_000, "connections_per_address": 10_000}
    many["processes"] = told["processes"]
    settings = ServiceSettings(folder / "service", database=told["database"], port=0, **many)
    if what == "count":
        database = open_database(settings.database_url)
        released = (row for row in open_log(settings.folder, database).rows(None) if row.action == "release")
        print(sum(row.entry().details["app"] == APP for row in released))
        database.close()
        return
    if what == "serve":
        serve(settings, told["dimension"])
        return
    gateway = open_gateway(settings, told["dimension"])
    kinds = ("people", "repeating", "streams")
    asks = fill(gateway, told["width"], **{kind: told[kind] for kind in kinds if kind in told})
    gateway.principals.database.close()
    (folder / "asks.json").write_text(json.dumps(asks))


if __name__ == "__main__":
    main(*sys.argv[1:])
