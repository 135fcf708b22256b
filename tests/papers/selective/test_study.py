"""Before day 1 only public photos speak: features, scales and the initial model know nothing of the others."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from blindsight.data import load
from blindsight.data.dataset import Dataset
from blindsight.data.features import Thumbnails
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import DataError, InputError, UnknownNameError
from blindsight.papers.selective.methods import Centralised, NeverUpdated, SelectiveMethod
from blindsight.papers.selective.noise import Sharing
from blindsight.papers.selective.study import PhotoStudy, SharingOptions, Training, answered, backbone

DIGITS = load("digits", count=600, random_state=0)
PLANNED = {"participants": 3, "days": 3, "initial": 0.3, "random_state": 4}
HEAD = Training(initial_epochs=3)


def prepared(dataset=DIGITS, training=HEAD, pipeline=None, **options):
    pipeline = pipeline or PixelFeatures(max_components=12, random_state=0)
    return PhotoStudy.prepare(dataset, pipeline, training, **(PLANNED | options)), pipeline


def with_other_photos(rows):
    images = DIGITS.images.copy()
    images[rows] = 255 - images[rows]
    return replace(DIGITS, images=images)


@pytest.mark.parametrize(
    "training",
    [HEAD, Training(optimiser="adam", initial_epochs=2), Training(model="cnn", initial_epochs=1)],
    ids=["softmax", "head", "cnn"],
)
def test_what_is_fitted_before_day_1_is_fitted_to_public_photos_alone(training):
    if training != HEAD:
        pytest.importorskip("torch")
    study, pipeline = prepared(training=training)
    private = np.setdiff1d(np.arange(600), study.schedule.initial)
    others, same = prepared(with_other_photos(private), training)
    assert same.fingerprint() == pipeline.fingerprint()
    np.testing.assert_array_equal(others.initial, study.initial)
    np.testing.assert_array_equal(others.inputs[study.schedule.initial], study.inputs[study.schedule.initial])
    assert (others.inputs[private] != study.inputs[private]).any()
    public, different = prepared(with_other_photos(study.schedule.initial[:3]), training)
    assert training.model == "cnn" or different.fingerprint() != pipeline.fingerprint()
    assert (public.initial != study.initial).any()  # the public ones do matter
    if training == HEAD:
        scales = [each.make_trainer(record_noise=None).standardiser for each in (study, others, public)]
        np.testing.assert_array_equal(scales[0].mean, scales[1].mean)
        np.testing.assert_array_equal(scales[0].scale, scales[1].scale)
        assert (scales[0].mean != scales[2].mean).any()
        np.testing.assert_allclose(scales[0].mean, study.inputs[study.schedule.initial].mean(axis=0), atol=1e-5)


def test_a_pipeline_that_was_fitted_to_everything_is_fitted_anew():
    fresh = prepared()[1]
    used = PixelFeatures(max_components=12, random_state=0).fit(DIGITS.images)
    assert used.fingerprint() != fresh.fingerprint()
    assert prepared(pipeline=used)[1].fingerprint() == fresh.fingerprint()


def test_photos_keep_their_rows_and_the_cache_changes_nothing(tmp_path):
    study, pipeline = prepared()
    np.testing.assert_allclose(study.inputs, pipeline.transform(DIGITS.images), atol=1e-5)
    np.testing.assert_array_equal(study.labels, DIGITS.labels)
    assert study.answers == DIGITS.label_names
    assert study.dimension == study.initial.size == 10 * 13
    for _ in range(2):  # written, then read
        np.testing.assert_array_equal(prepared(cache=tmp_path)[0].inputs, study.inputs)


def test_the_same_seed_gives_the_same_study_and_another_one_another():
    one, same, other = prepared()[0], prepared()[0], prepared(random_state=5)[0]
    np.testing.assert_array_equal(one.initial, same.initial)
    assert (one.schedule.initial != other.schedule.initial).any()


def test_networks_of_all_participants_begin_alike_and_take_pictures_as_they_are():
    pytest.importorskip("torch")
    study, _ = prepared(training=Training(model="cnn", initial_epochs=1))
    assert study.inputs.dtype == np.uint8
    assert study.inputs.shape == DIGITS.images.shape
    trainers = [study.make_trainer(record_noise=None) for _ in range(2)]
    assert trainers[0] is not trainers[1]
    np.testing.assert_array_equal(trainers[0].initial(), trainers[1].initial())
    assert (trainers[0].initial() != study.initial).any()


def test_ready_made_features_are_taken_and_a_network_from_scratch_wants_pictures():
    table = replace(DIGITS, images=None, features=DIGITS.images.reshape(600, -1)[:, ::7].astype(np.float32))
    np.testing.assert_array_equal(prepared(table)[0].inputs, table.features)
    with pytest.raises(DataError, match="pictures"):
        prepared(table, Training(model="cnn"))


def test_a_study_is_played_to_the_end():
    study, _ = prepared()
    lines = [Centralised(), NeverUpdated(), SelectiveMethod("shared", Sharing(0.5))]
    heard = []
    timeline = study.simulate(lines, delta=1e-5, on_day=lambda day, found: heard.append((day, set(found))))
    assert heard == [(day, {"centralised", "never updated", "shared"}) for day in (1, 2, 3)]
    assert sum(timeline.photos) == 420
    assert timeline.method("never updated").accuracy[0] == timeline.method("shared").accuracy[0] > 0.5


def test_a_module_of_ones_own_is_refused_before_photos_are_read_or_anything_is_trained(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef Net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 7))\n"
    )
    with pytest.raises(UnknownNameError, match="'Nut'"):
        Training(model=f"{tmp_path}/net.py:Nut")
    with pytest.raises(InputError, match=r"7 scores.*10 classes"):
        prepared(training=Training(model=f"{tmp_path}/net.py:Net"))


def test_proven_noise_reaches_the_trainers():
    study, _ = prepared()
    options = SharingOptions(share=0.5, noise="record", epsilon=8.0, delta=1e-5, clip=1.0)
    noise = options.sharing(study.schedule, steps=study.steps).noise
    assert study.make_trainer(record_noise=noise).record_noise == noise
    ours = study.simulate(options.methods(study.schedule, steps=study.steps)[3:4], delta=1e-5).methods[0]
    assert ours.uploads[-1] > 0
    assert ours.epsilon <= 8


# --- which question is learned ---


def test_some_classes_are_counted_in_the_order_they_are_named():
    kept, labels, answers = answered(DIGITS, ["7", "2", "5"], None)
    assert answers == ("7", "2", "5")
    chosen = DIGITS.labels[np.isin(DIGITS.labels, [7, 2, 5])]
    assert (np.array(answers)[labels] == np.array(DIGITS.label_names)[chosen]).all()
    assert kept.label_names == answers
    assert prepared(classes=["7", "2", "5"])[0].initial.size == 3 * 13


def attributed(values):
    count = len(values)
    return Dataset(
        "people",
        "none",
        "here",
        features=np.arange(3.0 * count).reshape(count, 3).astype(np.float32),
        attributes=np.array([values, [1] * count]).T.astype(np.int8),
        attribute_names=("hat", "nose"),
    )


def test_an_attribute_is_yes_or_no_and_photos_of_which_nobody_knows_are_left_out():
    kept, labels, answers = answered(attributed([1, 0, -1, 1, -1]), (), "hat")
    assert answers == ("not hat", "hat")
    assert labels.tolist() == [1, 0, 1]
    assert labels.dtype == np.int64
    assert kept.features[:, 0].tolist() == [0, 3, 9]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (partial(answered, DIGITS, ["3", "tree"], None), UnknownNameError, "'tree'"),
        (partial(answered, DIGITS, ["3"], None), InputError, "two classes"),
        (partial(answered, DIGITS, ["3", "4", "3"], None), InputError, "3, 4, 3"),
        (partial(answered, DIGITS, ["3", "4"], "hat"), InputError, "both"),
        (partial(answered, DIGITS, (), "hat"), UnknownNameError, "'hat'"),
        (partial(answered, attributed([1, 0]), (), None), DataError, "attribute"),
        (partial(prepared, attributed([1, 0, 1]), attribute="nose"), DataError, "nothing to tell apart"),
        (partial(prepared, attributed([-1, -1]), attribute="hat"), DataError, "nothing to tell apart"),
        (partial(prepared, initial=1.0), InputError, "1.0"),
        (partial(prepared, participants=200), InputError, "no photo|of class"),
        (partial(prepared, days=500), InputError, "days"),
        (partial(Training, model="cmm"), UnknownNameError, "'cmm'"),
        (partial(Training, optimiser="adma"), UnknownNameError, "'adam'"),
        (partial(Training, learning_rate=0.0), InputError, "learning rate"),
        (partial(Training, learning_rate=float("inf")), InputError, "inf"),
        (partial(Training, initial_epochs=0), InputError, "epoch"),
    ],
)
def test_what_cannot_be_learned_is_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_networks_take_pictures_that_are_not_square():
    pytest.importorskip("torch")
    wide = replace(DIGITS, images=np.concatenate([DIGITS.images, DIGITS.images], axis=2))
    study, _ = prepared(wide, Training(model="cnn", initial_epochs=1))
    assert study.inputs.shape[1] < study.inputs.shape[2]
    timeline = study.simulate([SelectiveMethod("shared", Sharing(0.5))], delta=1e-5)
    assert timeline.methods[0].uploads[-1] > 0


def test_vgg16_is_named_with_its_weights(tmp_path):
    weights = tmp_path / "a:b.pt"
    weights.write_bytes(b"")
    assert backbone(f"vgg16:{weights}").weights == weights
    assert isinstance(backbone("thumbnail"), Thumbnails)
    assert backbone("pixels", components=7).max_components == 7
    for kind in ("vgg16", "vgg16:", f"vgg16:{tmp_path / 'none.pt'}"):
        with pytest.raises(InputError, match="weights"):
            backbone(kind)
    with pytest.raises(UnknownNameError, match="'vgg19'"):
        backbone("vgg19")


def test_heads_of_features_need_no_square_pictures():
    wide = replace(DIGITS, images=np.concatenate([DIGITS.images, DIGITS.images], axis=2))
    assert prepared(wide, pipeline=Thumbnails())[0].inputs.ndim == 2


def test_local_steps_and_a_decaying_rate_reach_the_trainers_and_the_noise():
    study, _ = prepared(training=Training(initial_epochs=1, local_steps=3, decay=0.5))
    trainer = study.make_trainer(record_noise=None)
    assert (trainer.epochs, trainer.decay, study.steps) == (3, 0.5, 3)
    same, _ = prepared(training=Training(initial_epochs=1))
    np.testing.assert_array_equal(study.initial, same.initial)  # day 0 is trained as without
    options = SharingOptions(share=0.5, noise="record", epsilon=8.0, delta=1e-5, clip=1.0)
    several, once = (options.sharing(study.schedule, steps=count).noise.noise_multiplier for count in (study.steps, 1))
    assert several == pytest.approx(once * np.sqrt(3), rel=1e-6)
    rows, labels = study.inputs[:8], study.labels[:8]
    moved = [np.linalg.norm(trainer.train(study.initial, rows, labels, 0) - study.initial) for _ in range(2)]
    assert moved[1] < 0.8 * moved[0]
