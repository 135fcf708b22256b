"""A participant that is killed at any moment and loaded again goes on as if nothing had happened."""

import os
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.wire import decode
from blindsight.dp import Ledger
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    InputError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.rng import seeded_bytes
from blindsight.selective import Participant, Sharing
from blindsight.selective import participant as participantfile
from blindsight.selective.protection import ParticipantGaussian, RecordGaussian
from blindsight.selective.terms import Upload

BATCHES = 2
WRITES = 10
"""Of a whole life: at the beginning, for 3 portions of photos, and by 2 downloads, trainings and receipts."""


class KilledError(BaseException):
    """The process ends here."""


class Life:
    """A participant that is loaded, exchanges with the server and is killed; `sent` holds what left it, by number."""

    def __init__(self, server, path, trainer, sharing, **options):
        self.server, self.path, self.photos = server, path, options.pop("photos")
        self.how = {"trainer": trainer, "sharing": sharing} | options
        self.sent = {}

    def begun_or_loaded(self):
        if self.path.exists():
            return Participant.load(self.path, **self.how)
        return Participant("ann", self.server.terms, **self.how, random_state=5, path=self.path)

    def exchange(self, ann):
        ann.take(self.server.answer(ann.request()))
        if not ann.under_way:
            while ann.waiting < ann.terms.batch and ann.gathered < len(self.photos[1]):
                fresh = slice(ann.gathered, ann.gathered + 3)  # they come in threes, and are trained on in fours
                ann.gather(self.photos[0][fresh], self.photos[1][fresh])
            if ann.ready:
                ann.train()
        if upload := ann.under_way:
            self.sent.setdefault(decode(upload, Upload).sequence, set()).add(upload)
            ann.settle(self.server.receive(upload))

    def lived(self):
        """Go on to the end, killed or not, and return what the server has then."""
        while self.server.version < BATCHES:
            ann = None
            try:
                ann = self.begun_or_loaded()
                self.exchange(ann)
            except KilledError:
                pass
            finally:
                if ann is not None:
                    ann.close()
        return self.server.parameters.tobytes()


@pytest.fixture
def kill(monkeypatch):
    """Return a function that has the process killed at a certain write, before or after it, and tells when it was."""
    write = participantfile.write_arrays

    def at(number, after):
        numbers = iter(range(10**6))
        killed = []

        def killing(*content, **options):
            due = next(numbers) == number
            killed.extend([number] if due else [])
            if due and not after:
                raise KilledError
            write(*content, **options)
            if due:
                raise KilledError

        monkeypatch.setattr(participantfile, "write_arrays", killing)
        return killed

    return at


WAYS = [Sharing(0.2, residual=True), Sharing(0.3, select="random", half=True), Sharing(1.0, bound=0.01, residual=True)]


@pytest.mark.parametrize("sharing", WAYS, ids=["largest", "random", "bounded"])
def test_one_that_is_loaded_for_each_exchange_does_as_one_that_stays(
    tmp_path, make_server, make_terms, trainer, make_photos, sharing
):
    terms, photos = make_terms(download=0.5), make_photos(4 * BATCHES, 3)
    server = make_server(terms=terms)
    ann = Participant("ann", terms, trainer, sharing, random_state=5)
    stays = Life(server, tmp_path / "none", trainer, sharing, photos=photos)
    for _ in range(BATCHES):
        stays.exchange(ann)
    again = Life(make_server(terms=terms), tmp_path / "ann", trainer, sharing, photos=photos)
    assert again.lived() == server.parameters.tobytes()
    loaded = again.begun_or_loaded()
    assert loaded.parameters.tobytes() == ann.parameters.tobytes()
    assert (loaded.version, loaded.waiting, loaded.gathered) == (ann.version, ann.waiting, ann.gathered)
    assert (loaded._state.residual is None) == (ann._state.residual is None)
    if sharing.residual:
        np.testing.assert_array_equal(loaded._state.residual, ann._state.residual)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(WRITES))
def test_killed_at_any_write_it_trains_once_on_each_photo_and_sends_one_upload_per_number(
    tmp_path, make_server, trainer, make_photos, kill, write, after
):
    sharing, photos = Sharing(0.3, select="random", residual=True), make_photos(4 * BATCHES, 3)
    expected = Life(make_server(), tmp_path / "whole", trainer, sharing, photos=photos).lived()
    life = Life(make_server(), tmp_path / "ann", trainer, sharing, photos=photos)
    killed = kill(write, after)
    assert life.lived() == expected
    assert killed == [write]
    assert {number: len(uploads) for number, uploads in life.sent.items()} == dict.fromkeys(range(1, BATCHES + 1), 1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(0, WRITES, 3))
