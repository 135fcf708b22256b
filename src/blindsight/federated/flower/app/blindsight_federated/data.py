"""The data of a party, from a file on its own disk: `features` (samples, dimensions) and `labels`, an .npz archive."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import DataError, InputError
from blindsight.files import storage_errors


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
