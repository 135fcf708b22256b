"""Hash functions on disk: plain arrays with a checksum; a file gives back the same function, or is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from blindsight.arrayfile import read_arrays, write_arrays
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.search.function import HashFunction, LinearHash
from blindsight.search.spectral import SpectralHash

_KIND = "blindsight/hash-function.1"
_FUNCTIONS: dict[str, type[HashFunction]] = {kind.name: kind for kind in (LinearHash, SpectralHash)}


def save_function(function: HashFunction, path: Path) -> None:
    """Write the function to one file, whole or not at all."""
    write_arrays(path, _KIND, {"function": function.name}, function.arrays())


def load_function(path: Path) -> HashFunction:
    """Read a function that `save_function` wrote; a damaged file raises `CorruptFileError`."""
    document, arrays = read_arrays(path, _KIND)
    try:
        return function_from(str(document["function"]), arrays)
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def function_from(name: str, arrays: Mapping[str, NDArray[Any]]) -> HashFunction:
    """Return the function of this kind that is made of these arrays."""
    if name not in _FUNCTIONS:
        raise UnknownNameError("kind of hash function", name, _FUNCTIONS)
    return _FUNCTIONS[name].from_arrays(arrays)
