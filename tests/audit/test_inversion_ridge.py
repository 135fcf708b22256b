"""The linear decoder: the regression it claims to be, and pictures one can recognise."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from blindsight.audit.inversion.ridge import RidgeInversion
from blindsight.audit.inversion.similarity import mean_picture, ssim
from blindsight.data import PixelFeatures, faces
from blindsight.errors import InputError


def blobs(count, seed=0, side=12, noise=4.0):
    """Pictures of one soft spot whose place and colour are the features; and five features that mean nothing."""
    rng = np.random.default_rng(seed)
    features = np.hstack([rng.uniform(-1, 1, size=(count, 5)), rng.normal(size=(count, 5))])
    row, column = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
    spots = np.exp(-((row - features[:, :1, None] / 2) ** 2) - (column - features[:, 1:2, None] / 2) ** 2)
    colours = 0.6 + 0.4 * features[:, None, None, 2:5]
    images = 20 + 180 * spots[..., None] * colours + rng.normal(0, noise, size=(count, side, side, 3))
    return features.astype(np.float32), np.clip(np.rint(images), 0, 255).astype(np.uint8)


def targets_of(images):
    pixels = images.reshape(len(images), -1).astype(float)
    mean, contrast = pixels.mean(axis=1, keepdims=True), pixels.std(axis=1, keepdims=True)
    return np.hstack([(pixels - mean) / contrast, mean, np.log(contrast)])


def painted(targets, public):
    """The pictures of predicted targets; no contrast is outside those of the public pictures."""
    known = targets_of(public)[:, -1]
    pixels = targets[:, :-2] * np.exp(np.clip(targets[:, -1:], known.min(), known.max())) + targets[:, -2:-1]
    return np.clip(pixels, 0, 255).reshape(-1, *public.shape[1:])


def strength(features, penalty):
    return penalty * np.linalg.svd(features - features.mean(axis=0), compute_uv=False)[0] ** 2


@pytest.mark.parametrize("rows", [8, 60])  # fewer and more than there are features
def test_it_is_ridge_regression_in_units_of_each_pictures_contrast(rows):
    features, images = blobs(rows)
    others, _ = blobs(20, seed=1)
    model = Ridge(alpha=strength(features, 0.03)).fit(features, targets_of(images))
    decoded = RidgeInversion(penalty=0.03).fit(features, images).decode(others)
    assert decoded == pytest.approx(painted(model.predict(others), images), abs=0.51)


def test_pictures_of_persons_left_out_are_those_of_decoders_that_never_saw_them():
    features, images = blobs(30)
    persons = np.random.default_rng(3).integers(0, 6, size=30)
    alpha = strength(features, 0.03)
    _, left_out = RidgeInversion(penalty=0.03).fit_and_leave_out(features, images, persons)
    _, one_by_one = RidgeInversion(penalty=0.03).fit_and_leave_out(features, images)
    for found, groups in ((left_out, persons), (one_by_one, np.arange(30))):
        for name in np.unique(groups):
            unseen = groups == name
            model = Ridge(alpha=alpha).fit(features[~unseen], targets_of(images[~unseen]))
            expected = painted(model.predict(features[unseen]), images)
            assert found[unseen] == pytest.approx(expected, abs=0.1)


def test_the_chosen_penalty_is_as_good_as_the_best():
    features, images = blobs(40, noise=40.0)
    others, truth = blobs(200, seed=1, noise=0.0)

    def error(penalty):
        decoded = RidgeInversion(penalty=penalty).fit(features, images).decode(others)
        return np.mean((decoded - truth.astype(float)) ** 2)

    tried = {penalty: error(penalty) for penalty in 10.0 ** np.arange(-6, 2)}
    assert error(None) < 1.1 * min(tried.values())
    assert min(error(1e-6), error(10.0)) > 1.2 * min(tried.values())


def test_features_that_only_name_the_person_say_nothing_of_strangers():
    rng = np.random.default_rng(0)
    persons, private = np.repeat(np.arange(20), 10), np.repeat(np.arange(20, 40), 5)
    names = rng.normal(size=(40, 64)).astype(np.float32)
    looks = rng.integers(60, 190, size=(40, 12, 12, 3)).astype(np.uint8)
    features, strangers = names[persons] + 0.1 * rng.normal(size=(200, 64)), names[private]
    decoder = RidgeInversion().fit(features, looks[persons], persons)
    average = mean_picture(looks[persons]).astype(float)
    assert np.abs(decoder.decode(strangers) - average).mean() < 10
    deceived = RidgeInversion().fit(features, looks[persons])  # every picture has others of the same person beside it
    assert np.abs(deceived.decode(features) - looks[persons].astype(float)).mean() < 5
    assert np.abs(deceived.decode(strangers) - average).mean() > 15


def test_symbols_give_the_mean_picture_of_each():
    rng = np.random.default_rng(0)
    symbols = rng.integers(0, 3, size=90)
    shapes = np.array([rng.permutation(np.linspace(40, 210, 16 * 16 * 3)) for _ in range(3)])
    images = np.rint(shapes[symbols].reshape(90, 16, 16, 3)).astype(np.uint8)
    decoded = RidgeInversion().fit(np.eye(3)[symbols], images).decode(np.eye(3))
    assert decoded == pytest.approx(np.rint(shapes.reshape(3, 16, 16, 3)), abs=2)


def test_a_face_is_recognisable_from_pixel_features_and_a_stranger_is_not():
    drawn = faces(500, pictures_per_person=5, random_state=4)
    public, private = drawn.images[:440], drawn.images[440:]
    pixels = PixelFeatures().fit(public)
    decoded = (
        RidgeInversion().fit(pixels.transform(public), public, drawn.persons[:440]).decode(pixels.transform(private))
    )
    likeness, strangers = ssim(private, decoded).mean(), ssim(np.roll(private, 5, axis=0), decoded).mean()
    blind = ssim(private, np.broadcast_to(mean_picture(public), private.shape)).mean()
    assert likeness > 0.7 > blind + 0.25
    assert strangers < blind


def test_pictures_that_are_all_the_same_are_decoded_to_that():
    images = np.full((5, 12, 12, 3), 77, dtype=np.uint8)
    features = np.random.default_rng(0).normal(size=(5, 3))
    assert (RidgeInversion().fit(features, images).decode(1e6 * features) == 77).all()
    assert (RidgeInversion().fit(np.ones((5, 3)), images).decode(features) == 77).all()


def test_bad_input_is_refused_in_one_sentence():
    features, images = blobs(10)
    decoder = RidgeInversion().fit(features, images)
    for call, message in [
        (lambda: decoder.decode(features[:, :4]), "10 .* got 4"),
        (lambda: decoder.decode(np.full((1, 10), np.nan)), "finite"),
        (lambda: decoder.decode(np.full((1, 10), 1e30)), "within"),
        (lambda: RidgeInversion().fit(features[:9], images), "10 pictures, 9 rows"),
        (lambda: RidgeInversion().fit(features[:1], images[:1]), "2 public pictures or more"),
        (lambda: RidgeInversion().fit(features, images, np.zeros(10)), "2 persons or more"),
        (lambda: RidgeInversion().fit(features, images, [1, 2]), "needs its person"),
        (lambda: RidgeInversion(penalty=0.0).fit(features, images), "above 0"),
    ]:
        with pytest.raises(InputError, match=message):
            call()
