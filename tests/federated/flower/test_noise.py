"""EncryptedFedAvg with a proven epsilon: noise in the sum, nothing that fails on data, rounds that are counted."""

import numpy as np
import pytest

from blindsight.errors import InputError, PrivacyError
from blindsight.federated.flower.transport import unpack
from blindsight.rounds import Privacy
from tests.federated.flower.federation import Federation, model, moving, numpy_of

PRIVACY = Privacy(epsilon=8.0, delta=1e-5, unit="member", clip=1.0, drop_outs=0)
NOISE = {"privacy": PRIVACY, "rounds": 2}
SIZE = 50


def federation(tmp_path, change=lambda name, round: 0.01):
    return Federation(tmp_path, moving(change))


def learned(strategy, grid, rounds=1):
    return numpy_of(strategy.start(grid, model(w=np.zeros(SIZE, np.float32)), num_rounds=rounds).arrays)["w"]


@pytest.mark.parametrize("scheme", ["masks", "plain"])
def test_the_model_moves_by_the_noisy_mean(tmp_path, scheme):
    made = federation(tmp_path)
    strategy = made.strategy(scheme=scheme, **NOISE)
    moved = learned(strategy, made.grid)
    plan = PRIVACY.plan(members=4, dimension=SIZE, rounds=2, records=1, scheme=scheme)
    error = moved - 0.01
    # The mean of four carries a quarter of the sum's deviation; 50 draws exceed 8 deviations once in 10^13.
    assert 0 < np.abs(error).max() < 8 * plan.deviation / 4
    assert np.abs(error).std() > plan.deviation / 4 / 4
    said = strategy.statement
    assert said.guarantee == "differential privacy"
    assert said.unit == "person"
    assert said.epsilon == pytest.approx(8.0, rel=1e-3)


def test_training_that_fails_counts_as_no_change(tmp_path):
    def change(name, round):
        if name == "bob":
            raise ValueError("this picture")
        return np.nan if name == "cem" else 0.01

    made = federation(tmp_path, change)
    strategy = made.strategy(**NOISE)
    assert np.isfinite(learned(strategy, made.grid)).all()
    assert strategy.reports[0].contributors == ("ann", "bob", "cem", "dan")
    assert not strategy.reports[0].missing


def test_rounds_beyond_the_plan_are_refused_by_members(tmp_path):
    made = federation(tmp_path)
    strategy = made.strategy(**(NOISE | {"rounds": 1}))
    learned(strategy, made.grid, rounds=2)
    first, second = strategy.reports
    assert len(first.contributors) == 4
    assert not second.contributors
    assert all("1 rounds" in sentence for sentence in second.missing.values())


def test_a_sum_of_fewer_than_are_counted_on_is_not_opened(tmp_path):
    made = federation(tmp_path)

    def lost(message, reply):
        return None if unpack(reply.content)[0] == "contribute" else reply

    made.node("dan").tamper = lost
    strategy = made.strategy(scheme="plain", fraction_evaluate=0.0, **NOISE)
    with pytest.raises(PrivacyError, match="no model"):
        strategy.start(made.grid, model(w=np.zeros(SIZE, np.float32)), num_rounds=1)
    assert not strategy.reports[0].contributors


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rounds": None}, "rounds"),
        ({"privacy": None}, "privacy"),
        ({"privacy": Privacy(epsilon=8.0, delta=1e-5, unit="record")}, "unit='member'"),
        ({"scheme": "block-dphe"}, "masks"),
        ({"share": 0.5}, "share"),
        ({"metrics": ["loss"]}, "metrics"),
    ],
)
def test_what_cannot_be_proven_is_refused(tmp_path, changed, named):
    with pytest.raises(InputError, match=named):
        federation(tmp_path).strategy(**(NOISE | changed))
