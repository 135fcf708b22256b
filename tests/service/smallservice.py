"""A service on small pictures whose pixels are features, with light attackers, so that it verifies in no time.

Run as a program, with a folder, it is a service to be killed.
"""

import io
import json
import os
import shutil
import socket
import ssl
import sys
from collections import deque
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Semaphore, Thread
from unittest.mock import patch

import numpy as np
from PIL import Image
from sklearn.linear_model import LogisticRegression

from blindsight.crypto.sealedbox import ExchangeKey
from blindsight.crypto.signing import SigningKey
from blindsight.data import Dataset
from blindsight.service.api import Server, run_service
from blindsight.service.gateway import Gateway
from blindsight.service.keys import epoch_context
from blindsight.service.principals import Principal
from blindsight.service.settings import ServiceSettings
from blindsight.service.verification import platform_data
from blindsight.sift.attackers import Attacker
from blindsight.sift.ppls import PPLS
from blindsight.sift.verify import Verifier

SIDE, FEATURES = 8, 20
LOG_KEY = SigningKey(bytes(range(32)))
"""Signs the logs of databases that no service opened."""
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
        return platform_data(collection(), Cells(), cache=Path(folder), unchanging=("gender", "age"))


def open_service(folder, *, verifier=LIGHT, **more):
    with patch("blindsight.service.gateway.platform_data", lambda *_, **__: foundation()):
        return Gateway.open(
            ServiceSettings(folder, **{"verdict_seconds": 1e-6} | more), verifier=verifier, learner=PPLS(5, np.inf)
        )


def copied(folder, target):
    """A copy of a service that does not run, with its open keys."""
    for end in ("", "-keys"):
        if Path(f"{folder}{end}").exists():
            shutil.copytree(f"{folder}{end}", f"{target}{end}", dirs_exist_ok=bool(end))
    return target


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


KEY = ExchangeKey(bytes(range(32)))
"""Of every owner in these tests."""


def enrolled(gateway, operator, name, role, **more):
    """Somebody new who has redeemed their code, and their token."""
    return gateway.enrol(gateway.create_principal(operator, name, role, **more)[1], KEY.public.hex())


def epoch_keys(gateway, owner):
    """What an owner hands over who allows something."""
    sealed = {epoch.id: bytes.fromhex(epoch.sealed) for epoch in gateway.epochs(owner)}
    return {id: KEY.open(box, context=epoch_context(id)).hex() for id, box in sealed.items()}


def allow(gateway, owner, job):
    return gateway.answer(owner, job, "allow", epoch_keys(gateway, owner))


class Cast:
    """An operator, Ann who hides smiling and has three frames, and apps that ask for gender."""

    def __init__(self, gateway, apps="XYZ"):
        gateway.principals.first_run()
        self.operator = next(one for one in gateway.principals.list() if one.role == "operator")
        self.ann, self.ann_token = enrolled(gateway, self.operator, "Ann", "owner")
        self.apps: dict[str, Principal] = {}
        gateway.set_private(self.ann, ["smiling"])
        self.frames = [gateway.add_frame(self.ann, content) for content in frames(3)]
        for name in apps:
            self.apps[name] = enrolled(gateway, self.operator, name, "app")[0]
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
    number = allow(gateway, cast.ann, asked(gateway, cast, sift, app, **more)).grant
    assert number is not None
    return number


def together(commit, *calls):
    """Make calls at the same time that wait for `commit` in this order; return what each returns or raises."""
    outcomes, came, waiting = [None] * len(calls), Semaphore(0), deque()
    enter, commit._enter = commit._enter, lambda places: (waiting.extend(places), came.release())

    def make(number):
        try:
            outcomes[number] = calls[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [Thread(target=make, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
        came.acquire()
    commit._enter = enter
    commit._enter(list(waiting))
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


def crowding(folder, person="Ann", **more):
    """Release for ever to four at a time."""
    gateway = open_service(folder, **more)
    app = Cast.again(gateway).apps["X"]

    def ask():
        while True:
            tell(len(gateway.release(app, person, latest=1).rows))

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


def sharing(folder, **more):
    """Serve from two processes, and tell where."""
    settings = ServiceSettings(folder, port=0, requests_per_minute=10**9, **more)
    run_service(settings, lambda: open_service(folder, **more), lambda url, _: tell(url), page=False)


if __name__ == "__main__":
    does = {"releasing": releasing, "crowding": crowding, "verifying": verifying, "sharing": sharing}[sys.argv[1]]
    does(Path(sys.argv[2]), **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
