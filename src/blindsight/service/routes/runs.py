"""Learning runs: watch how far they are. No model, no update and no path comes along."""

from blindsight.service.endpoints import TheShelf, guarded_router, refusals
from blindsight.service.models import RunList, RunView

router = guarded_router("learn")


@router.get("/runs")
def list_runs(shelf: TheShelf) -> RunList:
    """Return the names of all runs."""
    return RunList(runs=list(shelf.runs()))


@router.get("/runs/{name}", responses=refusals(404))
def show_run(shelf: TheShelf, name: str) -> RunView:
    """Return how a run was set up, its rounds so far, and (once it is finished) its privacy statement."""
    run = shelf.run(name)
    return RunView(
        name=name,
        data=str(run.about.get("data", "")),
        owners=int(run.about.get("owners", 0)),
        features=str(run.about.get("features", "")),
        finished=run.statement is not None,
        rounds=len(run.history),
        score=run.history[-1].get("score") if run.history else None,
        history=run.history,
        statement=None if run.statement is None else run.statement.to_dict(),
    )
