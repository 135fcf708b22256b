"""Every method does what its name says: against hand-made oracles, with trainers simple enough to know the answer."""

from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import pytest
from scipy.stats import chi2

from blindsight.data.features import Standardiser
from blindsight.errors import InputError, PrivacyError
from blindsight.learn.modules import ParameterLayout
from blindsight.learn.protection import RecordGaussian, calibrate_record
from blindsight.papers.selective.days import Photos, Setting, Traffic, schedule_days, simulate_days
from blindsight.papers.selective.methods import (
    Centralised,
    FederatedAveraging,
    LocalOnly,
    NeverUpdated,
    NoisySums,
    SelectiveMethod,
)
from blindsight.papers.selective.noise import (
    Laplace,
    ParticipantGaussian,
    PublishedLaplace,
    Sharing,
    calibrate_participant,
)
from blindsight.papers.selective.protocol import Trainer
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.papers.selective.study import plain_methods, proven_methods
from blindsight.rng import seeded_bytes

DELTA = 1e-5
rng = np.random.default_rng(0)
LABELS = np.arange(480) % 3
INPUTS = (rng.normal(size=(3, 6))[LABELS] + rng.normal(size=(480, 6))).astype(np.float32)
make_softmax = partial(SoftmaxTrainer, standardiser=Standardiser.fit(INPUTS), classes=3, learning_rate=0.2)
PLAN = schedule_days(LABELS, participants=4, days=6, initial=0.1, random_state=0)
INITIAL = np.zeros(21, dtype=np.float32)


@dataclass(frozen=True)
class Odometer(Trainer):
    """A trainer whose parameters are moved by `step` in each training, and that notes what is scored."""

    step: float = 1.0
    dimension: int = 50
    epochs: int | None = 1
    record_noise: RecordGaussian | None = None
    scored: list = field(default_factory=list)

    @property
    def layout(self):
        return ParameterLayout(("way",), ((self.dimension,),))

    def initial(self):
        return np.zeros(self.dimension, dtype=np.float32)

    def train(self, parameters, inputs, labels, seed):
        return parameters + np.float32(self.step)

    def scores(self, parameters, inputs):
        self.scored.append((float(parameters[0]), len(inputs)))
        return np.eye(3)[np.zeros(len(inputs), dtype=int)]


def setting(make_trainer=make_softmax, initial=INITIAL, participants=("ann", "bob", "cem"), batch=8, **others):
    options = {"delta": DELTA, "seed": 5} | others
    return Setting(participants, initial, make_trainer, batch, **options)


def photos(*counts, names=("ann", "bob", "cem"), start=0):
    ends = np.cumsum([start, *counts])
    return {
        name: Photos(INPUTS[a:b], LABELS[a:b]) for name, a, b in zip(names, ends[:-1], ends[1:], strict=False) if b > a
    }


def walk(method, days, **options):
    """Play a method over days with the odometer and return its run."""
    trainer = Odometer(**{key: options.pop(key) for key in ("step", "dimension") if key in options})
    run = method.begin(setting(lambda record_noise: trainer, trainer.initial(), **options))
    for day in days:
        run.day(day)
    return run


