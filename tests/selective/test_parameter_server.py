"""The server adds what it accepts, exactly once, and refuses everything else with a sentence and without a trace."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.selective import ParameterServer, SelectiveTerms, Sharing
from blindsight.selective.codec import SparseUpdate, decode_sparse, encode_sparse
from blindsight.selective.terms import Answer, Receipt, Request, Total, Upload
from tests.learn.mutants import mutant

SIZE = 78


def body(places, values, dimension=SIZE):
    update = SparseUpdate(dimension, np.array(places, dtype=np.int64), np.array(values, dtype=np.float32))
    return encode_sparse(update)


def upload(server, **changes):
    fields = {"participant": "ann", "sequence": 1, "base": 0, "body": body([3, 5], [0.5, -2.0])}
    return Upload(server.terms.digest, **(fields | changes))


def test_uploads_are_added_and_counted(make_server):
    server = make_server()
    before = server.parameters
    first, second = upload(server), upload(server, participant="bob", body=body([5, 77], [1.0, 1.0]))
    receipt = decode(server.receive(encode(first)), Receipt)
    assert (receipt.participant, receipt.sequence, receipt.version) == ("ann", 1, 1)
    server.receive(encode(second))
    server.receive(encode(upload(server, sequence=2, base=1)))
    change = np.zeros(SIZE, dtype=np.float32)
    change[[3, 5, 77]] = [1.0, -3.0, 1.0]
    counts = np.zeros(SIZE, dtype=int)
    counts[[3, 5, 77]] = [2, 3, 1]
    np.testing.assert_allclose(server.parameters - before, change, atol=1e-6)
    np.testing.assert_array_equal(server.counters, counts)
    assert server.version == 3


def answered(server, version):
    answer = decode(server.answer(encode(Request(server.terms.digest, "cem", version))), Answer)
    assert answer.version == server.version
    return decode_sparse(answer.body, SIZE, max_values=SIZE)


def test_the_most_updated_parameters_are_handed_out(make_server, make_terms):
    server = make_server(terms=make_terms(download=5 / SIZE))
    assert answered(server, -1).indices.tolist() == list(range(SIZE))  # at first, all
    server.receive(encode(upload(server, body=body([3, 40, 60, 70], [1.0] * 4))))
    server.receive(encode(upload(server, sequence=2, body=body([70], [1.0]))))
    news = answered(server, 0)
    assert news.indices.tolist() == [0, 3, 40, 60, 70]  # among those never updated, the first
    np.testing.assert_array_equal(news.values, server.parameters[news.indices])


@pytest.mark.parametrize("download", [1e-9, 0.1, 0.5, 0.99, 1.0])
def test_exactly_the_asked_fraction_is_handed_out(make_server, make_terms, download):
    server = make_server(terms=make_terms(download=download))
    server.receive(encode(upload(server)))
    news = answered(server, 0)
    assert news.indices.size == max(1, int(download * SIZE))
    kept = server.counters[news.indices]
    others = np.delete(server.counters, news.indices)
    assert not others.size or kept.min() >= others.max()


REFUSED = {
    "another run": ({"terms": bytes(32)}, "stranger"),
    "a stranger": ({"participant": "eve"}, "stranger"),
    "a gap": ({"sequence": 3}, "damaged"),
    "an old number": ({"sequence": 1}, "duplicate"),
    "no number": ({"sequence": 0}, "duplicate"),
    "the future": ({"base": 9}, "damaged"),
    "before the beginning": ({"base": -1}, "damaged"),
    "too old": ({"base": 0}, "late"),
    "too many values": ({"body": body([1, 2, 3], [1.0] * 3)}, "oversized"),
    "too many bytes": ({"body": bytes(9000)}, "oversized"),
    "no update": ({"body": b"\7"}, "damaged"),
    "another dimension": ({"body": body([SIZE + 1], [1.0], SIZE + 2)}, "damaged"),
    "beyond float32": ({"body": body([2, 3], [3e38, 1.0])}, "not finite"),
    "too large together": ({"body": body([1, 2], [6e5, 1.0])}, "not finite"),
    **{
        str(bad): ({"body": body([3], [-2.0]).replace(struct.pack("<f", -2.0), struct.pack("<f", bad))}, "not finite")
        for bad in (np.nan, np.inf, -np.inf)
    },
}


@pytest.fixture
def begun(make_server, make_terms):
    """A server that has added one upload each of ann and bob, and is strict."""
    server = make_server(terms=make_terms(max_values=2, max_staleness=1))
    server.receive(encode(upload(server, body=body([1], [6e5]))))
    server.receive(encode(upload(server, participant="bob", base=1)))
    return server


def state(server):
    return server.parameters.tobytes(), server.counters.tobytes(), server.version


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_not_be_added_is_refused_counted_and_changes_nothing(begun, case):
    changes, reason = REFUSED[case]
    before = state(begun)
    fitting = upload(begun, sequence=2, base=2)
    with pytest.raises(MessageError):
        begun.receive(encode(replace(fitting, **changes)))
    assert begun.refusals == {reason: 1}
    assert state(begun) == before
    begun.receive(encode(fitting))  # it goes on


def test_the_very_same_upload_counts_once_and_its_receipt_is_repeated(begun):
    blob = encode(upload(begun, sequence=2, base=2))
    receipt = begun.receive(blob)
    begun.receive(encode(replace(upload(begun, sequence=1, base=3), participant="cem")))
    before = state(begun)
    for _ in range(2):
        assert begun.receive(blob) == receipt  # of the version it made, whatever came since
    assert begun.refusals == {"duplicate": 2}
    assert state(begun) == before
    other = encode(upload(begun, sequence=2, base=3))
    with pytest.raises(MessageError, match="upload 2 of 'ann'"):
        begun.receive(other)
    assert begun.refusals == {"duplicate": 3}


damages = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, 2**20), st.just(0)),
    st.tuples(st.just("flip"), st.integers(0, 2**20), st.integers(1, 255)),
    st.tuples(st.just("append"), st.just(0), st.integers(0, 255)),
)


def damaged(blob, damage):
    kind, where, what = damage
    if kind == "cut":
        return blob[: where % len(blob)]
    if kind == "append":
        return blob + bytes([what])
    spot = where % len(blob)
    return blob[:spot] + bytes([blob[spot] ^ what]) + blob[spot + 1 :]


@given(damage=damages)
@example(damage=("cut", 0, 0))
@settings(max_examples=60)
def test_damaged_bytes_change_nothing(damage):
    terms = SelectiveTerms(run="test", participants=("ann",), layout="none", dimension=SIZE, max_values=2)
    server = ParameterServer(terms, np.zeros(SIZE, dtype=np.float32))
    before = state(server)
    blob = damaged(encode(upload(server)), damage)
    for door in (server.receive, server.receive_total):
        with pytest.raises(MessageError):
            door(blob)
    with pytest.raises(MessageError):
        server.answer(damaged(encode(Request(terms.digest, "ann", -1)), ("flip", damage[1], damage[2] or 1)))
    assert server.refusals.total() == 3
    assert state(server) == before


@given(forged=st.binary(max_size=40), spot=st.integers(0, 20))
def test_bytes_with_a_valid_checksum_are_an_update_or_change_nothing(forged, spot):
    terms = SelectiveTerms(run="test", participants=("ann",), layout="none", dimension=SIZE, max_values=2)
    server = ParameterServer(terms, np.zeros(SIZE, dtype=np.float32))
    before = state(server)
    good = body([3, 5], [0.5, -2.0])
    try:
        server.receive(encode(upload(server, body=good[:spot] + forged + good[spot + len(forged) :])))
    except MessageError:
        assert server.refusals.total() == 1
        assert state(server) == before
    else:
        assert server.version == 1
        assert server.counters.sum() <= 2
        assert np.isfinite(server.parameters).all()


@pytest.mark.parametrize("door", ["receive", "receive_total", "answer"])
def test_mutants_are_refused_and_change_nothing_or_are_an_update(make_server, make_terms, door):
    rng, terms = np.random.default_rng(0), make_terms(together=2 if door == "receive_total" else 1)
    first = upload(make_server(terms=terms))
    sums, asked = Total(terms.digest, 1, ("ann", "bob"), first.body), Request(terms.digest, "ann", 0)
    good = {"receive": first, "receive_total": sums, "answer": asked}[door]
    server = make_server(terms=terms)
    before = state(server)
    for _ in range(300):
        try:
            getattr(server, door)(mutant(good, rng))
        except MessageError:
            assert state(server) == before
        assert np.isfinite(server.parameters).all()
        if state(server) != before:  # it was an update
            server = make_server(terms=terms)


@pytest.mark.parametrize(
    ("request_", "words"),
    [({"participant": "eve"}, "'eve'"), ({"terms": bytes(32)}, "run"), ({"version": 3}, "3"), ({"version": -2}, "-2")],
)
def test_wrong_requests_are_refused(begun, request_, words):
    fields = {"terms": begun.terms.digest, "participant": "ann", "version": 0}
    with pytest.raises(MessageError, match=words):
        begun.answer(encode(Request(**(fields | request_))))
    assert begun.refusals.total() == 1


def total(server, **changes):
    fields = {"turn": 1, "participants": ("ann", "bob"), "body": body([1], [1.0])}
    return encode(Total(server.terms.digest, **(fields | changes)))


def test_where_sums_are_agreed_on_nothing_else_is_opened(make_server, make_terms):
    server = make_server(terms=make_terms(together=2))
    with pytest.raises(MessageError, match="2 uploads"):
        server.receive(encode(upload(server)))
    with pytest.raises(MessageError, match="1 uploads"):
        server.receive_total(total(server, participants=("ann",)))
    for names in (("ann", "ann"), ("ann", "eve")):
        with pytest.raises(MessageError, match="once"):
            server.receive_total(total(server, participants=names))
    server.receive_total(total(server))
    with pytest.raises(MessageError, match="turn 1"):
        server.receive_total(total(server))
    assert server.refusals == {"alone": 2, "stranger": 2, "duplicate": 1}
    assert (server.version, server.turn, server.counters.sum()) == (1, 1, 1)


def test_doors_are_not_mixed_up(make_server):
    server = make_server()
    with pytest.raises(MessageError, match="selective/upload"):
        server.receive(total(server))
    with pytest.raises(MessageError, match="selective/total"):
        server.receive_total(encode(upload(server)))


def test_what_the_server_sees_can_be_recorded(make_server, join):
    seen = []
    server = make_server(record=seen.append)
    ann = join(server, sharing=Sharing(0.1))
    sent = ann.train()
    server.receive(sent)
    assert [type(decode(blob, Request, Upload)) for blob in seen] == [Request, Upload]
    assert seen[-1] == sent


BAD = {
    "download": (0.0, 1.1, "all"),
    "batch": (0, 2.5),
    "together": (True, 4),
    "participant": ((), ("ann", "ann"), ("",)),
    "max_values": (79,),
    "max_staleness": (-1, "3"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BAD for value in BAD[name]])
def test_terms_on_which_nobody_could_learn_are_refused(make_terms, name, value):
    with pytest.raises(InputError, match=name):
        make_terms(**{"participants" if name == "participant" else name: value})


def test_a_model_too_large_for_a_message_is_refused():
    with pytest.raises(InputError, match="138357544"):
        SelectiveTerms(run="vgg", participants=("ann",), layout="", dimension=138_357_544)


@pytest.mark.parametrize("changes", [{}, {"max_values": 5, "max_staleness": 0, "download": 0.25, "together": 3}])
def test_terms_survive_the_wire(make_terms, changes):
    terms = make_terms(**changes)
    assert SelectiveTerms.from_bytes(terms.to_bytes()) == terms


@pytest.mark.parametrize("initial", [np.zeros(3, np.float32), np.zeros(SIZE), np.full(SIZE, np.nan, np.float32)])
def test_wrong_initial_parameters_are_refused(make_terms, initial):
    with pytest.raises(InputError, match="78"):
        ParameterServer(make_terms(), initial)


def test_downloads_of_float16_halve_the_bytes_and_leave_the_servers_own_parameters(make_server, make_terms, join):
    exact, rounded = make_server(), make_server(terms=make_terms(half=True))
    sizes = []
    for server in (exact, rounded):
        ann = join(server)
        sizes.append(len(server.answer(ann.request())))
        assert np.allclose(ann.parameters, server.parameters, rtol=2**-11, atol=0)
        server.receive(ann.train())
    assert sizes[0] - sizes[1] == 2 * rounded.terms.dimension
    assert (rounded.parameters != rounded.parameters.astype(np.float16)).any()
