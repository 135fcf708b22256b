"""Grants: what apps may get, and how to end that."""

from typing import Annotated

from fastapi import Path

from blindsight.service.access import Caller
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, refusals
from blindsight.service.models import GrantList, GrantView
from blindsight.service.requests import Revocation

router = guarded_router("grants")


@router.get("/grants")
def list_grants(gateway: TheGateway, principal: Caller) -> GrantList:
    """Return the grants that concern the caller, oldest first, revoked ones included."""
    return GrantList(grants=[GrantView.model_validate(one) for one in gateway.grants(principal)])


@router.post("/grants/{number}/revocation", responses=refusals(404, *BODY))
def revoke_grant(
    gateway: TheGateway, principal: Caller, number: Annotated[int, Path(ge=1, lt=2**31)], said: Revocation
) -> GrantView:
    """End a grant. What it told cannot be taken back, and still counts beside later grants."""
    return GrantView.model_validate(gateway.revoke(principal, number, said.reason))
