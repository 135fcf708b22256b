"""A small service on a real socket: two people, two apps, an operator, and tokens that open nothing any more."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest
from smallservice import KEY, SIDE, TLS, linear, open_service, png, serving, work

from blindsight.client import Client
from blindsight.service.api import create_app
from blindsight.sift.sift import LinearSift


class Service:
    """A running service, and who knocks at it."""

    def __init__(self, opened, folder, **settings):
        self.gateway = open_service(folder, **{"requests_per_minute": 10**6} | settings)
        opened.callback(self.gateway.close)
        self.url = opened.enter_context(serving(create_app(self.gateway.settings, self.gateway)))
        self.tokens = _people(self.gateway)
        ann = self.gateway.authenticate(self.tokens["ann"])
        self.tokens["device"] = str(self.gateway.add_device(ann, "camera")[1])
        alone = httpx.Limits(max_keepalive_connections=0)  # a server closes the connection on which it failed
        told = {"base_url": self.url, "timeout": 60, "trust_env": False, "verify": TLS, "limits": alone}
        self.http = opened.enter_context(httpx.Client(**told))
        self.clients = {name: self.client(token) for name, token in self.tokens.items()}
        for client in self.clients.values():
            opened.callback(client.close)

    def client(self, token):
        return Client(self.url, token, key=KEY.secret_bytes().hex(), verify=TLS, timeout=60)

    def enrolled(self, name, role, **more):
        """Somebody new, and a client of theirs."""
        made, code = self.as_("operator").create_principal(name, role, **more)
        return made, self.client(self.gateway.enrol(code, KEY.public.hex())[1])

    def as_(self, name):
        return self.clients[name]

    def renew(self, name, token):
        """Use another token of somebody from now on."""
        self.tokens[name] = token
        self.clients[name]._http.headers["Authorization"] = f"Bearer {token}"

    def call(self, name, method, path, **sent):
        headers = {"Authorization": f"Bearer {self.tokens[name]}"} if name in self.tokens else {}
        headers |= sent.pop("headers", {})
        return self.http.request(method, path, headers=headers, **sent)

    @staticmethod
    def picture(seed=0):
        """A PNG file that nobody has seen before."""
        return png(np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))

    @staticmethod
    def sift(*features):
        """A sift that adds up some features."""
        parts = linear(dict.fromkeys(features, 1.0))
        return LinearSift(*(np.array(parts[name]) for name in ("mean", "scale", "matrix")), pipeline="cells 1")

    def work(self):
        """Do all jobs that wait."""
        work(self.gateway)

    def grant(self, person="ann", app="weather", frames=1, **more):
        """Let an app propose its label about a person, who allows it."""
        job = self.as_(app).propose(person, frames=frames, **more).id
        self.work()
        number = self.as_(person).answer(job, "allow").grant
        assert number is not None
        return number

    def settled(self):
        """Two people hide smiling and have two pictures each, and two apps ask for gender."""
        for number, person in enumerate(("ann", "bob")):
            self.as_(person).set_private(["smiling"])
            for seed in (1, 2):
                self.as_(person).add_frame(self.picture(seed + 10 * number))
        for app in ("weather", "rival"):
            self.as_(app).register_app(["gender"])
        self.work()
        return self


@pytest.fixture
def start(tmp_path):
    """What starts a service with settings of its own; nobody has set anything in it yet."""
    with ExitStack() as opened:
        yield lambda **settings: Service(opened, tmp_path / "service", **settings)


@pytest.fixture
def service(start):
    """A new settled service, on SQLite."""
    return start().settled()


@pytest.fixture(params=["sqlite", "postgresql"])
def service_on_each(request, start):
    """A new settled service, once on each kind of database."""
    make = request.getfixturevalue("new_postgresql") if request.param == "postgresql" else lambda name: None
    return start(database=make("own")).settled()


@pytest.fixture(scope="module")
def shared_service(tmp_path_factory):
    """A settled service for all tests of a file: they may add to it, and must not count on what others left."""
    with ExitStack() as opened:
        yield Service(opened, tmp_path_factory.mktemp("shared") / "service").settled()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_on_each(request, tmp_path_factory, shared_service):
    """Such a service, once on each kind of database."""
    if request.param == "sqlite":
        yield shared_service
        return
    url = request.getfixturevalue("new_postgresql")("shared")
    with ExitStack() as opened:
        yield Service(opened, tmp_path_factory.mktemp("shared") / "service", database=url).settled()


def _people(gateway):
    principals = gateway.principals
    roles = {"ann": "owner", "bob": "owner", "weather": "app", "rival": "app", "revoked": "app", "expired": "owner"}
    tokens, who = {"operator": str(principals.first_run())}, {}
    for name, role in roles.items():
        expires = datetime.now(UTC) + timedelta(days=1) if name == "expired" else None
        who[name], token = gateway.enrol(principals.create(name, role, expires=expires)[1], KEY.public.hex())
        tokens[name] = str(token)
    principals.revoke(who["revoked"].id)
    principals._clock = lambda: datetime.now(UTC) + timedelta(days=2)
    return tokens
