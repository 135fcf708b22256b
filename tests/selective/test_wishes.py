"""Wishes that leave something out are refused before a photo is read; the others get the noise they ask for."""

from functools import partial

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.rng import seeded_bytes
from blindsight.selective.accounting import compose_sharing
from blindsight.selective.methods import NeverUpdated
from blindsight.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, RecordGaussian
from blindsight.selective.study import BATCH, OURS, STATED_DELTA, SharingWish
from blindsight.selective.timeline import PlayedLine, Setting, Timeline, plan_days, play_days
from blindsight.selective.trainers import SoftmaxTrainer

rng = np.random.default_rng(0)
LABELS = np.arange(600) % 3
INPUTS = (rng.normal(size=(3, 6))[LABELS] + rng.normal(size=(600, 6))).astype(np.float32)
PLAN = plan_days(LABELS, participants=3, days=5, initial=0.2, random_state=0)  # 5 uploads each
PARTICIPANT = {"noise": "participant", "epsilon": 4.0, "delta": 1e-5, "upload_clip": 0.5}
RECORD = {"noise": "record", "epsilon": 4.0, "delta": 1e-5, "clip": 1.0}
BESIDE = {"epsilons": (1.0, 8.0), "delta": 1e-5, "clip": 1.0, "upload_clip": 0.5}

REFUSED = {
    "'laplace'": [{"noise": "laplac", "epsilon": 1.0}],
    "mask|plain": [{"scheme": "mask"}, {"scheme": "plain"}],
    "order": [{"order": "randm"}, {"scheme": "masks", "order": "asynchronous"}],
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
    "all of them": [PARTICIPANT | {"scheme": "masks"}],  # the largest differ
    "0.0|nan|twice": [BESIDE | {"epsilons": wrong} for wrong in ((1.0, 0.0), (float("nan"),), (2.0, 1.0, 2.0))],
}


@pytest.mark.parametrize(("words", "wishes"), [(words, wishes) for words in REFUSED for wishes in REFUSED[words]])
def test_a_wish_that_leaves_something_out_is_refused_when_it_is_made(words, wishes):
    with pytest.raises(InputError, match=words):
        SharingWish(**({"share": 0.1} | wishes))


@pytest.mark.parametrize(
    ("wishes", "noise"),
    [
        ({}, type(None)),
        ({"noise": "published", "epsilon": 1.0, "bound": 0.1}, PublishedLaplace),
        ({"noise": "laplace", "epsilon": 1.0, "bound": 0.1, "select": "random"}, Laplace),
        (PARTICIPANT, ParticipantGaussian),
        (PARTICIPANT | {"scheme": "masks", "select": "random"}, ParticipantGaussian),
        (RECORD, RecordGaussian),
    ],
)
def test_noise_is_of_the_wished_kind_and_everything_else_is_handed_on(wishes, noise):
    wish = SharingWish(share=0.3, residual=True, half="scheme" not in wishes, **wishes)
    sharing = wish.sharing(PLAN, steps=1)
    assert type(sharing.noise) is noise
    assert (sharing.share, sharing.residual, sharing.half) == (0.3, True, "scheme" not in wishes)
    assert (sharing.select, sharing.bound) == (wish.select, wish.bound)


def uploading(most):
    """A study in which somebody made so many uploads and nobody more."""
    told = NeverUpdated().begin(Setting(("ann",), np.zeros(3), None, 32, 1e-5, 0)).statement()
    line = PlayedLine(OURS, (0.5,), (3 * most,), (1,), (1,), most, 0.0, told, "nobody")
    return Timeline((10,), (line,))


@pytest.mark.parametrize("epsilon", [0.5, 12.0])
@pytest.mark.parametrize("scheme", [None, "masks"])
def test_participant_noise_is_the_least_that_all_uploads_of_the_plan_allow(epsilon, scheme):
    wish = SharingWish(share=0.5, select="random", scheme=scheme, **(PARTICIPANT | {"epsilon": epsilon}))
    noise = wish.sharing(PLAN, steps=1).noise
    assert noise.clip == 0.5
    assert noise.among == (1 if scheme is None else 3)
    spent = wish.cost(PLAN, uploading(5), 21, steps=1)
    assert spent.proven
    assert spent.uploads == PLAN.uploads(BATCH) == 5
    assert 0.999 * epsilon < spent.epsilon <= epsilon
    more = compose_sharing(wish.sharing(PLAN, steps=1), dimension=21, uploads=6, delta=1e-5)
    assert more.epsilon > epsilon  # one upload more than the plan has


@pytest.mark.parametrize("steps", [1, 3])
def test_record_noise_is_for_the_steps_on_a_photo_however_many_uploads_follow(steps):
    wish = SharingWish(share=0.5, **RECORD)
    cost = wish.cost(PLAN, uploading(5), 21, steps=steps)
    assert 0.999 * 4 < cost.epsilon <= 4
    ratio = wish.sharing(PLAN, steps=steps).noise.noise_multiplier / wish.sharing(PLAN, steps=1).noise.noise_multiplier
    assert ratio == pytest.approx(np.sqrt(steps), rel=1e-6)


