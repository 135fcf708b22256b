"""Partitions: which owner has which pictures, as index arrays, one per owner, repeatable by `random_state`.

Every picture goes to exactly one owner (`overlapping` alone gives each to several), no owner is left without pictures,
and where persons are known all pictures of a person stay together: a model tested on people it was trained on measures
recognition, not learning. Indices are sorted.

`equal` and `overlapping` are the two conditions of Figure 4 of DPHE (Yonetani, Boddeti, Kitani & Sato, ICCV 2017,
section 3.2). Right: one split of the n training pictures among N users, who own n/N each and share none. Left: the
random split into five is drawn 1, 2, 5, 10 or 20 times, which makes N = 5, 10, 25, 50, 100 users who always own n/5
pictures, and each picture as many owners as there were draws. `by_class` is the Dirichlet label skew of Hsu, Qi & Brown
(2019): small concentrations give owners few classes each.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.data.dataset import Dataset
from blindsight.errors import InputError
from blindsight.rng import science

Indices = NDArray[np.int64]
Seed = int | np.random.Generator | None
Sharing = Literal["equal", "by-class", "by-person"]
"""How private rows are shared out: at random, skewed by class (Dirichlet), or each person to one owner."""


def equal(n: int, owners: int, *, random_state: Seed = None) -> list[Indices]:
    """Share `n` pictures out at random in parts whose sizes differ by at most one.

    >>> [part.tolist() for part in equal(7, 3, random_state=0)]
    [[2, 3, 4], [5, 6], [0, 1]]
    """
    _check_owners(n, owners)
    return [_sorted(part) for part in np.array_split(science(random_state).permutation(n), owners)]


def overlapping(n: int, owners: int, *, copies: int, random_state: Seed = None) -> list[Indices]:
    """Share `n` pictures out `copies` times over: each time an independent random split among owners/copies of them.

    DPHE's Figure 4 (left) is `overlapping(n, 5 * copies, copies=copies)` for 1, 2, 5, 10 and 20 copies.

    >>> [len(part) for part in overlapping(100, 10, copies=2, random_state=0)]
    [20, 20, 20, 20, 20, 20, 20, 20, 20, 20]
    """
    if copies < 1 or owners < 1 or owners % copies:
        raise InputError(f"owners must be a multiple of copies, both >= 1; got {owners} owners and {copies} copies.")
    rng = science(random_state)
    return [part for _ in range(copies) for part in equal(n, owners // copies, random_state=rng)]


def by_class(
    labels: ArrayLike, owners: int, *, concentration: float, minimum: int = 1, random_state: Seed = None
) -> list[Indices]:
    """Share pictures out so that each class spreads over the owners by a draw from a symmetric Dirichlet distribution.

    Large concentrations approach `equal`; small ones give each class to few owners. Owners with fewer than `minimum`
    pictures are filled up at random from the owner that has most.
    """
    codes, count = _codes(labels)
    _check_owners(len(codes), owners)
    if not 0 < concentration <= 1e6:
        raise InputError(f"concentration must be in (0, 1e6]; got {concentration}.")
    if minimum < 0 or minimum * owners > len(codes):
        raise InputError(f"{len(codes)} pictures cannot give each of {owners} owners at least {minimum}.")
    rng = science(random_state)
    parts: list[list[int]] = [[] for _ in range(owners)]
    for number in range(count):
        rows = rng.permutation(np.flatnonzero(codes == number))
        shares = rng.dirichlet(np.full(owners, concentration))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for part, share in zip(parts, np.split(rows, cuts), strict=True):
            part.extend(share.tolist())
    for part in parts:
        while len(part) < minimum:
            richest = max(parts, key=len)
            part.append(richest.pop(int(rng.integers(len(richest)))))
    return [_sorted(part) for part in parts]


def by_person(persons: ArrayLike, owners: int, *, random_state: Seed = None) -> list[Indices]:
    """Give each person to one owner: persons with most pictures first, each to the owner with fewest so far."""
    codes, count = _codes(persons)
    _check_owners(count, owners, of="persons")
    loads = [(0, owner) for owner in range(owners)]
    owner_of = np.empty(count, dtype=np.int64)
    sizes = np.bincount(codes, minlength=count)
    for person in _largest_first(sizes, science(random_state)):
        load, owner = heapq.heappop(loads)
        owner_of[person] = owner
        heapq.heappush(loads, (load + int(sizes[person]), owner))
    return _members(owner_of[codes], owners)


def by_day(days: ArrayLike) -> list[Indices]:
    """Return the pictures of day 0, day 1, ... up to the last day; days without pictures are empty.

    >>> [part.tolist() for part in by_day([0, 2, 0])]
    [[0, 2], [], [1]]
    """
    numbers = np.asarray(days, dtype=np.int64)
    if not numbers.size or numbers.min() < 0 or numbers.max() >= 100_000:
        raise InputError("days must be counted from 0 to at most 99,999, and there must be at least one picture.")
    return _members(numbers, int(numbers.max()) + 1)


def train_test(
    data: Dataset | ArrayLike,
    *,
    test: float = 0.3,
    persons: ArrayLike | None = None,
    stratify: bool = True,
    random_state: Seed = None,
) -> tuple[Indices, Indices]:
    """Split into two parts, the second with the fraction `test`; see `split`."""
    if not 0 < test < 1:
        raise InputError(f"test must be a fraction in (0, 1); got {test}.")
    train, held_out = split(data, (1 - test, test), persons=persons, stratify=stratify, random_state=random_state)
    return train, held_out


def split(
    data: Dataset | ArrayLike,
    fractions: Sequence[float],
    *,
    persons: ArrayLike | None = None,
    stratify: bool = True,
    random_state: Seed = None,
) -> list[Indices]:
    """Split a dataset, or an array of labels, into parts of the given fractions: (0.4, 0.3, 0.3).

    Where persons are given (or the dataset knows them) nobody is in two parts. With `stratify` the classes, where there
    are labels, are spread over the parts in proportion. Without persons, sizes are exact to rounding and each class is
    within fraction * parts + 1 pictures of its share; with persons both are as near as whole persons allow.
    """
    if isinstance(data, Dataset):
        size, labels = len(data), data.labels if stratify else None
        persons = data.persons if persons is None else persons
    else:
        size, labels = len(np.asarray(data)), np.asarray(data) if stratify else None
    if len(fractions) < 2 or not all(0 < fraction < 1 for fraction in fractions):
        raise InputError(f"a split needs at least two fractions in (0, 1); got {tuple(fractions)}.")
    if abs(sum(fractions) - 1) > 1e-9:
        raise InputError(f"the fractions of a split must add up to 1; got {sum(fractions):g}.")
    codes, classes = (np.zeros(size, dtype=np.int64), 1) if labels is None else _codes(labels)
    if labels is not None and classes < 2:
        raise InputError("stratifying needs labels of at least two classes; got one. Use stratify=False.")
    rng = science(random_state)
    if persons is None:
        _check_owners(size, len(fractions), each="part")
        return _members(_spread(codes, fractions, rng), len(fractions))
    who, people = _codes(persons)
    if len(who) != size:
        raise InputError(f"persons has {len(who)} rows where there are {size} pictures.")
    _check_owners(people, len(fractions), of="persons", each="part")
    return _members(_spread_persons(codes, who, fractions, rng), len(fractions))


@dataclass(frozen=True, eq=False)
class Division:
    """Rows of a collection that are public, each owner's own, and held out for tests or queries; no row is in two."""

    public: Indices
    owners: tuple[Indices, ...]
    held_out: Indices
    attributes: tuple[str, ...] = ()  # to be learned; the classes, where there are none
    names: tuple[str, ...] = ()  # of the owners; "owner 1", "owner 2", ... where they have none

    @property
    def by_owner(self) -> dict[str, Indices]:
        """The rows of each owner."""
        names = self.names or [f"owner {number}" for number in range(1, len(self.owners) + 1)]
        return dict(zip(names, self.owners, strict=True))


