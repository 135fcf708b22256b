"""The tab Ledger: what is out about whom and through which grant, which budgets are spent, and the log."""

import json
from collections.abc import Mapping
from itertools import compress
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from blindsight.dp.ledger import Ledger
from blindsight.errors import UnknownNameError
from blindsight.service.jobs import Job
from blindsight.service.log import Entry
from blindsight.service.pages.rendering import Pages
from blindsight.service.pages.session import require
from blindsight.service.principals import Principal

_LINES = 50  # of the log, on one page
_DELTA = 1e-6  # for scopes without a budget
_SMALL = frozenset(
    {"app", "attacker", "dimensions", "frame", "frames", "grant", "kind", "mode", "name", "number", "person", "private"}
    | {"public", "reason", "repeated", "role", "verdict"}
)  # details that a line shows at once


def add_routes(router: APIRouter, pages: Pages) -> None:
    @router.get("/ledger")
    def show(request: Request, before: int | None = None) -> Response:
        who = pages.visitor(request)
        values: dict[str, Any] = {"grants": (), "odometer": None, "books": None}
        if who is not None:
            values["grants"] = pages.gateway.grants(who)
            values["odometer"] = _odometer(pages, who) if who.role == "owner" else None
            values["books"] = _books(pages, who, before) if who.role == "operator" else None
        return pages.render(request, "ledger.html", **values)

    @router.post("/ledger/revoke")
    def revoke(
        request: Request, number: Annotated[int, Form()], reason: Annotated[str, Form(min_length=1, max_length=300)]
    ) -> Response:
        pages.gateway.revoke(require(pages.visitor(request), "owner", "operator"), number, reason)
        return RedirectResponse("/ledger", 303)


def _odometer(pages: Pages, owner: Principal) -> Job | None:
    """Return the measurement of what is out about an owner, finished or on its way; None before they hide anything."""
    try:
        return pages.gateway.odometer(owner, owner.name)
    except UnknownNameError:
        return None


def _books(pages: Pages, operator: Principal, before: int | None) -> dict[str, Any]:
    """Return the latest lines of the log (or those before one of them), whether its chain holds, and the ledger."""
    check = pages.gateway.check_log(operator)
    last = min(check.entries, before - 1) if before is not None and before > 0 else check.entries
    first = max(0, last - _LINES)
    entries = pages.gateway.entries(operator, after=first, limit=_LINES) if last > 0 else ()
    path = pages.settings.folder / "ledger.jsonl"
    spent = Ledger(path, readonly=True).table(delta=_DELTA) if path.is_file() else ()
    names = {one.id: one.name for one in pages.principals.list()}
    lines = [_line(entry, names) for entry in reversed(entries) if entry.position <= last]
    return {"check": check, "lines": lines, "earlier": first, "spent": spent}


def _line(entry: Entry, names: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry as people read it: who by name, the small facts, and the rest for whoever wants more."""
    facts = [(key, _text(value)) for key, value in entry.details.items() if value not in (None, "", [])]
    small = [key in _SMALL for key, _ in facts]
    return {
        "position": entry.position,
        "time": entry.time[:19].replace("T", " "),
        "who": names.get(entry.actor, entry.actor),
        "action": entry.action,
        "told": list(compress(facts, small)),
        "more": [fact for fact, one in zip(facts, small, strict=True) if not one],
    }


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)
