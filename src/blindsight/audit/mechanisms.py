"""Every mechanism that claims an epsilon, put to the test; and the auditor itself.

Claims of the papers are tested at the papers' settings, our own at epsilons for which they are used. `self_test` shows
that the auditor can be trusted: it finds a mechanism with half the noise it needs and acquits one with enough.
"""

from dataclasses import dataclass

from blindsight.audit import localreleases, noisyvalues, publishedhashing, sharedupdates
from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.indexmechanisms import central_sums
from blindsight.audit.subject import EpsilonAudit, OnTrial
from blindsight.rng import ByteSource, system_bytes
from blindsight.search.central import CentralHasher

RUNS = 100_000
"""By default: all mechanisms take some 20 seconds."""


def published_hashing() -> tuple[OnTrial, ...]:
    """Return the private-hashing paper's theorems, for a bit, for a record and as its algorithms are run."""
    return (
        publishedhashing.flipped_bit(1.0),
        publishedhashing.flipped_bit(0.3),
        publishedhashing.flipped_record(1.0),
        publishedhashing.phashing(1.0),
        publishedhashing.phashing_run(1.0),
        publishedhashing.pitq(1.0),
        publishedhashing.pitq_run(1.0),
    )


def private_search() -> tuple[OnTrial, ...]:
    """Return what private search releases instead."""
    local = (
        localreleases.response_record,
        localreleases.hamming_ball,
        localreleases.kary_response,
        localreleases.subset_selection,
        localreleases.local_release,
        localreleases.local_release_run,
    )
    return (
        *(subject(epsilon) for epsilon in (1.0, 4.0) for subject in local),
        central_sums(CentralHasher(1.0, 1e-6, clip=1.0), "Blindsight"),
    )


def noise() -> tuple[OnTrial, ...]:
    """Return the noise that everything else is made of."""
    return (noisyvalues.laplace(1.0), noisyvalues.gaussian(1.0, 1e-6), noisyvalues.gaussian_run(1.0, 1e-10))


def sums() -> tuple[OnTrial, ...]:
    """Return noise that owners add in shares to sums which nobody may open one by one."""
    return (noisyvalues.summed_noise(4.0, 1e-12),)


def selective_sharing() -> tuple[OnTrial, ...]:
    """Return what a participant uploads of a network, as published and as proven."""
    return (
        sharedupdates.published_parameter(1.0),
        sharedupdates.laplace_parameter(1.0),
        sharedupdates.laplace_participant(1.0),
        sharedupdates.participant_gaussian(4.0, 1e-6, "random"),
        sharedupdates.participant_gaussian(4.0, 1e-6, "largest"),
        sharedupdates.record_gaussian(4.0, 1e-6),
        sharedupdates.threshold_upload(2.0),
    )


@dataclass(frozen=True)
class SelfTest:
    """What the auditor found about a mechanism with half the noise that it needs, and about one with enough."""

    planted: EpsilonAudit
    sound: EpsilonAudit

    @property
    def passed(self) -> bool:
        """Whether it found the first and acquitted the second."""
        return self.planted.refuted and not self.sound.refuted


def self_test(*, runs: int = RUNS, confidence: float = CONFIDENCE, source: ByteSource = system_bytes) -> SelfTest:
    """Put the auditor to the test. It fails, though nothing is wrong, with probability at most 1 - confidence.

    Added to that is the probability of missing the violation, which is negligible from some thousand runs on.
    """
    planted, sound = (noisyvalues.laplace(1.0, noise_share=share) for share in (0.5, 1.0))
    return SelfTest(
        planted.audit(runs, confidence=confidence, source=source),
        sound.audit(runs, confidence=confidence, source=source),
    )
