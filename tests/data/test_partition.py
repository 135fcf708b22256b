"""Every picture has its owner, nobody is left without, persons stay together, and a seed gives the same again."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.errors import InputError

SEEDS = st.integers(0, 2**32 - 1)
quick = settings(deadline=None, max_examples=25)


def assert_shared_out(parts, n):
    """Disjoint, covering, sorted, nobody empty."""
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(len(part) and np.all(np.diff(part) > 0) and part.dtype == np.int64 for part in parts)


def as_lists(parts):
    return [part.tolist() for part in parts]


@quick
@given(st.data(), SEEDS)
def test_equal_parts(data, seed):
    n = data.draw(st.integers(1, 200))
    owners = data.draw(st.integers(1, n))
    parts = partition.equal(n, owners, random_state=seed)
    assert len(parts) == owners
    assert_shared_out(parts, n)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert as_lists(parts) == as_lists(partition.equal(n, owners, random_state=seed))


def test_seeds_differ():
    assert as_lists(partition.equal(100, 4, random_state=1)) != as_lists(partition.equal(100, 4, random_state=2))


@pytest.mark.parametrize("copies", [1, 5])
def test_overlapping_is_the_repeated_split_into_five_of_figure_4(copies):
    parts = partition.overlapping(1000, 5 * copies, copies=copies, random_state=0)
    assert [len(part) for part in parts] == [200] * (5 * copies)
    repetitions = [parts[start : start + 5] for start in range(0, 5 * copies, 5)]
    for repetition in repetitions:
        assert_shared_out(repetition, 1000)
    # Independent repetitions: owners of different ones share about 200 * 200 / 1000 = 40 pictures (sd 5.1); seven
    # standard deviations, over 250 pairs, false alarm below 1e-7.
    for one, two in combinations(repetitions, 2):
        assert all(abs(len(np.intersect1d(a, b)) - 40) < 36 for a in one for b in two)


@quick
@given(st.data(), SEEDS, st.floats(1e-3, 1e4))
def test_by_class_gives_every_picture_once_and_the_minimum_to_all(data, seed, concentration):
    labels = data.draw(st.lists(st.sampled_from(["cat", "dog", "owl"]), min_size=1, max_size=60))
    owners = data.draw(st.integers(1, len(labels)))
    minimum = data.draw(st.integers(1, len(labels) // owners))
    options = {"concentration": concentration, "minimum": minimum, "random_state": seed}
    parts = partition.by_class(labels, owners, **options)
    assert len(parts) == owners
    assert_shared_out(parts, len(labels))
    assert min(map(len, parts)) >= minimum
    assert as_lists(parts) == as_lists(partition.by_class(labels, owners, **options))


def test_concentration_is_the_skew():
    """How much of an owner's part is its commonest class: all of it at no concentration, a tenth at a large one."""
    labels = np.repeat(np.arange(10), 500)

    def commonest(concentration):
        parts = partition.by_class(labels, 10, concentration=concentration, random_state=0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert commonest(1e-4) > 0.45  # ten classes fall on ten owners; several share one owner
    assert commonest(0.1) > commonest(1) > commonest(100)
    assert commonest(1e6) < 0.11


@quick
@given(st.data(), SEEDS)
def test_by_person_keeps_persons_together_and_balances(data, seed):
    persons = np.array(data.draw(st.lists(st.integers(-5, 20), min_size=1, max_size=120)))
    people = len(np.unique(persons))
    owners = data.draw(st.integers(1, people))
    parts = partition.by_person(persons, owners, random_state=seed)
    assert len(parts) == owners
    assert_shared_out(parts, len(persons))
    for one, two in combinations(parts, 2):
        assert not np.intersect1d(persons[one], persons[two]).size
    # Largest first to the least loaded: nobody exceeds another by more than the largest person.
    largest = np.unique(persons, return_counts=True)[1].max()
    assert max(map(len, parts)) - min(map(len, parts)) <= largest
    assert as_lists(parts) == as_lists(partition.by_person(persons, owners, random_state=seed))


@quick
@given(st.lists(st.integers(0, 30), min_size=1, max_size=100))
def test_days(days):
    parts = partition.by_day(days)
    assert len(parts) == max(days) + 1
    assert as_lists(parts) == [[row for row, day in enumerate(days) if day == number] for number in range(len(parts))]


FRACTIONS = st.sampled_from([(0.5, 0.5), (0.7, 0.3), (0.95, 0.05), (0.4, 0.3, 0.3), (0.1, 0.2, 0.3, 0.4)])


@quick
@given(FRACTIONS, st.lists(st.integers(0, 4), min_size=4, max_size=150), SEEDS)
def test_stratified_split(fractions, values, seed):
    labels = np.array([0, 1, *values])
    parts = partition.split(labels, fractions, random_state=seed)
    assert_shared_out(parts, len(labels))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * len(labels)) < 1 or len(part) == 1 or fraction == max(fractions)
        for label, total in zip(*np.unique(labels, return_counts=True), strict=True):
            share = len(part) / len(labels)
            assert abs(np.sum(labels[part] == label) - share * total) <= share * len(fractions) + 1
    assert as_lists(parts) == as_lists(partition.split(labels, fractions, random_state=seed))


