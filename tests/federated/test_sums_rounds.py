import numpy as np
import pytest

from blindsight.federated.sums.opening import find_run
from blindsight.federated.sums.server import SumServer
from blindsight.learn.aggregation import SCHEMES
from blindsight.learn.dphe.terms import AGGREGATOR
from tests.federated.village import PATIENCE, Village


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_sum_is_the_plain_sum_of_those_who_contributed(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    for round in range(1, 4):
        village.draw(round)
        result = server.play(round, ())
        assert result.contributors == village.users
        assert np.array_equal(result.total, village.plain_sum(server, village.users))


@pytest.mark.parametrize("scheme", SCHEMES)
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_server_killed_between_rounds_goes_on(tmp_path, scheme):
    village = Village(tmp_path)
    village.open(scheme).play(1, ()) if village.draw(1) else None
    run = find_run(village.homes[AGGREGATOR])
    server = SumServer(run, village.courier, PATIENCE)
    village.draw(2)
    result = server.play(2, ())
    assert np.array_equal(result.total, village.plain_sum(server, village.users))
