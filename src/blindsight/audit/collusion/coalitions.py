"""Which coalitions a scheme has to fear, what each of them reads, and whether the scheme's statement admits it.

| coalition | plain | dphe, block-dphe | bfv | masks |
| --- | --- | --- | --- | --- |
| all users but one | the update | the update, where it is released | the update | the update |
| aggregator and key generator | - | the update | the update | - |
| aggregator and one user | - | blocks sent; weights nobody else sent | ciphertexts, and the sum | - |
| aggregator and as many users as the threshold | - | - | - | the update |
| aggregator and one user fewer | - | - | - | a masked upload, and the sum |

A coalition that reads what the statement says it would read gives the verdict *as stated*. One that reads what the
statement does not speak of *refutes* it, and one that reads nothing does *not refute* it. Ciphertexts and masked
uploads are compared with the updates: what tells more of them than chance *refutes* the statement.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from blindsight.audit.collusion import lattice, masked, permuted
from blindsight.audit.collusion.played import Coalition, PlayedRound
from blindsight.audit.collusion.recovery import Gain, Held, Recovery, from_sum, gain, held_test
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.leakage.chance import ChanceTest
from blindsight.audit.leakage.recovery import RECOVERED
from blindsight.audit.rates import rate
from blindsight.learn.aggregation import SPARSE_SCHEMES
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.masks.keys import threshold
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.statement import PrivacyStatement

Kind = Literal[
    "all users but one",
    "aggregator and key generator",
    "aggregator and one user",
    "aggregator and as many users as the threshold",
    "aggregator and one user fewer than the threshold",
]

_ADMITTED: dict[Kind, tuple[str, ...]] = {
    "all users but one": ("all users but one read", "every user's update, and all"),
    "aggregator and key generator": ("the key generator with anyone who has a contribution",),
    "aggregator and one user": ("the aggregator with any one user",),
    "aggregator and as many users as the threshold": ("fewer users than the threshold collude",),
    "aggregator and one user fewer than the threshold": (),
}
"""The words by which a statement admits that a coalition reads something."""


@dataclass(frozen=True)
class CoalitionResult:
    """What one kind of coalition found out about every user in turn, in a round of one scheme."""

    kind: Kind
    scheme: str
    admitted: str | None
    """The sentence of the scheme's statement that speaks of this coalition."""
    gains: tuple[Gain, ...] = ()
    tests: tuple[ChanceTest, ...] = ()
    """Of what a coalition holds that should be worth nothing, against each user's update."""


