"""Costs: CPU time is counted wherever it is spent, and the table is made of nothing but what was measured."""

import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from blindsight.errors import UnknownNameError
from blindsight.learn.aggregation import SCHEMES
from blindsight.learn.comparison import compare
from blindsight.learn.costs import Cost, Meter, Transfer, Work


def burn(seconds):
    begun = time.process_time()
    while time.process_time() - begun < seconds:
        pass


def test_work_of_this_process_and_of_a_pool_is_counted():
    meter = Meter(("ann",))
    with ProcessPoolExecutor(1) as pool:
        pool.submit(burn, 0.0).result()
        with meter.working("ann", "encrypt"):
            pool.submit(burn, 0.05).result()
        with meter.working("ann", "decrypt"):
            burn(0.05)
    cost = meter.cost()
    assert cost.seconds("encrypt") >= 0.05
    assert cost.seconds("decrypt") >= 0.05
    assert cost.seconds(party="ann") == pytest.approx(cost.seconds())


def test_work_that_fails_is_counted_too():
    meter = Meter(())

    def fail():
        with meter.working("ann", "encrypt"):
            burn(0.01)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert meter.cost().seconds() >= 0.01


def test_messages_are_counted_by_link_and_step():
    meter = Meter(("ann",))
    meter.carried("ann", "aggregator", "encrypt", b"12345", 2)
    meter.carried("ann", "aggregator", "encrypt", b"123", 1)
    meter.carried("aggregator", "ann", "aggregate", b"1")
    assert meter.cost().transfers == (
        Transfer("ann", "aggregator", "encrypt", 8, 3),
        Transfer("aggregator", "ann", "aggregate", 1, 0),
    )


def test_a_worked_example():
    cost = Cost(
        users=("ann", "bob", "cem"),  # cem dropped out
        work=(
            Work("ann", "share", 0.25),
            Work("ann", "encrypt", 1.0),
            Work("bob", "encrypt", 2.0),
            Work("ann", "decrypt", 0.125),
            Work("aggregator", "share", 0.5),
            Work("aggregator", "aggregate", 4.0),
            Work("key generator", "decrypt", 8.0),
            Work("ann", "read", 64.0),
        ),
        transfers=(
            Transfer("ann", "aggregator", "encrypt", 3_000_000, 10),
            Transfer("bob", "aggregator", "encrypt", 1_000_000, 20),
            Transfer("key generator", "ann", "decrypt", 500_000, 0),
        ),
    )
    (row,) = compare({"bfv": cost})
    assert (row.encrypt_seconds, row.aggregate_seconds, row.decrypt_seconds) == (3.25 / 2, 4.5, 8.125)
    assert (row.megabytes_sent, row.megabytes_received, row.ciphertexts_sent) == (2.0, 0.25, 15)
    assert row.total_seconds == 3.25 / 2 + 4.5 + 8.125
    assert cost.to_dict()["transfers"][0]["bytes"] == 3_000_000


def test_every_scheme_has_a_row_and_no_other():
    nothing = Cost((), (), ())
    rows = compare(dict.fromkeys(SCHEMES, nothing))
    assert [row.scheme for row in rows] == list(SCHEMES)
    assert all(row.who_learns and row.drop_out for row in rows)
    with pytest.raises(UnknownNameError, match="'masks'"):
        compare({"mask": nothing})
