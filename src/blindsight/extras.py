"""Optional parts stay optional: import a heavy library where it is needed, or say which extra brings it."""

from importlib import import_module
from typing import Any

from blindsight.errors import MissingExtraError


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
        raise MissingExtraError(
            f"{purpose} needs {error.name}, which is not installed. Run: pip install 'blindsight-vision[{extra}]'"
        ) from None
