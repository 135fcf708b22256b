"""Principals: who may ask, and with which token."""

from datetime import UTC, datetime, timedelta

from blindsight.service.access import Caller
from blindsight.service.endpoints import BODY, TheGateway, guarded_router, only_if, refusals
from blindsight.service.models import PrincipalList, PrincipalView, WithToken
from blindsight.service.requests import Identifier, NewPrincipal

router = guarded_router("principals")


@router.get("/me")
def who_am_i(principal: Caller) -> PrincipalView:
    """Return whose token was sent."""
    return PrincipalView.model_validate(principal)


@router.get("/principals")
def list_principals(gateway: TheGateway) -> PrincipalList:
    """Return everybody, also the revoked."""
    return PrincipalList(principals=[PrincipalView.model_validate(one) for one in gateway.principals.list()])


@router.post("/principals", status_code=201, responses=refusals(409, *BODY))
def create_principal(gateway: TheGateway, operator: Caller, wanted: NewPrincipal) -> WithToken:
    """Add somebody and return their token, this once."""
    only_if(all(one.name != wanted.name for one in gateway.principals.list()), "this name is taken.")
    expires = None if wanted.days is None else datetime.now(UTC) + timedelta(days=wanted.days)
    principal, token = gateway.create_principal(operator, wanted.name, wanted.role, expires=expires)
    return WithToken(principal=PrincipalView.model_validate(principal), token=str(token))


@router.post("/principals/{id}/token", status_code=201, responses=refusals(404))
def rotate_token(gateway: TheGateway, operator: Caller, id: Identifier) -> WithToken:
    """Replace somebody's token; the old one opens nothing any more."""
    token = gateway.rotate_token(operator, id)
    return WithToken(principal=PrincipalView.model_validate(gateway.principals.get(id)), token=str(token))


@router.delete("/principals/{id}", responses=refusals(404))
def revoke_principal(gateway: TheGateway, operator: Caller, id: Identifier) -> PrincipalView:
    """Make somebody's token worthless for ever."""
    gateway.revoke_principal(operator, id)
    return PrincipalView.model_validate(gateway.principals.get(id))
