"""The ledger: what was spent by differential privacy, and what is left. It is only read."""

import math
from typing import Annotated, Literal

from fastapi import Query

from blindsight.dp.ledger import Ledger, Row
from blindsight.service.endpoints import TheGateway, guarded_router
from blindsight.service.models import LedgerView, ScopeView

router = guarded_router("ledger")


@router.get("/ledger")
def show_ledger(gateway: TheGateway, delta: Annotated[float, Query(gt=0, lt=1)] = 1e-6) -> LedgerView:
    """Return what was spent on every scope, at its budget's delta, or at this one where it has no budget."""
    path = gateway.settings.folder / "ledger.jsonl"
    rows = Ledger(path, readonly=True).table(delta=delta) if path.is_file() else ()
    return LedgerView(scopes=[_view(row) for row in rows])


def _view(row: Row) -> ScopeView:
    return ScopeView(
        scope=row.scope,
        unit=row.unit,
        neighbours=row.neighbours,
        releases=row.releases,
        epsilon=_plain(row.spent.epsilon),
        epsilon_basic=_plain(row.spent.basic),
        budget=None if row.budget is None else row.budget.epsilon,
    )


def _plain(epsilon: float) -> float | Literal["infinity"]:
    return "infinity" if epsilon == math.inf else epsilon
