"""Costs are made of nothing but what was measured, and members are asked as often as the choice of a scheme says."""

import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from blindsight.errors import InputError, UnknownNameError
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import open_session
from blindsight.sums.engine import Meter, Transfer
from blindsight.sums.scheme import MASK_WAVES, choose_scheme


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
    meter.carried("ann", "aggregator", "encrypt", 5, 2)
    meter.carried("ann", "aggregator", "encrypt", 3, 1)
    meter.carried("aggregator", "ann", "aggregate", 1)
    assert meter.cost().transfers == (
        Transfer("ann", "aggregator", "encrypt", 8, 3),
        Transfer("aggregator", "ann", "aggregate", 1, 0),
    )


def test_masks_are_chosen_unless_a_member_may_not_be_asked_as_often():
    assert choose_scheme().scheme == choose_scheme(waves=MASK_WAVES).scheme == "masks"
    assert choose_scheme(waves=MASK_WAVES - 1).scheme == "bfv"
    for scheme in SCHEMES:
        assert choose_scheme(scheme, waves=1).scheme == scheme
        assert scheme in str(choose_scheme(scheme))
    with pytest.raises(UnknownNameError, match="masks"):
        choose_scheme("mask")
    with pytest.raises(InputError, match="0"):
        choose_scheme(waves=0)


MEMBERS = ("ann", "bob", "cem")


@pytest.mark.parametrize(("scheme", "waves"), [("masks", MASK_WAVES), ("bfv", 1)])
def test_members_are_asked_as_often_as_the_choice_says(scheme, waves):
    asked = dict.fromkeys(MEMBERS, 0)

    def count(sender, receiver, kind, parts):
        if receiver in asked:
            asked[receiver] += 1
        return [parts]

    session = open_session(scheme, members=MEMBERS, dimension=20, transit=count)
    asked.update(dict.fromkeys(MEMBERS, 0))  # without the set-up
    session.round(dict.fromkeys(MEMBERS, np.ones(20)), 0)
    assert set(asked.values()) == {waves}
