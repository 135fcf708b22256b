"""A service on small pictures whose pixels are features, with light attackers, so that it verifies in no time.

Run as a program, with a folder, it is a service to be killed.
"""

import io
import os
import socket
import ssl
import sys
from collections import deque
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
from typing import Any
from unittest.mock import patch

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

from blindsight.data import Dataset
from blindsight.service.foundation import lay_foundation
from blindsight.service.gateway import Gateway
from blindsight.service.principals import Principal
from blindsight.service.running import Server
from blindsight.service.settings import ServiceSettings
from blindsight.sift.attackers import Attacker
from blindsight.sift.ppls import PPLS
from blindsight.sift.verify import Verifier

SIDE, FEATURES = 8, 20
TLS = ssl.create_default_context()  # for all clients, since each would load the certificates itself
LIGHT = Verifier([Attacker("logistic", lambda seed: LogisticRegression(class_weight="balanced"))])


class Cells:
    """The first pixels of a picture as features."""

    def fit(self, images):
        return self

    def transform(self, images):
        grey = images.reshape(len(images), -1, 3)[:, :FEATURES, 0]
        return ((grey.astype(np.float32) - 128) / 24).astype(np.float32)

    def fingerprint(self):
        return "cells 1"


def traits(people, seed, per_person=2):
    """Features 0 is noise, 1 shows smiling, 2-5 gender, 6-9 age; 10 and 11 show smiling as an XOR."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), per_person)
    labels = np.repeat(rng.integers(0, 2, (people, 3)), per_person, axis=0)
    smiling, gender, age = (2 * labels - 1).T
    X = rng.normal(size=(len(who), FEATURES))
    X[:, 1] = smiling + 0.5 * X[:, 1]
    X[:, 2:6] += 0.9 * gender[:, None]
    X[:, 6:10] += 0.9 * age[:, None]
    coin = rng.choice([-1, 1], len(who))
    X[:, 10], X[:, 11] = coin + 0.2 * X[:, 10], coin * smiling + 0.2 * X[:, 11]
    return X, labels.astype(np.int8), who


def pictures(X):
    images = np.full((len(X), SIDE * SIDE, 3), 128, dtype=np.uint8)
    images[:, :FEATURES] = np.clip(np.rint(128 + 24 * X), 0, 255).astype(np.uint8)[:, :, None]
    return images.reshape(-1, SIDE, SIDE, 3)


def collection(people=3000):
    X, labels, who = traits(people, seed=1)
    return Dataset(
        name="small pictures",
        licence="none",
        source="this test",
        images=pictures(X),
        attributes=labels,
        attribute_names=("smiling", "gender", "age"),
        persons=who,
    )


def png(image):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "PNG")
    return stream.getvalue()


def frames(count, seed=5):
    return [png(image) for image in pictures(traits(1, seed, per_person=count)[0])]


@cache
def foundation():
    with TemporaryDirectory() as folder:
        return lay_foundation(collection(), Cells(), cache=Path(folder))


def open_service(folder, *, verifier=LIGHT, **more):
    with patch("blindsight.service.gateway.lay_foundation", lambda *_, **__: foundation()):
        return Gateway.open(
            ServiceSettings(folder, **{"verdict_seconds": 1e-6} | more), verifier=verifier, learner=PPLS(5, np.inf)
        )


@contextmanager
def serving(app, settings=None, **changes):
    """Run an app on a free port of this machine for the time of the block; gives its address."""
    server = Server(app, settings or ServiceSettings(Path("unused")), lambda: None)
    vars(server.config).update({"timeout_graceful_shutdown": 1, **changes})
    with socket.create_server(("127.0.0.1", 0)) as listening:  # who connects before the server runs waits
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def linear(*weights, **more):
    """The JSON of a sift of one number per dictionary from features to weights."""
    matrix = np.zeros((FEATURES, len(weights)))
    for column, entries in enumerate(weights):
        for feature, weight in entries.items():
            matrix[feature, column] = weight
    return {"mean": [0.0] * FEATURES, "scale": [1.0] * FEATURES, "matrix": matrix.tolist(), **more}


GENDER = linear({2: 1.0, 3: 1.0}, {4: 1.0, 5: 1.0})
PLUS, MINUS = linear({0: 1.0, 1: 0.08}), linear({0: 1.0, 1: -0.08})  # alone harmless, together nearly everything
SMILE, XOR = linear({1: 1.0}), linear({10: 1.0}, {11: 1.0})


class Cast:
    """An operator, Ann who hides smiling and has three frames, and apps that ask for gender."""

    def __init__(self, gateway, apps="XYZ"):
        gateway.principals.first_run()
        self.operator = next(one for one in gateway.principals.list() if one.role == "operator")
        self.ann, self.ann_token = gateway.create_principal(self.operator, "Ann", "owner")
        self.apps: dict[str, Principal] = {}
        gateway.set_private(self.ann, ["smiling"])
        self.frames = [gateway.add_frame(self.ann, content) for content in frames(3)]
        for name in apps:
            self.apps[name] = gateway.create_principal(self.operator, name, "app")[0]
            gateway.register_app(self.apps[name], ["gender"])
        work(gateway)

    @classmethod
    def again(cls, gateway):
        """The same people after a restart."""
        cast = cls.__new__(cls)
        known = gateway.principals.list()
        cast.operator = next(one for one in known if one.role == "operator")
        cast.ann = next(one for one in known if one.name == "Ann")
        cast.apps = {one.name: one for one in known if one.role == "app"}
        cast.frames = list(gateway.frame_ids(cast.ann))
        return cast


def work(gateway):
    """Do all that is queued."""
    while gateway.worker.run_one() is not None:
        pass


def asked(gateway, cast, sift=None, app="X", **more):
    """Propose and verify; return the job."""
    job = gateway.propose(cast.apps[app], "Ann", sift, **more)
    work(gateway)
    return job.id


def granted(gateway, cast, sift=None, app="X", **more):
    number = gateway.answer(cast.ann, asked(gateway, cast, sift, app, **more), "allow").grant
    assert number is not None
    return number


class Line(deque[Any]):
    """Those who wait; tells when somebody has come."""

    def __init__(self):
        super().__init__()
        self.come = Semaphore(0)

    def append(self, place):
        super().append(place)
        self.come.release()


def together(commit, *calls):
    """Make calls at the same time that wait for `commit` in this order; return what each returns or raises."""
    line, outcomes = Line(), [None] * len(calls)
    commit._waiting, commit._led = line, True  # as if somebody led just now

    def make(number):
        try:
            outcomes[number] = calls[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [Thread(target=make, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
        line.come.acquire()
    line[0].called.set()  # nobody leads any more
    for thread in threads:
        thread.join()
    return outcomes


def tell(word):
    os.write(1, f"{word}\n".encode())


def releasing(folder):
    """Release for ever, telling of each one that an app would have got."""
    gateway = open_service(folder)
    cast = Cast.again(gateway)
    while True:
        tell(len(gateway.release(cast.apps["X"], "Ann", latest=1).rows))


def crowding(folder):
    """Release for ever to four at a time."""
    gateway = open_service(folder)
    app = Cast.again(gateway).apps["X"]

    def ask():
        while True:
            tell(len(gateway.release(app, "Ann", latest=1).rows))

    for _ in range(4):
        Thread(target=ask).start()


def verifying(folder):
    """Start a verification that tells when it has begun and never ends."""

    def endless(seed):
        tell("attacking")
        sys.stdin.read()

    gateway = open_service(folder, verifier=Verifier([Attacker("logistic", endless)]))
    cast = Cast.again(gateway)
    tell(gateway.propose(cast.apps["X"], "Ann", GENDER).id)
    gateway.worker.run_one()


if __name__ == "__main__":
    {"releasing": releasing, "crowding": crowding, "verifying": verifying}[sys.argv[1]](Path(sys.argv[2]))
