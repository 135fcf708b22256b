"""One file per measurement, whose path names what was measured: nothing else has to be remembered to find it again.

    results/<benchmark>/<dataset>/<method>/<arguments>.seed<k>.json

Files appear whole or not at all. Arguments in a path can be read back (`parse_arguments`); lists too long for a file
name are replaced by their SHA-256, and the file itself always holds them in full.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from blindsight.errors import CorruptFileError, InputError
from blindsight.files import atomic_writer, storage_errors

Argument = bool | int | float | str | None

_LONGEST = 150  # characters of arguments in a file name
_NO_ARGUMENTS = "default"
_WORD = re.compile(r"(?!(?:true|false|null|NaN|Infinity)$)[A-Za-z][A-Za-z0-9_-]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Result:
    """What one method answered to one problem, what it scored and what it cost, on which machine, with which code."""

    benchmark: str
    dataset: str
    method: str
    arguments: Mapping[str, Argument]
    seed: int
    error: str | None = None  # why there is no score
    score: Mapping[str, float] = field(default_factory=dict)
    output: Any = None  # what the answer looked like, with its checksum
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0  # of this process and the children it waited for
    peak_memory_bytes: int = 0
    machine: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    session: str = ""  # the same for all that were measured by one call, one after another
    finished: str = ""  # UTC

    @property
    def ok(self) -> bool:
        """Tell whether there is a score."""
        return self.error is None


def result_path(folder: Path, result: Result) -> Path:
    """Return where a result belongs below `folder`; a file there is about the same measurement and no other."""
    for name in (result.benchmark, result.dataset, result.method):
        check_name(name)
    name = f"{argument_text(result.arguments)}.seed{result.seed}.json"
    return folder / result.benchmark / result.dataset / result.method / name


def check_name(name: str) -> None:
    """Refuse names of benchmarks, datasets and methods that could leave their folder or hide in it."""
    if not _NAME.fullmatch(name):
        raise InputError(f"names must be letters, digits, '_', '.' and '-', the first no sign; got {name!r}.")


def argument_text(arguments: Mapping[str, Argument]) -> str:
    """Return the arguments as a part of a file name: sorted, readable, and different for different arguments.

    >>> argument_text({"gamma": 0.5, "C": 10, "kernel": "rbf", "note": "a/b"})
    'C=10,gamma=0.5,kernel=rbf,note=%22a%2Fb%22'
    >>> argument_text({"C": "10"})
    'C=%2210%22'
    """
    for name in arguments:
        if not (name.isascii() and name.isidentifier()):
            raise InputError(f"an argument must have the name of a Python parameter, in ASCII; got {name!r}.")
    text = ",".join(f"{name}={_value_text(value)}" for name, value in sorted(arguments.items())) or _NO_ARGUMENTS
    if len(text) > _LONGEST:
        return f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"
    return text


def parse_arguments(text: str) -> dict[str, Argument]:
    """Return the arguments that `argument_text` wrote; those it had to replace by a checksum cannot be read back."""
    if text == _NO_ARGUMENTS:
        return {}
    if "=" not in text:
        raise InputError(f"{text!r} stands for arguments too long for a file name. Read them in the file itself.")
    pairs = (part.split("=", 1) for part in text.split(","))
    return {name: _parse_value(unquote(value)) for name, value in pairs}


def write_result(path: Path, result: Result) -> None:
    """Write a result, whole or not at all."""
    text = json.dumps(asdict(result), indent=1, sort_keys=True, allow_nan=False)
    with atomic_writer(path) as stream:
        stream.write(f"{text}\n".encode())


def read_result(path: Path) -> Result:
    """Read what `write_result` wrote."""
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        return Result(**json.loads(text))
    except (TypeError, ValueError):
        raise CorruptFileError(
            f"{path} is not a result of this harness. Delete it, or measure again with --force."
        ) from None


def _value_text(value: Argument) -> str:
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value  # a bare word is never JSON, so it needs no quotes to be told from a number
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"arguments must be finite to be recorded; got {value}. Pass it as the string '{value}'.")
    return quote(json.dumps(value), safe="+")


def _parse_value(text: str) -> Argument:
    if _WORD.fullmatch(text):
        return text
    value: Argument = json.loads(text)
    return value
