"""What a person reads before an app gets anything: what it asks, what it could guess, alone and with others.

Percentages are balanced accuracies: how often a guess is right when having and lacking the attribute are as likely, on
average over people; a certified one says for how many people a single answer may tell more. Limits are rounded up, so
that no sentence promises more than was found. A `Proposal` is verified but not yet allowed. An `Odometer` tells the
best known guess of each private attribute from everything that was ever released about a person, through revoked grants
too.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from blindsight.sift.personal import PersonalSift, promise
from blindsight.sift.register import App, Mode, Terms
from blindsight.sift.sift import Sift
from blindsight.sift.stream import ReleaseBudget
from blindsight.sift.union import Examination
from blindsight.sift.verdict import Verdict, Verification


@dataclass(frozen=True)
class Reading:
    """How well one private attribute is guessed, as balanced accuracies: 1/2 is blind."""

    attribute: str
    guess: float
    at_most: float
    """Upper limit at the verifier's confidence: of every attacker where `certified`, else of those that were tried."""
    certified: bool
    surest: float = 1.0
    exposed: float = 0.0
    """Where certified: a single answer makes a guess surer than `surest` for at most this share of the people."""


@dataclass(frozen=True)
class Odometer:
    """What is out about one person, through which grants, and how sure the limits are."""

    person: str
    grants: tuple[int, ...]
    readings: tuple[Reading, ...]
    confidence: float


def readings(verification: Verification) -> tuple[Reading, ...]:
    """Return the best guess of every attribute that was attacked or certified, and its limit."""
    certificates = {certificate.attribute: certificate for certificate in verification.certificates}
    found = []
    for name in dict.fromkeys(result.attribute for result in verification.results):
        rows = [result for result in verification.results if result.attribute == name]
        guess = max(result.balanced_accuracy for result in rows)
        if name not in certificates:
            found.append(Reading(name, guess, max(result.reach for result in rows), verification.certified))
            continue
        one = certificates[name]
        found.append(Reading(name, guess, 0.5 + one.bound, True, one.surest, one.exposed))
    attacked = {reading.attribute for reading in found}
    joint = (one for one in verification.certificates if one.attribute not in attacked)
    found += [
        Reading(one.attribute, 0.5 + one.estimate, 0.5 + one.bound, True, one.surest, one.exposed) for one in joint
    ]
    worst: dict[str, Reading] = {}  # of the frames of a window the one that is told most about
    for reading in found:
        name = reading.attribute.partition(" in frame ")[0]
        known = worst.setdefault(name, reading)
        more = reading if reading.at_most > known.at_most else known
        worst[name] = replace(more, exposed=max(reading.exposed, known.exposed))
    return tuple(worst.values())


def blind(names: tuple[str, ...]) -> tuple[Reading, ...]:
    return tuple(Reading(name, 0.5, 0.5, certified=True) for name in names)


_ENDINGS: dict[Verdict, str] = {
    "accept": "Allow / fewer details / refuse.",
    "reject": "That is too much: the app gets nothing.",
    "inconclusive": "Nobody can say yet that this is little enough: the app gets nothing.",
}


_WHOM = "This holds on average for people and pictures like those it was tested on, not for each of them."


def consent_sentence(
    app: str,
    public: Sequence[str],
    private: Sequence[str],
    alone: Sequence[Reading],
    together: Sequence[Reading],
    others: Sequence[str],
    *,
    verdict: Verdict,
    confidence: float,
) -> str:
    """Return what a person is asked; `together` are the readings with what `others`, or the app itself, got before.

    >>> alone, together = [Reading("Smiling", 0.56, 0.58, False)], [Reading("Smiling", 0.59, 0.61, False)]
    >>> print(consent_sentence("X", ["Gender"], ["Smiling"], alone, together, ["Y", "Z"],
    ...                        verdict="accept", confidence=0.95))
    App X asks for Gender. You hide Smiling. Best known guess of Smiling: 56% (at most 58%, 95% sure; 50% is blind). \
This holds on average for people and pictures like those it was tested on, not for each of them. With apps Y and Z \
together: 59% (at most 61%). Allow / fewer details / refuse.
    """
    parts = [f"App {app} asks for {_listed(public)}. You hide {_listed(private)}."]
    parts += [_guess(reading, confidence) for reading in alone]
    if alone:
        parts.append(_WHOM)
    if together:
        company = (
            f"With app{'s' * (len(others) > 1)} {_listed(others)} together" if others else "With what it got before"
        )
        guesses = ", ".join(_short(reading, named=len(together) > 1) for reading in together)
        parts.append(f"{company}: {guesses}.")
    return " ".join([*parts, _ENDINGS[verdict]])


