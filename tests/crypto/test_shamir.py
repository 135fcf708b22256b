"""Shamir's shares: any t give the secret back, fewer tell nothing, and what is no share is refused."""

import itertools

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from blindsight.crypto.shamir import (
    LIMBS,
    PRIME,
    PRIME_16,
    SHARE_BYTES,
    Reconstruction,
    deal,
    recover,
    split,
    uniform_limbs,
)
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


# Many secrets at once, over 16 bits


def test_the_small_prime_is_the_last_below_two_bytes():
    assert gmpy2.is_prime(PRIME_16)
    assert gmpy2.next_prime(PRIME_16) > 2**16


def test_dealt_shares_are_values_of_polynomials_through_the_secrets():
    """Whole numbers of Python as the oracle: through t shares goes one polynomial, and it meets the others and f(0)."""
    secrets = np.array([[0] * LIMBS, [PRIME_16 - 1] * LIMBS, range(LIMBS)], dtype=np.uint16)
    shares = deal(secrets, threshold=4, holders=7, source=seeded_bytes(0))

    def through(points, x):
        total = 0
        for i, value in points.items():
            weight = 1
            for j in points:
                if j != i:
                    weight = weight * (x - j) * pow(i - j, -1, PRIME_16) % PRIME_16
            total += weight * value
        return total % PRIME_16

    for secret, limb in itertools.product(range(3), range(LIMBS)):
        points = {x: int(shares[x - 1, secret, limb]) for x in (1, 3, 4, 7)}
        assert through(points, 0) == secrets[secret, limb]
        assert all(through(points, x) == shares[x - 1, secret, limb] for x in (2, 5, 6))


@given(data=st.data())
def test_any_t_holders_recover_every_dealt_secret(data):
    holders = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, holders))
    secrets = uniform_limbs(5 * LIMBS).reshape(5, LIMBS)
    shares = deal(secrets, threshold=threshold, holders=holders)
    numbers = data.draw(st.permutations(range(1, holders + 1)))[:threshold]
    np.testing.assert_array_equal(recover(shares[np.array(numbers) - 1], numbers), secrets)


def test_the_largest_products_are_exact():
    """A hundred products of the largest numbers: float64 rounds none of them."""
    secrets = np.full((100, LIMBS), PRIME_16 - 1, dtype=np.uint16)
    shares = deal(secrets, threshold=99, holders=99, source=lambda count: b"\xf0\xff" * (count // 2))
    np.testing.assert_array_equal(recover(shares, range(1, 100)), secrets)


def test_dealt_shares_below_the_threshold_are_uniform_and_fresh_for_each_secret():
    """Chi-square on 64 classes of the shares of one holder, false-alarm rate 1e-6 (and seeded)."""
    secrets = np.zeros((4000, LIMBS), dtype=np.uint16)
    shares = deal(secrets, threshold=2, holders=2, source=seeded_bytes(4))
    for holder in (0, 1):
        edges = np.linspace(0, PRIME_16, 65)
        counts, _ = np.histogram(shares[holder], bins=edges)
        expected = shares[holder].size / 64
        assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 63)
    assert len({row.tobytes() for row in shares[0]}) == 4000


def test_numbers_are_drawn_again_until_they_are_below_the_prime():
    drawn = iter([b"\xff\xff\x05\x00\xf1\xff", b"\xf0\xff\xf2\xff", b"\x07\x00"])
    assert uniform_limbs(3, lambda count: next(drawn)[:count]).tolist() == [5, PRIME_16 - 1, 7]


def test_what_cannot_be_dealt_or_recovered_is_refused():
    good = np.zeros((2, LIMBS), dtype=np.uint16)
    for secrets in (good[:, :3], good[0], np.full((2, LIMBS), PRIME_16, dtype=np.uint16)):
        with pytest.raises(InputError, match=str(PRIME_16)):
            deal(secrets, threshold=2, holders=3)
    for threshold, holders in ((4, 3), (0, 3), (1, PRIME_16)):
        with pytest.raises(InputError, match="threshold"):
            deal(good, threshold=threshold, holders=holders)
    shares = deal(good, threshold=2, holders=3)
    for holders in ([1, 1], [1], [0, 1], [1, PRIME_16]):
        with pytest.raises(InputError):
            recover(shares[:2], holders)
    with pytest.raises(InputError):
        recover(np.full((2, 1, LIMBS), PRIME_16, dtype=np.uint16), [1, 2])
