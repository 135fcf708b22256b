"""The gateway: every use case of the service, one method each (people, apps, proposals, grants, releases, the log).

*The guarantee.* The caller is checked here, whatever was checked before. What is decided or released has its entry in
the audit log before its effect is visible (`log`); the platform decides, and keeps its own promises over kills
(`sift.platform`). A preference, or an attacker that joins, counts from the moment it is noted: grants not verified
under it are suspended at once, and a job verifies them again. Pictures go back sealed to the person on them, and to
nobody else; features go to nobody, and are read only while a grant is live (`keys`).

SensorSift (Enev et al., ACSAC 2012, section 3 and Figure 1) draws this service around its sifts.
"""

import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from tempfile import NamedTemporaryFile
from typing import Any, Self

import numpy as np
from starlette.concurrency import run_in_threadpool

from blindsight.client import Release
from blindsight.crypto.merkle import TreeHead
from blindsight.data import Dataset, FeaturePipeline
from blindsight.errors import BlindsightError, InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.service.cameras import Cameras, Device, Retention, revoke_devices
from blindsight.service.errors import told
from blindsight.service.frames import FrameStore
from blindsight.service.jobs import UNFINISHED, Handler, Job, Jobs, Worker
from blindsight.service.keys import ANY_KEY, Epoch, Keys, SealedFor, storage_statement
from blindsight.service.log import (
    MACHINE,
    PLATFORM,
    AuditLog,
    Entry,
    LogCheck,
    LogRecords,
    acting,
    digest,
    open_log,
)
from blindsight.service.models import (
    AttributeView,
    FrameResult,
    GrantView,
    JobView,
    NewRelease,
    PersonView,
    PlatformView,
    ProposalView,
    RetentionView,
    grant_view,
    job_view,
    proposal_view,
)
from blindsight.service.principals import CODE_HOURS, Principal, Principals, Role, Token, told_of
from blindsight.service.proposals import ASKING, ODOMETER, REVIEW, Answer, Asking, Duties, Proposals, Reviews
from blindsight.service.releases import Releases, Streams
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import Database, FolderLock, check_guards, open_database
from blindsight.service.verification import KNOWN, Ensemble, platform_data, shortages
from blindsight.service.witnesses import remember_head, remembered_head, witness_at
from blindsight.sift.attackers import chosen_attackers
from blindsight.sift.platform import Platform, no_grant
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.register import Grant, Register
from blindsight.sift.stream import Then
from blindsight.sift.verify import Verifier

MOST_PICTURES = 64  # in one batch
MOST_WAITING = 5  # jobs that one principal may have waiting

_PROBE = 1 << 20  # bytes that must have room on the disk
_NOTED, _NOTED_AGAIN = 10_000, 60.0  # what is remembered of notes, and for how many seconds

ANOTHER_CODE = "another enrolment code was issued for the owner"

FOR_APPS = ("status", "mechanism", "who_sees")  # what an app may read of a statement about a person


