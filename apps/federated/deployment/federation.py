"""A federation on one machine, ready to start: every party with a key store, an identity and data of its own.

FOLDER/homes/NAME/         a party's key store: its identity, its data, its state
FOLDER/members.toml        who takes part, by fingerprint; on several machines everybody gets this from hands it trusts
FOLDER/flower/             what `Loopback` needs
FOLDER/out/                the model and the report
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.federated.deployment.loopback import ConfigValue, Loopback, NodeSpec
from blindsight.federated.commands import APP
from blindsight.federated.identity import IDENTITY_FILE, Identity, Members
from blindsight.files import atomic_writer
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

GENERATOR_NODE = "key-generator"

Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class LocalFederation:
    """The key stores of a federation in one folder; `insecure` allows short keys, for tests."""

    folder: Path
    members: Members
    insecure: bool = False

    @classmethod
    def prepare(
        cls, folder: Path, shares: Mapping[str, Pair], public: Pair, validation: Pair, *, insecure: bool = False
    ) -> "LocalFederation":
        """Make key stores for all parties, with the data of each."""
        federation = cls.settle(folder, shares, insecure=insecure)
        for name, pair in shares.items():
            write_pair(federation.home(name) / "data.npz", pair)
        write_pair(federation.home(AGGREGATOR) / "public.npz", public)
        write_pair(federation.home(AGGREGATOR) / "validation.npz", validation)
        return federation

    @classmethod
    def settle(cls, folder: Path, owners: Iterable[str], *, insecure: bool = False) -> "LocalFederation":
        """Make key stores for all parties and the members file; where the data are is for an app to say."""
        fingerprints = {}
        for name in (AGGREGATOR, KEY_GENERATOR, *owners):
            fingerprints[name] = Identity.create(_home(folder, name) / IDENTITY_FILE, name).public.fingerprint
        members = Members(fingerprints)
        with atomic_writer(folder / "members.toml") as stream:
            stream.write(members.to_toml().encode())
        return cls(folder, members, insecure)

    @property
    def out(self) -> Path:
        """Where the server writes the model and the report."""
        return self.folder / "out"

    def home(self, name: str) -> Path:
        """Return the folder of a party's key store."""
        return _home(self.folder, name)

    def node(self, name: str, **others: ConfigValue) -> NodeSpec:
        """Return a member's node; `others` are settings of its own."""
        config: dict[str, ConfigValue] = {
            "role": "member",
            "home": str(self.home(name)),
            "key-generator": self.members.fingerprints[KEY_GENERATOR],
            "data": str(self.home(name) / "data.npz"),
            "insecure": self.insecure,
        }
        return NodeSpec(name, {**config, **others})

    def generator_node(self) -> NodeSpec:
        """Return the key generator's node."""
        config: dict[str, ConfigValue] = {
            "role": "key-generator",
            "home": str(self.home(KEY_GENERATOR)),
            "members-file": str(self.folder / "members.toml"),
            "insecure": self.insecure,
        }
        return NodeSpec(GENERATOR_NODE, config)

    def loopback(self, nodes: Sequence[NodeSpec] | None = None, **others: Any) -> Loopback:
        """Return all nodes over loopback, not started yet."""
        everyone = [self.generator_node(), *map(self.node, self.members.names)] if nodes is None else nodes
        return Loopback(APP, everyone, self.folder / "flower", **others)

    def run_config(self, **settings: ConfigValue) -> dict[str, ConfigValue]:
        """Return the settings of a run with the server's files, and these; underscores stand for dashes."""
        server = self.home(AGGREGATOR)
        config: dict[str, ConfigValue] = {
            "home": str(server),
            "members-file": str(self.folder / "members.toml"),
            "public": str(server / "public.npz"),
            "validation": str(server / "validation.npz"),
            "out": str(self.out),
            "members": len(self.members.names),
            "insecure": self.insecure,
        }
        return config | {name.replace("_", "-"): value for name, value in settings.items()}


def write_pair(path: Path, pair: Pair) -> None:
    """Write features and labels as the app reads them, readable by their owner alone."""
    with atomic_writer(path, private=True) as stream:
        np.savez(stream, allow_pickle=False, features=pair[0], labels=pair[1])


def _home(folder: Path, name: str) -> Path:
    return folder / "homes" / name.replace(" ", "-")
