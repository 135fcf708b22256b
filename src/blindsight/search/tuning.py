"""How many lists a search must open: as few as reach the wanted recall, measured on codes like those that are asked.

Recall is the share of a search's k hits that are no farther than the true k-th neighbour (equal distances are equally
good). It is measured for a sample of queries: codes of the index itself, each looking for others than itself, or codes
that the caller says are typical. The estimate must exceed the target by two standard errors, so that other queries
reach it too. Codes with little noise need few lists; heavily flipped ones need so many that comparing all codes costs
less, and then that is the plan.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from blindsight.rng import science
from blindsight.search.codes import Codes, pack
from blindsight.search.exact import nearest
from blindsight.search.lists import Lists

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
        ceiling = max(_K, 1 << (k - 1).bit_length())
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
    wanted = min(k, len(codes))
    more = min(wanted + 1, len(codes))  # one more, for a query finds itself
    truth, _ = _others(*nearest(codes, queries, more), own, wanted)

    def measure(probes: int) -> tuple[float, bool]:
        found, positions = _others(*lists.search(queries, more, probes), own, wanted)
        shares = np.mean((positions >= 0) & (found <= truth[:, -1:]), axis=1)
        margin = 2 * float(np.std(shares)) / len(shares) ** 0.5
        return float(np.mean(shares)), float(np.mean(shares)) - margin >= recall

    most = len(lists) if always else max(1, int(_WORTHWHILE * len(lists)))
    high = 1
    while not measure(high)[1] and high < most:
        high = min(2 * high, most)
    best, enough = measure(high)
    if not enough:
        return Plan(k, len(lists), high if always else 0, best)
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if measure(middle)[1] else (middle, high)
    return Plan(k, len(lists), high, measure(high)[0])


def _others(
    distances: NDArray[np.int32], positions: NDArray[np.int64], own: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the first k hits of each query that are not itself."""
    order = np.argsort(positions == own[:, None], axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(positions, order, axis=1)
