"""Decoders and what their pictures are compared by: ridge regression, a network, SSIM, match rates."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from blindsight.audit.decoders import (
    C1,
    C2,
    SIGMA,
    WINDOW,
    fit_linear,
    fit_network,
    mean_picture,
    ssim,
)
from blindsight.audit.inversion import match_rate
from blindsight.data import PixelFeatures, faces
from blindsight.errors import InputError, MissingExtraError


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
    decoded = fit_linear(features, images, penalty=0.03)[0].decode(others)
    assert decoded == pytest.approx(painted(model.predict(others), images), abs=0.51)


def test_pictures_of_persons_left_out_are_those_of_decoders_that_never_saw_them():
    features, images = blobs(30)
    persons = np.random.default_rng(3).integers(0, 6, size=30)
    alpha = strength(features, 0.03)
    _, left_out = fit_linear(features, images, persons, penalty=0.03)
    _, one_by_one = fit_linear(features, images, penalty=0.03)
    for found, groups in ((left_out(), persons), (one_by_one(), np.arange(30))):
        for name in np.unique(groups):
            unseen = groups == name
            model = Ridge(alpha=alpha).fit(features[~unseen], targets_of(images[~unseen]))
            expected = painted(model.predict(features[unseen]), images)
            assert found[unseen] == pytest.approx(expected, abs=0.1)


def test_the_chosen_penalty_is_as_good_as_the_best():
    features, images = blobs(40, noise=40.0)
    others, truth = blobs(200, seed=1, noise=0.0)

    def error(penalty):
        decoded = fit_linear(features, images, penalty=penalty)[0].decode(others)
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
    decoder = fit_linear(features, looks[persons], persons)[0]
    average = mean_picture(looks[persons]).astype(float)
    assert np.abs(decoder.decode(strangers) - average).mean() < 10
    deceived = fit_linear(features, looks[persons])[0]  # every picture has others of the same person beside it
    assert np.abs(deceived.decode(features) - looks[persons].astype(float)).mean() < 5
    assert np.abs(deceived.decode(strangers) - average).mean() > 15


def test_symbols_give_the_mean_picture_of_each():
    rng = np.random.default_rng(0)
    symbols = rng.integers(0, 3, size=90)
    shapes = np.array([rng.permutation(np.linspace(40, 210, 16 * 16 * 3)) for _ in range(3)])
    images = np.rint(shapes[symbols].reshape(90, 16, 16, 3)).astype(np.uint8)
    decoded = fit_linear(np.eye(3)[symbols], images)[0].decode(np.eye(3))
    assert decoded == pytest.approx(np.rint(shapes.reshape(3, 16, 16, 3)), abs=2)


def test_a_face_is_recognisable_from_pixel_features_and_a_stranger_is_not():
    drawn = faces(300, pictures_per_person=5, random_state=4)
    public, private = drawn.images[:260], drawn.images[260:]
    pixels = PixelFeatures().fit(public)
    decoded = fit_linear(pixels.transform(public), public, drawn.persons[:260])[0].decode(pixels.transform(private))
    likeness, strangers = ssim(private, decoded).mean(), ssim(np.roll(private, 5, axis=0), decoded).mean()
    blind = ssim(private, np.broadcast_to(mean_picture(public), private.shape)).mean()
    assert likeness > 0.6 > blind + 0.15
    assert strangers < blind


def test_pictures_that_are_all_the_same_are_decoded_to_that():
    images = np.full((5, 12, 12, 3), 77, dtype=np.uint8)
    features = np.random.default_rng(0).normal(size=(5, 3))
    assert (fit_linear(features, images)[0].decode(1e6 * features) == 77).all()
    assert (fit_linear(np.ones((5, 3)), images)[0].decode(features) == 77).all()


def test_bad_input_is_refused_in_one_sentence():
    features, images = blobs(10)
    decoder = fit_linear(features, images)[0]
    for call, message in [
        (lambda: decoder.decode(features[:, :4]), "10 .* got 4"),
        (lambda: decoder.decode(np.full((1, 10), np.nan)), "finite"),
        (lambda: decoder.decode(np.full((1, 10), 1e30)), "within"),
        (lambda: fit_linear(features[:9], images), "10, 9 rows"),
        (lambda: fit_linear(features[:1], images[:1]), "2 pictures"),
        (lambda: fit_linear(features, images, np.zeros(10)), "2 persons"),
        (lambda: fit_linear(features, images, [1, 2]), "needs its person"),
        (lambda: fit_linear(features, images, penalty=0.0), "above 0"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def pictures(count, height=17, width=14, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size=(count, height, width, 3), dtype=np.uint8)


def by_loops(picture, other):
    """Eqs. 13 to 17, one window at a time."""
    x, y = (0.299 * p[..., 0] + 0.587 * p[..., 1] + 0.114 * p[..., 2] for p in (picture, other))
    reach = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-(reach[:, None] ** 2 + reach**2) / (2 * SIGMA**2))
    weights /= weights.sum()
    scores = []
    for top in range(x.shape[0] - WINDOW + 1):
        for left in range(x.shape[1] - WINDOW + 1):
            a, b = (image[top : top + WINDOW, left : left + WINDOW] for image in (x, y))
            mean_a, mean_b = np.sum(weights * a), np.sum(weights * b)
            variances = np.sum(weights * (a - mean_a) ** 2) + np.sum(weights * (b - mean_b) ** 2)
            covariance = np.sum(weights * (a - mean_a) * (b - mean_b))
            above = (2 * mean_a * mean_b + C1) * (2 * covariance + C2)
            scores.append(above / ((mean_a**2 + mean_b**2 + C1) * (variances + C2)))
    return np.mean(scores)


def test_it_agrees_with_the_formula_window_by_window():
    one, noise = pictures(4), pictures(4, seed=1)
    mixed = (0.7 * one + 0.3 * noise).astype(np.uint8)
    expected = [by_loops(a.astype(float), b.astype(float)) for a, b in zip(one, mixed, strict=True)]
    assert ssim(one, mixed) == pytest.approx(expected, abs=1e-9)
    assert 0.3 < np.mean(expected) < 0.95


def test_the_same_scores_one_and_the_negative_scores_below_zero():
    one = pictures(150)  # more than are compared at once
    assert ssim(one, one) == pytest.approx(np.ones(150))
    assert ssim(one, 255 - one).max() < 0
    flat = (np.full((1, 11, 11, 3), grey, dtype=np.uint8) for grey in (50, 200))  # differ in luminance alone
    assert ssim(*flat)[0] == pytest.approx((2 * 50 * 200 + C1) / (50**2 + 200**2 + C1))
    assert np.abs(mean_picture(one) - one.mean(axis=0)).max() <= 0.5 + 1e-9


def people(persons=20, each=4, seed=0, spread=0.5):
    """Faces as points around one point per person, far from the origin as pictures are."""
    rng = np.random.default_rng(seed)
    names = np.repeat(np.arange(persons), each)
    return 50 + rng.normal(size=(persons, 30))[names] + spread * rng.normal(size=(persons * each, 30)), names


def test_it_names_the_nearest_face_as_a_loop_over_all_pairs_would():
    faces, names = people(spread=1.5)
    probes, gallery, asked, known = faces[::2], faces[1::2], names[::2], names[1::2]
    mean = gallery.mean(axis=0)
    hits = 0
    for probe, person in zip(probes - mean, asked, strict=True):
        cosines = [probe @ other / np.linalg.norm(probe) / np.linalg.norm(other) for other in gallery - mean]
        hits += known[int(np.argmax(cosines))] == person
    found = match_rate(probes, gallery, probe_persons=asked, gallery_persons=known)
    assert (found.hits, found.probes, found.persons, found.chance) == (hits, 40, 20, 0.05)
    assert 4 < hits < 40
    assert found.beats_chance()


def test_pictures_are_matched_as_well_as_features():
    pictures = np.random.default_rng(0).integers(0, 256, size=(5, 8, 8, 3), dtype=np.uint8)
    found = match_rate(pictures, pictures, probe_persons=np.arange(5), gallery_persons=np.arange(5))
    assert str(found) == "5 of 5 (100%; blind 20.0%)"


@pytest.mark.parametrize("kind", ["noise", "one picture for all", "the gallery's mean"])
def test_what_says_nothing_of_persons_matches_at_chance(kind):
    gallery, known = people()
    asked = np.repeat(np.arange(20), 100)
    probes = {
        "noise": np.random.default_rng(1).normal(size=(2000, 30)),
        "one picture for all": np.tile(gallery[:1] + 1, (2000, 1)),
        "the gallery's mean": np.tile(gallery.mean(axis=0), (2000, 1)),
    }[kind]
    found = match_rate(probes, gallery, probe_persons=asked, gallery_persons=known)
    # P(Binomial(2000, .05) is outside [55, 151]) < 1e-6; one picture for all gets one person's 100 probes.
    assert 55 <= found.hits <= 151
    assert found.interval(0.999).low < found.chance < found.interval(0.999).high


def test_chance_is_the_best_blind_guess():
    gallery, known = people(persons=4)
    found = match_rate(gallery[:5], gallery, probe_persons=[0, 0, 0, 1, 2], gallery_persons=known)
    assert found.chance == 0.6


def test_what_cannot_be_compared_or_matched_is_refused():
    small, one, two, none = pictures(1, 10, 14), pictures(1), pictures(2), pictures(0)
    for pair, words in [
        ((small, small), r"11x11.*10x14"),
        ((one, two), "one by one"),
        ((one.astype(float), one), "uint8"),
        ((none, none), "at least 1 image"),
    ]:
        with pytest.raises(InputError, match=words):
            ssim(*pair)
    gallery, known = people()
    given = {"probes": gallery[:4], "gallery": gallery, "probe_persons": known[:4], "gallery_persons": known}
    for change, words in [
        ({"probes": np.ones((4, 29))}, "29 and 30"),
        ({"probe_persons": [0, 1]}, "needs its person"),
        ({"probe_persons": [0, 1, 2, 99]}, "in the gallery"),
        ({"gallery_persons": np.zeros(80)}, "2 persons"),
        ({"gallery": np.array(["face"])}, "numbers"),
    ]:
        with pytest.raises(InputError, match=words):
            match_rate(**(given | change))


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


def discs(count, seed=0, height=32, width=28):
    """Bright discs with hard edges, and where they are: the mean of such discs is a blur, none of them is."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(count, 2)).astype(np.float32)
    row, column = np.mgrid[0:height, 0:width]
    centre = np.array([height, width]) / 2 + 5 * features
    distance = np.hypot(row - centre[:, :1, None], column - centre[:, 1:, None])
    images = np.where(distance < 7, 210, 40)[..., None] + rng.integers(0, 20, size=(count, 1, 1, 3))
    return features, images.astype(np.uint8)


