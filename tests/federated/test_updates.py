import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.updates import Briefing, mean_change, propose_update
from blindsight.learn.federation import Memory

NOTHING = Memory(None, None)


@given(st.floats(0, 0.99), st.integers(1, 500), st.integers(0, 10**9), st.text(max_size=64))
def test_a_briefing_survives_the_wire(sparsity, block, most_examples, weighted_by):
    briefing = Briefing(sparsity, block, most_examples, weighted_by)
    assert Briefing.from_bytes(briefing.to_bytes()) == briefing


@pytest.mark.parametrize("settings", [{"sparsity": 1.0}, {"sparsity": -0.1}, {"block": 0}, {"most_examples": -1}])
def test_a_briefing_that_leaves_nothing_to_send_is_refused(settings):
    with pytest.raises(InputError):
        Briefing(**settings)


def test_a_forged_briefing_is_refused():
    with pytest.raises(MessageError):
        Briefing.from_bytes(b"no briefing")
    impossible = Briefing()
    object.__setattr__(impossible, "sparsity", 2.0)
    with pytest.raises(MessageError, match="sparsity"):
        Briefing.from_bytes(impossible.to_bytes())


def test_sums_give_the_mean_weighted_by_examples():
    rng = np.random.default_rng(0)
    changes, examples = rng.normal(size=(5, 7)), np.array([1, 20, 50, 100, 7])
    briefing = Briefing(sparsity=0.0, most_examples=100)
    sent = [propose_update(*pair, NOTHING, briefing).sent for pair in zip(changes, examples, strict=True)]
    assert mean_change(np.sum(sent, axis=0), 5) == pytest.approx(np.average(changes, axis=0, weights=examples))


def test_examples_beyond_the_most_do_not_count_and_without_a_most_all_weigh_the_same():
    change = np.ones(3)
    assert propose_update(change, 10**6, NOTHING, Briefing(0.0, 1, 100)).sent.tolist() == [1.0] * 4
    assert propose_update(change, 10**6, NOTHING, Briefing(0.0, 1, 0)).sent.tolist() == [1.0] * 4


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.3, 0.95), st.integers(1, 6))
def test_all_that_was_sent_and_what_is_held_is_all_that_was_learned(seed, block, sparsity, rounds):
    rng = np.random.default_rng(seed)
    briefing, memory, sent = Briefing(sparsity, block, 100), NOTHING, np.zeros(31)
    changes, examples = rng.normal(size=(rounds, 30)), rng.integers(1, 100, size=rounds)
    for change, number in zip(changes, examples, strict=True):
        proposal = propose_update(change, number, memory, briefing)
        assert proposal.sent[0] == pytest.approx(number / 100)
        blocks = np.add.reduceat(proposal.sent != 0, np.arange(0, 31, block)) > 0
        assert 2 <= blocks.sum() <= 1 + max(1, (1 - sparsity) * len(blocks))  # the weight's, and others
        assert np.count_nonzero(proposal.sent) <= briefing.room(31)
        sent, memory = sent + proposal.sent, proposal.memory
    assert sent[1:] + memory.held[1:] == pytest.approx((examples / 100) @ changes)


def test_without_sparsity_an_owner_holds_nothing():
    assert propose_update(np.ones(3), 1, NOTHING, Briefing(0.0)).memory.held is None


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_change_that_is_not_finite_is_refused(bad):
    with pytest.raises(MessageError, match="not finite"):
        propose_update(np.array([0.0, bad]), 1, NOTHING, Briefing(0.0))


@pytest.mark.parametrize("total", [0.0, -0.5, 3.0001, 1e6, np.nan])
def test_weights_that_cannot_be_give_no_mean(total):
    with pytest.raises(PrivacyError, match="there is no mean"):
        mean_change(np.array([total, 1.0, 2.0]), 3)


def test_full_weights_of_all_are_possible():
    assert mean_change(np.array([3.0, 1.5]), 3) == pytest.approx([0.5])
