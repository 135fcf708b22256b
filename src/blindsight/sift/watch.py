"""Watching over what is out about a person: which grants count, which hold, what has to be verified anew.

Grants count together that can tell something together: those that are live, with all frames they may release, and
those that were revoked after they told something, with the frames they told. Two grants of the same sift count as two:
their apps may be given different frames. What was told through another feature pipeline counts too: the verification
rows must be there through that pipeline as well (`VerificationSet.also`), or nothing more is granted about that person.
Left out (except for the odometer) are grants that were revoked because they were proven to leak: what they told is too
much already, whatever comes beside it.

What goes out through a live grant, of one app or of several that wait: counted on disk before anybody gets it.

*The guarantee.* Releases that are carried out together are decided in their order, as if one came after the other: each
sees the frames that those before it take. One that is refused, or whose frames cannot be had, costs nobody else
anything. All that succeed are one write to the disk (`Register.record_all`), and where that fails nothing goes out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blindsight.errors import BudgetExceededError, InputError, PrivacyError
from blindsight.progress import Progress
from blindsight.sift.adaptive import question
from blindsight.sift.consent import Odometer, Situation, blind, readings
from blindsight.sift.personal import PersonalSift
from blindsight.sift.register import Grant, Register, SiftStore, Terms, verifier_name
from blindsight.sift.sift import Features, Sift
from blindsight.sift.union import Examination, Part, examine, verify_together
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.validation import check_finite, check_shape


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


@dataclass(frozen=True, eq=False)
class Wanted:
    """What an app wants: frames (n, d) of a person, features of a `pipeline`; looked at only if there is a grant.

    Where it is known beforehand how many frames these are (`count`), only if the budget allows them, too.
    """

    person: str
    app: str
    frames: Callable[[], Features]
    pipeline: str = ""
    count: int | None = None


@dataclass(frozen=True, eq=False)
class Released:
    """What an app gets, a row per frame, and through which grant."""

    grant: Grant
    rows: NDArray[Any]


def release_all(watch: Watch, wanted: Sequence[Wanted]) -> list[Released | Exception]:
    """Return for each what the app gets, or why it gets nothing; call it while the register is `current`.

    What concerns all of them is raised.
    """
    outcomes: list[Released | Exception] = []
    records: list[dict[str, Any]] = []
    taken: Counter[tuple[str, str]] = Counter()
    for one in wanted:
        try:
            released, record = _decided(watch, one, taken[one.person, one.app])
        except Exception as error:  # whatever it is, the others do not pay for it
            outcomes.append(error)
            continue
        taken[one.person, one.app] += record["frames"]
        outcomes.append(released)
        records.append(record)
    watch.register.record_all("release", records)
    return outcomes


def _decided(watch: Watch, wanted: Wanted, taken: int) -> tuple[Released, dict[str, Any]]:
    """Return a release and its record; `taken` frames are about to go out already."""
    grant = _holding(watch, wanted.person, wanted.app)
    if wanted.pipeline != watch.data.pipeline:
        raise InputError(
            f"these features come from pipeline {wanted.pipeline!r}; sifts here are verified for "
            f"{watch.data.pipeline!r}."
        )
    used = watch.register.frames_to(wanted.person, wanted.app) + taken
    if wanted.count is not None:
        grant.budget.fresh(used, wanted.count)  # or it is refused here
    given = check_shape(wanted.frames(), watch.data.dimension)
    check_finite(given.data if sparse.issparse(given) else given, "features")
    rows = watch.data.support.clip(given)  # what was not verified is not applied
    asked = int(rows.shape[0])
    fresh = grant.budget.fresh(used, asked)
    released = _sifted(watch.store, grant, rows, fresh, last=used + fresh >= grant.budget.frames)
    told = {"grant": grant.number, "person": wanted.person, "app": wanted.app, "sift": grant.sift}
    sizes = {"width": int(released.shape[1]), "size": released.nbytes}
    sift = watch.store.sift(grant.sift)
    cost = {"epsilon": fresh * sift.epsilon} if isinstance(sift, PersonalSift) else {}
    return Released(grant, released), {**told, "frames": fresh, "repeated": asked - fresh, **sizes, **cost}


def _holding(watch: Watch, person: str, app: str) -> Grant:
    """Return the grant through which an app gets something about a person today."""
    watch.register.private_of(person)
    version = watch.register.app(app).version
    grants = [one for one in watch.register.live(person) if (one.app, one.policy_version) == (app, version)]
    if not grants:
        raise PrivacyError(f"app {app} has no grant about this person. Propose a release and let the person allow it.")
    if not watch.holds(grants[-1]):
        raise PrivacyError(
            f"grant {grants[-1].number} is suspended: preferences, verification rows or attackers have changed since "
            "it was verified. Review it first."
        )
    return grants[-1]


def _sifted(store: SiftStore, grant: Grant, rows: Any, fresh: int, *, last: bool) -> NDArray[Any]:
    """Return the release of the first `fresh` rows, and the last one again for each row after them."""
    released = store.sift(grant.sift).apply(rows[:fresh]) if fresh else None
    if grant.budget.then == "refuse" and released is not None:
        return released
    again = store.last(grant.number) if released is None else released[-1:]
    if again is None:
        raise BudgetExceededError("all verified frames are released, and the last was not kept: nothing to repeat.")
    if last and released is not None:
        store.keep_last(grant.number, again)
    repeated = np.repeat(again, rows.shape[0] - fresh, axis=0)
    return repeated if released is None else np.concatenate([released, repeated])
