"""An app asks for something about a person, a job verifies it, the person answers; reviews verify grants again.

*The guarantee.* Asked is what stands in the log and in the queue of jobs; answered is what the platform recorded. All
of it may be cut off anywhere and begun again with the same payload: the platform counts an app's tries by what it
tried, so verifying again is no further try; the same rows, attackers and seeds give the same verdict; a review goes on
with the grants that were not confirmed yet. Answers are given one after the other, so that only the first counts.

What was verified waits on disk for the answer, a folder per proposal, named by its job: the sift that the app sent,
and then the sift that would be applied and all that its verification found. What is read back is what was written, or
is refused: files carry checksums, and the verdict is computed from the evidence.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, get_args

from blindsight.errors import CorruptFileError, InputError, PrivacyError, UnknownNameError
from blindsight.files import read_arrays, write_arrays
from blindsight.metrics import Interval
from blindsight.progress import Progress
from blindsight.service.jobs import Handler, Job, Jobs, new_id
from blindsight.service.log import AuditLog, acting
from blindsight.service.principals import Principal
from blindsight.service.siftjson import sift_from_json
from blindsight.sift.certificate import Certificate
from blindsight.sift.consent import Proposal, Situation
from blindsight.sift.platform import Platform
from blindsight.sift.register import App
from blindsight.sift.sift import Sift, load_sift, save_sift
from blindsight.sift.stream import ReleaseBudget, Then
from blindsight.sift.union import Examination
from blindsight.sift.verdict import AttackResult, Setting, Verification

_KIND = "blindsight/proposal.1"
_SENT, _APPLIED, _FOUND = "sent.npz", "applied.npz", "found.npz"


class Proposals:
    """The proposals of a service, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep_sent(self, job: str, sift: Sift) -> None:
        """Keep what an app sent, until it is verified."""
        save_sift(sift, self._folder / job / _SENT)

    def sent(self, job: str) -> Sift:
        """Return what an app sent."""
        return load_sift(self._folder / job / _SENT)

    def keep(self, job: str, proposal: Proposal) -> None:
        """Keep a verified proposal; what the app sent is not needed any more."""
        save_sift(proposal.sift, self._folder / job / _APPLIED)
        write_arrays(self._folder / job / _FOUND, _KIND, _described(proposal), {}, private=True)

    def get(self, job: str) -> Proposal:
        """Return a proposal as it was verified."""
        path = self._folder / job / _FOUND
        document, _ = read_arrays(path, _KIND)
        sift = load_sift(self._folder / job / _APPLIED)
        try:
            proposal = _restored(document, sift)
        except (KeyError, TypeError, ValueError):
            raise CorruptFileError(f"{path} holds no usable proposal.") from None
        if sift.digest != document["sift"] or _described(proposal) != document:
            raise CorruptFileError(f"{path} holds another proposal than it says.")
        return proposal


def _described(proposal: Proposal) -> dict[str, Any]:
    together = proposal.examination.together
    described = {
        "person": proposal.person,
        "app": proposal.app,
        "mode": proposal.mode,
        "sift": proposal.sift.digest,
        "budget": asdict(proposal.budget),
        "situation": asdict(proposal.situation),
        "alone": proposal.examination.alone.to_dict(),
        "together": None if together is None else together.to_dict(),
        "confidence": proposal.confidence,
        "promised": proposal.promised,
    }
    plain: dict[str, Any] = json.loads(json.dumps(described, allow_nan=False))  # as a reader will see it
    return plain


def _restored(document: Mapping[str, Any], sift: Sift) -> Proposal:
    together = document["together"]
    return Proposal(
        document["person"],
        document["app"],
        document["mode"],
        sift,
        ReleaseBudget(**document["budget"]),
        _situation(document["situation"]),
        Examination(_verification(document["alone"]), None if together is None else _verification(together)),
        document["confidence"],
        document["promised"],
    )


