"""Audits of every mechanism: what must be refuted is, what is proven stands, a quarter of the noise is always seen.

Audits are made with a confidence of 1 - 1e-7, so that a true claim is refuted with probability at most 1e-7; where
randomness is seeded, nothing fails by chance.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.index_audit import central_sums
from blindsight.audit.subject import RUNS, CanarySubject, audit_subjects, laplace, self_test
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.errors import InputError
from blindsight.papers.hashing.mechanisms import flipped_record, pitq
from blindsight.rng import seeded_bytes
from blindsight.search.central import CentralHasher, Plan
from tests.audit import mechanisms

SURE = 1 - 1e-7


def audited(subject, runs=20_000):
    return subject.audit(subject.affordable(runs, SURE), confidence=SURE, source=seeded_bytes(1))


FALSE = {
    "half of the noise inside sums": (lambda: mechanisms.summed_noise(4.0, 1e-6, noise_share=0.5), 7.0),  # exactly 9.1
    "half the noise": (lambda: laplace(1.0, noise_share=0.5), 1.8),  # exactly 2
}

PROVEN = {
    "randomised response": (lambda: mechanisms.response_record(1.0), 0.6),
    "Hamming ball at 1": (lambda: mechanisms.hamming_ball(1.0), 0.85),
    "Hamming ball at 4": (lambda: mechanisms.hamming_ball(4.0), 3.5),
    "k-ary response": (lambda: mechanisms.kary_response(4.0), 3.5),
    "subset selection": (lambda: mechanisms.subset_selection(1.0), 0.8),
    "local mode": (lambda: mechanisms.local_release(4.0), 3.5),
    "local mode in one run": (lambda: mechanisms.local_release_run(4.0), 3.5),
    "Laplace": (lambda: laplace(1.0), 0.8),
    "Gaussian": (lambda: mechanisms.gaussian(4.0, 1e-6), 3.3),
    "Gaussian in one run": (lambda: mechanisms.gaussian_run(4.0, 1e-10), 0.5),
    "noise inside sums": (lambda: mechanisms.summed_noise(4.0, 1e-6), 3.0),
    "central mode": (lambda: central_sums(CentralHasher(1.0, 1e-6, clip=1.0), "x"), 0.4),
    "Gaussian for a participant": (lambda: mechanisms.participant_gaussian(4.0, 1e-6), 1.0),
    "Gaussian for a record": (lambda: mechanisms.record_gaussian(4.0, 1e-6), 1.0),
}


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_refuted(name):
    subject, at_least = FALSE[name]
    audit = audited(subject())
    assert audit.refuted
    assert audit.bound.lower > at_least


@pytest.mark.parametrize("name", PROVEN)
def test_proven_claims_stand_and_tight_ones_are_nearly_reached(name):
    subject, at_least = PROVEN[name]
    audit = audited(subject())
    assert not audit.refuted
    assert at_least <= audit.bound.lower <= audit.claim.epsilon


@pytest.mark.slow
def test_networks_with_noise_per_record_are_audited_as_well():
    """With the noise that epsilon 1 takes and, planted, with a twentieth of it."""
    pytest.importorskip("torch")
    from blindsight.learn.modules import head
    from blindsight.learn.training import NetworkTrainer

    def trainer(share):
        def new(noise, source):
            less = replace(noise, noise_multiplier=noise.noise_multiplier * share)
            return NetworkTrainer(head(1, 2), learning_rate=1.0, record_noise=less, source=source)

        return new

    sound, planted = (
        mechanisms.record_gaussian(1.0, 1e-6, trainer(share)).audit(120, confidence=SURE, source=seeded_bytes(1))
        for share in (1.0, 0.05)
    )
    assert not sound.refuted
    assert planted.refuted


def test_the_auditor_finds_a_planted_violation_and_acquits_a_sound_mechanism():
    test = self_test(runs=20_000, confidence=SURE, source=seeded_bytes(2))
    assert test.passed
    assert test.planted.bound.lower > 1.5 > 1 >= test.sound.bound.lower


def test_the_real_noise_is_audited_unless_told_otherwise():
    """Two audits with the operating system's randomness differ; 1e-7 is the probability of a false refutation."""
    subject = laplace(1.0)
    audits = [subject.audit(20_000, confidence=SURE) for _ in range(2)]
    assert audits[0].bound.hits != audits[1].bound.hits or audits[0].bound.false_alarms != audits[1].bound.false_alarms
    assert not any(audit.refuted for audit in audits)