def attack_round(
    played: PlayedRound,
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[CoalitionResult, ...]:
    """Let every kind of coalition that its scheme has attack every user of a round.

    `false_alarm` is the probability with which a coalition that holds nothing of worth is said to hold something.
    """
    statement, plans, users = played.session.statement(), list(_plans(played)), played.result.contributors
    generator, results = science(random_state), list[CoalitionResult]()
    for done, (kind, helpers, attack) in enumerate(plans):
        progress("coalitions", done, len(plans))
        gains, tests = list[Gain](), list[ChanceTest]()
        for victim in users:
            found = attack(played.pool(helpers([user for user in users if user != victim])), victim)
            if isinstance(found, Held):
                rate = false_alarm / len(users)
                test = held_test(played, found, victim, generator=generator, false_alarm=rate)
                tests += [] if test is None else [test]
            else:
                gains.append(gain(played, found))
        admitted = _admission(statement, kind)
        results.append(CoalitionResult(kind, played.session.scheme, admitted, tuple(gains), tuple(tests)))
    progress("coalitions", len(plans), len(plans))
    return tuple(results)


def findings(results: Sequence[CoalitionResult], *, confidence: float = 0.95) -> tuple[Finding, ...]:
    """Return what was read, and for coalitions that read places where updates lie: one row each."""
    held = [_held_finding(result) for result in results if result.tests]
    read = [_weights_finding(result, confidence) for result in results if result.gains]
    located = [
        _places_finding(result, confidence)
        for result in results
        if result.scheme in SPARSE_SCHEMES and result.kind == "aggregator and one user"
    ]
    return (*read, *located, *held)


Plan = tuple[Kind, Callable[[list[str]], list[str]], Callable[[Coalition, str], Recovery | Held]]


def _plans(played: PlayedRound) -> Iterator[Plan]:
    """Yield kinds of coalitions: whom they have, given all users but the victim, and what they do."""
    scheme, users = played.session.scheme, len(played.result.contributors)
    yield "all users but one", lambda others: others, permuted.all_but_one if scheme in SPARSE_SCHEMES else from_sum
    if scheme in SPARSE_SCHEMES:
        yield "aggregator and key generator", lambda _: [AGGREGATOR, KEY_GENERATOR], permuted.with_the_key
        yield "aggregator and one user", lambda others: [AGGREGATOR, others[0]], permuted.with_a_user
    elif scheme == "bfv":
        yield "aggregator and key generator", lambda _: [AGGREGATOR, KEY_GENERATOR], lattice.with_the_key
        yield "aggregator and one user", lambda others: [AGGREGATOR, others[0]], lattice.with_a_user
    elif scheme == "masks":
        enough: Kind = "aggregator and as many users as the threshold"
        fewer: Kind = "aggregator and one user fewer than the threshold"
        needed = threshold(len(played.session.terms.users))
        few = min(needed - 1, users - 2)  # of three users, one: two are all but one
        yield enough, lambda others: [AGGREGATOR, *others[:needed]], masked.with_users
        yield fewer, lambda others: [AGGREGATOR, *others[:few]], masked.too_few


def _admission(statement: PrivacyStatement, kind: Kind) -> str | None:
    sentences = (*statement.assumptions, *statement.not_protected)
    return next((said for said in sentences if any(words in said for words in _ADMITTED[kind])), None)


def _weights_finding(result: CoalitionResult, confidence: float) -> Finding:
    read, changed = (sum(getattr(one, name) for one in result.gains) for name in ("read", "changed"))
    verdict: Verdict = "not refuted"
    if read:
        verdict = "refuted" if result.admitted is None else "as stated"
    return Finding(
        claim=f"{result.scheme}: nobody but a user knows its update",
        source="its statement" if result.admitted else "its statement, which makes no exception",
        proven=f"except: {result.admitted}" if result.admitted else "under its assumptions",
        measure="share of the positions a user changed whose weights are read exactly",
        measured=rate(read, changed, confidence=confidence),
        verdict=verdict,
        attack=result.kind,
        details=_details(result),
    )


def _held_finding(result: CoalitionResult) -> Finding:
    worst = min(result.tests, key=lambda test: (test.p_value, -test.score))
    known = any(test.score >= RECOVERED for test in result.tests)  # is no luck, however few its weights
    return Finding(
        claim=f"{result.scheme}: nobody but a user knows its update",
        source="its statement, which makes no exception",
        proven="under its assumptions",
        measure=f"|cosine| of what is left in their hands with a user's update, at worst of {len(result.tests)} users "
        f"(chance exceeds {worst.threshold:.2f} in {worst.false_alarm:g} of the cases)",
        measured=Interval(worst.score, worst.score, worst.score, 1.0),  # of this round: nothing to be unsure of
        verdict="at chance" if worst.at_chance and not known else "refuted",
        attack=result.kind,
        details={"victims": len(result.tests), "p_value": worst.p_value, "false_alarm": worst.false_alarm},
    )


def _places_finding(result: CoalitionResult, confidence: float) -> Finding:
    right, named, changed, all_positions = (
        sum(getattr(one, name) for one in result.gains) for name in ("right", "named", "changed", "positions")
    )
    measured, chance = rate(right, named, confidence=confidence), changed / all_positions
    found: Verdict = "as stated" if result.admitted else "refuted"
    return Finding(
        claim=f"{result.scheme}: nobody but a user knows where its update is not zero",
        source="its statement",
        proven=f"except: {result.admitted}",
        measure=f"share of the positions named as changed that are (chance: {chance:.3g}); "
        f"{right} of {changed} changed ones are named",
        measured=measured,
        verdict=found if measured.low > chance else "at chance",
        attack=result.kind,
        details=_details(result),
    )


def _details(result: CoalitionResult) -> dict[str, float]:
    def mean(name: str) -> float:
        return sum(float(getattr(one, name)) for one in result.gains) / len(result.gains)

    return {
        "victims": len(result.gains),
        "cosine": mean("cosine"),
        "cosine of the members' guesses without each other": mean("alone"),
        "overlap of supports": mean("overlap"),
        "overlap by chance": mean("chance_overlap"),
    }
