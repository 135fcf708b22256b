"""Every attack against what an aggregator really receives: a round of each scheme is played, recorded and attacked.

A plain update must give its sample away (the attack works; a part of an update shows a part), and the aggregator of an
encrypted or masked round must do no better than chance, in the values it guesses and in the places it sees. The
attacker is told which of its guesses is the best, its sign and its length; so what fails here fails for want of
information, not of luck.

No finite test proves a cipher. What is proven is in the statements of the schemes; what is tested here is that the
messages of this implementation give away nothing that simple means could see: a forgotten mask, a value in the clear,
places in the order of the model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.leakage.cases import Case
from blindsight.audit.leakage.chance import ChanceTest, Disguise, needed_trials, places_test, values_test
from blindsight.audit.leakage.recovery import RECOVERED, Recovery, Vector
from blindsight.audit.leakage.views import OwnerGuesses, Recorder, guesses_from_view
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.sums.session import Session, open_session
from blindsight.sums.terms import SCHEMES

_CHANCE_SAMPLES = 49


@dataclass(frozen=True, eq=False)
class SchemeLeak:
    """What one attack found in one scheme's round.

    `values` tests the closest guess of the victim's update, `places` where it is (None if the messages name no places).
    `sample` is what the attack makes of that guess, `sample_cosine` its |cosine| with the true sample, and
    `sample_chances` are those of guesses for other updates. `kept` is the share of its entries that an update had.
    """

    scheme: str
    case: str
    kept: float
    dimension: int
    guesses: int
    values: ChanceTest
    places: ChanceTest | None
    sample: Vector = field(repr=False)
    sample_cosine: float
    sample_chances: Vector = field(repr=False)

    @property
    def recovered(self) -> bool:
        """Whether the victim's update is known."""
        return self.values.score >= RECOVERED

    @property
    def sample_chance(self) -> float:
        """What the attack makes of a guess for another update resembles the sample so much, in half of the cases."""
        return float(np.median(self.sample_chances))

    @property
    def at_chance(self) -> bool:
        """Whether nothing at all was learned."""
        return self.values.at_chance and (self.places is None or self.places.at_chance)


