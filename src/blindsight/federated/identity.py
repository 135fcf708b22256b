"""Identities: a party's long-term keys, what it seals and signs, the folder they lie in, and whom it knows.

An `Identity` is two long-term keys, one to sign (Ed25519) and one to receive sealed messages (X25519), in a file that
its owner alone can read. Others know a party by its name and *fingerprint*, a hash of both public keys, which they get
in a way they trust. So it does not matter who hands on a `PublicIdentity`.

Parties speak through a server that can read, lose, repeat and swap what it carries. A *sealed message* is therefore
signed by its sender and then sealed for its recipient; the recipient's fingerprint, the purpose and the run stand under
the signature. It is refused if its recipient handed it on, if it was made for another run or use, or if a bit was
altered. It can be repeated: what must happen only once carries a round, which the reader compares.

A `KeyStore` is a party's folder, which nobody else can read, with its identity and its part of every run. The *members
file* (TOML, no secrets) lists names and fingerprints, agreed before the run in a way everybody trusts; nobody else gets
in. It must come from the right hands::

    [members]
    "aggregator" = "SHA256:..."
    "ann" = "SHA256:..."
    "key generator" = "SHA256:..."

In the *handshake* the server sends each node a hello with a fresh challenge and the node's number, and the node signs
it: a node that hands the hello on to another, and the answer back, is not taken for the other. Nodes of different
protocols find out at once.
"""

import base64
import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from blindsight.crypto.sealedbox import ExchangeKey, of_low_order, seal_for
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import Limit, Message, Secret, decode, encode
from blindsight.errors import (
    BlindsightError,
    CorruptFileError,
    InputError,
    MessageError,
    PrivacyError,
    StorageError,
    VersionError,
)
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.rng import ByteSource, system_bytes
from blindsight.sums.messages import read_state, refuse_to_overwrite, write_state
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

IDENTITY_FILE = "identity.key"

PROTOCOL = 7
"""Raised whenever a message changes its meaning: nodes of different protocols refuse each other with a sentence."""

MEMBER_ROLE, GENERATOR_ROLE = "member", "key-generator"

_FINGERPRINT_LABEL = b"blindsight identity 1\0"
_SEALED_CONTEXT = b"blindsight sealed message 2"
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_HANDSHAKE = "handshake"

Key = Annotated[bytes, Limit(32)]
Text = Annotated[str, Limit(256)]


class PublicIdentity(Message, name="federated/identity.1"):
    """What others know of a party; believe it when its `fingerprint` is the one you were told."""

    name: Text
    signing_key: Key
    exchange_key: Key

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.signing_key) != 32 or len(self.exchange_key) != 32:
            raise InputError("the public keys of an identity have 32 bytes each.")

    @property
    def fingerprint(self) -> str:
        """Both keys in 50 characters, to compare by eye.

        >>> PublicIdentity("ann", bytes(32), bytes(32)).fingerprint
        'SHA256:NN32lUxHEmE8uc3yPqPi0tBn1MdCHin+CuIp0V1mZ4g'
        """
        digest = hashlib.sha256(_FINGERPRINT_LABEL + self.signing_key + self.exchange_key).digest()
        return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")

    def to_bytes(self) -> bytes:
        return encode(self)

    @classmethod
    def from_bytes(cls, blob: bytes) -> "PublicIdentity":
        """Read what `to_bytes` wrote; its fingerprint has still to be compared."""
        try:
            found = decode(blob, cls, max_bytes=1024)
        except InputError as error:
            raise MessageError(f"the message holds no identity: {error}") from None
        if of_low_order(found.exchange_key):
            raise MessageError(f"the exchange key of {found.name!r} is of low order: nothing can be sealed for it.")
        return found


class _SecretState(Message, name="federated/identity-state.1"):
    name: Text
    signing_seed: Key
    exchange_seed: Key


class _Statement(Message, name="federated/statement.2"):
    """What is under a signature; what all may read has no recipient and no run."""

    recipient: Text
    purpose: Text
    run: Text
    body: bytes


