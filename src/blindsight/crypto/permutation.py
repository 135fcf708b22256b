"""Secret permutations that everyone who knows a secret derives alike, and nobody else can tell from random ones.

HKDF-SHA256 (RFC 5869) turns the secret and a *context* (run, round, role, user, ...) into an AES-256 key whose counter
stream gives one 64-bit key per element; the permutation is the order of these keys.

    Exactness. Independent uniform keys that are all distinct stand in each of their n! orders equally often. If two are
    equal, all n are discarded and the next n are drawn: that treats all orders alike. So the permutation is exactly
    uniform if the stream is. (For a million elements a second draw is needed once in 37 million times.)

DPHE (Yonetani et al., ICCV 2017, sections 2.3-2.4) writes phi for the permutation shared by all users and phi^(n) for
the one that user n shares with the aggregator. The paper draws them once, so that an aggregator can link an owner's
support over rounds. Here the round belongs in the context, as in
``derive_permutation(secret, size=d, run="a", round=3, role="users")``.
"""

import struct
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from blindsight.crypto.wire import Secret
from blindsight.errors import InputError

MAX_SIZE = 1 << 28
_LABEL = b"blindsight permutation 1"


class SecretPermutation(Secret):
    """A permutation phi of 0 ... size - 1."""

    __slots__ = ("_image", "_origin")

    def __init__(self, image: NDArray[np.int64]) -> None:
        image = np.array(image, dtype=np.int64)
        if image.ndim != 1 or not np.array_equal(np.sort(image), np.arange(image.size)):
            raise InputError("a permutation of n elements names each of 0 ... n - 1 once.")
        origin = np.empty_like(image)
        origin[image] = np.arange(image.size)
        self._image, self._origin = image, origin

    @property
    def size(self) -> int:
        return len(self._image)

    def forward(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the elements at `indices` go: phi K."""
        return self._image[_checked(indices, self.size)]

    def backward(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the elements that are now at `indices` came from: phi^-1 K."""
        return self._origin[_checked(indices, self.size)]

    def shuffle(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the array in which element i of `values` stands at place phi(i)."""
        return values[self._origin]

    def restore(self, values: NDArray[Any]) -> NDArray[Any]:
        """Undo `shuffle`."""
        return values[self._image]


def derive_permutation(secret: bytes, *, size: int, **context: str | int | bytes) -> SecretPermutation:
    """Return the permutation of `size` elements that belongs to a secret (16 random bytes or more) and a context."""
    if len(secret) < 16:
        raise InputError(f"a permutation's secret has at least 16 bytes; got {len(secret)}.")
    if not 0 <= size <= MAX_SIZE:
        raise InputError(f"a permutation has 0 to {MAX_SIZE} elements; got {size}.")
    key = HKDF(algorithm=SHA256(), length=32, salt=_LABEL, info=_context_bytes(size, context)).derive(secret)
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    while True:
        keys = np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8").astype(np.uint64)
        origin = np.argsort(keys)
        ordered = keys[origin]
        if (ordered[1:] != ordered[:-1]).all():
            return SecretPermutation(origin)


def _context_bytes(size: int, context: dict[str, str | int | bytes]) -> bytes:
    """Return one encoding per context: names in order, every part with its type and length."""
    parts = [b"size", b"i" + str(size).encode()]
    for name in sorted(context):
        value = context[name]
        if isinstance(value, bytes):
            tagged = b"b" + value
        elif isinstance(value, str):
            tagged = b"s" + value.encode("utf-8")
        else:
            tagged = b"i" + str(int(value)).encode()
        parts += [name.encode("utf-8"), tagged]
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def _checked(indices: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    indices = np.asarray(indices)
    if indices.dtype.kind not in "iu" or ((indices < 0) | (indices >= size)).any():
        raise InputError(f"indices must be whole numbers in 0 ... {size - 1}.")
    return indices
