"""What the averaged model tells one of its users about the others, with no help from anyone.

A user knows the average of N updates and its own, so it knows the sum of the other N - 1. With N = 2 that *is* the
other's update, to the last bit, and every attack on plain updates applies. With N = 3 it is the sum of two, at a cosine
of 1 / sqrt(2) to each if the two have nothing in common, and at more if they have: pictures of one kind do. Yonetani et
al. (2017, section 2.5 and supplement, Theorem 8) ask for N >= 3 because then nobody "can identify" an update; that is
true of its exact value, and not of what it looks like. All schemes here refuse N = 2; only noise helps beyond it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from blindsight.audit.finding import Finding, Interval
from blindsight.audit.leakage.cases import Case, leaky_cases
from blindsight.audit.leakage.intervals import mean_interval
from blindsight.audit.leakage.recovery import Vector, cosine
from blindsight.crypto.encoding import FixedPoint
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science

_FIXED = FixedPoint(20)  # as `open_session` rounds by default


@dataclass(frozen=True, eq=False)
class AverageLeak:
    """What a user learned of another from the average of `users` updates, one figure per victim.

    `update_cosines` are between the sum of the others and the victim's update, `sample_cosines` (without sign) between
    the sample recovered from that sum and the victim's. The `blind_` figures are those of a user that takes its own
    update and sample for the victim's: samples of one kind resemble each other. `sample` is the last one recovered.
    """

    users: int
    case: str
    update_cosines: Vector = field(repr=False)
    blind_update_cosines: Vector = field(repr=False)
    sample_cosines: Vector = field(repr=False)
    blind_sample_cosines: Vector = field(repr=False)
    sample: Vector = field(repr=False)

    @property
    def gain(self) -> Interval:
        """How much closer the average brings a user to another's update than its own is, on average over victims."""
        return mean_interval(self.update_cosines - self.blind_update_cosines)


def others_sum(average: ArrayLike, own: ArrayLike, users: int) -> Vector:
    """Return the sum of everybody else's updates, as each user computes it from the average.

    >>> others_sum([2.0, 1.0], own=[3.0, 0.0], users=2).tolist()
    [1.0, 2.0]
    """
    if users < 2:
        raise InputError(f"an average tells about others if there are any; got {users} users.")
    difference: Vector = users * np.asarray(average, dtype=np.float64) - np.asarray(own, dtype=np.float64)
    return difference


def attack_averages(
    samples: ArrayLike,
    *,
    users: Sequence[int] = (2, 3, 5),
    victims: int = 100,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[AverageLeak, ...]:
    """Attack one user's update by another's means, for each number of `users` and kind of update, on fresh victims."""
    if victims < 2:
        raise InputError(f"an interval takes two victims or more; got {victims}.")
    generator, leaks = science(random_state), []
    for number in users:
        owners = tuple(f"owner {index}" for index in range(number))
        figures, last = defaultdict(list), dict[str, Vector]()
        for victim in range(victims):
            for case in leaky_cases(samples, random_state=generator, owners=owners):
                found, last[case.name] = _attack(case)
                figures[case.name].append(found)
            progress(f"attacking averages of {number}", victim + 1, victims)
        for name, rows in figures.items():
            update, blind_update, sample, blind_sample = np.array(rows).T
            leaks.append(AverageLeak(number, name, update, blind_update, sample, blind_sample, last[name]))
    return tuple(leaks)


def _attack(case: Case) -> tuple[tuple[float, float, float, float], Vector]:
    """Let the last owner attack the first; return the figures in the order of `AverageLeak`, and the sample."""
    encoded = {owner: _FIXED.encode(update) for owner, update in case.updates.items()}
    curious = list(encoded)[-1]
    total = _FIXED.decode(np.sum(list(encoded.values()), axis=0))
    rest = others_sum(total / len(encoded), _FIXED.decode(encoded[curious]), len(encoded))
    found = case.attack(rest)
    sent = case.updates[case.victim]
    figures = (
        cosine(rest, sent),
        cosine(case.updates[curious], sent),
        found.closest(case.sample),
        abs(cosine(case.samples[curious], case.sample)),
    )
    return figures, found.nearest(case.sample)


def average_findings(leaks: Iterable[AverageLeak]) -> tuple[Finding, ...]:
    """Return one row per number of users and kind of update."""
    return tuple(_finding(leak) for leak in leaks)


def _finding(leak: AverageLeak) -> Finding:
    two = leak.users == 2
    return Finding(
        claim=f"with N = {leak.users} users nobody identifies another's update from the average",
        source="nobody (the paper asks for N >= 3)" if two else "Yonetani et al. 2017, Theorem 8",
        proven="false: the average minus one's own is the other's" if two else "of exact values, not of resemblance",
        measure="cosine of the sum of the others with another user's update",
        measured=mean_interval(leak.update_cosines),
        verdict="leaks" if leak.gain.low > 0 else "at chance",
        attack=f"{leak.case}: a user subtracts its own update",
        details={
            "users": leak.users,
            "victims": len(leak.update_cosines),
            "blind_update_cosine": float(np.mean(leak.blind_update_cosines)),
            "sample_cosine": float(np.mean(leak.sample_cosines)),
            "blind_sample_cosine": float(np.mean(leak.blind_sample_cosines)),
        },
    )
