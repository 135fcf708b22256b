"""A whole federation in one process: every party in a home of its own, and a courier between them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from blindsight.federated.home import Home
from blindsight.federated.members import Members

from blindsight.federated.courier import LocalCourier, Reply, Transit
from blindsight.federated.identity import IDENTITY_FILE, Identity
from blindsight.federated.sums.generatordesk import GeneratorDesk
from blindsight.federated.sums.opening import open_run
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.server import Patience, SumServer
from blindsight.federated.sums.serverrun import ServerRun
from blindsight.federated.sums.userdesk import UserDesk
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.rounds import Memory, Proposal

DECRYPTED = ["block-dphe", "bfv", pytest.param("dphe", marks=pytest.mark.slow)]
"""Schemes whose sums a key generator decrypts; DPHE without blocks is block DPHE with one slot."""

ALL_SCHEMES = ["plain", "masks", *DECRYPTED]

USERS = ("ann", "bob", "cem", "dan")
DIMENSION = 120
PATIENCE = Patience(generator=300.0, pause=0.0)  # nobody waits in one process: whoever can answer has answered
IMPATIENT = Patience(generator=1e-9, pause=0.0)  # one try


class Gone(BaseException):
    """A party was killed while it handled a message: no reply comes, and it is back for the next one."""


Back = Callable[[str, str, tuple[bytes, ...]], tuple[bytes, ...] | None]
"""What becomes of a reply on its way: by whom, to which kind of message."""


class Network(LocalCourier):
    """A courier that also loses or changes replies, and whose parties can be killed."""

    back: Back | None = None

    def _reply(self, name, kind, parts):
        try:
            reply = super()._reply(name, kind, parts)
        except Gone:
            return None
        if reply is None or reply.error or self.back is None:
            return reply
        changed = self.back(name, kind, reply.parts)
        return None if changed is None else Reply(changed)


def damaged(blob):
    """Return other bytes, whatever these are."""
    return blob[:-1] + bytes([blob[-1] ^ 1])


def make_home(folder, name):
    path = folder / name.replace(" ", "-")
    path.mkdir(mode=0o700, parents=True)
    Identity.create(path / IDENTITY_FILE, name)
    return Home(path)


@dataclass
class Village:
    """Homes, members and a courier; `updates` are what users send, by name; `proposals` says how often they learned.

    `learned` is what they learned, by name and round.
    """

    folder: Path
    users: tuple[str, ...] = USERS
    transit: Transit | None = None
    updates: dict[str, np.ndarray] = field(default_factory=dict)
    held: bool = False
    proposals: Counter[tuple[str, int]] = field(default_factory=Counter)
    learned: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        everyone = (*self.users, AGGREGATOR, KEY_GENERATOR)
        self.homes = {name: make_home(self.folder, name) for name in everyone}
        self.members = Members({name: home.identity.public.fingerprint for name, home in self.homes.items()})
        self.pin = self.members.fingerprints[KEY_GENERATOR]
        self.handlers = {name: self.user_handler(name) for name in self.users}
        self.handlers[KEY_GENERATOR] = lambda kind, parts: self.generator_desk().handle(kind, parts)
        self.courier = Network(self.handlers, self.transit)

    @property
    def identities(self):
        return {name: home.identity.public for name, home in self.homes.items() if name != AGGREGATOR}

    def user_desk(self, name, **policy):
        policy = {"schemes": ("plain", "dphe", "block-dphe", "bfv", "masks"), "insecure": True} | policy
        return UserDesk(Home(self.homes[name].path), self.pin, **policy)

    def generator_desk(self):
        return GeneratorDesk(Home(self.homes[KEY_GENERATOR].path), self.members, insecure=True)

    def user_handler(self, name):
        def handle(kind, parts):
            desk = self.user_desk(name)  # every message meets a fresh process
            if kind != "contribute":
                return desk.handle(kind, parts)
            return [self.contribute(name, desk.call(parts))]

        return handle

    def contribute(self, name, call):
        def propose(memory, seed):
            self.proposals[name, call.round] += 1
            self.learned[name, call.round] = self.updates[name]
            return self.propose(name, memory)

        return OwnerPart(self.user_desk(name).end(call.run)).contribute(call, propose)

    def propose(self, name, memory):
        held = np.zeros(DIMENSION) if memory.held is None else memory.held
        wanted = self.updates[name] + held
        return Proposal(wanted, Memory(np.zeros(DIMENSION) if self.held else None, None))

    def make_terms(self, scheme, **others):
        settings = {"fraction_bits": 16, "capacity": 40, "key_bits": 1024, "insecure": True} | others
        return lambda run, users: RunTerms(scheme=scheme, run=run, users=users, dimension=DIMENSION, **settings)

    def open(self, scheme, courier=None, *, briefed=b"", **others):
        carrier = courier or self.courier
        run, self.refused = open_run(
            self.homes[AGGREGATOR], carrier, self.identities, self.make_terms(scheme, **others), PATIENCE
        )
        return SumServer(run, carrier, PATIENCE, briefing=briefed)

    def restarted(self, server, courier=None, patience=PATIENCE):
        """Return the server as a new process finds it on its disk."""
        return SumServer(self.reloaded(server), courier or self.courier, patience)

    def reloaded(self, server):
        return ServerRun.load(Home(self.homes[AGGREGATOR].path), server.terms.run)

    def draw(self, seed, *, whole=False):
        """Let users learn something new; `whole` numbers are sent without rounding."""
        rng = np.random.default_rng(seed)
        for name in self.users:
            update = rng.normal(scale=4.0, size=DIMENSION)
            if whole:
                update = np.round(update)
            update[rng.permutation(DIMENSION)[: DIMENSION // 2]] = 0
            self.updates[name] = update
        return dict(self.updates)

    def everything_learned(self, server):
        return sum(map(server.terms.sums.integers, self.learned.values()))

    def plain_sum(self, server, names, updates=None):
        terms = server.terms.sums
        return sum(terms.integers((updates or self.updates)[name]) for name in names)
