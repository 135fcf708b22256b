"""How many lists a search must open: as few as reach the wanted recall, measured on codes like those that are asked.

Recall is the share of a search's k hits that are no farther than the true k-th neighbour (equal distances are equally
good). It is measured for a sample of queries: codes of the index itself, each looking for others than itself, or codes
that the caller says are typical. The estimate must exceed the target by two standard errors, so that other queries
reach it too. Codes with little noise need few lists; heavily flipped ones need so many that comparing all codes costs
less, and then that is the plan.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from blindsight.rng import science
from blindsight.search.codes import Codes, pack
from blindsight.search.exact import nearest
from blindsight.search.hits import IdArray
from blindsight.search.lists import Lists

Found = tuple[NDArray[np.int32], IdArray]

_QUERIES = 256
_K = 100
_WORTHWHILE = 0.5  # share of the lists above which comparing all codes is about as cheap


@dataclass(frozen=True)
class Plan:
    """What was measured for searches of up to k hits: open `probes` of `lists`, or, if `probes` is 0, compare all."""

    k: int
    lists: int
    probes: int
    recall: float

    def __str__(self) -> str:
        measured = f"recall@{self.k} {self.recall:.3f} measured"
        if self.probes:
            return f"{self.probes} of {self.lists} lists are opened, {measured}"
        return f"all codes are compared: {self.lists} lists gave only {measured} for half of the work"


@dataclass(frozen=True)
class Questions:
    """What to measure with: `typical` queries, or codes of the index with each bit flipped with probability `flips`."""

    typical: Codes | None = None
    flips: float = 0.0

    def drawn(self, codes: Codes, bits: int) -> tuple[Codes, NDArray[np.int64]]:
        """Return queries, and the position of the code that each was made from (-1 if from none)."""
        if self.typical is not None:
            return self.typical, np.full(len(self.typical), -1, dtype=np.int64)
        generator = science(0)
        own = np.sort(generator.choice(len(codes), min(_QUERIES, len(codes)), replace=False)).astype(np.int64)
        return codes[own] ^ pack(generator.random((len(own), bits)) < self.flips), own


@dataclass
class TunedLists:
    """Lists, and the plans that were measured with them. `rows` is how many codes there were when they were made."""

    lists: Lists
    rows: int
    questions: Questions = Questions()
    plans: dict[int, Plan] = field(default_factory=dict)

    def plan_for(self, codes: Codes, bits: int, k: int, recall: float, *, always: bool) -> Plan:
        """Return the plan for searches of k hits; measured once for all up to 100, and once for every doubling."""
        ceiling = _K
        while ceiling < k:
            ceiling *= 2
        if ceiling not in self.plans:
            queries, own = self.questions.drawn(codes, bits)
            self.plans[ceiling] = tune(self.lists, codes, queries, own, ceiling, recall, always=always)
        return self.plans[ceiling]

    def fit(self, rows: int) -> bool:
        """Tell whether the lists still suit so many codes: not if they were made for half or for twice as many."""
        return self.rows / 2 < rows < 2 * self.rows


def tune(
    lists: Lists, codes: Codes, queries: Codes, own: NDArray[np.int64], k: int, recall: float, *, always: bool
) -> Plan:
    """Find the fewest probes that reach the recall@k; compare all codes if that takes too many (unless `always`)."""
    more = min(k + 1, len(codes))  # one more, for a query finds itself
    truth = nearest(codes, queries, more)

    def measure(probes: int) -> tuple[float, float]:
        return measured_recall(lists.search(queries, more, probes), truth, own, k)

    most = len(lists) if always else max(1, int(_WORTHWHILE * len(lists)))
    probes, reached, enough = fewest(measure, recall, most)
    return Plan(k, len(lists), probes if enough or always else 0, reached)


def fewest(measure: Callable[[int], tuple[float, float]], recall: float, most: int) -> tuple[int, float, bool]:
    """Return the least effort in [1, most] whose recall is enough, what it reaches, and whether any is enough.

    `measure` returns the recall of an effort and a lower bound of it, which has to be enough; both grow with effort.
    """
    low, high = 0, 1
    reached, bound = measure(high)
    while bound < recall and high < most:
        low, high = high, min(2 * high, most)
        reached, bound = measure(high)
    enough = bound >= recall
    while enough and high - low > 1:
        middle = (low + high) // 2
        other, bound = measure(middle)
        if bound >= recall:
            high, reached = middle, other
        else:
            low = middle
    return high, reached, enough


def measured_recall(found: Found, truth: Found, own: IdArray, k: int) -> tuple[float, float]:
    """Return the mean recall@k over the queries, and the same less two standard errors.

    `found` and `truth` are distances (-1 for none) and ids or positions of k + 1 hits; `own` is what each query may not
    find: itself.
    """
    near, true = (_others(*hits, own)[:, :k] for hits in (found, truth))
    good = (near >= 0) & (near <= true.max(axis=1, keepdims=True))
    shares = np.count_nonzero(good, axis=1) / np.maximum(1, np.count_nonzero(true >= 0, axis=1))
    mean, error = float(np.mean(shares)), float(np.std(shares)) / len(shares) ** 0.5
    return mean, mean - 2 * error


def _others(distances: NDArray[np.int32], ids: IdArray, own: IdArray) -> NDArray[np.int32]:
    """Return the distances of all hits but the query itself; those that are missing, -1, come last."""
    others = np.where(ids == own[:, None], -1, distances)
    return np.take_along_axis(others, np.argsort(others < 0, axis=1, kind="stable"), axis=1)
