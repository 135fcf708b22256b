import numpy as np
import pytest

from blindsight.federated.sums.opening import find_run, label_run
from blindsight.federated.sums.server import SumServer
from blindsight.learn.dphe.terms import AGGREGATOR
from tests.federated.village import ALL_SCHEMES, PATIENCE, Village


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_the_sum_is_the_plain_sum_of_those_who_contributed(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    for round in range(1, 4):
        village.draw(round)
        result = server.play(round, ())
        assert result.contributors == village.users
        assert np.array_equal(result.total, village.plain_sum(server, village.users))


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_user_that_is_gone_and_comes_back(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    village.draw(1)
    gone = village.handlers.pop("bob")
    result = server.play(1, ())
    assert result.contributors == ("ann", "cem", "dan")
    assert np.array_equal(result.total, village.plain_sum(server, result.contributors))
    village.handlers["bob"] = gone
    assert server.play(2, ()).contributors == village.users


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_server_killed_between_rounds_goes_on(tmp_path, scheme):
    village = Village(tmp_path)
    first = village.open(scheme)
    village.draw(1)
    first.play(1, ())
    label_run(village.homes[AGGREGATOR], "digits", first.run, seed=7)
    found = find_run(village.homes[AGGREGATOR], "digits", seed=7)
    assert found is not None
    server = SumServer(found, village.courier, PATIENCE)
    village.draw(2)
    result = server.play(2, ())
    assert np.array_equal(result.total, village.plain_sum(server, village.users))