class Identity(Secret):
    """One party's own keys. `public` is for the others; `signer` signs as this party in protocols that sign."""

    __slots__ = ("_exchange", "public", "signer")

    def __init__(self, name: str, signer: SigningKey, exchange: ExchangeKey) -> None:
        self.public = PublicIdentity(name, signer.public, exchange.public)
        self.signer = signer
        self._exchange = exchange

    @classmethod
    def create(cls, path: AnyPath, name: str) -> "Identity":
        """Make new keys and keep them in a new file (mode 0600, in a folder made with 0700 if need be)."""
        path = as_path(path)
        made = cls(name, SigningKey.generate(), ExchangeKey.generate())
        refuse_to_overwrite(path)
        with storage_errors("make", path.parent):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_state(path, _SecretState(name, made.signer.secret_bytes(), made._exchange.secret_bytes()))
        return made

    @classmethod
    def load(cls, path: AnyPath) -> "Identity":
        path = as_path(path)
        if not path.exists():
            remedy = f"Make one with: blindsight federation identity --home {path.parent} --name NAME"
            raise StorageError(f"there is no identity at {path}. {remedy}")
        state = read_state(path, _SecretState)
        try:
            return cls(state.name, SigningKey(state.signing_seed), ExchangeKey(state.exchange_seed))
        except InputError as error:
            raise CorruptFileError(f"{path} holds no identity: {error}") from None

    @property
    def name(self) -> str:
        return self.public.name

    def sign(self, body: bytes, *, purpose: str, recipient: str = "", run: str = "") -> bytes:
        """Return an envelope, readable by all, in which this party vouches for `body`; see `verify_signed`."""
        return self.signer.sign(encode(_Statement(recipient, purpose, run, body)), author=self.name)

    def seal(self, body: bytes, *, to: PublicIdentity, purpose: str, run: str) -> bytes:
        """Return a message that only `to` can read, and that says it is from this party, for this purpose and run."""
        signed = self.sign(body, purpose=purpose, recipient=to.fingerprint, run=run)
        return seal_for(to.exchange_key, signed, context=_SEALED_CONTEXT)

    def unseal(self, message: bytes, *, sender: PublicIdentity, purpose: str, run: str) -> bytes:
        """Return the body that `sender` sealed for this party, this purpose and run, or raise `MessageError`."""
        envelope = self._exchange.open(message, context=_SEALED_CONTEXT)
        return verify_signed(envelope, sender, purpose=purpose, recipient=self.public.fingerprint, run=run)


def verify_signed(
    envelope: bytes, author: PublicIdentity, *, purpose: str, recipient: str = "", run: str = ""
) -> bytes:
    """Return the body that `author` signed for this purpose (see `Identity.sign`), or raise `MessageError`."""
    signed = decode(verify(envelope, {author.name: author.signing_key})[1], _Statement)
    if signed.recipient != recipient:
        raise MessageError(f"the message of {author.name!r} was sealed for somebody else and handed on.")
    if signed.purpose != purpose:
        raise MessageError(f"what {author.name!r} signed is for {signed.purpose!r}; expected {purpose!r}.")
    if signed.run != run:
        raise MessageError(f"the message of {author.name!r} is for run {signed.run!r}; this is run {run!r}.")
    return signed.body


def check_name(name: str) -> None:
    """Refuse what cannot be a party's name: it is shown, compared by eye and written to files."""
    if not 1 <= len(name) <= 64 or not name.isprintable() or name != name.strip():
        raise InputError(f"a name is 1 to 64 printable characters without spaces around them; got {name!r}.")


