from contextlib import nullcontext
from itertools import pairwise
from unittest.mock import patch

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from blindsight.federated.flower import transport
from blindsight.federated.flower.transport import GridTransport, Traffic, pack, read_response
from blindsight.sums.terms import KEY_GENERATOR
from tests.federated.flower.federation import GENERATOR, Federation
from tests.federated.parties import make_store


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path, lambda name: lambda message, context: RecordDict())


@pytest.fixture
def carrier(federation):
    return fresh(federation)


def everybody(federation):
    return {name: place for place, name in enumerate(federation.names, 1)} | {KEY_GENERATOR: GENERATOR}


def test_nodes_are_known_by_the_names_they_prove_and_come_and_go(federation, carrier):
    assert carrier.present() == everybody(federation)
    assert carrier.identities()["bob"] == federation.stores["bob"].identity.public
    assert carrier.complaints() == ""
    said_hello = len(federation.grid.wire)
    carrier.present()
    assert len(federation.grid.wire) == said_hello  # nobody is asked twice
    bob = federation.grid.nodes.pop(2)
    assert "bob" not in carrier.present()
    federation.grid.nodes[22] = bob  # started anew, under another number
    assert carrier.present()["bob"] == 22


def test_what_is_sent_to_somebody_who_is_away_is_not_waited_for(federation, carrier):
    carrier.present()
    assert carrier.send("nobody", "hello", (b"",)) == ""
    assert list(carrier.collect([""], seconds=0.01)) == []
    del federation.grid.nodes[1]
    assert list(carrier.collect([carrier.send("ann", "hello", (b"",))], seconds=3600)) == []  # Flower says it is gone


def test_a_late_reply_is_given_up_and_can_still_be_collected(federation, carrier):
    carrier.present()
    late = []
    federation.node("ann").tamper = lambda message, reply: late.append(reply)
    ticket = carrier.send("ann", "hello", (b"",))
    assert list(carrier.collect([ticket], seconds=0.01)) == []
    federation.grid._replies[ticket] = late[0]
    ((found, reply),) = carrier.collect([ticket], seconds=0.01)
    assert found == ticket
    assert reply.error


def test_no_reply_is_lost_when_a_collect_is_left_before_its_end(federation, carrier):
    carrier.present()
    tickets = {carrier.send(name, "hello", (b"",)) for name in federation.names}
    first, _ = next(carrier.collect(tickets, seconds=1))
    rest = {ticket for ticket, _ in carrier.collect(tickets - {first}, seconds=1)}
    assert {first} | rest == tickets


def test_a_message_that_flower_does_not_take_has_no_reply(carrier, monkeypatch):
    carrier.present()
    for answer in ([], [None]):
        monkeypatch.setattr(carrier._grid, "push_messages", lambda messages, answer=answer: answer)
        assert carrier.send("ann", "hello", (b"",)) == ""


def fresh(federation):
    return GridTransport(federation.grid, federation.members, hello_seconds=0.05)


def refusal(federation, carrier, node):
    federation.grid.nodes[3] = node
    assert "cem" not in carrier.present()
    assert set(carrier.directory.refused) == {3}
    return carrier.complaints()


def idle(message, context):
    return RecordDict()


def test_strangers_other_keys_and_wrong_roles_are_refused(federation, carrier, tmp_path):
    mallory, forged = make_store(tmp_path, "mallory"), make_store(tmp_path / "elsewhere", "cem")
    generator = {"role": "key-generator", "members-file": str(federation.members_file)}
    for config, words in [
        ({"home": str(mallory.path)}, ["'mallory'"]),
        (
            {"home": str(forged.path)},
            [forged.identity.public.fingerprint, federation.members.fingerprints["cem"]],
        ),
        (generator, ["'cem'"]),
        ({"home": str(federation.stores[KEY_GENERATOR].path)}, ["'key generator'"]),
    ]:
        complaint = refusal(federation, fresh(federation), federation.member("cem", idle, **config))
        assert all(word in complaint for word in words), complaint


def test_a_node_that_is_set_up_wrongly_says_in_its_log_what_is_wrong(federation, caplog):
    for config, words in [
        ({"home": ""}, "'home'"),
        ({"home": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"role": "keygenerator"}, "'key-generator'"),
        ({"key-generator": "SHA256:short"}, "SHA256:short"),
        ({"quorum": 2}, "got 2"),
        ({"schemes": "bvf"}, "'bfv'"),
    ]:
        caplog.clear()
        complaint = refusal(federation, fresh(federation), federation.member("cem", idle, **config))
        assert "Node 3" in complaint
        assert words not in complaint
        assert words in caplog.text


def test_of_two_nodes_with_one_identity_the_first_stays(federation, carrier):
    federation.grid.nodes[33] = federation.grid.nodes[3]
    assert carrier.present() == everybody(federation)
    assert "Node 33" in carrier.complaints()
    del federation.grid.nodes[3]
    assert carrier.present()["cem"] == 33  # the other one is gone


