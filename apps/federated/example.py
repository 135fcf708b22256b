"""Run the example for other Flower apps on this machine, before or after, as real processes over TLS.

python -m apps.federated.example before|after [ROUNDS]
"""

import sys
import tempfile
from pathlib import Path

from apps.federated.deployment.loopback import ConfigValue, Loopback, NodeSpec
from blindsight.federated.identity import IDENTITY_FILE, Identity
from blindsight.federated.members import Members

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_encrypted"
OWNERS = ("ann", "bob", "cem", "dan", "eve")
SERVICES = ("aggregator", "key generator")
WAIT_SECONDS = 900.0


def main(version: str, rounds: int) -> int:
    """Run one version of examples/flower_encrypted and print what its server says."""
    config: dict[str, ConfigValue] = {"rounds": rounds}
    with tempfile.TemporaryDirectory(prefix="flower-encrypted-") as place:
        folder = Path(place)
        nodes = _plain_nodes()
        if version == "after":
            nodes = _encrypted_nodes(folder)
            config |= {"home": str(folder / "aggregator"), "members": str(folder / "members.toml")}
        with Loopback(EXAMPLE / version, nodes, folder / "flower") as network:
            run = network.run(config)
            status = network.wait(run, WAIT_SECONDS)
            sys.stdout.write(network.log(run))
    return 0 if status == "finished:completed" else 1


def _plain_nodes() -> list[NodeSpec]:
    return [NodeSpec(name, {"partition-id": place}) for place, name in enumerate(OWNERS)]


def _encrypted_nodes(folder: Path) -> list[NodeSpec]:
    """Give every party a home and an identity, and let everybody know everybody's fingerprint."""
    parties = {name: Identity.create(folder / name / IDENTITY_FILE, name).public for name in (*OWNERS, *SERVICES)}
    members = Members({name: public.fingerprint for name, public in parties.items()})
    (folder / "members.toml").write_text(members.to_toml())
    pin = {"key-generator": members.fingerprints["key generator"]}
    owners = [
        NodeSpec(name, {"partition-id": place, "home": str(folder / name), **pin}) for place, name in enumerate(OWNERS)
    ]
    generator = {"role": "key-generator", "home": str(folder / "key generator")}
    return [*owners, NodeSpec("key-generator", {**generator, "members": str(folder / "members.toml")})]


if __name__ == "__main__":
    chosen, wanted, *_ = [*sys.argv[1:], *("after", "5")[len(sys.argv) - 1 :]]
    if chosen not in ("before", "after") or not wanted.isdigit():
        sys.exit(__doc__)
    sys.exit(main(chosen, int(wanted)))
