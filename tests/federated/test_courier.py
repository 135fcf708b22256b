"""The courier within one process: what it promises to protocols, and the faults it can play."""

from blindsight.errors import InputError
from blindsight.federated.courier import LocalCourier, Reply


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
