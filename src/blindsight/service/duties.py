"""What the service's jobs do: verify a proposal, verify fewer details of it, review grants, read the odometer.

Each may be cut off anywhere and begun anew with the same payload. The platform counts an app's tries by what it tried,
so verifying again is no further try; the same rows, attackers and seeds give the same verdict; a review goes on with
the grants that were not confirmed yet.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from blindsight.errors import InputError, PrivacyError
from blindsight.progress import Progress
from blindsight.service.proposals import Proposals
from blindsight.service.witness import acting
from blindsight.service.worker import Handler
from blindsight.sift.platform import Platform

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