class Gateway:
    """All that can be asked of the service. Every method is told first who asks, and refuses what is not theirs."""

    def __init__(
        self,
        settings: ServiceSettings,
        platform: Platform,
        frames: FrameStore,
        keys: Keys,
        jobs: Jobs,
        log: AuditLog,
        principals: Principals,
        *,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self.settings, self.platform, self.frames, self.keys = settings, platform, frames, keys
        self.jobs, self.audit, self.principals = jobs, log, principals
        self._ensemble = Ensemble(settings.folder / "attackers.json", platform.verifier)
        self._proposals = Proposals(settings.folder / "proposals")
        self._asking = Asking(platform, self._proposals, jobs, log)
        self._releases = Releases(platform, frames, log, principals)
        self.cameras = Cameras(principals, frames, log, settings.folder / "people.json")
        self.streams = Streams(self)
        self._reviews = Reviews(platform, jobs)
        platform.verifier = self._ensemble.verifier
        platform.joined = self._ensemble.again  # another process may have let one in
        duties = Duties(platform, self._proposals, log)
        self.worker = Worker(jobs, {**(handlers or {}), **duties.handlers}, settings, between=self.sweep)
        self._registered, self._ended = set[str](), set[str]()  # apps; revoked owners whose grants have ended
        self._noted: dict[str, tuple[float, int]] = {}  # what was logged when, and how often again since
        self._noting = threading.Lock()
        self._held: tuple[FolderLock, Database] | None = None
        self._beat: tuple[int, TreeHead] | None = None

    @classmethod
    def open(
        cls,
        settings: ServiceSettings,
        dataset: Dataset | None = None,
        pipeline: FeaturePipeline | None = None,
        *,
        verifier: Verifier | None = None,
        learner: SiftLearner | None = None,
        unchanging: Sequence[str] = (),
        handlers: Mapping[str, Handler] | None = None,
        random_state: int = 0,
        progress: Progress = silent,
    ) -> Self:
        """Open a service's folder, made if need be; the default data are drawn faces. `handlers` do further kinds of
        jobs. Call `start` for the worker, and `close` at the end.
        """
        shared = settings.processes > 1 or not settings.database_url.startswith("sqlite")
        lock, database, log = FolderLock(settings.folder, shared=shared), None, None
        try:
            database = open_database(settings.database_url)
            check_guards(database.engine)
            log = open_log(settings.folder, database, [witness_at(one) for one in settings.witnesses])
            how: dict[str, Any] = {"random_state": random_state, "progress": progress, "unchanging": unchanging}
            ground = platform_data(dataset, pipeline, cache=settings.folder / "cache", **how)
            platform = Platform(
                ground.judging,
                verifier=Verifier(random_state=random_state) if verifier is None else verifier,
                development=ground.development,
                learner=PPLS(5, float("inf"), scale=False) if learner is None else learner,
                folder=settings.folder / "platform",
                permanent=ground.unchanging,
                records=LogRecords(log, database),
                clock=log.now,
            )
            log.check_witnesses(new=settings.witness_new)
            keys = Keys(settings.open_keys, database, clock=log.now)
            frames = FrameStore(
                settings.folder / "frames",
                database,
                ground.pipeline,
                keys,
                size=ground.size,
                pixels=settings.picture_pixels,
                content_bytes=settings.pictures_bytes,
                alone=lock.alone,
            )
            jobs, principals = Jobs(database), Principals(database, clock=log.now)
            gateway = cls(settings, platform, frames, keys, jobs, log, principals, handlers=handlers)
        except BaseException:
            if log is not None:
                log.close()
            if database is not None:
                database.close()
            lock.release()
            raise
        gateway._held = (lock, database)
        gateway.recover(alone=lock.alone)
        if shared:
            lock.share()
        return gateway

    def recover(self, *, alone: bool = True) -> None:
        """Take up what the last process left: jobs that ran (not those of other living processes), and grants that must
        end or wait for their review.
        """
        if alone:
            self.jobs.recover()
        self.sweep()
        self._reviews.of_suspended(PLATFORM)

    def sweep(self) -> None:
        """End what nobody needs any more: grants and cameras of owners whose token was revoked or is being exchanged
        (on the machine itself, too), open epochs without a live grant.
        """
        for gone in self.principals.ended_owners():
            if gone.revoked is None or gone.name not in self._ended:
                reason = "the owner's token was revoked" if gone.revoked else ANOTHER_CODE
                self._end_grants_about(gone, None, reason)
                self.cameras.revoke_all(gone.name, PLATFORM)
            if gone.revoked is not None:
                self._ended.add(gone.name)
        for person in set(self.keys.open_epochs()) - self.platform.active():
            self._close(person)
        self.frames.forget_closed()

    def _close(self, person: str) -> None:
        """End a person's epoch unless some grant about them can still let something out that is made of features."""
        if not self.keys.open_epochs(person)[person]:
            return
        with self.keys.settled():
            ids = self.keys.open_epochs(person)[person]
            if ids and not self._needs_keys(person):
                self.keys.close(ids)
                if person:
                    with self.principals.database.session():
                        self.keys.begin(person, self.keys.current(person).owner_key)
                        self.audit.append(MACHINE, "end epoch", {"person": person})
        self.frames.forget_closed()

    def _needs_keys(self, person: str) -> bool:
        return person in self.platform.active(person)

    def start(self, *, works: bool = True) -> None:
        """Begin to do jobs, and to forget frames that are over, once what every release needs is computed."""
        assert self.platform.data.support
        self.frames.open_up()
        if works:
            self.worker.start()
            self.cameras.start()

    def close(self) -> None:
        """Stop after the present step; unfinished work continues after the next start. If a step takes too long, the
        folder stays locked until the process ends, and the step with it.
        """
        self.cameras.close()
        if self.worker.stop() and self._held is not None:
            lock, database = self._held
            self.audit.close()
            database.close()
            lock.release()
            self._held = None

    def check_ready(self) -> None:
        """Refuse where the service could not do what it is asked: no database, a log that lacks what was seen of it, no
        room on the disk, no worker.
        """
        self.audit.head()
        if self.audit.now() and self.audit.ahead:
            raise StorageError(f"the clock jumped ahead by {self.audit.ahead}. If it is right now, start again.")
        self.jobs.waiting("")
        with self.principals.database.session():  # somebody can write
            pass
        with storage_errors("write into", self.settings.folder), NamedTemporaryFile(dir=self.settings.folder) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
            os.fsync(probe.fileno())
        if not self.worker.alive:
            raise StorageError("the worker has ended.")

    # --- who may ask ---

    def create_principal(
        self,
        operator: Principal,
        name: str,
        role: Role,
        *,
        expires: datetime | None = None,
        hours: float = CODE_HOURS,
    ) -> tuple[Principal, Token]:
        """Add an owner, an app or another operator; return the code with which they make their token themselves."""
        _only(operator, "operator")
        with self.principals.database.session():  # both or neither
            made, code = self.principals.create(name, role, expires=expires, hours=hours)
            self.audit.append(operator.id, "create principal", told_of(made))
        return made, code

    def issue_code(
        self, operator: Principal, id: str, *, hours: float = CODE_HOURS, expires: datetime | None = None
    ) -> Token:
        """Issue another code for somebody who lost a token. The token, an owner's cameras and grants end at once: who
        redeems the code might be somebody else, and must find nothing open.
        """
        _only(operator, "operator")
        with self.principals.database.session():
            code, known = self.principals.issue_code(id, hours=hours, expires=expires), self.principals.get(id)
            self.audit.append(operator.id, "issue enrolment code", told_of(known))
        self._shut(known, operator)
        return code

    def _shut(self, owner: Principal, by: Principal) -> None:
        """End grants about somebody whose token was exchanged, and the tokens of their cameras."""
        if owner.role == "owner":
            self._end_grants_about(owner, by, ANOTHER_CODE)
            self.cameras.revoke_all(owner.name, by.id)
            self._close(owner.name)

    def enrol(self, code: str, public_key: str | None = None, *, address: str = "") -> tuple[Principal, Token]:
        """Redeem a code: make the token of who holds it, and an owner's first epoch; failures leave a trace."""
        try:
            with self.principals.database.session():
                made, token = self.principals.redeem(code, public_key)
                if made.public_key is not None:
                    self.keys.begin(made.name, made.public_key)
                self.audit.append(made.id, "enrol", {**told_of(made), "key": made.public_key, "address": address})
        except (InputError, PrivacyError) as error:
            with suppress(StorageError):
                whose = self.principals.whose_code(code)
                named = {} if whose is None else told_of(whose)
                self.note("stranger", "refuse enrolment", address=address, reason=str(error), **named)
            raise
        if made.role == "owner":
            self._shut(made, made)  # the code may have been issued on the machine itself
        return made, token

    def rotate_token(self, principal: Principal) -> Token:
        with self.principals.database.session():
            token = self.principals.rotate(principal.id)
            self.audit.append(principal.id, "rotate token", {"principal": principal.id, "name": principal.name})
            return token

    def revoke_principal(self, operator: Principal, id: str) -> None:
        """Make somebody's token worthless for ever; grants about an owner end, since nobody could answer for them."""
        _only(operator, "operator")
        gone = self.principals.get(id)
        with self.principals.database.session():
            self.principals.revoke(id)
            self.audit.append(operator.id, "revoke principal", told_of(gone))
        self._end_grants_about(gone, operator, "the owner's token was revoked")
        self._close(gone.name)

    def erase_person(self, principal: Principal, name: str) -> int:
        """Remove all of an owner, who asks for it or is gone: grants end, frames, features, keys and what was kept of
        releases are deleted, the token opens nothing more. The log stays. Return how many frames there were.
        """
        _only(principal, "owner", "operator")
        self._own(principal, name)
        gone = self.principals.named(name)
        if gone is None or gone.role != "owner":
            raise UnknownNameError("person", name, ())
        self.audit.append(principal.id, "erase person", {"principal": gone.id, "person": name})
        self._end_grants_about(gone, principal, "the person was erased")
        self.keys.erase(name)
        count = self.frames.forget_all(name)
        self.platform.forget(name)
        self._proposals.forget(self.jobs.forget(name, ASKING))
        self.cameras.revoke_all(name, principal.id, erase=True)
        self.principals.revoke(gone.id)
        return count

    # --- people ---

    def attributes(self) -> tuple[str, ...]:
        return tuple(sorted(self.platform.data.labels))

    def about(self) -> PlatformView:
        """Return what an app needs to know before it fits a sift, and what can be granted here."""
        data, verifier = self.platform.data, self.platform.verifier
        longest = 1 if data.persons is None else int(np.unique(data.persons, return_counts=True)[1].max())
        return PlatformView(
            pipeline=data.pipeline,
            dimension=data.dimension,
            side=self.frames.side,
            attributes=tuple(AttributeView(name, name in self.platform.unchanging) for name in self.attributes()),
            frames=longest,
            pictures=len(data.features),
            persons=None if data.persons is None else len(np.unique(data.persons)),
            threshold=verifier.threshold,
            confidence=verifier.confidence,
            notes=shortages(data, verifier),
        )

    def person(self, principal: Principal, name: str) -> PersonView:
        _only(principal, "owner", "operator")
        self._own(principal, name)
        try:
            private = self.platform.preferences(name)
        except UnknownNameError:
            if principal.name != name:
                raise
            private = ()  # an owner who has not said anything yet
        kept = RetentionView(**vars(self.cameras.retention(name)))
        return PersonView(person=name, private=private, frames=self.frames.count(name), retention=kept)

    def set_private(self, owner: Principal, attributes: Sequence[str]) -> JobView:
        """Note what a person hides, from now on; the job reviews their grants, which are suspended until then."""
        _only(owner, "owner")
        with acting(owner):
            self.platform.note_preferences(owner.name, attributes)
        return job_view(owner, self._reviews.of(owner.name, owner.id))

    def add_frame(self, principal: Principal, content: bytes, expected: SealedFor = ANY_KEY) -> str:
        """Keep a picture of an owner, sent by them or their device, sealed for the expected keys; return its id."""
        _only(principal, "owner", "device")
        frame = self.frames.add(
            principal.name,
            content,
            expected,
            logged=lambda frame: self.cameras.note_frame(principal.id, principal.name, frame),
        )
        self.cameras.forget(principal.name)
        return frame

    def add_frames(
        self, principal: Principal, pictures: Sequence[tuple[str, bytes]], expected: SealedFor = ANY_KEY
    ) -> tuple[FrameResult, ...]:
        """Keep several pictures, by file name; each has its own result, whatever became of the others."""
        _only(principal, "owner", "device")
        if not 1 <= len(pictures) <= MOST_PICTURES:
            raise InputError(f"a batch has 1 to {MOST_PICTURES} pictures; got {len(pictures)}.")
        results = []
        for name, content in pictures:
            try:
                results.append(FrameResult(name=name, frame=self.add_frame(principal, content, expected)))
            except BlindsightError as error:
                results.append(FrameResult(name=name, error=told(error)))
        return tuple(results)

    def devices(self, owner: Principal) -> tuple[Device, ...]:
        _only(owner, "owner")
        return self.cameras.of(owner.name)

    def add_device(self, owner: Principal, name: str, days: int | None = None) -> tuple[Device, Token]:
        """Add a device that can only bring frames of its owner; its token is shown once."""
        _only(owner, "owner")
        return self.cameras.add(owner, name, days)

    def revoke_device(self, owner: Principal, id: str) -> Device:
        _only(owner, "owner")
        return self.cameras.revoke(owner, id)

    def set_retention(self, owner: Principal, wanted: Retention) -> int:
        _only(owner, "owner")
        return self.cameras.set_retention(owner, wanted)

    def own_entries(self, owner: Principal, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        _only(owner, "owner")
        return self.audit.entries_about(owner.name, owner.id, after=after, limit=limit)

    def frame_ids(self, owner: Principal, *, after: str | None = None, limit: int | None = None) -> tuple[str, ...]:
        _only(owner, "owner")
        return self.frames.ids(owner.name, after=after, limit=limit)

    def picture(self, owner: Principal, frame: str) -> bytes:
        _only(owner, "owner")
        found = self.frames.picture(owner.name, frame)
        self.note(owner.id, "read picture", person=owner.name, frame=frame)
        return found

    def stale_frames(self, owner: Principal) -> tuple[str, ...]:
        _only(owner, "owner")
        return self.frames.stale(owner.name)

    def epochs(self, owner: Principal) -> tuple[Epoch, ...]:
        _only(owner, "owner")
        return self.keys.of(owner.name)

    def hand_over_keys(self, owner: Principal, keys: Mapping[str, str]) -> None:
        """Take the keys of epochs again, which a machine lost at its restart; some grant must need them."""
        _only(owner, "owner")
        with self.keys.settled():
            if not self._needs_keys(owner.name):
                raise InputError("no grant of yours is live: nobody needs your keys. Keep them.")
            self.keys.keep(owner.name, keys)
        self.audit.append(owner.id, "hand over keys", {"person": owner.name, "epochs": len(keys)})
        self.frames.open_up(owner.name)

    def delete_frame(self, owner: Principal, frame: str) -> None:
        _only(owner, "owner")
        details = {"person": owner.name, "frame": frame}
        self.frames.delete(owner.name, [frame], logged=lambda: self.audit.append(owner.id, "delete frame", details))

    def odometer(self, principal: Principal, person: str) -> JobView:
        """Measure how well all that is out about a person tells what they hide: a job, as it takes as long as a review.
        Its result is that of `Odometer` as plain data. While nothing has changed, asking again gives the same job.
        """
        job = self.measurement(principal, person, start=True)
        assert job is not None
        return job

    def measurement(self, principal: Principal, person: str, *, start: bool = False) -> JobView | None:
        """Return the measurement of what is out about a person just now, if there is one or shall be."""
        _only(principal, "owner", "operator")
        self._own(principal, person)
        out = [(grant.number, grant.live, self.platform.released(grant)) for grant in self.platform.grants(person)]
        terms = [self.platform.preferences(person), self.attackers()[0], out]
        about = {"person": person, "as_of": digest({"terms": terms})}
        for job in self.jobs.find([ODOMETER], about=about, limit=1):
            if job.state in (*UNFINISHED, "done"):
                return job_view(principal, job)
        if not start:
            return None
        self._refuse_flood(principal)
        return job_view(principal, self.jobs.submit(ODOMETER, principal.id, about))

    # --- apps ---

    def register_app(self, app: Principal, public: Sequence[str]) -> tuple[str, ...]:
        """Note what an app asks for; if it asked for something else before, its grants end."""
        _only(app, "app")
        with acting(app):
            self.platform.add_app(app.name, public)
        self.sweep()
        return self.platform.asked(app.name)

    def propose(
        self,
        app: Principal,
        person: str,
        sift: Mapping[str, Any] | None = None,
        *,
        frames: int = 1,
        then: Then = "refuse",
        personal: float | None = None,
    ) -> JobView:
        """Ask for something about a person: the numbers of a sift (`proposals`), or without one the platform's label.
        The job verifies it; then the person is asked. `frames` counts all frames that this app will ever have got.
        """
        _only(app, "app")
        self._asked(app)
        self._refuse_flood(app)
        return job_view(app, self._asking.propose(app, person, sift, frames, then, personal))

    def proposal(self, principal: Principal, job: str) -> ProposalView:
        """Return a proposal to the app that made it (the verdict alone), to the person it is about, or an operator."""
        found = self._proposal(principal, job)
        verified = (found.result or {}).get("verdict") in ("accept", "reject", "inconclusive")
        kept = self._proposals.of(found) if verified and principal.role != "app" and not found.erased else None
        return proposal_view(principal, self._told(principal, found), kept)

    def proposals(
        self, principal: Principal, *, after: str | None = None, limit: int = 100
    ) -> tuple[ProposalView, ...]:
        """Return the newest proposals that concern somebody, without evidence; those after a job of theirs."""
        about = {"app": {"app": principal.name}, "owner": {"person": principal.name}, "operator": {}}[principal.role]
        last = None if after is None else self._proposal(principal, after)
        found = self.jobs.find(ASKING, about=about, after=last, limit=limit)
        return tuple(proposal_view(principal, self._told(principal, job)) for job in found)

    def answer(self, owner: Principal, job: str, answer: Answer, keys: Mapping[str, str] | None = None) -> ProposalView:
        """Allow a proposal (`grant` is its number), ask for `fewer` details (`next` is the job), or refuse it. To allow
        it hands over the `keys` of the owner's epochs, without which no feature can be read.
        """
        _only(owner, "owner")
        asked = self._proposal(owner, job)
        if answer != "allow":
            return proposal_view(owner, self._asking.answer(owner, asked, answer))
        try:
            with self.keys.settled():
                self.keys.keep(owner.name, keys or {})
                answered = proposal_view(owner, self._asking.answer(owner, asked, answer))
        finally:
            self._close(owner.name)  # what was not allowed needs no key
        self.frames.open_up(owner.name)
        return answered

    # --- grants ---

    def grants(self, principal: Principal, *, after: int = 0, limit: int | None = None) -> tuple[GrantView, ...]:
        """Return the grants that concern somebody, oldest first, revoked ones included; `limit` after a number."""
        about = {"owner": {"person": principal.name}, "app": {"app": principal.name}}.get(principal.role, {})
        try:
            mine = self.platform.grants(**about)
        except UnknownNameError:  # of an owner who has not said anything yet
            return ()
        some = [grant for grant in mine if grant.number > after][:limit]
        standing = zip(some, self.platform.standing(some), strict=True)
        return tuple(grant_view(principal, one, holds=holds, released=told) for one, (holds, told) in standing)

    def revoke(self, principal: Principal, number: int, reason: str) -> GrantView:
        """End a grant: the person it is about may, or an operator."""
        _only(principal, "owner", "operator")
        grant = next((one for one in self.platform.grants() if one.number == number), None)
        if grant is None or not _concerns(principal, grant):
            raise UnknownNameError("grant", str(number), ())
        with acting(principal, person=grant.person, app=grant.app):
            ended = self.platform.revoke(number, reason)
        self._close(grant.person)
        ((holds, released),) = self.platform.standing([ended])
        return grant_view(principal, ended, holds=holds, released=released)

    def release(
        self, app: Principal, person: str, *, frames: Sequence[str] | None = None, latest: int | None = None
    ) -> Release:
        """Give an app what it was granted of some frames of a person, by their ids or the `latest` few. Each frame
        counts each time, against the number that was verified. A refusal is logged, and gives nothing.
        """
        _only(app, "app")
        self._asked(app)
        return self._releases.give((app, NewRelease.of(person, frames, latest), None))

    async def release_each(self, app: Principal, wanted: Sequence[NewRelease], token: str) -> list[Release | Exception]:
        """Do as `release` for several people or frames, each by itself, while the token with this hash is the app's."""
        _only(app, "app")
        if app.name not in self._registered:
            await run_in_threadpool(self._asked, app)
        return await self._releases.give_each([(app, one, token) for one in wanted])

    def live_grant(self, app: Principal, person: str) -> Grant:
        """Return the grant through which an app gets something about a person just now, or refuse."""
        _only(app, "app")
        try:
            return self.platform.holding(person, app.name)
        except UnknownNameError:
            raise PrivacyError(no_grant(app.name)) from None

    # --- the operator ---

    def attackers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        judging = tuple(attacker.name for attacker in chosen_attackers(self.platform.verifier.attackers))
        return judging, tuple(name for name in KNOWN if name not in judging)

    def add_attacker(self, operator: Principal, name: str) -> tuple[JobView, ...]:
        """Let one more attacker judge, from now on; the jobs review every grant that rests on attackers."""
        _only(operator, "operator")
        Ensemble.candidate(name, self.platform.verifier)
        self.audit.append(operator.id, "add attacker", {"attacker": name})
        with acting(operator):
            self.platform.note_attacker(self._ensemble.join(name, self.platform.verifier))
        return tuple(job_view(operator, job) for job in self._reviews.of_suspended(operator.id))

    def review(self, operator: Principal) -> tuple[JobView, ...]:
        """Queue a job per person that verifies what is suspended again."""
        _only(operator, "operator")
        return tuple(job_view(operator, job) for job in self._reviews.of_suspended(operator.id))

    def job(self, principal: Principal, id: str) -> JobView:
        """Return a job to who asked for it, to the person it is about, or to an operator, each with what is theirs."""
        return job_view(principal, self._told(principal, self._job(principal, id)))

    def cancel(self, principal: Principal, id: str) -> JobView:
        """Stop a job; only an operator may stop a review, and even then what it would verify stays suspended."""
        job = self._job(principal, id)
        if principal.role != "operator" and (job.owner != principal.id or job.kind == REVIEW):
            raise PrivacyError("only who asked for a job may cancel it, and a review only an operator.")
        self.audit.append(principal.id, "cancel job", {"job": id, "kind": job.kind})
        told = self._told(principal, job)
        if told is not job and told.state in UNFINISHED:  # that it has ended is not told yet
            return job_view(principal, told)
        return job_view(principal, self.jobs.cancel(id))

    def entries(self, operator: Principal, *, after: int = 0, limit: int = 100) -> tuple[Entry, ...]:
        _only(operator, "operator")
        return self.audit.entries(after=after, limit=limit)

    def check_log(self, operator: Principal) -> LogCheck:
        _only(operator, "operator")
        return self.audit.verify()

    def witness_head(self, principal: Principal, head: Mapping[str, Any], proof: Sequence[str]) -> TreeHead:
        """Remember the newest head of another service's log; one that tells another history is refused, and logged."""
        told = TreeHead.from_dict(head)
        try:
            return remember_head(self.principals.database, told, proof, principal.id)
        except PrivacyError:
            self.audit.append(
                principal.id, "refuse head", {"key": told.key, "head": str(told), "signed": told.signature}
            )
            raise

    def log_head(self, principal: Principal) -> TreeHead:
        """Return the newest head that somebody may see. To an app its size would tell when others do something: it gets
        one on a fixed beat, or that of its own last release.
        """
        if principal.role != "app":
            return self.audit.head()
        beat = math.floor(self.jobs.now().timestamp() / self.settings.verdict_seconds)
        if self._beat is None or self._beat[0] != beat:
            self._beat = beat, self.audit.head()
        own = self._releases.heads.get(principal.id)
        return self._beat[1] if own is None or own.size < self._beat[1].size else own

    def log_proof(self, principal: Principal, first: int, second: int | None) -> tuple[TreeHead, int, list[str]]:
        """Return the newest head that somebody may see, a size up to it, and the proof that the log of that size goes
        on from that of `first` entries.
        """
        head = self.log_head(principal)
        size = head.size if second is None else second
        if not 0 <= first <= size <= head.size:
            raise InputError(f"sizes must be in order, and at most {head.size}; got {first} and {size}.")
        return head, size, self.audit.consistency(first, size)

    def witnessed_head(self, key: str) -> TreeHead:
        return remembered_head(self.principals.database, key)

    def statements(self, principal: Principal) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Return the privacy statements of all live grants that concern somebody, each with its subject. An app gets
        the parts that do not tell what the person hides, nor how well it can be guessed.
        """
        kept = ("pictures of people", storage_statement().to_dict())
        live = (grant for grant in self.platform.grants() if grant.live and _concerns(principal, grant))
        said = ((grant, grant.report["statement"]) for grant in live)
        if principal.role == "app":
            said = ((grant, {part: whole[part] for part in FOR_APPS}) for grant, whole in said)
        granted = ((f"grant {grant.number}: {grant.app} about {grant.person}", parts) for grant, parts in said)
        return (kept, *granted)

    def authenticate(self, token: str) -> Principal | None:
        return self.principals.authenticate(token) or self.cameras.authenticate(token)

    # --- inside ---

    def _end_grants_about(self, gone: Principal, by: Principal | None, reason: str) -> None:
        """End what an owner granted who is not there to answer for it; doing it again changes nothing."""
        mine: tuple[Grant, ...] = ()
        with suppress(UnknownNameError):  # an owner who has not said anything yet
            mine = self.platform.grants(gone.name) if gone.role == "owner" else ()
        for grant in mine:
            if grant.live:
                with acting(by, person=grant.person, app=grant.app), suppress(InputError):  # just ended by others
                    self.platform.revoke(grant.number, reason)

    def _proposal(self, principal: Principal, id: str) -> Job:
        job = self._job(principal, id)
        if job.kind not in ASKING:
            raise UnknownNameError("proposal", id, ())
        return job

    def _job(self, principal: Principal, id: str) -> Job:
        """Return a job that concerns somebody; others do not exist for them."""
        job = self.jobs.get(id)
        about = job.payload.get({"owner": "person", "app": "app"}.get(principal.role, ""))
        if principal.role != "operator" and job.owner != principal.id and about != principal.name:
            raise UnknownNameError("job", id, ())
        return job

    def _refuse_flood(self, principal: Principal) -> None:
        newest = self.jobs.find([*ASKING, ODOMETER], owner=principal.id, limit=MOST_WAITING)
        if sum(self._told(principal, job).state in UNFINISHED for job in newest) >= MOST_WAITING:
            raise InputError(f"{MOST_WAITING} jobs of yours are waiting. Wait until one of them is done.")

    def _told(self, principal: Principal, job: Job) -> Job:
        """Return a job as somebody may know it now: to an app how long a verification took would tell its verdict."""
        if principal.role != "app" or job.kind not in ASKING or job.finished is None or job.state == "cancelled":
            return job
        pace = self.settings.verdict_seconds
        paces = max(1, math.ceil((job.finished - job.submitted).total_seconds() / pace))
        if self.jobs.now() < job.submitted + timedelta(seconds=paces * pace):
            return replace(job, state="running", result=None, error=None)
        return job if job.state == "done" else replace(job, state="done", result={"verdict": "denied"}, error=None)

    def note(self, actor: str, action: str, **details: Any) -> None:
        """Log what is worth an entry, but not one each time: the same again within a minute is only counted."""
        key, now = f"{actor} {action} {details}", time.monotonic()
        with self._noting:
            since, count = self._noted.pop(key, (-math.inf, 0))
            fresh = now - since > _NOTED_AGAIN
            self._noted[key] = (now, 0) if fresh else (since, count + 1)
            if len(self._noted) > _NOTED:
                self._noted.pop(next(iter(self._noted)))
        if fresh:
            try:
                self.audit.append(actor, action, {**details, **({"before": count} if count else {})})
            except BaseException:
                with self._noting:
                    self._noted.pop(key, None)  # the next of its kind is to be logged, or refused likewise
                raise

    def _asked(self, app: Principal) -> None:
        """Refuse an app that never said what it asks for; who did once has done so for ever."""
        if app.name in self._registered:
            return
        try:
            self.platform.asked(app.name)
        except UnknownNameError:  # whose sentence would name the others
            raise InputError("say first what this app asks for: register its public attributes.") from None
        self._registered.add(app.name)

    @staticmethod
    def _own(principal: Principal, person: str) -> None:
        if principal.role != "operator" and principal.name != person:
            raise UnknownNameError("person", person, ())


def end_on_machine(log: AuditLog, database: Database, owner: Principal, reason: str) -> None:
    """End the grants and cameras of an owner whose token ends, without a gateway; a running one closes their epoch
    within a minute.
    """
    if owner.role != "owner":
        return
    register = Register(LogRecords(log, database), log.now)
    with register.current():
        for grant in register.live(owner.name):
            with acting(None, person=grant.person, app=grant.app):
                register.revoke(grant, reason, leaks=False)
    with database.session():
        if ended := revoke_devices(database, owner.name, log.now()):
            log.append(MACHINE, "revoke devices", {"person": owner.name, "devices": ended})


def _only(principal: Principal, *roles: Role) -> None:
    if principal.role not in roles:
        raise PrivacyError(f"this is not for the role {principal.role}.")


def _concerns(principal: Principal, grant: Grant) -> bool:
    return principal.role == "operator" or principal.name == (grant.app if principal.role == "app" else grant.person)