def attack_schemes(
    cases: Sequence[Case],
    *,
    schemes: Iterable[str] = SCHEMES,
    key_bits: int = 3072,
    insecure: bool = False,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> tuple[SchemeLeak, ...]:
    """Play one round per scheme and case and attack the first owner's update from the aggregator's view.

    `false_alarm` is the probability with which any of the tests calls chance a leak. Each has its share of it and takes
    as many draws of chance as that needs: the cost of the tests grows with 1 / false_alarm.
    """
    if not cases or len({tuple(case.updates) for case in cases}) != 1:
        raise InputError("the cases to attack must have the same owners, and there must be one at least.")
    generator, named, leaks = science(random_state), tuple(schemes), list[SchemeLeak]()
    rate = false_alarm / max(2 * len(named) * len(cases), 1)  # one test of values and one of places, for each of them
    needed_trials(rate)  # refuses a rate before anything is played
    for scheme in named:
        for dimension in sorted({case.dimension for case in cases}):
            alike, recorder = [case for case in cases if case.dimension == dimension], Recorder()
            session = open_session(
                scheme,
                members=tuple(alike[0].updates),
                dimension=dimension,
                minimum_per_position=1,  # as in the paper
                key_bits=key_bits,
                insecure=insecure,
                run=f"audit-{generator.integers(2**62):x}",
                source=source,
                record=recorder,
            )
            for number, case in enumerate(alike):
                disguise = Disguise.draw(dimension, generator)
                guesses = _play(session, recorder, case, disguise, number)
                leaks.append(_attack(scheme, case, guesses, disguise, generator, rate))
                progress("attacking schemes", len(leaks), len(named) * len(cases))
    return tuple(leaks)


def _play(session: Session, recorder: Recorder, case: Case, disguise: Disguise, number: int) -> OwnerGuesses:
    """Play a round of disguised updates and return what its aggregator can make of the victim's messages."""
    recorder.forget_rounds()
    session.round({owner: disguise.hide(update) for owner, update in case.updates.items()}, number)
    return guesses_from_view(recorder.received, case.victim, case.dimension)


def _attack(
    scheme: str,
    case: Case,
    guesses: OwnerGuesses,
    disguise: Disguise,
    generator: np.random.Generator,
    rate: float,
) -> SchemeLeak:
    truth = disguise.hide(case.updates[case.victim])
    values = values_test(guesses.rows, truth, generator=generator, false_alarm=rate)
    places = None
    if guesses.places is not None:
        places = places_test(guesses.places, truth, block=guesses.block, generator=generator, false_alarm=rate)
    found = _recovered(case, guesses, disguise)
    others = [Disguise.draw(case.dimension, generator) for _ in range(_CHANCE_SAMPLES)]
    return SchemeLeak(
        scheme=scheme,
        case=case.name,
        kept=case.kept,
        dimension=case.dimension,
        guesses=len(guesses.rows),
        values=values,
        places=places,
        sample=found.nearest(case.sample),
        sample_cosine=found.closest(case.sample),
        sample_chances=np.array([_recovered(case, guesses, other).closest(case.sample) for other in others]),
    )


def _recovered(case: Case, guesses: OwnerGuesses, disguise: Disguise) -> Recovery:
    """Return what the attack makes of the guess that is closest to the victim's update in this disguise."""
    truth = disguise.hide(case.updates[case.victim])
    lengths = np.maximum(np.linalg.norm(guesses.rows, axis=1), 1e-300)
    cosines = guesses.rows @ truth / lengths
    best = int(np.argmax(np.abs(cosines)))
    scale = np.sign(cosines[best]) * np.linalg.norm(truth) / lengths[best]
    return case.attack(disguise.reveal(scale * guesses.rows[best]))


def scheme_findings(leaks: Iterable[SchemeLeak]) -> tuple[Finding, ...]:
    """Return one row per scheme and attack: of a plain round about the sample, of others about the update."""
    return tuple(_plain_finding(leak) if leak.scheme == "plain" else _protected_finding(leak) for leak in leaks)


def _plain_finding(leak: SchemeLeak) -> Finding:
    whole, chance = leak.kept == 1, float(leak.sample_chances.max())
    best: Verdict = "as stated" if leak.sample_cosine >= RECOVERED else "undecided"
    part: Verdict = "leaks" if leak.sample_cosine > chance else "at chance"
    return Finding(
        claim="a plain update gives its training sample away"
        if whole
        else f"the largest {leak.kept:.0%} of a plain update do not show its training sample",
        source="Yonetani et al. 2017, supplement, section 2" if whole else "nobody",
        proven="nothing is protected",
        measure=f"|cosine| of the recovered sample with the true one ({RECOVERED} is recovered; {chance:.2f} is the "
        f"most of {leak.sample_chances.size} guesses for other updates)",
        measured=_exactly(leak.sample_cosine),
        verdict=best if whole else part,
        attack=f"{leak.case}: aggregator's recorded view",
        details=_details(leak),
    )


def _protected_finding(leak: SchemeLeak) -> Finding:
    test = leak.values
    return Finding(
        claim=f"the aggregator of a {leak.scheme} round learns nothing of an owner's update but the sum",
        source=f"the statement of {leak.scheme}",
        proven="cryptographically, under the assumptions of the statement",
        measure=f"|cosine| of the best of {leak.guesses} guesses with the update in one round; {test.threshold:.2f} is "
        f"chance's in all but {test.false_alarm:g} of the cases",
        measured=_exactly(test.score),
        verdict="at chance" if leak.at_chance else "refuted",
        attack=f"{leak.case}: aggregator's recorded view",
        details=_details(leak),
    )


def _exactly(figure: float) -> Interval:
    """Return a figure of this round: there is nothing to be unsure of."""
    return Interval(figure, figure, figure, 1.0)


def _details(leak: SchemeLeak) -> dict[str, str | float | None]:
    return {
        "scheme": leak.scheme,
        "dimension": leak.dimension,
        "update_cosine": leak.values.score,
        "p_value": leak.values.p_value,
        "places_p_value": None if leak.places is None else leak.places.p_value,
        "false_alarm": leak.values.false_alarm,
        "sample_cosine": leak.sample_cosine,
        "sample_chance": leak.sample_chance,
    }
