"""What an app would get about a person, verified but not yet allowed: the person reads `sentence` and decides."""

import math
from dataclasses import dataclass
from typing import Any

from blindsight.sift.consent import consent_sentence, readings
from blindsight.sift.grants import Grant, Mode, Terms
from blindsight.sift.personal import PersonalSift, surest
from blindsight.sift.register import App
from blindsight.sift.sift import Sift
from blindsight.sift.stream import ReleaseBudget
from blindsight.sift.union import Examination
from blindsight.sift.verdict import Verdict


@dataclass(frozen=True)
class Situation:
    """All that a verification for a person and an app depends on besides the sift."""

    private: tuple[str, ...]
    app: App
    others: tuple[tuple[int, int], ...]
    """Number and frames of every other grant that was taken into account."""
    apps: tuple[str, ...]
    """Whose grants those are, other than the app itself."""
    verifier: str
    verification_set: str
    """The digest of the rows it was verified on."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A verified sift that waits for a person's answer."""

    person: str
    app: str
    mode: Mode
    sift: Sift
    """What would be applied: the platform's version of the app's sift."""
    budget: ReleaseBudget
    situation: Situation
    examination: Examination
    confidence: float
    """At which this sift was verified: higher for each further question on the same rows."""
    promised: float
    """The confidence over all tries, which the sentence names."""

    @property
    def verdict(self) -> Verdict:
        """Whether it may be allowed at all."""
        return self.examination.verdict

    @property
    def sentence(self) -> str:
        """What the person reads."""
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
        if not isinstance(self.sift, PersonalSift):
            return sentence
        epsilon = self.sift.epsilon * self.budget.frames
        return (
            f"{sentence} Every answer is drawn at random: about you and everybody else, on any picture, no guess is "
            f"surer than {math.ceil(100 * surest(epsilon))}% (epsilon {epsilon:g}); the app keeps {self.sift.kept:.0%} "
            "of its lead."
        )

    def grant(self, number: int, terms: Terms) -> dict[str, Any]:
        """Return the grant that this becomes, as plain data without its time."""
        together = self.examination.together
        grant = Grant(
            number=number,
            person=self.person,
            app=self.app,
            public=self.situation.app.public,
            policy_version=self.situation.app.version,
            mode=self.mode,
            sift=self.sift.digest,
            pipeline=self.sift.pipeline,
            budget=self.budget,
            confidence=self.confidence,
            terms=terms,
            report=self.examination.alone.to_dict(),
            together=None if together is None else together.to_dict(),
            time="",
        )
        return {key: value for key, value in grant.to_dict().items() if key != "time"}

    def to_dict(self) -> dict[str, Any]:
        """Return everything for the operator and the person's page, as plain data.

        An app is told the verdict alone: figures would teach it how to write its next sift.
        """
        together = self.examination.together
        return {
            "person": self.person,
            "app": self.app,
            "mode": self.mode,
            "public": list(self.situation.app.public),
            "private": list(self.situation.private),
            "sift": self.sift.digest,
            "frames": self.budget.frames,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "report": self.examination.alone.to_dict(),
            "together": None if together is None else together.to_dict(),
        }
