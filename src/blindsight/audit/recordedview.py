"""What an aggregator's own view of a run tells of each owner's update, tested against the truth of the recording.

*Values.* The guesses are those of `leakage.views`, read from the fields of the owners' messages (`leakage.payloads`),
so that no name is among them. What all messages have in common (formats) says nothing, so guesses and updates are taken
less those of another owner: a guess is right if it tells how two owners differ. Chance is the same score with the signs
of the difference drawn at random.

    Claim. If the messages are independent of the updates, and exchanging an entry of one owner's guesses for the
    other's does not change their distribution, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. The exchange turns the sign of an entry of the guesses' difference around, which gives the same score as
    turning that of the updates' around; so the true score and the `trials` others have one distribution. []

That is for guesses without a byte in common. Of overlapping ones the scores are correlated, and under drawn signs less
so than under the truth; the largest of correlated normal scores is no larger than that of independent ones (Sidak, JASA
1967), so they make alarms rarer: of 435 tests in sound rounds with updates of one sign 2% had p <= 0.05.

Ciphertexts and masked updates are such: both owners' bytes are draws of one distribution, independent of each other and
of the bytes beside them. An owner that cannot be compared with any other is not tested, and not among the results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.leakage.chance import ChanceTest, needed_trials, signs_test
from blindsight.audit.leakage.payloads import Payloads, differences, owner_payloads
from blindsight.audit.leakage.recovery import RECOVERED
from blindsight.errors import InputError
from blindsight.rng import science

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class OwnerLeak:
    """What the best of so many guesses of one owner's update is worth."""

    owner: str
    guesses: int
    values: ChanceTest

    @property
    def at_chance(self) -> bool:
        """Whether nothing was learned; an update that is known is no luck, however short it is."""
        return self.values.at_chance and self.values.score < RECOVERED


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
    updates = {owner: np.asarray(update, dtype=np.float64) for owner, update in sent.items()}
    victims = [owner for owner, update in updates.items() if update.any()]
    if not victims:
        raise InputError("every owner of the recorded round sent zeros: there is nothing to find out.")
    generator, rate = science(random_state), false_alarm / len(victims)
    needed_trials(rate)
    payloads = {owner: owner_payloads(received, owner) for owner in updates}
    leaks = []
    for owner in victims:
        compared = _compared(owner, updates, payloads)
        if compared is not None:
            test = signs_test(*compared, generator=generator, false_alarm=rate)
            leaks.append(OwnerLeak(owner, len(compared[0]), test))
    if not leaks:
        raise InputError(
            "no two owners of the recorded round have different updates and sent messages that can be compared."
        )
    return tuple(leaks)


def _compared(
    owner: str, updates: Mapping[str, Vector], payloads: Mapping[str, Payloads]
) -> tuple[NDArray[np.float64], Vector] | None:
    """Return guesses of how an owner's update differs from that of the next one with another, and the truth."""
    if not payloads[owner]:
        raise InputError(f"the aggregator's view has no message of {owner!r}.")
    names = list(updates)
    start = names.index(owner) + 1
    for other in names[start:] + names[: start - 1]:
        truth = updates[owner] - updates[other]
        rows = differences(payloads[owner], payloads[other], truth.size)
        if truth.any() and len(rows):
            return rows, truth
    return None


def view_finding(leaks: Sequence[OwnerLeak], scheme: str, attack: str) -> Finding:
    """Return one row: the owner about whom most was found out."""
    worst = min(leaks, key=lambda leak: (leak.at_chance, -leak.values.score))
    test, plain = worst.values, scheme == "plain"
    verdict: Verdict = "at chance" if worst.at_chance else "leaks" if plain else "refuted"
    return Finding(
        claim=f"{scheme}: the aggregator of this run learned nothing of an owner's update but the sum",
        source="nobody" if plain else "the statement of the run",
        proven="nothing: updates were sent in the clear" if plain else "cryptographically, under its assumptions",
        measure=f"|cosine| of the best of {worst.guesses} guesses with {worst.owner}'s update, less another's "
        f"(chance exceeds {test.threshold:.2f} in {test.false_alarm:g} of the cases)",
        measured=Interval(test.score, test.score, test.score, 1.0),  # of this round: nothing to be unsure of
        verdict=verdict,
        attack=attack,
        details={
            "owners tested": len(leaks),
            "owners at chance": sum(leak.at_chance for leak in leaks),
            "p_value": test.p_value,
            "false_alarm": test.false_alarm,
        },
    )
