"""The server: aggregator of encrypted sums, or parameter server of selective sharing, as the run-config says."""

from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from blindsight.errors import UnknownNameError

from .encrypted import learn_encrypted
from .selective import learn_selectively
from .settings import Settings

app = ServerApp()

TASKS = {"classifier": learn_encrypted, "k-means": learn_encrypted, "sharing": learn_selectively}


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run that the run-config describes, or go on with it."""
    settings = Settings(dict[str, Any](context.run_config))
    task = settings.text("task")
    if task not in TASKS:
        raise UnknownNameError("task", task, TASKS)
    TASKS[task](grid, settings)
