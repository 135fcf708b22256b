"""Options that leave something out are refused before a photo is read; the others get the noise they ask for."""

from functools import partial

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.cost import compose_sharing
from blindsight.papers.selective.days import MethodResult, Setting, Timeline, schedule_days, simulate_days
from blindsight.papers.selective.methods import NeverUpdated
from blindsight.papers.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.study import BATCH, OURS, STATED_DELTA, SharingOptions
from blindsight.rng import seeded_bytes

rng = np.random.default_rng(0)
LABELS = np.arange(600) % 3
INPUTS = (rng.normal(size=(3, 6))[LABELS] + rng.normal(size=(600, 6))).astype(np.float32)
PLAN = schedule_days(LABELS, participants=3, days=5, initial=0.2, random_state=0)  # 5 uploads each
PARTICIPANT = {"noise": "participant", "epsilon": 4.0, "delta": 1e-5, "upload_clip": 0.5}
RECORD = {"noise": "record", "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
BESIDE = {"epsilons": (1.0, 8.0), "delta": 1e-5, "clip": 1.0, "upload_clip": 0.5}

REFUSED = {
    "'laplace'": [{"noise": "laplac", "epsilon": 1.0}],
    "order": [{"order": "randm"}],
    "share": [{"share": 1.5}],
    "download": [{"download": 1.01}],
    "threshold": [{"select": "threshold"}, PARTICIPANT | {"select": "threshold", "threshold": 0.1}],
    "noise goes with": [{"noise": "laplace"}, {"epsilon": 1.0}],
    "bound": [{"noise": "laplace", "epsilon": 1.0}],
    "epsilon": [{"noise": "published", "epsilon": 0.0, "bound": 1.0}, PARTICIPANT | {"epsilon": -1.0}],
    "delta": [PARTICIPANT | {"delta": 0.0}],
    "needs delta and upload_clip": [PARTICIPANT | {"upload_clip": None, "delta": None}],
    "needs clip": [RECORD | {"clip": None}, BESIDE | {"clip": None}],
    "clip must": [PARTICIPANT | {"upload_clip": 0.0}, BESIDE | {"upload_clip": -1.0}],
    "clip is for": [{"clip": 1.0}, PARTICIPANT | {"clip": 1.0}, RECORD | {"upload_clip": 1.0}],
    "0.0|nan|twice": [BESIDE | {"epsilons": wrong} for wrong in ((1.0, 0.0), (float("nan"),), (2.0, 1.0, 2.0))],
}


@pytest.mark.parametrize(("words", "given"), [(words, given) for words in REFUSED for given in REFUSED[words]])
def test_options_that_leave_something_out_are_refused_when_they_are_made(words, given):
    with pytest.raises(InputError, match=words):
        SharingOptions(**({"share": 0.1} | given))


@pytest.mark.parametrize(
    ("given", "noise"),
    [
        ({}, type(None)),
        ({"noise": "published", "epsilon": 1.0, "bound": 0.1}, PublishedLaplace),
        ({"noise": "laplace", "epsilon": 1.0, "bound": 0.1, "select": "random"}, Laplace),
        (PARTICIPANT, ParticipantGaussian),
        (RECORD, RecordGaussian),
    ],
)
def test_noise_is_of_the_kind_asked_for_and_everything_else_is_handed_on(given, noise):
    options = SharingOptions(share=0.3, residual=True, half=True, **given)
    sharing = options.sharing(PLAN, steps=1)
    assert type(sharing.noise) is noise
    assert (sharing.share, sharing.residual, sharing.half) == (0.3, True, True)
    assert (sharing.select, sharing.bound) == (options.select, options.bound)


def uploading(most):
    """A study in which somebody made so many uploads and nobody more."""
    told = NeverUpdated().begin(Setting(("ann",), np.zeros(3), None, 32, 1e-5, 0)).statement()
    method = MethodResult(OURS, (0.5,), (3 * most,), (1,), (1,), most, 0.0, told, "nobody")
    return Timeline((10,), (method,))


@pytest.mark.parametrize("epsilon", [0.5, 12.0])
def test_participant_noise_is_the_least_that_all_uploads_of_the_plan_allow(epsilon):
    options = SharingOptions(share=0.5, select="random", **(PARTICIPANT | {"epsilon": epsilon}))
    noise = options.sharing(PLAN, steps=1).noise
    assert noise.clip == 0.5
    spent = options.cost(PLAN, uploading(5), 21, steps=1)
    assert spent.proven
    assert spent.uploads == PLAN.uploads(BATCH) == 5
    assert 0.999 * epsilon < spent.epsilon <= epsilon
    more = compose_sharing(options.sharing(PLAN, steps=1), dimension=21, uploads=6, delta=1e-5)
    assert more.epsilon > epsilon  # one upload more than the plan has


@pytest.mark.parametrize("steps", [1, 3])
def test_record_noise_is_for_the_steps_on_a_photo_however_many_uploads_follow(steps):
    options = SharingOptions(share=0.5, **RECORD)
    cost = options.cost(PLAN, uploading(5), 21, steps=steps)
    assert 0.999 * 4 < cost.epsilon <= 4
    ratio = (
        options.sharing(PLAN, steps=steps).noise.noise_multiplier
        / options.sharing(PLAN, steps=1).noise.noise_multiplier
    )
    assert ratio == pytest.approx(np.sqrt(steps), rel=1e-6)


def test_delta_of_the_papers_noise_only_states():
    options = SharingOptions(share=0.1, noise="published", epsilon=1.0, bound=0.1)
    assert options.stated_delta == STATED_DELTA
    assert options.sharing(PLAN, steps=1) == SharingOptions(
        share=0.1, noise="published", epsilon=1.0, bound=0.1, delta=0.01
    ).sharing(PLAN, steps=1)


def test_methods_are_ours_those_beside_and_four_for_each_epsilon():
    methods = SharingOptions(share=0.2, download=0.5, order="random", **(PARTICIPANT | BESIDE)).methods(PLAN, steps=1)
    names = [method.name for method in methods]
    assert len(set(names)) == len(names) == 7 + 2 * 4
    ours = methods[names.index(OURS)]
    assert (ours.download, ours.order, ours.budget) == (0.5, "random", 4.0)
    assert [name for name in names if name.endswith("eps 8")] == [
        "noise per photo, eps 8",
        "noise per participant, eps 8",
        "DP-FedAvg, equal uploads, eps 8",
        "DP-FedAvg, equal bytes, eps 8",
    ]
    photo, participant = (methods[names.index(f"noise per {unit}, eps 8")] for unit in ("photo", "participant"))
    assert photo.sharing.noise.clip == 1.0
    assert participant.sharing.noise.clip == 0.5
    assert all(method.sharing.noise is None for method in methods if method.name == "top-k with residuals")


@pytest.mark.parametrize("given", [{}, {"noise": "laplace", "epsilon": 1.0, "bound": 1.0, "select": "random"}])
def test_noise_of_the_papers_has_no_budget(given):
    methods = SharingOptions(share=0.2, **given).methods(PLAN, steps=1)
    assert next(method for method in methods if method.name == OURS).budget is None


@pytest.mark.parametrize("made", [0, 1, 3])
def test_the_cost_is_that_of_the_uploads_that_were_made(made):
    options = SharingOptions(share=0.5, **PARTICIPANT)
    cost = options.cost(PLAN, uploading(made), 21, steps=1)
    assert cost.uploads == max(1, made)
    assert cost.epsilon < 4


def test_plans_in_which_nothing_would_be_shared_are_refused():
    crowd = schedule_days(LABELS, participants=20, days=5, initial=0.2, random_state=0)
    with pytest.raises(InputError, match="32 photos"):
        SharingOptions(share=0.5).methods(crowd, steps=1)


def played(options, plan_of_noise, plan=PLAN):
    """Play a options, with noise made for one plan, over all days of another."""
    ours = next(method for method in options.methods(plan_of_noise, steps=1) if method.name == OURS)
    make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS), classes=3, learning_rate=0.1)
    initial = make(record_noise=None).initial()
    timeline = simulate_days(
        plan, INPUTS, LABELS, [ours], make, initial=initial, delta=1e-5, source=seeded_bytes(1), random_state=0
    )
    return timeline.method(OURS)


def test_what_is_proven_after_all_days_is_at_most_what_was_asked_for():
    for kind in (PARTICIPANT, RECORD):
        method = played(SharingOptions(share=0.5, **kind), PLAN)
        assert method.uploads[-1] == 15  # the noise lasts for all
        assert 0.999 * 4 < method.epsilon <= 4


def test_the_budget_stops_uploads_for_which_the_noise_was_not_made():
    short = schedule_days(LABELS, participants=3, days=2, initial=0.8, random_state=0)
    assert short.uploads(BATCH) == 1
    method = played(SharingOptions(share=0.5, **PARTICIPANT), short)
    assert method.uploads[-1] == 3  # one each, though photos for five have gathered
    assert method.epsilon <= 4
