"""The server adds what it accepts, hands out what was updated most, and counts bytes as zlib would write them."""

import zlib

import numpy as np
import pytest

from blindsight.errors import InputError, MessageError
from blindsight.papers.selective.noise import Sharing, SparseUpdate, as_half
from blindsight.papers.selective.protocol import (
    DOWNLOAD_HEADER,
    UPLOAD_HEADER,
    Upload,
    download_bytes,
    upload_bytes,
    usual_upload,
)

SIZE = 78


def update(places, values, dimension=SIZE):
    return SparseUpdate(dimension, np.array(places, dtype=np.int64), np.array(values, dtype=np.float32))


def upload(places=(3, 5), values=(0.5, -2.0), name="ann", base=0):
    return Upload(name, base, update(places, values))


def test_uploads_are_added_and_counted(make_server):
    server = make_server()
    before = server.parameters.copy()
    for one in (upload(), upload((5, 77), (1.0, 1.0), "bob"), upload(base=1)):
        server.receive(one)
    change, counts = np.zeros(SIZE, dtype=np.float32), np.zeros(SIZE, dtype=int)
    change[[3, 5, 77]], counts[[3, 5, 77]] = [1.0, -3.0, 1.0], [2, 3, 1]
    np.testing.assert_allclose(server.parameters - before, change, atol=1e-6)
    np.testing.assert_array_equal(server.counters, counts)
    assert server.version == 3


def test_the_most_updated_parameters_are_handed_out(make_server):
    server = make_server(download=5 / SIZE)
    assert server.answer().indices.tolist() == list(range(SIZE))  # at first, all
    server.receive(upload((3, 40, 60, 70), (1.0,) * 4))
    server.receive(upload((70,), (1.0,)))
    news = server.answer(0)
    assert news.indices.tolist() == [0, 3, 40, 60, 70]  # among those never updated, the first
    np.testing.assert_array_equal(news.values, server.parameters[news.indices])


@pytest.mark.parametrize("download", [1e-9, 0.1, 0.5, 0.99, 1.0])
def test_exactly_the_fraction_is_handed_out(make_server, download):
    server = make_server(download=download)
    server.receive(upload())
    news = server.answer(0)
    assert news.indices.size == max(1, int(download * SIZE))
    kept, others = server.counters[news.indices], np.delete(server.counters, news.indices)
    assert not others.size or kept.min() >= others.max()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (upload(base=0), "late"),
        *((upload((1, 2), (value, 1.0), base=2), "not finite") for value in (6e5, 3e38, np.nan, np.inf, -np.inf)),
    ],
)
def test_what_may_not_be_added_is_refused_counted_and_changes_nothing(make_server, wrong, reason):
    server = make_server(max_staleness=1)
    server.receive(upload((1,), (6e5,)))
    server.receive(upload(name="bob", base=1))
    before = server.parameters.tobytes(), server.counters.tobytes(), server.version
    with pytest.raises(MessageError):
        server.receive(wrong)
    assert server.refusals == {reason: 1}
    assert (server.parameters.tobytes(), server.counters.tobytes(), server.version) == before
    server.receive(upload(base=2))


@pytest.mark.parametrize(
    ("options", "name"),
    [({"download": 0.0}, "download"), ({"download": 1.1}, "download"), ({"download": "all"}, "download"),
     ({"max_staleness": -1}, "max_staleness"), ({"max_staleness": "3"}, "max_staleness")],
)  # fmt: skip
def test_servers_from_which_nobody_could_learn_are_refused(make_server, options, name):
    with pytest.raises(InputError, match=name):
        make_server(**options)


@pytest.mark.parametrize("initial", [np.zeros((2, 3), np.float32), np.zeros(3), np.full(3, np.nan, np.float32)])
def test_wrong_initial_parameters_are_refused(make_server, initial):
    server = type(make_server())
    with pytest.raises(InputError, match="initial"):
        server(initial)


def test_downloads_of_float16_halve_the_bytes_and_leave_the_servers_own_parameters(make_server, join):
    exact, rounded = make_server(), make_server(half=True)
    for server in (exact, rounded):
        server.receive(join(server).train())
    assert exact.bytes_down - rounded.bytes_down == 2 * SIZE
    np.testing.assert_array_equal(rounded.answer().values, as_half(rounded.parameters))
    assert (rounded.parameters != rounded.parameters.astype(np.float16)).any()


def test_what_the_server_sees_can_be_recorded(make_server, join):
    seen = []
    server = make_server(record=seen.append)
    sent = join(server, sharing=Sharing(0.1)).train()
    server.receive(sent)
    assert seen == [sent]


@pytest.mark.parametrize(("share", "most"), [(0.01, 0.015), (0.1, 0.119), (0.2, 0.23), (0.5, 0.54), (0.9, 0.95)])
def test_an_upload_costs_its_values_and_little_more_than_the_entropy_of_their_places(share, most):
    dimension = 100_000
    count = round(share * dimension)
    places = np.sort(np.random.default_rng(0).choice(dimension, count, replace=False))
    one = update(places, np.ones(count), dimension)
    size = upload_bytes(one) - UPLOAD_HEADER
    bits = -dimension * (share * np.log2(share) + (1 - share) * np.log2(1 - share))
    assert 4 * count + bits / 8 < size < most * 4 * dimension
    assert upload_bytes(one, half=True) == upload_bytes(one) - 2 * count
    assert download_bytes(one) - DOWNLOAD_HEADER == size
    assert usual_upload(count, dimension) == upload_bytes(one)


def test_places_are_written_as_gaps_that_can_be_read_again():
    places = np.array([0, 1, 300, 900, 1155, 1411])
    one = update(places, np.zeros(6), 10_000)
    gaps = bytes([0, 0, 255, 43, 255, 255, 89, 254, 255, 0])  # 255 stands for 255 and what comes next
    assert upload_bytes(one) - UPLOAD_HEADER == 24 + len(zlib.compress(gaps, 9))
    whole = update(np.arange(50), np.zeros(50), 50)
    assert upload_bytes(whole) - UPLOAD_HEADER == 200