def test_it_never_trains_uncharged(tmp_path, make_server, make_trainer, make_photos, kill, write, after):
    trainer, trainings = make_trainer(), []
    train, ledger = trainer.train, Ledger(tmp_path / "ledger")

    def watched(*arguments):
        trainings.append(1)
        assert len(ledger.spends("test: ann", "person")) == len(trainings)
        return train(*arguments)

    trainer.train = watched
    noise = ParticipantGaussian(clip=1.0, noise_multiplier=2.0)
    ledger.set_budget("test: ann", unit="person", neighbours="add/remove", epsilon=50.0, delta=1e-5)
    options = {"ledger": ledger, "source": seeded_bytes(1), "photos": make_photos(4 * BATCHES, 3)}
    life = Life(make_server(), tmp_path / "ann", trainer, Sharing(1.0, noise=noise), **options)
    killed = kill(write, after)
    life.lived()
    assert killed == [write]
    assert len(trainings) >= BATCHES
    assert all(len(uploads) == 1 for uploads in life.sent.values())


def test_photos_whose_training_was_cut_short_are_charged_for_again(tmp_path, make_server, make_trainer, make_photos):
    noise, ledger, server = RecordGaussian(clip=1.0, noise_multiplier=2.0), Ledger(tmp_path / "ledger"), make_server()
    trainer = make_trainer(record_noise=noise)
    how = {"trainer": trainer, "sharing": Sharing(0.1, noise=noise), "ledger": ledger}
    life = Life(server, tmp_path / "ann", **how, photos=make_photos(12, 3))
    for _ in range(2):
        ann = life.begun_or_loaded()
        life.exchange(ann)
        ann.close()
    assert len(ledger.spends("test: ann", "record")) == 1  # batches are disjoint
    train = trainer.train

    def killed(*_):
        raise KilledError

    trainer.train = killed
    ann = life.begun_or_loaded()
    with pytest.raises(KilledError):
        life.exchange(ann)
    ann.close()
    trainer.train = train
    life.exchange(life.begun_or_loaded())
    assert server.version == 3
    assert len(ledger.spends("test: ann", "record")) == 2


def test_a_spent_budget_stays_spent(tmp_path, make_server, trainer, make_photos):
    ledger, noise = Ledger(tmp_path / "ledger"), ParticipantGaussian(clip=1.0, noise_multiplier=2.0)
    how = {"trainer": trainer, "sharing": Sharing(1.0, noise=noise), "ledger": ledger}
    ledger.set_budget("test: ann", unit="person", neighbours="add/remove", epsilon=0.1, delta=1e-5)
    server = make_server()
    ann = Participant("ann", server.terms, **how, path=tmp_path / "ann")
    ann.gather(*make_photos(4, 3))
    ann.take(server.answer(ann.request()))
    with pytest.raises(BudgetExceededError):
        ann.train()
    ann.close()
    again = Participant.load(tmp_path / "ann", **how)
    assert (again.spent, again.ready, again.waiting) == (True, False, 4)


@pytest.fixture
def ann(tmp_path, make_server, trainer, make_photos):
    server = make_server()
    ann = Participant("ann", server.terms, trainer, Sharing(0.2), random_state=1, path=tmp_path / "home" / "ann")
    ann.gather(*make_photos(6, 3))
    ann.take(server.answer(ann.request()))
    ann.train()
    return ann


def test_only_the_owner_may_read_it(tmp_path, ann, trainer):
    path = tmp_path / "home" / "ann"
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "home").iterdir()} == {0o600}
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    ann.close()
    path.chmod(0o640)
    with pytest.raises(StorageError, match="chmod 600"):
        Participant.load(path, trainer=trainer, sharing=ann.sharing)


