"""Weights that one owner alone changed: shown without the rule of minimum contributors, withheld with it."""

import numpy as np
import pytest

from blindsight.audit.leakage.singles import SinglesLeak, attack_singles, single_findings
from blindsight.errors import InputError
from blindsight.rng import science, seeded_bytes


def attacked(minimum: int, **options) -> SinglesLeak:
    options = {"dimension": 600, "sparsity": 0.9, "users": 4} | options
    return attack_singles(
        minimum_per_position=minimum, key_bits=1024, insecure=True, random_state=7, source=seeded_bytes(7), **options
    )


@pytest.fixture(scope="module")
def rounds() -> dict[int, SinglesLeak]:
    return {minimum: attacked(minimum) for minimum in (1, 2, 3)}


def test_without_the_rule_every_single_weight_is_shown(rounds):
    leak = rounds[1]
    assert leak.exposed == leak.singles > 100
    assert leak.shown == leak.touched
    assert leak.precision == leak.share
    assert leak.subtracted == leak.pairs > 0


def test_with_the_rule_no_single_weight_is_shown_but_users_need_one_more(rounds):
    assert (rounds[2].exposed, rounds[3].exposed) == (0, 0)
    assert rounds[2].singles == rounds[1].singles
    assert rounds[2].subtracted == rounds[2].pairs > 0  # a user who was one of the two reads the other
    assert rounds[3].subtracted == 0
    assert 0 < rounds[2].shown < rounds[1].shown


def test_the_share_of_singles_is_the_formula_of_independent_supports(rounds):
    """Brute force over 200,000 weights: the share is within 5 standard errors (2e-7 would be 5.2)."""
    changed = science(8).random((4, 200_000)) < 0.1
    counts = changed.sum(axis=0)
    touched, singles = np.count_nonzero(counts), np.count_nonzero(counts == 1)
    expected = rounds[1].expected_share
    assert abs(singles / touched - expected) < 5.2 * np.sqrt(expected * (1 - expected) / touched)
    assert abs(rounds[1].share - expected) < 5.2 * np.sqrt(expected * (1 - expected) / rounds[1].touched)


def test_blocks_are_counted_whole(rounds):
    """Block DPHE protects owners of whole blocks alike, and not single weights in a block that others changed too."""
    whole = attacked(2, scheme="block-dphe", dimension=1800)
    assert whole.exposed == 0 < whole.singles
    assert not whole.scattered
    scattered = attacked(2, scheme="block-dphe", whole_blocks=False)
    assert scattered.scattered
    assert scattered.exposed > 0.5 * scattered.singles


def test_findings(rounds):
    scattered = attacked(2, scheme="block-dphe", whole_blocks=False)
    verdicts = [finding.verdict for finding in single_findings([*rounds.values(), scattered])]
    assert verdicts == [
        *("refuted", "refuted"),  # the theorem admits nothing
        *("not refuted", "as stated"),
        *("not refuted", "not refuted"),
        *("leaks", "as stated"),
    ]
    (outside, inside, *_) = single_findings([rounds[1]])
    assert outside.measured.low > 0.9
    assert "minimum_per_position = 1" in inside.claim


def test_bad_input_gets_a_sentence():
    with pytest.raises(InputError, match="dphe or block-dphe; got 'bfv'"):
        attack_singles(scheme="bfv")
    with pytest.raises(InputError, match="sparsity must be in"):
        attack_singles(sparsity=1.0)
