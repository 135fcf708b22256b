"""Updates of any app: what a member makes of what its app learned, and what a sum of them tells."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.updates import AppLearner, Training
from blindsight.rounds import Memory, Privacy, RoundSum, Sums, Task
from blindsight.sums import Terms
from tests.federated.parties import numbers

NOTHING = Memory()


def terms_of(learner, members=5):
    names = tuple(f"member {number}" for number in range(members))
    return Terms(scheme="plain", run="a", members=names, dimension=learner.size, fraction_bits=24)


def made(change, examples, learner, memory=NOTHING, metrics=()):
    return learner.update_of(Training(np.asarray(change), examples, metrics), memory, terms_of(learner), 1)


def mean_of(vectors, learner):
    terms = terms_of(learner)
    total = np.sum([terms.integers(vector) for vector in vectors], axis=0)
    contributors = terms.members[: len(vectors)]
    return learner.mean(RoundSum(round=1, contributors=contributors, total=total, values=terms.values(total)), terms)


@given(st.integers(1, 10**6), st.floats(0, 0.99), st.integers(1, 500), st.integers(0, 10**9), st.text(max_size=64))
def test_a_task_of_an_app_survives_the_wire(numbers, sparsity, block, max_examples, weighted_by):
    learner = AppLearner(
        numbers=numbers,
        sparsity=sparsity,
        block=block,
        max_examples=max_examples,
        weighted_by=weighted_by,
        metrics=(weighted_by + "a", weighted_by + "b"),
    )
    assert AppLearner.of(Task.from_bytes(learner.task().to_bytes())) == learner


def test_sums_give_means_weighted_by_examples_and_count_what_was_capped_and_clipped():
    rng = np.random.default_rng(0)
    changes, examples = rng.normal(size=(5, 7)), np.array([1, 20, 50, 100, 700])
    changes[3, :2] = 1000.0
    losses = rng.uniform(size=5)
    learner = AppLearner(numbers=7, max_examples=100, metrics=("loss",))
    sent, limit = [], terms_of(learner).max_integer / 2**24
    for change, number, loss in zip(changes, examples, losses, strict=True):
        update, clipped = made(change, number, learner, metrics=(loss,))
        assert clipped == 2 * (number == 100)
        sent.append(np.clip(update.sent, -limit, limit))
    mean, weights = mean_of(sent, learner), np.minimum(examples, 100)
    assert mean.change[2:] == pytest.approx(np.average(changes, axis=0, weights=weights)[2:], abs=1e-6)
    assert mean.metrics["loss"] == pytest.approx(np.average(losses, weights=weights), abs=1e-6)
    assert (mean.capped, mean.clipped) == (1, 2)
    assert mean.examples == pytest.approx(weights.sum(), abs=1e-3)


def test_without_a_most_all_weigh_the_same():
    sent = made(np.ones(3), 10**6, AppLearner(numbers=3))[0].sent
    assert sent.tolist() == [1.0] * 4 + [2.0**-24] * 2


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.floats(0.3, 0.95), st.integers(1, 6))
def test_all_that_was_sent_and_what_is_held_is_all_that_was_learned(seed, block, sparsity, rounds):
    rng = np.random.default_rng(seed)
    learner = AppLearner(numbers=30, sparsity=sparsity, block=block, max_examples=100)
    memory, sent = NOTHING, np.zeros(33)
    changes, examples = rng.normal(size=(rounds, 30)), rng.integers(1, 100, size=rounds)
    capacity = learner.sums(Sums(scheme="block-dphe")).options.capacity
    for change, number in zip(changes, examples, strict=True):
        update, _ = made(change, number, learner, memory)
        assert update.sent[30] == pytest.approx(number / 100)
        assert np.count_nonzero(update.sent) <= capacity
        sent, memory = sent + update.sent, update.memory
    assert sent[:30] + memory.held[:30] == pytest.approx((examples / 100) @ changes)


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": 0},
        {"numbers": "3"},
        {"numbers": True},
        {"sparsity": 1.0},
        {"sparsity": -0.1},
        {"block": 0},
        {"max_examples": -1},
        {"max_examples": 1.5},
        {"weighted_by": 3},
        {"metrics": ["a", "a"]},
        {"metrics": [1]},
        {"metrics": "ab"},
        {"largest": 0.0},
        {"scheduled": 1},
        {"code": "import os"},
    ],
)
def test_settings_that_cannot_be_are_refused_on_both_sides(change):
    settings = {**AppLearner(numbers=3).task().settings, **change}
    with pytest.raises(MessageError):
        Task.from_bytes(replace(AppLearner(numbers=3).task(), settings=settings).to_bytes())


def test_a_task_of_another_kind_is_not_an_apps():
    with pytest.raises(MessageError, match="'numbers'"):
        AppLearner.of(numbers())


def test_changes_and_weights_that_cannot_be_are_refused():
    learner = AppLearner(numbers=1)
    assert made(np.ones(1), 1, learner)[0].memory.held is None  # without sparsity
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(MessageError, match="finite"):
            made(np.array([bad]), 1, learner)
    for total in (0.0, -0.5, 3.0001, 5.0):
        with pytest.raises(PrivacyError, match="no mean"):
            mean_of([np.array([0.0, total, 0.0, 0.0]), *np.zeros((2, 4))], learner)


def test_with_noise_nothing_but_the_change_is_sent():
    plan = Privacy(epsilon=8.0, delta=1e-3, unit="member", clip=1.0).plan(
        members=5, dimension=3, rounds=1, records=1, scheme="plain"
    )
    learner = AppLearner(numbers=3, noise=plan)
    update, clipped = made(np.full(3, np.nan), 1, learner)  # counts as no change
    assert (update.sent.size, clipped, update.memory.held) == (3, 0, None)
    assert np.array_equal(update.sent, np.rint(update.sent))
    for change in ({"sparsity": 0.5}, {"max_examples": 10}, {"metrics": ("loss",)}, {"scheduled": True}):
        with pytest.raises(InputError, match="with noise"):
            replace(learner, **change)


def planned(members, epsilon=1.0, delta=1e-6, **changes):
    """Return the task of an app with noise for a number of members, whose plan was changed."""
    privacy = Privacy(epsilon=epsilon, delta=delta, unit="member", clip=1.0)
    plan = privacy.plan(members=members, dimension=100, rounds=10, records=1, scheme="masks")
    return AppLearner(numbers=100, noise=replace(plan, **changes)).task(delta=delta)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (planned(200, groups=1), "groups is 4, planned 1"),
        (planned(200, colluders=0), "may collude, planned 0"),
        (planned(200, sigma=1), "proves nothing"),
        (planned(200, epsilon=50.0, delta=0.5), "hides nothing"),
        (planned(200, rounds=10**6), "hides nothing"),
    ],
)
def test_a_member_computes_the_epsilon_from_the_terms_that_it_signs(task, words):
    """Two hundred members, whose sums the server sees in four groups."""
    right = planned(200)
    names = tuple(f"member {number}" for number in range(200))
    terms = right.terms(Sums(), run="a", members=names)
    right.check(terms, 10)
    with pytest.raises(PrivacyError, match="11"):
        right.check(terms, 11)
    forged = replace(terms, config=task.digest)
    with pytest.raises(PrivacyError, match=words):
        task.check(forged, 1)
