"""Who takes part, and what is wrong with whose data: every complaint names the owner.

An owner is a pair of features and labels (for clustering: features alone), or a function without arguments that
returns them and is called anew in each round, so that pictures can stay where they are until they are needed.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.data.sites import error_context
from blindsight.errors import DataError, InputError
from blindsight.learn.model import Floats
from blindsight.validation import check_features

Load = Callable[[], Any]
Owner = Any | Load
Owners = Sequence[Owner] | Mapping[str, Owner]
"""A list, whose owners are called "owner 1", "owner 2", ..., or a mapping from names."""

LEAST_OWNERS = 3


def name_owners(owners: Owners) -> dict[str, Load]:
    """Return a function that loads its data for every owner, by name."""
    if isinstance(owners, Mapping):
        named = dict(owners)
    elif isinstance(owners, Sequence):
        named = {f"owner {number}": owner for number, owner in enumerate(owners, start=1)}
    else:
        raise InputError("owners must be a list with one entry per owner, or a mapping from names.")
    if len(named) < LEAST_OWNERS:
        raise InputError(
            f"a federation needs at least {LEAST_OWNERS} owners; got {len(named)}. With fewer, each reads the others' "
            "update from the sum; one alone is trained by fit without public data."
        )
    return {str(name): _loader(owner) for name, owner in named.items()}


def _loader(owner: Owner) -> Load:
    """Return a function that gives an owner's data; whatever goes wrong with it is trouble with these data."""

    def load() -> Any:
        try:
            return owner() if callable(owner) else owner
        except Exception as error:
            raise DataError(f"its data could not be loaded: {error}") from error

    return load


def check_pair(data: Any, dimensions: int | None = None) -> tuple[Floats, NDArray[Any]]:
    """Return checked features, of so many dimensions, and one row of labels for each."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError("data must be a pair (features, labels).")
    features, labels = check_features(data[0], dimensions, precision="wide"), np.asarray(data[1])
    if labels.shape[:1] != (len(features),):
        raise InputError(f"there must be a label per sample; got labels of shape {labels.shape} for {len(features)}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("labels must be finite; got NaN or infinity.")
    return features, labels


def survey(loads: Mapping[str, Load], check: Callable[[Any], tuple[NDArray[Any], ...]]) -> tuple[int, list[str]]:
    """Check everybody's data before a run; return how many samples there are and a fingerprint of each one's data."""
    samples, prints = 0, []
    for name, load in loads.items():
        with error_context(name):
            arrays = check(load())
        samples += len(arrays[0])
        prints.append(_fingerprint(arrays))
    return samples, prints


def _fingerprint(arrays: tuple[NDArray[Any], ...]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        content = array if array.dtype.kind != "O" else array.astype(np.str_)
        digest.update(f"{content.dtype.str} {content.shape}\n".encode() + np.ascontiguousarray(content).tobytes())
    return digest.hexdigest()
