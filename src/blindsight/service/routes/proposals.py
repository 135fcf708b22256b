"""Proposals: an app asks, a job verifies, the person answers. Sifts come in as numbers, never as code."""

from blindsight.service.access import Caller
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, only_if, refusals
from blindsight.service.models import JobView, ProposalList, ProposalView
from blindsight.service.requests import Answer, Identifier, NewProposal

router = guarded_router("proposals")


@router.post("/proposals", status_code=202, responses=refusals(404, *BODY))
def propose(gateway: TheGateway, app: Caller, wanted: NewProposal) -> JobView:
    """Ask for something about a person; the job verifies whether it may be granted."""
    job = gateway.propose(app, wanted.person, wanted.sift, frames=wanted.frames, then=wanted.then)
    return JobView.model_validate(job)


@router.get("/proposals")
def list_proposals(gateway: TheGateway, principal: Caller) -> ProposalList:
    """Return the proposals that concern the caller, newest first, without evidence."""
    return ProposalList(proposals=[ProposalView.model_validate(one) for one in gateway.proposals(principal)])


@router.get("/proposals/{job}", responses=refusals(404))
def show_proposal(gateway: TheGateway, principal: Caller, job: Identifier) -> ProposalView:
    """Return a proposal: to its app the verdict, to the person and the operator all evidence."""
    return ProposalView.model_validate(gateway.proposal(principal, job))


@router.post("/proposals/{job}/answer", responses=refusals(404, 409, *BODY))
def answer_proposal(gateway: TheGateway, owner: Caller, job: Identifier, said: Answer) -> ProposalView:
    """Allow what was verified (it becomes a grant), ask for fewer details (another job verifies them), or refuse."""
    proposal = gateway.proposal(owner, job)
    only_if(proposal.state == "done", f"this proposal cannot be answered: its verification is {proposal.state}.")
    only_if(proposal.answer in (None, said.answer), f"this proposal is answered already: {proposal.answer}.")
    return ProposalView.model_validate(gateway.answer(owner, job, said.answer))
