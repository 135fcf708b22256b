"""The face generator: ground truth, identities, what is visible where, repeatability, refusals."""

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from blindsight.data.faces import (
    ATTRIBUTES,
    PERSON_ATTRIBUTES,
    default_correlation,
    default_prevalence,
    draw_faces,
    faces,
    sample_attributes,
)
from blindsight.errors import InputError, UnknownNameError

STRONG = {("male", "beard"): 0.4, ("male", "smiling"): 0.3, ("smiling", "outdoors"): -0.5, ("hat", "youth"): 0.3}


def z_scores(attributes: np.ndarray, persons: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How many standard errors each sample phi is off, counting persons, not pictures, as independent."""
    share = np.array(list(default_prevalence().values()))
    x = (attributes - share) / np.sqrt(share * (1 - share))
    scores = []
    for i, j in zip(*np.triu_indices(len(ATTRIBUTES), 1), strict=True):
        influence = x[:, i] * x[:, j] - wanted[i, j] * (x[:, i] ** 2 + x[:, j] ** 2) / 2
        per_person = np.bincount(persons, influence)
        scores.append(per_person.sum() / np.sqrt((per_person**2).sum()))
    return np.array(scores)


@pytest.mark.parametrize("pictures_per_person", [1, 10])
@pytest.mark.parametrize("correlation", [None, np.eye(12), STRONG], ids=["default", "independent", "strong"])
def test_realised_correlations_are_those_requested(correlation: object, pictures_per_person: int) -> None:
    attributes, persons = sample_attributes(
        60_000 * pictures_per_person, correlation=correlation, pictures_per_person=pictures_per_person, random_state=3
    )
    wanted = default_correlation() if correlation is None else np.eye(12)
    if isinstance(correlation, dict):
        for (first, second), value in correlation.items():
            i, j = ATTRIBUTES.index(first), ATTRIBUTES.index(second)
            wanted[i, j] = wanted[j, i] = value
    # 66 nearly normal scores from 60,000 independent persons: one passes 6.2 with probability below 4e-8.
    assert np.abs(z_scores(attributes, persons, wanted)).max() < 6.2
    np.testing.assert_allclose(attributes.mean(axis=0), list(default_prevalence().values()), atol=0.013)  # 6.2 spreads


def test_the_correlation_check_would_notice_a_wrong_correlation() -> None:
    attributes, persons = sample_attributes(60_000, pictures_per_person=1, random_state=3)
    wrong = default_correlation()
    wrong[0, 3] = wrong[3, 0] = 0.36  # male and beard, truly .42
    assert np.abs(z_scores(attributes, persons, wrong)).max() > 10


def test_all_attributes_are_free_so_smiles_and_frowns_can_coincide() -> None:
    attributes, _ = sample_attributes(2_000, correlation={("smiling", "frowning"): 0.5})
    both = attributes[:, ATTRIBUTES.index("smiling")] & attributes[:, ATTRIBUTES.index("frowning")]
    assert both.mean() > 0.1


def test_prevalence_can_be_chosen_one_by_one() -> None:
    attributes, _ = sample_attributes(20_000, correlation=np.eye(12), prevalence={"hat": 0.9}, random_state=1)
    assert attributes[:, ATTRIBUTES.index("hat")].mean() == pytest.approx(0.9, abs=6 * 0.0022)  # false alarm 2e-9


def test_a_dataset_says_what_it_is() -> None:
    data = faces(25, days=7, label="smiling", pictures_per_person=4)
    assert data.images is not None
    assert data.images.shape == (25, 64, 64, 3)
    assert data.attributes is not None
    assert data.attributes.dtype == np.int8
    assert data.attribute_names == ATTRIBUTES
    assert data.persons is not None
    assert data.persons.tolist() == [i // 4 for i in range(25)]
    assert data.labels is not None
    assert data.labels.tolist() == data.attribute("smiling").tolist()
    assert data.label_names == ("not smiling", "smiling")
    assert data.names[12] == "face-000012"
    assert "no person is depicted" in data.licence
    assert "seed 0" in data.source
    assert data.days is not None
    assert sorted(data.days[:7]) == sorted(data.days[7:14]) == list(range(7))
    assert faces(3).labels is None
    assert faces(3).days is None


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others() -> None:
    assert faces(20, random_state=5).content_hash() == faces(20, random_state=5).content_hash()
    assert faces(20, random_state=5).content_hash() != faces(20, random_state=6).content_hash()


def test_pixels_do_not_depend_on_the_batch() -> None:
    attributes, persons = sample_attributes(37)
    whole = draw_faces(attributes, persons, batch=64)
    for batch in (1, 5):
        np.testing.assert_array_equal(draw_faces(attributes, persons, batch=batch), whole)


def test_a_short_series_is_the_beginning_of_a_long_one() -> None:
    short, long = faces(23, days=5), faces(60, days=5)
    for part in ("images", "attributes", "persons", "days"):
        np.testing.assert_array_equal(getattr(short, part), getattr(long, part)[:23])


def test_both_sizes_show_the_same_portrait() -> None:
    small, large = (faces(12, size=size).images.astype(float) for size in (64, 128))
    halved = large.reshape(12, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    distance = np.abs(halved[:, None] - small[None]).mean(axis=(2, 3, 4))
    assert (distance.argmin(axis=1) == np.arange(12)).all()
    assert np.diag(distance).max() < 6


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int | None]] = []
    faces(40, progress=lambda what, done, total: told.append((what, done, total)))
    assert told == [("drawing faces", 32, 40), ("drawing faces", 40, 40)]


# --- persons ---


def test_what_belongs_to_the_person_is_constant_and_the_moment_varies() -> None:
    data = faces(60, pictures_per_person=12)
    assert data.images is not None
    assert data.attributes is not None
    by_person = data.attributes.reshape(5, 12, len(ATTRIBUTES))
    constant = (by_person == by_person[:, :1]).all(axis=(0, 1))
    assert constant.tolist() == [name in PERSON_ATTRIBUTES for name in ATTRIBUTES]
    pictures = data.images.reshape(5, 12, -1).astype(float)
    assert np.abs(np.diff(pictures, axis=1)).mean(axis=2).min() > 5  # no two consecutive pictures alike


def test_persons_can_be_told_apart_by_the_nearest_picture() -> None:
    data = faces(400, pictures_per_person=10, random_state=2)
    assert data.images is not None
    assert data.persons is not None
    centre = data.images[:, 16:46, 18:46].reshape(400, -1).astype(float)
    nearest = cKDTree(centre).query(centre, k=2)[1][:, 1]
    right = (data.persons[nearest] == data.persons).mean()
    assert right > 0.4  # chance is 9 / 399


# --- what is visible where ---


def switched(name: str, **fixed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures without and with an attribute, all else equal."""
    attributes, persons = sample_attributes(60, pictures_per_person=1, random_state=8)
    for other, value in fixed.items():
        attributes[:, ATTRIBUTES.index(other)] = value
    drawn = []
    for value in (0, 1):
        attributes[:, ATTRIBUTES.index(name)] = value
        drawn.append(draw_faces(attributes, persons, random_state=8).astype(int))
    return drawn[0], drawn[1]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_every_attribute_is_visible_in_every_picture(name: str) -> None:
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
def test_an_attribute_changes_only_its_part_of_the_picture(name: str, rows: slice, columns: slice) -> None:
    without, having = switched(name, long_hair=0)  # a hat presses long hair down, all the way
    elsewhere = np.ones((64, 64), dtype=bool)
    elsewhere[rows, columns] = False
    assert (without != having)[:, ~elsewhere].any()
    assert (without == having)[:, elsewhere].all()


def test_the_place_does_not_change_the_face() -> None:
    inside, outside = switched("outdoors")
    assert (inside != outside)[:, :8].any()
    assert (inside == outside)[:, 28:44, 26:38].all()


@pytest.mark.slow
def test_every_attribute_can_be_read_from_pixels_of_unknown_persons() -> None:
    data = faces(2_500, random_state=4)
    assert data.images is not None
    assert data.persons is not None
    grey = data.images.mean(axis=3, dtype=np.float32).reshape(len(data), -1)
    train = data.persons % 10 < 7
    parts = PCA(150, svd_solver="randomized", random_state=0).fit(grey[train]).transform(grey)
    parts /= parts[train].std(axis=0)
    for name in ATTRIBUTES:
        column = data.attribute(name)
        reader = LogisticRegression(C=0.02, class_weight="balanced", max_iter=500).fit(parts[train], column[train])
        accuracy = balanced_accuracy_score(column[~train], reader.predict(parts[~train]))
        assert 0.78 < accuracy < 0.99, name


# --- refusals ---


def not_definite() -> np.ndarray:
    matrix = np.eye(12)
    matrix[:3, :3] = [[1, 0.9, 0.9], [0.9, 1, -0.9], [0.9, -0.9, 1]]
    return matrix


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0}, "pictures must be at least 1; got 0"),
        ({"n": 10, "size": 50}, "64 or 128 pixels; got 50"),
        ({"n": 10, "pictures_per_person": 0}, "per person must be at least 1; got 0"),
        ({"n": 10, "days": 0}, "days must be at least 1; got 0"),
        ({"n": 10, "random_state": -1}, "seed"),
        ({"n": 10, "correlation": np.eye(3)}, "12 x 12"),
        ({"n": 10, "correlation": not_definite()}, "smallest eigenvalue is -0.8"),
        ({"n": 10, "correlation": {("male", "beard"): 0.9}}, "male and beard must lie in [-0.500, 0.500]"),
        ({"n": 10, "prevalence": {"hat": 0.0}}, "prevalence of hat"),
        ({"n": 10, "prevalence": {"male": 0.01}}, "male and beard must lie in"),
        ({"n": 10, "correlation": {("male", "male"): 1.0}}, "pairs of different attributes"),
        ({"n": 10, "correlation": {("male", "hat"): 0.1, ("hat", "male"): 0.2}}, "each pair once"),
        ({"n": 10, "correlation": {"hat": 0.1}}, "pairs of different attributes"),
    ],
)
def test_bad_requests_get_a_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as refusal:
        faces(**arguments)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    "arguments",
    [{"correlation": {("male", "eyeglass"): 0.1}}, {"prevalence": {"eyeglass": 0.1}}, {"label": "eyeglass"}],
)
def test_an_unknown_attribute_gets_a_suggestion(arguments: dict[str, object]) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'eyeglasses'"):
        faces(5, **arguments)


def test_drawing_refuses_unusable_attributes() -> None:
    attributes, persons = sample_attributes(4)
    with pytest.raises(InputError, match="one row of 12"):
        draw_faces(attributes[:, :5], persons)
    with pytest.raises(InputError, match="0 or 1"):
        draw_faces(attributes - 1, persons)
