"""Shamir's shares: any t give the secret back, fewer tell nothing, and what is no share is refused."""

import itertools

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from blindsight.crypto.shamir import PRIME, SHARE_BYTES, Reconstruction, split
from blindsight.errors import InputError, MessageError
from blindsight.rng import seeded_bytes


def recombine(shares, numbers):
    return Reconstruction(numbers).secret({number: shares[number - 1] for number in numbers})


def test_the_prime_is_the_first_above_all_secrets():
    assert gmpy2.next_prime(2**256) == PRIME


@given(secret=st.binary(min_size=32, max_size=32), data=st.data())
def test_any_t_shares_give_the_secret(secret, data):
    count = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, count))
    shares = split(secret, threshold=threshold, shares=count)
    numbers = data.draw(st.permutations(range(1, count + 1)))[:threshold]
    assert recombine(shares, tuple(numbers)) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_extreme_secrets_from_any_three_shares_or_more(secret):
    shares = split(secret, threshold=3, shares=5, source=seeded_bytes(1))
    for size in (3, 5):
        assert all(recombine(shares, numbers) == secret for numbers in itertools.combinations(range(1, 6), size))


def test_one_share_too_few_gives_something_else():
    shares = split(b"s" * 32, threshold=3, shares=5, source=seeded_bytes(3))
    for numbers in itertools.combinations(range(1, 6), 2):
        try:
            assert recombine(shares, numbers) != b"s" * 32
        except MessageError:
            continue  # also good: it is not even of the right length


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_a_single_share_is_uniform_whatever_the_secret(secret):
    """Below the threshold shares are uniform: chi-square on their lowest bytes, false-alarm rate 1e-6 (and seeded)."""
    source = seeded_bytes(4)
    lowest = [
        split(secret, threshold=2, shares=3, source=source)[number][-1] for number in (0, 1, 2) for _ in range(1000)
    ]
    counts = np.bincount(lowest, minlength=256)
    expected = len(lowest) / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255)


def test_what_cannot_be_shared_or_put_together_is_refused():
    with pytest.raises(InputError, match="got 31"):
        split(bytes(31), threshold=2, shares=3)
    with pytest.raises(InputError, match=r"1 \.\.\. 3"):
        split(bytes(32), threshold=4, shares=3)
    with pytest.raises(InputError, match="different"):
        Reconstruction([1, 1])
    for share in (b"", bytes(SHARE_BYTES - 1), PRIME.to_bytes(SHARE_BYTES, "big")):
        with pytest.raises(MessageError, match="range"):
            Reconstruction([1]).secret({1: share})
    with pytest.raises(MessageError, match="belong together"):
        Reconstruction([1]).secret({1: (2**256 + 5).to_bytes(SHARE_BYTES, "big")})