def test_a_link_is_no_second_participant(tmp_path, ann, trainer):
    path, link = tmp_path / "home" / "ann", tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(StorageError, match="another process"):
        Participant.load(link, trainer=trainer, sharing=ann.sharing)
    ann.close()
    with closing(Participant.load(link, trainer=trainer, sharing=ann.sharing)) as again:
        again.withdraw()
    assert link.is_symlink()
    link.unlink()
    os.link(path, link)
    for name in (path, link):
        with pytest.raises(StorageError, match="2 hard links"):
            Participant.load(name, trainer=trainer, sharing=ann.sharing)


def test_one_process_at_a_time_and_nothing_is_overwritten(tmp_path, ann, trainer):
    path = tmp_path / "home" / "ann"
    with pytest.raises(StorageError, match="another process"):
        Participant.load(path, trainer=trainer, sharing=ann.sharing)
    ann.close()
    with pytest.raises(StorageError, match="exists"):
        Participant("ann", ann.terms, trainer, ann.sharing, path=path)
    again = Participant.load(path, trainer=trainer, sharing=ann.sharing)
    with pytest.raises(StorageError, match="closed"):
        ann.withdraw()
    assert ann.under_way == again.under_way != b""
    with pytest.raises(StorageError, match="does not exist"):
        Participant.load(tmp_path / "none", trainer=trainer, sharing=ann.sharing)


def test_what_cannot_be_written_did_not_happen(ann, make_photos, monkeypatch):
    def full(*_, **__):
        raise StorageError("the disk is full.")

    before = ann.under_way, ann.waiting, ann.gathered, ann.parameters.tobytes()
    with monkeypatch.context() as patch:
        patch.setattr(participantfile, "write_arrays", full)
        for act in (ann.withdraw, lambda: ann.gather(*make_photos(2, 1))):
            with pytest.raises(StorageError, match="full"):
                act()
    assert (ann.under_way, ann.waiting, ann.gathered, ann.parameters.tobytes()) == before
    ann.withdraw()
    assert not ann.under_way


def test_it_goes_on_as_it_began(tmp_path, ann, trainer, make_trainer):
    path = tmp_path / "home" / "ann"
    ann.close()
    with pytest.raises(InputError, match="another way"):
        Participant.load(path, trainer=trainer, sharing=replace(ann.sharing, share=0.3))
    with pytest.raises(InputError, match="shapes"):
        Participant.load(path, trainer=make_trainer(names=("weights", "bias")), sharing=ann.sharing)
    Participant.load(path, trainer=trainer, sharing=ann.sharing)


def test_what_was_counted_goes_on_being_counted(tmp_path, make_server, trainer):
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=2.0))
    terms = make_server().terms
    Participant("ann", terms, trainer, sharing, ledger=Ledger(), path=tmp_path / "ann").close()
    with pytest.raises(PrivacyError, match="ledger"):
        Participant.load(tmp_path / "ann", trainer=trainer, sharing=sharing)
    Participant.load(tmp_path / "ann", trainer=trainer, sharing=sharing, ledger=Ledger())


def test_altered_files_are_refused(tmp_path, ann, trainer):
    path = tmp_path / "home" / "ann"
    ann.close()
    whole = path.read_bytes()
    middle = len(whole) // 2
    for altered in (b"", b"garbage" * 200, whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        path.write_bytes(altered)
        with pytest.raises(CorruptFileError, match="ann"):
            Participant.load(path, trainer=trainer, sharing=ann.sharing)
    path.write_bytes(whole)
    assert Participant.load(path, trainer=trainer, sharing=ann.sharing).under_way == ann.under_way


def test_what_a_killed_writer_left_is_cleaned_up(tmp_path, ann, trainer):
    ann.close()
    torn, others = (tmp_path / "home" / name for name in (".ann.abcd1234.part", ".ann.b.abcd1234.part"))
    torn.touch(), others.touch()
    Participant.load(tmp_path / "home" / "ann", trainer=trainer, sharing=ann.sharing)
    assert (torn.exists(), others.exists()) == (False, True)


def test_whoever_may_not_join_leaves_no_file(tmp_path, make_server, trainer):
    terms, path = make_server().terms, tmp_path / "it"
    with pytest.raises(UnknownNameError):
        Participant("eve", terms, trainer, Sharing(0.1), path=path)
    rng = np.random.Generator(np.random.MT19937(1))
    with pytest.raises(InputError, match="PCG64"):
        Participant("ann", terms, trainer, Sharing(0.1), random_state=rng, path=path)
    assert not path.exists()
    Participant("ann", terms, trainer, Sharing(0.1), path=path)
