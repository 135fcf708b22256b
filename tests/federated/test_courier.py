"""Couriers within one process: what they promise to protocols, the faults they can play, and what they count."""

import pytest

from blindsight.errors import InputError
from blindsight.federated import metered
from blindsight.federated.courier import LocalCourier, Reply
from blindsight.federated.metered import Errand, MeteredCourier


def shout(kind, parts):
    return [kind.encode(), *(part.upper() for part in parts)]


def refuse(kind, parts):
    raise InputError("nothing of that.")


def test_replies_come_in_the_order_of_sending_each_once():
    courier = LocalCourier({"ann": shout, "bob": refuse})
    assert courier.present() == {"ann": 0, "bob": 1}
    tickets = [courier.send("bob", "x", [b"b"]), courier.send("ann", "x", [b"a", b""]), courier.send("eve", "x", [])]
    assert list(courier.collect(tickets, seconds=0)) == [
        (tickets[0], Reply(error="nothing of that.")),
        (tickets[1], Reply((b"x", b"A", b""))),
        (tickets[2], Reply(error="'eve' cannot be reached.")),
    ]
    assert list(courier.collect(tickets, seconds=0)) == []


def test_what_was_not_collected_is_kept():
    courier = LocalCourier({"ann": shout})
    one, two, three = (courier.send("ann", "x", [part]) for part in (b"1", b"2", b"3"))
    assert next(courier.collect([one, two], seconds=0)) == (one, Reply((b"x", b"1")))  # and left in the middle
    assert list(courier.collect([three], seconds=0)) == [(three, Reply((b"x", b"3")))]
    assert list(courier.collect({one, two, three}, seconds=0)) == [(two, Reply((b"x", b"2")))]


def test_messages_are_lost_and_changed_on_their_way():
    courier = LocalCourier({"ann": shout}, lambda name, kind, parts: None if parts == (b"lost",) else (b"other",))
    lost, changed = courier.send("ann", "x", [b"lost"]), courier.send("ann", "x", [b"this"])
    assert list(courier.collect([lost, changed], seconds=60)) == [(changed, Reply((b"x", b"OTHER")))]


def test_parties_come_and_go():
    handlers = {"ann": shout}
    courier = LocalCourier(handlers)
    handlers["bob"] = handlers.pop("ann")
    assert set(courier.present()) == {"bob"}
    assert [reply.error for _, reply in courier.collect([courier.send("ann", "x", [])], seconds=0)] == [
        "'ann' cannot be reached."
    ]


@pytest.fixture
def clock(monkeypatch):
    """Time that passes when a handler works."""
    now = [0.0]
    monkeypatch.setattr(metered.time, "monotonic", lambda: now[0])
    return now


def network(clock):
    def answer(kind, parts):
        clock[0] += 2.0
        return [b"".join(parts), b"!"]

    return MeteredCourier(LocalCourier({"ann": answer, "ben": answer}))


def test_bytes_messages_and_seconds_are_counted_by_kind(clock):
    courier = network(clock)
    calls = {courier.send(name, "call", (b"abc", b"d")): name for name in ("ann", "ben")}
    other = courier.send("ann", "open", (b"xy",))
    assert {calls[ticket]: reply for ticket, reply in courier.collect(calls, seconds=1)} == {
        "ann": Reply((b"abcd", b"!")),
        "ben": Reply((b"abcd", b"!")),
    }
    clock[0] += 50.0  # nobody is waiting for a message
    assert [reply.parts for _, reply in courier.collect([other], seconds=1)] == [(b"xy", b"!")]
    assert courier.take() == {"call": Errand(2, 8, 10, 4.0), "open": Errand(1, 2, 3, 2.0)}
    assert courier.take() == {}


def test_what_is_done_with_a_reply_counts_until_collecting_is_left(clock):
    courier = network(clock)
    tickets = [courier.send(name, "call", ()) for name in ("ann", "ben")]
    replies = courier.collect(tickets, seconds=1)
    next(replies)
    clock[0] += 10.0
    replies.close()
    assert courier.take() == {"call": Errand(2, 0, 1, 12.0)}
    assert len(list(courier.collect(tickets, seconds=1))) == 1  # the other is not lost
    assert courier.take() == {"call": Errand(0, 0, 1, 2.0)}


def test_who_is_there_and_errors_pass_unchanged(clock):
    courier = network(clock)
    assert courier.present() == {"ann": 0, "ben": 1}
    ticket = courier.send("zoe", "call", (b"abc",))
    assert dict(courier.collect([ticket], seconds=1)) == {ticket: Reply(error="'zoe' cannot be reached.")}
    assert courier.take() == {"call": Errand(1, 3, 0, 0.0)}
    assert list(courier.collect([], seconds=1)) == []
    assert courier.take() == {}