def divide(
    labels: ArrayLike,
    *,
    public: float,
    held_out: float = 0,
    owners: int = 1,
    sharing: Sharing = "equal",
    concentration: float = 0.5,
    persons: ArrayLike | None = None,
    stratify: bool = True,
    random_state: Seed = None,
) -> Division:
    """Divide rows into a public part, the private rows of each owner, and rows held out.

    `held_out` is a fraction of all rows, or a whole number of rows that are taken from the private ones; `public` is a
    fraction of the others. `persons` and `stratify` are those of `split`, `concentration` that of `by_class`. What
    learns from pictures may learn from the public rows alone: see `fit_to` of `extract`.
    """
    if not 0 < public < 1:
        raise InputError(f"the public share must be in (0, 1); got {public}.")
    count = None if isinstance(held_out, float) else int(held_out)
    shares = [public, 1 - public]
    if count is None:
        shares = [(1 - held_out) * public, (1 - held_out) * (1 - public), held_out]
    opened, private, *rest = split(labels, shares, persons=persons, stratify=stratify, random_state=random_state)
    tested = rest[0] if rest else opened[:0]
    if count:
        if not 1 <= count < len(private):
            raise InputError(f"{len(private)} private pictures allow 1 to {len(private) - 1} queries; got {count}.")
        order = science(random_state).permutation(private)
        private, tested = np.sort(order[count:]), np.sort(order[:count])
    if sharing == "by-person":
        if persons is None:
            raise InputError("nobody says who is on these pictures; share equally or by class.")
        places = by_person(np.asarray(persons)[private], owners, random_state=random_state)
    elif sharing == "by-class":
        marks = np.asarray(labels)[private]
        places = by_class(marks, owners, concentration=concentration, random_state=random_state)
    else:
        places = equal(len(private), owners, random_state=random_state)
    return Division(opened, tuple(private[part] for part in places), tested)


