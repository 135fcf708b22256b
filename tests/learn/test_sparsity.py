"""What is sent is the largest, nothing is lost, and the searched strength passes its target."""

import numpy as np
import pytest
from blindsight.learn.sparsity import Residual, search_strength, sparsity, top_blocks, top_entries
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError


def test_top_entries_keeps_exactly_the_largest():
    values = np.random.default_rng(0).normal(size=(7, 30))
    mask = top_entries(values, 0.1)
    assert mask.sum() == 21
    assert np.abs(values[mask]).min() > np.abs(values[~mask]).max()


def test_a_tenth_of_a_thousand_is_a_hundred_despite_floating_point():
    assert top_entries(np.arange(1000.0), 1 - 0.9).sum() == 100


def test_top_blocks_keeps_whole_blocks_of_largest_norm():
    values = np.random.default_rng(1).normal(size=(3, 11))  # 33 entries: four blocks of 8 and a short one
    mask = top_blocks(values, 8, 0.4).ravel()
    norms = [np.linalg.norm(values.ravel()[i : i + 8]) for i in range(0, 33, 8)]
    assert [bool(mask[i]) for i in range(0, 33, 8)] == [norm >= sorted(norms)[-2] for norm in norms]
    assert all(len(set(mask[i : i + 8])) == 1 for i in range(0, 33, 8))


def test_something_is_always_sent():
    assert top_entries(np.array([0.5, -1.0]), 0.1).tolist() == [False, True]
    assert top_blocks(np.array([[0.5, -1.0]]), 95, 0.1).all()


dyadic = st.integers(-(2**20), 2**20).map(lambda whole: whole / 1024)  # sums of these are exact in float64


@settings(max_examples=30)
@given(st.lists(st.lists(dyadic, min_size=12, max_size=12), min_size=1, max_size=8), st.booleans())
def test_all_that_was_sent_and_the_residual_make_up_all_updates(rounds, blocks):
    residual, sent_so_far = Residual.nothing((3, 4)), np.zeros((3, 4))
    for update in rounds:
        pending = residual.held + np.reshape(update, (3, 4))
        mask = top_blocks(pending, 5, 0.34) if blocks else top_entries(pending, 0.25)
        sent = np.where(mask, pending, 0.0)
        residual = Residual.after(pending, sent)
        sent_so_far += sent
    assert (sent_so_far + residual.held == np.sum(rounds, axis=0).reshape(3, 4)).all()


def test_rounding_on_the_wire_goes_to_the_residual():
    pending = np.array([0.30, 0.72])
    residual = Residual.after(pending, np.array([0.25, 0.75]))
    np.testing.assert_allclose(residual.held, [0.05, -0.03])
    assert "0.05" not in repr(residual)


def soft(values):
    return lambda strength: np.sign(values) * np.maximum(np.abs(values) - strength, 0)


@pytest.mark.parametrize("guess", [1e-9, 0.5, 1e6])
def test_search_passes_the_target_from_any_guess(guess):
    values = np.random.default_rng(0).normal(size=5000)
    found, strength = search_strength(soft(values), 0.9, guess)
    assert 0.9 <= sparsity(found) <= 0.92
    assert (found == soft(values)(strength)).all()


def test_a_higher_target_never_gets_a_lower_strength():
    values = np.random.default_rng(0).normal(size=5000)
    strengths = [search_strength(soft(values), target, 1.0)[1] for target in (0.1, 0.5, 0.8, 0.9, 0.95, 0.99)]
    assert strengths == sorted(strengths)


def test_an_impossible_target_gives_the_sparsest():
    values = np.ones(4)

    def with_a_bias(strength):
        return np.append(soft(values)(strength), 1.0)

    found, _ = search_strength(with_a_bias, 0.9, 0.01)
    assert sparsity(found) == 0.8


def test_the_search_does_not_train_forever():
    calls = []

    def jumps(strength):
        calls.append(strength)
        return np.zeros(10) if strength > 1 else np.ones(10)

    found, strength = search_strength(jumps, 0.9, 0.3)
    assert sparsity(found) == 1
    assert 1 < strength < 1.2
    assert len(calls) <= 16


@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1, float("nan")])
def test_refuses_a_share_outside_zero_and_one(keep):
    with pytest.raises(InputError, match="keep_fraction"):
        top_entries(np.ones(3), keep)


def test_refuses_empty_blocks():
    with pytest.raises(InputError, match="block_size"):
        top_blocks(np.ones(3), 0, 0.5)
