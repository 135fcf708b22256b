"""What an aggregator's own view of a run tells of each owner's update, tested against the truth of the recording.

*Values.* The guesses are those of `leakage.views`. What all messages have in common (formats, headers) says nothing, so
guesses and updates are taken less those of the next owner: a guess is right if it tells how two owners differ. Chance
is the same score with the signs of the difference drawn at random.

    Claim. If the messages are independent of the updates, and exchanging an entry of one owner's guesses for the
    other's does not change their distribution, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. The exchange turns the sign of an entry of the guesses' difference around, which gives the same score as
    turning that of the updates' around; so the true score and the `trials` others have one distribution. []

Ciphertexts and masked updates are such: both owners' bytes are draws of one distribution, independent of each other and
of the bytes beside them. The places of DPHE, which lie in a message in ascending order, are not, and are blotted out:
what they tell is tested where the aggregator's set-up is known (`leakage.schemes`), which a recording leaves out. Where
the messages of two owners differ in length nothing is subtracted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.leakage.chance import ChanceTest, needed_trials
from blindsight.audit.leakage.recovery import RECOVERED
from blindsight.audit.leakage.views import guesses_from_view
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe.messages import Contribution, Shard
from blindsight.rng import science

Vector = NDArray[np.float64]

_CHUNK = 256


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
    updates = {owner: np.asarray(update, dtype=np.float64) for owner, update in sent.items() if np.any(update)}
    if not updates:
        raise InputError("every owner of the recorded round sent zeros: there is nothing to find out.")
    generator, rate = science(random_state), false_alarm / len(updates)
    needed_trials(rate)
    leaks, owners, messages = [], list(updates), [_without_places(message) for message in received]
    for owner, next_owner in zip(owners, owners[1:] + owners[:1], strict=True):
        rows, truth = guesses_from_view(messages, owner, updates[owner].size).rows, updates[owner]
        others = guesses_from_view(messages, next_owner, truth.size).rows
        if others.shape == rows.shape and (truth != updates[next_owner]).any():
            rows, truth = rows - others, truth - updates[next_owner]
        leaks.append(OwnerLeak(owner, len(rows), _signs_test(rows, truth, generator, rate)))
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
        measure=f"|cosine| of the best of {worst.guesses} guesses with {worst.owner}'s update, less another's "
        f"(chance exceeds {test.threshold:.2f} in {test.false_alarm:g} of the cases)",
        measured=Interval(test.score, test.score, test.score, 1.0),  # of this round: nothing to be unsure of
        verdict=verdict,
        attack=attack,
        details={
            "owners": len(leaks),
            "owners at chance": sum(leak.at_chance for leak in leaks),
            "p_value": test.p_value,
            "false_alarm": test.false_alarm,
        },
    )


def _without_places(message: bytes) -> bytes:
    """Return a contribution of DPHE with zeros for its places; other messages as they are."""
    try:
        contribution = decode(message, Contribution)
        shard = decode(contribution.shard, Shard)
    except MessageError:
        return message
    blotted = Shard(shard.salt, np.zeros_like(shard.places), shard.ciphertexts)
    return encode(Contribution(contribution.receipt, encode(blotted)))


def _signs_test(rows: NDArray[np.float64], truth: Vector, generator: np.random.Generator, rate: float) -> ChanceTest:
    """Test guesses, one per row, of a vector against itself with signs drawn at random."""
    lengths = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    agreement = (rows / lengths * (truth / np.linalg.norm(truth))).astype(np.float32)
    drawn = np.empty(needed_trials(rate))
    for start in range(0, drawn.size, _CHUNK):
        shape = agreement.shape[1], min(_CHUNK, drawn.size - start)
        signs = generator.choice(np.array([-1, 1], dtype=np.float32), size=shape)
        drawn[start : start + shape[1]] = np.abs(agreement @ signs).max(axis=0)
    score = float(np.abs(agreement.sum(axis=1)).max())
    larger = int(np.count_nonzero(drawn >= score - 1e-6))  # ties, up to single precision, count for chance
    threshold = float(np.quantile(drawn, 1 - rate, method="higher"))
    return ChanceTest(score, threshold, (1 + larger) / (1 + drawn.size), rate, drawn.size)
