"""Watching over what is out about a person: which grants count, which hold, what has to be verified anew.

Grants count together that can tell something together: those that are live, with all frames they may release, and
those that were revoked after they told something, with the frames they told. Two grants of the same sift count as two:
their apps may be given different frames. What was told through another feature pipeline counts too: the verification
rows must be there through that pipeline as well (`VerificationSet.also`), or nothing more is granted about that person.
Left out (except for the odometer) are grants that were revoked because they were proven to leak: what they told is too
much already, whatever comes beside it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from blindsight.errors import InputError, PrivacyError
from blindsight.progress import Progress
from blindsight.sift.adaptive import question
from blindsight.sift.grants import Grant, Terms, verifier_name
from blindsight.sift.odometer import Odometer, blind, readings
from blindsight.sift.proposal import Situation
from blindsight.sift.register import Register
from blindsight.sift.sift import Sift
from blindsight.sift.siftstore import SiftStore
from blindsight.sift.union import Examination, Part, examine, verify_together
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True)
class Review:
    """What became of grants that had to be verified anew; each revoked one says why."""

    kept: tuple[Grant, ...]
    revoked: tuple[Grant, ...]


@dataclass(frozen=True, eq=False)
class Watch:
    """Everything that a verdict about a person depends on."""

    data: VerificationSet
    verifier: Verifier
    register: Register
    store: SiftStore
    development: VerificationSet | None = None

    def beside(self, person: str, app: str) -> dict[int, int]:
        """Return the grants that a new one of this app must be verified beside, and how many frames each may tell.

        What the app has now ends with its new grant, so only what was told of it counts.
        """
        live = self.register.live(person)
        ending = [grant for grant in live if grant.app == app and self.register.frames[grant.number]]
        going_on = [grant for grant in live if grant.app != app]
        return self._told([*self._harmless(person), *ending]) | self._may_tell(going_on)

    def parts(self, frames: Mapping[int, int]) -> list[Part]:
        """Return the sifts of grants by their numbers, each with its frames."""
        return [Part(self.store.sift(self.register.grants[number].sift), count) for number, count in frames.items()]

    def situation(self, person: str, app: str) -> Situation:
        """Return what a verification for this person and app depends on."""
        private, asked, beside = self.register.private_of(person), self.register.app(app), self.beside(person, app)
        apps = (self.register.grants[number].app for number in beside)
        return Situation(
            private,
            asked,
            others=tuple(beside.items()),
            apps=tuple(dict.fromkeys(name for name in apps if name != app)),
            verifier=verifier_name(self.verifier, certified=False),
            verification_set=self.data.digest,
        )

    def terms(self, private: tuple[str, ...], found: Examination) -> Terms:
        """Return what an examination rests on."""
        return Terms(private, self.data.digest, verifier_name(self.verifier, certified=found.certified))

    def holds(self, grant: Grant) -> bool:
        """Tell whether a grant was verified under today's terms."""
        verifiers = tuple(verifier_name(self.verifier, certified=certified) for certified in (True, False))
        return grant.terms.covers(self.register.private_of(grant.person), self.data.digest, verifiers)

    def judge(
        self,
        proposed: Sift,
        frames: int,
        part: Callable[[], Part],
        others: list[Part],
        private: tuple[str, ...],
        progress: Progress,
        /,
        **told: Any,
    ) -> Examination:
        """Examine what becomes of a proposed sift, as one try of all that were ever made on these rows (`adaptive`).

        The try is on disk before it begins, the answer before anybody has it. What cannot be verified is a no.
        """
        asked = question(
            sift=proposed.digest,
            frames=frames,
            others=[[one.sift.digest, one.frames] for one in others],
            private=list(private),
            verifier=verifier_name(self.verifier, certified=False),
            rows=self.data.digest,
            development=None if self.development is None else self.development.digest,
        )
        with self.register.current():
            related = self.store.related(self.data.digest)
            share = self.register.tried(asked, self.data.digest, related, proposed=proposed.digest, frames=frames)
        verifier = replace(self.verifier, share=share, stop_early=False)
        told = {"frames": frames, **told, "question": asked}
        try:
            whole = part()
            told["sift"] = whole.sift.digest
            found = examine(
                whole, others, private, self.data, verifier, development=self.development, progress=progress
            )
        except (InputError, PrivacyError) as error:
            self._answered("denied", str(error), told)
            raise
        self._answered(found.verdict, found.sentence, told)
        return found

    def _answered(self, verdict: str, reason: str, told: dict[str, Any]) -> None:
        with self.register.current():
            self.register.record("decision", verdict=verdict, reason=reason, **told)

    def review(self, person: str, progress: Progress) -> Review:
        """Verify a person's grants that do not hold, oldest first, each beside those that hold and what was told."""
        with self.register.current():
            private = self.register.private_of(person)
            live = self.register.live(person)
            kept = [grant for grant in live if self.holds(grant)]
        revoked = []
        for grant in (one for one in live if one not in kept):
            with self.register.current():
                others = self.parts(self._told(self._harmless(person)) | self._may_tell(kept))
            found, problem, leaks = self._examined(grant, others, private, progress)
            with self.register.current():
                if self.register.private_of(person) != private or not self.register.grants[grant.number].live:
                    break  # somebody changed it meanwhile, and reviews it too
                if found is not None and found.verdict == "accept":
                    kept.append(self._confirmed(grant, private, found))
                else:
                    revoked.append(self.register.revoke(grant, problem, leaks=leaks))
        return Review(tuple(kept), tuple(revoked))

    def odometer(self, person: str, progress: Progress) -> Odometer:
        """Return how well each hidden attribute is guessed from all that is granted or was told."""
        with self.register.current():
            private = self.register.private_of(person)
            frames = self._told(self.register.told(person)) | self._may_tell(self.register.live(person))
            parts = self.parts(frames)
        found = blind(private)
        if parts:
            verifier = replace(self.verifier, stop_early=False)
            found = readings(verify_together(parts, private, self.data, verifier, progress=progress))
        return Odometer(person, tuple(frames), found, self.verifier.confidence)

    def _harmless(self, person: str) -> list[Grant]:
        """Return revoked grants that told something, without those that were proven to leak."""
        return [grant for grant in self.register.told(person) if grant.revoked and not grant.revoked.leaks]

    def _told(self, grants: Iterable[Grant]) -> dict[int, int]:
        return {grant.number: self.register.frames[grant.number] for grant in grants}

    def _may_tell(self, grants: Iterable[Grant]) -> dict[int, int]:
        """Return the frames of live grants; through another pipeline only those that went out."""
        frames = {
            grant.number: self._frames(grant) if self._comparable(grant) else self.register.frames[grant.number]
            for grant in grants
        }
        return {number: count for number, count in frames.items() if count}

    def _frames(self, grant: Grant) -> int:
        """Return how many frames a live grant may tell: its budget without what the app got through earlier grants."""
        earlier = self.register.frames_to(grant.person, grant.app) - self.register.frames[grant.number]
        return grant.budget.frames - earlier

    def _comparable(self, grant: Grant) -> bool:
        return grant.pipeline == self.data.pipeline

    def _examined(
        self, grant: Grant, others: list[Part], private: tuple[str, ...], progress: Progress
    ) -> tuple[Examination | None, str, bool]:
        """Return what was found, in words, and whether it is proven to leak."""
        if not self._comparable(grant):
            return None, "the platform's features have changed", False
        hidden = sorted(set(grant.public) & set(private))
        if hidden:
            return None, f"{hidden[0]} itself is private now", True
        try:
            part = Part(self.store.sift(grant.sift), self._frames(grant))
            found = self.judge(part.sift, part.frames, lambda: part, others, private, progress)
        except (InputError, PrivacyError) as error:
            return None, str(error), False
        return found, found.sentence, found.verdict == "reject"

    def _confirmed(self, grant: Grant, private: tuple[str, ...], found: Examination) -> Grant:
        self.register.record(
            "confirm",
            grant=grant.number,
            terms=asdict(self.terms(private, found)),
            report=found.alone.to_dict(),
            together=None if found.together is None else found.together.to_dict(),
        )
        return self.register.grants[grant.number]
