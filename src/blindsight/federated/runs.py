"""What a party keeps of the runs it takes part in, for its owner: which there are, and how to forget one.

Runs are kept under names that others chose, so folders are found by what they hold. What is forgotten is gone: keys,
updates that were not sent, the key generator's record. The ledger of what photos have cost stays.
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.federated.identity import KeyStore
from blindsight.federated.node import SHARING, joined_terms
from blindsight.federated.server import RunStore, forget_labels, kept_terms
from blindsight.federated.sharing import SharingTask
from blindsight.files import storage_errors, sync_folder
from blindsight.selective.storage import ServerStore
from blindsight.selective.terms import SelectiveTerms
from blindsight.sums import KeyGenerator, Terms


@dataclass(frozen=True, kw_only=True)
class KeptRun:
    """One run: `stands` says how far it has come, `record` what the key generator has opened in it.

    A folder that cannot be understood is a run too, named like the folder; then `stands` says why.
    """

    name: str
    folder: Path
    scheme: str = "?"
    members: tuple[str, ...] = ()
    weights: int = 0
    stands: str
    record: tuple[str, ...] = ()


def kept_runs(store: KeyStore) -> list[KeptRun]:
    """Return the runs in a key store, by name."""
    folder = store.path / "runs"
    if not folder.exists():
        return []
    with storage_errors("read", folder):
        folders = [path for path in folder.iterdir() if path.is_dir()]
    return sorted((_read(store, path) for path in folders), key=lambda run: (run.name, run.folder))


def forget_run(store: KeyStore, name: str) -> tuple[KeptRun, int]:
    """Delete the run of this name, or in the folder of this name; return what it was, and how many files it had."""
    runs = kept_runs(store)
    found = [run for run in runs if run.folder.name == name] or [run for run in runs if run.name == name]
    if not found:
        raise UnknownNameError("run", name, [run.name for run in runs])
    if len(found) > 1:
        folders = " or ".join(run.folder.name for run in found)
        raise InputError(f"{len(found)} runs are called {name!r}. Say which by its folder: {folders}.")
    (run,) = found
    forget_labels(store, run.name)
    with storage_errors("delete", run.folder):
        files = sum(path.is_file() for path in run.folder.rglob("*"))
        aside = run.folder.rename(run.folder.with_name(f".{run.folder.name}"))  # nobody goes on with half a run
        sync_folder(aside.parent)
        shutil.rmtree(aside)
    return run, files


def _read(store: KeyStore, folder: Path) -> KeptRun:
    for name, reader in _READERS.items():
        if (folder / name).exists():
            try:
                return reader(store, folder)
            except BlindsightError as error:
                return KeptRun(name=folder.name, folder=folder, stands=str(error))
    return KeptRun(name=folder.name, folder=folder, stands="never begun")


def _member(store: KeyStore, folder: Path) -> KeptRun:
    stands = "set up" if (folder / "config").exists() else "enrolled"
    return _sums(folder, joined_terms(folder), stands)


def _generator(store: KeyStore, folder: Path) -> KeptRun:
    generator = KeyGenerator.load(folder / "generator")
    return _sums(folder, generator.terms, "opened", generator.log)


def _server(store: KeyStore, folder: Path) -> KeptRun:
    terms = kept_terms(folder)
    progress = RunStore.load(store, terms.run).progress
    return _sums(folder, terms, f"round {progress.round}{', under way' if progress.open else ''}")


def _participant(store: KeyStore, folder: Path) -> KeptRun:
    path = folder / "task"
    with storage_errors("read", path):
        terms = SharingTask.from_bytes(path.read_bytes()).terms
    return _shares(folder, terms, "shared" if (folder / "participant.npz").exists() else "joined")


def _parameter_server(store: KeyStore, folder: Path) -> KeptRun:
    with closing(ServerStore(folder)) as kept:
        terms, state = kept.load()
    return _shares(folder, terms, f"{state.version} uploads or more")


def _sums(folder: Path, terms: Terms, stands: str, record: tuple[str, ...] = ()) -> KeptRun:
    return KeptRun(
        name=terms.run,
        folder=folder,
        scheme=terms.scheme,
        members=terms.members,
        weights=terms.dimension,
        stands=stands,
        record=record,
    )


def _shares(folder: Path, terms: SelectiveTerms, stands: str) -> KeptRun:
    return KeptRun(
        name=terms.run if terms.run.isprintable() else folder.name,  # a server's word, which a terminal might obey
        folder=folder,
        scheme=SHARING,
        members=terms.participants,
        weights=terms.dimension,
        stands=stands,
    )


_READERS: dict[str, Callable[[KeyStore, Path], KeptRun]] = {
    "joined": _member,
    "generator": _generator,
    "run": _server,
    "task": _participant,
    "snapshot.npz": _parameter_server,
}
"""Who reads a run, by the file that only it keeps."""
