"""Attackers: who judges sifts. A new one has all grants verified anew that do not rest on a certificate."""

from blindsight.service.access import Caller
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, refusals
from blindsight.service.models import AttackerList, JobList, JobView
from blindsight.service.requests import NewAttacker

router = guarded_router("attackers")


@router.get("/attackers")
def list_attackers(gateway: TheGateway) -> AttackerList:
    """Return who judges now and who could be added."""
    judging, available = gateway.attackers()
    return AttackerList(judging=list(judging), available=list(available))


@router.post("/attackers", status_code=202, responses=refusals(*BODY))
def add_attacker(gateway: TheGateway, operator: Caller, wanted: NewAttacker) -> JobList:
    """Let one more attacker judge from now on; the jobs verify what was granted before."""
    return JobList(jobs=[JobView.model_validate(job) for job in gateway.add_attacker(operator, wanted.name)])


@router.post("/reviews", status_code=202)
def review(gateway: TheGateway, operator: Caller) -> JobList:
    """Verify every grant anew that does not hold under today's terms."""
    return JobList(jobs=[JobView.model_validate(job) for job in gateway.review(operator)])
