"""Secret permutations are the same for everyone who knows the secret, uniform, and unrelated over contexts."""

import hashlib
import pickle
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from blindsight.crypto import permutation as module
from blindsight.crypto.permutation import SecretPermutation, derive_permutation
from blindsight.errors import InputError, PrivacyError

SECRET = bytes(range(32))


def _image(size, **context):
    return derive_permutation(SECRET, size=size, **context).forward(np.arange(size)).tolist()


@settings(max_examples=40)
@given(st.integers(0, 300), st.integers(0, 1000))
def test_forward_and_backward_undo_each_other(size, round_number):
    secret = derive_permutation(SECRET, size=size, round=round_number)
    indices = np.arange(size)
    assert sorted(secret.forward(indices)) == indices.tolist()
    assert secret.backward(secret.forward(indices)).tolist() == indices.tolist()
    values = np.random.default_rng(size).normal(size=size)
    assert secret.restore(secret.shuffle(values)).tolist() == values.tolist()
    assert secret.shuffle(values)[secret.forward(indices)].tolist() == values.tolist()


def test_known_answers():
    assert _image(8, run="demo", round=3, role="users") == [6, 1, 5, 3, 0, 4, 7, 2]
    image = np.array(_image(206_848, run="demo", round=3, role="users"), dtype="<i8")
    assert (
        hashlib.sha256(image.tobytes()).hexdigest()
        == "654b64e0cf40fc9a5d47d356814558a55c14fb9d9c2955495a27efb9d2dc8fd9"
    )


def test_every_part_of_the_context_matters():
    contexts = [
        {},
        {"round": 1},
        {"round": 2},
        {"round": "1"},
        {"round": b"1"},
        {"round": 1, "user": "a"},
        {"round": 1, "user": "b"},
        {"rounduser": "1a"},
        {"run": 1},
    ]
    images = [tuple(_image(100, **context)) for context in contexts]
    images.append(tuple(derive_permutation(SECRET[:31], size=100).forward(np.arange(100)).tolist()))
    assert len(set(images)) == len(images)
    assert _image(100, a=1, b=2) == _image(100, b=2, a=1)


def test_all_orders_of_four_are_equally_likely():
    draws = 4_800
    counts = dict.fromkeys(permutations(range(4)), 0)
    for number in range(draws):
        counts[tuple(_image(4, draw=number))] += 1
    statistic = sum((count - draws / 24) ** 2 / (draws / 24) for count in counts.values())
    assert statistic < chi2.isf(1e-6, 23)  # the inputs are fixed: it passes always or never; a priori alarm rate 1e-6


def test_fixed_points_are_as_many_as_chance_brings() -> None:
    # Fixed points of a uniform permutation are Poisson(1) to high accuracy; their mean over 1500 has deviation 1/38.
    fixed = [sum(i == place for i, place in enumerate(_image(50, draw=number))) for number in range(1500)]
    assert abs(np.mean(fixed) - 1) < 4.9 / np.sqrt(1500)  # two-sided alarm rate 1e-6
    assert abs(np.mean(np.array(fixed) == 0) - np.exp(-1)) < 4.9 * np.sqrt(0.2325 / 1500)


def test_rounds_are_unrelated() -> None:
    # Two independent uniform permutations agree in Poisson(1) places, and their rank correlation is N(0, 1/(n-1)).
    n = 2000
    first = np.array(_image(n, round=0))
    for number in range(1, 11):
        other = np.array(_image(n, round=number))
        assert (first == other).sum() < 12  # P(Poisson(1) >= 12) < 1e-9
        assert abs(np.corrcoef(first, other)[0, 1]) < 5.4 / np.sqrt(n - 1)  # ten tests, 1e-6 altogether


def test_equal_keys_are_drawn_again(monkeypatch):
    blocks = [np.array([5, 7, 5], dtype="<u8").tobytes(), np.array([30, 10, 20], dtype="<u8").tobytes()]

    class Stream:
        def encryptor(self):
            return self

        def update(self, data):
            assert data == bytes(24)
            return blocks.pop(0)

    monkeypatch.setattr(module, "Cipher", lambda *_: Stream())
    assert _image(3) == [1, 2, 0]
    assert not blocks


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="16 bytes; got 3"):
        derive_permutation(b"abc", size=4)
    with pytest.raises(InputError, match="-1"):
        derive_permutation(SECRET, size=-1)
    for order in ([0, 0, 2], [0, 1, 3]):
        with pytest.raises(InputError):
            SecretPermutation(np.array(order))
    secret = derive_permutation(SECRET, size=4)
    for indices in (np.array([4]), np.array([-1]), np.array([0.5])):
        for direction in (secret.forward, secret.backward):
            with pytest.raises(InputError, match="3"):
                direction(indices)


def test_permutation_stays_secret():
    secret = derive_permutation(SECRET, size=4)
    assert repr(secret) == "<SecretPermutation, hidden>"
    with pytest.raises(PrivacyError):
        pickle.dumps(secret)
