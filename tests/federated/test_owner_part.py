"""An owner is called twice, late, for another round, by somebody confused: it answers an attempt in one way or not."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.errors import CorruptFileError, InputError, MessageError
from blindsight.federated.sums.messages import Call
from blindsight.federated.sums.orders import read_order
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.files import write_arrays
from blindsight.learn.federation import Memory, Proposal
from tests.federated.village import ALL_SCHEMES, DIMENSION, USERS, Village, damaged


@pytest.fixture
def village(tmp_path):
    return Village(tmp_path, held=True)


def played(village, scheme, rounds=2):
    """Play rounds; return the server, and bob's calls and replies in each."""
    server = village.open(scheme)
    calls, replies = [], []
    village.courier._transit = lambda name, kind, parts: noted(calls, name, kind, parts)
    village.courier.back = lambda name, kind, parts: noted(replies, name, kind, parts)
    for round in range(1, rounds + 1):
        village.draw(round, whole=True)
        server.play(round, ())
    return server, [read_order(parts[0], Call)[0] for parts in calls], [parts[0] for parts in replies]


def noted(into, name, kind, parts):
    if (name, kind) == ("bob", "contribute"):
        into.append(parts)
    return parts


def memory_file(village, server):
    return village.homes["bob"].folder(server.terms.run) / "memory.npz"


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_the_same_call_gets_the_same_bytes_whatever_was_learned_since(village, scheme):
    _, calls, replies = played(village, scheme)
    village.draw(99, whole=True)
    assert village.contribute("bob", calls[-1]) == replies[-1]
    assert village.proposals["bob", 2] == 1


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_late_call_is_refused_and_changes_nothing(village, scheme):
    server, calls, _ = played(village, scheme)
    before = memory_file(village, server).read_bytes()
    with pytest.raises(MessageError, match="comes too late"):
        village.contribute("bob", calls[0])
    assert memory_file(village, server).read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"round": 3},  # the same attempt for another round
        {"round": 1},
        {"round": 1, "attempt": 5},  # a round that is over, as a new attempt
        {"settles": 1},  # an attempt that tells what became of itself
        {"settles": 9, "attempt": 9},
    ],
)
def test_a_call_out_of_order_is_refused_and_changes_nothing(village, change):
    server, calls, _ = played(village, "block-dphe")
    before = memory_file(village, server).read_bytes()
    with pytest.raises(MessageError):
        village.contribute("bob", replace(calls[-1], **change))
    assert memory_file(village, server).read_bytes() == before


@pytest.mark.parametrize("scheme", ["dphe", "block-dphe", "bfv", "masks"])
def test_an_answer_of_another_attempt_run_or_author_settles_nothing(village, scheme):
    server, calls, replies = played(village, scheme, rounds=3)
    settling = replace(calls[-1], round=4, attempt=3, settles=2)
    before = memory_file(village, server).read_bytes()
    for answer in (b"", b"garbage", calls[-1].answer, damaged(server.run.answer(2)), replies[0]):
        with pytest.raises(MessageError):
            village.contribute("bob", replace(settling, answer=answer))
    assert memory_file(village, server).read_bytes() == before


def test_an_owner_whose_contribution_did_not_enter_sends_it_in_the_next_round(village):
    server = village.open("bfv")
    village.courier.back = lambda name, kind, parts: None if (name, kind) == ("bob", "contribute") else parts
    first = village.draw(1, whole=True)
    assert server.play(1, ()).contributors == ("ann", "cem", "dan")
    village.courier.back = None
    second = village.draw(2, whole=True)
    integers = server.terms.sums.integers
    assert np.array_equal(server.play(2, ()).total, village.plain_sum(server, USERS, second) + integers(first["bob"]))


def test_data_of_other_dimensions_are_a_sentence_that_reaches_the_server(village):
    server = village.open("bfv")
    village.draw(1)
    propose = village.propose
    village.propose = lambda name, memory: (
        Proposal(np.zeros(DIMENSION + 7), Memory(None, None)) if name == "bob" else propose(name, memory)
    )
    result = server.play(1, ())
    assert result.contributors == ("ann", "cem", "dan")
    assert f"adds vectors of {DIMENSION} numbers; the data of 'bob' give {DIMENSION + 7}" in result.refused["bob"]


def test_an_update_that_is_not_finite_is_not_kept(village):
    server = village.open("bfv")
    village.draw(1)
    village.updates["bob"][3] = np.nan
    assert "not finite" in server.play(1, ()).refused["bob"]
    village.draw(2)
    assert server.play(2, ()).contributors == USERS


def test_what_is_beyond_the_fixed_point_is_sent_later(village):
    server = village.open("block-dphe")
    limit = float(server.terms.sums.values(np.array(server.terms.sums.max_integer)))
    village.draw(1, whole=True)
    village.updates["bob"][0] = 1.5 * limit
    first = server.play(1, ()).total[0]
    village.updates = {name: np.zeros(DIMENSION) for name in USERS}
    second = server.play(2, ()).total[0]
    learned = sum(float(village.learned[name, 1][0]) for name in USERS)
    assert (first + second) / 2**16 == pytest.approx(learned, abs=1e-3)


def test_a_memory_that_was_altered_is_refused(village):
    server, calls, _ = played(village, "plain")
    path = memory_file(village, server)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptFileError):
        village.contribute("bob", calls[-1])
    write_arrays(path, "blindsight/owner-memory.1", {"pending": [1]}, {}, private=True)
    with pytest.raises(CorruptFileError, match="does not hold what an owner remembers"):
        village.contribute("bob", calls[-1])


def test_nothing_of_what_an_owner_remembers_is_shown(village):
    server, _, _ = played(village, "plain")
    part = OwnerPart(village.user_desk("bob").end(server.terms.run))
    shown = repr(part._load()) + repr(part._load().pending) + repr(part)
    assert "array" not in shown
    with pytest.raises(InputError, match="does not take part"):
        type(part._end)("eve", server.terms, part._end.folder)
