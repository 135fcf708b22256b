"""One door to the audit of a user's own artefact: whatever lies at the path is recognised, attacked and reported."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from blindsight.audit.checks import Audit, Kind, Plan, Target, run_checks
from blindsight.audit.index_audit import plan_index
from blindsight.audit.network_audit import ABOUT_NETWORK, plan_network
from blindsight.audit.run_audit import ABOUT_RUN, plan_run
from blindsight.audit.sift_audit import plan_sift
from blindsight.data.dataset import Dataset
from blindsight.errors import InputError
from blindsight.files import AnyPath, as_path
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.search.gallery import gallery_file, refuse_older
from blindsight.sift import fitted

_MODEL, _NETWORK = "model.npz", "network.npz"
_MADE_BY = "`blindsight learn classifier`, `learn network`, `search build` or `sift fit`"


def audit_artefact(
    path: AnyPath, *, minutes: float, random_state: int, data: Dataset | None = None, progress: Progress = silent
) -> Audit:
    """Audit a run, an index or a sift in about so many minutes.

    `data` is the collection to attack a sift with. Runs and indexes know where their pictures are; there it stands for
    them where they have moved. Whatever cannot be tried is among the notes.
    """
    science(random_state)  # refuses a seed before anything is read
    plan = _plan(recognise(path), random_state, data, progress)
    found = run_checks(
        plan.subject, plan.checks, minutes=minutes, seed=random_state, notes=plan.notes, progress=progress
    )
    return replace(found, statement=plan.statement)


def _plan(target: Target, seed: int, data: Dataset | None, progress: Progress) -> Plan:
    if target.kind == "sift":
        return plan_sift(target, random_state=seed, data=data, progress=progress)
    plan = {"run": plan_run, "network": plan_network, "index": plan_index}[target.kind]
    return plan(target.folder, random_state=seed, data=data, progress=progress)


def recognise(path: AnyPath) -> Target:
    """Say what can be audited at a path; what it holds is read, and refused if it is damaged, only by its audit."""
    path = as_path(path)
    if not path.exists():
        raise InputError(f"{path} is not there. Give the folder that {_MADE_BY} wrote.")
    if not path.is_dir():
        return _of_file(path)
    refuse_older(path)
    marks: dict[Kind, Callable[[Path], bool]] = {
        "run": lambda folder: (folder / ABOUT_RUN).exists(),
        "network": lambda folder: (folder / ABOUT_NETWORK).exists(),
        "index": lambda folder: gallery_file(folder) is not None,
        "sift": lambda folder: (folder / fitted.SIFT).exists(),
    }
    found = [kind for kind in get_args(Kind) if marks[kind](path)]
    if len(found) > 1:
        raise InputError(f"{path} holds more than one thing: {', '.join(found)}. Keep each in a folder of its own.")
    if found:
        return Target(found[0], path)
    if (path / _MODEL).exists():
        raise InputError(
            f"{path} holds a model without {ABOUT_RUN}, which says how it was learned: it is of clusters "
            "or of another version. Learn it again by `blindsight learn classifier`."
        )
    if (path / _NETWORK).exists():
        raise InputError(
            f"{path} holds a network without {ABOUT_NETWORK}, which says how it was learned: it is of another "
            "version. Learn it again by `blindsight learn network --record`."
        )
    raise InputError(f"{path} holds nothing that can be audited. Give the folder that {_MADE_BY} wrote.")


def _of_file(path: Path) -> Target:
    """A sift may be named by its file; everything else is a folder."""
    if path.name in (fitted.SIFT, fitted.VERIFIED) and (path.parent / fitted.ORIGIN).exists():
        return Target("sift", path.parent, path)
    raise InputError(f"{path} is a file, and no sift. Give the folder that {_MADE_BY} wrote.")
