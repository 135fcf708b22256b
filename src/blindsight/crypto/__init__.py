"""Cryptography for sums that nobody may look into: encryption, encoding, permutations, messages.

`paillier` (additive encryption of vectors, keys and running sums), `bfv` (lattice encryption, extra `he`), `encoding`
(fixed point and slot packing), `permutation` (secret orders), `shamir` (secret sharing), `sealedbox` (authenticated
encryption), `signing` (signatures), `wire` (messages as bytes).
"""

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.paillier import Ciphertexts, EncryptedSum, PrivateKey, PublicKey, generate_keys
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.crypto.signing import SigningKey, verify
from blindsight.crypto.wire import Limit, Message, decode, encode

__all__ = [
    "Ciphertexts",
    "EncryptedSum",
    "FixedPoint",
    "Limit",
    "Message",
    "PrivateKey",
    "PublicKey",
    "SecretPermutation",
    "SigningKey",
    "SlotPacking",
    "decode",
    "derive_permutation",
    "encode",
    "generate_keys",
    "verify",
]
