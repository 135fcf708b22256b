"""A federation over a LocalGrid: a server, a key generator and members whose apps learn what a test says."""

from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from blindsight.federated.flower import EncryptedFedAvg, encrypted_updates
from blindsight.federated.identity import Members
from blindsight.rounds import Sums
from blindsight.sums import SPARSE_SCHEMES, DpheOptions, Patience
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.flower.localgrid import LocalGrid, LocalNode
from tests.federated.parties import make_store

MEMBERS = ("ann", "bob", "cem", "dan")
GENERATOR = 100
PATIENCE = Patience(round=0.05, step=0.05, generator=0.05, pause=0)

Train = Callable[[Message, Context], RecordDict]


def model(**arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def numpy_of(arrays):
    return {name: value.numpy() for name, value in arrays.items()}


def app_of(train, mods):
    app = ClientApp(mods=mods)

    @app.train()
    def _(message, context):
        return Message(train(message, context), reply_to=message)

    @app.evaluate()
    def _(message, context):
        metrics = MetricRecord({"node": context.node_id, "num-examples": 1})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def moving(change, examples=10, **metrics):
    """Return apps that add `change(name, round)` to the array "w"."""

    def of(name):
        def train(message, context):
            arrays = numpy_of(message.content["arrays"])
            arrays["w"] = (arrays["w"] + change(name, message.content["config"]["server-round"])).astype(np.float32)
            reported = MetricRecord({"num-examples": examples, **metrics})
            return RecordDict({"arrays": model(**arrays), "metrics": reported})

        return train

    return of


class Federation:
    """Nodes 1, 2, ... are the members in order, node 100 is the key generator."""

    def __init__(self, folder, trains, names=MEMBERS):
        self.folder, self.names = folder, names
        self.stores = {name: make_store(folder, name) for name in (*names, AGGREGATOR, KEY_GENERATOR)}
        self.members = Members({name: store.identity.public.fingerprint for name, store in self.stores.items()})
        self.pin = self.members.fingerprints[KEY_GENERATOR]
        self.members_file = folder / "members.toml"
        self.members_file.write_text(self.members.to_toml())
        self.grid = LocalGrid({place: self.member(name, trains(name)) for place, name in enumerate(names, 1)})
        self.grid.nodes[GENERATOR] = LocalNode(app_of(_never, [encrypted_updates]), self.generator_config())

    def member(self, name, train, **config):
        given = {
            "home": str(self.stores[name].path),
            "key-generator": self.pin,
            "schemes": "plain, dphe, block-dphe, bfv, masks, two-wave-masks",
            "insecure": True,
        }
        return LocalNode(app_of(train, [encrypted_updates]), given | config)

    def generator_config(self):
        home = str(self.stores[KEY_GENERATOR].path)
        return {"role": "key-generator", "home": home, "members-file": str(self.members_file), "insecure": True}

    def node(self, name):
        return self.grid.nodes[self.names.index(name) + 1]

    def settings(self, scheme="masks", **others):
        """Return arguments of `Encrypted`; those of `Sums` and `DpheOptions` may be among the others."""
        sums = {name: others.pop(name) for name in ("share", "quorum", "sample", "max_absences") if name in others}
        options = {name: others.pop(name) for name in ("sparsity", "minimum_per_position") if name in others}
        short = DpheOptions(key_bits=1024, insecure=True, **options) if scheme in SPARSE_SCHEMES else None
        given = {"home": self.stores[AGGREGATOR].path, "members_file": self.members_file, "members": len(self.names)}
        given["sums"] = Sums(scheme=scheme, options=short, **sums)
        return given | {"wait": 0.05, "patience": PATIENCE} | others

    def strategy(self, scheme="masks", **settings):
        return EncryptedFedAvg(**self.settings(scheme, **settings))


def fedavg(trains, arrays, rounds=1):
    """Return what plain FedAvg makes of the same apps."""
    grid = LocalGrid({place: LocalNode(app_of(train, []), {}) for place, train in enumerate(trains.values(), 1)})
    return FedAvg(min_train_nodes=len(trains)).start(grid, arrays, num_rounds=rounds)


def _never(message, context):
    raise AssertionError("the key generator's app is never called")