def test_delta_of_the_papers_noise_only_states():
    wish = SharingWish(share=0.1, noise="published", epsilon=1.0, bound=0.1)
    assert wish.stated_delta == STATED_DELTA
    assert wish.sharing(PLAN, steps=1) == SharingWish(
        share=0.1, noise="published", epsilon=1.0, bound=0.1, delta=0.01
    ).sharing(PLAN, steps=1)


def test_lines_are_ours_those_beside_and_four_for_each_epsilon():
    lines = SharingWish(share=0.2, download=0.5, order="random", **(PARTICIPANT | BESIDE)).lines(PLAN, steps=1)
    names = [line.name for line in lines]
    assert len(set(names)) == len(names) == 7 + 2 * 4
    ours = lines[names.index(OURS)]
    assert (ours.download, ours.order, ours.budget, ours.encrypted) == (0.5, "random", 4.0, None)
    assert [name for name in names if name.endswith("eps 8")] == [
        "noise per photo, eps 8",
        "noise per participant, eps 8",
        "DP-FedAvg, equal uploads, eps 8",
        "DP-FedAvg, equal bytes, eps 8",
    ]
    photo, participant = (lines[names.index(f"noise per {unit}, eps 8")] for unit in ("photo", "participant"))
    assert photo.sharing.noise.clip == 1.0
    assert participant.sharing.noise.clip == 0.5
    assert all(line.sharing.noise is None for line in lines if line.name == "top-k with residuals")


@pytest.mark.parametrize("wishes", [{}, {"noise": "laplace", "epsilon": 1.0, "bound": 1.0, "select": "random"}])
def test_noise_of_the_papers_has_no_budget(wishes):
    lines = SharingWish(share=0.2, **wishes).lines(PLAN, steps=1)
    assert next(line for line in lines if line.name == OURS).budget is None


def test_encryption_takes_three_participants():
    two = plan_days(LABELS, participants=2, days=5, initial=0.2, random_state=0)
    wish = SharingWish(share=0.2, scheme="masks")
    with pytest.raises(InputError, match="got 2"):
        wish.lines(two, steps=1)
    assert wish.lines(PLAN, steps=1)


@pytest.mark.parametrize("made", [0, 1, 3])
def test_the_cost_is_that_of_the_uploads_that_were_made(made):
    wish = SharingWish(share=0.5, **PARTICIPANT)
    cost = wish.cost(PLAN, uploading(made), 21, steps=1)
    assert cost.uploads == max(1, made)
    assert cost.epsilon < 4


def test_noise_that_all_share_is_for_the_turns_in_which_all_take_part():
    uneven = plan_days(LABELS, participants=3, days=5, initial=0.2, random_state=4, skew=1.0)
    assert 0 < uneven.turns(BATCH) < uneven.uploads(BATCH)
    wish = SharingWish(share=0.5, select="random", scheme="masks", **PARTICIPANT)
    sharing = wish.sharing(uneven, steps=1)
    spent = compose_sharing(sharing, dimension=21, uploads=uneven.turns(BATCH), delta=1e-5)
    assert 0.999 * 4 < spent.epsilon <= 4
    line = played(wish, uneven, uneven)
    assert line.most_each == uneven.turns(BATCH)
    assert line.epsilon == pytest.approx(spent.epsilon)
    assert wish.cost(uneven, Timeline((1,), (line,)), 21, steps=1).epsilon == line.epsilon  # table and headline


def test_plans_in_which_nothing_would_be_shared_are_refused():
    crowd = plan_days(LABELS, participants=20, days=5, initial=0.2, random_state=0)
    with pytest.raises(InputError, match="32 photos"):
        SharingWish(share=0.5).lines(crowd, steps=1)
    uneven = plan_days(LABELS, participants=5, days=5, initial=0.2, random_state=3, skew=0.5)
    assert uneven.turns(BATCH) == 0 < uneven.uploads(BATCH)
    wish = SharingWish(share=0.5, select="random", scheme="masks", **PARTICIPANT)
    with pytest.raises(InputError, match="32 photos of each"):
        wish.lines(uneven, steps=1)


def played(wish, plan_of_noise, plan=PLAN):
    """Play a wish, with noise made for one plan, over all days of another."""
    ours = next(line for line in wish.lines(plan_of_noise, steps=1) if line.name == OURS)
    make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS), classes=3, learning_rate=0.1)
    initial = make(record_noise=None).initial()
    timeline = play_days(
        plan, INPUTS, LABELS, [ours], make, initial=initial, delta=1e-5, source=seeded_bytes(1), random_state=0
    )
    return timeline.line(OURS)


def test_what_is_proven_after_all_days_is_at_most_the_wish():
    for kind in (PARTICIPANT, RECORD):
        line = played(SharingWish(share=0.5, **kind), PLAN)
        assert line.uploads[-1] == 15  # the noise lasts for all
        assert 0.999 * 4 < line.epsilon <= 4


def test_the_budget_stops_uploads_for_which_the_noise_was_not_made():
    short = plan_days(LABELS, participants=3, days=2, initial=0.8, random_state=0)
    assert short.uploads(BATCH) == 1
    line = played(SharingWish(share=0.5, **PARTICIPANT), short)
    assert line.uploads[-1] == 3  # one each, though photos for five have gathered
    assert line.epsilon <= 4
