"""Recorded rounds survive their file; pictures of who held what are made of the right messages."""

import stat

import numpy as np
import pytest

from blindsight.errors import CorruptFileError
from blindsight.learn import FederatedClassifier
from blindsight.learn.recording import RecordedRound, RoundRecorder
from blindsight.rounds import RoundSum
from blindsight.sums import make_terms


def _recorded(scheme="plain"):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3 % 2
    learner = FederatedClassifier(scheme, rounds=2)
    learner.fit([(X[start::4], y[start::4]) for start in range(3)], public=(X[3::4], y[3::4]), record=True)
    assert learner.recorded_ is not None
    return learner.recorded_


def test_a_recording_holds_the_updates_and_their_sum():
    recorded = _recorded()
    np.testing.assert_allclose(sum(recorded.sent.values()), recorded.total, atol=1e-6)
    assert len(recorded.messages["aggregator"]) == 3


def test_a_recording_survives_its_file(tmp_path):
    recorded = _recorded("masks")
    recorded.save(tmp_path / "round.npz")
    again = RecordedRound.load(tmp_path / "round.npz")
    assert (again.scheme, again.minimum_per_position, again.messages) == ("masks", 1, recorded.messages)
    assert list(again.sent) == list(recorded.sent)
    for name in ("total", "withheld", "before"):
        np.testing.assert_array_equal(getattr(again, name), getattr(recorded, name))
    assert stat.S_IMODE((tmp_path / "round.npz").stat().st_mode) == 0o600


def test_a_file_that_is_no_recording_is_refused(tmp_path):
    (tmp_path / "round.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(CorruptFileError):
        RecordedRound.load(tmp_path / "round.npz")


def test_a_recording_keeps_its_secrets_out_of_its_repr():
    assert "array" not in repr(_recorded())


def _look(recorder, dimension=4):
    total, members = np.full(dimension, 3), ("ann", "bob", "cem")
    terms = make_terms("plain", run="a", members=members, dimension=dimension, fraction_bits=0)
    summed = RoundSum(round=1, contributors=members, total=total, values=total.astype(float))
    recorder.look(terms, np.zeros((2, 2)), dict.fromkeys(members, np.ones(dimension)), summed)


def test_the_aggregators_picture_is_a_contribution_and_not_the_answer():
    recorder = RoundRecorder()
    with recorder.recording():
        recorder("aggregator", b"contribution of one")
        recorder("aggregator", b"contribution")
        recorder("key generator", b"request")
        recorder("aggregator", b"the answer, which is the plain sum and longer than any contribution")
    _look(recorder)
    held = {view.role: view.picture.tobytes().rstrip(b"\0") for view in recorder.views}
    assert held["aggregator"] == b"contribution of one"
    assert held["key generator"] == b"request"


def test_nothing_is_recorded_outside_of_the_first_round():
    recorder = RoundRecorder()
    recorder("aggregator", b"keys at set-up")
    with recorder.recording():
        recorder("aggregator", b"contribution")
    _look(recorder)
    assert b"keys" not in b"".join(view.picture.tobytes() for view in recorder.views)
    with recorder.recording():
        recorder("aggregator", b"later")
    assert all(b"later" not in item for items in recorder.recorded.messages.values() for item in items)
