"""A whole federation in one process: every party with a key store of its own, and a network between them.

Members learn "numbers": whatever a test says, from whatever model.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from blindsight.federated.identity import IDENTITY_FILE, Identity, KeyStore, Members
from blindsight.federated.node import KeyGeneratorNode, MemberNode
from blindsight.federated.server import RemoteSums, RunStore, set_up
from blindsight.rounds import Memory, Run, Task, Update, register_learner
from blindsight.sums import KeyGenerator, Patience, make_terms
from blindsight.sums.engine import LocalTransport
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

KEYED = ["block-dphe", "bfv", pytest.param("dphe", marks=pytest.mark.slow)]
"""Schemes whose sums a key generator decrypts; DPHE without blocks is block DPHE with one slot."""

ALL_SCHEMES = ["plain", "masks", "two-wave-masks", *KEYED]

MEMBERS = ("ann", "bob", "cem", "dan")
DIMENSION = 120
PATIENCE = Patience(generator=300.0, pause=1e-6, attempts=200)  # in one process nobody waits, but all is asked again
IMPATIENT = Patience(generator=1e-9, pause=0.0, attempts=1)  # one try


@dataclass(frozen=True)
class Numbers:
    """The learner of vectors of which a test says what they are."""

    size: int
    always: int = 0
    largest: float = 64.0
    additive: bool = True

    @classmethod
    def of(cls, task, validation):
        return cls(task.settings["size"])


register_learner("numbers", Numbers.of)


def numbers(size=DIMENSION, **settings):
    return Task(kind="numbers", settings={"size": size, **settings})


def model(number):
    """Return a shared model, another one for each number."""
    return np.array([float(number)])


class Gone(BaseException):
    """A party was killed while it handled a message: no reply comes, and it is back for the next one."""


Change = Callable[[str, str, tuple[bytes, ...]], tuple[bytes, ...] | None]
"""What becomes of a message on its way: to or from whom, of which kind; None if it is lost."""


class Network(LocalTransport):
    """A transport that loses or changes messages `there` and `back`, and whose parties can be killed."""

    there: Change | None = None
    back: Change | None = None

    def __init__(self, handlers):
        super().__init__(handlers, transit=self._change)

    def _change(self, sender, receiver, kind, parts):
        change, name = (self.there, receiver) if sender == AGGREGATOR else (self.back, sender)
        changed = parts if change is None else change(name, kind, parts)
        return () if changed is None else (tuple(changed),)

    def _responses(self, name, kind, parts):
        try:
            yield from super()._responses(name, kind, parts)
        except Gone:
            return


def damaged(blob):
    """Return other bytes, whatever these are."""
    return blob[:-1] + bytes([blob[-1] ^ 1])


def make_store(folder, name):
    path = folder / name.replace(" ", "-")
    path.mkdir(mode=0o700, parents=True)
    Identity.create(path / IDENTITY_FILE, name)
    return KeyStore(path)


@dataclass
class Parties:
    """Key stores, members and a network; `updates` are what members send, `proposals` says how often they learned.

    `learned` is what they learned, by name and round.
    """

    folder: Path
    names: tuple[str, ...] = MEMBERS
    updates: dict[str, np.ndarray] = field(default_factory=dict)
    held: bool = False
    proposals: Counter[tuple[str, int]] = field(default_factory=Counter)
    learned: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def __post_init__(self):
        everyone = (*self.names, AGGREGATOR, KEY_GENERATOR)
        self.stores = {name: make_store(self.folder, name) for name in everyone}
        self.members = Members({name: store.identity.public.fingerprint for name, store in self.stores.items()})
        self.pin = self.members.fingerprints[KEY_GENERATOR]
        self.handlers = {name: self.member_handler(name) for name in self.names}
        self.handlers[KEY_GENERATOR] = lambda kind, parts: self.generator().handle(kind, parts)
        self.network = Network(self.handlers)

    @property
    def identities(self):
        return {name: store.identity.public for name, store in self.stores.items() if name != AGGREGATOR}

    def member(self, name, **policy):
        accepted = ("plain", "dphe", "block-dphe", "bfv", "masks", "two-wave-masks")
        policy = {"schemes": accepted, "insecure": True} | policy
        return MemberNode(KeyStore(self.stores[name].path), self.pin, **policy)

    def generator(self):
        return KeyGeneratorNode(KeyStore(self.stores[KEY_GENERATOR].path), self.members, insecure=True)

    def member_handler(self, name):
        def handle(kind, parts):
            member = self.member(name)  # every message meets a fresh process
            return [self.contribute(name, parts)] if kind == "contribute" else member.handle(kind, parts)

        return handle

    def contribute(self, name, parts):
        def learn(task, terms, round, memory):
            self.proposals[name, round] += 1
            self.learned[name, round] = self.updates[name]
            return self.update(name, memory)

        return self.member(name).contribute(parts, learn)

    def update(self, name, memory):
        held = np.zeros(DIMENSION) if memory.held is None else memory.held
        wanted = self.updates[name] + held
        return Update(wanted, Memory(np.zeros(DIMENSION) if self.held else None))

    def make_terms(self, scheme, task=None, **others):
        settings = {"fraction_bits": 16, "config": (task or numbers()).digest, "absences": -1}
        settings |= {"capacity": 40, "key_bits": 1024, "insecure": True, "minimum_per_position": 1} | others
        return lambda run, members: make_terms(
            scheme, **{"run": run, "members": members, "dimension": DIMENSION} | settings
        )

    def open(self, scheme, transport=None, *, task=None, patience=PATIENCE, **others):
        carrier, make = transport or self.network, self.make_terms(scheme, task, **others)
        run, self.refused = set_up(self.stores[AGGREGATOR], carrier, self.identities, make, patience)
        return RemoteSums(run, carrier, patience, task or numbers())

    def restarted(self, server, transport=None, patience=PATIENCE):
        """Return the server as a new process finds it on its disk."""
        return RemoteSums(self.reloaded(server), transport or self.network, patience, server.task)

    def reloaded(self, server):
        store = KeyStore(self.stores[AGGREGATOR].path)
        return RunStore.load(store, store.folder(server.terms.run))

    def key_generator(self, run):
        return KeyGenerator.load(self.stores[KEY_GENERATOR].folder(run) / "generator")

    def draw(self, seed, *, whole=False):
        """Let members learn something new; `whole` numbers are sent without rounding."""
        rng = np.random.default_rng(seed)
        for name in self.names:
            update = rng.normal(scale=4.0, size=DIMENSION)
            if whole:
                update = np.round(update)
            update[rng.permutation(DIMENSION)[: DIMENSION // 2]] = 0
            self.updates[name] = update
        return dict(self.updates)

    def everything_learned(self, server):
        return sum(map(server.terms.integers, self.learned.values()))

    def plain_sum(self, server, names, updates=None):
        return sum(server.terms.integers((updates or self.updates)[name]) for name in names)


class School(Parties):
    """Parties whose members learn a task; `loads` return their data, by name."""

    def __init__(self, folder, loads):
        super().__init__(folder, tuple(loads))
        self.loads = dict(loads)

    def member_handler(self, name):
        def handle(kind, parts):
            node = self.member(name)
            return [node.learn(parts, self.loads[name])] if kind == "contribute" else node.handle(kind, parts)

        return handle

    def found(self, task, sums, patience=PATIENCE, **changes):
        """Return the sums of a run that has been set up over these parties, on terms with these changes."""
        run, self.refused = set_up(
            self.stores[AGGREGATOR],
            self.network,
            self.identities,
            lambda run, members: replace(task.terms(sums, run=run, members=members), **changes),
            patience,
        )
        return RemoteSums(run, self.network, patience, task)


def run_of(server, rounds, **others):
    """Return the run over these sums, with its state where the server keeps it."""
    path, identity = server.run.folder / "state.npz", server.terms.digest.hex()
    return Run(server.task, server, rounds=rounds, path=path, identity=identity, **others)