def test_no_part_is_rounded_away():
    assert [len(part) for part in partition.split([0, 1] * 3, (0.95, 0.05), random_state=0)] == [5, 1]


def test_every_picture_is_as_likely_to_be_tested():
    """Even where every picture is a class. 2,000 draws at 0.3: sd .0102; bound 6 sd, 30 pictures: alarm < 1e-7."""
    rng = np.random.default_rng(0)
    tested = np.zeros(30)
    for _ in range(2000):
        tested[partition.train_test(np.arange(30), test=0.3, random_state=rng)[1]] += 1
    assert np.all(np.abs(tested / 2000 - 0.3) < 0.062)


@quick
@given(FRACTIONS, st.integers(4, 40), st.integers(0, 2**32 - 1))
def test_nobody_is_in_two_parts(fractions, people, seed):
    rng = np.random.default_rng(seed)
    persons = np.concatenate([np.arange(people), rng.integers(0, people, 3 * people)])
    labels = np.concatenate([[0, 1], rng.integers(0, 3, len(persons) - 2)])
    for stratify in (True, False):
        options = {"persons": persons, "stratify": stratify, "random_state": seed}
        parts = partition.split(labels, fractions, **options)
        assert_shared_out(parts, len(persons))
        for one, two in combinations(parts, 2):
            assert not np.intersect1d(persons[one], persons[two]).size
        assert as_lists(parts) == as_lists(partition.split(labels, fractions, **options))


@pytest.mark.parametrize("kind", ["persons of one class", "persons of many classes", "every person a class"])
def test_person_disjoint_splits_are_still_stratified(kind):
    rng = np.random.default_rng(5)
    persons = np.repeat(np.arange(120), rng.integers(1, 12, 120))
    labels = {
        "persons of one class": (persons % 10 == 0).astype(int),
        "persons of many classes": rng.integers(0, 4, len(persons)),
        "every person a class": persons,
    }[kind]
    fractions = (0.4, 0.3, 0.3)
    for seed in range(5):
        parts = partition.split(labels, fractions, persons=persons, random_state=seed)
        for part, fraction in zip(parts, fractions, strict=True):
            assert abs(len(part) / len(persons) - fraction) < 0.02
            if kind != "every person a class":
                share = np.bincount(labels[part]) / np.bincount(labels)
                assert np.all(np.abs(share - fraction) < 0.06)


def test_a_dataset_brings_its_labels_and_persons():
    persons = np.repeat(np.arange(20), 5)
    dataset = Dataset(
        "few",
        licence="none",
        source="a test",
        images=np.zeros((100, 2, 2, 3), dtype=np.uint8),
        labels=np.tile([0, 1], 50),
        label_names=("a", "b"),
        persons=persons,
    )
    train, test = partition.train_test(dataset, random_state=3)
    assert (len(train), len(test)) == (70, 30)
    assert not np.intersect1d(persons[train], persons[test]).size
    by_hand = partition.train_test(dataset.labels, persons=persons, random_state=3)
    assert as_lists([train, test]) == as_lists(list(by_hand))