def _spread(codes: Indices, fractions: Sequence[float], rng: np.random.Generator) -> Indices:
    """Return each row's part: rows lined up class by class meet parts that take evenly interleaved turns."""
    sizes = _whole_sizes(len(codes), fractions)
    moments = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])
    turns = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(moments, kind="stable")]
    rows = rng.permutation(len(codes))
    line = rows[np.argsort(rng.permutation(codes.max() + 1)[codes[rows]], kind="stable")]
    part = np.empty(len(codes), dtype=np.int64)
    part[line] = np.roll(turns, rng.integers(len(turns)))  # so that every row is as likely in each part as any other
    return part


def _spread_persons(codes: Indices, who: Indices, fractions: Sequence[float], rng: np.random.Generator) -> Indices:
    """Return each row's part: persons, largest first, go to the part that lacks most of the classes they bring.

    What a part lacks is counted in shares of each class, and in shares of all pictures with the weight of all classes
    together, which keeps the sizes right where every person is a class. No part is left empty.
    """
    rows_of = _members(who, int(who.max()) + 1)
    totals = np.append(np.bincount(codes), len(codes))
    weights = 1 / totals
    weights[-1] *= len(totals) - 1
    lacking = np.outer(fractions, totals)
    part_of = np.empty(len(rows_of), dtype=np.int64)
    empty = set(range(len(fractions)))
    for done, person in enumerate(_largest_first(np.bincount(who), rng)):
        brings = np.append(np.bincount(codes[rows_of[person]], minlength=len(totals) - 1), len(rows_of[person]))
        must_fill = len(empty) >= len(rows_of) - done
        open_parts = sorted(empty) if must_fill else range(len(fractions))
        part = max(open_parts, key=(lacking @ (weights * brings)).__getitem__)
        part_of[person] = part
        lacking[part] -= brings
        empty.discard(part)
    return part_of[who]


def _largest_first(sizes: Indices, rng: np.random.Generator) -> Indices:
    order = rng.permutation(len(sizes))
    return order[np.argsort(-sizes[order], kind="stable")]


def _whole_sizes(n: int, fractions: Sequence[float]) -> list[int]:
    """Round the shares of `n` to whole numbers >= 1 that add up to it: the largest remainders are rounded up."""
    shares = n * np.asarray(fractions)
    sizes = np.floor(shares).astype(np.int64)
    sizes[np.argsort(sizes - shares, kind="stable")[: n - sizes.sum()]] += 1
    while sizes.min() < 1:
        sizes[sizes.argmax()] -= 1
        sizes[sizes.argmin()] += 1
    return [int(size) for size in sizes]


def _members(owner: NDArray[np.integer], owners: int) -> list[Indices]:
    order = np.argsort(owner, kind="stable")
    return np.split(order.astype(np.int64), np.searchsorted(owner[order], np.arange(1, owners)))


def _codes(values: ArrayLike) -> tuple[Indices, int]:
    column = np.asarray(values)
    if column.ndim != 1 or not len(column):
        raise InputError(f"labels and persons must be one value per picture; got shape {column.shape}.")
    different, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), len(different)


def _sorted(rows: ArrayLike) -> Indices:
    return np.sort(np.asarray(rows, dtype=np.int64))


def _check_owners(n: int, owners: int, *, of: str = "pictures", each: str = "owner") -> None:
    if owners < 1:
        raise InputError(f"owners must be >= 1; got {owners}.")
    if n < owners:
        raise InputError(f"{owners} {each}s need at least {owners} {of}, one for each {each}; got {n}.")
