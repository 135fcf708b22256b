"""An app asks for something about a person, the platform verifies it, and the person answers.

Asked is what stands in the log and in the queue of jobs; answered is what the platform recorded. Either can be done
once more after a kill and comes to the same. Answers are given one after the other, so that only the first counts.
"""

import threading
from collections.abc import Mapping
from typing import Any, Literal, get_args

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.service.duties import FEWER, PROPOSAL
from blindsight.service.jobs import Job, Jobs, new_id
from blindsight.service.log import AuditLog
from blindsight.service.principals import Principal
from blindsight.service.proposals import Proposals
from blindsight.service.siftjson import sift_from_json
from blindsight.service.witness import acting
from blindsight.sift.consent import Proposal
from blindsight.sift.platform import Platform
from blindsight.sift.stream import ReleaseBudget, Then

Answer = Literal["allow", "fewer", "refuse"]

MOST_FRAMES = 1000
"""In one budget."""


class Asking:
    """What apps ask for, and what people answer."""

    def __init__(self, platform: Platform, proposals: Proposals, jobs: Jobs, log: AuditLog) -> None:
        self._platform, self._proposals, self._jobs, self._log = platform, proposals, jobs, log
        self._answering = threading.Lock()

    def propose(self, app: Principal, person: str, sift: Mapping[str, Any] | None, frames: int, then: Then) -> Job:
        """Queue the verification of what an app asks for; what is wrong with it by itself is said at once."""
        self._platform.preferences(person)  # or there is no such person
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
        mine = (grant for grant in self._platform.grants(person) if grant.app == app.name)
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
