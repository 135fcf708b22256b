"""Who takes part: the members file, the handshake by which a node proves who it is, and which node is who.

The members file says names and fingerprints, agreed before the run in a way everybody trusts; nobody else gets in. It
is TOML and has no secrets in it; it must only come from the right hands::

    [members]
    "aggregator" = "SHA256:..."
    "ann" = "SHA256:..."
    "key generator" = "SHA256:..."

In the handshake the server sends each node a fresh challenge, and the node signs it. The number of the node that is
asked stands in the question and under the signature: a node that hands its question on to another, and the answer back,
is not taken for the other. Nodes of different protocols find out at once.
"""

import hmac
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Annotated, Any

from blindsight.crypto.wire import Limit, Message, decode, encode
from blindsight.errors import BlindsightError, CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.federated.identity import Identity, KeyStore, PublicIdentity, Text, check_name, verify_signed
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.rng import ByteSource, system_bytes
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

PROTOCOL = 4
"""Raised whenever a message changes its meaning: nodes of different protocols refuse each other with a sentence."""

MEMBER_ROLE, GENERATOR_ROLE = "member", "key-generator"

_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_PURPOSE = "handshake"
_CHALLENGE_BYTES = 32


@dataclass(frozen=True)
class Members:
    """Every party of a federation by name, with the fingerprint of its keys."""

    fingerprints: Mapping[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprints", dict(sorted(self.fingerprints.items())))
        owners: dict[str, str] = {}
        for name, fingerprint in self.fingerprints.items():
            check_name(name)
            check_fingerprint(fingerprint)
            if fingerprint in owners:
                raise InputError(f"{owners[fingerprint]!r} and {name!r} have the same fingerprint; each needs its own.")
            owners[fingerprint] = name

    @classmethod
    def read(cls, path: AnyPath) -> "Members":
        """Read a members file."""
        path = as_path(path)
        with storage_errors("read", path):
            blob = path.read_bytes()
        try:
            return cls(_table(tomllib.loads(blob.decode("utf-8"))))
        except ValueError as error:  # no text, no TOML, or an InputError about what it says
            raise CorruptFileError(f"{path} is no members file: {error}") from None

    @property
    def owners(self) -> tuple[str, ...]:
        """Everybody who may contribute to sums: all but the aggregator and the key generator, sorted by name."""
        return tuple(name for name in self.fingerprints if name not in (AGGREGATOR, KEY_GENERATOR))

    def check(self, identity: PublicIdentity) -> None:
        """Refuse a party that is no member, or that has other keys than the member of that name."""
        if identity.name not in self.fingerprints:
            raise PrivacyError(f"{identity.name!r} does not take part: the members file does not name it.")
        expected = self.fingerprints[identity.name]
        if identity.fingerprint != expected:
            raise PrivacyError(
                f"{identity.name!r} shows keys with the fingerprint {identity.fingerprint}; the members file says "
                f"{expected}. Somebody else may be speaking in its name."
            )

    def to_toml(self) -> str:
        """Return the text of a members file."""
        return "[members]\n" + "".join(f"{quoted(name)} = {quoted(of)}\n" for name, of in self.fingerprints.items())


def check_fingerprint(fingerprint: str) -> None:
    """Refuse what is no fingerprint, before it is compared with one."""
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise InputError(f"a fingerprint is 'SHA256:' and 43 characters of base64; got {fingerprint!r}.")


def _table(document: dict[str, Any]) -> dict[str, str]:
    """Return the one table of a members file."""
    members = document.get("members")
    if set(document) != {"members"} or not isinstance(members, dict):
        raise InputError("it has one table, [members], and nothing else.")
    wrong = [name for name, fingerprint in members.items() if not isinstance(fingerprint, str)]
    if wrong:
        raise InputError(f"the fingerprint of {wrong[0]!r} is a text in quotes.")
    return members


def quoted(text: str) -> str:
    """Return a TOML string; the text is printable, so two characters need care."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def server_store(path: AnyPath, members: Members) -> KeyStore:
    """Return the key store of the server, which must be the aggregator among these members."""
    path = as_path(path)
    store = KeyStore(path)
    if store.identity.name != AGGREGATOR:
        raise InputError(f"{path} holds the keys of {store.identity.name!r}; the server needs those of {AGGREGATOR!r}.")
    members.check(store.identity.public)
    return store


class Hello(Message, name="federated/hello"):
    """The server wants to know who a node is; the name has no version, so that all versions can refuse each other."""

    protocol: int
    software: Text
    challenge: Annotated[bytes, Limit(_CHALLENGE_BYTES)]
    node: int


class Handshake(Message, name="federated/greeting"):
    """Who a node is, signed (`identity`)."""

    protocol: int
    software: Text
    challenge: Annotated[bytes, Limit(_CHALLENGE_BYTES)]
    role: Text
    identity: Annotated[bytes, Limit(4096)]
    node: int


def hello(node: int, source: ByteSource = system_bytes) -> tuple[bytes, bytes]:
    """Return a fresh challenge to a node, and the message that carries it."""
    challenge = source(_CHALLENGE_BYTES)
    return challenge, encode(Hello(PROTOCOL, version("blindsight-vision"), challenge, node))


def answer_hello(identity: Identity, role: str, parts: tuple[bytes, ...], node: int) -> list[bytes]:
    """Answer the server's `Hello` to this node: who speaks, in which role, and the proof."""
    if len(parts) != 1:
        raise MessageError("a hello has one part.")
    asked = decode(parts[0], Hello, max_bytes=4096)
    _check_protocol(asked.protocol, asked.software, "the server")
    if asked.node != node:
        raise MessageError(f"this is node {node}, and the hello is to node {asked.node}: somebody handed it on.")
    public = identity.public.to_bytes()
    handshake = encode(Handshake(PROTOCOL, version("blindsight-vision"), asked.challenge, role, public, node))
    return [public, identity.sign(handshake, purpose=_PURPOSE)]


def read_handshake(parts: tuple[bytes, ...], challenge: bytes, node: int) -> tuple[PublicIdentity, str]:
    """Return who answered a challenge to this node and in which role; the fingerprint has still to be compared."""
    if len(parts) != 2:
        raise MessageError("a handshake has two parts.")
    public = PublicIdentity.from_bytes(parts[0])
    handshake = decode(verify_signed(parts[1], public, purpose=_PURPOSE), Handshake, max_bytes=1 << 16)
    _check_protocol(handshake.protocol, handshake.software, f"{public.name!r}")
    if handshake.identity != parts[0] or not hmac.compare_digest(handshake.challenge, challenge):
        raise MessageError(f"the handshake of {public.name!r} answers another hello.")
    if handshake.node != node:
        raise MessageError(f"the handshake of {public.name!r} is that of node {handshake.node}.")
    return public, handshake.role


def _check_protocol(protocol: int, software: str, who: str) -> None:
    if protocol != PROTOCOL:
        raise MessageError(
            f"{who} speaks protocol {protocol} (blindsight {software}), this party protocol {PROTOCOL} (blindsight "
            f"{version('blindsight-vision')}). Install the same version of blindsight-vision everywhere."
        )


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

    def enter(self, node: int, handshake: tuple[bytes, ...], challenge: bytes) -> None:
        """Let a node in by what it answered to a hello, or note why not."""
        try:
            identity, role = read_handshake(handshake, challenge, node)
            self.members.check(identity)
        except BlindsightError as error:
            self.refuse(node, str(error))
            return
        if (role == GENERATOR_ROLE) != (identity.name == KEY_GENERATOR):
            self.refuse(node, f"{identity.name!r} comes in the role of a {role}.")
        elif self.nodes.get(identity.name, node) != node:
            self.refuse(
                node,
                f"two nodes say they are {identity.name!r}, and both have its keys: the first stays, this one is "
                "refused. Stop one of them, and find out who copied the key store.",
            )
        else:
            self.nodes[identity.name], self.identities[identity.name] = node, identity

    def refuse(self, node: int, sentence: str) -> None:
        """Note why a node is not let in."""
        self.refused[node] = sentence

    def keep(self, reachable: Collection[int]) -> Mapping[str, int]:
        """Forget the nodes that are gone; return those that are there, by name.

        Once a member's node is gone, refused ones may try again: one of them may be that member, started again.
        """
        here = {name: node for name, node in self.nodes.items() if node in reachable}
        stay = reachable if len(here) == len(self.nodes) else ()
        self.nodes = here
        self.refused = {node: sentence for node, sentence in self.refused.items() if node in stay}
        return dict(here)
