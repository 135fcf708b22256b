"""Hash functions on disk: plain arrays with a checksum; a file gives back the same function, or is refused."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.extras import Module
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.search.function import HashFunction, LinearHash
from blindsight.search.kernel import KernelHash
from blindsight.search.layers import LayeredHash
from blindsight.search.network import NetworkHash
from blindsight.search.spectral import SpectralHash

_KIND = "blindsight/hash-function.1"
_FUNCTIONS: dict[str, type[HashFunction]] = {
    kind.name: kind for kind in (KernelHash, LayeredHash, LinearHash, SpectralHash)
}


def save_function(function: HashFunction, path: AnyPath, *, private: bool = False) -> None:
    """Write the function to one file, whole or not at all; a `private` one can be read by its owner alone."""
    write_arrays(path, _KIND, {"function": function.name}, function.arrays(), private=private)


def load_function(path: AnyPath) -> HashFunction:
    """Read a function that `save_function` wrote; a damaged file raises `CorruptFileError`."""
    document, arrays = read_arrays(path, _KIND)
    if document == {"function": NetworkHash.name}:
        raise InputError(f"{path} holds the weights of a network. Give load_network_hash the module they belong to.")
    try:
        return function_from(str(document["function"]), arrays)
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def load_network_hash(path: AnyPath, module: Module, device: str = "cpu") -> NetworkHash:
    """Read the function of a trained network: its weights go into a copy of `module`, a torch module built like it."""
    document, arrays = read_arrays(path, _KIND)
    if document != {"function": NetworkHash.name}:
        raise InputError(f"{path} holds a function that needs no module. Read it with load_function.")
    try:
        return NetworkHash.with_module(arrays, module, device)
    except (KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} holds no usable hash function: {error}") from None


def function_from(name: str, arrays: Mapping[str, NDArray[Any]]) -> HashFunction:
    """Return the function of this kind that is made of these arrays."""
    if name not in _FUNCTIONS:
        raise UnknownNameError("kind of hash function", name, _FUNCTIONS)
    return _FUNCTIONS[name].from_arrays(arrays)
