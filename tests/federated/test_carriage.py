"""Carriage: what a round carries adds up, constants that are there are found, wall time is polls and shared work."""

import pytest

from blindsight.errors import InputError
from blindsight.federated.carriage import Carriage, Exchange

FIGURES = {
    "encrypt": 1.0,
    "read": 0.5,
    "add": 0.25,
    "close": 3.0,
    "decrypt": 7.0,
    "contribution": 1000.0,
    "request": 900.0,
    "answer": 40.0,
}


def test_a_round_carries_calls_contributions_the_request_and_the_answer():
    exchange = Exchange.of(FIGURES, users=4, weights=10)
    assert exchange.messages == 5
    assert exchange.bytes == 4 * (80 + 40 + 1000) + 900 + 40
    assert exchange.roles == 4 * 1.5 + (4 * 0.25 + 3) + 7


def test_constants_that_are_there_are_found():
    true = Carriage(message=1.5, byte=2e-8)
    sizes = [Exchange(users, size, roles) for users, size, roles in ((3, 1e6, 0.1), (3, 1e8, 9.0), (8, 1e7, 1.0))]
    found = Carriage.fit([(size, true.cpu_seconds(size)) for size in sizes])
    assert found.message == pytest.approx(1.5)
    assert found.byte == pytest.approx(2e-8)


def test_wall_time_is_two_polls_and_all_work_on_the_cores_there_are():
    carriage, exchange = Carriage(message=2.0, byte=1e-6), Exchange(users=3, bytes=4e6, roles=8.0)
    assert carriage.cpu_seconds(exchange) == 8 + 2 * 4 + 4
    assert carriage.wall_seconds(exchange, cores=4, poll=2) == 2 * (0.75 + 0.5) + 5
    assert carriage.wall_seconds(exchange, cores=2) == 3 * 1.25 + 10


@pytest.mark.parametrize("found", [[], [20.0], [20.0, 7.9]])
def test_rounds_that_say_nothing_are_refused(found):
    with pytest.raises(InputError, match="two rounds"):
        Carriage.fit([(Exchange(3, 1e6, 8.0), seconds) for seconds in found])
