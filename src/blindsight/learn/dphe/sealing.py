"""Bytes that only holders of a secret can read or make: AES-256-GCM under a key derived for one purpose."""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blindsight.errors import MessageError
from blindsight.rng import ByteSource, system_bytes

REQUEST_FOR_DECRYPTION = b"request for decryption"

_LABEL = b"blindsight dphe sealing 1"
_NONCE_BYTES = 12


def seal(secret: bytes, content: bytes, *, purpose: bytes, source: ByteSource = system_bytes) -> bytes:
    """Encrypt and authenticate `content`; whoever opens it must name the same `purpose`."""
    nonce = source(_NONCE_BYTES)
    return nonce + _cipher(secret, purpose).encrypt(nonce, content, purpose)


def unseal(secret: bytes, sealed: bytes, *, purpose: bytes) -> bytes:
    """Return what was sealed; anything else raises `MessageError`."""
    try:
        return _cipher(secret, purpose).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose)
    except (InvalidTag, ValueError):
        raise MessageError("a sealed message was not made with this run's secret, or for another purpose.") from None


def _cipher(secret: bytes, purpose: bytes) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=_LABEL, info=purpose).derive(secret))
