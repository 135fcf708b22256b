"""What the study finds on scikit-learn's digits over three seeds: the order of the curves, and that equal is equal."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_digits

from blindsight.data.features import Standardiser
from blindsight.papers.selective.days import Photos, schedule_days, simulate_days
from blindsight.papers.selective.methods import (
    Centralised,
    FederatedAveraging,
    LocalOnly,
    NeverUpdated,
    SelectiveMethod,
)
from blindsight.papers.selective.noise import Sharing
from blindsight.papers.selective.softmax import SoftmaxTrainer

DELTA, DAYS = 1e-5, 7
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
INPUTS, LABELS = load_digits(return_X_y=True)
INPUTS = INPUTS.astype(np.float32)


def prepared(seed, **plan_options):
    plan = schedule_days(LABELS, participants=10, days=DAYS, initial=0.05, random_state=seed, **plan_options)
    public = Photos(INPUTS[plan.initial], LABELS[plan.initial])
    settings = {"classes": 10, "learning_rate": 0.2, "epochs": 2}
    make = partial(SoftmaxTrainer, standardiser=Standardiser.fit(public.inputs), **settings)
    common = {"initial": make().initial(), "delta": DELTA, "batch": 8, "random_state": seed}
    return plan, make, common


@pytest.fixture(scope="module", params=SEEDS)
def study(request):
    """Return the mean accuracy from the fourth day on, by method, and the whole timeline."""
    plan, make, common = prepared(request.param)
    shared = [
        SelectiveMethod(f"{select} {share:g}{' with residuals' * residual}", Sharing(share, select, residual=residual))
        for share in (0.1, 0.01)
        for select in ("largest", "random")
        for residual in (False, True)
    ]
    methods = [Centralised(), NeverUpdated(), LocalOnly(), SelectiveMethod("everything", Sharing(1.0)), *shared]
    timeline = simulate_days(plan, INPUTS, LABELS, methods, make, **common)
    return {method.name: timeline.mean_accuracy(method.name, first=4) for method in timeline.methods}, timeline


def test_a_tenth_of_the_largest_is_nearly_as_good_as_everything_in_one_place(study):
    late, _ = study
    assert late["largest 0.1"] > late["centralised"] - 0.03
    assert late["everything"] == pytest.approx(late["centralised"], abs=0.015)


def test_sharing_is_better_than_learning_alone_or_not_at_all(study):
    late, _ = study
    assert late["largest 0.1"] > late["local only"] + 0.05
    assert late["local only"] > late["never updated"] + 0.4


def test_which_hundredth_is_shared_matters(study):
    late, _ = study
    assert late["largest 0.01"] > late["random 0.01"] + 0.15


def test_residuals_rescue_a_hundredth(study):
    late, _ = study
    for select in ("largest", "random"):
        assert late[f"{select} 0.01 with residuals"] > late[f"{select} 0.01"] + 0.03
    assert late["largest 0.01 with residuals"] > late["centralised"] - 0.05


def test_all_methods_begin_with_the_initial_model_and_upload_as_often(study):
    _, timeline = study
    assert len({method.accuracy[0] for method in timeline.methods}) == 1
    shared = [method for method in timeline.methods if "0." in method.name or method.name == "everything"]
    assert len(shared) == 9
    assert len({method.uploads for method in shared}) == 1
    everything, tenth = timeline.method("everything"), timeline.method("largest 0.1")
    assert tenth.bytes_up[-1] < 0.2 * everything.bytes_up[-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_equal_bytes_are_equal_and_orders_hardly_matter(seed):
    plan, make, common = prepared(seed)
    methods = [
        SelectiveMethod("ours", Sharing(0.1)),
        SelectiveMethod("random", Sharing(0.1), order="random"),
        SelectiveMethod("asynchronous", Sharing(0.1), order="asynchronous"),
        SelectiveMethod("half", Sharing(0.1, half=True)),
        FederatedAveraging("equal uploads", server_rate=10.0),
        FederatedAveraging("equal bytes", as_bytes_of="ours", server_rate=3.0),
    ]
    timeline = simulate_days(plan, INPUTS, LABELS, methods, make, **common)
    dense, sparse = timeline.method("equal bytes"), timeline.method("ours")
    upload = dense.bytes_up[-1] / dense.uploads[-1]
    for ours, theirs in zip(sparse.bytes_up, dense.bytes_up, strict=True):
        assert ours - 1.01 * upload < theirs <= ours
    assert dense.bytes_up[-1] > 0.95 * sparse.bytes_up[-1]
    assert timeline.method("equal uploads").uploads == sparse.uploads
    late = {method.name: timeline.mean_accuracy(method.name, first=4) for method in timeline.methods}
    for name in ("random", "asynchronous", "half", "equal uploads", "equal bytes"):
        assert late[name] == pytest.approx(late["ours"], abs=0.05)


def test_where_classes_are_skewed_those_who_learn_alone_know_their_own_photos_best():
    """Alone is then no lower bound: each model is scored on the few classes of its participant."""
    plan, make, common = prepared(0, skew=0.1)
    timeline = simulate_days(plan, INPUTS, LABELS, [LocalOnly()], make, **common)
    assert timeline.mean_accuracy("local only", first=4) > 0.85


@pytest.mark.slow
def test_the_same_seed_repeats_the_study():
    plan, make, common = prepared(3)
    methods = [SelectiveMethod("random", Sharing(0.1, "random", residual=True), order="asynchronous")]
    first, second = (simulate_days(plan, INPUTS, LABELS, methods, make, **common).methods[0] for _ in range(2))
    assert (first.accuracy, first.bytes_up) == (second.accuracy, second.bytes_up)
