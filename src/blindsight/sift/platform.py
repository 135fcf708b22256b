"""The trusted side: it knows what people hide, verifies what apps ask, and lets nothing else out.

*The guarantee.* An app gets numbers about a person only through a live grant. A grant exists only where the very sift
that is applied, over as many frames as it may release, was accepted against everything this person hides, alone and
together with all that other grants let out about the person, and where the person allowed it. Everything else is
refused: unknown people and apps, attributes without labels, sifts of another pipeline, verdicts that are not clear,
more frames than were verified. Every decision and release is on disk before anybody learns of it (`register`); a
platform that was killed goes on where it was, and refuses whatever it cannot be sure of.

Enev et al., "SensorSift", ACSAC 2012, section 3 and Figure 1: in *included* mode the platform's own sift and classifier
give the app a label; in *unincluded* mode the app brings a sift, which is data, and which the platform turns into a
version of its own (`harden.prepare`). Section 9 leaves collusion open; here

- all apps of a person are verified together (`union`): live grants with all frames they may release, and revoked ones
  with the frames they told. Two grants of the same sift count as two: their apps may be given different frames. What
  was told through another feature pipeline counts too (`VerificationSet.also`). Only grants that were revoked *because*
  they leak too much are left out, else nothing could ever be granted again; the odometer counts them too;
- apps that try sift after sift, and learn from the answers, would get a bad one accepted in the end. So every question
  that is judged on the verification rows, whoever asks, takes its share of the error 1 - confidence; the shares of all
  questions that answers could ever lead to sum to one (`adaptive` has the proof). An app is told accept or no; the
  figures (`Proposal.to_dict`) are for the operator and the person. On the same rows the platform refuses in the end.

Releases carried out together (`release_all`) are decided in their order: each sees the frames that those before it
take. One that is refused, or whose frames cannot be had, costs nobody else anything. All that succeed are one write to
the disk, and where that fails nothing goes out.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from blindsight.errors import BudgetExceededError, InputError, PrivacyError
from blindsight.files import AnyPath, as_path
from blindsight.progress import Progress, silent
from blindsight.sift.adaptive import RowPrints, question
from blindsight.sift.attackers import Attacker, chosen_attackers
from blindsight.sift.consent import Odometer, Proposal, Situation, blind, readings
from blindsight.sift.harden import check_fits, coarser, included_sift, prepare
from blindsight.sift.labels import enough_of_either
from blindsight.sift.personal import PersonalSift
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.register import Grant, JournalRecords, Mode, Records, Register, SiftStore, Terms, verifier_name
from blindsight.sift.sift import Features, Sift
from blindsight.sift.stream import PermanentSymbol, PermanentSymbols, ReleaseBudget, Then, changes
from blindsight.sift.union import Examination, Part, examine, verify_together
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.validation import check_finite, check_shape


@dataclass(frozen=True)
class Review:
    """What became of grants that had to be verified again; each revoked one says why."""

    kept: tuple[Grant, ...]
    revoked: tuple[Grant, ...]


@dataclass(frozen=True, eq=False)
class Wanted:
    """Frames (n, d) of a person, features of a `pipeline`, that an app wants; looked at only if there is a grant, and
    where `count` is known, if the budget allows them. `seen` ones went through `Platform.seen` before; among `repeated`
    ones is a frame several times.
    """

    person: str
    app: str
    frames: Callable[[], Features]
    pipeline: str = ""
    count: int | None = None
    seen: bool = False
    repeated: bool = False


@dataclass(frozen=True, eq=False)
class Released:
    """What an app gets, a row per frame, through which grant, and the record of it as it is kept."""

    grant: Grant
    rows: NDArray[Any]
    record: Mapping[str, Any]


class Platform:
    """Verifies on `data` and, in included mode, fits sifts with `learner` to `development`: rows of other people, which
    are the platform's own, never an app's. They are the reference too (`VerificationSet.reference`); without any, a
    fifth of `data`, by persons, is set aside as reference and not counted.

    With a `folder` everything survives a restart, and several processes may share it; otherwise it lasts as long as
    this object. `records` default to a journal in the folder. With a `pace` in seconds, proposals are answered after a
    multiple of it, whatever the answer: classifiers take longer on some data than on others. `permanent` names the
    attributes that never change, of which people may have permanent symbols, kept in the folder, or is a
    `PermanentSymbols`.
    """

    def __init__(
        self,
        data: VerificationSet,
        *,
        verifier: Verifier | None = None,
        development: VerificationSet | None = None,
        learner: SiftLearner | None = None,
        folder: AnyPath | None = None,
        records: Records | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        permanent: Iterable[str] | PermanentSymbols = (),
        pace: float = 0.0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 <= pace < math.inf:
            raise InputError(f"the pace of answers is a number of seconds, 0 for none; got {pace}.")
        self._pace, self._wait = pace, wait
        folder = None if folder is None else as_path(folder)
        if development is not None:
            development.check_apart_from(data)
            data = data if data.reference is not None else replace(data, reference=development)
        self.data = data = data.with_reference()
        self._development = development
        self._learner = PPLS(5, np.inf) if learner is None else learner
        if records is None and folder is not None:
            records = JournalRecords(folder / "platform.journal")
        self._register = Register(records, clock)
        self.joined: Callable[[], Verifier] | None = None
        """Returns the new verifier after another process on the same records changed it."""
        self.verifier = Verifier() if verifier is None else verifier
        self._store = SiftStore(folder)
        if not isinstance(permanent, PermanentSymbols):
            permanent = PermanentSymbols(permanent, self._store.keep_symbol, self._store.symbols)
        self._symbols = permanent
        for name in permanent.unchanging & set(data.labels):
            if data.persons is not None and changes(data.labels[name], data.persons):
                raise InputError(f"{name} changes between pictures of one person; it cannot be declared unchanging.")
        self._store.keep_prints(data.digest, RowPrints.of(data.features, data.persons, data.pipeline))

    @property
    def verifier(self) -> Verifier:
        """The verifier that was last set, in any process on the same records."""
        if self._register.verifiers != self._verifiers and self.joined is not None:
            self.verifier = self.joined()
        return self._verifier

    @verifier.setter
    def verifier(self, verifier: Verifier) -> None:
        self._verifier, self._verifiers = verifier, self._register.verifiers
        self._names = tuple(verifier_name(verifier, certified=certified) for certified in (True, False))

    @property
    def unchanging(self) -> frozenset[str]:
        """Attributes that never change, of which people may have permanent symbols."""
        return self._symbols.unchanging

    @property
    def recovered(self) -> str | None:
        """What an interrupted write left behind in the folder and what was done about it, or None."""
        return self._register.recovered

    # --- who is here ---

    def set_preferences(self, person: str, private: Iterable[str], *, progress: Progress = silent) -> Review:
        """Note what a person hides, from now on; all their grants are verified against it again, or revoked."""
        self.note_preferences(person, private)
        return self.review(person, progress=progress)

    def note_preferences(self, person: str, private: Iterable[str]) -> None:
        """Note what a person hides, from now on; grants not verified against all of it are suspended until `review`."""
        names = _names(private, "private attribute")
        for name, column in self.data.private(names).items():
            enough_of_either(name, column)
        with self._register.current():
            self._register.record("person", name=_name(person, "person"), private=names)

    def preferences(self, person: str) -> tuple[str, ...]:
        with self._register.current():
            return self._register.private_of(person)

    def asked(self, app: str) -> tuple[str, ...]:
        with self._register.current():
            return self._register.app(app).public

    def add_app(self, app: str, public: Iterable[str]) -> None:
        """Note what an app asks for; where it asked for something else before, its grants are revoked."""
        names = _names(public, "public attribute")
        with self._register.current():
            before = self._register.apps.get(_name(app, "app"))
            if before is not None and before.public == names:
                return
            version = 1 if before is None else before.version + 1
            self._register.record("app", name=app, public=names, version=version)
            for grant in [one for one in self._register.of(app=app) if one.live]:
                self._register.revoke(grant, f"app {app} now asks for {' and '.join(names)}", leaks=False)

    def grants(self, person: str | None = None, app: str | None = None) -> tuple[Grant, ...]:
        """Return all grants (about one person, to one app), oldest first, revoked ones included."""
        with self._register.current():
            if person is not None:
                self._register.private_of(person)
            return tuple(self._register.of(person, app))

    def grant(self, number: int) -> Grant | None:
        with self._register.current():
            return self._register.grants.get(number)

    def holds(self, grant: Grant) -> bool:
        """Tell whether a grant was verified under today's terms; one that is live and does not hold is suspended."""
        with self._register.current():
            return self._holds(grant)

    def released(self, grant: Grant) -> int:
        with self._register.current():
            return self._register.frames[grant.number]

    def standing(self, grants: Iterable[Grant]) -> list[tuple[bool, int]]:
        """For each grant, whether it `holds`, and how many frames it released."""
        with self._register.current():
            return [(self._holds(grant), self._register.frames[grant.number]) for grant in grants]

    def spent(self, person: str) -> float:
        """Return the epsilon of all that was drawn at random about a person, all apps together."""
        return float(sum(self._register.epsilons[grant.number] for grant in self.grants(person)))

    def symbols(self, person: str) -> tuple[PermanentSymbol, ...]:
        """Return the permanent symbols that were ever drawn of a person, each a charge."""
        with self._register.current():
            return self._symbols.charges(person)

    def active(self, person: str | None = None) -> set[str]:
        """Return of whom (of all, or of one person) a live grant can still let frames out."""
        with self._register.current():
            live = self._register.grants.values() if person is None else self._register.live(person)
            return {one.person for one in live if one.live and not self._used_up(one)}

    def _used_up(self, grant: Grant) -> bool:
        return grant.budget.then == "refuse" and self._register.frames[grant.number] >= grant.budget.frames

    def forget(self, person: str) -> None:
        """Delete what was kept of releases about a person; what was decided stays on record."""
        with self._register.current():
            mine = [number for number, grant in self._register.grants.items() if grant.person == person]
        self._store.forget(person, mine)

    # --- asking and answering ---

    def propose(
        self,
        person: str,
        app: str,
        sift: Sift | None = None,
        *,
        frames: int = 1,
        then: Then = "refuse",
        personal: float | None = None,
        another: bool = False,
        progress: Progress = silent,
    ) -> Proposal:
        """Verify what an app would get about a person: its own sift's release, or without one the platform's label.

        `frames` counts all frames of this person that the app will ever have got, those of earlier grants included.
        With `personal` every symbol is drawn by randomised response with this epsilon (`PersonalSift`), which bounds
        what it tells about every single person, whatever the picture. With `then="permanent"` the app gets one symbol,
        smoothed over `frames` pictures, for ever: the one that the person has of the attribute already, by whichever
        sift, unless it asks for `another` sift's, a further charge. Nothing is released by this; the person answers
        with `allow`, `fewer_details` or `refuse`.
        """
        begun = time.monotonic()
        try:
            return self._propose(person, app, sift, ReleaseBudget(frames, then), personal, another, progress)
        finally:
            if self._pace:
                self._wait(self._pace - (time.monotonic() - begun) % self._pace)

    def _propose(
        self,
        person: str,
        app: str,
        sift: Sift | None,
        budget: ReleaseBudget,
        personal: float | None,
        another: bool,
        progress: Progress,
    ) -> Proposal:
        with self._register.current():
            situation = self._situation(person, app)
            others = self._parts(dict(situation.others))
            used = 0 if budget.permanent else self._register.frames_to(person, app)
            first = self._register.permanent(person, situation.app.public) if budget.permanent and not another else None
            drawn = self._symbols.charges(person) if budget.permanent and first is None else ()
        budget = budget if first is None else first.budget
        frames = budget.frames - used
        if frames <= 0:
            raise InputError(f"app {app} has got {used} frames of this person already; ask for more than that in all.")
        mode: Mode = "included" if sift is None else "unincluded"
        told = {"person": person, "app": app, "mode": mode, "proposed": "" if sift is None else sift.digest}
        try:
            own = self._proposed(sift, Policy(situation.app.public, situation.private))
            proposed = own if personal is None else PersonalSift(own, personal)
            if budget.permanent:
                self._symbols.check(situation.app.public, proposed)
            if first is not None:
                proposed = self._store.sift(first.sift)
            for one in drawn:
                if one.sift == proposed.digest and one.frames != frames:
                    raise PrivacyError(
                        f"{person} has a permanent symbol of this sift, drawn from {one.frames} frame(s); it is given "
                        f"under no certificate for {frames}. Ask for that number, or for another sift's symbol."
                    )
        except (InputError, PrivacyError) as error:
            self._decided("denied", str(error), told)
            raise
        candidate: list[Sift] = []

        def part() -> Part:
            applied = own if sift is None else prepare(sift, self.data.private(situation.private), self.data)
            applied = applied if personal is None else PersonalSift(applied, personal)
            candidate.append(applied if first is None else proposed)
            return Part(candidate[-1], frames, budget.permanent)

        asked = Part(proposed, frames, budget.permanent)
        found = self._judge(asked, part, others, situation.private, progress, told)
        confidence = self.verifier.confidence
        sure = 1 - (1 - confidence) * found.alone.setting.share
        return Proposal(person, app, mode, candidate[0], budget, situation, found, sure, confidence)

    def fewer_details(self, proposal: Proposal, *, progress: Progress = silent) -> Proposal:
        """Verify a coarser version of what was proposed: bits instead of numbers, then fewer of them. Edges are chosen
        on development rows: on verification rows the certificate would not hold.
        """
        if self._development is None:
            raise InputError("this platform has no development rows to choose fewer details on. Allow or refuse.")
        less = coarser(proposal.sift, self._development)
        return self.propose(proposal.person, proposal.app, less, **vars(proposal.budget), progress=progress)

    def allow(self, proposal: Proposal) -> Grant:
        """Grant what was proposed, if it was accepted and nothing it depends on has changed since."""
        if proposal.verdict != "accept":
            raise PrivacyError(proposal.sentence)
        with self._register.current():
            if self._situation(proposal.person, proposal.app) != proposal.situation:
                raise PrivacyError(
                    f"what {proposal.person} hides, what is granted or who verifies has changed since this was "
                    "verified. Propose it again."
                )
            self._store.keep(proposal.sift)
            number = max(self._register.grants, default=0) + 1
            replaces = [one.number for one in self._register.live(proposal.person, proposal.app)]
            terms = self._terms(proposal.situation.private, proposal.examination)
            self._register.record("grant", replaces=replaces, **proposal.grant(number, terms))
            return self._register.grants[number]

    def refuse(self, proposal: Proposal) -> None:
        told = {"person": proposal.person, "app": proposal.app, "mode": proposal.mode, "proposed": ""}
        self._decided("denied", f"{proposal.person} refused", told | {"sift": proposal.sift.digest})

    def revoke(self, number: int, reason: str) -> Grant:
        """End a grant by hand."""
        with self._register.current():
            grant = self._register.grants.get(number)
            if grant is None or not grant.live:
                raise InputError(f"there is no live grant {number}.")
            return self._register.revoke(grant, _name(reason, "reason"), leaks=False)

    def _situation(self, person: str, app: str) -> Situation:
        """What the app has now ends with its new grant, so only what was told of it counts."""
        private, asked, live = self._register.private_of(person), self._register.app(app), self._register.live(person)
        ending = [grant for grant in live if grant.app == app and self._register.frames[grant.number]]
        going_on = [grant for grant in live if grant.app != app]
        beside = self._told([*self._harmless(person), *ending]) | self._may_tell(going_on)
        apps = (self._register.grants[number].app for number in beside)
        return Situation(
            private,
            asked,
            others=tuple(beside.items()),
            apps=tuple(dict.fromkeys(name for name in apps if name != app)),
            verifier=verifier_name(self.verifier, certified=False),
            verification_set=self.data.digest,
        )

    def _proposed(self, sift: Sift | None, policy: Policy) -> Sift:
        """An app's sift, if it fits the platform's features, or the platform's own; no label is looked at."""
        self.data.private(policy.private)
        if sift is not None:
            check_fits(sift, self.data)
            return sift
        if self._development is None:
            raise InputError("this platform has no development rows to fit a sift of its own to. Bring a sift.")
        return included_sift(self._learner, policy, self._development)

    def _judge(
        self,
        proposed: Part,
        part: Callable[[], Part],
        others: list[Part],
        private: tuple[str, ...],
        progress: Progress,
        told: Mapping[str, Any],
    ) -> Examination:
        """Examine a proposed sift as one of all tries ever made on these rows (`adaptive`). The try is on disk before
        it begins, the answer before anybody has it. What cannot be verified is a no.
        """
        digest, frames = proposed.named
        asked = question(
            sift=digest,
            frames=frames,
            others=[one.named for one in others],
            private=list(private),
            verifier=verifier_name(self.verifier, certified=False),
            rows=self.data.digest,
            development=None if self._development is None else self._development.digest,
        )
        with self._register.current():
            related = self._store.related(self.data.digest)
            share = self._register.tried(asked, self.data.digest, related, proposed=digest, frames=frames)
        verifier = replace(self.verifier, share=share, stop_early=False)
        about: dict[str, Any] = {"frames": frames, **told, "question": asked}
        try:
            whole = part()
            about["sift"] = whole.sift.digest
            found = examine(
                whole, others, private, self.data, verifier, development=self._development, progress=progress
            )
        except (InputError, PrivacyError) as error:
            self._decided("denied", str(error), about)
            raise
        self._decided(found.verdict, found.sentence, about)
        return found

    def _decided(self, verdict: str, reason: str, told: Mapping[str, Any]) -> None:
        with self._register.current():
            self._register.record("decision", verdict=verdict, reason=reason, **told)

    # --- releasing ---

    def release(self, person: str, app: str, X: Features, *, pipeline: str = "") -> NDArray[Any]:
        """Return what the app gets of frames X (n, d) of this person, features of this `pipeline`, or raise. Frames
        beyond the verified number are refused all together, or answered with the last release again.
        """
        (outcome,) = self.release_all([Wanted(person, app, lambda: X, pipeline)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.rows

    def release_all(self, wanted: Sequence[Wanted]) -> list[Released | Exception]:
        """Carry out several releases in this order with one write to the disk; return what each gets, or why nothing.
        What prevents all of them, such as a full disk, is raised.
        """
        outcomes: list[Released | Exception] = []
        taken: Counter[tuple[str, str]] = Counter()
        with self._register.current():
            for one in wanted:
                try:
                    released = self._sifted(one, taken[one.person, one.app])
                except Exception as error:  # whatever it is, the others do not pay for it
                    outcomes.append(error)
                    continue
                taken[one.person, one.app] += released.record["frames"]
                outcomes.append(released)
            records = [one.record for one in outcomes if isinstance(one, Released)]
            kept = iter(self._register.record_all("release", records))
        return [Released(one.grant, one.rows, next(kept)) if isinstance(one, Released) else one for one in outcomes]

    def _sifted(self, wanted: Wanted, taken: int) -> Released:
        """`taken` frames are about to go out already."""
        grant = self._holding(wanted.person, wanted.app)
        if wanted.pipeline != self.data.pipeline:
            raise InputError(
                f"these features come from pipeline {wanted.pipeline!r}; sifts here are verified for "
                f"{self.data.pipeline!r}."
            )
        told = {"grant": grant.number, "person": wanted.person, "app": wanted.app, "sift": grant.sift}
        sift, used = self._store.sift(grant.sift), self._register.frames_to(wanted.person, wanted.app) + taken
        cost: dict[str, float] = {}
        if grant.budget.permanent:
            released, cost = self._symbol(wanted, grant, sift)
            asked, fresh = 1, 0 if self._register.frames[grant.number] + taken else grant.budget.frames
        else:
            if wanted.count is not None:
                grant.budget.fresh(used, wanted.count)  # or it is refused here
            rows = self._seen(wanted)
            asked = len(rows)
            fresh = grant.budget.fresh(used, asked)
            new = sift.apply(rows[:fresh]) if fresh else None
            last = used + fresh >= grant.budget.frames
            if new is None or grant.budget.then == "repeat":
                new = self._repeated(grant, new, asked - fresh, last=last)
            released = new
            if isinstance(sift, PersonalSift):
                cost = {"epsilon": fresh * sift.epsilon}
        sizes = {"width": int(released.shape[1]), "size": released.nbytes}
        frames = {"frames": fresh, "repeated": max(0, asked - fresh)}
        return Released(grant, released, {**told, **frames, **sizes, **cost})

    def _seen(self, wanted: Wanted) -> NDArray[np.float32]:
        rows = wanted.frames()
        return rows if wanted.seen else self.seen(rows)  # type: ignore[return-value]

    def seen(self, rows: Features) -> NDArray[np.float32]:
        """Return rows as sifts get them, which depends on nothing else and so may be kept."""
        given = check_shape(rows, self.data.dimension)
        check_finite(given.data if sparse.issparse(given) else given, "features")
        return self.data.seen(given)

    def _symbol(self, wanted: Wanted, grant: Grant, sift: Sift) -> tuple[NDArray[Any], dict[str, float]]:
        """The person's permanent symbol of the granted sift as a row, and what it costs if it is drawn now."""
        before, count = self._symbols.charges(wanted.person), grant.budget.frames

        def frames() -> NDArray[np.float32]:
            if wanted.repeated:
                raise InputError(
                    f"a permanent symbol is drawn from {count} different frames; one is named twice. Name each once."
                )
            return self._seen(wanted)

        one = self._symbols.symbol(wanted.person, grant.public[0], sift, frames, count=count, another=True)
        row = np.stack(np.unravel_index([one.symbol], sift.levels or (1,)), axis=1).astype(np.int64)
        return row, {"epsilon": one.epsilon} if one.epsilon and one not in before else {}

    def holding(self, person: str, app: str) -> Grant:
        """Return the grant through which an app gets something about a person just now, or refuse."""
        with self._register.current():
            return self._holding(person, app)

    def _holding(self, person: str, app: str) -> Grant:
        self._register.private_of(person)
        version = self._register.app(app).version
        grants = [one for one in self._register.live(person, app) if one.policy_version == version]
        if not grants:
            raise PrivacyError(no_grant(app))
        if not self._holds(grants[-1]):
            raise PrivacyError(
                f"grant {grants[-1].number} is suspended: preferences, verification rows or attackers have changed "
                "since it was verified. Review it first."
            )
        return grants[-1]

    def _repeated(self, grant: Grant, released: NDArray[Any] | None, more: int, *, last: bool) -> NDArray[Any]:
        again = self._store.last(grant.number) if released is None else released[-1:]
        if again is None:
            raise BudgetExceededError("all verified frames are released, and the last was not kept: nothing to repeat.")
        if last and released is not None:
            self._store.keep_last(grant.number, again)
        repeated = np.repeat(again, more, axis=0)
        return repeated if released is None else np.concatenate([released, repeated])

    # --- keeping watch ---

    def review(self, person: str | None = None, *, progress: Progress = silent) -> Review:
        """Verify all grants (of one person, or of all) that do not hold under today's terms; revoke what fails."""
        with self._register.current():
            people = list(self._register.people) if person is None else [person]
        reviews = [self._review(name, progress) for name in people]
        kept = tuple(grant for review in reviews for grant in review.kept)
        return Review(kept, tuple(grant for review in reviews for grant in review.revoked))

    def _review(self, person: str, progress: Progress) -> Review:
        """Verify a person's grants that do not hold, oldest first, each with those that hold and what was told."""
        with self._register.current():
            private = self._register.private_of(person)
            live = self._register.live(person)
            kept = [grant for grant in live if self._holds(grant)]
        revoked = []
        for grant in (one for one in live if one not in kept):
            with self._register.current():
                others = self._parts(self._told(self._harmless(person)) | self._may_tell(kept))
            found, problem, leaks = self._examined(grant, others, private, progress)
            with self._register.current():
                if self._register.private_of(person) != private or not self._register.grants[grant.number].live:
                    break  # somebody changed it meanwhile, and reviews it too
                if found is None or found.verdict != "accept":
                    revoked.append(self._register.revoke(grant, problem, leaks=leaks))
                    continue
                terms, reports = asdict(self._terms(private, found)), found.reports()
                self._register.record("confirm", grant=grant.number, terms=terms, **reports)
                kept.append(self._register.grants[grant.number])
        return Review(tuple(kept), tuple(revoked))

    def add_attacker(self, attacker: Attacker, *, progress: Progress = silent) -> Review:
        """Let one more attacker judge from now on; every grant that does not rest on a certificate is reviewed."""
        self.note_attacker(attacker)
        return self.review(progress=progress)

    def note_attacker(self, attacker: Attacker) -> None:
        """Let one more attacker judge from now on; grants without a certificate are suspended until `review`."""
        with self._register.current():
            present = [one for one in chosen_attackers(self.verifier.attackers) if one.name != attacker.name]
            verifier = replace(self.verifier, attackers=(*present, attacker))
            self._register.record("verifier", name=verifier_name(verifier, certified=False))
            self.verifier = verifier

    def odometer(self, person: str, *, progress: Progress = silent) -> Odometer:
        """Return how well each hidden attribute is guessed from all that is granted, or was ever released."""
        with self._register.current():
            private = self._register.private_of(person)
            frames = self._told(self._register.told(person)) | self._may_tell(self._register.live(person))
            parts = self._parts(frames)
        found = blind(private)
        if parts:
            verifier = replace(self.verifier, stop_early=False)
            found = readings(verify_together(parts, private, self.data, verifier, progress=progress))
        return Odometer(person, tuple(frames), found, self.verifier.confidence)

    def _terms(self, private: tuple[str, ...], found: Examination) -> Terms:
        name = verifier_name(self.verifier, certified=found.certified)
        return Terms(private, self.data.digest, name, self.data.reference_digest)

    def _holds(self, grant: Grant) -> bool:
        assert self.verifier  # the newest
        return grant.terms.covers(self._register.private_of(grant.person), self.data.digest, self._names)

    def _parts(self, frames: Mapping[int, int]) -> list[Part]:
        grants = [(self._register.grants[number], count) for number, count in frames.items()]
        return [Part(self._store.sift(one.sift), count, one.budget.permanent) for one, count in grants]

    def _harmless(self, person: str) -> list[Grant]:
        """Revoked grants that told something, without those that were proven to leak."""
        return [grant for grant in self._register.told(person) if grant.revoked and not grant.revoked.leaks]

    def _told(self, grants: Iterable[Grant]) -> dict[int, int]:
        return {grant.number: self._register.frames[grant.number] for grant in grants}

    def _may_tell(self, grants: Iterable[Grant]) -> dict[int, int]:
        """Frames of live grants; through another pipeline only those that went out."""
        frames = {
            grant.number: self._frames(grant) if self._comparable(grant) else self._register.frames[grant.number]
            for grant in grants
        }
        return {number: count for number, count in frames.items() if count}

    def _frames(self, grant: Grant) -> int:
        """The budget of a live grant without what the app got through earlier grants."""
        if grant.budget.permanent:
            return grant.budget.frames
        earlier = self._register.frames_to(grant.person, grant.app) - self._register.frames[grant.number]
        return grant.budget.frames - earlier

    def _comparable(self, grant: Grant) -> bool:
        return grant.pipeline == self.data.pipeline

    def _examined(
        self, grant: Grant, others: list[Part], private: tuple[str, ...], progress: Progress
    ) -> tuple[Examination | None, str, bool]:
        """The examination, its result in words, and whether the grant is proven to leak."""
        if not self._comparable(grant):
            return None, "the platform's features have changed", False
        hidden = sorted(set(grant.public) & set(private))
        if hidden:
            return None, f"{hidden[0]} itself is private now", True
        try:
            (part,) = self._parts({grant.number: self._frames(grant)})
            found = self._judge(part, lambda: part, others, private, progress, {})
        except (InputError, PrivacyError) as error:
            return None, str(error), False
        return found, found.sentence, found.verdict == "reject"


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) < len(names):
        raise InputError(f"name at least one {what}, each once; got {list(names)}.")
    return tuple(_name(name, what) for name in names)


def _name(given: str, what: str) -> str:
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InputError(f"the name of a {what} is one line of printable text; got {given!r}.")
    return given


def no_grant(app: str) -> str:
    """The same answer for an app without a grant and for a name that nobody has."""
    return f"app {app} has no grant about this person. Propose a release and let the person allow it."
