"""What an aggregator's own view of a run tells of each owner's update, tested against the truth of the recording.

*Values.* The guesses are those of `leakage.views`. What all owners' messages have in common (formats, headers) is taken
from guesses and updates alike, by subtracting their means over the owners: so a guess is right if it tells how an
owner differs from the others. Chance is the same score with the signs of the update's blocks drawn at random.

    Claim. If what is left of the messages is independent of the updates and as likely as its negative, block by block,
    p = (1 + scores of chance at least as large) / (1 + trials) has P(p <= alpha) <= alpha.
    Proof. Turning the signs of blocks of the update around is the same as turning those of the guesses around, which
    does not change their distribution; so the true score and the `trials` others have one distribution. []

Ciphertexts and masked sums are such: each owner's bytes are independent draws of one distribution, so their differences
are as likely as their negatives. Where owners' messages have different lengths nothing is subtracted.

*Places* are tested by `leakage.chance.places_test`, which rests on the secrecy of the users' permutation alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.leakage.chance import ChanceTest, needed_trials, places_test
from blindsight.audit.leakage.recovery import RECOVERED
from blindsight.audit.leakage.views import guesses_from_view
from blindsight.errors import InputError
from blindsight.rng import science

Vector = NDArray[np.float64]

_CHUNK = 256


@dataclass(frozen=True)
class OwnerLeak:
    """What the best of so many guesses of one owner's update is worth, and the places it was sent for (if any)."""

    owner: str
    guesses: int
    values: ChanceTest
    places: ChanceTest | None

    @property
    def at_chance(self) -> bool:
        """Whether nothing at all was learned; an update that is known is no luck."""
        lucky = self.values.at_chance and self.values.score < RECOVERED
        return lucky and (self.places is None or self.places.at_chance)


def attack_view(
    received: Sequence[bytes],
    sent: Mapping[str, Vector],
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
) -> tuple[OwnerLeak, ...]:
    """Attack every owner's update from what the aggregator received in one round; `sent` is the truth.

    `false_alarm` is the probability with which any of the tests calls chance a leak; the cost grows with its inverse.
    """
    updates = {owner: np.asarray(update, dtype=np.float64) for owner, update in sent.items() if np.any(update)}
    if not updates:
        raise InputError("every owner of the recorded round sent zeros: there is nothing to find out.")
    generator, rate = science(random_state), false_alarm / (2 * len(updates))
    needed_trials(rate)
    common = _common(received, updates)
    leaks = []
    for owner, update in updates.items():
        guesses, places = guesses_from_view(received, owner, update.size), None
        if guesses.places is not None:
            places = places_test(guesses.places, update, block=guesses.block, generator=generator, false_alarm=rate)
        rows, truth = (guesses.rows - common[0], update - common[1]) if common else (guesses.rows, update)
        values = _signs_test(rows, truth, guesses.block, generator, rate)
        leaks.append(OwnerLeak(owner, len(rows), values, places))
    return tuple(leaks)


def view_finding(leaks: Sequence[OwnerLeak], scheme: str, attack: str) -> Finding:
    """Return one row: the owner about whom most was found out."""
    worst = min(leaks, key=lambda leak: (leak.at_chance, -leak.values.score))
    test, plain = worst.values, scheme == "plain"
    verdict: Verdict = "at chance" if worst.at_chance else "leaks" if plain else "refuted"
    return Finding(
        claim=f"{scheme}: the aggregator of this run learned nothing of an owner's update but the sum",
        source="nobody" if plain else "the statement of the run",
        proven="nothing: updates were sent in the clear" if plain else "cryptographically, under its assumptions",
        measure=f"|cosine| of the best of {worst.guesses} guesses with {worst.owner}'s update, less the owners' mean "
        f"(chance exceeds {test.threshold:.2f} in {test.false_alarm:g} of the cases)",
        measured=Interval(test.score, test.score, test.score, 1.0),  # of this round: nothing to be unsure of
        verdict=verdict,
        attack=attack,
        details={
            "owners": len(leaks),
            "owners at chance": sum(leak.at_chance for leak in leaks),
            "p_value": test.p_value,
            "places_p_value": None if worst.places is None else worst.places.p_value,
            "false_alarm": test.false_alarm,
        },
    )


def _common(received: Sequence[bytes], updates: Mapping[str, Vector]) -> tuple[NDArray[np.float64], Vector] | None:
    """Return the means over the owners of guesses and updates; None where one of them would not make sense."""
    middle: Vector = np.mean(list(updates.values()), axis=0)
    if any(np.array_equal(update, middle) for update in updates.values()):
        return None  # nobody differs from the others
    total: NDArray[np.float64] | None = None
    for owner, update in updates.items():  # of one owner at a time are guesses in memory
        rows = guesses_from_view(received, owner, update.size).rows
        if total is not None and total.shape != rows.shape:
            return None
        total = rows if total is None else total + rows
    assert total is not None
    return total / len(updates), middle


def _signs_test(
    rows: NDArray[np.float64], truth: Vector, block: int, generator: np.random.Generator, rate: float
) -> ChanceTest:
    """Test guesses, one per row, of a vector against itself with the signs of its blocks drawn at random."""
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    shares = rows / lengths * (truth / np.linalg.norm(truth))
    agreement = np.add.reduceat(shares, np.arange(0, truth.size, block), axis=1).astype(np.float32)
    drawn = np.empty(needed_trials(rate))
    for start in range(0, drawn.size, _CHUNK):
        shape = agreement.shape[1], min(_CHUNK, drawn.size - start)
        signs = generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)
        drawn[start : start + shape[1]] = np.abs(agreement @ signs).max(axis=0)
    score = float(np.abs(agreement.sum(axis=1)).max())
    larger = int(np.count_nonzero(drawn >= score - 1e-6))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - rate, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + drawn.size), rate, drawn.size)
