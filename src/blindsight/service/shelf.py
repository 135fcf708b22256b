"""What the operator put on the shelf: finished or running learning runs, and indexes that can be asked.

A folder ``runs/NAME`` is what `blindsight learn encrypted` wrote (``run.json``, then ``history.json`` with the rounds
so far, at last ``statement.json``), ``indexes/NAME`` what `blindsight search build` wrote; either may be a link. A name
from outside only ever picks one of the names that are there, so it cannot lead anywhere else. Of a run nothing is shown
but how it was set up, how far it is and its statement: no model, no recorded round, no path of this machine.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blindsight.errors import CorruptFileError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.search.encrypted_query import QueryServer
from blindsight.search.gallery import Gallery, gallery_file
from blindsight.statement import PrivacyStatement

_ABOUT, _STATEMENT, _HISTORY = "run.json", "statement.json", "history.json"


@dataclass(frozen=True)
class RunRecord:
    """A run as it lies in its folder; without a statement it is not finished."""

    name: str
    about: dict[str, Any]
    history: list[dict[str, Any]]
    statement: PrivacyStatement | None


class Shelf:
    """Runs and indexes under one folder."""

    def __init__(self, folder: Path) -> None:
        self._runs, self._indexes = folder / "runs", folder / "indexes"
        self._open: dict[str, tuple[int, Gallery]] = {}
        self._answering: dict[str, tuple[Gallery, QueryServer]] = {}
        self._mutex = threading.Lock()

    def runs(self) -> tuple[str, ...]:
        return _names(self._runs, lambda folder: (folder / _ABOUT).is_file())

    def run(self, name: str) -> RunRecord:
        """Return what is known of one run."""
        if name not in self.runs():
            raise UnknownNameError("run", name, self.runs())
        folder = self._runs / name
        about = _document(folder / _ABOUT, dict)
        history = _document(folder / _HISTORY, list) if (folder / _HISTORY).is_file() else []
        said = folder / _STATEMENT
        statement = PrivacyStatement.from_dict(_document(said, dict)) if said.is_file() else None
        return RunRecord(name, about, history, statement)

    def indexes(self) -> tuple[str, ...]:
        """Return the names of all finished indexes."""
        return _names(self._indexes, lambda folder: gallery_file(folder) is not None)

    def index(self, name: str) -> Gallery:
        """Return an index, read once as long as it is not built anew."""
        file = gallery_file(self._indexes / name) if name in self.indexes() else None
        if file is None:
            raise UnknownNameError("index", name, self.indexes())
        with storage_errors("read", file):
            made = file.stat().st_mtime_ns
        with self._mutex:
            known = self._open.get(name)
            if known is None or known[0] != made:
                known = self._open[name] = (made, Gallery.load(self._indexes / name))
        return known[1]

    def query_server(self, name: str) -> QueryServer:
        """Return what answers encrypted queries to an index; its codes are encoded once."""
        gallery = self.index(name)
        with self._mutex:
            known = self._answering.get(name)
            if known is None or known[0] is not gallery:
                known = self._answering[name] = (gallery, QueryServer(gallery, self._indexes / name))
        return known[1]


def _names(folder: Path, holds: Callable[[Path], bool]) -> tuple[str, ...]:
    if not folder.is_dir():
        return ()
    with storage_errors("read", folder):
        return tuple(sorted(one.name for one in folder.iterdir() if not one.name.startswith(".") and holds(one)))


def _document(path: Path, kind: type) -> Any:
    with storage_errors("read", path):
        text = path.read_text()
    try:
        document = json.loads(text)
    except ValueError:
        raise CorruptFileError(f"{path} is not JSON: damaged, or of another version.") from None
    if not isinstance(document, kind):
        raise StorageError(f"{path} is of another kind or version.")
    return document
