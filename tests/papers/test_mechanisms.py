"""What the documents claim of their noise is refuted where it is wrong, and a quarter of the noise is always seen.

Randomness is seeded: nothing fails by chance.
"""

import pytest

from blindsight.audit.subject import RUNS, audit_subjects
from blindsight.papers.hashing import mechanisms as hashing
from blindsight.papers.selective import mechanisms as selective
from blindsight.rng import seeded_bytes

SURE = 1 - 1e-7
FALSE = {
    "flipping a bit": (lambda: hashing.flipped_bit(0.3), 0.9),  # exactly 1.05
    "flipping a record": (lambda: hashing.flipped_record(1.0), 4.5),  # exactly 26.0; runs limit what is shown
    "PHashing": (lambda: hashing.phashing(1.0), 4.5),
    "PHashing in one run": (lambda: hashing.phashing_run(1.0), 3.5),
    "PITQ": (lambda: hashing.pitq(1.0, iterations=5), 1.0),  # no finite epsilon
    "PITQ in one run": (lambda: hashing.pitq_run(1.0, iterations=5), 5.0),
    "published Laplace noise": (lambda: selective.published_parameter(1.0), 6.0),
    "Laplace noise for a participant": (lambda: selective.laplace_participant(1.0), 3.0),
}
TRUE = {
    "flipping a bit": (lambda: hashing.flipped_bit(1.0), 0.4),  # exactly 0.54
    "Laplace for a parameter": (lambda: selective.laplace_parameter(1.0), 0.8),
}


def audited(subject, runs=20_000):
    return subject.audit(subject.affordable(runs, SURE), confidence=SURE, source=seeded_bytes(1))


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_refuted(name):
    subject, at_least = FALSE[name]
    audit = audited(subject())
    assert audit.refuted
    assert audit.bound.lower > at_least


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_stand(name):
    subject, at_least = TRUE[name]
    audit = audited(subject())
    assert not audit.refuted
    assert at_least <= audit.bound.lower <= audit.claim.epsilon


@pytest.mark.slow
def test_the_whole_list_with_the_default_effort():
    """What is true is refuted with probability 1e-7 each."""
    audits = audit_subjects([subject for made in LISTS for subject in made()], runs=RUNS, confidence=SURE)
    assert [str(audit.claim) for audit in audits if not audit.refuted] == [
        "Random Flipping, Theorem 4: epsilon = 1 per bit",
        "the cut, then Laplace noise: epsilon = 1 per parameter",
        "random above a threshold, one value: epsilon = 2 per participant",
    ]


SHARE = 4  # a quarter of the noise
LISTS = (hashing.published_hashing, selective.published_uploads)
CHEAP = 2  # expense up to which a test is fast


def parameters():
    for made in LISTS:
        for number, subject in enumerate(made()):
            marks = [] if subject.expense <= CHEAP else [pytest.mark.slow]
            yield pytest.param(made, number, id=str(subject.claim), marks=marks)


@pytest.mark.parametrize(("made", "number"), list(parameters()))
def test_a_quarter_of_the_noise_is_refuted(monkeypatch, made, number):
    """Every mechanism is made for four times the epsilon, or flips a quarter of the bits."""
    beta = hashing.paper_beta
    monkeypatch.setattr(hashing, "paper_beta", lambda epsilon: beta(epsilon) / SHARE)
    for name in ("Laplace", "PublishedLaplace"):
        noise = getattr(selective, name)
        monkeypatch.setattr(selective, name, lambda epsilon, noise=noise: noise(SHARE * epsilon))
    subject = made()[number]
    audit = subject.audit(subject.affordable(RUNS), source=seeded_bytes(3))
    assert audit.refuted, audit.bound
