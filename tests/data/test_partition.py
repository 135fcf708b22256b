"""Every picture has its owner, nobody is left without, persons stay together, and a seed gives the same again."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from blindsight.data import partition
from blindsight.data.dataset import Dataset
from blindsight.errors import InputError

SEEDS = st.integers(0, 2**32 - 1)
quick = settings(deadline=None, max_examples=60)


def assert_shared_out(parts: list[NDArray[np.int64]], n: int) -> None:
    """Disjoint, covering, sorted, nobody empty."""
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    assert all(len(part) and np.all(np.diff(part) > 0) and part.dtype == np.int64 for part in parts)


def as_lists(parts: list[NDArray[np.int64]]) -> list[list[int]]:
    return [part.tolist() for part in parts]


@quick
@given(st.data(), SEEDS)
def test_equal_parts(data: st.DataObject, seed: int) -> None:
    n = data.draw(st.integers(1, 200))
    owners = data.draw(st.integers(1, n))
    parts = partition.equal(n, owners, random_state=seed)
    assert len(parts) == owners
    assert_shared_out(parts, n)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert as_lists(parts) == as_lists(partition.equal(n, owners, random_state=seed))


def test_seeds_differ() -> None:
    assert as_lists(partition.equal(100, 4, random_state=1)) != as_lists(partition.equal(100, 4, random_state=2))


@pytest.mark.parametrize("copies", [1, 2, 5, 10, 20])
def test_overlapping_is_the_repeated_split_into_five_of_figure_4(copies: int) -> None:
    parts = partition.overlapping(1000, 5 * copies, copies=copies, random_state=0)
    assert [len(part) for part in parts] == [200] * (5 * copies)
    repetitions = [parts[start : start + 5] for start in range(0, 5 * copies, 5)]
    for repetition in repetitions:
        assert_shared_out(repetition, 1000)
    # Independent repetitions: owners of different ones share about 200 * 200 / 1000 = 40 pictures (sd 5.1); seven
    # standard deviations, over at most 4,750 pairs, false alarm below 1e-7.
    for one, two in combinations(repetitions, 2):
        assert all(abs(len(np.intersect1d(a, b)) - 40) < 36 for a in one for b in two)


@quick
@given(st.data(), SEEDS, st.floats(1e-3, 1e4))
def test_by_class_gives_every_picture_once_and_the_minimum_to_all(
    data: st.DataObject, seed: int, concentration: float
) -> None:
    labels = data.draw(st.lists(st.sampled_from(["cat", "dog", "owl"]), min_size=1, max_size=60))
    owners = data.draw(st.integers(1, len(labels)))
    minimum = data.draw(st.integers(1, len(labels) // owners))
    options = {"concentration": concentration, "minimum": minimum, "random_state": seed}
    parts = partition.by_class(labels, owners, **options)
    assert len(parts) == owners
    assert_shared_out(parts, len(labels))
    assert min(map(len, parts)) >= minimum
    assert as_lists(parts) == as_lists(partition.by_class(labels, owners, **options))


def test_concentration_is_the_skew() -> None:
    """How much of an owner's part is its commonest class: all of it at no concentration, a tenth at a large one."""
    labels = np.repeat(np.arange(10), 500)

    def commonest(concentration: float) -> float:
        parts = partition.by_class(labels, 10, concentration=concentration, random_state=0)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert commonest(1e-4) > 0.45  # ten classes fall on ten owners; several share one owner
    assert commonest(0.1) > commonest(1) > commonest(100)
    assert commonest(1e6) < 0.11


@quick
@given(st.data(), SEEDS)
def test_by_person_keeps_persons_together_and_balances(data: st.DataObject, seed: int) -> None:
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
def test_days_and_windows(days: list[int]) -> None:
    parts = partition.by_day(days)
    assert len(parts) == max(days) + 1
    assert as_lists(parts) == [[row for row, day in enumerate(days) if day == number] for number in range(len(parts))]
    week = partition.window(days, 3, 9)
    assert week.tolist() == [row for row, day in enumerate(days) if 3 <= day <= 9]


FRACTIONS = st.sampled_from([(0.5, 0.5), (0.7, 0.3), (0.95, 0.05), (0.4, 0.3, 0.3), (0.1, 0.2, 0.3, 0.4)])


