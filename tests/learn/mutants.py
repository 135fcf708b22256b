"""Messages that are almost right: one field or some bytes altered, with a checksum that fits."""

import hashlib
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np

from blindsight.crypto.wire import encode
from blindsight.errors import InputError

LARGEST, LEAST = 2**63 - 1, -(2**63)


def wrapping(count):
    """Places that ascend only if their differences wrap around."""
    places = np.arange(count)
    places[count // 2 :] += LEAST
    places[count // 2 - 1] = LARGEST
    assert (np.diff(places) > 0).all()
    return places


def checked(blob):
    """The same bytes with a checksum that is right again."""
    return blob[:-32] + hashlib.sha256(blob[:-32]).digest()


def altered(value, rng):
    """Another value of a field, mostly a strange one."""
    match value:
        case np.ndarray():
            scalar, long = np.zeros((), dtype=value.dtype), value.ravel()
            others = [scalar, long[:0], long[:, None], long[::-1], long[1:], np.repeat(value, 2, axis=0), value[None]]
            if value.dtype == np.int64:
                others += [wrapping(max(2, value.size)), long + LARGEST, -long - 1, np.full_like(value, 2)]
            return others[rng.integers(len(others))]
        case int():
            return int(rng.choice([-1, 0, value + 1, value + 2, LARGEST])) if rng.random() < 0.7 else 1 << 4000
        case bytes():
            byte = bytes([rng.integers(256)])
            place = int(rng.integers(len(value) or 1))
            return [b"", value[:-1], value + byte, value * 2, value[:place] + byte + value[place + 1 :]][
                rng.integers(5)
            ]
        case str():
            return ["", "zoe", value + "x", "bob"][rng.integers(4)]
        case tuple():
            others = [(), value[:-1], value * 2, value[::-1]]
            if value:
                place = int(rng.integers(len(value)))
                others.append((*value[:place], altered(value[place], rng), *value[place + 1 :]))
            return others[rng.integers(len(others))]
    raise TypeError(type(value))


def mutant(message, rng):
    """A message as bytes with one field or some bytes altered; its checksum is right."""
    while rng.random() < 0.6:
        field = fields(message)[rng.integers(len(fields(message)))].name
        with suppress(InputError):  # what cannot be written
            return encode(replace(message, **{field: altered(getattr(message, field), rng)}))
    blob = bytearray(encode(message))
    for place in rng.integers(0, len(blob) - 32, rng.integers(1, 4)):
        blob[place if rng.random() < 0.5 else place % 120] ^= int(rng.integers(1, 256))  # often a header
    return checked(bytes(blob))