@dataclass(frozen=True)
class KeyStore:
    """The folder at `path`, which must hold an identity already (`blindsight federation identity` makes one)."""

    path: Path

    def __post_init__(self) -> None:
        """Refuse a folder into which others can look; its path may come as text and begin with ~."""
        object.__setattr__(self, "path", as_path(self.path))
        with storage_errors("use", self.path, "Make it with: blindsight federation identity"):
            mode = self.path.stat().st_mode
        if mode & 0o077:
            raise StorageError(f"others can look into {self.path}. Run: chmod 700 {self.path}")

    @cached_property
    def identity(self) -> Identity:
        return Identity.load(self.path / IDENTITY_FILE)

    def folder(self, run: str) -> Path:
        """Return where a run is kept, if it is; its name was chosen by somebody else, so it is not used as a path."""
        return self.path / "runs" / hashlib.sha256(run.encode()).hexdigest()[:32]

    def run(self, name: str) -> Path:
        folder = self.folder(name)
        with storage_errors("make", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


# Whom a party knows


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
        path = as_path(path)
        with storage_errors("read", path):
            blob = path.read_bytes()
        try:
            return cls(_table(tomllib.loads(blob.decode("utf-8"))))
        except ValueError as error:  # no text, no TOML, or an InputError about what it says
            raise CorruptFileError(f"{path} is no members file: {error}") from None

    @property
    def names(self) -> tuple[str, ...]:
        """The members of runs: all parties but the aggregator and the key generator, sorted by name."""
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
        return "[members]\n" + "".join(f"{quoted(name)} = {quoted(of)}\n" for name, of in self.fingerprints.items())


def check_fingerprint(fingerprint: str) -> None:
    if not _FINGERPRINT.fullmatch(fingerprint):
        raise InputError(f"a fingerprint is 'SHA256:' and 43 characters of base64; got {fingerprint!r}.")


def _table(document: dict[str, Any]) -> dict[str, str]:
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
    store = KeyStore(as_path(path))
    if store.identity.name != AGGREGATOR:
        raise InputError(f"{path} holds the keys of {store.identity.name!r}; the server needs those of {AGGREGATOR!r}.")
    members.check(store.identity.public)
    return store


# Which node is who


class Hello(Message, name="federated/hello"):
    """The server wants to know who a node is; the name has no version, so that all versions can refuse each other."""

    protocol: int
    software: Text
    challenge: Key
    node: int


class Handshake(Message, name="federated/handshake.1"):
    """Who a node is, and the hello that it answers; signed."""

    hello: bytes
    role: Text
    identity: bytes


def software() -> str:
    return version("blindsight-vision")


def check_protocol(protocol: object, named: object) -> None:
    """Refuse what comes from a party of another protocol, whose software is of the version `named`."""
    if protocol != PROTOCOL:
        theirs = f"protocol {protocol} (blindsight {named})" if isinstance(protocol, int) else "an older protocol"
        raise VersionError(
            f"the message comes from {theirs}; this party has protocol {PROTOCOL} (blindsight {software()}). Install "
            "the same version of blindsight-vision at all parties, and begin another run."
        )


def hello(node: int, source: ByteSource = system_bytes) -> bytes:
    return encode(Hello(PROTOCOL, software(), source(32), node))


def answer_hello(identity: Identity, role: str, parts: tuple[bytes, ...], node: int) -> list[bytes]:
    if len(parts) != 1:
        raise MessageError("a hello has one part.")
    asked = decode(parts[0], Hello, max_bytes=4096)
    try:
        check_protocol(asked.protocol, asked.software)
    except VersionError as error:
        raise VersionError(f"{identity.name!r} is of another version: {error}") from None
    if asked.node != node:
        raise MessageError(f"this is node {node}, and the hello is to node {asked.node}: somebody handed it on.")
    public = identity.public.to_bytes()
    return [public, identity.sign(encode(Handshake(parts[0], role, public)), purpose=_HANDSHAKE)]


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

    def enter(self, node: int, parts: tuple[bytes, ...], hello: bytes) -> None:
        """Let a node in by what it answered to a hello, or note why not."""
        try:
            identity = self._read(node, parts, hello)
        except BlindsightError as error:
            self.refused[node] = str(error)
        else:
            self.nodes[identity.name], self.identities[identity.name] = node, identity

    def _read(self, node: int, parts: tuple[bytes, ...], hello: bytes) -> PublicIdentity:
        if len(parts) != 2:
            raise MessageError("a handshake has two parts.")
        identity = PublicIdentity.from_bytes(parts[0])
        handshake = decode(verify_signed(parts[1], identity, purpose=_HANDSHAKE), Handshake, max_bytes=1 << 16)
        if (handshake.identity, handshake.hello) != (parts[0], hello):
            raise MessageError(f"the handshake of {identity.name!r} answers another hello than went to this node.")
        self.members.check(identity)
        if (handshake.role == GENERATOR_ROLE) != (identity.name == KEY_GENERATOR):
            raise PrivacyError(f"{identity.name!r} comes in the role of a {handshake.role}.")
        if self.nodes.get(identity.name, node) != node:
            raise PrivacyError(
                f"two nodes say they are {identity.name!r}, and both have its keys: the first stays, this one is "
                "refused. Stop one of them, and find out who copied the key store."
            )
        return identity

    def keep(self, reachable: Collection[int]) -> None:
        """Forget nodes that are gone; then refused ones may try again: one may be that member, started again."""
        here = {name: node for name, node in self.nodes.items() if node in reachable}
        stay = reachable if len(here) == len(self.nodes) else ()
        self.nodes = here
        self.refused = {node: sentence for node, sentence in self.refused.items() if node in stay}
