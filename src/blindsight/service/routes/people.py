"""People: what they hide, and how much is out about them."""

from blindsight.service.access import Caller, own
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, refusals
from blindsight.service.models import Attributes, JobView, PersonView
from blindsight.service.requests import Name, Private

router = guarded_router("people")


@router.get("/attributes")
def list_attributes(gateway: TheGateway) -> Attributes:
    """Return the attributes the platform has labels for; no other can be protected."""
    return Attributes(attributes=list(gateway.attributes()))


@router.get("/people/{person}", responses=refusals(404))
def show_person(gateway: TheGateway, principal: Caller, person: Name) -> PersonView:
    """Return what a person hides and how many pictures of them are here."""
    own(principal, person)
    return PersonView.model_validate(gateway.person(principal, person))


@router.put("/people/{person}/private", status_code=202, responses=refusals(404, *BODY))
def set_private(gateway: TheGateway, owner: Caller, person: Name, wanted: Private) -> JobView:
    """Hide these attributes, from now on. The job verifies every grant anew; until then none of them lets anything out
    that was not verified against all of these.
    """
    own(owner, person)
    return JobView.model_validate(gateway.set_private(owner, wanted.attributes))


@router.post("/people/{person}/odometer", status_code=202, responses=refusals(404))
def read_odometer(gateway: TheGateway, principal: Caller, person: Name) -> JobView:
    """Measure how well each hidden attribute is guessed from all that is out; the job's result has the readings."""
    own(principal, person)
    return JobView.model_validate(gateway.odometer(principal, person))
