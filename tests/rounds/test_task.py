"""What a run agrees on: one digest, one derivation of terms and schedule, and noise that members can recompute."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.rounds import Privacy, Sums, Task, register_learner
from blindsight.rounds.task import _TaskMessage
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.twowave import cohort_parameters
from tests.rounds.learners import NAMES, PAILLIER, constant, sums, task_of

KINDS = ("classifier", "private classifier", "k-means", "published classifier")


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_survives_its_bytes(kind):
    task, _ = task_of(kind, Sums(share=0.5) if kind != "private classifier" else Sums())
    task = replace(task, seed=7)
    again = Task.from_bytes(task.to_bytes())
    assert again.digest == task.digest
    assert (again.kind, again.seed, again.noise, again.delta) == (task.kind, 7, task.noise, task.delta)
    first, second = task.learner(), again.learner()
    shared = first.first(7)
    assert (shared == second.first(7)).all()
    assert (first.size, first.always, first.largest) == (second.size, second.always, second.largest)
    assert replace(task, seed=8).digest != task.digest


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "unknown"},
        {"document": b"{}"},
        {"document": b"["},
        {"arrays": b""},
        {"document": b'{"delta":0.0,"seed":-1,"settings":{}}'},
    ],
    ids=["kind", "empty", "broken", "arrays", "seed"],
)
def test_what_is_no_task_is_refused(change):
    task, _ = task_of("classifier", Sums())
    message = decode(task.to_bytes(), _TaskMessage)
    with pytest.raises(MessageError):
        Task.from_bytes(encode(replace(message, **change)))


def test_strange_public_data_are_refused_by_who_reads_them():
    for kind, name, array in (
        ("classifier", "mean", np.full(12, np.nan)),
        ("classifier", "scale", np.zeros(12)),
        ("classifier", "public", np.zeros((20, 5))),
        ("classifier", "signs", np.zeros((20, 3), dtype=np.int8)),
        ("classifier", "classes", np.arange(1)),
        ("k-means", "public", np.zeros((3, 12))),
        ("private classifier", "matrix", np.zeros((5, 5))),
        ("private classifier", "wanted", np.zeros((20, 2))),
    ):
        task, _ = task_of(kind, Sums())
        with pytest.raises(MessageError):
            Task.from_bytes(replace(task, arrays={**task.arrays, name: array}).to_bytes())


@pytest.mark.parametrize("share", [0.34, 0.5])
def test_the_schedule_is_the_same_under_every_scheme_in_every_run(share):
    task = constant(64)
    found = [
        task.terms(sums(scheme, share), run=run, members=members)
        for scheme in SCHEMES
        for run, members in (("a", NAMES), ("b", NAMES[::-1]), ("c", ("x", "y", "z")))
    ]
    for round in range(1, 9):
        places = [terms.support(round).positions.tolist() for terms in found]
        assert all(one == places[0] for one in places)
    other = replace(task, seed=1).terms(sums("plain", share), run="a", members=NAMES)
    assert any((other.support(r).positions.tolist() != found[0].support(r).positions.tolist()) for r in range(1, 9))


def test_every_block_has_its_turn_once_in_the_first_rounds():
    terms = constant(64).terms(sums("plain", 0.25), run="a", members=NAMES)
    places = np.concatenate([terms.support(round).positions for round in range(1, 5)])
    assert sorted(places.tolist()) == list(range(64))
    with pytest.raises(InputError, match="count"):
        terms.support(0)


def test_options_of_sparse_schemes_follow_from_the_task():
    task = constant(1000)
    for share, capacity in ((None, 100), (1.0, 1000), (0.5, 512)):
        terms = task.terms(Sums(scheme="dphe", share=share), run="a", members=NAMES)
        assert terms.options.capacity == capacity
    block = task.terms(  # one of eleven blocks is a tenth, rounded down
        Sums(scheme="block-dphe"), run="a", members=NAMES
    )
    assert block.options.capacity == Sums(scheme="block-dphe").block_size


def test_terms_of_another_task_are_refused_by_a_member():
    task, other = constant(6), constant(7)
    terms = task.terms(sums(), run="a", members=NAMES)
    task.check(terms)
    for wrong in (
        other.terms(sums(), run="a", members=NAMES),
        replace(terms, config=bytes(32)),
        replace(terms, dimension=5),
    ):
        with pytest.raises(MessageError):
            task.check(wrong)


def noisy(scheme="masks", members=5, **privacy):
    task, _ = task_of("private classifier", Sums(scheme=scheme))
    size = task.learner().size
    plan = Privacy(**{"epsilon": 1.0, "delta": 1e-6, "unit": "record"} | privacy).plan(
        members=members, dimension=size, rounds=4, records=40, scheme=scheme
    )
    task = replace(task, noise=plan, delta=privacy.get("delta", 1e-6))
    return task, task.terms(Sums(scheme=scheme), run="a", members=tuple(f"m{i}" for i in range(members)))


def test_a_member_recomputes_the_epsilon_of_what_it_signs():
    task, terms = noisy()
    for round in (None, 1, 4):
        task.check(terms, round)
    for round in (0, 5):
        with pytest.raises(PrivacyError, match="4 rounds"):
            task.check(terms, round)
    wrong = {
        "members": {"members": terms.members[:4], "minimum": 3},
        "opened": {"minimum": 3},
        "sample": {"sample": 4},
        "fraction_bits": {"fraction_bits": 1},
    }
    for named, change in wrong.items():
        with pytest.raises(PrivacyError, match=named):
            task.check(replace(terms, **change))
    fewer = noisy(colluders=0)
    fewer[0].check(fewer[1], colluders=0)
    with pytest.raises(PrivacyError, match="collude"):
        fewer[0].check(fewer[1])


def test_noise_that_counts_on_one_group_is_refused_where_masks_have_two():
    """With 200 members in four groups a plan for one sum states a third of the real epsilon."""
    task, terms = noisy(members=200)
    assert task.noise.groups == len(terms.groups(1)) == 4
    privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", colluders=task.noise.colluders)
    whole = privacy.plan(members=200, dimension=terms.dimension, rounds=4, records=40, scheme="plain")
    lying = replace(task, noise=whole)
    terms = replace(terms, config=lying.digest)
    with pytest.raises(PrivacyError, match="groups"):
        lying.check(terms)
    assert whole.epsilon(1e-6) <= 1.0
    assert whole.under(terms).epsilon(1e-6) > 1.5


@pytest.mark.parametrize("members", [5, 10, 50, 200])
def test_noise_of_two_waves_counts_on_the_members_that_a_lying_server_cannot_leave_out(members):
    task, terms = noisy("two-wave-masks", members)
    assert terms.options.rounds == task.noise.rounds == 4
    task.check(terms, 4)
    least = min(cohort_parameters(terms, size).honest for size in terms.group_sizes)
    assert task.noise.honest <= least
    assert task.noise.under(terms).epsilon(1e-6) <= 1.0
    if members == 50:
        hopeful = replace(task, noise=replace(task.noise, drop_outs=10))
        terms = replace(terms, config=hopeful.digest, minimum=40)
        with pytest.raises(PrivacyError, match="are opened, planned 40"):
            hopeful.check(terms)


def test_a_delta_that_allows_anything_is_refused():
    with pytest.raises(PrivacyError, match="delta"):
        noisy(epsilon=50.0, delta=0.5)


def test_noise_and_models_are_about_all_numbers():
    task, _ = task_of("private classifier", Sums())
    with pytest.raises(InputError, match="share"):
        task.terms(Sums(share=0.5), run="a", members=NAMES)
    with pytest.raises(InputError, match="minimum_per_position"):
        task.terms(Sums(scheme="dphe", options=replace(PAILLIER, minimum_per_position=2)), run="a", members=NAMES)
    published, _ = task_of("published classifier", Sums())
    published = replace(published, settings={**published.settings, "net": {"target": "classifier"}})
    for wrong in (Sums(share=0.5), Sums(scheme="dphe")):
        with pytest.raises(InputError):
            published.terms(wrong, run="a", members=NAMES)


def test_kinds_are_registered_once():
    with pytest.raises(InputError, match="'constant'"):
        register_learner("constant", lambda task, validation: None)
    with pytest.raises(UnknownNameError, match="'nothing'"):
        Task(kind="nothing").learner()
