"""The census counts every person once, spends what it says, and its noise has the scale that its proof needs."""

import numpy as np
import pytest

from blindsight.dp import Ledger, census
from blindsight.errors import BudgetExceededError, InputError, UnknownNameError
from blindsight.rng import seeded_bytes

ANSWERS = {"hat": [1, 1, 0, 1], "beard": [0, 0, 0, 1]}
PERSONS = [5, 5, 7, 9]


def test_huge_epsilon_gives_the_share_of_people_not_of_pictures():
    names = np.array(["ann", "ann", "bob", "cid"], dtype=object)
    for persons in (PERSONS, names):
        result = census(ANSWERS, persons=persons, epsilon=1e6, ledger=Ledger(), scope="x")
        assert result.share("hat") == pytest.approx(2 / 3, abs=1e-4)
        assert result.share("beard") == pytest.approx(1 / 3, abs=1e-4)
        assert result.persons == 3
    with pytest.raises(UnknownNameError, match="'beard'"):
        result.share("bear")


def test_noise_has_the_scale_of_the_proof() -> None:
    # 2 attributes, epsilon 0.5, 1000 people: the mean absolute noise on a share is 2 / 0.5 / 1000 = 0.004. The mean of
    # 600 absolute Laplace draws lies within 21% of it: 5 sigma, a false-alarm rate below 1e-6; the seed is fixed.
    persons = np.repeat(np.arange(1000), 2)
    answers = {name: np.tile([0, 1], 1000) for name in ("a", "b")}
    source = seeded_bytes(4)
    draws = [
        census(answers, persons=persons, epsilon=0.5, ledger=Ledger(), scope="x", source=source) for _ in range(300)
    ]
    errors = np.array([[r.share("a") - 0.5, r.share("b") - 0.5] for r in draws])
    assert np.abs(errors).mean() == pytest.approx(0.004, rel=0.21)


def test_margin_covers_the_noise_as_often_as_it_says():
    persons = np.arange(100)
    source = seeded_bytes(5)
    answers = {"a": np.tile([0, 1], 50)}
    results = [
        census(answers, persons=persons, epsilon=1.0, ledger=Ledger(), scope="x", source=source) for _ in range(600)
    ]
    covered = np.mean([abs(r.share("a") - 0.5) <= r.margin for r in results])
    assert 0.905 < covered < 0.995  # 0.95 with 5 standard deviations of 600 trials: below 1e-6


def test_ledger_is_charged_per_person_and_refuses_more():
    ledger = Ledger()
    ledger.set_budget("x", unit="person", neighbours="replace", epsilon=1.5, delta=0.0)
    first = census(ANSWERS, persons=PERSONS, epsilon=1.0, ledger=ledger, scope="x")
    assert ledger.spent("x", "person", delta=0.0).epsilon == pytest.approx(1.0)
    assert first.statement.epsilon == 1.0
    with pytest.raises(BudgetExceededError):
        census(ANSWERS, persons=PERSONS, epsilon=1.0, ledger=ledger, scope="x")
    assert ledger.remaining("x", "person") == pytest.approx(0.5)


def test_injected_randomness_voids_the_statement():
    result = census(ANSWERS, persons=PERSONS, epsilon=1.0, ledger=Ledger(), scope="x", source=seeded_bytes(0))
    assert result.statement.void
    assert not census(ANSWERS, persons=PERSONS, epsilon=1.0, ledger=Ledger(), scope="x").statement.void


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"hat": [1, 0]},
        {"hat": [1, 0, -1, 1]},
        {"hat": [1, 0, np.nan, 1]},
        1,
        [1, 0, 1, 1],
        {"hat": 1},
        {"hat": ["1"] * 4},
    ],
)
def test_bad_answers_cost_nothing(answers):
    ledger = Ledger()
    with pytest.raises(InputError):
        census(answers, persons=PERSONS, epsilon=1.0, ledger=ledger, scope="x")
    assert ledger.table(delta=0.0) == ()


@pytest.mark.parametrize(
    "persons", [[5, 5, -1, -1], [5, 5, np.nan, np.nan], ["ann", "ann", np.nan, "bob"], ["ann", None, None, "bob"], 5]
)
def test_unknown_persons_are_refused_not_merged_into_one(persons):
    ledger = Ledger()
    with pytest.raises(InputError, match="unknown"):
        census(ANSWERS, persons=persons, epsilon=1.0, ledger=ledger, scope="x")
    assert ledger.table(delta=0.0) == ()


@pytest.mark.parametrize("epsilon", ["1", None, True, [1.0], 1j, np.nan, 0.0])
def test_epsilon_that_is_no_positive_number_gets_a_sentence(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        census(ANSWERS, persons=PERSONS, epsilon=epsilon, ledger=Ledger(), scope="x")
