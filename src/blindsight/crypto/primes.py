"""Random primes for keys: uniform among the primes of a length that are 3 modulo 4 and begin with two one bits.

Each candidate is drawn afresh from the operating system (no search upwards from one draw, which would favour primes
after long gaps). A product of small primes sieves; the survivors pass a Fermat-type screen and then Baillie-PSW with
further Miller-Rabin rounds (Menezes, van Oorschot and Vanstone, Handbook of Applied Cryptography, sections 4.2-4.4).
"""

import gmpy2
from gmpy2 import mpz

from blindsight.rng import ByteSource, system_bytes

_SIEVE = gmpy2.primorial(2000)  # the product of the 303 primes below 2000
_ROUNDS = 64


def draw_prime(bits: int, source: ByteSource = system_bytes) -> mpz:
    """Draw a prime of exactly `bits` bits (a multiple of 8): its two highest bits are 1, and it is 3 modulo 4.

    >>> prime = draw_prime(64)
    >>> prime.bit_length(), int(prime % 4)
    (64, 3)
    """
    edges = (mpz(3) << (bits - 2)) | 3
    while True:
        candidate = mpz.from_bytes(source(bits // 8), "big") | edges
        plausible = gmpy2.gcd(candidate, _SIEVE) == 1 and gmpy2.is_strong_prp(candidate, 2)
        if plausible and gmpy2.is_prime(candidate, _ROUNDS):
            return candidate


def draw_prime_pair(bits: int, source: ByteSource = system_bytes) -> tuple[mpz, mpz]:
    """Draw distinct primes p, q of bits / 2 each with gcd(p - 1, q - 1) = 2; their product has exactly `bits` bits."""
    p = draw_prime(bits // 2, source)
    while True:
        q = draw_prime(bits // 2, source)
        # Primes closer than 2^(bits/2 - 100) could be found by Fermat's method; chance alone does not bring that about.
        if abs(p - q).bit_length() > bits // 2 - 100 and gmpy2.gcd(p - 1, q - 1) == 2:
            return p, q