def test_it_draws_better_pictures_than_the_linear_decoder_of_rows_it_never_saw(torch):
    features, images = discs(150)
    others, truth = discs(60, seed=1)
    linear = ssim(truth, fit_linear(features, images)[0].decode(others))
    decoder = fit_network(features, images, steps=100, batch=16, channels=24, learning_rate=2e-3)
    assert decoder.decode(others).shape == truth.shape
    assert ssim(truth, decoder.decode(others)).mean() > linear.mean() + 0.05


@pytest.mark.parametrize("size", [(13, 18), (70, 66)])  # no whole number of cells; larger than the pieces learned from
def test_pictures_of_any_size_come_back_in_that_size(torch, size):
    features, images = discs(8, height=size[0], width=size[1])
    decoder = fit_network(features, images, np.arange(8) // 2, steps=2, batch=4, channels=4)
    assert decoder.decode(features[:3]).shape == (3, *size, 3)


def test_the_same_seed_gives_the_same_pictures_and_leaves_the_global_generator_alone(torch):
    features, images = discs(20)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    decoded = [
        fit_network(features, images, steps=3, batch=8, channels=4, learning_rate=0.02, random_state=seed).decode(
            features
        )
        for seed in (0, 0, 1)
    ]
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(decoded[0], decoded[1])
    assert not np.array_equal(decoded[0], decoded[2])


def test_bad_settings_are_refused_in_one_sentence(torch):
    features, images = discs(6)
    with pytest.raises(InputError, match="at least 1"):
        fit_network(features, images, steps=0)
    with pytest.raises(InputError, match="diverged"):
        fit_network(features, images, steps=20, channels=4, learning_rate=1e30)


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="extra 'deep'"):
        fit_network(*discs(6))
