"""Every mechanism of the audit with a quarter of its noise is refuted: no row of the table is without power.

Randomness is seeded, so nothing here fails by chance.
"""

from dataclasses import replace

import pytest

from blindsight.audit import localreleases, noisyvalues, publishedhashing, sharedupdates
from blindsight.audit.mechanisms import RUNS, noise, private_search, published_hashing, selective_sharing
from blindsight.dp.mechanisms import GaussianMechanism
from blindsight.rng import seeded_bytes
from blindsight.search.central import CentralHasher, Plan

SHARE = 4  # a quarter of the noise
LISTS = {
    "published hashing": published_hashing,
    "private search": private_search,
    "noise": noise,
    "selective sharing": selective_sharing,
}
SUBJECTS = [(name, number) for name, made in LISTS.items() for number in range(len(made()))]
CHEAP = 2  # expense up to which a test is fast


def parameters():
    for name, number in SUBJECTS:
        subject = LISTS[name]()[number]
        marks = [] if subject.expense <= CHEAP else [pytest.mark.slow]
        yield pytest.param(name, number, id=str(subject.claim), marks=marks)


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

    beta = publishedhashing.paper_beta
    monkeypatch.setattr(publishedhashing, "paper_beta", lambda epsilon: beta(epsilon) / SHARE)
    louder(localreleases, "LocalHasher")
    louder(sharedupdates, "Laplace")
    louder(sharedupdates, "PublishedLaplace")
    for name in ("calibrate_participant", "calibrate_record"):
        weaker(sharedupdates, name)
    for name in ("KaryResponse", "SubsetSelection", "HammingBall"):
        made = getattr(localreleases, name)
        monkeypatch.setattr(localreleases, name, lambda size, epsilon, made=made: made(size, SHARE * epsilon))
    response = localreleases.record_beta
    monkeypatch.setattr(localreleases, "record_beta", lambda epsilon, bits: response(SHARE * epsilon, bits))
    laplace = noisyvalues.laplace
    monkeypatch.setattr(noisyvalues, "laplace", lambda epsilon: laplace(epsilon, noise_share=1 / SHARE))
    calibrated = GaussianMechanism.calibrated
    monkeypatch.setattr(GaussianMechanism, "calibrated", lambda **named: _weaker(calibrated(**named)))
    plan = CentralHasher.plan
    monkeypatch.setattr(CentralHasher, "plan", lambda hasher: _weaker_plan(plan(hasher)))


def _weaker(mechanism):
    return replace(mechanism, sigma=mechanism.sigma / SHARE)


def _weaker_plan(plan):
    return Plan(_weaker(plan.mean), _weaker(plan.directions), _weaker(plan.rotation), plan.iterations)


@pytest.mark.parametrize(("name", "number"), list(parameters()))
def test_a_quarter_of_the_noise_is_refuted(quarter, name, number):
    subject = LISTS[name]()[number]
    audit = subject.audit(subject.affordable(RUNS), source=seeded_bytes(3))
    assert audit.refuted, audit.bound
