"""Authenticated encryption of messages: for one recipient's public key (HPKE), or under a shared secret (AES-256-GCM).

`seal_for` and `ExchangeKey.open` are hybrid public-key encryption as standardised (RFC 9180, base mode, DHKEM(X25519,
HKDF-SHA256), HKDF-SHA256, AES-256-GCM), with one message per key: a sealed box is the sender's one-time public key and
the ciphertext. Each box has a key of its own, so two boxes of one content differ and no nonce is ever used twice.

A box says nothing about who sealed it (sign the content: `signing`) and does not become unreadable later: whoever gets
hold of the recipient's key opens all boxes ever sealed for it.

    RFC 9180        here
    skR, pkR        `ExchangeKey`, `ExchangeKey.public`
    skE, enc        the sender's one-time key, the first 32 bytes of a box
    info            `context`, which both sides must name alike; aad is empty

`seal` and `unseal` are for parties that share a secret; each purpose has a key of its own (HKDF-SHA256).
"""

import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from blindsight.crypto.wire import Secret
from blindsight.errors import InputError, MessageError
from blindsight.rng import ByteSource, system_bytes

_KEY_BYTES = 32
_KEM_SUITE = b"KEM" + struct.pack(">H", 0x0020)
_SUITE = b"HPKE" + struct.pack(">HHH", 0x0020, 0x0001, 0x0002)
_SHARED_LABEL = b"blindsight dphe sealing 1"
_NONCE_BYTES = 12
_FIELD = 2**255 - 19
_LOW_ORDER = {
    *(0, 1, _FIELD - 1),
    0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
    0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
}  # u-coordinates on Curve25519 and its twist: 8 times such a point is the neutral element


class ExchangeKey(Secret):
    """One recipient's private key; `public` is what others seal for."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != _KEY_BYTES:
            raise InputError(f"an exchange key consists of {_KEY_BYTES} bytes; got {len(seed)}.")
        self._key = X25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, source: ByteSource = system_bytes) -> "ExchangeKey":
        return cls(source(_KEY_BYTES))

    def secret_bytes(self) -> bytes:
        return self._key.private_bytes_raw()

    def open(self, sealed: bytes, *, context: bytes) -> bytes:
        """Return what was sealed for this key in this context; anything else raises `MessageError`."""
        one_time, ciphertext = sealed[:_KEY_BYTES], sealed[_KEY_BYTES:]
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(one_time))
            cipher, nonce = _cipher(shared, one_time, self.public, context)
            return cipher.decrypt(nonce, ciphertext, None)
        except (InvalidTag, ValueError):  # ValueError: cut short, or a point that makes every secret zero
            raise MessageError("a sealed message was altered, or was sealed for another recipient or use.") from None


def of_low_order(public: bytes) -> bool:
    """Tell whether the secret agreed with a key is zero, whoever agrees: in any of its encodings (RFC 7748)."""
    return int.from_bytes(public, "little") % 2**255 % _FIELD in _LOW_ORDER


def seal_for(recipient: bytes, content: bytes, *, context: bytes, source: ByteSource = system_bytes) -> bytes:
    """Encrypt `content` for the holder of the public key `recipient`, who must name the same `context` to open it."""
    one_time = ExchangeKey.generate(source)
    try:
        shared = one_time._key.exchange(X25519PublicKey.from_public_bytes(recipient))
    except ValueError:
        raise InputError("a recipient's public key is 32 bytes and no point of low order; got another.") from None
    cipher, nonce = _cipher(shared, one_time.public, recipient, context)
    return one_time.public + cipher.encrypt(nonce, content, None)


def seal(secret: bytes, content: bytes, *, purpose: bytes, source: ByteSource = system_bytes) -> bytes:
    """Encrypt and authenticate `content` under a shared secret; to open it, name the same `purpose`."""
    nonce = source(_NONCE_BYTES)
    return nonce + _shared_cipher(secret, purpose).encrypt(nonce, content, purpose)


def unseal(secret: bytes, sealed: bytes, *, purpose: bytes) -> bytes:
    """Return what was sealed; anything else raises `MessageError`."""
    try:
        return _shared_cipher(secret, purpose).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose)
    except (InvalidTag, ValueError):
        raise MessageError("a sealed message was not made with this run's secret, or for another purpose.") from None


def _shared_cipher(secret: bytes, purpose: bytes) -> AESGCM:
    agreed = hmac.digest(_SHARED_LABEL, secret, "sha256")  # HKDF of one block (RFC 5869), ten times as fast
    return AESGCM(hmac.digest(agreed, purpose + b"\x01", "sha256"))


def _cipher(shared: bytes, one_time: bytes, recipient: bytes, context: bytes) -> tuple[AESGCM, bytes]:
    """Return the cipher and the nonce of one box (RFC 9180, sections 4.1 and 5.1)."""
    agreed = _extract(_KEM_SUITE, b"", b"eae_prk", shared)
    secret = _expand(_KEM_SUITE, agreed, b"shared_secret", one_time + recipient, 32)
    schedule = b"\0" + _extract(_SUITE, b"", b"psk_id_hash", b"") + _extract(_SUITE, b"", b"info_hash", context)
    secret = _extract(_SUITE, secret, b"secret", b"")
    key = _expand(_SUITE, secret, b"key", schedule, 32)
    return AESGCM(key), _expand(_SUITE, secret, b"base_nonce", schedule, 12)


def _extract(suite: bytes, salt: bytes, label: bytes, material: bytes) -> bytes:
    return hmac.digest(salt, b"HPKE-v1" + suite + label + material, "sha256")


def _expand(suite: bytes, secret: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labelled = struct.pack(">H", length) + b"HPKE-v1" + suite + label + info
    return HKDFExpand(algorithm=SHA256(), length=length, info=labelled).derive(secret)
