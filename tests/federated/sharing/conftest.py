"""A small run of selective sharing: a server, and participants each of which lives in a file between two messages."""

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.federated.sharing import SharingServer, step
from blindsight.selective import ParameterServer, Participant, SelectiveTerms, Sharing, simulate
from blindsight.selective.trainers import SoftmaxTrainer
from tests.federated.parties import Network

NAMES = ("ann", "bob", "cem")
CLASSES, FEATURES, BATCH = 3, 6, 8


def _photos(name, count):
    rng = np.random.default_rng(list(name.encode()))
    labels = rng.integers(CLASSES, size=count)
    return np.eye(CLASSES, FEATURES)[labels] + rng.normal(size=(count, FEATURES)), labels


class Group:
    """The run: `handlers` act for participants as processes do that begin with a message and end with their reply."""

    def __init__(self, home, sharing, batches, options, **terms):
        self.home, self.sharing, self.options, self.batches = home, sharing, options, batches
        standardiser = Standardiser(np.zeros(FEATURES), np.ones(FEATURES))
        self.trainer = SoftmaxTrainer(standardiser=standardiser, classes=CLASSES, learning_rate=0.3, batch=4)
        settings = {"run": "test", "participants": NAMES, "batch": BATCH} | terms
        self.terms = SelectiveTerms.of(self.trainer.layout, **settings)
        self.parameters = ParameterServer(self.terms, self.trainer.initial(), folder=home / "server")
        self.server = SharingServer(self.parameters, NAMES)
        self.handlers = {name: self.handler(name) for name in NAMES}
        self.trained: list[tuple[str, int]] = []

    def restart_server(self):
        self.parameters.close()
        self.parameters = ParameterServer.resume(self.home / "server")
        self.server = SharingServer(self.parameters, NAMES)

    def participant(self, name, **options):
        how = {"trainer": self.trainer, "sharing": self.sharing} | self.options
        if "path" in options and options["path"].exists():
            return Participant.load(options["path"], **how)
        return Participant(name, self.terms, **how, random_state=len(name) + ord(name[0]), **options)

    def handler(self, name):
        inputs, labels = _photos(name, self.batches * BATCH)

        def handle(kind, parts):
            assert kind == "sharing/exchange"
            participant = self.participant(name, path=self.home / name)

            def more():
                rows = slice(participant.gathered, participant.gathered + BATCH)
                self.trained.append((name, participant.gathered))
                return (inputs[rows], labels[rows]) if len(labels[rows]) else None

            try:
                return [step(participant, *parts, more)]
            finally:
                participant.close()

        return handle

    def network(self, transit=None):
        network = Network(self.handlers)
        network.there = transit
        return network

    def in_process(self, order, moves):
        """Return the parameters after so many uploads of a run in one process."""
        server = ParameterServer(self.terms, self.trainer.initial())
        participants = [self.participant(name) for name in NAMES]
        for participant in participants:
            participant.gather(*_photos(participant.name, self.batches * BATCH))
        exchanges = simulate(server, participants, order)
        for _ in range(moves):
            next(exchanges)
        return server.parameters.tobytes()


@pytest.fixture
def found(tmp_path):
    """Return a function that makes a group; its server is closed in the end."""
    groups = []

    def make(sharing=None, *, batches=20, options=None, **terms):
        home = tmp_path / f"group {len(groups)}"
        groups.append(Group(home, sharing or Sharing(0.3, residual=True), batches, options or {}, **terms))
        return groups[-1]

    yield make
    for group in groups:
        group.parameters.close()


@pytest.fixture(scope="session")
def in_step():
    """The order in which all download, and then all upload."""

    def order(participants):
        while ready := [participant for participant in participants if participant.ready]:
            for move in ("download", "upload"):
                for participant in ready:
                    yield participant, move

    return order
