"""What a run and a party are told: the run-config, in which a wrong setting gets a sentence, and files of data.

The data of a party lie in an .npz archive on its own disk: `features` (samples, dimensions) and `labels`.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import DataError, InputError
from blindsight.federated.flower.mod import refuse_renamed
from blindsight.federated.identity import KeyStore, Members, server_store
from blindsight.files import storage_errors
from blindsight.sums import Patience

_RENAMED = {"users": "members", "minimum-users": "quorum", "absences": "max-absences"}


@dataclass(frozen=True)
class Settings:
    """The settings of a run by name."""

    values: dict[str, Any]

    def __post_init__(self) -> None:
        refuse_renamed(self.values, "run-config", _RENAMED)

    def text(self, name: str) -> str:
        return str(self._of(name, str))

    def path(self, name: str) -> Path:
        if not (given := self.text(name)):
            raise InputError(f"the run-config must name {name!r}: flwr run --run-config '{name}=\"...\"'.")
        return Path(given).expanduser()

    def whole(self, name: str) -> int:
        return int(self._of(name, int))

    def number(self, name: str) -> float:
        return float(self._of(name, int, float))

    def flag(self, name: str) -> bool:
        return bool(self._of(name, bool))

    def store(self) -> tuple[KeyStore, Members]:
        """Return the server's key store and the members, of which the server must be one."""
        members = Members.read(self.path("members-file"))
        return server_store(self.path("home"), members), members

    def patience(self) -> Patience:
        return Patience(
            round=self.number("round-seconds"),
            step=self.number("step-seconds"),
            generator=self.number("key-generator-seconds"),
        )

    def _of(self, name: str, *kinds: type) -> Any:
        value = self.values.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise InputError(f"{name!r} in the run-config must be {wanted}; got {value!r}.")
        return value


def read_features(path: str, what: str) -> NDArray[Any]:
    return _read(path, what)["features"]


def read_pair(path: str, what: str) -> tuple[NDArray[Any], NDArray[Any]]:
    arrays = _read(path, what)
    if "labels" not in arrays:
        raise DataError(f"{path} has no array 'labels'.")
    return arrays["features"], arrays["labels"]


def _read(path: str, what: str) -> dict[str, NDArray[Any]]:
    if not path:
        raise InputError(f"no file was named for {what}.")
    file = Path(path).expanduser()
    with storage_errors("read", file), file.open("rb") as stream:
        try:
            with np.load(stream, allow_pickle=False) as members:
                arrays = {name: members[name] for name in members.files}
        except (zipfile.BadZipFile, ValueError, EOFError) as error:
            raise DataError(f"{file} is no .npz archive of plain arrays: {error}") from None
    if "features" not in arrays:
        raise DataError(f"{file} has no array 'features'.")
    return arrays
