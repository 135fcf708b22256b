"""Digital signatures (Ed25519) around messages: a contribution cannot be forged or ascribed to another author.

A `Signed` envelope carries the author's name, the message's bytes and the signature over both (RFC 8032; the signed
bytes begin with a label of their own, so no other use of the key can produce them). A signature does not make a message
fresh: bind the run and the round inside the message and refuse what was seen before.
"""

import struct
from collections.abc import Mapping
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from blindsight.crypto.wire import MAX_BYTES, Limit, Message, Secret, decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.rng import ByteSource, system_bytes

_LABEL = b"blindsight signed message 1\0"
_FIELD = 2**255 - 19
_ORDER_EIGHT = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = {0, 1, _FIELD - 1, _ORDER_EIGHT, _FIELD - _ORDER_EIGHT}  # y-coordinates on the curve of Ed25519


class Signed(Message, name="signed.1"):
    """A message and who vouches for it."""

    author: Annotated[str, Limit(256)]
    body: bytes
    signature: Annotated[bytes, Limit(64)]


class SigningKey(Secret):
    """One author's private key; `public` is what the others need to know."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise InputError(f"a signing key consists of 32 bytes; got {len(seed)}.")
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, source: ByteSource = system_bytes) -> "SigningKey":
        return cls(source(32))

    def secret_bytes(self) -> bytes:
        """Return the 32 secret bytes, for the owner's own storage (mode 0600)."""
        return self._key.private_bytes_raw()

    def sign(self, body: bytes, *, author: str) -> bytes:
        """Return an envelope in which `author` vouches for `body`."""
        return encode(Signed(author, body, self._key.sign(_signed_bytes(author, body))))


def verify(envelope: bytes, keys: Mapping[str, bytes], *, max_bytes: int = MAX_BYTES) -> tuple[str, bytes]:
    """Return (author, body) of an envelope that bears the signature of that author, whose public key is in `keys`."""
    signed = decode(envelope, Signed, max_bytes=max_bytes)
    if signed.author not in keys:
        raise MessageError("the message is from someone who does not take part.")
    try:
        if of_small_order(keys[signed.author]):
            raise ValueError("a key of small order")
        key = Ed25519PublicKey.from_public_bytes(keys[signed.author])
        key.verify(signed.signature, _signed_bytes(signed.author, signed.body))
    except (InvalidSignature, ValueError):
        raise MessageError(f"the message was not signed by {signed.author!r}.") from None
    return signed.author, signed.body


def of_small_order(public: bytes) -> bool:
    """Return True if eight times the point of a public key is nothing, in any of its encodings (RFC 8032).

    Signatures by such a key fit many messages, one even all of them.
    """
    return int.from_bytes(public, "little") % 2**255 % _FIELD in _SMALL_ORDER


def _signed_bytes(author: str, body: bytes) -> bytes:
    name = author.encode("utf-8")
    return _LABEL + struct.pack(">I", len(name)) + name + body
