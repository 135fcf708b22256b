"""Shamir's secret sharing: a secret in n shares of which any t give it back and any t - 1 tell nothing.

A. Shamir, "How to share a secret", CACM 1979: the secret is f(0) of a polynomial f of degree t - 1 whose other
coefficients are uniformly random modulo a prime; share i is f(i). Through any t - 1 shares and any candidate secret
goes exactly one such polynomial, so t - 1 shares are distributed alike for all secrets.

Secrets are 32 bytes, a share is 33: the prime is the smallest above 2^256. Lagrange's weights depend only on who holds
the shares, so `Reconstruction` works them out once for all secrets of a round.
"""

from collections.abc import Mapping, Sequence

from blindsight.errors import InputError, MessageError
from blindsight.rng import ByteSource, system_bytes

PRIME = 2**256 + 297
SECRET_BYTES, SHARE_BYTES = 32, 33


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
