"""What a coalition says about somebody's update, and how much of it is true, against what it would know by chance.

`from_sum` is what every coalition has: the sum, less what its own members put into it. Where one user is left, that is
the user's update; where several are, the best guess is an equal share of it. A scheme's own attacks start from there.
What should be worth nothing (`Held`: an upload in masks, ciphertexts without a key) is tested against the truth.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.collusion.played import Coalition, Integers, PlayedRound
from blindsight.audit.leakage.chance import ChanceTest, signs_test
from blindsight.errors import InputError

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Recovery:
    """A coalition's account of one user's update, weight by weight.

    `update` is its best guess (as encoded integers, fractions where it shares out a sum), `known` marks the weights it
    is certain of, `possible` those that may be other than zero, as far as it can tell.
    """

    members: tuple[str, ...]
    victim: str
    update: NDArray[np.float64]
    known: Mask
    possible: Mask

    def __repr__(self) -> str:
        who = ", ".join(self.members)
        return f"Recovery({who} about {self.victim}: {int(self.known.sum())} of {self.known.size} weights)"


@dataclass(frozen=True, eq=False)
class Held:
    """What a coalition holds of one user's update where it should be worth nothing: guesses, a row each.

    They are of the update, or of how it differs from that of the user they are taken `less`.
    """

    rows: NDArray[np.float64]
    less: str | None = None

    def __repr__(self) -> str:
        return f"<Held: {len(self.rows)} guesses, hidden>"


@dataclass(frozen=True)
class Gain:
    """A recovery beside the truth, counted in `positions`: weights, or blocks where they share a ciphertext.

    Of the positions that the victim `changed`, the weights of `read` are known to the coalition. It cannot rule out
    `named` positions, of which `right` were changed. `wrong` counts what it was certain of and is not so. `cosine` is
    that of guess and truth, `alone` that of the best guess of its members if they did not talk to each other.
    """

    members: tuple[str, ...]
    victim: str
    positions: int
    changed: int
    read: int
    named: int
    right: int
    wrong: int
    cosine: float
    alone: float

    @property
    def overlap(self) -> float:
        """Changed and named positions in common, as a share of both together (Jaccard)."""
        return _overlap(self.right, self.named, self.changed)

    @property
    def chance_overlap(self) -> float:
        """About the overlap of as many positions named at random."""
        return _overlap(self.named * self.changed / self.positions, self.named, self.changed)


def from_sum(coalition: Coalition, victim: str) -> Recovery:
    """Return what the sum tells about a user in it, after the members have subtracted their own part."""
    if victim not in coalition.rest:
        raise InputError(f"{victim!r} is in the coalition, or not in the sum: there is nothing to find out.")
    left, released = left_of_sum(coalition)
    alone = coalition.rest == (victim,)
    known = released if alone else np.zeros_like(released)
    return Recovery(coalition.members, victim, left / len(coalition.rest), known, (left != 0) | ~released)


def left_of_sum(coalition: Coalition) -> tuple[Integers, Mask]:
    """Return the sum of everybody else's weights, and which of them were released: users know, others do not."""
    released = np.ones(coalition.result.total.size, dtype=np.bool_)
    if coalition.updates:
        released[coalition.result.withheld] = False
    left = coalition.result.total.copy()
    for own in coalition.updates.values():
        left -= np.where(released, own, 0)
    return left, released


def gain(played: PlayedRound, recovery: Recovery) -> Gain:
    """Compare a recovery with the truth."""
    truth, block = played.updates[recovery.victim], played.session.block
    changed: Mask = np.any(_by_block(truth != 0, block), axis=1)
    possible: Mask = np.any(_by_block(recovery.possible, block), axis=1)
    same = recovery.update == truth
    read = changed & _by_block(recovery.known & same, block, fill=True).all(axis=1)
    guesses = [played.pool([member]) for member in recovery.members]
    alone = [_cosine(left_of_sum(member)[0], truth) for member in guesses]
    return Gain(
        members=recovery.members,
        victim=recovery.victim,
        positions=len(changed),
        changed=int(changed.sum()),
        read=int(read.sum()),
        named=int(possible.sum()),
        right=int((possible & changed).sum()),
        wrong=int((recovery.known & ~same).sum() + (~recovery.possible & (truth != 0)).sum()),
        cosine=_cosine(recovery.update, truth),
        alone=max(alone),
    )


def held_test(
    played: PlayedRound, held: Held, victim: str, *, generator: np.random.Generator, false_alarm: float
) -> ChanceTest | None:
    """Test what a coalition holds against the truth; if it is uniform, or a ciphertext, either sign is as likely.

    None if there is nothing to find out: the truth is zero, or nothing that is held is as long as it.
    """
    truth = played.updates[victim].astype(np.float64)
    if held.less is not None:
        truth = truth - played.updates[held.less]
    if not truth.any() or not len(held.rows):
        return None
    return signs_test(held.rows, truth, generator=generator, false_alarm=false_alarm)


def _by_block(marks: Mask, block: int, *, fill: bool = False) -> Mask:
    """Return a row of marks per block; the last is filled up."""
    rows = np.full(-(-marks.size // block) * block, fill)
    rows[: marks.size] = marks
    return rows.reshape(-1, block)


def _cosine(guess: NDArray[Any], truth: Integers) -> float:
    a, b = guess.astype(np.float64), truth.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def _overlap(common: float, left: int, right: int) -> float:
    return common / (left + right - common) if left + right else 1.0
