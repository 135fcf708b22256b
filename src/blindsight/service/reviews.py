"""Whatever is suspended is verified anew by a job, one for each person: after a change, and after every start."""

from blindsight.service.duties import REVIEW
from blindsight.service.jobs import Job, Jobs
from blindsight.sift.platform import Platform


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
