"""What lies at a path: a run, an index or a sift that can be audited, or one sentence about what is there instead."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from blindsight.audit.checks import Check
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import AnyPath, as_path, storage_errors
from blindsight.search.gallery import gallery_file
from blindsight.sift import fitted

Kind = Literal["run", "index", "sift"]

ABOUT_RUN, RUN_SCHEMA, RUN_VERSION = "run.json", "blindsight/run", 1
_MODEL = "model.npz"
_MADE_BY = "`blindsight learn encrypted`, `blindsight search build` or `blindsight sift fit`"


@dataclass(frozen=True)
class Target:
    """An artefact: what it is, and the folder that holds it; a sift may be one `file` in there."""

    kind: Kind
    folder: Path
    file: Path | None = None


@dataclass(frozen=True)
class Plan:
    """How an artefact is audited: what it is in words, by which checks, and what cannot be tried."""

    subject: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()


def recognise(path: AnyPath) -> Target:
    """Say what can be audited at a path; what it holds is read, and refused if it is damaged, only by its audit."""
    path = as_path(path)
    if not path.exists():
        raise InputError(f"{path} is not there. Give the folder that {_MADE_BY} wrote.")
    if not path.is_dir():
        return _of_file(path)
    marks: dict[Kind, Callable[[Path], bool]] = {
        "run": lambda folder: (folder / ABOUT_RUN).exists(),
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
            f"{path} holds a model without {ABOUT_RUN}, which says how it was learned: it is of clusters, of selective "
            "sharing, or of another version. Learn it again by `blindsight learn encrypted`."
        )
    raise InputError(f"{path} holds nothing that can be audited. Give the folder that {_MADE_BY} wrote.")


def _of_file(path: Path) -> Target:
    """A sift may be named by its file; everything else is a folder."""
    if path.name in (fitted.SIFT, fitted.VERIFIED) and (path.parent / fitted.ORIGIN).exists():
        return Target("sift", path.parent, path)
    raise InputError(f"{path} is a file, and no sift. Give the folder that {_MADE_BY} wrote.")


def read_run(folder: Path) -> dict[str, Any]:
    """Return how a run was made, or say that it is damaged or of another version."""
    path = folder / ABOUT_RUN
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        about: dict[str, Any] = json.loads(text)
        schema, version = about["schema"], about["version"]
    except (ValueError, KeyError, TypeError):
        raise CorruptFileError(f"{path} is damaged, or was never written by Blindsight. Learn again.") from None
    if schema != RUN_SCHEMA:
        raise CorruptFileError(f"{path} holds a {schema!r}; a {RUN_SCHEMA!r} was expected.")
    if version != RUN_VERSION:
        raise CorruptFileError(
            f"{path} is of version {version}; this Blindsight reads version {RUN_VERSION}. Learn again, or audit it by "
            "the Blindsight that wrote it."
        )
    missing = {"data", "path", "count", "seed", "features", "components", "attributes", "owners", "sharing"} - set(
        about
    )
    if missing:
        raise CorruptFileError(f"{path} is damaged: it does not say {', '.join(sorted(missing))}.")
    return about
