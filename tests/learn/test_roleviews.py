"""The pictures of who held what are made of the right messages."""

import numpy as np

from blindsight.learn.costs import Cost
from blindsight.learn.roleviews import Witness, listening
from blindsight.learn.session import RoundResult


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
    witness.look(np.zeros((2, 2)), {"ann": np.ones(4), "bob": np.ones(4)}, _sum_of(4))
    held = {view.role: view.picture.tobytes().rstrip(b"\0") for view in witness.views}
    assert held["aggregator"] == b"contribution of one"
    assert held["key generator"] == b"request"


def test_a_witness_hears_nothing_outside_its_round():
    witness = Witness("plain")
    witness("aggregator", b"keys at set-up")
    with listening(witness):
        witness("aggregator", b"contribution")
    witness.look(np.zeros((2, 2)), {"ann": np.ones(4), "bob": np.ones(4)}, _sum_of(4))
    assert b"keys" not in b"".join(view.picture.tobytes() for view in witness.views)
