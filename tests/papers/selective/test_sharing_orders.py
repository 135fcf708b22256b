"""In turn, at random or each at its own speed: everybody's photos are used, and the model learns."""

from collections import Counter

import numpy as np
import pytest

from blindsight.dp import Ledger
from blindsight.errors import InputError
from blindsight.papers.selective.noise import ParticipantGaussian, Sharing
from blindsight.papers.selective.protocol import asynchronous, random_order, round_robin, simulate
from blindsight.rng import seeded_bytes

NAMES = ("ann", "bob", "cem")
SPEEDS = {"ann": 4.0, "bob": 2.0, "cem": 1.0}


def everyone(server, join, **options):
    return [join(server, name, **options) for name in NAMES]


def names(exchanges):
    return [exchange.participant for exchange in exchanges]


def test_round_robin_goes_round(make_server, join):
    server = make_server()
    participants = [join(server, name, batches=batches) for name, batches in zip(NAMES, (1, 3, 2), strict=True)]
    exchanges = list(simulate(server, participants, round_robin))
    assert names(exchanges) == ["ann", "bob", "cem", "bob", "cem", "bob"]
    assert {exchange.staleness for exchange in exchanges} == {0}
    assert server.version == 6


def test_random_order_is_repeatable_and_fair(make_server, join):
    courses = []
    for seed in (1, 1, 2):
        server = make_server()
        exchanges = list(simulate(server, everyone(server, join, batches=8), random_order(seed)))
        assert Counter(names(exchanges)) == dict.fromkeys(NAMES, 8)
        courses.append((names(exchanges), server.parameters.tobytes()))
    assert courses[0] == courses[1]
    assert courses[0][0] != courses[2][0]
    assert courses[0][0] != sorted(NAMES) * 8


def test_everybody_trains_at_its_own_speed_on_stale_parameters(make_server, join):
    server = make_server()
    exchanges = list(simulate(server, everyone(server, join, batches=12), asynchronous(SPEEDS, random_state=0)))
    first = Counter(names(exchanges)[:14])  # two units of time, about
    assert first["ann"] > first["bob"] > first["cem"] >= 1
    assert Counter(names(exchanges)) == dict.fromkeys(NAMES, 12)
    staleness = {name: [e.staleness for e in exchanges if e.participant == name] for name in NAMES}
    assert max(staleness["ann"][:8]) <= 2  # the fastest builds on what is nearly new
    assert max(staleness["cem"][:2]) >= 5  # the slowest on what others have changed since
    assert server.version == 36


def test_asynchronous_uploads_are_added_to_newer_parameters_than_they_were_trained_on(
    make_server, join, make_trainer, make_photos
):
    server = make_server()
    start = server.parameters.copy()
    participants = everyone(server, join, sharing=Sharing(1.0))
    list(simulate(server, participants, asynchronous(SPEEDS, spread=0.0)))
    expected = start.copy()
    for name in NAMES:  # all had downloaded the initial parameters
        expected += make_trainer().train(start, *make_photos(4, sum(name.encode())), 0) - start
    np.testing.assert_allclose(server.parameters, expected, atol=1e-6)


def test_uploads_that_are_too_stale_are_refused_and_the_others_go_on(make_server, join):
    server = make_server(max_staleness=3)
    participants = everyone(server, join, batches=6, sharing=Sharing(0.1, residual=True))
    exchanges = list(simulate(server, participants, asynchronous(SPEEDS | {"ann": 8.0}, random_state=0)))
    late = [exchange for exchange in exchanges if exchange.refused]
    assert late
    assert all("Download and train again" in str(exchange.refused) for exchange in late)
    assert server.refusals == {"late": len(late)}
    assert server.version == len(exchanges) - len(late)
    assert Counter(names(exchanges)) == dict.fromkeys(NAMES, 6)  # whoever was refused goes on


def test_a_participant_whose_budget_is_spent_stops_and_the_others_go_on(make_server, join):
    server, ledger = make_server(), Ledger()
    ledger.set_budget("ann", unit="person", neighbours="add/remove", epsilon=4.0, delta=1e-5)
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=2.0))
    ann = join(server, "ann", sharing, batches=9, ledger=ledger, source=seeded_bytes(1))
    exchanges = list(simulate(server, [ann, join(server, "bob", batches=9)]))
    assert ann.spent
    (stop,) = [exchange for exchange in exchanges if exchange.refused]
    assert (stop.participant, stop.uploaded) == ("ann", 0)
    counted = Counter(names(exchanges))
    assert counted["bob"] == 9
    assert 1 < counted["ann"] < 9
    assert server.version == 9 + counted["ann"] - 1


def test_bytes_are_counted(make_server, join):
    sizes = {}
    for share in (1.0, 0.1):
        server = make_server(download=share)
        ann = join(server, sharing=Sharing(share))
        before = server.bytes_down
        (exchange,) = simulate(server, [ann])
        sizes[share] = (exchange.uploaded, server.bytes_down - before)
    assert min(sizes[1.0]) > 4 * 78
    assert max(sizes[0.1]) < min(sizes[1.0]) - 200


@pytest.mark.parametrize("order", [round_robin, random_order(5), asynchronous(SPEEDS, random_state=5)])
def test_participants_learn_together(order, make_server, make_trainer, make_photos, join):
    server = make_server()
    inputs, labels = make_photos(500, 99)

    def accuracy():
        return float((make_trainer().scores(server.parameters, inputs).argmax(axis=1) == labels).mean())

    before = accuracy()
    list(simulate(server, everyone(server, join, batches=30, sharing=Sharing(0.2, residual=True)), order))
    assert before < 0.6
    assert accuracy() > 0.95


@pytest.mark.parametrize("speeds", [{"ann": 0.0}, {"ann": float("inf")}, {"ann": -1.0}])
def test_impossible_speeds_are_refused(speeds):
    with pytest.raises(InputError, match="speeds"):
        asynchronous(speeds)


def test_a_missing_speed_is_named(make_server, join):
    server = make_server()
    with pytest.raises(InputError, match="bob"):
        list(simulate(server, [join(server), join(server, "bob")], asynchronous({"ann": 1.0})))
