"""The server: FedAvg over SecAgg+; it writes when each round ended, and the mean weight then."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, begun = context.run_config, time.monotonic()
    users, ends = int(config["users"]), []

    def note(number: int, arrays: Any, settings: Any) -> None:
        ends.append((time.monotonic() - begun, float(arrays[0].mean())))

    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=users,
        min_available_clients=users,
        initial_parameters=ndarrays_to_parameters([np.zeros(int(config["weights"]), dtype=np.float32)]),
        evaluate_fn=note,
    )
    settings = ServerConfig(num_rounds=int(config["rounds"]))
    shares = max(3, users - 1 + users % 2)  # an odd number, as SecAgg+ wants it
    workflow = DefaultWorkflow(
        fit_workflow=SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1, clipping_range=8.0)
    )
    workflow(grid, LegacyContext(context=context, config=settings, strategy=strategy))
    Path(str(config["out"])).write_text(json.dumps(ends))
