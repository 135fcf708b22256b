"""One door to the audit of a user's own artefact: whatever lies at the path is recognised, attacked and reported."""

from blindsight.audit.checks import Audit, run_checks
from blindsight.audit.ofindex import plan_index
from blindsight.audit.ofsift import plan_sift
from blindsight.audit.run_audit import plan_run
from blindsight.audit.targets import Plan, Target, recognise
from blindsight.data.dataset import Dataset
from blindsight.files import AnyPath
from blindsight.progress import Progress, silent
from blindsight.rng import science


def audit_artefact(
    path: AnyPath, *, minutes: float, random_state: int, data: Dataset | None = None, progress: Progress = silent
) -> Audit:
    """Audit a run, an index or a sift in about so many minutes.

    `data` is the collection to attack a sift with. Runs and indexes know where their pictures are; there it stands for
    them where they have moved. Whatever cannot be tried is among the notes.
    """
    science(random_state)  # refuses a seed before anything is read
    plan = _plan(recognise(path), random_state, data, progress)
    return run_checks(
        plan.subject, plan.checks, minutes=minutes, seed=random_state, notes=plan.notes, progress=progress
    )


def _plan(target: Target, seed: int, data: Dataset | None, progress: Progress) -> Plan:
    if target.kind == "sift":
        return plan_sift(target, random_state=seed, data=data, progress=progress)
    plan = plan_run if target.kind == "run" else plan_index
    return plan(target.folder, random_state=seed, data=data, progress=progress)
