"""A service to be put under load, as a process of its own: features that are many, a sift that lets few numbers out.

Its pictures are noise, its features random projections of them, its sift a random matrix, and its attacker says the
same of everybody: what is measured is the way out, from a request to an answer that is in the log, not the verdict. One
verification is behind the grants of all people, each of which lets `FRAMES` frames out.
"""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.dummy import DummyClassifier

from blindsight.service.frames import FrameStore
from blindsight.service.gateway import Gateway
from blindsight.service.jobs import Jobs
from blindsight.service.log import LogRecords, open_log
from blindsight.service.principals import Principals
from blindsight.service.running import run_service
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import open_database
from blindsight.sift.attackers import Attacker
from blindsight.sift.platform import Platform
from blindsight.sift.sift import LinearSift
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

APP, FRAMES, SIDE = "camera", 10, 8
_JUDGING = 220  # persons
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


def open_gateway(settings: ServiceSettings, *, dimension: int, width: int, people: int) -> tuple[Gateway, list[Any]]:
    """Return a gateway that may release to the app, and the requests that it has to answer with numbers."""
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
    store = FrameStore(settings.folder / "frames", database, pipeline, size=SIDE)
    gateway = Gateway(settings, platform, store, Jobs(database), log, Principals(database))
    platform.add_app(APP, ["shown"])
    names = [f"person {number}" for number in range(people)]
    for name in names:
        platform.note_preferences(name, ["hidden"])
    matrix = rng.normal(size=(dimension, width)).astype(np.float32)
    none, one = np.zeros(dimension, dtype=np.float32), np.ones(dimension, dtype=np.float32)
    sift = LinearSift(none, one, matrix, pipeline=pipeline.fingerprint())
    proposal = platform.propose(names[0], APP, sift, frames=FRAMES)
    asks = []
    for name in names:
        platform.allow(replace(proposal, person=name))
        asks.append({"person": name, "frames": [store.add(name, _png(rng))]})
    return gateway, asks


def _png(rng: np.random.Generator) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def main(folder: Path, dimension: int, width: int, people: int) -> None:
    """Serve until stopped; one line of JSON says where, to whom, and what may be asked."""
    settings = ServiceSettings(folder, port=0, requests_per_minute=10**9)
    gateway, asks = open_gateway(settings, dimension=dimension, width=width, people=people)
    _, token = gateway.principals.create(APP, "app")

    def announce(address: str, _: Any) -> None:
        print(json.dumps({"url": address, "token": str(token), "asks": asks}), flush=True)

    run_service(settings, lambda: gateway, announce, page=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
