"""Randomised response over a sift's symbols: a bound for every single person, trigger and input.

*The guarantee.* Whatever two pictures are behind it, a released symbol is at most e^epsilon times as likely from one as
from the other. So for *every* person, prepared picture and attacker, one release makes a guess right with at most
e^epsilon / (1 + e^epsilon) given even odds, and k releases with at most that of k epsilon. Nothing is estimated: it
holds without verification rows, for pictures unlike all of them, and for sifts that were made to leak on a signal.

*Mechanism.* Of m symbols the true one is released with probability e^epsilon / (e^epsilon + m - 1), any other with
1 / (e^epsilon + m - 1) (k-ary response; Warner 1965; Kairouz, Oh & Viswanath, JMLR 2016). Drawn exactly: propose any
symbol; accept it if it is the true one, else with probability e^-epsilon; else propose again. This equals releasing the
true symbol with probability `kept` = (e^epsilon - 1) / (e^epsilon + m - 1), and any symbol at random otherwise: so the
lead of every guess over a blind one, the attacker's as well as the app's, shrinks to `kept` of what it was:

| epsilon per release | 0.4 | 1 | 2 | 3 |
| --- | --- | --- | --- | --- |
| surest guess about anybody | 60% | 73% | 88% | 95% |
| an app that is right in 90% of cases, one bit | 57.9% | 68.5% | 80.5% | 86.2% |
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.sampling import bernoulli_exp
from blindsight.errors import InputError
from blindsight.metrics import Interval
from blindsight.rng import ByteSource, random_below, system_bytes
from blindsight.sift.sift import Arrays, Floats, Levels, Sift
from blindsight.sift.verdict import Verification


@dataclass(frozen=True, eq=False)
class PersonalSift(Sift):
    """The symbols of `certain`, each drawn by randomised response with this epsilon whenever it is applied."""

    certain: Sift
    epsilon: float
    kind: ClassVar[str] = "personal"

    def __post_init__(self) -> None:
        if self.certain.levels is None or isinstance(self.certain, PersonalSift):
            raise InputError(
                "randomised response needs a sift of few symbols. Quantise real numbers to few levels first."
            )
        if not 0 < self.epsilon <= 50:
            raise InputError(f"epsilon per release must be in (0, 50]; got {self.epsilon}.")

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.certain.name

    @property
    def pipeline(self) -> str:  # type: ignore[override]
        return self.certain.pipeline

    @property
    def dimension(self) -> int:
        return self.certain.dimension

    @property
    def width(self) -> int:
        return self.certain.width

    @property
    def levels(self) -> tuple[int, ...] | None:
        return self.certain.levels

    @property
    def kept(self) -> float:
        """What remains of everybody's lead over a blind guess after one release."""
        return math.expm1(self.epsilon) / (math.exp(self.epsilon) + (self.alphabet or 2) - 1)

    @property
    def sentence(self) -> str:
        return promise(self, 1)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.certain.arrays()

    def document(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "certain": self.certain.kind, "settings": self.certain.document()}

    @classmethod
    def from_parts(cls, document: Mapping[str, Any], arrays: Arrays, name: str = "") -> Self:
        certain = Sift.kinds[str(document["certain"])].from_parts(document["settings"], arrays, name)
        return cls(certain, float(document["epsilon"]))

    def _release(self, block: Floats) -> Levels:
        levels = self.certain.levels
        assert levels is not None
        true = np.ravel_multi_index(tuple(self.certain._release(block).T), levels)
        drawn = respond(np.asarray(true, dtype=np.int64), math.prod(levels), self.epsilon)
        return np.stack(np.unravel_index(drawn, levels), axis=1).astype(np.int64, copy=False)


def respond(symbols: NDArray[np.int64], m: int, epsilon: float, source: ByteSource = system_bytes) -> Levels:
    """Return symbols of m by randomised response; the probabilities are exact."""
    drawn, pending = np.array(symbols), np.arange(len(symbols))
    while pending.size:
        proposed = random_below(m, pending.size, source)
        accepted = (proposed == symbols[pending]) | bernoulli_exp(epsilon, pending.size, source)
        drawn[pending[accepted]] = proposed[accepted]
        pending = pending[~accepted]
    return drawn


def surest(epsilon: float) -> float:
    """Return how often a guess about anybody is right at most, given even odds.

    >>> round(surest(1.0), 3)
    0.731
    """
    return 1 / (1 + math.exp(-epsilon))


def promise(sift: PersonalSift, releases: int) -> str:
    """Return in one line what these releases promise to everybody, and their price in public accuracy: that of reading
    a single release; several tell the app, as everybody, more.
    """
    epsilon = sift.epsilon * releases
    surely, left = math.ceil(100 * surest(epsilon) - 1e-9), 0.5 + 0.4 * sift.kept
    return (
        "Every answer is drawn at random: about you and everybody else, on any picture, no guess is surer than "
        f"{surely}% (epsilon {epsilon:g}); the app keeps {sift.kept:.0%} of its lead: 90% right becomes {left:.0%}."
    )


def drawn(verification: Verification, kept: float, epsilon: float) -> Verification:
    """Return what a verification of certain symbols says of drawn ones: leads shrink to `kept`, and to epsilon's."""

    def lead(found: float) -> float:
        return found if found <= 0 else min(kept * found, surest(epsilon) - 0.5)

    results = tuple(
        replace(
            one,
            balanced_accuracy=0.5 + lead(one.priv_loss),
            interval=Interval(*(0.5 + lead(end - 0.5) for end in one.interval)),
            limit=0.5 + lead(one.limit - 0.5),
            reach=0.5 + lead(one.reach - 0.5),
        )
        for one in verification.results
    )
    certificates = tuple(
        replace(
            one,
            estimate=lead(one.estimate),
            bound=lead(one.bound),
            exposed=0.0 if surest(epsilon) <= one.surest else one.exposed,
        )
        for one in verification.certificates
    )
    public = {
        name: one if one.accuracy is None else replace(one, accuracy=0.5 + kept * (one.accuracy - 0.5))
        for name, one in (verification.public or {}).items()
    }
    return replace(verification, results=results, certificates=certificates, public=public)
