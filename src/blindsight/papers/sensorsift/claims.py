"""SensorSift's promise put to the test: apps that cheat its verifier, stronger attackers, apps that talk, many frames.

The paper (Enev et al., ACSAC 2012, sections 6.2 and 7) accepts a sift when its five classifiers (Table 2) read the
private attribute less than 10% above chance from what it releases (PrivLoss). Each check here asks what somebody reads
who does not stop there, on drawn faces whose persons are known: `cheat_findings` by sifts that an app wrote,
`published_sift_findings` by sifts of PPLS (Algorithm 1).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Interval
from blindsight.audit.sift_audit import average_frames, loss_finding, pool_sifts, telling
from blindsight.data.dataset import Dataset
from blindsight.data.pixels import PixelFeatures
from blindsight.metrics import balanced_accuracy, balanced_accuracy_interval
from blindsight.papers.sensorsift.cheats import Cheat, collinear_pair, low_digits, xor_hash
from blindsight.progress import Progress, silent
from blindsight.sift.attackers import PAPER
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

PAPER_SOURCE = "Enev et al. 2012"
SIDE = 16  # of the grey pictures that cheats are tried on: whole numbers, since one of them lives behind the point
COMPONENTS = 60
CHEATS: tuple[Callable[..., Cheat], ...] = (collinear_pair, low_digits, xor_hash)
_CONFIDENCE = 0.95
Parts = tuple[VerificationSet, VerificationSet]
"""Of a labelled collection: the app makes sifts from the first, everything is judged on the second."""


def parts_of(dataset: Dataset, features: NDArray[Any], public: str, private: str, random_state: int) -> Parts:
    """Divide a collection by persons."""
    labels = {name: dataset.attribute(name) for name in (public, private)}
    whole = VerificationSet(np.asarray(features, dtype=np.float32), labels, dataset.persons)
    return whole.divide(0.4, random_state=random_state)


def cheat_findings(
    dataset: Dataset, *, public: str, private: str, random_state: int = 0, progress: Progress = silent
) -> tuple[Finding, ...]:
    """Let an app smuggle the private attribute past the paper's five attackers, and decode it."""
    developer, judged = parts_of(dataset, grey_pixels(dataset), public, private, random_state)
    verifier, found = Verifier(PAPER, random_state=random_state, stop_early=False, cross_fitted=0), []
    for done, make in enumerate(CHEATS):
        progress("apps that cheat the verifier", done, len(CHEATS))
        cheat = make(developer.features, developer.labels[public], developer.labels[private])
        released = cheat.release(judged.features)
        verification = verifier.verify(released, judged.private([private]), persons=judged.persons, certified=False)
        found.append(_cheat_finding(cheat, released, verification, private, judged.labels[private]))
    return tuple(found)


def published_sift_findings(
    dataset: Dataset, *, public: str, private: str, random_state: int = 0, progress: Progress = silent
) -> tuple[Finding, ...]:
    """Attack PPLS as published with stronger attackers, two apps' sifts together, and many frames of a person."""
    pixels = PixelFeatures(max_components=COMPONENTS, random_state=random_state)
    assert dataset.images is not None
    features = pixels.fit(dataset.images).transform(dataset.images)
    developer, data = parts_of(dataset, features, public, private, random_state)

    def fitted(learner: PPLS, part: VerificationSet) -> LinearSift:
        sift: LinearSift = learner.fit(part.features, part.labels[public], part.labels[private]).sift_
        return sift

    verifier = Verifier(random_state=random_state, stop_early=False, cross_fitted=0)
    sift, hidden = fitted(PPLS(5, 1.0, scale=False), developer), data.private([private])
    progress("stronger attackers", 0, None)
    stronger = verifier.verify(sift.apply(data.features), hidden, persons=data.persons, certified=False)
    progress("two apps together", 0, None)
    halves = developer.divide(0.5, random_state=random_state)
    apps = [fitted(PPLS(1, np.inf, scale=False), half) for half in halves]
    pooled = pool_sifts(apps, [private], data, verifier)
    progress("many frames", 0, None)
    assert data.persons is not None
    frames = average_frames(sift.apply(data.features), hidden, data.persons, verifier, frames=(1, 5))
    return (_ppls_finding(stronger), pooled, *frames)


def grey_pixels(dataset: Dataset) -> NDArray[np.float32]:
    """Return square pictures as means of blocks, rounded to whole numbers, one row each."""
    assert dataset.images is not None
    block = dataset.images.shape[1] // SIDE
    images = dataset.images[:, : block * SIDE, : block * SIDE]
    grey = images.mean(axis=3, dtype=np.float32).reshape(len(images), SIDE, block, SIDE, block)
    return np.asarray(np.rint(grey.mean(axis=(2, 4))), dtype=np.float32).reshape(len(images), -1)


def _cheat_finding(
    cheat: Cheat, released: NDArray[Any], verification: Verification, private: str, truth: NDArray[Any]
) -> Finding:
    """Judge the paper's rule, five estimates within a threshold: refuted where it accepts what an app reads."""
    known = truth >= 0
    told = truth[known], cheat.decode(released)[known]
    read = balanced_accuracy_interval(*told, confidence=_CONFIDENCE)
    threshold = verification.setting.threshold
    accepted = verification.best.priv_loss <= threshold
    fooled = accepted and read.low - 0.5 > threshold
    return Finding(
        claim=f"what five classifiers read less than {threshold:g} above chance gives little away ({cheat.name})",
        source=PAPER_SOURCE,
        proven="nothing",
        measure=f"PrivLoss of {private}, read by the app that made the sift",
        measured=Interval(balanced_accuracy(*told) - 0.5, read.low - 0.5, read.high - 0.5, _CONFIDENCE),
        verdict="refuted" if fooled else "not refuted",
        attack=f"{cheat.name}: the app hides the attribute where the verifier does not look",
        details={
            "PrivLoss the verifier finds": verification.best.priv_loss,
            "verdict of the paper's verifier": "accept" if accepted else "reject",
        },
    )


def _ppls_finding(verification: Verification) -> Finding:
    """Judge PPLS where the paper did not: nobody claimed anything about these faces and these attackers."""
    return loss_finding(
        verification,
        place=f"best of {len(verification.results)} attackers",
        claim="PPLS, five components, lambda 1, on drawn faces: attackers beyond the paper's read the private "
        f"attribute less than {verification.setting.threshold:g} better than a blind guess",
        source=f"after {PAPER_SOURCE}",
        proven="nothing",
        attack=f"attackers beyond the paper's five; the best is {telling(verification).attacker}",
    )