@quick
@given(FRACTIONS, st.lists(st.integers(0, 4), min_size=4, max_size=150), SEEDS)
def test_stratified_split(fractions: tuple[float, ...], values: list[int], seed: int) -> None:
    labels = np.array([0, 1, *values])
    parts = partition.split(labels, fractions, random_state=seed)
    assert_shared_out(parts, len(labels))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * len(labels)) < 1 or len(part) == 1 or fraction == max(fractions)
        for label, total in zip(*np.unique(labels, return_counts=True), strict=True):
            share = len(part) / len(labels)
            assert abs(np.sum(labels[part] == label) - share * total) <= share * len(fractions) + 1
    assert as_lists(parts) == as_lists(partition.split(labels, fractions, random_state=seed))


def test_every_picture_is_as_likely_to_be_tested() -> None:
    """Even where every picture is a class. 2,000 draws at 0.3: sd .0102; bound 6 sd, 30 pictures: alarm < 1e-7."""
    rng = np.random.default_rng(0)
    tested = np.zeros(30)
    for _ in range(2000):
        tested[partition.train_test(np.arange(30), test=0.3, random_state=rng)[1]] += 1
    assert np.all(np.abs(tested / 2000 - 0.3) < 0.062)


@quick
@given(FRACTIONS, st.integers(4, 40), st.integers(0, 2**32 - 1))
def test_nobody_is_in_two_parts(fractions: tuple[float, ...], people: int, seed: int) -> None:
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
def test_person_disjoint_splits_are_still_stratified(kind: str) -> None:
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


def test_a_dataset_brings_its_labels_and_persons() -> None:
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


def test_an_unlabelled_dataset_is_split_at_random() -> None:
    dataset = Dataset("plain", licence="none", source="a test", features=np.zeros((10, 2), dtype=np.float32))
    assert_shared_out(list(partition.train_test(dataset, test=0.2, random_state=0)), 10)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: partition.equal(3, 4), "4 owners need at least 4 pictures, one for each owner; got 3"),
        (lambda: partition.equal(3, 0), "owners must be >= 1; got 0"),
        (lambda: partition.overlapping(9, 7, copies=2), "multiple of copies"),
        (lambda: partition.overlapping(9, 0, copies=0), "both >= 1"),
        (lambda: partition.overlapping(9, 20, copies=2), "10 owners need at least 10 pictures"),
        (lambda: partition.by_class([0, 1], 3, concentration=1.0), "3 owners need"),
        (lambda: partition.by_class([0, 1], 2, concentration=0.0), "concentration must be in"),
        (lambda: partition.by_class([0, 1], 2, concentration=float("nan")), "concentration must be in"),
        (lambda: partition.by_class([0, 1], 2, concentration=1.0, minimum=2), "cannot give each of 2 owners"),
        (lambda: partition.by_class([[0], [1]], 2, concentration=1.0), "one value per picture"),
        (lambda: partition.by_person([7, 7, 7], 2), "2 owners need at least 2 persons"),
        (lambda: partition.by_person([], 1), "one value per picture"),
        (lambda: partition.by_day([]), "at least one picture"),
        (lambda: partition.by_day([-1]), "counted from 0"),
        (lambda: partition.window([1], 3, 2), "must not end before"),
        (lambda: partition.train_test([0, 1], test=0.0), "fraction in"),
        (lambda: partition.train_test([0, 1], test=1.0), "fraction in"),
        (lambda: partition.train_test([1, 1, 1]), "at least two classes"),
        (lambda: partition.train_test([0, 1], persons=[4, 4]), "2 parts need at least 2 persons"),
        (lambda: partition.train_test([0, 1], persons=[4, 5, 6]), "3 rows where there are 2"),
        (lambda: partition.split([0, 1], (0.4, 0.3, 0.3)), "3 parts need at least 3 pictures"),
        (lambda: partition.split([0, 1], (0.4, 0.4)), "add up to 1; got 0.8"),
        (lambda: partition.split([0, 1], (1.0,)), "at least two fractions"),
        (lambda: partition.split([0, 1], (-0.5, 1.5)), r"in \(0, 1\)"),
        (lambda: partition.equal(9, 3, random_state=-1), "seed must be"),
    ],
)
def test_what_cannot_be_shared_out_is_one_sentence(call, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        call()
