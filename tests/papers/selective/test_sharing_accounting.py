"""What sharing costs: the papers' count against composition, the library and closed forms as oracles."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from blindsight.data.features import Standardiser
from blindsight.dp.accounting import BoundedLoss, GaussianLoss, LaplaceLoss, compose, gaussian_epsilon
from blindsight.errors import InputError
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.cost import compose_sharing, sharing_statement, upload_loss
from blindsight.papers.selective.noise import (
    Laplace,
    ParticipantGaussian,
    PublishedLaplace,
    Sharing,
    calibrate_participant,
)
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.statement import rounded_up

LAPLACE = Sharing(0.1, select="random", bound=0.1, noise=Laplace(1.0))
PUBLISHED = Sharing(0.1, select="random", bound=0.1, noise=PublishedLaplace(1.0))
THRESHOLD = Sharing(0.1, select="threshold", threshold=0.01, bound=0.1, noise=Laplace(1.0))
GAUSSIAN = Sharing(0.1, noise=ParticipantGaussian(1.0, 5.0))
RECORD = Sharing(0.1, noise=RecordGaussian(1.0, 2.0))


def run(sharing, *, uploads=74, delta=1e-5, **others):
    return compose_sharing(sharing, dimension=5124, uploads=uploads, delta=delta, **others)


@pytest.mark.parametrize(
    ("sharing", "loss"),
    [
        (LAPLACE, LaplaceLoss(1.0, count=512)),
        (THRESHOLD, BoundedLoss(1.0, count=512)),
        (Sharing(1.0, bound=0.1, noise=Laplace(0.5)), LaplaceLoss(0.5, count=5124)),  # all places: nothing is chosen
        (GAUSSIAN, GaussianLoss(5.0)),
        (Sharing(0.1, select="random", noise=ParticipantGaussian(1.0, 5.0)), GaussianLoss(5.0)),
        (RECORD, GaussianLoss(2.0, count=3)),
        (Sharing(0.1), None),
        (PUBLISHED, None),
        (Sharing(0.1, select="threshold", threshold=0.01, bound=0.1, noise=PublishedLaplace(1.0)), None),
        (Sharing(0.1, bound=0.1, noise=Laplace(1.0)), None),  # largest places are told without noise
    ],
)
def test_loss_of_an_upload_in_every_mode(sharing, loss):
    assert upload_loss(sharing, dimension=5124, steps=3) == loss
    cost = run(sharing, steps=3, uploads=2)
    assert cost.proven == (loss is not None) == (cost.epsilon < math.inf)


def test_units_and_relations():
    assert [sharing.unit for sharing in (LAPLACE, GAUSSIAN, RECORD)] == ["person", "person", "record"]
    assert [sharing.neighbours for sharing in (LAPLACE, GAUSSIAN, RECORD)] == ["replace", "add/remove", "add/remove"]


# --- the papers' modes ---


@pytest.mark.parametrize("sharing", [LAPLACE, PUBLISHED])
def test_epsilon_one_per_parameter_and_upload_is_tens_of_thousands_per_participant(sharing):
    cost = run(sharing)
    assert cost.counted == 1.0
    assert cost.upload is not None
    assert cost.participant is not None
    assert cost.upload.basic == 512
    assert cost.participant.basic == 512 * 74 == 37_888
    # The mean loss of Laplace noise is epsilon + e^-epsilon - 1, and most of the rest is its central limit.
    mean = 37_888 * math.exp(-1)
    second = integrate_square_of_laplace_loss()
    spread = math.sqrt(37_888 * (second - math.exp(-2)))
    limit = mean + spread * stats.norm.isf(1e-5)
    assert cost.participant.pld == pytest.approx(limit, rel=2e-3)
    assert cost.participant.pld < cost.participant.rdp < cost.participant.basic


def integrate_square_of_laplace_loss():
    """E[L^2] of the loss L of Laplace noise with epsilon = 1, by a fine sum."""
    x = np.linspace(-40, 41, 200_001)
    loss = np.abs(x - 1) - np.abs(x)
    return float(np.trapezoid(loss**2 * np.exp(-np.abs(x)) / 2, x))


def test_one_upload_agrees_with_the_library():
    cost = run(LAPLACE)
    oracle = pld.from_laplace_mechanism(1.0, value_discretization_interval=1e-3).self_compose(512)
    assert cost.upload is not None
    assert cost.upload.pld == pytest.approx(oracle.get_epsilon_for_delta(1e-5), rel=2e-3)


def test_threshold_composes_as_randomised_response_does():
    cost = compose_sharing(THRESHOLD, dimension=100, uploads=3, delta=1e-5)  # 30 releases that each lose +-1
    assert cost.participant is not None
    assert cost.participant.basic == 30
    heads = np.arange(31)
    losses = 2.0 * heads - 30
    chances = stats.binom.pmf(heads, 30, math.e / (1 + math.e))

    def delta(epsilon):
        return float((chances * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum())

    assert delta(cost.participant.pld) <= 1e-5
    assert delta(cost.participant.pld * 0.999) > 1e-5


@pytest.mark.parametrize("uploads", [10**3, 10**5])
def test_millions_of_values_still_get_a_figure_below_their_sum(uploads):
    cost = run(LAPLACE, uploads=uploads)
    assert cost.participant is not None
    assert 0.36 * 512 * uploads < cost.epsilon < 0.45 * cost.participant.basic
    assert cost.rows()[2].accountant in {"pld", "rdp"}  # the row tells by which accountant


def test_pure_figures_need_no_delta():
    cost = run(LAPLACE, uploads=2, delta=0.0)
    assert cost.epsilon == 1024


# --- the honest modes ---


def test_gaussian_uploads_compose_in_closed_form():
    cost = run(GAUSSIAN, uploads=49)
    assert cost.epsilon == pytest.approx(gaussian_epsilon(5.0 / 7, 1e-5), rel=1e-9)


def test_photo_pays_once_under_record_noise_however_many_uploads_follow():
    few, many = run(RECORD, uploads=1), run(RECORD, uploads=1000)
    assert few.epsilon == many.epsilon == pytest.approx(gaussian_epsilon(2.0, 1e-5))
    assert many.participant is None  # all photos of a participant together are not protected
    assert run(RECORD, steps=4).epsilon == pytest.approx(gaussian_epsilon(1.0, 1e-5))


def test_a_photo_moves_uploads_by_twice_the_clip_and_pays_for_all_of_them():
    cost = run(GAUSSIAN, uploads=49)
    assert cost.record is not None
    assert cost.record.epsilon == pytest.approx(gaussian_epsilon(5.0 / 2 / 7, 1e-5), rel=1e-9)
    assert cost.record.epsilon > cost.epsilon
    laplace = run(LAPLACE)
    assert laplace.record == laplace.participant  # whose neighbours differ in all photos already
    faint = run(Sharing(0.1, noise=ParticipantGaussian(1.0, 1.5e-4)), uploads=1)
    assert (faint.record, faint.rows()[-1].composed) == (None, math.inf)


def test_the_row_of_a_photo_holds_for_batches_whose_changes_point_in_opposite_directions():
    """The oracle: one photo outweighs 31 others, so without it the clipped change turns round."""
    scales = Standardiser(np.zeros(4), np.ones(4))
    trainer = SoftmaxTrainer(standardiser=scales, classes=2, learning_rate=0.5)
    inputs, labels = np.tile([10.0, 0, 0, 0], (32, 1)), np.zeros(32, dtype=int)
    inputs[0], labels[0] = [1e4, 0, 0, 0], 1
    noise = calibrate_participant(epsilon=1.0, delta=1e-5, uploads=1, clip=0.01)
    sent = [
        noise.shorten(trainer.train(trainer.initial(), inputs[rows], labels[rows], 0).astype(np.float64))
        for rows in (slice(0, 32), slice(1, 32))
    ]
    apart = float(np.linalg.norm(sent[0] - sent[1])) / noise.clip
    assert apart > 1.99
    told = compose([GaussianLoss(noise.noise_multiplier / apart)], delta=1e-5).epsilon
    cost = compose_sharing(Sharing(1.0, select="random", noise=noise), dimension=10, uploads=1, delta=1e-5)
    assert cost.record is not None
    assert cost.epsilon < told <= cost.record.epsilon


# --- what is shown ---


def test_table_goes_from_one_parameter_to_a_participant():
    rows = run(LAPLACE).rows()
    assert [row.what for row in rows] == [
        "one parameter in one upload, as the papers count",
        "one upload",
        "a participant, over 74 uploads",
        "a photo that is in one batch",
    ]
    assert [row.basic for row in rows] == [1.0, 512.0, 37_888.0, 37_888.0]
    assert all(row.composed <= row.basic for row in rows)
    assert run(PUBLISHED).rows()[2].what == "a participant, over 74 uploads, at best"
    assert [row.basic for row in run(RECORD).rows()][1] == math.inf
    assert run(LAPLACE, uploads=1).rows()[2].what == "a participant, over 1 upload"


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        (Sharing(0.1), "no noise"),
        (PUBLISHED, "not even that is proven"),
        (LAPLACE, "37,888 per participant"),
        (GAUSSIAN, "74 uploads come to epsilon = "),
        (RECORD, "is not protected"),
    ],
)
def test_sentence_of_every_mode(sharing, words):
    assert words in run(sharing).sentence()


@pytest.mark.parametrize("epsilon", [8.0 + 1e-9, 0.0123, 37_887.4])
def test_tables_round_as_headlines_do(epsilon):
    cost = run(GAUSSIAN)
    assert cost.participant is not None
    whole = replace(cost.participant, pld=epsilon, rdp=math.inf, basic=math.inf)
    told = sharing_statement(replace(cost, participant=whole))
    assert f"epsilon = {rounded_up(epsilon)} (" in told.headline()


@pytest.mark.parametrize("epsilon", [1e-4, 0.1 + 0.2, 1.0, 3.14159, 99.999, 37_888.0, 14_615.29])
def test_figures_are_never_rounded_down(epsilon):
    assert epsilon * (1 - 1e-5) <= float(rounded_up(epsilon).replace(",", "")) <= epsilon * 1.01 + 1e-3


@pytest.mark.parametrize(
    ("sharing", "wrong", "words"),
    [
        (LAPLACE, {"uploads": 0}, "uploads"),
        (RECORD, {"steps": 0}, "steps"),
        (LAPLACE, {"delta": 1.0}, "delta"),
        (GAUSSIAN, {"delta": 0.0}, "above 0"),
    ],
)
def test_bad_runs_are_refused(sharing, wrong, words):
    with pytest.raises(InputError, match=words):
        run(sharing, **wrong)
