"""The face generator: ground truth, identities, what is visible where, repeatability, refusals."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from blindsight.data.faces import (
    ATTRIBUTES,
    PERSON_ATTRIBUTES,
    Copula,
    default_correlation,
    default_prevalence,
    draw_faces,
    faces,
    latent_correlation,
    sample_attributes,
)
from blindsight.errors import InputError, UnknownNameError

STRONG = {("male", "beard"): 0.4, ("male", "smiling"): 0.3, ("smiling", "outdoors"): -0.5, ("hat", "youth"): 0.3}


@pytest.fixture(autouse=True, scope="module")
def faces_drawn_once():
    """Not here: what is drawn twice must come out the same."""


def z_scores(attributes, persons, wanted):
    """How many standard errors each sample phi is off, counting persons, not pictures, as independent."""
    share = np.array(list(default_prevalence().values()))
    x = (attributes - share) / np.sqrt(share * (1 - share))
    scores = []
    for i, j in zip(*np.triu_indices(len(ATTRIBUTES), 1), strict=True):
        influence = x[:, i] * x[:, j] - wanted[i, j] * (x[:, i] ** 2 + x[:, j] ** 2) / 2
        per_person = np.bincount(persons, influence)
        scores.append(per_person.sum() / np.sqrt((per_person**2).sum()))
    return np.array(scores)


@pytest.mark.parametrize(
    ("correlation", "pictures_per_person"),
    [(None, 1), (None, 4), (np.eye(12), 4), (STRONG, 4)],
    ids=["default, single", "default", "independent", "strong"],
)
def test_realised_correlations_are_those_requested(correlation, pictures_per_person):
    attributes, persons = sample_attributes(
        30_000 * pictures_per_person, correlation=correlation, pictures_per_person=pictures_per_person, random_state=3
    )
    wanted = default_correlation() if correlation is None else np.eye(12)
    if isinstance(correlation, dict):
        for (first, second), value in correlation.items():
            i, j = ATTRIBUTES.index(first), ATTRIBUTES.index(second)
            wanted[i, j] = wanted[j, i] = value
    # 66 nearly normal scores from 30,000 independent persons: one passes 6.2 with probability below 4e-8.
    assert np.abs(z_scores(attributes, persons, wanted)).max() < 6.2
    np.testing.assert_allclose(attributes.mean(axis=0), list(default_prevalence().values()), atol=0.018)  # 6.2 spreads


def test_the_correlation_check_would_notice_a_wrong_correlation():
    attributes, persons = sample_attributes(60_000, pictures_per_person=1, random_state=3)
    wrong = default_correlation()
    wrong[0, 3] = wrong[3, 0] = 0.36  # male and beard, truly .42
    assert np.abs(z_scores(attributes, persons, wrong)).max() > 10


def test_all_attributes_are_free_so_smiles_and_frowns_can_coincide():
    attributes, _ = sample_attributes(2_000, correlation={("smiling", "frowning"): 0.5})
    both = attributes[:, ATTRIBUTES.index("smiling")] & attributes[:, ATTRIBUTES.index("frowning")]
    assert both.mean() > 0.1


def test_prevalence_can_be_chosen_one_by_one():
    attributes, _ = sample_attributes(20_000, correlation=np.eye(12), prevalence={"hat": 0.9}, random_state=1)
    assert attributes[:, ATTRIBUTES.index("hat")].mean() == pytest.approx(0.9, abs=6 * 0.0022)  # false alarm 2e-9


def test_a_dataset_says_what_it_is():
    data = faces(25, days=7, label="smiling", pictures_per_person=4)
    assert data.images.shape == (25, 64, 64, 3)
    assert data.attributes.dtype == np.int8
    assert data.attribute_names == ATTRIBUTES
    assert data.persons.tolist() == [i // 4 for i in range(25)]
    assert data.labels.tolist() == data.attribute("smiling").tolist()
    assert data.label_names == ("not smiling", "smiling")
    assert data.names[12] == "face-000012"
    assert "no person is depicted" in data.licence
    assert "seed 0" in data.source
    assert sorted(data.days[:7]) == sorted(data.days[7:14]) == list(range(7))
    assert faces(3).labels is None
    assert faces(3).days is None


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others():
    assert faces(8, random_state=5).content_hash() == faces(8, random_state=5).content_hash()
    assert faces(8, random_state=5).content_hash() != faces(8, random_state=6).content_hash()


def test_pixels_do_not_depend_on_the_batch():
    attributes, persons = sample_attributes(11)
    whole = draw_faces(attributes, persons, batch=64)
    for batch in (1, 5):
        np.testing.assert_array_equal(draw_faces(attributes, persons, batch=batch), whole)


def test_a_short_series_is_the_beginning_of_a_long_one():
    short, long = faces(23, days=5), faces(35, days=5)
    for part in ("images", "attributes", "persons", "days"):
        np.testing.assert_array_equal(getattr(short, part), getattr(long, part)[:23])


def test_both_sizes_show_the_same_portrait():
    small, large = (faces(12, size=size).images.astype(float) for size in (64, 128))
    halved = large.reshape(12, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    distance = np.abs(halved[:, None] - small[None]).mean(axis=(2, 3, 4))
    assert (distance.argmin(axis=1) == np.arange(12)).all()
    assert np.diag(distance).max() < 6


def test_progress_is_told():
    told = []
    faces(40, progress=lambda *report: told.append(report))
    assert told == [("drawing faces", 32, 40), ("drawing faces", 40, 40)]


def test_what_belongs_to_the_person_is_constant_and_the_moment_varies():
    data = faces(60, pictures_per_person=12)
    by_person = data.attributes.reshape(5, 12, len(ATTRIBUTES))
    constant = (by_person == by_person[:, :1]).all(axis=(0, 1))
    assert constant.tolist() == [name in PERSON_ATTRIBUTES for name in ATTRIBUTES]
    pictures = data.images.reshape(5, 12, -1).astype(float)
    assert np.abs(np.diff(pictures, axis=1)).mean(axis=2).min() > 5  # no two consecutive pictures alike


def test_persons_can_be_told_apart_by_the_nearest_picture():
    data = faces(200, pictures_per_person=10, random_state=2)
    centre = data.images[:, 16:46, 18:46].reshape(200, -1).astype(float)
    nearest = cKDTree(centre).query(centre, k=2)[1][:, 1]
    right = (data.persons[nearest] == data.persons).mean()
    assert right > 0.4  # chance is 9 / 199


def switched(name, **fixed):
    """Pictures without and with an attribute, all else equal."""
    attributes, persons = sample_attributes(24, pictures_per_person=1, random_state=8)
    for other, value in fixed.items():
        attributes[:, ATTRIBUTES.index(other)] = value
    drawn = []
    for value in (0, 1):
        attributes[:, ATTRIBUTES.index(name)] = value
        drawn.append(draw_faces(attributes, persons, random_state=8).astype(int))
    return drawn[0], drawn[1]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_is_visible_in_every_picture(name):
    without, having = switched(name)
    changed = np.abs(having - without).max(axis=3) > 12
    assert changed.sum(axis=(1, 2)).min() >= 15


@pytest.mark.parametrize(
    ("name", "rows", "columns"),
    [
        ("eyeglasses", slice(22, 44), slice(8, 57)),
        ("frowning", slice(14, 58), slice(10, 54)),
        ("smiling", slice(20, 58), slice(10, 54)),
        ("beard", slice(30, 64), slice(8, 56)),
        ("hat", slice(0, 46), slice(0, 64)),
    ],
)
def test_an_attribute_changes_only_its_part_of_the_picture(name, rows, columns):
    without, having = switched(name, long_hair=0)  # a hat presses long hair down, all the way
    elsewhere = np.ones((64, 64), dtype=bool)
    elsewhere[rows, columns] = False
    assert (without != having)[:, ~elsewhere].any()
    assert (without == having)[:, elsewhere].all()


def test_the_place_does_not_change_the_face():
    inside, outside = switched("outdoors")
    assert (inside != outside)[:, :8].any()
    assert (inside == outside)[:, 28:44, 26:38].all()


@pytest.mark.slow
def test_every_attribute_can_be_read_from_pixels_of_unknown_persons():
    data = faces(2_500, random_state=4)
    grey = data.images.mean(axis=3, dtype=np.float32).reshape(len(data), -1)
    train = data.persons % 10 < 7
    parts = PCA(150, svd_solver="randomized", random_state=0).fit(grey[train]).transform(grey)
    parts /= parts[train].std(axis=0)
    for name in ATTRIBUTES:
        column = data.attribute(name)
        reader = LogisticRegression(C=0.02, class_weight="balanced", max_iter=500).fit(parts[train], column[train])
        accuracy = balanced_accuracy_score(column[~train], reader.predict(parts[~train]))
        assert 0.78 < accuracy < 0.99, name


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, "pictures"),
        ({"n": 10, "size": 50}, "50"),
        ({"n": 10, "pictures_per_person": 0}, "per person"),
        ({"n": 10, "days": 0}, "days"),
        ({"n": 10, "random_state": -1}, "seed"),
        ({"n": 10, "correlation": {("male", "beard"): 0.9}}, "male and beard must lie in [-0.500, 0.500]"),
        ({"n": 10, "prevalence": {"male": 0.01}}, "male and beard must lie in"),
        ({"n": 10, "correlation": {("male", "male"): 1.0}}, "pairs of different attributes"),
        ({"n": 10, "correlation": {("male", "hat"): 0.1, ("hat", "male"): 0.2}}, "each pair once"),
        ({"n": 10, "correlation": {"hat": 0.1}}, "pairs of different attributes"),
    ],
)
def test_bad_requests_are_refused(arguments, words):
    with pytest.raises(InputError, match=re.escape(words)):
        faces(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"correlation": {("male", "eyeglass"): 0.1}}, {"prevalence": {"eyeglass": 0.1}}, {"label": "eyeglass"}],
)
def test_an_unknown_attribute_gets_a_suggestion(arguments):
    with pytest.raises(UnknownNameError, match="'eyeglasses'"):
        faces(5, **arguments)


def test_drawing_refuses_unusable_attributes():
    attributes, persons = sample_attributes(4)
    with pytest.raises(InputError, match="one row of 12"):
        draw_faces(attributes[:, :5], persons)
    with pytest.raises(InputError, match="0 or 1"):
        draw_faces(attributes - 1, persons)


NAMES = ("a", "b", "c")
THIRDS = np.array([0.3, 0.5, 0.2])


def matrix(ab=0.0, ac=0.0, bc=0.0):
    return np.array([[1.0, ab, ac], [ab, 1.0, bc], [ac, bc, 1.0]])


@settings(deadline=None, max_examples=20)
@given(p=st.floats(0.02, 0.98), q=st.floats(0.02, 0.98), share=st.floats(-0.95, 0.95))
def test_latent_correlation_agrees_with_the_bivariate_normal(p, q, share):
    bound = min(p, q) - p * q if share > 0 else p * q - max(p + q - 1.0, 0.0)
    phi = share * bound / np.sqrt(p * (1 - p) * q * (1 - q))
    rho = latent_correlation(np.array([p, q]), np.array([[1.0, phi], [phi, 1.0]]))[0, 1]
    both = multivariate_normal(cov=[[1.0, rho], [rho, 1.0]], allow_singular=True).cdf([ndtri(p), ndtri(q)])
    assert both == pytest.approx(p * q + share * bound, abs=2e-6)


@pytest.mark.parametrize(
    ("prevalence", "correlation", "words"),
    [
        ([0.0, 0.5, 0.2], matrix(), "prevalence of a"),
        ([0.3, 0.5, np.nan], matrix(), "prevalence of c"),
        ([0.3, 0.5, 0.2], np.eye(2), "3 x 3"),
        ([0.3, 0.5, 0.2], matrix(1.2), "1.2"),
        ([0.3, 0.5, 0.2], matrix(np.nan), "a and b"),
        ([0.3, 0.5, 0.2], np.triu(matrix(0.1)), "0.1 above and 0 below"),
        ([0.3, 0.5, 0.2], matrix() * 0.9, "itself"),
        ([0.5, 0.5, 0.5], matrix(0.9, 0.9, -0.9), "-0.8"),
        ([0.3, 0.5, 0.2], matrix(bc=0.6), "b and c must lie in [-0.500, 0.500]"),
        ([0.5, 0.05, 0.05], matrix(0.22, 0.22, -0.05), "at once"),
    ],
)
def test_impossible_requests_are_refused(prevalence, correlation, words):
    with pytest.raises(InputError, match=re.escape(words)):
        Copula.fit(NAMES, np.array(prevalence), correlation)
