"""A courier that counts: bytes and messages by kind, time to whom it belongs, and everything arrives as before."""

import pytest

from blindsight.federated import metered
from blindsight.federated.courier import LocalCourier, Reply
from blindsight.federated.metered import Errand, MeteredCourier


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
