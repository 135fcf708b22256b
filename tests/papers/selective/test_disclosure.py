"""Statements of selective sharing: the papers' modes are red, the honest ones say what is proven and for whom."""

import math

import pytest

from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.cost import compose_sharing, sharing_statement
from blindsight.papers.selective.noise import Laplace, ParticipantGaussian, PublishedLaplace, Sharing
from blindsight.rng import seeded_bytes
from blindsight.statement import PrivacyStatement


def statement(sharing, **others):
    cost = compose_sharing(sharing, dimension=5124, uploads=74, delta=1e-5)
    return sharing_statement(cost, **others)


@pytest.mark.parametrize(
    ("sharing", "why"),
    [
        (Sharing(0.1), "images can be recovered"),
        (Sharing(0.2, select="random"), "images can be recovered"),
        (Sharing(0.1, bound=0.1, noise=PublishedLaplace(1.0)), "places of the largest changes are told"),
        (Sharing(0.1, select="random", bound=0.1, noise=PublishedLaplace(1.0)), "one value may tell any amount"),
        (Sharing(0.1, bound=0.1, noise=Laplace(1.0)), "places of the largest changes are told"),
    ],
    ids=str,
)
def test_modes_of_the_papers_prove_nothing_and_say_why(sharing, why):
    told = statement(sharing)
    assert (told.guarantee, told.status, told.epsilon, told.delta) == ("none", "unproven", math.inf, None)
    assert told.claim is not None
    assert told.claim.why_it_fails is not None
    assert why in told.claim.why_it_fails
    assert "every upload of every participant" in told.who_sees["server"]
    assert any("no bound holds" in line for line in told.not_protected)
    if sharing.noise is not None:
        assert told.claim.claimed == "epsilon = 1"
        assert "37,888 per participant" in told.claim.why_it_fails
    assert PrivacyStatement.from_json(told.to_json()) == told


@pytest.mark.parametrize("select", ["random", "threshold"])
def test_bounded_laplace_is_proven_at_a_figure_that_protects_nobody(select):
    threshold = 0.01 if select == "threshold" else None
    told = statement(Sharing(0.1, select=select, bound=0.1, threshold=threshold, noise=Laplace(1.0)))
    assert told.guarantee == "differential privacy"
    assert (told.unit, told.neighbours, told.accountant) == ("person", "replace", "pld")
    assert told.epsilon is not None
    assert 14_000 < told.epsilon < 19_000
    assert "PPDL: epsilon = 1. It fails:" in told.to_text(400)
    assert "PPDL" not in told.headline()
    assert any("anything in practice" in line for line in told.not_protected)


def test_sum_of_epsilons_has_no_delta():
    cost = compose_sharing(
        Sharing(1.0, bound=0.1, noise=Laplace(0.5)), dimension=1, uploads=1, delta=1e-11
    )  # too small a delta to gain anything by composition
    told = sharing_statement(cost)
    assert (told.epsilon, told.delta, told.accountant) == (0.5, 0.0, "basic")


def test_gaussian_per_participant_is_proven_for_a_person():
    told = statement(Sharing(0.1, noise=ParticipantGaussian(1.0, 5.0)))
    assert (told.status, told.unit, told.neighbours, told.delta) == ("proven", "person", "add/remove", 1e-5)
    assert told.epsilon == pytest.approx(8.3, abs=0.1)
    assert told.claim is None
    assert not any("anything in practice" in line for line in told.not_protected)


def test_gaussian_per_record_is_proven_for_a_photo_and_not_for_a_person():
    told = statement(Sharing(0.1, noise=RecordGaussian(1.0, 2.0)))
    assert (told.status, told.unit) == ("proven", "record")
    assert any("exactly one batch" in line for line in told.assumptions)
    assert any("a participant as a whole" in line for line in told.not_protected)


def test_repeatable_noise_voids_the_statement_and_no_noise_is_none():
    assert statement(Sharing(0.1, noise=ParticipantGaussian(1.0, 5.0)), source=seeded_bytes(1)).void
    assert statement(Sharing(0.1), source=seeded_bytes(1)).randomness == "none"
