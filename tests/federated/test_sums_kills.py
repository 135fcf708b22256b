"""The server is killed at every point of a run, one after the other, and goes on from its disk."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import blindsight.files
from blindsight.federated.courier import Courier, Reply
from blindsight.federated.sums.opening import find_run, label_run
from blindsight.federated.sums.server import SumServer
from blindsight.learn.dphe.storage import MessageJournal
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from tests.federated.village import ALL_SCHEMES, PATIENCE, Village


class Killed(BaseException):
    """What kill -9 looks like from inside: nothing catches it."""


class Fuse:
    """Kills at the event after so many; `burnt` tells whether it has."""

    def __init__(self) -> None:
        self.left: int | None = None

    @property
    def burnt(self) -> bool:
        return self.left is None

    def tick(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Killed


class FusedCourier:
    """A courier whose server may be killed before each sending and after each reply."""

    def __init__(self, courier: Courier, fuse: Fuse) -> None:
        self.courier, self.fuse = courier, fuse

    def present(self) -> Mapping[str, int]:
        self.fuse.tick()
        return self.courier.present()

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        self.fuse.tick()
        return self.courier.send(name, kind, parts)

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Reply]]:
        for item in self.courier.collect(tickets, seconds=seconds):
            self.fuse.tick()
            yield item


@pytest.fixture
def fuse(tmp_path, monkeypatch):
    """A fuse that also burns before and after each file that the server writes."""
    fuse = Fuse()
    own = tmp_path / AGGREGATOR
    mkstemp, sync, append = blindsight.files.tempfile.mkstemp, blindsight.files.sync_folder, MessageJournal.append

    def before_writing(*args, **kwargs):
        if Path(kwargs["dir"]).is_relative_to(own):
            fuse.tick()
        return mkstemp(*args, **kwargs)

    def after_writing(folder):
        sync(folder)
        if folder.is_relative_to(own):
            fuse.tick()

    def appending(journal, blob):
        fuse.tick()
        append(journal, blob)
        fuse.tick()

    monkeypatch.setattr(blindsight.files.tempfile, "mkstemp", before_writing)
    monkeypatch.setattr(blindsight.files, "sync_folder", after_writing)
    monkeypatch.setattr(MessageJournal, "append", appending)
    return fuse


@pytest.mark.parametrize(
    "scheme", ["plain", "block-dphe", "bfv", *(pytest.param(s, marks=pytest.mark.slow) for s in ("dphe", "masks"))]
)
def test_a_server_killed_anywhere_in_a_round_goes_on_and_no_sum_is_wrong(tmp_path, fuse, scheme):
    village = Village(tmp_path, held=True)
    courier = FusedCourier(village.courier, fuse)
    server = village.open(scheme, courier)
    moved = np.zeros(server.terms.dimension, dtype=np.int64)
    for point in range(1000):
        round = point + 1
        village.draw(round, whole=True)
        fuse.left = point
        try:
            result = server.play(round, ())
        except Killed:
            server = village.restarted(server, courier)
            result = server.play(round, ())
        moved += result.total
        assert len(result.contributors) >= 3
        assert all(village.proposals[name, round] <= 1 for name in village.users)
        if not fuse.burnt:
            break
        # Whoever did not get in (it came too late for the sum that was asked for) has kept it for the next round.
        if result.contributors == village.users:
            assert np.array_equal(moved, village.everything_learned(server))
    assert 15 < round < 1000
    assert result.contributors == village.users
    assert np.array_equal(moved, village.everything_learned(server))


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_server_killed_after_a_round_but_before_using_its_sum_gets_the_same_sum(tmp_path, scheme):
    village = Village(tmp_path)
    server = village.open(scheme)
    village.draw(1)
    first = server.play(1, ())
    del village.handlers[KEY_GENERATOR], village.handlers["ann"]
    again = village.restarted(server).play(1, ())
    assert again.contributors == first.contributors
    assert np.array_equal(again.total, first.total)
    assert all(count == 1 for count in village.proposals.values())


@pytest.mark.parametrize("scheme", ["plain", "block-dphe", "bfv", "masks"])
def test_a_server_killed_anywhere_in_the_set_up_can_be_started_again(tmp_path, fuse, scheme):
    village = Village(tmp_path)
    courier, home = FusedCourier(village.courier, fuse), village.homes[AGGREGATOR]
    for point in range(200):
        label, fuse.left = f"run {point}", point
        try:
            label_run(home, label, village.open(scheme, courier).run, seed=0)
        except Killed:
            if find_run(home, label, seed=0) is None:
                label_run(home, label, village.open(scheme, courier).run, seed=0)
        if not fuse.burnt:
            break
    fuse.left = None
    found = find_run(home, label, seed=0)
    assert found is not None
    assert point > 8
    server = SumServer(found, village.courier, PATIENCE)
    village.draw(1)
    assert np.array_equal(server.play(1, ()).total, village.plain_sum(server, village.users))
