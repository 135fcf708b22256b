"""Which node is who: every node proves its identity once, members get in, and no two nodes share a name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from blindsight.errors import BlindsightError
from blindsight.federated.identity import PublicIdentity
from blindsight.federated.members import Members
from blindsight.federated.sums.greeting import read_greeting
from blindsight.learn.dphe.terms import KEY_GENERATOR


@dataclass(eq=False)
class Directory:
    """The nodes that a server knows, by name; `refused` says of others, by node, why they are not let in."""

    members: Members
    nodes: dict[str, int] = field(default_factory=dict)
    identities: dict[str, PublicIdentity] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    @property
    def known(self) -> set[int]:
        """The nodes that need not be asked who they are."""
        return {*self.nodes.values(), *self.refused}

    def enter(self, node: int, greeting: tuple[bytes, ...], challenge: bytes) -> None:
        """Let a node in by what it answered to a hello, or note why not."""
        try:
            identity, role = read_greeting(greeting, challenge, node)
            self.members.check(identity)
        except BlindsightError as error:
            self.refuse(node, str(error))
            return
        if (role == "key-generator") != (identity.name == KEY_GENERATOR):
            self.refuse(node, f"{identity.name!r} comes in the role of a {role}.")
        elif self.nodes.get(identity.name, node) != node:
            self.refuse(
                node,
                f"two nodes say they are {identity.name!r}, and both have its keys: the first stays, this one is "
                "refused. Stop one of them, and find out who copied the home.",
            )
        else:
            self.nodes[identity.name], self.identities[identity.name] = node, identity

    def refuse(self, node: int, sentence: str) -> None:
        """Note why a node is not let in."""
        self.refused[node] = sentence

    def keep(self, reachable: Collection[int]) -> Mapping[str, int]:
        """Forget the nodes that are gone; return those that are there, by name.

        Once a member's node is gone, refused ones may try again: one of them may be that member, started anew.
        """
        here = {name: node for name, node in self.nodes.items() if node in reachable}
        stay = reachable if len(here) == len(self.nodes) else ()
        self.nodes = here
        self.refused = {node: sentence for node, sentence in self.refused.items() if node in stay}
        return dict(here)