def _guess(reading: Reading, confidence: float) -> str:
    whose = "Best possible" if reading.certified else "Best known"
    sure = f"{confidence:.0%} sure; 50% is blind"
    line = f"{whose} guess of {reading.attribute}: {_share(reading.guess)} (at most {_limit(reading)}, {sure})."
    if reading.surest == 1:
        return line
    few = math.ceil(1e3 * reading.exposed - 1e-9) / 10
    whom = f"all but {few:g}% of people" if few else "everybody"
    return f"{line} For {whom} no single answer is surer than {reading.surest:.0%}."


def _short(reading: Reading, *, named: bool) -> str:
    name = f"{reading.attribute} " if named else ""
    return f"{name}{_share(reading.guess)} (at most {_limit(reading)})"


def _share(accuracy: float) -> str:
    return f"{max(accuracy, 0.5):.0%}"  # who guesses worse than blindly may as well guess blindly


def _limit(reading: Reading) -> str:
    return f"{math.ceil(100 * max(reading.at_most, reading.guess, 0.5) - 1e-9)}%"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


@dataclass(frozen=True)
class Situation:
    """All that a verification for a person and an app depends on besides the sift."""

    private: tuple[str, ...]
    app: App
    others: tuple[tuple[int, int], ...]  # number and frames of every other grant that was taken into account
    apps: tuple[str, ...]
    verifier: str
    verification_set: str


@dataclass(frozen=True, eq=False)
class Proposal:
    """A verified sift that waits for a person's answer."""

    person: str
    app: str
    mode: Mode
    sift: Sift  # the platform's version of the app's sift
    budget: ReleaseBudget
    situation: Situation
    examination: Examination
    confidence: float  # at which this sift was verified: higher for each further question on the same rows
    promised: float  # the confidence over all tries, which the sentence names

    @property
    def verdict(self) -> Verdict:
        return self.examination.verdict

    @property
    def sentence(self) -> str:
        together = self.examination.together
        sentence = consent_sentence(
            self.app,
            self.situation.app.public,
            self.situation.private,
            readings(self.examination.alone),
            () if together is None else readings(together),
            self.situation.apps,
            verdict=self.verdict,
            confidence=self.promised,
        )
        more, stays = [], self.budget.permanent
        if stays:
            more = [f"Your answer is made once, from {self.budget.frames} pictures; every app gets the same, for ever."]
        if isinstance(self.sift, PersonalSift):
            more.append(promise(self.sift, 1 if stays else self.budget.frames))
        ending = _ENDINGS[self.verdict]
        return " ".join([sentence.removesuffix(ending).rstrip(), *more, ending])

    def grant(self, number: int, terms: Terms) -> dict[str, Any]:
        return self._facts() | {
            "number": number,
            "policy_version": self.situation.app.version,
            "pipeline": self.sift.pipeline,
            "budget": asdict(self.budget),
            "confidence": self.confidence,
            "terms": asdict(terms),
            "revoked": None,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything for the operator and the person's page. An app is told the verdict alone: figures would
        teach it how to write its next sift.
        """
        return self._facts() | {
            "private": list(self.situation.private),
            "frames": self.budget.frames,
            "verdict": self.verdict,
            "sentence": self.sentence,
        }

    def _facts(self) -> dict[str, Any]:
        about = {"person": self.person, "app": self.app, "mode": self.mode, "public": list(self.situation.app.public)}
        return about | {"sift": self.sift.digest} | self.examination.reports()
