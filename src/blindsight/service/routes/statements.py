"""Privacy statements: what is proven or measured about grants, indexes and runs."""

from typing import Any

from blindsight.service.access import Caller
from blindsight.service.endpoints import TheGateway, TheShelf, guarded_router
from blindsight.service.models import StatementList, StatementView

router = guarded_router("statements")


@router.get("/statements")
def list_statements(gateway: TheGateway, shelf: TheShelf, principal: Caller) -> StatementList:
    """Return every statement the caller may read; those of learning runs are not for apps."""
    said = [(subject, dict(statement)) for subject, statement in gateway.statements(principal)]
    said += [(f"index {name}", shelf.index(name).statement.to_dict()) for name in shelf.indexes()]
    if principal.role == "app":
        return _listed(said)
    finished = ((name, shelf.run(name).statement) for name in shelf.runs())
    said += [(f"run {name}", statement.to_dict()) for name, statement in finished if statement is not None]
    return _listed(said)


def _listed(said: list[tuple[str, dict[str, Any]]]) -> StatementList:
    return StatementList(statements=[StatementView(subject=subject, statement=one) for subject, one in said])