def test_another_protocol_garbage_and_a_repeated_handshake_are_refused(federation, carrier):
    node, kept = federation.grid.nodes[3], []
    node.around = lambda: patch("blindsight.federated.identity.PROTOCOL", 99)
    assert "protocol 99" in refusal(federation, carrier, node)
    node.around = nullcontext
    node.tamper = lambda message, reply: Message(pack("hello", [b"I am", b"cem"]), reply_to=message)
    assert "Node 3:" in refusal(federation, fresh(federation), node)
    node.tamper = lambda message, reply: kept.append(reply) or reply
    assert "cem" in fresh(federation).present()
    node.tamper = lambda message, reply: Message(kept[0].content, reply_to=message)
    assert "another hello" in refusal(federation, fresh(federation), node)


class Clock:
    """Time that passes only where somebody sleeps."""

    now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(transport, "time", clock)
    return clock


def silent(message, reply):
    return None


def honest(message, reply):
    return reply


def hellos(federation, node):
    return sum(message.metadata.dst_node_id == node for message in federation.grid.wire)


def test_nobody_waits_for_a_silent_node(federation, clock):
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    cem = federation.grid.nodes.pop(3)
    others = carrier.present()
    federation.grid.nodes[3], cem.tamper, begun = cem, silent, clock.now
    for _ in range(5):
        assert carrier.present() == others
    assert clock.now == begun
    assert hellos(federation, 3) == 1
    assert carrier.complaints() == ""
    clock.now += 60
    assert carrier.present() == others
    assert "Node 3" in carrier.complaints()


def test_an_answer_is_heard_the_next_time_even_if_overdue(federation, clock):
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    cem, late = federation.grid.nodes.pop(3), []
    carrier.present()
    cem.tamper = lambda message, reply: late.append(reply)
    federation.grid.nodes[3] = cem
    assert "cem" not in carrier.present()
    clock.now += 60
    assert "cem" not in carrier.present()
    assert 3 in carrier.directory.refused
    federation.grid._replies[late[0].metadata.reply_to_message_id] = late[0]
    assert carrier.present()["cem"] == 3
    assert carrier.complaints() == ""
    assert hellos(federation, 3) == 1


def test_at_the_beginning_answers_are_waited_for(federation, clock):
    federation.grid.nodes[3].tamper = silent
    pull, slow = federation.grid.pull_messages, clock.now + 20
    federation.grid.pull_messages = lambda tickets: pull(tickets) if clock.now >= slow else []
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    begun = clock.now
    present = carrier.present()  # as a server that goes on after it was killed
    assert set(present) == {"ann", "bob", "dan", KEY_GENERATOR}
    assert clock.now == pytest.approx(begun + 60)
    assert "Node 3" in carrier.complaints()


def test_a_node_is_asked_again_after_ever_longer_pauses(federation, clock):
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    carrier.present()
    stranger = federation.member("cem", idle, home="/nowhere")
    federation.grid.nodes[33] = stranger
    times, begun = [], clock.now
    for _ in range(4 * 3600 // 10):
        before = hellos(federation, 33)
        carrier.present()
        times += [clock.now - begun] * (hellos(federation, 33) - before)
        clock.now += 10
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_node_that_was_mended_is_let_in(federation, clock):
    federation.grid.nodes[3].tamper = silent
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    assert "cem" not in carrier.present()
    federation.grid.nodes[3].tamper = honest
    assert "cem" not in carrier.present()
    clock.now += 60
    assert "cem" in carrier.present()
    assert carrier.complaints() == ""


def test_a_node_that_flower_has_no_message_for_is_refused(federation, carrier, monkeypatch):
    monkeypatch.setattr(federation.grid, "push_messages", lambda messages: [None])
    assert carrier.present() == {}
    assert "Node 3" in carrier.complaints()


def test_an_app_that_fails_has_a_reason_and_a_node_that_is_gone_has_no_reply():
    question = Message(RecordDict(), dst_node_id=1, message_type="train")
    failed = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "broken\nat line 3"), reply_to=question)
    assert read_response(failed).error == "its app failed: broken at line 3"
    gone = Message(Error(ErrorCode.NODE_UNAVAILABLE), reply_to=question)
    assert read_response(gone) is None


def test_bytes_messages_and_seconds_are_counted_by_kind(federation, clock):
    carrier = GridTransport(federation.grid, federation.members, hello_seconds=60)
    carrier.present()
    hellos, sent = carrier.traffic.pop("hello"), len(federation.grid.wire)
    assert hellos.messages == len(federation.grid.nodes) == sent / 2
    assert hellos.sent > 0
    assert hellos.received > 0
    tickets = [carrier.send(name, "call", (b"abc", b"d")) for name in ("ann", "bob")]
    replies = carrier.collect(tickets, seconds=1)
    next(replies)
    clock.now += 10.0  # what is done with a response counts until collecting is left
    replies.close()
    clock.now += 50.0
    assert carrier.traffic == {"call": Traffic(2, 8, 0, 10.0)}  # both are refused: there is no such kind
    assert len(list(carrier.collect(tickets[::-1], seconds=1))) == 1