@pytest.mark.parametrize("method", [Centralised(), SelectiveMethod("shared", Sharing(1.0))])
def test_each_day_is_scored_with_the_model_of_the_day_before(method):
    trainer = Odometer()
    timeline = simulate_days(
        PLAN, INPUTS, LABELS, [method], lambda record_noise: trainer, initial=trainer.initial(), delta=DELTA, batch=8
    )
    per_day = np.array([[len(rows) for rows in day] for day in PLAN.days])
    gathered = np.cumsum(per_day.sum(axis=1) if method.name == "centralised" else per_day.T, axis=-1)
    trained = (gathered // 8).reshape(-1, 6).sum(axis=0)  # by the end of each day
    assert trainer.scored == [(way, size) for way, size in zip([0, *trained[:-1]], per_day.sum(axis=1), strict=True)]
    assert timeline.photos == tuple(per_day.sum(axis=1))
    first = [np.concatenate(day) for day in PLAN.days]
    assert timeline.methods[0].accuracy == tuple(float((LABELS[rows] == 0).mean()) for rows in first)


def test_leftovers_wait_for_the_next_day():
    days = [photos(7, 9, 3), photos(1, 6, 4, start=19)]
    counted = {method.name: walk(method, days).parameters_for("bob")[0] for method in (LocalOnly(), Centralised())}
    assert counted == {"local only": 1, "centralised": 30 // 8}
    shared = walk(SelectiveMethod("shared", Sharing(1.0)), days)
    assert shared.parameters_for("ann")[0] == shared.traffic.uploads == 2


@pytest.mark.parametrize("download", [1.0, 0.3])
def test_centralised_equals_selective_sharing_of_everything_by_one_participant_bit_for_bit(download):
    alone = setting(participants=("ann",))
    one, other = Centralised().begin(alone), SelectiveMethod("all", Sharing(1.0), download=download).begin(alone)
    for start in range(0, 480, 60):
        for run in (one, other):
            run.day(photos(60, names=("ann",), start=start))
    found = other.parameters_for("ann")
    assert found.any()
    assert np.array_equal(one.parameters_for("ann"), found)


def test_local_models_are_each_participants_own():
    run = LocalOnly().begin(setting())
    run.day(photos(8, 0, 16))
    trained = make_softmax().train(INITIAL, INPUTS[:8], LABELS[:8], seed=0)
    np.testing.assert_allclose(run.parameters_for("ann"), trained, atol=1e-6)
    assert np.array_equal(run.parameters_for("bob"), INITIAL)
    assert run.traffic == Traffic()


def test_the_centralised_method_mixes_everybodys_photos():
    seen = []

    class Noting(Odometer):
        def train(self, parameters, inputs, labels, seed):
            seen.append(inputs)
            return parameters

    run = Centralised().begin(setting(lambda record_noise: Noting(), Odometer().initial()))
    run.day(photos(8, 8, 16))
    places = [[int(np.flatnonzero((row == INPUTS).all(axis=1))[0]) for row in batch] for batch in seen]
    assert sorted(chain.from_iterable(places)) == list(range(32))
    shares = [[sum(a <= place < b for place in batch) for a, b in ((0, 8), (8, 16), (16, 32))] for batch in places]
    assert shares == [[2, 2, 4]] * 4  # of ann, bob and cem
    assert run.traffic.uploads == 32
    assert run.traffic.bytes_up == INPUTS[:32].nbytes + LABELS[:32].nbytes


def test_federated_averaging_moves_the_model_by_the_weighted_mean_of_changes():
    run = FederatedAveraging("FedAvg", period=None, server_rate=0.5).begin(setting())
    run.day(photos(8, 24, 7))
    ann = make_softmax().train(INITIAL, INPUTS[:8], LABELS[:8], seed=0)
    bob = INITIAL
    for start in (8, 16, 24):
        bob = make_softmax().train(bob, INPUTS[start : start + 8], LABELS[start : start + 8], seed=0)
    np.testing.assert_allclose(run.parameters_for("cem"), 0.5 * (1 * ann + 3 * bob) / 4, atol=1e-6)
    assert run.traffic.uploads == 2
    assert run.traffic.bytes_up > 2 * 4 * 21


def test_federated_averaging_by_period_plays_rounds_of_those_who_have_enough():
    run = walk(FederatedAveraging("FedAvg", period=2), [photos(16, 40, 8)])
    # Round 1: ann and bob, both two steps. Round 2: bob alone. What is left of bob (one batch) and of cem waits.
    assert run.parameters_for("ann")[0] == 4
    assert run.traffic.uploads == 3
    run.day(photos(0, 8, 8, start=64))
    assert run.traffic.uploads == 5


def test_at_equal_bytes_those_with_most_photos_upload_as_the_other_method_allows():
    options = setting(lambda record_noise: Odometer(), Odometer().initial())
    reference = NeverUpdated().begin(options)  # stands for any method: its bytes are set by hand
    run = FederatedAveraging("FedAvg", as_bytes_of="other").begin(
        Setting(**{**vars(options), "runs": {"other": reference}})
    )
    run.day(photos(8, 32, 16))
    assert run.traffic.uploads == 0
    single = walk(FederatedAveraging("FedAvg"), [photos(8)]).traffic.bytes_up
    reference.traffic.bytes_up, reference.traffic.bytes_allowed = 2 * single, 9 * single
    run.day({})
    assert run.traffic.uploads == 2
    assert run.parameters_for("ann")[0] == pytest.approx((4 * 4 + 2 * 2) / 6)  # bob made 4 steps and cem 2


@pytest.mark.parametrize("sharing", [Sharing(0.2), Sharing(0.2, "threshold", threshold=0.005)], ids=str)
def test_with_noise_who_uploads_when_does_not_depend_on_what_photos_show(sharing):
    """The bytes of the method beside do, and a participant's photos would show in when it takes part."""
    noise = calibrate_participant(epsilon=8.0, delta=DELTA, uploads=6, clip=1.0)
    methods = [SelectiveMethod("ours", sharing), FederatedAveraging("rare", as_bytes_of="ours", noise=noise)]
    other = INPUTS.copy()
    other[PLAN.taken_by("participant 1")] = 0
    found = []
    for inputs in (INPUTS, other):
        timeline = simulate_days(PLAN, inputs, LABELS, methods, make_softmax, initial=INITIAL, delta=DELTA, batch=8)
        ours, rare = timeline.methods
        found.append((rare.uploads, rare.bytes_up, rare.most_each, rare.epsilon))
        assert rare.bytes_up[-1] > 0
        assert sum(ours.bytes_up) > 0
    assert found[0] == found[1]


def test_uploads_are_allowed_what_they_take_at_random_places():
    for sharing in (Sharing(0.3), Sharing(0.3, half=True), Sharing(1.0), Sharing(0.3, "threshold", threshold=0.01)):
        run = SelectiveMethod("ours", sharing).begin(setting())
        run.day(photos(24, 24, 24))
        if sharing.threshold is None:
            assert abs(run.traffic.bytes_allowed - run.traffic.bytes_up) < 8 * run.traffic.uploads
        assert run.traffic.bytes_allowed % run.traffic.uploads == 0  # the same for all


def test_noise_on_the_average_has_the_stated_scale_and_changes_are_shortened():
    noise = ParticipantGaussian(clip=0.5, noise_multiplier=2.0)
    method = FederatedAveraging("DP-FedAvg", period=None, noise=noise)
    still = walk(method, [photos(8, 8, 8)], step=0.0, dimension=3000, source=seeded_bytes(3))
    statistic = float(((still.parameters_for("ann") * 3 / (0.5 * 2.0)).astype(np.float64) ** 2).sum())
    low, high = chi2.ppf([5e-7, 1 - 5e-7], 3000)  # false alarms: 1e-6
    assert low < statistic < high
    quiet = FederatedAveraging("DP-FedAvg", noise=ParticipantGaussian(clip=0.5, noise_multiplier=1e-4))
    moved = walk(quiet, [photos(8, 8, 8)], step=9.0, source=seeded_bytes(3)).parameters_for("ann")
    assert np.linalg.norm(moved) == pytest.approx(0.5, rel=1e-3)


def limited_methods():
    participant = calibrate_participant(epsilon=4.0, delta=DELTA, uploads=3, clip=0.5)
    return {
        "participant": SelectiveMethod("participant", Sharing(0.5, "random", noise=participant), budget=4.0),
        "largest": SelectiveMethod("largest", Sharing(0.5, noise=participant), budget=4.0),
        "laplace": SelectiveMethod("laplace", Sharing(0.1, "random", bound=0.1, noise=Laplace(0.25)), budget=4.0),
        "average": FederatedAveraging("average", noise=participant, budget=4.0),
    }


@pytest.mark.parametrize("name", ["participant", "largest", "laplace", "average"])
def test_a_spent_budget_ends_the_uploads_but_not_the_scoring(name):
    method = limited_methods()[name]
    timeline = simulate_days(
        PLAN, INPUTS, LABELS, [method], make_softmax, initial=INITIAL, delta=DELTA, batch=8, source=seeded_bytes(1)
    )
    played = timeline.methods[0]
    sizes = {"participant": 3, "largest": 3, "average": 3, "laplace": played.uploads[-1] // 4}
    assert played.uploads[-1] == 4 * sizes[name] < 4 * PLAN.uploads(8)
    assert played.uploads[-1] == played.uploads[-2]
    assert len(played.accuracy) == 6
    assert 3.5 < played.epsilon <= 4.0
    assert played.statement.unit == "person"


def test_without_a_budget_the_statement_counts_all_uploads():
    noise = ParticipantGaussian(clip=0.5, noise_multiplier=3.0)
    few, many = (
        FederatedAveraging("average", period=period, noise=noise).begin(setting(source=seeded_bytes(0)))
        for period in (4, 1)
    )
    for run in (few, many):
        run.day(photos(32, 32, 32))
    assert few.statement().epsilon < many.statement().epsilon
    assert few.statement().status == "void"  # the noise can be repeated
    assert FederatedAveraging("average").begin(setting()).statement().epsilon == np.inf


def test_noise_per_photo_is_paid_once_by_each_photo():
    noise = calibrate_record(epsilon=6.0, delta=DELTA, steps=1, clip=1.0)
    method = SelectiveMethod("photo", Sharing(0.5, noise=noise), budget=6.0)
    timeline = simulate_days(PLAN, INPUTS, LABELS, [method], make_softmax, initial=INITIAL, delta=DELTA, batch=8)
    played = timeline.methods[0]
    assert played.uploads[-1] == sum(len(PLAN.taken_by(name)) // 8 for name in PLAN.participants)
    assert played.epsilon == pytest.approx(6.0, rel=1e-6)
    assert played.statement.unit == "record"
    assert played.statement.status == "proven"


def test_what_the_methods_say_of_themselves():
    with pytest.raises(PrivacyError, match="nothing is proven"):
        SelectiveMethod("paper", Sharing(0.1, bound=0.1, noise=PublishedLaplace(1.0)), budget=1.0).begin(setting())
    run = SelectiveMethod("paper", Sharing(0.1, bound=0.1, noise=PublishedLaplace(1.0))).begin(setting())
    run.day(photos(8, 8, 8))
    assert run.statement().status == "unproven"
    assert run.statement().claim.why_it_fails
    for method in (NeverUpdated(), LocalOnly()):  # nothing leaves, in both
        told = method.begin(setting()).statement()
        assert (told.epsilon, told.unit, told.status) == (0, "person", "proven")
    assert Centralised().begin(setting()).statement().epsilon is None


def test_methods_tell_from_whom_their_epsilon_protects_and_the_most_uploads_of_one_participant():
    noise = ParticipantGaussian(clip=0.5, noise_multiplier=3.0)
    expected = {
        NeverUpdated(): "everybody",
        LocalOnly(): "everybody",
        SelectiveMethod("noise", Sharing(0.5, "random", noise=noise)): "everybody",
        FederatedAveraging("DP-FedAvg", noise=noise): "everybody but the server",
        FederatedAveraging("FedAvg"): "nobody",
        SelectiveMethod("largest", Sharing(0.5)): "nobody",
        SelectiveMethod("paper", Sharing(0.1, bound=0.1, noise=PublishedLaplace(1.0))): "nobody",
        Centralised(): "nobody",
    }
    timeline = simulate_days(PLAN, INPUTS, LABELS, list(expected), make_softmax, initial=INITIAL, delta=DELTA, batch=8)
    assert [row[-1] for row in timeline.rows(days=(1,))[1]] == list(expected.values())
    for method in timeline.methods:
        assert (method.against == "nobody") == (method.epsilon is None)
    photos_each, most = max(len(PLAN.taken_by(name)) for name in PLAN.participants), PLAN.uploads(8)
    assert [method.most_each for method in timeline.methods] == [0, 0, most, most, most, most, most, photos_each]


@pytest.mark.parametrize("order", ["round-robin", "random", "asynchronous"])
def test_every_order_uses_every_batch_once(order):
    run = walk(SelectiveMethod("shared", Sharing(1.0), order=order), [photos(20, 32, 9), photos(12, 8, 7, start=61)])
    assert run.traffic.uploads == 4 + 5 + 2
    assert run.parameters_for("ann")[0] == 11


def test_late_uploads_of_asynchronous_participants_are_refused_and_their_bytes_counted():
    method = SelectiveMethod("late", Sharing(1.0), order="asynchronous", max_staleness=0)
    run = walk(method, [photos(24, 24, 24)])
    assert run.traffic.uploads == 9
    assert 0 < run.parameters_for("ann")[0] < 9


def test_noisy_sums_are_sums_of_cut_changes_proven_for_a_participant_and_end_with_their_rounds():
    method = NoisySums("sums", "masks", clip=1e3, epsilon=50.0, rounds=2)
    run = method.begin(setting(source=seeded_bytes(1)))
    run.day(photos(24, 16, 17))
    assert (run.traffic.uploads, run.traffic.most_each) == (6, 2)  # two rounds of three; the last batch of ann waits
    told = run.statement()
    assert 49.9 < told.epsilon <= 50
    assert (told.unit, told.guarantee, told.status) == ("person", "differential privacy", "void")
    assert run.traffic.bytes_down > 0
    quiet = NoisySums("sums", "masks", clip=1e-9, epsilon=50.0, rounds=1).begin(setting(source=seeded_bytes(1)))
    quiet.day(photos(24, 24, 24))
    assert quiet.traffic.uploads == 3
    assert np.abs(quiet.parameters_for("ann")).max() < 1e-6  # changes are cut to the clip


def test_noisy_sums_of_a_generous_clip_are_the_sums_of_changes():
    """The noise of 5 deviations of the largest of 21 numbers is below the bound with a chance of 1e-5; it is seeded."""
    run = NoisySums("sums", "masks", clip=3.0, epsilon=50.0, rounds=1).begin(setting(source=seeded_bytes(2)))
    run.day(photos(8, 8, 8))
    changes = [
        make_softmax().train(INITIAL, INPUTS[start : start + 8], LABELS[start : start + 8], seed=0)
        for start in (0, 8, 16)
    ]
    assert max(map(np.linalg.norm, changes)) < 3.0
    assert np.abs(run.parameters_for("ann") - np.sum(changes, axis=0)).max() < 5 * run._plan.deviation


def test_all_methods_of_the_figure_can_be_played_together():
    ours = SelectiveMethod("selective sharing", Sharing(0.3, half=True))
    limits = {"epsilon": 8.0, "delta": DELTA, "clip": 2.0, "upload_clip": 0.3}
    methods = [*plain_methods(ours), *proven_methods(PLAN, ours.sharing, batch=8, **limits)]
    timeline = simulate_days(PLAN, INPUTS, LABELS, methods, make_softmax, initial=INITIAL, delta=DELTA, batch=8)
    assert len(timeline.methods) == 11
    played = timeline.method("selective sharing")
    for method in timeline.methods:
        if "equal uploads" in method.name:
            assert method.uploads == played.uploads
        if method.name == "FedAvg, equal bytes":
            assert 0.9 * played.bytes_up[-1] < method.bytes_up[-1] <= played.bytes_up[-1]  # an upload is 3%
    proven = {
        method.name.removesuffix(", eps 8"): method for method in timeline.methods if method.name.endswith(", eps 8")
    }
    assert len(proven) == 4
    for name, method in proven.items():
        assert method.epsilon == pytest.approx(8.0, abs=4.0 if "bytes" in name else 1e-3)
        assert method.epsilon <= 8.0
        assert method.statement.unit == ("record" if "photo" in name else "person")
        assert method.against == ("everybody but the server" if "FedAvg" in name else "everybody")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SelectiveMethod("x", Sharing(0.1), order="wild"), "'wild'"),
        (lambda: SelectiveMethod("x", Sharing(0.1), speed_ratio=0.5), "speed_ratio"),
        (lambda: FederatedAveraging("x", period=0), "period"),
        (lambda: FederatedAveraging("x", server_rate=0.0), "server_rate"),
        (lambda: NoisySums("x", "rot13", 1.0, 1.0, 1).begin(setting()), "'rot13'"),
        (lambda: SelectiveMethod("x", Sharing(0.1), download=0.0).begin(setting()), "download"),
        (lambda: FederatedAveraging("x", as_bytes_of="y").begin(setting()), "'y'"),
        (lambda: FederatedAveraging("x", budget=1.0), "nothing is proven"),
    ],
)
def test_methods_that_cannot_be_played_are_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


def test_record_noise_reaches_the_trainers_of_its_method_alone():
    made = []

    def make(record_noise):
        made.append(record_noise)
        return make_softmax(record_noise=record_noise)

    noise = RecordGaussian(clip=1.0, noise_multiplier=1.0)
    methods = [SelectiveMethod("photo", Sharing(0.5, noise=noise)), Centralised()]
    simulate_days(PLAN, INPUTS, LABELS, methods, make, initial=INITIAL, delta=DELTA, batch=8)
    assert made == [noise] * 4 + [None, None]
