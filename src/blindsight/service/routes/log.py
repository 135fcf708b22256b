"""The audit log: read it, check its chain, take a copy away."""

from dataclasses import asdict
from io import StringIO
from typing import Annotated

from fastapi import Query, Response

from blindsight.service.access import Caller
from blindsight.service.endpoints import TheGateway, guarded_router
from blindsight.service.models import EntryList, EntryView, LogCheckView

router = guarded_router("log")

_LINES = "application/jsonl"


@router.get("/log")
def read_log(
    gateway: TheGateway,
    operator: Caller,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> EntryList:
    """Return entries behind a position, oldest first."""
    entries = gateway.entries(operator, after=after, limit=limit)
    return EntryList(entries=[EntryView(**asdict(entry)) for entry in entries])


@router.get("/log/check")
def check_log(gateway: TheGateway, operator: Caller) -> LogCheckView:
    """Follow the whole chain and tell where it breaks, if it does."""
    return LogCheckView(**asdict(gateway.check_log(operator)))


@router.get(
    "/log/export",
    response_class=Response,
    responses={200: {"content": {_LINES: {"schema": {"type": "string"}}}, "description": "a JSON document per line"}},
)
def export_log(gateway: TheGateway) -> Response:
    """Return the whole log as JSON lines, which `blindsight verify-log` checks."""
    lines = StringIO()
    gateway.audit.export(lines)
    return Response(lines.getvalue(), media_type=_LINES)
