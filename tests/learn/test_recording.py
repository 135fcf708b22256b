"""Recorded rounds survive their file; pictures of who held what are made of the right messages."""

import stat

import numpy as np
import pytest

from blindsight.errors import CorruptFileError
from blindsight.learn import FederatedClassifier
from blindsight.learn.recording import RecordedRound, Witness, listening
from blindsight.sums.engine import Cost
from blindsight.sums.session import RoundResult
from blindsight.sums.support import Support


def _recorded(scheme="plain"):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 3 % 2
    learner = FederatedClassifier(scheme, rounds=2, record=True)
    learner.fit([(X[start::4], y[start::4]) for start in range(3)], public=(X[3::4], y[3::4]))
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


def _sum_of(dimension):
    total = np.full(dimension, 3)
    nothing = np.empty(0, dtype=np.int64)
    return RoundResult(0, ("ann", "bob"), total, total.astype(float), nothing, {}, Cost(("ann", "bob"), (), ()))


def test_the_aggregators_picture_is_a_contribution_and_not_the_answer():
    witness = Witness("plain")
    with listening(witness):
        witness("aggregator", b"contribution of one")
        witness("aggregator", b"contribution")
        witness("key generator", b"request")
        witness("aggregator", b"the answer, which is the plain sum and longer than any contribution")
    witness.look(np.zeros((2, 2)), {"ann": np.ones(4), "bob": np.ones(4)}, _sum_of(4), Support.everything(4))
    held = {view.role: view.picture.tobytes().rstrip(b"\0") for view in witness.views}
    assert held["aggregator"] == b"contribution of one"
    assert held["key generator"] == b"request"


def test_a_witness_hears_nothing_outside_its_round():
    witness = Witness("plain")
    witness("aggregator", b"keys at set-up")
    with listening(witness):
        witness("aggregator", b"contribution")
    witness.look(np.zeros((2, 2)), {"ann": np.ones(4), "bob": np.ones(4)}, _sum_of(4), Support.everything(4))
    assert b"keys" not in b"".join(view.picture.tobytes() for view in witness.views)
