"""Short secrets become long masks: uniform vectors modulo 2^b that only those who know the secret can make.

HKDF-SHA256 (RFC 5869) turns a secret and its context into an AES-256 key, and that key's counter stream is the mask.
Two users get the same secret by X25519 (RFC 7748). Masks are added modulo 2^b (`residues`): a uniform mask makes the
masked number uniform, whatever it hides.
"""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blindsight.errors import MessageError
from blindsight.learn.residues import Residues, residue_type
from blindsight.learn.sumterms import SumTerms

_LABEL = b"blindsight masks 1"


def expand(secret: bytes, terms: SumTerms, *, context: bytes) -> Residues:
    """Return the mask that belongs to a secret and a context: one residue per weight."""
    kind = residue_type(terms)
    stream = Cipher(AES256(derive(secret, context)), CTR(bytes(16))).encryptor()
    return np.frombuffer(stream.update(bytes(terms.dimension * kind.itemsize)), dtype=kind)


def derive(secret: bytes, context: bytes) -> bytes:
    """Return 32 bytes that belong to a secret and a context."""
    return HKDF(algorithm=SHA256(), length=32, salt=_LABEL, info=context).derive(secret)


def public_half(private: bytes) -> bytes:
    """Return the X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """Return the secret that the owners of two key pairs have in common."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise MessageError("a public key is not one that a secret can be agreed with.") from None
