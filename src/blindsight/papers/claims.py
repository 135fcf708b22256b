"""The claims of the documents, each attacked: what is proven of it, what was measured, and what follows.

| document | claims |
| --- | --- |
| DPHE | Theorem 8 and what its users learn from sums; section 2.5 (no collusion); supplement, section 2 |
| PPDL | section 6 and Table 3: uploads under Laplace noise; gradients of small batches |
| private hashing | Theorems 4, 6 and 8 |
| SensorSift | sections 6.2 and 7: what five classifiers read (Table 2); several apps, several frames |

Everything runs on bundled pictures and on parties made for it, with real keys, real messages and noise from the
operating system.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.checks import Audit, Check, Evidence, check_minutes, run_checks, worst_of_each
from blindsight.audit.epsilon import CONFIDENCE
from blindsight.audit.subject import RUNS, OnTrial, audit_subjects, self_test
from blindsight.data import Dataset, load
from blindsight.errors import PrivacyError
from blindsight.papers.dphe.attacks import study_leakage, trained_step_findings
from blindsight.papers.dphe.coalitions import attack_round, play, sparse_plans
from blindsight.papers.dphe.coalitions import findings as coalition_findings
from blindsight.papers.hashing.mechanisms import published_hashing
from blindsight.papers.portraits import cached_photographs, portraits
from blindsight.papers.selective.gradients import attack_batches
from blindsight.papers.selective.mechanisms import published_uploads
from blindsight.papers.sensorsift.claims import cheat_findings, published_sift_findings
from blindsight.progress import Progress, silent
from blindsight.rng import science

SUBJECT = "the documents behind Blindsight"
PUBLIC, PRIVATE = "smiling", "male"
"""What an app asks for, and what a person hides."""

_QUESTION: dict[str, Any] = {"public": PUBLIC, "private": PRIVATE}
_FACES = 3000
_OWNERS = 5
_WEIGHTS = 400  # of the updates that coalitions go after
_SPARSITY = 0.9


def audit_claims(*, minutes: float = 5.0, random_state: int = 0, progress: Progress = silent) -> Audit:
    """Attack every claim, as thoroughly as the time allows."""
    check_minutes(minutes)
    progress("drawing faces", 0, None)
    faces = load("faces", count=_FACES, random_state=random_state, pictures_per_person=5)
    checks = (*glance(faces, random_state, progress), *thorough(faces, random_state, progress))
    return run_checks(SUBJECT, checks, minutes=minutes, seed=random_state, progress=progress)


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

    def sifts(effort: float) -> Evidence:
        return Evidence(published_sift_findings(faces, **_QUESTION, **how))

    return (
        Check("updates in the clear and under encryption", 1.5, partial(_updates, random_state, progress), fixed=13.5),
        Check("gradients of small batches", 5.5, batches, fixed=2),
        Check("coalitions", 0, partial(_coalitions, random_state), fixed=3),
        Check("selective sharing as published", 12, partial(_epsilons, published_uploads())),
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
    played = play("dphe", updates)
    return Evidence(coalition_findings(attack_round(played, sparse_plans(played), random_state=rng)))
