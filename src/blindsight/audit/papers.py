"""The claims of the five documents, each attacked: what is proven of it, what was measured, and what follows.

Everything runs on bundled pictures and on parties made for the audit, with real keys, real messages and noise from the
operating system. Our own mechanisms stand beside the papers' and are attacked by the same means.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.checks import Audit, Check, Evidence, check_minutes, run_checks, worst_of_each
from blindsight.audit.collusion import attack_round, play
from blindsight.audit.collusion import findings as coalition_findings
from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.hostile import attack_scheme, failing_on_data
from blindsight.audit.inversion import cached_photographs, portraits
from blindsight.audit.leakage.networks import attack_batches
from blindsight.audit.leakage.study import study_leakage, trained_step_findings
from blindsight.audit.mechanisms import noise, private_search, published_hashing, selective_sharing, self_test, sums
from blindsight.audit.siftclaims import cheat_findings, holes, published_sift_findings
from blindsight.audit.subject import OnTrial, audit_subjects
from blindsight.data import Dataset, load
from blindsight.errors import PrivacyError
from blindsight.progress import Progress, silent
from blindsight.rng import science

RUNS = 100_000
"""Runs of a cheap mechanism at effort 1."""

PAPERS = "papers"
PUBLIC, PRIVATE = "smiling", "male"
"""What an app asks for, and what a person hides."""

_QUESTION: dict[str, Any] = {"public": PUBLIC, "private": PRIVATE}
_FACES = 3000
_OWNERS = 5
_WEIGHTS = 400  # of the updates that coalitions go after
_SPARSITY = 0.9


def audit_papers(*, minutes: float = 5.0, random_state: int = 0, progress: Progress = silent) -> Audit:
    """Attack every claim, as thoroughly as the time allows."""
    check_minutes(minutes)
    progress("drawing faces", 0, None)
    faces = load("faces", count=_FACES, random_state=random_state, pictures_per_person=5)
    checks = (*glance(faces, random_state, progress), *thorough(faces, random_state, progress))
    return run_checks(PAPERS, checks, minutes=minutes, seed=random_state, progress=progress)


def glance(faces: Dataset, random_state: int = 0, progress: Progress = silent) -> tuple[Check, ...]:
    """Return the checks that say most in little time."""
    how: dict[str, Any] = _QUESTION | {"random_state": random_state, "progress": progress}

    def pictures(effort: float) -> Evidence:
        return portraits(faces, photographs=cached_photographs(), **how)

    def cheats(effort: float) -> Evidence:
        return Evidence(cheat_findings(faces, **how))

    return (
        Check("the auditor itself", 0.1, _auditor, vital=True),
        Check("private hashing as published", 4, partial(_epsilons, published_hashing())),
        Check("from an update back to a picture", 0, pictures, fixed=13),
        Check("apps that cheat SensorSift's verifier", 0, cheats, fixed=2),
    )


def thorough(faces: Dataset, random_state: int = 0, progress: Progress = silent) -> tuple[Check, ...]:
    """Return the other checks."""
    how: dict[str, Any] = {"random_state": random_state, "progress": progress}

    def batches(effort: float) -> Evidence:  # which takes torch
        return Evidence(attack_batches(*_digits(), repeats=max(1, round(3 * effort)), **how))

    def ways_around(effort: float) -> Evidence:
        return Evidence(tuple(hole.finding() for hole in holes(random_state)))

    def sifts(effort: float) -> Evidence:
        return Evidence(published_sift_findings(faces, **_QUESTION, **how))

    return (
        Check("updates in the clear and under encryption", 1.5, partial(_updates, random_state, progress), fixed=13.5),
        Check("gradients of small batches", 5.5, batches, fixed=2),
        Check("coalitions", 0, partial(_coalitions, random_state), fixed=5),
        Check("hostile servers and members", 0, partial(_hostile, progress), fixed=12),
        Check("selective sharing", 20, partial(_epsilons, selective_sharing())),
        Check("private search, ours", 4, partial(_epsilons, (*private_search(), *noise()))),
        Check("noise inside the sum, ours", 1, partial(_epsilons, sums())),
        Check("eight ways around a sift's verdict", 0, ways_around, fixed=8),
        Check("sifts as published", 0, sifts, fixed=15),
    )


def _auditor(effort: float) -> Evidence:
    """Refuse to go on with an auditor that misses a planted violation or cries wolf."""
    tested = self_test(runs=_runs(effort))
    if not tested.passed:
        raise PrivacyError(
            f"the auditor failed its own test (which happens by chance with probability {1 - CONFIDENCE:g}); no "
            "epsilon of this audit can be trusted. Run it again."
        )
    rows = tested.planted.self_test(planted=True), tested.sound.self_test(planted=False)
    return Evidence(rows, claims=False)


def _epsilons(subjects: tuple[OnTrial, ...], effort: float) -> Evidence:
    return Evidence(tuple(audit.finding() for audit in audit_subjects(subjects, runs=_runs(effort))))


def _runs(effort: float) -> int:
    return round(RUNS * effort)


def _updates(random_state: int, progress: Progress, effort: float) -> Evidence:
    grey, labels = _digits()
    order = science(random_state).permutation(len(grey))
    rows = grey.reshape(len(grey), -1)[order]
    steps = trained_step_findings(rows, np.where(labels[order] % 2, 1, -1), random_state=random_state)
    half = len(rows) // 2
    how: dict[str, Any] = {"victims": max(10, round(50 * effort)), "random_state": random_state, "progress": progress}
    study = study_leakage(rows[:half], rows[half:], **how)
    return Evidence((*worst_of_each(study), *steps))


def _digits() -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Return pictures of digits, (n, height, width), and which digits they are."""
    digits = load("digits")
    assert digits.images is not None
    return digits.images[..., 0].astype(np.float64) / 255, np.asarray(digits.labels)


def _coalitions(random_state: int, effort: float) -> Evidence:
    rng = science(random_state)
    updates = {}
    for number in range(_OWNERS):
        update = rng.normal(scale=0.1, size=_WEIGHTS)
        update[rng.permutation(_WEIGHTS)[: int(_SPARSITY * _WEIGHTS)]] = 0
        updates[f"owner {number + 1}"] = update
    rows = [row for scheme in ("dphe", "bfv", "masks") for row in attack_round(play(scheme, updates), random_state=rng)]
    return Evidence(coalition_findings(rows))


def _hostile(progress: Progress, effort: float) -> Evidence:
    """Let everybody lie who may, under every scheme that promises something."""
    rows = [row for scheme in ("dphe", "bfv", "masks") for row in attack_scheme(scheme, progress=progress)]
    return Evidence((*rows, *failing_on_data()))
