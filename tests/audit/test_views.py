"""An aggregator's view is read owner by owner and round by round."""

import numpy as np
import pytest

from blindsight.audit.views import Recorder, attack_view, guesses_from_view, view_finding
from blindsight.errors import InputError
from blindsight.rng import science
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.session import open_session

SMALL = {"key_bits": 1024, "insecure": True}


# Views


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_aggregators_view_is_read_owner_by_owner(scheme):
    recorder, members, generator = Recorder(), ("ann", "bob", "cem"), science(1)
    session = open_session(scheme, members=members, dimension=50, record=recorder, **SMALL)
    updates = {member: generator.normal(size=50) for member in members}
    session.round(updates, 0)
    for member in members:
        guesses = guesses_from_view(recorder.received, member, 50)
        assert guesses.rows.shape[1] == 50
        near = {
            owner: np.abs(guesses.rows @ update / np.linalg.norm(guesses.rows, axis=1)).max() / np.linalg.norm(update)
            for owner, update in updates.items()
        }
        assert (near[member] > 0.999) == (scheme == "plain")
        assert all(near[owner] < 0.95 for owner in members if owner != member)  # nor is the sum among the guesses
        assert "hidden" in repr(guesses)
    with pytest.raises(InputError, match="'dia'"):
        guesses_from_view(recorder.received, "dia", 50)


@pytest.mark.parametrize("size", [2, 4])
def test_so_few_weights_that_every_guess_is_near_are_no_leak(size):
    """Sound rounds; of some hundred guesses one has a |cosine| of .99. Four alarms of 1% in eight come once in 10^6."""
    verdicts, members, generator = [], ("ann", "bob", "cem"), science(1)
    for _ in range(8):
        recorder = Recorder()
        updates = {member: generator.normal(size=size) for member in members}
        open_session("masks", members=members, dimension=size, record=recorder).round(updates, 0)
        verdicts.append(
            view_finding(attack_view(recorder.received, updates, random_state=generator), "masks", "").verdict
        )
    assert verdicts.count("at chance") > 4


def test_rounds_are_told_apart():
    recorder, members = Recorder(), ("ann", "bob", "cem")
    session = open_session("dphe", members=members, dimension=20, record=recorder, **SMALL)
    session.round({member: np.ones(20) for member in members}, 0)
    held = len(recorder.received)
    recorder.forget_rounds()
    assert 0 < len(recorder.received) < held
    session.round({member: np.eye(20)[0] for member in members}, 1)
    guesses = guesses_from_view(recorder.received, "ann", 20)
    assert guesses.places is not None
    assert guesses.places.size == 2  # one shard of the second round, and none of the first