def _situation(data: Mapping[str, Any]) -> Situation:
    app = App(tuple(data["app"]["public"]), data["app"]["version"])
    others = tuple((int(number), int(frames)) for number, frames in data["others"])
    rest = {key: data[key] for key in ("verifier", "verification_set")}
    return Situation(tuple(data["private"]), app, others, tuple(data["apps"]), **rest)


def _verification(data: Mapping[str, Any]) -> Verification:
    results = (_fields(AttackResult, row) | {"interval": Interval(*row["interval"])} for row in data["results"])
    certificates = (Certificate(**_fields(Certificate, row)) for row in data["certificates"])
    attacks = tuple(AttackResult(**row) for row in results)
    return Verification(Setting(**data["setting"]), attacks, data["ending"], tuple(certificates), {})


def _fields(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {part.name: row[part.name] for part in fields(kind) if part.name in row}


PROPOSAL, FEWER, REVIEW, ODOMETER = "proposal", "fewer", "review", "odometer"
ASKING = (PROPOSAL, FEWER)
"""The kinds of jobs at whose end a person is asked."""

Payload = Mapping[str, Any]
Cancelled = Callable[[], bool]


class Duties:
    """The handlers of the gateway's own jobs."""

    def __init__(self, platform: Platform, proposals: Proposals) -> None:
        self._platform, self._proposals = platform, proposals

    @property
    def handlers(self) -> dict[str, Handler]:
        """Who does which kind of job."""
        return {PROPOSAL: self.verify, FEWER: self.verify_fewer, REVIEW: self.review, ODOMETER: self.odometer}

    def verify(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Verify what an app asks for; what cannot be verified is denied."""
        job, person, app = payload["job"], payload["person"], payload["app"]
        sift = self._proposals.sent(job) if payload["mode"] == "unincluded" else None
        budget = {"frames": payload["frames"], "then": payload["then"]}
        progress("verifying", 0, None)
        with acting(None, proposal=job):
            try:
                found = self._platform.propose(person, app, sift, **budget, progress=progress)
            except (InputError, PrivacyError) as error:  # which the platform recorded
                return {"verdict": "denied", "sentence": str(error)}
        self._proposals.keep(job, found)
        return {"verdict": found.verdict, "sentence": found.sentence}

    def verify_fewer(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Verify a coarser version of what was proposed."""
        before = self._proposals.get(payload["before"])
        progress("verifying", 0, None)
        with acting(None, proposal=payload["job"]):
            try:
                found = self._platform.fewer_details(before, progress=progress)
            except (InputError, PrivacyError) as error:
                return {"verdict": "denied", "sentence": str(error)}
        self._proposals.keep(payload["job"], found)
        return {"verdict": found.verdict, "sentence": found.sentence}

    def review(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Verify a person's suspended grants anew, or revoke them."""
        progress("reviewing", 0, None)
        with acting(None, review=payload["job"]):
            found = self._platform.review(payload["person"], progress=progress)
        return {
            "kept": [grant.number for grant in found.kept],
            "revoked": [grant.number for grant in found.revoked],
        }

    def odometer(self, payload: Payload, progress: Progress, cancelled: Cancelled) -> dict[str, Any]:
        """Measure how much is out about a person."""
        progress("measuring", 0, None)
        return asdict(self._platform.odometer(payload["person"], progress=progress))


class Reviews:
    """Queues reviews."""

    def __init__(self, platform: Platform, jobs: Jobs) -> None:
        self._platform, self._jobs = platform, jobs

    def of(self, person: str, owner: str) -> Job:
        """Queue a review of a person's grants, unless one is queued; one that runs may have begun too early."""
        for job in self._jobs.find([REVIEW], about={"person": person}, states=["queued"], limit=1):
            return job
        return self._jobs.submit(REVIEW, owner, {"person": person})

    def of_suspended(self, owner: str) -> tuple[Job, ...]:
        """Queue a review for everybody of whom a grant is suspended."""
        grants = (grant for grant in self._platform.grants() if grant.live and not self._platform.holds(grant))
        return tuple(self.of(person, owner) for person in dict.fromkeys(grant.person for grant in grants))


Answer = Literal["allow", "fewer", "refuse"]

MOST_FRAMES = 1000
"""In one budget."""


class Asking:
    """What apps ask for, and what people answer."""

    def __init__(self, platform: Platform, proposals: Proposals, jobs: Jobs, log: AuditLog) -> None:
        self._platform, self._proposals, self._jobs, self._log = platform, proposals, jobs, log
        self._answering = threading.Lock()

    def propose(self, app: Principal, person: str, sift: Mapping[str, Any] | None, frames: int, then: Then) -> Job:
        """Queue the verification of what an app asks for; what is wrong with it by itself is said at once.

        That nobody has this name is not: the job is denied, as it would be for another reason.
        """
        if ReleaseBudget(frames, then).frames > MOST_FRAMES:
            raise InputError(f"a budget has {MOST_FRAMES} frames at most; got {frames}.")
        self._refuse_too_few(app, person, frames)
        job, mode = new_id(), "included" if sift is None else "unincluded"
        payload = {"person": person, "app": app.name, "mode": mode, "frames": frames, "then": then}
        if sift is not None:
            data = self._platform.data
            parsed = sift_from_json(sift, pipeline=data.pipeline, dimension=data.dimension)
            self._proposals.keep_sent(job, parsed)
            payload["sift"] = parsed.digest
        self._log.append(app.id, "propose", {**payload, "proposal": job})
        return self._jobs.submit(PROPOSAL, app.id, payload, id=job)

    def answer(self, owner: Principal, job: Job, answer: Answer) -> Job:
        """Do what a person answers to a proposal, and note it with the job; the same answer again changes nothing."""
        if answer not in get_args(Answer):
            raise UnknownNameError("answer", str(answer), get_args(Answer))
        with self._answering:
            return self._answer(owner, self._jobs.get(job.id), answer)

    def _answer(self, owner: Principal, job: Job, answer: Answer) -> Job:
        result = job.result or {}
        given = result.get("answer")
        if job.state != "done" or given not in (None, answer):
            state = f"it was answered already: {given}" if given else f"it is {job.state}"
            raise InputError(f"this proposal cannot be answered so: {state}.")
        if given is not None:
            return job
        if result["verdict"] == "denied":
            raise InputError("this could not be verified: there is nothing to answer.")
        return self._jobs.amend(job.id, answer=answer, **self._answered(owner, job, answer))

    def _refuse_too_few(self, app: Principal, person: str, frames: int) -> None:
        """Refuse a budget that is used up already; the app knows what it has got."""
        mine = (grant for grant in self._platform.grants() if (grant.person, grant.app) == (person, app.name))
        used = sum(self._platform.released(grant) for grant in mine)
        if frames <= used:
            raise InputError(f"this app has got {used} frames of this person already; ask for more than that in all.")

    def _answered(self, owner: Principal, job: Job, answer: Answer) -> dict[str, Any]:
        proposal = self._proposals.get(job.id)
        if answer == "allow":
            return {"grant": self._allowed(owner, job.id, proposal)}
        if answer == "fewer":
            payload = {**job.payload, "mode": "unincluded", "before": job.id}
            self._log.append(owner.id, "ask for fewer details", {"proposal": job.id, "app": proposal.app})
            return {"next": self._jobs.submit(FEWER, job.owner, payload).id}
        with acting(owner, proposal=job.id):
            self._platform.refuse(proposal)
        return {}

    def _allowed(self, owner: Principal, job: str, proposal: Proposal) -> int:
        """Return the grant that a proposal becomes, or became before a kill."""
        same = (proposal.app, proposal.sift.digest, proposal.budget)
        for grant in self._platform.grants(owner.name):
            if grant.live and (grant.app, grant.sift, grant.budget) == same:
                return grant.number
        try:
            with acting(owner, proposal=job):
                return self._platform.allow(proposal).number
        except PrivacyError as error:
            self._log.append(owner.id, "refuse grant", {"proposal": job, "reason": str(error)})
            raise
