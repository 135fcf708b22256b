"""Encrypted sums in Flower's simulation: one more mod, and no keys, files or node-configs to prepare.

::

    app = ClientApp(mods=[simulated_nodes, encrypted_updates])          # in client_app.py
    strategy = Encrypted(FedAvg(), simulated=True)                      # in server_app.py

    flwr run . --federation-config num-supernodes=11                    # ten members and the key generator

The server makes all parties' identities in a folder of its own before the first round, and `simulated_nodes` gives each
virtual node its own: the last partition is the key generator's, and the app sees one partition less. Messages are made
and checked as between machines, but one machine holds all keys. Take the mod out before you deploy: a node without it
never uses such keys, and one with it answers nobody but a simulation on its own machine.
"""

import copy
import os
import tempfile
import time
from pathlib import Path

from flwr.app import Context, Message
from flwr.serverapp import Grid

from blindsight.errors import InputError
from blindsight.federated.flower.mod import ClientAppCallable
from blindsight.federated.identity import GENERATOR_ROLE, IDENTITY_FILE, Identity, KeyStore, Members
from blindsight.files import storage_errors
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

_MEMBERS = "members.toml"
_POLL_SECONDS = 0.5


def simulated_nodes(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the simulated party whose partition this is; the first of an app's mods."""
    config = context.node_config
    place, count = config.get("partition-id"), config.get("num-partitions")
    if not isinstance(place, int) or not isinstance(count, int):
        raise InputError(
            "simulated_nodes is for Flower's simulation, whose nodes have a partition-id. Leave it out here."
        )
    folder = _folder(context.run_id)
    members = Members.read(folder / _MEMBERS)
    own = copy.copy(context)
    if place == count - 1:
        name, more = KEY_GENERATOR, {"role": GENERATOR_ROLE, "members": str(folder / _MEMBERS)}
    else:
        name, more = _name(place), {"key-generator": members.fingerprints[KEY_GENERATOR]}
    own.node_config = {**config, **more, "home": str(_home(folder, name)), "num-partitions": count - 1}
    reply = call_next(message, own)
    context.state = own.state
    return reply


def make_parties(grid: Grid, *, members: int, seconds: float) -> tuple[KeyStore, Members]:
    """Wait for the virtual nodes and make everybody's keys, the last node's as key generator; return the server's.

    Flower starts all nodes of a simulation at once: those that are there when no more come are all.
    """
    folder, nodes, until = _folder(grid.run.run_id), -1, time.monotonic() + seconds
    while (found := len(list(grid.get_node_ids()))) <= members or found != nodes:
        if found == nodes and time.monotonic() > until:
            raise InputError(
                f"a simulation has {members + 1} nodes or more, the members (at least three: of two, each reads the "
                f"other's update in the sum) and the key generator; got {nodes}. Raise num-supernodes."
            )
        nodes = found
        time.sleep(min(_POLL_SECONDS, seconds))
    names = [AGGREGATOR, KEY_GENERATOR, *map(_name, range(nodes - 1))]
    with storage_errors("make", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    identities = {}
    for name in names:
        path = _home(folder, name) / IDENTITY_FILE
        identities[name] = Identity.load(path) if path.exists() else Identity.create(path, name)
    listed = Members({name: identity.public.fingerprint for name, identity in identities.items()})
    (folder / _MEMBERS).write_text(listed.to_toml(), encoding="utf-8")
    return KeyStore(_home(folder, AGGREGATOR)), listed


def _name(place: int) -> str:
    return f"member {place:04d}"


def _home(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "-")


def _folder(run: int) -> Path:
    return Path(tempfile.gettempdir()) / f"blindsight-simulation-{os.getuid()}" / str(run)
