"""Optional libraries: import one where it is needed, or name the extra that brings it; how numpy arrays meet torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.errors import InputError, MissingExtraError
from blindsight.validation import check_features, check_shape

Module = Any
"""A torch.nn.Module."""

Tensor = Any
"""A torch.Tensor."""

_COLOURS = 3


def require(module: str, *, extra: str, purpose: str) -> Any:
    """Import `module`, or raise one sentence that names the extra to install.

    >>> require("json", extra="none", purpose="reading JSON").__name__
    'json'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise  # the library is there, but something inside it is broken: that is another story
        raise MissingExtraError(_missing(error.name, extra, purpose)) from None


def check_installed(*modules: str, extra: str, purpose: str) -> None:
    """Raise as `require` does for the first of these modules that is not installed, without importing any."""
    for module in modules:
        if find_spec(module) is None:
            raise MissingExtraError(_missing(module, extra, purpose))


def install_hint(extra: str) -> str:
    """Return how to install an extra, from a checkout and from a wheel.

    >>> install_hint("deep")
    "pip install '.[deep]' in a checkout, or pip install 'WHEEL[deep]' with the path of the wheel"
    """
    return f"pip install '.[{extra}]' in a checkout, or pip install 'WHEEL[{extra}]' with the path of the wheel"


def _missing(module: str, extra: str, purpose: str) -> str:
    return (
        f"{purpose} needs {module}, which is not installed. It comes with the extra {extra!r}: {install_hint(extra)}."
    )


def load_torch() -> Any:
    """Return the torch library, or say which extra brings it."""
    return require("torch", extra="deep", purpose="a neural network")


def check_inputs(X: ArrayLike, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return what a module is to be fed with, bytes or float32 (n, ...), or say what is wrong with it."""
    what = "inputs of a network"
    rows = check_shape(X, shape, what=what, flat=False, dense=True)
    return check_features(rows, what=what, flat=False, precision="given" if rows.dtype == np.uint8 else "single")


def to_batch(rows: NDArray[Any], device: str) -> Tensor:
    """Return checked inputs as the float tensor a module gets.

    Images (n, height, width, 3) turn to (n, 3, height, width), as torch's convolutions want them; bytes become
    fractions of 255. All else goes in as it is.
    """
    batch = load_torch().tensor(np.ascontiguousarray(rows), device=device)
    if rows.ndim == 4 and rows.shape[3] == _COLOURS:
        batch = batch.permute(0, 3, 1, 2)
    return batch.float() / 255 if rows.dtype == np.uint8 else batch.float()


@contextmanager
def seeded(generator: np.random.Generator | int, device: str) -> Iterator[None]:
    """Seed torch's own generators for initial weights and dropout, and leave them as they were before."""
    torch = load_torch()
    seed = generator if isinstance(generator, int) else int(generator.integers(2**63))
    if seed < 0:
        raise InputError(f"a seed must be a whole number >= 0; got {seed}.")
    if torch.device(device).type != "cuda":
        state = torch.default_generator.get_state()
        try:
            torch.default_generator.manual_seed(seed)
            yield
        finally:
            torch.default_generator.set_state(state)
        return
    with torch.random.fork_rng(devices=[torch.device(device)]):
        torch.default_generator.manual_seed(seed)
        torch.cuda.manual_seed(seed)
        yield
