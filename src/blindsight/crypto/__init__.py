"""Cryptography for sums that nobody may look into: encryption, encoding, permutations, messages.

`paillier` and `privatekey` (additive encryption of vectors), `encryptedsum` (running sums), `encoding` (fixed point and
slot packing), `permutation` (secret orders), `bfv` (lattice encryption, extra `he`), `wire` (messages as bytes),
`signing` (by whom).
"""

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.encryptedsum import EncryptedSum
from blindsight.crypto.paillier import Ciphertexts, PublicKey
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.crypto.privatekey import PrivateKey, generate_keys
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
