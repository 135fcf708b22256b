"""The result of a study as tables and JSON, what it tells while it runs, and what it refuses."""

import json
from functools import partial

import numpy as np
import pytest

from blindsight.data.features import Standardiser
from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.selective.days import Photos, Timeline, schedule_days, simulate_days, train_initial
from blindsight.papers.selective.methods import Centralised, NeverUpdated, SelectiveMethod
from blindsight.papers.selective.noise import PublishedLaplace, Sharing
from blindsight.papers.selective.softmax import SoftmaxTrainer

LABELS = np.arange(200) % 2
INPUTS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
INPUTS[:, 0] += 2 * LABELS
PLAN = schedule_days(LABELS, participants=2, days=4, initial=0.1, random_state=0)
make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS[PLAN.initial]), classes=2, learning_rate=0.5)
COMMON = {"initial": make().initial(), "delta": 1e-5, "batch": 8}


@pytest.fixture(scope="module")
def timeline():
    paper = SelectiveMethod("paper", Sharing(0.5, bound=0.1, noise=PublishedLaplace(1.0)))
    return simulate_days(PLAN, INPUTS, LABELS, [Centralised(), NeverUpdated(), paper], make, **COMMON)


def test_a_timeline_survives_json(timeline):
    again = Timeline.from_dict(json.loads(json.dumps(timeline.to_dict(), allow_nan=False)))
    assert again.photos == timeline.photos
    for old, new in zip(timeline.methods, again.methods, strict=True):
        assert vars(old) == vars(new)


def test_what_is_no_timeline_is_refused():
    for data in ({}, {"photos": [1], "lines": [{}]}, {"photos": [1], "lines": 3}):
        with pytest.raises(InputError, match="timeline"):
            Timeline.from_dict(data)


def test_rows_hold_the_days_asked_for_and_totals(timeline):
    columns, rows = timeline.rows(days=(1, 4))
    method = timeline.method("centralised")
    right = sum(accuracy * photos for accuracy, photos in zip(method.accuracy, timeline.photos, strict=True))
    numbers = (method.accuracy[0], method.accuracy[3], right / 180)
    told = [f"{number:.3f}" for number in numbers]
    assert rows[0] == ("centralised", *told, "180", f"{method.bytes_up[-1] / 1e6:.3f}", "-", "nobody")
    assert len(columns) == len(rows[0])
    assert [method.epsilon for method in timeline.methods] == [None, 0.0, None]


def test_what_is_not_there_is_refused(timeline):
    with pytest.raises(UnknownNameError, match="'paper'"):
        timeline.method("papers")
    with pytest.raises(InputError, match="0, 5"):
        timeline.rows(days=(0, 5))
    with pytest.raises(InputError, match="3 to 2"):
        timeline.mean_accuracy("paper", 3, 2)


def test_the_study_tells_how_far_it_is():
    days, steps = [], []
    simulate_days(
        PLAN,
        INPUTS,
        LABELS,
        [NeverUpdated()],
        make,
        on_day=lambda day, accuracy: days.append((day, accuracy)),
        progress=lambda what, done, total: steps.append((done, total)),
        **COMMON,
    )
    assert [day for day, _ in days] == [1, 2, 3, 4]
    assert all(accuracy.keys() == {"never updated"} for _, accuracy in days)
    assert steps == [(done, 4) for done in range(5)]


def test_the_initial_model_is_trained_on_public_photos():
    public = Photos(INPUTS[PLAN.initial], LABELS[PLAN.initial])
    assert np.array_equal(train_initial(make(), public, epochs=0), make().initial())
    trained = train_initial(make(), public, epochs=20, random_state=0)
    assert (make().scores(trained, INPUTS).argmax(axis=1) == LABELS).mean() > 0.75
    with pytest.raises(InputError, match="epochs"):
        train_initial(make(), public, epochs=-1)


@pytest.mark.parametrize("spoilt", [lambda model: model * np.float32(np.nan), lambda model: model[:-1]])
def test_an_initial_model_that_is_none_is_not_published(spoilt, monkeypatch):
    monkeypatch.setattr(SoftmaxTrainer, "train", lambda self, parameters, *_: spoilt(parameters))
    with pytest.raises(InputError, match="diverged"):
        train_initial(make(), Photos(INPUTS[PLAN.initial], LABELS[PLAN.initial]), epochs=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": LABELS - 1}, "counted from 0"),
        ({"labels": LABELS[:-1]}, "200 photos"),
        ({"labels": LABELS * 1.0}, "float64"),
        ({"labels": np.zeros(200, dtype=int)}, "class 0"),
        ({"methods": []}, "method"),
        ({"methods": [NeverUpdated(), NeverUpdated()]}, "name"),
        ({"delta": 0.0}, "delta"),
        ({"initial": np.zeros(3, dtype=np.float32), "methods": [SelectiveMethod("x", Sharing(0.1))]}, "8 parameters"),
    ],
)
def test_studies_that_cannot_be_are_refused_before_the_first_day(change, words):
    options = {"labels": LABELS, "methods": [NeverUpdated()]} | COMMON | change
    with pytest.raises(InputError, match=words):
        simulate_days(PLAN, INPUTS, make_trainer=make, on_day=lambda *_: pytest.fail("a day was played"), **options)