def test_an_unlabelled_dataset_is_split_at_random():
    dataset = Dataset("plain", licence="none", source="a test", features=np.zeros((10, 2), dtype=np.float32))
    assert_shared_out(list(partition.train_test(dataset, test=0.2, random_state=0)), 10)


DIGITS = np.tile(np.arange(3), 40)
PEOPLE = np.repeat(np.arange(40), 3)


def divided(held_out, **how):
    return partition.divide(DIGITS, public=0.25, held_out=held_out, random_state=0, **how)


@pytest.mark.parametrize(("held_out", "sizes"), [(0.25, (22, 68, 30)), (10, (30, 80, 10)), (0, (30, 90, 0))])
def test_a_division_gives_every_row_to_one_side(held_out, sizes):
    division = divided(held_out, owners=3)
    found = len(division.public), sum(map(len, division.owners)), len(division.held_out)
    assert found == pytest.approx(sizes, abs=1)
    rows = np.concatenate([division.public, *division.owners, division.held_out])
    assert sorted(rows) == list(range(120))
    assert max(map(len, division.owners)) - min(map(len, division.owners)) <= 1
    again = divided(held_out, owners=3)
    assert as_lists(division.owners) == as_lists(again.owners)
    assert division.held_out.tolist() == again.held_out.tolist()


def test_persons_stay_on_one_side_of_a_division():
    division = divided(0.25, owners=3, sharing="by-person", persons=PEOPLE, stratify=False)
    sides = [set(PEOPLE[rows]) for rows in (division.public, *division.owners, division.held_out)]
    assert sum(map(len, sides)) == len(set().union(*sides)) == 40


def test_a_division_by_class_is_skewed():
    shares = divided(0, owners=3, sharing="by-class", concentration=0.01).owners
    assert max(np.bincount(DIGITS[rows]).max() / len(rows) for rows in shares) > 0.6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: partition.equal(3, 4), "4 owners need at least 4 pictures"),
        (lambda: partition.equal(3, 0), "owners .* 0"),
        (lambda: partition.overlapping(9, 7, copies=2), "multiple of copies"),
        (lambda: partition.overlapping(9, 0, copies=0), "multiple of copies"),
        (lambda: partition.overlapping(9, 20, copies=2), "10 owners"),
        (lambda: partition.by_class([0, 1], 3, concentration=1.0), "3 owners"),
        (lambda: partition.by_class([0, 1], 2, concentration=0.0), "concentration"),
        (lambda: partition.by_class([0, 1], 2, concentration=float("nan")), "concentration"),
        (lambda: partition.by_class([0, 1], 2, concentration=1.0, minimum=2), "at least 2"),
        (lambda: partition.by_class([[0], [1]], 2, concentration=1.0), "one value per picture"),
        (lambda: partition.by_person([7, 7, 7], 2), "2 persons"),
        (lambda: partition.by_person([], 1), "one value per picture"),
        (lambda: partition.by_day([]), "days"),
        (lambda: partition.by_day([-1]), "days"),
        (lambda: partition.train_test([0, 1], test=1.0), "test"),
        (lambda: partition.train_test([1, 1, 1]), "two classes"),
        (lambda: partition.train_test([0, 1], persons=[4, 4]), "2 persons"),
        (lambda: partition.train_test([0, 1], persons=[4, 5, 6]), "3 rows"),
        (lambda: partition.split([0, 1], (0.4, 0.3, 0.3)), "3 pictures"),
        (lambda: partition.split([0, 1], (0.4, 0.4)), "0.8"),
        (lambda: partition.split([0, 1], (1.0,)), "two fractions"),
        (lambda: partition.split([0, 1], (-0.5, 1.5)), "two fractions"),
        (lambda: partition.equal(9, 3, random_state=-1), "seed"),
        (lambda: divided(90), "89 queries; got 90"),
        (lambda: divided(-1), "got -1"),
        (lambda: divided(1.0), "fractions"),
        (lambda: divided(0, sharing="by-person"), "who is on"),
        (lambda: partition.divide(DIGITS, public=1.0), "public share .* 1.0"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()
