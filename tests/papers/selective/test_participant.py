"""A participant shares what it says and no more, forgets nothing on the way, and stops when its budget is spent."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blindsight.dp import Ledger
from blindsight.errors import BudgetExceededError, InputError, MessageError, PrivacyError, StorageError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.noise import (
    Laplace,
    ParticipantGaussian,
    PublishedLaplace,
    Sharing,
    SparseUpdate,
    as_half,
    every_place,
)
from blindsight.papers.selective.protocol import LARGEST_PARAMETER, Participant, change_between
from blindsight.rng import seeded_bytes

SIZE = 78


def download(participant, server):
    participant.take(server.answer(participant.version), server.version)


def share(participant, server):
    """Let a participant train and upload; return the upload."""
    upload = participant.train()
    server.receive(upload)
    participant.settle(added=True)
    return upload.update


# --- the change that leads from one vector to another ---


finite = st.floats(-(2.0**60), 2.0**60, width=32)


@given(arrays(np.float32, 20, elements=finite), arrays(np.float32, 20, elements=finite))
@settings(max_examples=40)
def test_a_step_of_descent_is_always_met(before, step):
    after = before - step
    assert (before + change_between(before, after)).tobytes() == after.tobytes()


@given(arrays(np.float32, 50, elements=st.floats(-2, 2, width=32)), st.integers(0, 2**32))
@settings(max_examples=40)
def test_any_result_is_met_where_a_number_leads_there(before, seed):
    after = np.random.default_rng(seed).choice([0.5, 1.0, 2.0, 0.1, -0.7], 50).astype(np.float32)
    change = change_between(before, after)
    missed = np.flatnonzero(before + change != after)
    near = change[missed]
    for toward in (-np.inf, np.inf):
        for _ in range(3):
            near = np.nextafter(near, np.float32(toward))
            assert (before[missed] + near != after[missed]).all()


def test_where_the_rounded_difference_misses_its_neighbour_is_taken():
    before, after = np.float32([-0.5 - 2.0**-24]), np.float32([1.0])
    assert before + (after - before) != after
    assert before + change_between(before, after) == after


# --- what is shared ---


@pytest.mark.parametrize(("share", "count"), [(1.0, 78), (0.1, 7), (0.01, 1)])
def test_as_many_values_are_uploaded_as_asked_for(make_server, join, share, count):
    ann = join(make_server(), sharing=Sharing(share))
    before = ann.parameters
    update = ann.train().update
    change = np.abs(ann.parameters - before)
    assert update.indices.size == count
    assert np.abs(update.values).min() >= np.delete(change, update.indices).max(initial=0) - 1e-7


def test_a_bound_is_kept_and_half_is_half(make_server, join):
    server = make_server()
    whole = join(server, sharing=Sharing(1.0, bound=0.01)).train().update.values
    half = join(server, "bob", Sharing(1.0, bound=0.01, half=True)).train().update.values
    assert np.abs(whole).max() == np.float32(0.01)
    np.testing.assert_array_equal(half, as_half(half))


def test_downloads_overwrite_and_the_rest_stays(make_server, join):
    server = make_server(download=0.1)
    ann, bob = join(server, sharing=Sharing(0.1)), join(server, "bob", Sharing(0.1))
    server.receive(bob.train())
    share(ann, server)
    own = ann.parameters
    download(ann, server)
    updated = server.counters > 0
    most = np.argsort(-server.counters, kind="stable")[:7]
    np.testing.assert_array_equal(ann.parameters[most], server.parameters[most])
    others = np.setdiff1d(np.arange(SIZE), most)
    np.testing.assert_array_equal(ann.parameters[others], own[others])
    assert updated.sum() > 7  # so that there was something not to be downloaded


def test_it_trains_when_enough_has_gathered(make_server, join, make_photos):
    server = make_server()
    ann = join(server, batches=0)
    inputs, labels = make_photos(9, 1)
    assert not ann.ready
    with pytest.raises(InputError, match="0 photos"):
        ann.train()
    ann.gather(inputs[:3], labels[:3])
    assert not ann.ready
    ann.gather(inputs[3:], labels[3:])
    for left in (5, 1):
        assert ann.ready
        share(ann, server)
        assert ann.waiting == left
    assert not ann.ready


def test_each_photo_is_used_once_in_order(make_server, join, make_trainer):
    trainer, seen = make_trainer(), []
    train = trainer.train

    def watch(parameters, inputs, labels, seed):
        seen.append((inputs, labels))
        return train(parameters, inputs, labels, seed)

    trainer.train = watch
    server = make_server()
    ann = join(server, batches=0, trainer=trainer)
    photos, labels = np.random.default_rng(2).random((8, 5, 5)), np.arange(8) % 3
    original = photos.copy()
    ann.gather(photos, labels)
    photos[:] = 0  # the caller may reuse its memory
    for _ in range(2):
        share(ann, server)
    np.testing.assert_array_equal(np.concatenate([batch for batch, _ in seen]), original)
    np.testing.assert_array_equal(np.concatenate([marks for _, marks in seen]), labels)


# --- residuals ---


def test_with_residuals_all_is_sent_in_the_end(make_server, join):
    server = make_server()
    ann = join(server, sharing=Sharing(0.1, bound=0.01, half=True, residual=True), batches=30)
    start, total = server.parameters.copy(), np.zeros(SIZE)
    for _ in range(30):
        before = ann.parameters
        share(ann, server)
        total += ann.parameters - before
        moved = server.parameters - start
        held = ann.residual
        assert held is not None
        np.testing.assert_allclose(moved + held, total, atol=1e-5)
    assert np.abs(held).max() > 0.01  # the bound mattered


def test_without_residuals_what_was_not_sent_is_not_sent_later(make_server, join):
    server = make_server()
    ann = join(server, sharing=Sharing(0.1), batches=2)
    share(ann, server)
    before = ann.parameters
    update = ann.train().update
    change = ann.parameters - before
    np.testing.assert_allclose(update.values, change[update.indices], atol=1e-6)


@pytest.mark.parametrize("residual", [False, True])
def test_a_refused_upload_is_sent_later_if_there_is_a_memory(make_server, join, residual):
    server = make_server()
    ann = join(server, sharing=Sharing(1.0, residual=residual), batches=2)
    first, second = ann.parameters, None
    lost = ann.train().update.values
    ann.settle(added=False)
    second = ann.parameters
    np.testing.assert_allclose(second - first, lost, atol=1e-6)
    update = ann.train().update.values
    change = ann.parameters - second
    np.testing.assert_allclose(update, change + lost if residual else change, atol=1e-6)


def test_noise_is_not_taken_back(make_server, join):
    server = make_server()
    noise = ParticipantGaussian(clip=100.0, noise_multiplier=1.0)
    ann = join(server, sharing=Sharing(1.0, noise=noise, residual=True), source=seeded_bytes(1))
    before = ann.parameters
    update = share(ann, server)
    assert np.abs(update.values - (ann.parameters - before)).max() > 10
    assert ann.residual is not None
    np.testing.assert_allclose(ann.residual, 0, atol=1e-6)


def test_what_the_server_hands_out_is_checked(make_server, join, make_trainer):
    ann = Participant("ann", make_trainer(), Sharing(1.0))
    with pytest.raises(InputError, match="parameters"):
        ann.train()
    part = SparseUpdate(SIZE, np.arange(3), np.zeros(3, dtype=np.float32))
    with pytest.raises(MessageError, match="all parameters"):
        ann.take(part, 0)
    for wrong in (1.1 * LARGEST_PARAMETER, np.nan, -np.inf):
        with pytest.raises(MessageError, match="1,048,576"):
            ann.take(SparseUpdate(SIZE, every_place(SIZE), np.full(SIZE, wrong, dtype=np.float32)), 0)
    assert ann.version == -1
    with pytest.raises(InputError, match="no upload"):
        ann.settle(added=True)


# --- the budget ---


def honest(ledger, *, epsilon=4.0):
    ledger.set_budget("ann", unit="person", neighbours="add/remove", epsilon=epsilon, delta=1e-5)
    noise = ParticipantGaussian(clip=1.0, noise_multiplier=2.0)
    return {"sharing": Sharing(1.0, noise=noise), "ledger": ledger, "source": seeded_bytes(1)}


def test_training_stops_when_the_budget_is_spent_and_nothing_is_lost(tmp_path, make_server, join):
    server, ledger = make_server(), Ledger(tmp_path / "ledger")
    ann = join(server, batches=20, **honest(ledger))
    assert ann.scope == "ann"
    uploads = 0
    while ann.ready:
        before = ann.parameters.tobytes(), ann.waiting, server.version
        try:
            share(ann, server)
        except BudgetExceededError as error:
            sentence = str(error)
        else:
            uploads += 1
    assert ann.spent
    assert "may spend epsilon 4" in sentence
    assert 1 <= uploads < 20
    assert (ann.parameters.tobytes(), ann.waiting, server.version) == before
    assert len(Ledger(tmp_path / "ledger").spends("ann", "person")) == uploads
    assert ledger.spent("ann", "person", delta=1e-5).epsilon <= 4.0
    with pytest.raises(BudgetExceededError, match="spent"):
        ann.train()
    download(ann, server)  # it still learns from the others


def test_failed_training_loses_nothing_but_its_cost(make_server, join, make_trainer):
    ledger, trainer = Ledger(), make_trainer()
    trainer.train = lambda parameters, inputs, labels, seed: parameters[1:]
    ann = join(make_server(), trainer=trainer, **honest(ledger))
    before = ann.parameters.tobytes()
    with pytest.raises(InputError, match="78 float32"):
        ann.train()
    assert (ann.parameters.tobytes(), ann.waiting, ann.ready) == (before, 4, True)
    assert len(ledger.spends("ann", "person")) == 1  # it was on record before a photo was looked at


def test_no_photo_is_looked_at_before_its_cost_is_on_record(make_server, join, make_trainer, monkeypatch):
    """A trainer with a memory (Adam) would otherwise keep steps that were never charged for."""
    ledger, trainer, trained = Ledger(), make_trainer(), []
    train = trainer.train
    trainer.train = lambda *photos: trained.append(1) or train(*photos)
    ann = join(make_server(), trainer=trainer, **honest(ledger))

    def full(*_, **__):
        raise StorageError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "spend", full)
        with pytest.raises(StorageError):
            ann.train()
    assert (trained, ann.ready) == ([], True)
    ann.train()
    assert (len(trained), len(ledger.spends("ann", "person"))) == (1, 1)


def test_noise_per_record_is_charged_once_as_batches_are_disjoint(make_server, join, make_trainer):
    noise, ledger, server = RecordGaussian(clip=1.0, noise_multiplier=2.0), Ledger(), make_server()
    trainer = make_trainer(record_noise=noise, epochs=3)
    ann = join(server, sharing=Sharing(0.1, noise=noise), trainer=trainer, ledger=ledger, batches=3)
    while ann.ready:
        share(ann, server)
    (spend,) = ledger.spends("ann", "record")
    assert spend.loss.count == 3  # as often as a photo is used


def test_photos_that_are_trained_on_again_after_a_failure_are_charged_for_again(make_server, join, make_trainer):
    noise, ledger, server = RecordGaussian(clip=1.0, noise_multiplier=2.0), Ledger(), make_server()
    trainer = make_trainer(record_noise=noise)
    ann = join(server, sharing=Sharing(0.1, noise=noise), trainer=trainer, ledger=ledger, batches=3)
    share(ann, server)
    train, trainer.train = trainer.train, lambda parameters, *_: parameters * np.float32(np.nan)
    with pytest.raises(InputError, match="diverged"):
        ann.train()
    trainer.train = train
    for _ in range(2):
        share(ann, server)
    assert len(ledger.spends("ann", "record")) == 2


def test_noise_per_record_needs_a_trainer_that_adds_it_and_tells_how_often_it_uses_a_photo(
    make_server, join, make_trainer
):
    noise = RecordGaussian(clip=1.0, noise_multiplier=2.0)
    with pytest.raises(PrivacyError, match="trainer"):
        join(make_server(), sharing=Sharing(0.1, noise=noise))
    for epochs in (None, 1.5):
        trainer = make_trainer(record_noise=noise, epochs=epochs)
        with pytest.raises(PrivacyError, match="does not tell"):
            join(make_server(), sharing=Sharing(0.1, noise=noise), trainer=trainer)


@pytest.mark.parametrize(
    "sharing",
    [Sharing(0.1), Sharing(0.1, bound=0.1, noise=Laplace(1.0)), Sharing(0.1, bound=0.1, noise=PublishedLaplace(1.0))],
)
def test_a_ledger_does_not_count_what_is_not_proven(make_server, join, sharing):
    with pytest.raises(PrivacyError, match="nothing is proven"):
        join(make_server(), sharing=sharing, ledger=Ledger())


def test_laplace_noise_is_counted_value_by_value(make_server, join):
    ledger = Ledger()
    sharing = Sharing(0.1, select="random", bound=0.1, noise=Laplace(1.0))
    join(make_server(), sharing=sharing, ledger=ledger, source=seeded_bytes(1)).train()
    assert ledger.spent("ann", "person", delta=0.0).epsilon == pytest.approx(7)


@pytest.mark.parametrize(
    ("inputs", "labels", "words"),
    [
        (np.zeros((2, 5, 5)), [0], "2 photos"),
        (np.zeros((2, 5, 5)), [[0, 1], [1, 0]], "2 photos"),
        (np.zeros((2, 5, 5)), [[0], [1, 0]], "2 photos"),
        (np.zeros((2, 5, 5)), ["cat", "dog"], "<U3"),
        (np.zeros((2, 5, 5)), [0.0, 1.0], "float64"),
        (np.zeros((2, 5, 5)), [0, -1], "negative"),
        (np.zeros(4), [0] * 4, r"\(4,\)"),
        (np.full((2, 4), None), [0, 1], "object"),
        ([[1.0, 2.0], [1.0]], [0, 1], "one shape"),
        (np.full((1, 5, 5), np.nan), [0], "finite"),
        (np.zeros((1, 4, 5)), [0], r"\(4, 5\)"),
    ],
)
def test_useless_photos_are_refused(make_server, join, inputs, labels, words):
    ann = join(make_server())
    with pytest.raises(InputError, match=words):
        ann.gather(inputs, labels)
    assert ann.waiting == 4
