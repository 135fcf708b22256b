"""What a party keeps of the runs it takes part in, for its owner: which there are, and how to forget one.

Runs are kept under names that others chose, so folders are found by what they hold. What is forgotten is gone: keys,
updates that were not sent, the key generator's record.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import joined_terms
from blindsight.federated.server import RunStore
from blindsight.files import storage_errors, sync_folder
from blindsight.sums import KeyGenerator, Terms


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One run; `stands`: how far it has come, or why it cannot be read; `record`: what the key generator opened."""

    name: str
    folder: Path
    scheme: str = "?"
    members: tuple[str, ...] = ()
    weights: int = 0
    stands: str
    record: tuple[str, ...] = ()


def list_runs(store: KeyStore) -> list[StoredRun]:
    folder = store.path / "runs"
    if not folder.exists():
        return []
    with storage_errors("read", folder):
        folders = [path for path in folder.iterdir() if path.is_dir()]
    return sorted((_stored(store, path) for path in folders), key=lambda run: (run.name, run.folder))


def delete_run(store: KeyStore, name: str) -> tuple[StoredRun, int]:
    """Delete the run of this name, or in the folder of this name; return what it was, and how many files it had."""
    runs = list_runs(store)
    found = [run for run in runs if run.folder.name == name] or [run for run in runs if run.name == name]
    if not found:
        raise UnknownNameError("run", name, [run.name for run in runs])
    if len(found) > 1:
        folders = " or ".join(run.folder.name for run in found)
        raise InputError(f"{len(found)} runs are called {name!r}. Say which by its folder: {folders}.")
    (run,) = found
    with storage_errors("delete", run.folder):
        files = sum(path.is_file() for path in run.folder.rglob("*"))
        aside = run.folder.rename(run.folder.with_name(f".{run.folder.name}"))  # nobody goes on with half a run
        sync_folder(aside.parent)
        shutil.rmtree(aside)
    return run, files


def _stored(store: KeyStore, folder: Path) -> StoredRun:
    try:
        terms, stands, record = _read(store, folder)
    except BlindsightError as error:
        return StoredRun(name=folder.name, folder=folder, stands=str(error))
    if terms is None:
        return StoredRun(name=folder.name, folder=folder, stands=stands)
    return StoredRun(
        name=terms.run if terms.run.isprintable() else folder.name,  # a server's word, which a terminal might obey
        folder=folder,
        scheme=terms.scheme,
        members=terms.members,
        weights=terms.dimension,
        stands=stands,
        record=record,
    )


def _read(store: KeyStore, folder: Path) -> tuple[Terms | None, str, tuple[str, ...]]:
    """Return the terms of a run, how far it has come, and what was opened; who keeps it, its files tell."""
    there = {path.name for path in folder.iterdir()}
    if "joined" in there:
        return joined_terms(folder), "set up" if "task" in there else "enrolled", ()
    if "generator" in there:
        generator = KeyGenerator.load(folder / "generator")
        return generator.terms, "opened", generator.log
    if "run" in there:
        run = RunStore.load(store, folder)
        return run.terms, f"round {run.round}{', under way' if run.open else ''}", ()
    return None, "never begun", ()
