"""Shamir's secret sharing: a secret in n shares of which any t give it back and any t - 1 tell nothing.

A. Shamir, "How to share a secret", CACM 1979: the secret is f(0) of a polynomial f of degree t - 1 whose other
coefficients are uniformly random modulo a prime; share i is f(i). Through any t - 1 shares and any candidate secret
goes exactly one such polynomial, so t - 1 shares are distributed alike for all secrets.

Secrets are 32 bytes, a share is 33: the prime is the smallest above 2^256. Lagrange's weights depend only on who holds
the shares, so `Reconstruction` works them out once for all secrets of a round.

`deal` and `recover` share many secrets at once, each of 16 numbers below 65521: every number has a polynomial of its
own modulo that prime, and one product of matrices evaluates them all. Its entries stay below t 2^32 < 2^53, so float64
computes them exactly.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError
from blindsight.rng import ByteSource, system_bytes

PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 33

PRIME_16, LIMBS = 65521, 16
"""The largest prime below 2^16, and how many numbers below it make a secret (or a share) of `deal`."""

Limbs = NDArray[np.uint16]


def split(secret: bytes, *, threshold: int, shares: int, source: ByteSource = system_bytes) -> list[bytes]:
    """Return f(1), f(2), ..., f(shares) for 32 secret bytes."""
    if len(secret) != SECRET_BYTES:
        raise InputError(f"a secret to share has {SECRET_BYTES} bytes; got {len(secret)}.")
    if not 1 <= threshold <= shares < PRIME:
        raise InputError(f"the threshold must be in 1 ... {shares}, the number of shares; got {threshold}.")
    coefficients = [*(_draw(source) for _ in range(threshold - 1)), int.from_bytes(secret, "big")]
    return [_evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in range(1, shares + 1)]


class Reconstruction:
    """How the holders of certain shares, by their numbers 1, 2, ..., get secrets back."""

    def __init__(self, holders: Sequence[int]) -> None:
        if len(set(holders)) != len(holders) or not all(0 < holder < PRIME for holder in holders):
            raise InputError("shares have different positive numbers.")
        self._weights = {}
        for i in holders:
            numerator = denominator = 1
            for j in holders:
                if j != i:
                    numerator = numerator * j % PRIME
                    denominator = denominator * (j - i) % PRIME
            self._weights[i] = numerator * pow(denominator, -1, PRIME) % PRIME

    def secret(self, shares: Mapping[int, bytes]) -> bytes:
        """Return the secret of which these holders have these shares; `MessageError` if they cannot belong together.

        >>> shares = split(bytes(31) + b"!", threshold=2, shares=3)
        >>> Reconstruction([1, 3]).secret({1: shares[0], 3: shares[2]})[-1:]
        b'!'
        """
        total = sum(weight * read_share(shares[holder]) for holder, weight in self._weights.items()) % PRIME
        if total >= 1 << (8 * SECRET_BYTES):
            raise MessageError("the shares of a secret do not belong together.")
        return total.to_bytes(SECRET_BYTES, "big")


def read_share(share: bytes) -> int:
    """Return a share as a number; `MessageError` if it is none."""
    number = int.from_bytes(share, "big")
    if len(share) != SHARE_BYTES or number >= PRIME:
        raise MessageError("a share of a secret is out of its range.")
    return number


def _draw(source: ByteSource) -> int:
    """Return a uniform number below the prime: 257 random bits, drawn again if they are too large."""
    while True:
        number = int.from_bytes(source(SHARE_BYTES), "big") >> 7
        if number < PRIME:
            return number


def _evaluate(coefficients: Sequence[int], x: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value * x + coefficient) % PRIME
    return value


def deal(secrets: Limbs, *, threshold: int, holders: int, source: ByteSource = system_bytes) -> Limbs:
    """Return the shares of secrets (one in each row, of `LIMBS` numbers), as an array [holder, secret, limb].

    The coefficients of every polynomial are fresh; the leading one may be 0, as the proof demands.

    >>> shares = deal(np.full((2, LIMBS), 7, dtype=np.uint16), threshold=2, holders=3)
    >>> int(recover(shares[[0, 2]], [1, 3])[1, 5])
    7
    """
    if not 1 <= threshold <= holders < PRIME_16:
        raise InputError(f"the threshold must be in 1 ... {holders}, the number of holders; got {threshold}.")
    if secrets.ndim != 2 or secrets.shape[1] != LIMBS or not below_prime(secrets):
        raise InputError(f"secrets to deal are rows of {LIMBS} numbers below {PRIME_16}.")
    coefficients = np.empty((threshold, secrets.size))
    coefficients[0] = secrets.ravel()
    coefficients[1:] = uniform_limbs((threshold - 1) * secrets.size, source).reshape(-1, secrets.size)
    powers = np.ones((holders, threshold), dtype=np.int64)
    for power in range(1, threshold):
        powers[:, power] = powers[:, power - 1] * np.arange(1, holders + 1) % PRIME_16
    return _reduced(powers.astype(np.float64) @ coefficients).reshape(holders, *secrets.shape)


def recover(shares: Limbs, holders: Sequence[int]) -> Limbs:
    """Return the secrets from shares [holder, secret, limb] of t holders, named by their numbers 1, 2, ..."""
    if len(shares) != len(holders) or len(set(holders)) != len(holders):
        raise InputError("every holder has a number of its own and one row of shares.")
    if not all(0 < holder < PRIME_16 for holder in holders) or not below_prime(shares):
        raise InputError(f"shares and the numbers of their holders are below {PRIME_16}.")
    weights = []
    for i in holders:
        numerator = denominator = 1
        for j in holders:
            if j != i:
                numerator = numerator * j % PRIME_16
                denominator = denominator * (j - i) % PRIME_16
        weights.append(numerator * pow(denominator, -1, PRIME_16) % PRIME_16)
    flat = shares.reshape(len(holders), -1).astype(np.float64)
    return _reduced(np.array(weights, dtype=np.float64) @ flat).reshape(shares.shape[1:])


def uniform_limbs(count: int, source: ByteSource = system_bytes) -> Limbs:
    """Return uniform numbers below `PRIME_16`: 16 random bits each, drawn again if they are too large."""
    found = np.empty(0, dtype=np.uint16)
    while found.size < count:
        drawn = np.frombuffer(source(2 * (count - found.size)), dtype="<u2")
        found = np.concatenate([found, drawn[drawn < PRIME_16].astype(np.uint16)])
    return found


def below_prime(numbers: Limbs) -> bool:
    return not numbers.size or int(numbers.max()) < PRIME_16


def _reduced(numbers: NDArray[np.float64]) -> Limbs:
    return (numbers.astype(np.int64) % PRIME_16).astype(np.uint16)
