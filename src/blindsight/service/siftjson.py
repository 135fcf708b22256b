"""A sift from an app nobody trusts, as JSON: numbers and a few settings, checked one by one, and never anything to run.

Either a plain matrix with its preprocessing, z = ((x - mean) / scale) matrix,

    {"mean": [...], "scale": [...], "matrix": [[...], ...], "edges": [[...], ...]}

where `edges` (optional) sorts every number into few levels, or the parts of a sift file (`sift.save_sift`),

    {"kind": "linear" | "layered" | "symbol", "settings": {...}, "arrays": {"mean": [...], ...}}

Either may have a `name`, and names the platform's pipeline (or none). A sift whose symbols are drawn by randomised
response (`sift.personal`) has the kind "personal" and the settings {"epsilon": E, "certain": kind, "settings": {...}}.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import LARGEST, LayeredSift, LinearSift, Sift, SymbolSift

MOST_NUMBERS = 4_000_000
"""Of all arrays together."""

MOST_WIDE = 64
"""Numbers that a sift may let out for a picture."""

_KINDS: dict[str, type[Sift]] = {kind.kind: kind for kind in (LinearSift, LayeredSift, SymbolSift)}
_PLAIN = ("mean", "scale", "matrix", "edges")
_NAME_LENGTH = 100


def sift_from_json(document: Any, *, pipeline: str, dimension: int) -> Sift:
    """Return the sift that parsed JSON describes, for features of this pipeline, or say in a sentence what is wrong."""
    if not isinstance(document, Mapping):
        raise InputError("a sift is a JSON object with mean, scale and matrix, or with kind, settings and arrays.")
    declared = "kind" in document
    _refuse_unknown(document, ("kind", "settings", "arrays", "name") if declared else (*_PLAIN, "name", "pipeline"))
    kind = document["kind"] if declared else LinearSift.kind
    if kind == PersonalSift.kind:
        return _personal(document, pipeline, dimension)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise UnknownNameError("kind of sift", str(kind)[:_NAME_LENGTH], _KINDS)
    settings = _mapping(document.get("settings", {}), "settings") if declared else {}
    named = settings.get("pipeline", pipeline) if declared else document.get("pipeline", pipeline)
    if named not in ("", pipeline):
        raise InputError("this sift belongs to another feature pipeline. Fit it to the platform's features.")
    given = _mapping(document.get("arrays", {}), "arrays") if declared else document
    sift = _made(kind, {**settings, "pipeline": pipeline}, _arrays(given, declared), _name(document.get("name", "")))
    if sift.dimension != dimension:
        raise InputError(f"this sift takes {sift.dimension} features; the platform has {dimension}.")
    if sift.width > MOST_WIDE:
        raise InputError(f"a sift may let out {MOST_WIDE} numbers for a picture; this one has {sift.width}.")
    return sift


def _personal(document: Mapping[str, Any], pipeline: str, dimension: int) -> Sift:
    settings = _mapping(document.get("settings", {}), "settings")
    epsilon = settings.get("epsilon")
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise InputError("a personal sift needs a number epsilon among its settings.")
    inner = {"kind": settings.get("certain"), "settings": settings.get("settings", {})}
    if inner["kind"] == PersonalSift.kind:
        raise InputError("symbols are drawn at random once: a personal sift holds one of another kind.")
    rest = {name: document[name] for name in ("arrays", "name") if name in document}
    return PersonalSift(sift_from_json(inner | rest, pipeline=pipeline, dimension=dimension), float(epsilon))


def _made(kind: str, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]], name: str) -> Sift:
    try:
        return _KINDS[kind].from_parts(settings, arrays, name)
    except InputError:
        raise
    except KeyError as missing:
        raise InputError(f"a {kind} sift needs {missing.args[0]!r}, which is not there.") from None
    except (TypeError, ValueError, IndexError, OverflowError):
        raise InputError(f"the parts of this {kind} sift do not fit each other.") from None


def _arrays(given: Mapping[str, Any], declared: bool) -> dict[str, NDArray[np.float64]]:
    """Return every array of finite numbers; what is no number, or too many, is refused before an array is made."""
    lists = {str(name): given[name] for name in given if declared or name in _PLAIN}
    total = sum(_count(name, one) for name, one in lists.items())
    if total > MOST_NUMBERS:
        raise InputError(f"a sift may have {MOST_NUMBERS:,} numbers in all; this one has {total:,}.")
    return {name: _numbers(name, one) for name, one in lists.items()}


def _count(name: str, given: Any) -> int:
    """Return how many numbers a list holds. numpy would pad texts to the longest of them, and only then tell."""
    rows = given if isinstance(given, list) and given and isinstance(given[0], list) else [given]
    for row in rows:
        if not isinstance(row, list) or len(row) != len(rows[0]) or not set(map(type, row)) <= {int, float}:
            where = f"{name[:_NAME_LENGTH]!r} of a sift"
            raise InputError(f"{where} must be a list of numbers, or of rows of the same length.")
    return len(rows) * len(rows[0])


def _numbers(name: str, given: Any) -> NDArray[np.float64]:
    try:
        array = np.array(given, dtype=np.float64)
    except OverflowError:
        array = np.array([np.inf])
    if not (np.abs(array) <= LARGEST).all():
        raise InputError(f"{name[:_NAME_LENGTH]!r} of a sift must hold finite numbers within +-{LARGEST:g}.")
    return array


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"the {what} of a sift are a JSON object.")
    return given


def _name(given: Any) -> str:
    if not isinstance(given, str) or len(given) > _NAME_LENGTH or not given.isprintable():
        raise InputError(f"the name of a sift is one line of at most {_NAME_LENGTH} printable characters.")
    return given


def _refuse_unknown(document: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in document:
        if key not in known:
            raise UnknownNameError("part of a sift", str(key)[:_NAME_LENGTH], known)
