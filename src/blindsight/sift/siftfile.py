"""Sifts on disk: a JSON document and plain arrays with a checksum; a file gives back the same sift, or is refused.

What the platform keeps beside its journal: sifts by their digest, the last release of grants that repeat it, and
hashes of the rows it ever verified on.

Files appear whole or not at all, before the record that speaks of them. A sift that does not match its digest is
refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.sift.adaptive import RowPrints
from blindsight.sift.layers import LayeredSift, SymbolSift
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import LinearSift, Sift

_FILE = "blindsight/sift.1"
_KINDS: dict[str, type[Sift]] = {kind.kind: kind for kind in (LinearSift, LayeredSift, SymbolSift, PersonalSift)}


def save_sift(sift: Sift, path: AnyPath) -> None:
    """Write the sift to one file, whole or not at all."""
    document = {"kind": sift.kind, "name": sift.name, "settings": sift.document()}
    write_arrays(path, _FILE, document, sift.arrays())


def load_sift(path: AnyPath) -> Sift:
    """Read a sift that `save_sift` wrote; nothing in the file is ever executed, a damaged one is refused."""
    document, arrays = read_arrays(path, _FILE)
    try:
        kind = str(document["kind"])
        if kind not in _KINDS:
            raise UnknownNameError("kind of sift", kind, _KINDS)
        return _KINDS[kind].from_parts(document["settings"], arrays, str(document["name"]))
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable sift: {error}") from None


_LAST, _ROWS = "blindsight/last-release.1", "blindsight/row-prints.1"


class SiftStore:
    """Sifts and last releases, in a folder or (without one) for this process only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._sifts: dict[str, Sift] = {}
        self._last: dict[int, NDArray[Any]] = {}
        self._prints: dict[str, RowPrints] = {}

    def keep(self, sift: Sift) -> None:
        """Keep a sift for ever."""
        if self._folder is not None:
            save_sift(sift, self._sift_path(self._folder, sift.digest))
        self._sifts[sift.digest] = sift

    def sift(self, digest: str) -> Sift:
        """Return the sift that was kept under this digest."""
        if digest not in self._sifts:
            if self._folder is None:
                raise CorruptFileError(f"the sift {digest} was never kept.")
            path = self._sift_path(self._folder, digest)
            found = load_sift(path)
            if found.digest != digest:
                raise CorruptFileError(f"{path} holds another sift than its name says.")
            self._sifts[digest] = found
        return self._sifts[digest]

    def keep_last(self, grant: int, release: NDArray[Any]) -> None:
        """Keep what a grant released last: the app has it already, and will get nothing else."""
        if self._folder is not None:
            write_arrays(self._last_path(self._folder, grant), _LAST, {}, {"release": release}, private=True)
        self._last[grant] = release

    def last(self, grant: int) -> NDArray[Any] | None:
        """Return the last release of a grant, or None."""
        if grant not in self._last and self._folder is not None:
            path = self._last_path(self._folder, grant)
            if path.exists():
                self._last[grant] = np.asarray(read_arrays(path, _LAST)[1]["release"])
        return self._last.get(grant)

    def keep_prints(self, digest: str, prints: RowPrints) -> None:
        """Keep the hashes of the rows of a verification set for ever."""
        if self._folder is not None and not (path := self._folder / "rows" / f"{digest}.npz").exists():
            persons = {} if prints.persons is None else {"persons": prints.persons}
            document = {"pipeline": prints.pipeline}
            write_arrays(path, _ROWS, document, {"rows": prints.rows, **persons}, private=True)
        self._prints[digest] = prints

    def related(self, digest: str) -> set[str]:
        """Return the digests of all verification sets with rows or persons in common with this one, itself included."""
        for path in [] if self._folder is None else (self._folder / "rows").glob("*.npz"):
            if path.stem not in self._prints:
                document, arrays = read_arrays(path, _ROWS)
                prints = RowPrints(arrays["rows"], arrays.get("persons"), str(document["pipeline"]))
                self._prints[path.stem] = prints
        mine = self._prints[digest]
        return {other for other, prints in self._prints.items() if other == digest or prints.meets(mine)}

    @staticmethod
    def _sift_path(folder: Path, digest: str) -> Path:
        return folder / "sifts" / f"{digest}.npz"

    @staticmethod
    def _last_path(folder: Path, grant: int) -> Path:
        return folder / "last" / f"{grant}.npz"
