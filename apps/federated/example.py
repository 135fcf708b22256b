"""Run the example for other Flower apps on this machine, before or after, as real processes over TLS.

python -m apps.federated.example before|after [ROUNDS]
"""

import sys
import tempfile
from pathlib import Path

from apps.federated.deployment.federation import LocalFederation
from apps.federated.deployment.loopback import ConfigValue, Loopback, NodeSpec
from blindsight.sums.terms import AGGREGATOR

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_encrypted"
OWNERS = ("ann", "bob", "cem", "dan", "eve")
WAIT_SECONDS = 900.0


def main(version: str, rounds: int) -> int:
    """Run one version of examples/flower_encrypted and print what its server says."""
    with tempfile.TemporaryDirectory(prefix="flower-encrypted-") as place:
        nodes, config = parties(version, Path(place))
        with Loopback(EXAMPLE / version, nodes, Path(place) / "flower") as network:
            run = network.run({**config, "rounds": rounds})
            status = network.wait(run, WAIT_SECONDS)
            sys.stdout.write(network.log(run))
    return 0 if status == "finished:completed" else 1


def parties(version: str, folder: Path) -> tuple[list[NodeSpec], dict[str, ConfigValue]]:
    """Return the nodes and the server's settings: without encryption nobody needs an identity or a key generator."""
    parts: list[dict[str, ConfigValue]] = [{"partition-id": place} for place in range(len(OWNERS))]
    if version == "before":
        return [NodeSpec(name, part) for name, part in zip(OWNERS, parts, strict=True)], {}
    federation = LocalFederation.settle(folder, OWNERS)
    owners = [federation.node(name, **part) for name, part in zip(OWNERS, parts, strict=True)]
    server: dict[str, ConfigValue] = {
        "home": str(federation.home(AGGREGATOR)),
        "members-file": str(folder / "members.toml"),
    }
    return [*owners, federation.generator_node()], server


if __name__ == "__main__":
    chosen, wanted, *_ = [*sys.argv[1:], *("after", "5")[len(sys.argv) - 1 :]]
    if chosen not in ("before", "after") or not wanted.isdigit():
        sys.exit(__doc__)
    sys.exit(main(chosen, int(wanted)))
