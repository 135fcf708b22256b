"""Who a party is: its long-term keys, the sealed messages that it sends and reads with them, the folder they lie in.

An `Identity` is two long-term keys, one to sign (Ed25519) and one to receive sealed messages (X25519), in a file that
its owner alone can read. Others know a party by its name and *fingerprint*, a hash of both public keys, which they get
in a way they trust: read aloud, or in the members file. So it does not matter who hands on a `PublicIdentity`.

Parties speak through a server that can read, lose, repeat and swap what it carries. A *sealed message* is therefore
signed by its sender and then sealed for its recipient; the recipient's fingerprint, the purpose and the run stand under
the signature. It is refused if its recipient handed it on, if it was made for another run or use, or if a bit was
altered. It can be repeated: what must happen only once carries a round, which the reader compares.

A `KeyStore` is the folder of a party, which nobody else can read, with its identity and its part of every run.
"""

import base64
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from blindsight.crypto.sealedbox import ExchangeKey, seal_for
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import Limit, Message, Secret, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, StorageError
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.sums.storage import read_state, refuse_to_overwrite, write_state

IDENTITY_FILE = "identity.key"
"""The file in a key store that holds the identity."""

_FINGERPRINT_LABEL = b"blindsight identity 1\0"
_SEALED_CONTEXT = b"blindsight sealed message 2"

Key = Annotated[bytes, Limit(32)]
Text = Annotated[str, Limit(256)]


class _PublicMessage(Message, name="federated/identity.1"):
    name: Text
    signing_key: Key
    exchange_key: Key


class _SecretState(Message, name="federated/identity-state.1"):
    name: Text
    signing_seed: Key
    exchange_seed: Key


class _Statement(Message, name="federated/statement.1"):
    purpose: Text
    body: bytes


class _Sealed(Message, name="federated/sealed.2"):
    recipient: Text
    purpose: Text
    run: Text
    body: bytes


@dataclass(frozen=True)
class PublicIdentity:
    """What others know of a party; believe it when its `fingerprint` is the one you were told."""

    name: str
    signing_key: bytes = field(repr=False)
    exchange_key: bytes = field(repr=False)

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
        """Return it as a message."""
        return encode(_PublicMessage(self.name, self.signing_key, self.exchange_key))

    @classmethod
    def from_bytes(cls, blob: bytes) -> "PublicIdentity":
        """Read what `to_bytes` wrote; its fingerprint has still to be compared."""
        message = decode(blob, _PublicMessage, max_bytes=1024)
        try:
            return cls(message.name, message.signing_key, message.exchange_key)
        except InputError as error:
            raise MessageError(f"the message holds no identity: {error}") from None


class Identity(Secret):
    """One party's own keys. `public` is for the others; `signer` signs as this party in protocols that sign."""

    __slots__ = ("_exchange", "public", "signer")

    def __init__(self, name: str, signer: SigningKey, exchange: ExchangeKey) -> None:
        """Take the keys; `create` makes new ones and `load` reads them."""
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
        """Read the keys from a file that nobody else can read."""
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
        """The name this party goes by."""
        return self.public.name

    def sign(self, body: bytes, *, purpose: str) -> bytes:
        """Return an envelope, readable by all, in which this party vouches for `body`; see `verify_signed`."""
        return self.signer.sign(encode(_Statement(purpose, body)), author=self.name)

    def seal(self, body: bytes, *, to: PublicIdentity, purpose: str, run: str) -> bytes:
        """Return a message that only `to` can read, and that says it is from this party, for this purpose and run."""
        content = encode(_Sealed(to.fingerprint, purpose, run, body))
        return seal_for(to.exchange_key, self.signer.sign(content, author=self.name), context=_SEALED_CONTEXT)

    def unseal(self, message: bytes, *, sender: PublicIdentity, purpose: str, run: str) -> bytes:
        """Return the body that `sender` sealed for this party, this purpose and run, or raise `MessageError`."""
        envelope = self._exchange.open(message, context=_SEALED_CONTEXT)
        opened = decode(_signed_by(sender, envelope), _Sealed)
        if opened.recipient != self.public.fingerprint:
            raise MessageError(f"the message of {sender.name!r} was sealed for somebody else and handed on.")
        _check_purpose(sender, opened.purpose, purpose)
        if opened.run != run:
            raise MessageError(f"the message of {sender.name!r} is for run {opened.run!r}; this is run {run!r}.")
        return opened.body


def verify_signed(envelope: bytes, author: PublicIdentity, *, purpose: str) -> bytes:
    """Return the body that `author` signed for this purpose (see `Identity.sign`), or raise `MessageError`."""
    statement = decode(_signed_by(author, envelope), _Statement)
    _check_purpose(author, statement.purpose, purpose)
    return statement.body


def check_name(name: str) -> None:
    """Refuse what cannot be a party's name: it is shown, compared by eye and written to files."""
    if not 1 <= len(name) <= 64 or not name.isprintable() or name != name.strip():
        raise InputError(f"a name is 1 to 64 printable characters without spaces around them; got {name!r}.")


def _signed_by(author: PublicIdentity, envelope: bytes) -> bytes:
    return verify(envelope, {author.name: author.signing_key})[1]


def _check_purpose(author: PublicIdentity, got: str, expected: str) -> None:
    if got != expected:
        raise MessageError(f"what {author.name!r} signed is for {got!r}; expected {expected!r}.")


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
        """The party's keys."""
        return Identity.load(self.path / IDENTITY_FILE)

    def folder(self, run: str) -> Path:
        """Return where a run is kept, if it is; its name was chosen by somebody else, so it is not used as a path."""
        return self.path / "runs" / hashlib.sha256(run.encode()).hexdigest()[:32]

    def run(self, name: str) -> Path:
        """Return the folder of a run, made if need be."""
        folder = self.folder(name)
        with storage_errors("make", folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
