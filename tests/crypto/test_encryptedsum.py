"""A running encrypted sum equals the plain sparse sum, and its empty places do not stand out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.crypto.paillier import EncryptedSum, PrivateKey, generate_keys
from blindsight.errors import InputError
from blindsight.rng import seeded_bytes

SIZE = 6
contributions = st.lists(st.dictionaries(st.integers(0, SIZE - 1), st.integers(-(2**60), 2**60)), max_size=4)


@settings(deadline=None, max_examples=25)
@given(contributions=contributions)
def test_sparse_sum_is_the_plain_one(private: PrivateKey, contributions: list[dict[int, int]]) -> None:
    total = EncryptedSum(private.public, SIZE)
    expected, counts = [0] * SIZE, [0] * SIZE
    for contribution in contributions:
        places = np.array(list(contribution), dtype=np.int64)
        total.add(private.public.encrypt(list(contribution.values())), places)
        for place, value in contribution.items():
            expected[place] += value
            counts[place] += 1
    assert private.decrypt(total.total()) == expected
    assert total.counts.tolist() == counts
    places, ciphertexts = total.touched()
    assert dict(zip(places.tolist(), private.decrypt(ciphertexts), strict=True)) == {
        place: expected[place] for place in range(SIZE) if counts[place]
    }


def test_every_untouched_place_gets_a_zero_of_its_own(private: PrivateKey) -> None:
    total = EncryptedSum(private.public, 20)
    first, second = total.total().values, total.total().values
    assert len({*first, *second}) == 40
    assert 1 not in first


def test_dense_contributions_need_no_places(private: PrivateKey) -> None:
    total = EncryptedSum(private.public, 3)
    total.add(private.public.encrypt([1, 2, 3]))
    total.add(private.public.encrypt([10, 20, 30]))
    assert private.decrypt(total.total()) == [11, 22, 33]


@pytest.mark.parametrize(
    "places", [np.array([0]), np.array([0, 0]), np.array([0, 3]), np.array([-1, 0]), np.array([0.0, 1.0])]
)
def test_contribution_that_does_not_fit_changes_nothing(private: PrivateKey, places: np.ndarray) -> None:
    total = EncryptedSum(private.public, 3)
    total.add(private.public.encrypt([5]), np.array([1]))
    with pytest.raises(InputError):
        total.add(private.public.encrypt([1, 2]), places)
    assert private.decrypt(total.total()) == [0, 5, 0]
    assert total.counts.tolist() == [0, 1, 0]


def test_contribution_under_another_key_is_refused(private: PrivateKey) -> None:
    other = generate_keys(1024, insecure=True, source=seeded_bytes(9)).public
    with pytest.raises(InputError, match="cannot add"):
        EncryptedSum(private.public, 1).add(other.encrypt([1]))
