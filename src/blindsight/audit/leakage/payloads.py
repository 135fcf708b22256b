"""What of a message can depend on an update: its fields of bytes, without names, numbers and the frames around them.

Names differ in length from owner to owner and shift everything behind them, so two owners' messages can only be
compared field by field. The places of DPHE, which lie in a shard in ascending order, are left out as well: what they
tell is tested where the aggregator's set-up is known (`leakage.schemes`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.leakage.views import author, stretches
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode
from blindsight.errors import MessageError
from blindsight.learn.dphe.messages import Contribution, Receipt, Shard
from blindsight.learn.lattice import messages as lattice
from blindsight.learn.masks.messages import Advertisement, Consistency, Reveal, SealedShares, Upload
from blindsight.learn.schemes.plain import Update

_KINDS: tuple[type[Message], ...] = (
    Update,
    Signed,
    Contribution,
    Receipt,
    Shard,
    lattice.Vouched,
    lattice.Receipt,
    Advertisement,
    SealedShares,
    Upload,
    Consistency,
    Reveal,
)
_FRAME = 256  # of compressed ciphertexts: lengths, and the tables of the compression

Payloads = dict[str, list[bytes]]
"""By the name of a field, what one owner sent in it, message by message."""


def owner_payloads(received: Iterable[bytes], owner: str) -> Payloads:
    """Return what an owner sent, of all that an aggregator received."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for message in received:
        if author(message) == owner:
            for field, data in _leaves(message):
                found[field].append(data)
    return dict(found)


def differences(one: Payloads, other: Payloads, dimension: int) -> NDArray[np.float64]:
    """Return guesses of how two owners' updates differ, a row each: no rows if nothing that they sent is long enough.

    Of fields that differ in length, as compressed ciphertexts do, the front and the end are left out, which tell how
    long they are.
    """
    rows = []
    for field in one:
        for mine, theirs in zip(one[field], other.get(field, ()), strict=False):
            both = (mine, theirs) if len(mine) == len(theirs) else _cut(mine, theirs)
            left, right = (stretches(data, dimension) for data in both)
            rows += [guess - another for guess, another in zip(left, right, strict=True)]
    return np.array(rows).reshape(-1, dimension)


def _leaves(message: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a message and of the messages within."""
    found = decode(message, *_KINDS)
    for field in fields(found):  # type: ignore[arg-type]
        data = _bytes_of(getattr(found, field.name))
        if data is None or (isinstance(found, Shard) and field.name == "places"):
            continue
        if _is_message(data):
            yield from _leaves(data)
        else:
            yield f"{type(found).__module__}.{type(found).__name__}.{field.name}", data


def _bytes_of(value: Any) -> bytes | None:
    """Return a field as bytes; None if it holds names or a number."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, tuple) and all(isinstance(item, bytes) for item in value):
        return b"".join(value)
    return None


def _is_message(data: bytes) -> bool:
    try:
        decode(data, *_KINDS)
    except MessageError:
        return False
    return True


def _cut(mine: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    until = max(min(len(mine), len(theirs)) - _FRAME, _FRAME)
    return mine[_FRAME:until], theirs[_FRAME:until]
