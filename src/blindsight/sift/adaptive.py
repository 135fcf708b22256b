"""Adaptive tests on the same verification rows: an error level for each, so that all together err with at most alpha.

*The guarantee.* With probability 1 - alpha over the draw of the verification rows, no sift that leaks more than the
threshold is ever accepted on them, whatever sequence of sifts is proposed, by any number of apps and accounts, each
chosen with knowledge of all earlier answers. An answer is one bit: accepted, or not.

*Proof.* Fix the proposers' random choices, which do not depend on the rows. Then the n-th sift is a function of the
n - 1 answers before it, so all sifts that could ever be proposed are the nodes of a binary tree known before the rows
are drawn: at depth n, C(n - 1, a) nodes lie behind a accepts. Each is a fixed sift, so judged at level e it is falsely
accepted with probability at most e (`certificate`, `verdict`). With

    e(n, a) = alpha / (n (n + 1) (a + 1) (a + 2) C(n - 1, a))

the levels of all nodes sum to alpha times sum_n 1 / (n (n + 1)) times sum_a 1 / ((a + 1) (a + 2)), each at most 1, and
a union over the tree bounds every path through it. In the end nothing is accepted on the same rows: then fresh rows are
needed. (Dwork et al., "The reusable holdout", Science 2015, answer the same question with noise; Blum & Hardt, "The
Ladder", ICML 2015, count what answers reveal, as is done here.)

The proof needs from the platform:

- *one tree for the rows*, not one for an app, an account or a process: `Tries` counts every question that was ever
  judged on rows in common, and is read back after a restart;
- *one bit*: an app is told accept or no, without reason, figure or error; nothing ends earlier because it fails;
- the same question again has the same answer, at the same level, and is no further try;
- a try whose answer is outstanding counts as a no: who proposes now does not know it yet.

Persons read figures (`consent`). An operator who shows them to apps, or lets an app's maker be one of the persons,
gives away more bits than are counted here.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, PrivacyError

SMALLEST = 1e-280


def share(tries: int, accepts: int) -> float:
    """Return the share of the error that the next try may use, after these tries and accepts on the same rows.

    >>> [round(1 / share(*history)) for history in ((0, 0), (1, 0), (1, 1))]
    [4, 12, 36]
    """
    if not 0 <= accepts <= tries:
        raise InputError(f"of {tries} tries {accepts} cannot have been accepted.")
    n, a = tries + 1, accepts
    log = math.log(n) + math.log(n + 1) + math.log(a + 1) + math.log(a + 2)
    log += math.lgamma(n) - math.lgamma(a + 1) - math.lgamma(n - a)  # of C(n - 1, a)
    found = math.exp(-log)
    if found < SMALLEST:
        raise PrivacyError(
            f"{tries} sifts were judged on these verification rows, {accepts} accepted: no further answer would be "
            "worth anything. Verify on rows that nobody has used."
        )
    return found


def question(**parts: Any) -> str:
    """Return the hash of all that an answer depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, allow_nan=False).encode()).hexdigest()


@dataclass(frozen=True)
class Try:
    """A question that was asked: on which rows, with which share of the error."""

    rows: str
    share: float


class Tries:
    """All questions that were ever judged, and which were accepted."""

    def __init__(self) -> None:
        self._asked: dict[str, Try] = {}
        self._accepted: set[str] = set()
        self._unnamed = [0, 0]
        """Tries and accepts of journals that did not name questions: they count on all rows."""

    def __len__(self) -> int:
        return len(self._asked) + self._unnamed[0]

    def asked(self, name: str) -> Try | None:
        return self._asked.get(name)

    def next(self, rows: Iterable[str]) -> float:
        """Return the share of the error for a new question on sets of rows that have something in common."""
        related = set(rows)
        mine = {name for name, one in self._asked.items() if one.rows in related}
        return share(len(mine) + self._unnamed[0], len(mine & self._accepted) + self._unnamed[1])

    def note(self, name: str | None, rows: str = "", share: float = 0.0) -> None:
        if name is None:
            self._unnamed[0] += 1
        else:
            self._asked[name] = Try(rows, share)

    def accept(self, name: str | None) -> None:
        if name is None:
            self._unnamed[1] = min(self._unnamed[1] + 1, self._unnamed[0])
        else:
            self._accepted.add(name)


@dataclass(frozen=True, eq=False)
class RowPrints:
    """Hashes of the rows and persons of a verification set."""

    rows: NDArray[np.uint64]
    persons: NDArray[np.uint64] | None
    pipeline: str

    @classmethod
    def of(cls, features: NDArray[Any], persons: NDArray[Any] | None, pipeline: str) -> "RowPrints":
        who = None if persons is None else _hashes(str(one).encode() for one in np.unique(persons))
        return cls(_hashes(row.tobytes() for row in np.ascontiguousarray(features)), who, pipeline)

    def meets(self, other: "RowPrints") -> bool:
        """Tell whether some rows or persons are in both; true where pipelines differ and persons are not known."""
        if np.intersect1d(self.rows, other.rows).size:
            return True
        if self.persons is None or other.persons is None:
            return self.pipeline != other.pipeline
        return bool(np.intersect1d(self.persons, other.persons).size)


def _hashes(parts: Iterable[bytes]) -> NDArray[np.uint64]:
    joined = b"".join(hashlib.blake2b(part, digest_size=8).digest() for part in parts)
    return np.unique(np.frombuffer(joined, dtype="<u8").astype(np.uint64))
