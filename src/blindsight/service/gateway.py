"""Every use case of the service, one method each: people and apps, proposals and answers, grants and releases, the log.

*The guarantee.* Whoever asks is checked here, whatever the door in front of it checked before. What is decided or
released has its entry in the audit log before its effect is visible (`witness`); the platform decides, and keeps its
own promises over kills (`sift.platform`). A preference, or an attacker that joins, counts from the moment it is noted:
grants that were not verified under it are suspended at once, and a job verifies them anew. Raw pictures go back to the
person on them, and to nobody else; features to nobody.

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

from blindsight.crypto.merkle import TreeHead
from blindsight.data import Dataset, FeaturePipeline
from blindsight.errors import InputError, PrivacyError, StorageError, UnknownNameError
from blindsight.files import storage_errors
from blindsight.progress import Progress, silent
from blindsight.service.foundation import KNOWN, Ensemble, FolderLock, lay_foundation
from blindsight.service.frames import FrameStore
from blindsight.service.jobs import UNFINISHED, Handler, Job, Jobs, Worker
from blindsight.service.log import (
    PLATFORM,
    AuditLog,
    Entry,
    LogCheck,
    LogRecords,
    acting,
    digest,
    import_journal,
    open_log,
    remember_head,
    remembered_head,
    witness_at,
)
from blindsight.service.models import GrantView, JobView, PersonView, ProposalView, grant_view, job_view, proposal_view
from blindsight.service.principals import Principal, Principals, Role, Token
from blindsight.service.proposals import ASKING, ODOMETER, REVIEW, Answer, Asking, Duties, Proposals, Reviews
from blindsight.service.releases import Release, Releases
from blindsight.service.settings import ServiceSettings
from blindsight.service.store import Database, check_guards, open_database
from blindsight.sift.attackers import chosen_attackers
from blindsight.sift.platform import Platform
from blindsight.sift.ppls import PPLS, SiftLearner
from blindsight.sift.register import Grant
from blindsight.sift.stream import Then
from blindsight.sift.verify import Verifier

MOST_WAITING = 5
"""Jobs that one principal may have waiting."""

_PROBE = 1 << 20  # bytes that must have room on the disk
_NOTED, _NOTED_AGAIN = 10_000, 60.0  # what is remembered of notes, and for how many seconds

FOR_APPS = ("status", "mechanism", "who_sees")
"""What an app may read of a statement about a person."""


class Gateway:
    """All that can be asked of the service. Every method is told first who asks, and refuses what is not theirs."""

    def __init__(
        self,
        settings: ServiceSettings,
        platform: Platform,
        frames: FrameStore,
        jobs: Jobs,
        log: AuditLog,
        principals: Principals,
        *,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        self.settings, self.platform, self.frames = settings, platform, frames
        self.jobs, self.audit, self.principals = jobs, log, principals
        self._ensemble = Ensemble(settings.folder / "attackers.json", platform.verifier)
        self._proposals = Proposals(settings.folder / "proposals")
        self._asking = Asking(platform, self._proposals, jobs, log)
        self._releases = Releases(platform, frames, log)
        self._reviews = Reviews(platform, jobs)
        platform.verifier = self._ensemble.verifier
        duties = Duties(platform, self._proposals)
        self.worker = Worker(jobs, {**(handlers or {}), **duties.handlers}, settings)
        self._registered: set[str] = set()
        self._noted: dict[str, tuple[float, int]] = {}  # what was logged when, and how often again since
        self._noting = threading.Lock()
        self._held: tuple[FolderLock, Database] | None = None

    @classmethod
    def open(
        cls,
        settings: ServiceSettings,
        dataset: Dataset | None = None,
        pipeline: FeaturePipeline | None = None,
        *,
        verifier: Verifier | None = None,
        learner: SiftLearner | None = None,
        handlers: Mapping[str, Handler] | None = None,
        random_state: int = 0,
        progress: Progress = silent,
    ) -> Self:
        """Open a service's folder, made if need be; the default data are drawn faces.

        `handlers` do further kinds of jobs. Call `start` for the worker, and `close` at the end.
        """
        lock, database, log = FolderLock(settings.folder), None, None
        try:
            database = open_database(settings.database_url)
            check_guards(database.engine)
            log = open_log(settings.folder, database, [witness_at(one) for one in settings.witnesses])
            import_journal(log, database, settings.folder / "platform" / "platform.journal")
            ground = lay_foundation(
                dataset, pipeline, cache=settings.folder / "cache", random_state=random_state, progress=progress
            )
            platform = Platform(
                ground.judging,
                verifier=Verifier(random_state=random_state) if verifier is None else verifier,
                development=ground.development,
                learner=PPLS(5, float("inf"), scale=False) if learner is None else learner,
                folder=settings.folder / "platform",
                records=LogRecords(log, database),
                clock=log.now,
            )
            log.check_witnesses()
            frames = FrameStore(
                settings.folder / "frames",
                database,
                ground.pipeline,
                size=ground.size,
                pixels=settings.picture_pixels,
                content_bytes=settings.body_bytes,
            )
            jobs, principals = Jobs(database), Principals(database, clock=log.now)
            gateway = cls(settings, platform, frames, jobs, log, principals, handlers=handlers)
        except BaseException:
            if log is not None:
                log.close()
            if database is not None:
                database.close()
            lock.release()
            raise
        gateway._held = (lock, database)
        gateway.recover()
        return gateway

    def recover(self) -> None:
        """Take up what the last process left: jobs that ran, and grants that must end or wait for their review."""
        self.jobs.recover()
        for gone in self.principals.list():
            if gone.revoked is not None:
                self._end_grants_about(gone, None)
        self._reviews.of_suspended(PLATFORM)

    def start(self) -> None:
        """Begin to do jobs."""
        self.worker.start()

    def close(self) -> None:
        """Stop after the present step; what is unfinished goes on after the next start.

        Where a step takes too long the folder stays locked until the process ends, and the step with it.
        """
        if self.worker.stop() and self._held is not None:
            lock, database = self._held
            self.audit.close()
            database.close()
            lock.release()
            self._held = None

    def check_ready(self) -> None:
        """Refuse where the service could not do what it is asked: no database, no room on the disk, no worker."""
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
        self, operator: Principal, name: str, role: Role, *, expires: datetime | None = None
    ) -> tuple[Principal, Token]:
        """Add an owner, an app or another operator; the token is not to be had again."""
        _only(operator, "operator")
        with self.principals.database.session():  # both or neither
            made, token = self.principals.create(name, role, expires=expires)
            self.audit.append(operator.id, "create principal", {"principal": made.id, "name": name, "role": role})
        return made, token

    def revoke_principal(self, operator: Principal, id: str) -> None:
        """Make somebody's token worthless for ever; grants about an owner end, whom nobody could answer for."""
        _only(operator, "operator")
        gone = self.principals.get(id)
        self.audit.append(operator.id, "revoke principal", {"principal": id, "name": gone.name})
        self.principals.revoke(id)
        self._end_grants_about(gone, operator)

    def rotate_token(self, operator: Principal, id: str, *, expires: datetime | None = None) -> Token:
        """Replace somebody's token."""
        _only(operator, "operator")
        known = self.principals.get(id)
        self.audit.append(operator.id, "rotate token", {"principal": id, "name": known.name})
        return self.principals.rotate(id, expires=expires)

    # --- people ---

    def attributes(self) -> tuple[str, ...]:
        """Return what can be kept private, and what the platform's own sifts can tell."""
        return tuple(sorted(self.platform.data.labels))

    def person(self, principal: Principal, name: str) -> PersonView:
        """Return what a person hides and how many frames of them there are."""
        _only(principal, "owner", "operator")
        self._own(principal, name)
        try:
            private = self.platform.preferences(name)
        except UnknownNameError:
            if principal.name != name:
                raise
            private = ()  # an owner who has not said anything yet
        return PersonView(person=name, private=list(private), frames=len(self.frames.ids(name)))

    def set_private(self, owner: Principal, attributes: Sequence[str]) -> JobView:
        """Note what a person hides, from now on; the job reviews their grants, which are suspended until then."""
        _only(owner, "owner")
        with acting(owner):
            self.platform.note_preferences(owner.name, attributes)
        return job_view(owner, self._reviews.of(owner.name, owner.id))

    def add_frame(self, owner: Principal, content: bytes) -> str:
        """Keep a picture of a person; return its id."""
        _only(owner, "owner")
        frame = self.frames.add(owner.name, content)
        self.audit.append(owner.id, "add frame", {"person": owner.name, "frame": frame})
        return frame

    def frame_ids(self, owner: Principal) -> tuple[str, ...]:
        """Return a person's own frames, oldest first."""
        _only(owner, "owner")
        return self.frames.ids(owner.name)

    def picture(self, owner: Principal, frame: str) -> bytes:
        """Return one of a person's own pictures as PNG."""
        _only(owner, "owner")
        return self.frames.picture(owner.name, frame)

    def delete_frame(self, owner: Principal, frame: str) -> None:
        """Forget one of a person's own pictures."""
        _only(owner, "owner")
        if frame not in self.frames.ids(owner.name):
            raise UnknownNameError("frame", frame, ())
        self.audit.append(owner.id, "delete frame", {"person": owner.name, "frame": frame})
        self.frames.delete(owner.name, frame)

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
        return self.platform.asked(app.name)

    def propose(
        self,
        app: Principal,
        person: str,
        sift: Mapping[str, Any] | None = None,
        *,
        frames: int = 1,
        then: Then = "refuse",
    ) -> JobView:
        """Ask for something about a person: the numbers of a sift (`siftjson`), or without one the platform's label.

        The job verifies it; then the person is asked. `frames` counts all frames that this app will ever have got.
        """
        _only(app, "app")
        self._asked(app)
        self._refuse_flood(app)
        return job_view(app, self._asking.propose(app, person, sift, frames, then))

    def proposal(self, principal: Principal, job: str) -> ProposalView:
        """Return a proposal to the app that made it (the verdict alone), to the person it is about, or an operator."""
        found = self._proposal(principal, job)
        verified = (found.result or {}).get("verdict") in ("accept", "reject", "inconclusive")
        evidence = self._proposals.get(job).to_dict() if verified and principal.role != "app" else None
        return proposal_view(principal, self._told(principal, found), evidence)

    def proposals(self, principal: Principal) -> tuple[ProposalView, ...]:
        """Return the newest proposals that concern somebody, without evidence."""
        about = {"app": {"app": principal.name}, "owner": {"person": principal.name}, "operator": {}}[principal.role]
        return tuple(
            proposal_view(principal, self._told(principal, job)) for job in self.jobs.find(ASKING, about=about)
        )

    def answer(self, owner: Principal, job: str, answer: Answer) -> ProposalView:
        """Allow a proposal (`grant` is its number), ask for `fewer` details (`next` is the job), or refuse it."""
        _only(owner, "owner")
        return proposal_view(owner, self._asking.answer(owner, self._proposal(owner, job), answer))

    # --- grants ---

    def grants(self, principal: Principal) -> tuple[GrantView, ...]:
        """Return the grants that concern somebody, oldest first, revoked ones included."""
        mine = [grant for grant in self.platform.grants() if _concerns(principal, grant)]
        return tuple(self._grant_view(principal, grant) for grant in mine)

    def revoke(self, principal: Principal, number: int, reason: str) -> GrantView:
        """End a grant: the person it is about may, or an operator."""
        _only(principal, "owner", "operator")
        grant = next((one for one in self.platform.grants() if one.number == number), None)
        if grant is None or not _concerns(principal, grant):
            raise UnknownNameError("grant", str(number), ())
        with acting(principal, person=grant.person, app=grant.app):
            ended = self.platform.revoke(number, reason)
        return self._grant_view(principal, ended)

    def release(
        self, app: Principal, person: str, *, frames: Sequence[str] | None = None, latest: int | None = None
    ) -> Release:
        """Give an app what it was granted of some frames of a person, by their ids or the `latest` few.

        Each frame counts each time, against the number that was verified. A refusal is logged, and gives nothing.
        """
        _only(app, "app")
        self._asked(app)
        return self._releases.give(app, person, frames, latest)

    # --- the operator ---

    def attackers(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the attackers that judge, and of those that may join them."""
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
        """Verify anew whatever is suspended: the jobs, one for each person."""
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
        """Return entries of the audit log."""
        _only(operator, "operator")
        return self.audit.entries(after=after, limit=limit)

    def check_log(self, operator: Principal) -> LogCheck:
        """Walk the whole chain of the audit log."""
        _only(operator, "operator")
        return self.audit.verify()

    def witness_head(self, principal: Principal, head: Mapping[str, Any], proof: Sequence[str]) -> TreeHead:
        """Remember the newest head of another service's log; one that tells another history is refused, and logged."""
        told = TreeHead.from_dict(head)
        try:
            return remember_head(self.principals.database, told, proof)
        except PrivacyError:
            self.audit.append(
                principal.id, "refuse head", {"key": told.key, "head": str(told), "signed": told.signature}
            )
            raise

    def witnessed_head(self, key: str) -> TreeHead:
        """Return the newest head that is remembered of the log with this key."""
        return remembered_head(self.principals.database, key)

    def statements(self, principal: Principal) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Return what may be said about the privacy of each live grant that concerns somebody, and its subject.

        An app gets the parts that do not tell what the person hides, nor how well it can be guessed.
        """
        live = (grant for grant in self.platform.grants() if grant.live and _concerns(principal, grant))
        said = ((grant, grant.report["statement"]) for grant in live)
        if principal.role == "app":
            said = ((grant, {part: whole[part] for part in FOR_APPS}) for grant, whole in said)
        return tuple((f"grant {grant.number}: {grant.app} about {grant.person}", parts) for grant, parts in said)

    # --- inside ---

    def _end_grants_about(self, gone: Principal, operator: Principal | None) -> None:
        """End what an owner granted whose token was revoked; doing it again changes nothing."""
        mine = self.platform.grants() if gone.role == "owner" else ()
        for grant in mine:
            if grant.live and grant.person == gone.name:
                with acting(operator, person=grant.person, app=grant.app), suppress(InputError):  # just ended by others
                    self.platform.revoke(grant.number, "the owner's token was revoked")

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
            self.audit.append(actor, action, {**details, **({"before": count} if count else {})})

    def _grant_view(self, principal: Principal, grant: Grant) -> GrantView:
        holds, released = self.platform.holds(grant), self.platform.released(grant)
        return grant_view(principal, grant, holds=holds, released=released)

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


def _only(principal: Principal, *roles: Role) -> None:
    if principal.role not in roles:
        raise PrivacyError(f"this is not for the role {principal.role}.")


def _concerns(principal: Principal, grant: Grant) -> bool:
    return principal.role == "operator" or principal.name == (grant.app if principal.role == "app" else grant.person)
