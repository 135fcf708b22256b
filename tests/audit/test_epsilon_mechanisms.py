"""The audits of every mechanism: what must be refuted is, and what is proven stands.

Audits are made with a confidence of 1 - 1e-7, so that a true claim is refuted with probability at most 1e-7.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from blindsight.audit import localreleases, noisyvalues, publishedhashing, sharedupdates
from blindsight.audit.canaries import CanarySubject
from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.indexmechanisms import central_sums
from blindsight.audit.mechanisms import (
    RUNS,
    noise,
    private_search,
    published_hashing,
    selective_sharing,
    self_test,
)
from blindsight.audit.subject import audit_subjects, findings
from blindsight.errors import InputError
from blindsight.rng import seeded_bytes
from blindsight.search.central import CentralHasher

SURE = 1 - 1e-7


def audited(subject, runs=20_000):
    return subject.audit(subject.affordable(runs, SURE), confidence=SURE, source=seeded_bytes(1))


FALSE = {
    "flipping a bit": (lambda: publishedhashing.flipped_bit(0.3), 0.9),  # exactly 1.05
    "flipping a record": (lambda: publishedhashing.flipped_record(1.0), 4.5),  # exactly 26.0; runs limit what is shown
    "PHashing": (lambda: publishedhashing.phashing(1.0), 4.5),
    "PHashing in one run": (lambda: publishedhashing.phashing_run(1.0), 3.5),
    "PITQ": (lambda: publishedhashing.pitq(1.0, iterations=5), 1.0),  # no finite epsilon
    "PITQ in one run": (lambda: publishedhashing.pitq_run(1.0, iterations=5), 5.0),
    "published Laplace noise": (lambda: sharedupdates.published_parameter(1.0), 6.0),
    "Laplace noise for a participant": (lambda: sharedupdates.laplace_participant(1.0), 3.0),
    "half the noise": (lambda: noisyvalues.laplace(1.0, noise_share=0.5), 1.8),  # exactly 2
}

PROVEN = {
    "flipping a bit": (lambda: publishedhashing.flipped_bit(1.0), 0.4),  # exactly 0.54
    "randomised response": (lambda: localreleases.response_record(1.0), 0.6),
    "Hamming ball at 1": (lambda: localreleases.hamming_ball(1.0), 0.85),
    "Hamming ball at 4": (lambda: localreleases.hamming_ball(4.0), 3.5),
    "k-ary response": (lambda: localreleases.kary_response(4.0), 3.5),
    "subset selection": (lambda: localreleases.subset_selection(1.0), 0.8),
    "local mode": (lambda: localreleases.local_release(4.0), 3.5),
    "local mode in one run": (lambda: localreleases.local_release_run(4.0), 3.5),
    "Laplace": (lambda: noisyvalues.laplace(1.0), 0.8),
    "Gaussian": (lambda: noisyvalues.gaussian(4.0, 1e-6), 1.0),
    "Gaussian in one run": (lambda: noisyvalues.gaussian_run(4.0, 1e-10), 0.5),
    "central mode": (lambda: central_sums(CentralHasher(1.0, 1e-6, clip=1.0), "x"), 0.05),
    "Laplace for a parameter": (lambda: sharedupdates.laplace_parameter(1.0), 0.8),
    "Gaussian for a participant": (lambda: sharedupdates.participant_gaussian(2.0, 1e-6), 0.0),
    "Gaussian for a record": (lambda: sharedupdates.record_gaussian(2.0, 1e-6), 0.0),
    "above a threshold": (lambda: sharedupdates.threshold_upload(1.0), 0.0),
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
    from blindsight.learn.networks import head
    from blindsight.learn.networktrainer import NetworkTrainer

    def trainer(share):
        def new(noise, source):
            less = replace(noise, noise_multiplier=noise.noise_multiplier * share)
            return NetworkTrainer(head(1, 2), learning_rate=1.0, record_noise=less, source=source)

        return new

    sound, planted = (
        sharedupdates.record_gaussian(1.0, 1e-6, trainer(share)).audit(120, confidence=SURE, source=seeded_bytes(1))
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
    subject = noisyvalues.laplace(1.0)
    audits = [subject.audit(20_000, confidence=SURE) for _ in range(2)]
    assert audits[0].bound.hits != audits[1].bound.hits or audits[0].bound.false_alarms != audits[1].bound.false_alarms
    assert not any(audit.refuted for audit in audits)


def test_findings_say_who_claims_what_is_proven_and_what_was_measured():
    heard = []
    subjects = [publishedhashing.flipped_record(1.0), localreleases.hamming_ball(1.0)]
    rows = findings(
        audit_subjects(
            subjects, runs=5_000, source=seeded_bytes(3), progress=lambda what, done, total: heard.append((done, total))
        )
    )
    refuted, stands = rows
    assert refuted.verdict == "refuted"
    assert refuted.claim == "Random Flipping of 48 bits, Theorem 4: epsilon = 1 per record"
    assert refuted.source == "Wang, Lu and Zhang 2020"
    assert refuted.proven == "exactly epsilon = 25.98 per record of 48 bits"
    assert refuted.measured.low > 3
    assert refuted.measured.high is None
    assert refuted.measured.confidence == CONFIDENCE
    assert stands.verdict == "not refuted"
    assert json.loads(json.dumps([row.to_dict() for row in rows]))[1]["details"]["runs"] == 5_000
    assert heard == [(0, 2), (1, 2), (2, 2)]


def test_no_claim_is_audited_twice():
    claims = [
        str(subject.claim) for subject in (*published_hashing(), *private_search(), *noise(), *selective_sharing())
    ]
    assert len(set(claims)) == len(claims)


def test_an_audit_without_power_says_so():
    same = replace(noisyvalues.laplace(1.0), second=noisyvalues.laplace(1.0).first)
    row = same.audit(2000, source=seeded_bytes(0)).finding()
    assert row.verdict == "undecided"
    assert row.attack.endswith("too few to tell the inputs apart")


@pytest.mark.slow
def test_the_whole_list_with_the_default_effort():
    """Twenty-odd claims that hold: one is refuted with probability below 3e-6."""
    every = (*published_hashing(), *private_search(), *noise(), *selective_sharing())
    audits = audit_subjects(every, runs=RUNS, confidence=SURE)
    ours = [audit for audit in audits if audit.claim.source == "Blindsight"]
    assert not any(audit.refuted for audit in ours)
    assert [str(audit.claim) for audit in audits if audit not in ours and not audit.refuted] == [
        "Random Flipping, Theorem 4: epsilon = 1 per bit"
    ]


def test_too_few_runs_or_canaries_get_told_how_many_are_needed():
    with pytest.raises(
        InputError, match=r"to refute epsilon = 4 .* at least 913 runs of each input are needed; got 50"
    ):
        localreleases.kary_response(4.0).audit(50)
    with pytest.raises(InputError, match=r"to refute epsilon = 4 .* in one run at least 381 canaries are needed"):
        localreleases.local_release_run(4.0).audit(50)
    with pytest.raises(InputError, match="at least 913 runs"):
        audit_subjects([localreleases.kary_response(4.0)], runs=50)


def test_expensive_mechanisms_run_less_often_but_often_enough():
    subject = publishedhashing.pitq(1.0)
    assert subject.affordable(10**6) == 2500
    assert subject.affordable(1000) == 53
    run = CanarySubject(claim=subject.claim, run=lambda coins, source: np.zeros(coins.size), share=0.5, expense=10)
    assert run.affordable(1000) == 100
    assert run.affordable(10) == 46