def test_findings_say_who_claims_what_is_proven_and_what_was_measured():
    heard = []
    subjects = [flipped_record(1.0), mechanisms.hamming_ball(1.0)]
    audits = audit_subjects(
        subjects, runs=5_000, source=seeded_bytes(3), progress=lambda what, done, total: heard.append((done, total))
    )
    refuted, stands = rows = [audit.finding() for audit in audits]
    assert (refuted.verdict, refuted.source) == ("refuted", "Wang, Lu and Zhang 2020")
    assert "epsilon = 1 per record" in refuted.claim
    assert "25.98" in refuted.proven
    assert refuted.measured.low > 3
    assert (refuted.measured.high, refuted.measured.confidence) == (None, CONFIDENCE)
    assert stands.verdict == "not refuted"
    assert json.loads(json.dumps([row.to_dict() for row in rows]))[1]["details"]["runs"] == 5_000
    assert heard == [(0, 2), (1, 2), (2, 2)]


def test_no_claim_is_audited_twice():
    claims = [str(subject.claim) for made in LISTS for subject in made()]
    assert len(set(claims)) == len(claims)


def test_an_audit_without_power_says_so():
    same = replace(laplace(1.0), inputs=(1.0, 1.0))
    row = same.audit(2000, source=seeded_bytes(0)).finding()
    assert row.verdict == "undecided"
    assert row.attack.endswith("too few to tell the inputs apart")


@pytest.mark.slow
def test_the_whole_list_with_the_default_effort():
    """Twenty-odd claims that hold: one is refuted with probability below 3e-6."""
    audits = audit_subjects([subject for made in LISTS for subject in made()], runs=RUNS, confidence=SURE)
    assert not any(audit.refuted for audit in audits)


def test_too_few_runs_or_canaries_get_told_how_many_are_needed():
    with pytest.raises(InputError, match=r"913.*50"):
        mechanisms.kary_response(4.0).audit(50)
    with pytest.raises(InputError, match="381 canaries"):
        mechanisms.local_release_run(4.0).audit(50)


def test_expensive_mechanisms_run_less_often_but_often_enough():
    subject = pitq(1.0)
    assert subject.affordable(10**6) == 2500
    assert subject.affordable(1000) == 53
    run = CanarySubject(claim=subject.claim, run=lambda coins, source: np.zeros(coins.size), share=0.5, expense=10)
    assert run.affordable(1000) == 100
    assert run.affordable(10) == 46


SHARE = 4  # a quarter of the noise
LISTS = (mechanisms.private_search, mechanisms.noise, mechanisms.sums, mechanisms.uploads)
CHEAP = 2  # expense up to which a test is fast


def parameters():
    for made in LISTS:
        for number, subject in enumerate(made()):
            marks = [] if subject.expense <= CHEAP else [pytest.mark.slow]
            yield pytest.param(made, number, id=str(subject.claim), marks=marks)


@pytest.fixture
def quarter(monkeypatch):
    """Every mechanism adds a quarter of the noise: it is made for four times the epsilon, or has a quarter of sigma."""

    def louder(module, name):
        made = getattr(module, name)
        monkeypatch.setattr(module, name, lambda epsilon, *others, **named: made(SHARE * epsilon, *others, **named))

    def weaker(module, name):
        made = getattr(module, name)

        def less(**named):
            noise = made(**named)
            return replace(noise, noise_multiplier=noise.noise_multiplier / SHARE)

        monkeypatch.setattr(module, name, less)

    louder(mechanisms, "LocalHasher")
    for name in ("calibrate_participant", "calibrate_record"):
        weaker(mechanisms, name)
    for name in ("KaryResponse", "SubsetSelection", "HammingBall"):
        made = getattr(mechanisms, name)
        monkeypatch.setattr(mechanisms, name, lambda size, epsilon, made=made: made(size, SHARE * epsilon))
    response = mechanisms.record_beta
    monkeypatch.setattr(mechanisms, "record_beta", lambda epsilon, bits: response(SHARE * epsilon, bits))
    monkeypatch.setattr(mechanisms, "laplace", lambda epsilon: laplace(epsilon, noise_share=1 / SHARE))
    summed = mechanisms.summed_noise
    monkeypatch.setattr(mechanisms, "summed_noise", lambda *given: summed(*given, noise_share=1 / SHARE))
    calibrated = GaussianMechanism.calibrated
    monkeypatch.setattr(GaussianMechanism, "calibrated", lambda **named: _weaker(calibrated(**named)))
    plan = CentralHasher.plan
    monkeypatch.setattr(CentralHasher, "plan", lambda hasher: _weaker_plan(plan(hasher)))


def _weaker(mechanism):
    return replace(mechanism, sigma=mechanism.sigma / SHARE)


def _weaker_plan(plan):
    return Plan(_weaker(plan.mean), _weaker(plan.directions), _weaker(plan.rotation), plan.iterations)


@pytest.mark.parametrize(("made", "number"), list(parameters()))
def test_a_quarter_of_the_noise_is_refuted(quarter, made, number):
    subject = made()[number]
    audit = subject.audit(subject.affordable(RUNS), source=seeded_bytes(3))
    assert audit.refuted, audit.bound
