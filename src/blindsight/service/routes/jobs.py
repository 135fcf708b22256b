"""Jobs: how far the work in the background is, and a way to stop it."""

from blindsight.service.access import Caller
from blindsight.service.endpoints import TheGateway, guarded_router, only_if, refusals
from blindsight.service.models import JobView
from blindsight.service.requests import Identifier

router = guarded_router("jobs")


@router.get("/jobs/{job}", responses=refusals(404))
def show_job(gateway: TheGateway, principal: Caller, job: Identifier) -> JobView:
    """Return how far a job is and what came of it, as far as the caller may know."""
    return JobView.model_validate(gateway.job(principal, job))


@router.delete("/jobs/{job}", responses=refusals(404, 409))
def cancel_job(gateway: TheGateway, principal: Caller, job: Identifier) -> JobView:
    """Stop a job: at once if it has not begun, else at its next step."""
    found = gateway.job(principal, job)
    only_if(not found.finished_or_stopped, f"this job has ended already: it is {found.state}.")
    return JobView.model_validate(gateway.cancel(principal, job))
