"""Apps: what they ask for."""

from blindsight.service.access import Caller, own
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, refusals
from blindsight.service.models import AppView
from blindsight.service.requests import Name, Public

router = guarded_router("apps")


@router.put("/apps/{app}/public", responses=refusals(*BODY))
def register_app(gateway: TheGateway, principal: Caller, app: Name, wanted: Public) -> AppView:
    """Note what an app wants to know; where that changes, its grants are revoked."""
    own(principal, app)
    return AppView(app=app, public=list(gateway.register_app(principal, wanted.attributes)))
