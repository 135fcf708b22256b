"""The server: FedAvg as it is, over SecAgg+ or over sums under masks; it writes when each round ended, and the mean
weight then.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, begun = context.run_config, time.monotonic()
    users, rounds, ends = int(config["users"]), int(config["rounds"]), []
    first = [np.zeros(int(config["weights"]), dtype=np.float32)]

    def note(number: int, arrays: Any, settings: Any = None) -> MetricRecord | None:
        weights = arrays.to_numpy_ndarrays() if isinstance(arrays, ArrayRecord) else arrays
        ends.append((time.monotonic() - begun, float(weights[0].mean())))
        return None if weights is arrays else MetricRecord({})

    if config["kind"] == "secagg":
        _secagg(grid, context, first, users, rounds, note)
    else:
        _strategy(config, users).start(grid, ArrayRecord(first), num_rounds=rounds, evaluate_fn=note)
    Path(str(config["out"])).write_text(json.dumps(ends))


def _strategy(config: Any, users: int) -> Any:
    if config["kind"] == "masks":
        from blindsight.federated.flower import EncryptedFedAvg

        return EncryptedFedAvg(
            home=config["home"], members_file=config["members-file"], members=users, fraction_evaluate=0.0
        )
    from flwr.serverapp.strategy import FedAvg

    return FedAvg(fraction_evaluate=0.0, min_train_nodes=users, min_available_nodes=users)


def _secagg(grid: Grid, context: Context, first: list[Any], users: int, rounds: int, note: Any) -> None:
    from flwr.common import ndarrays_to_parameters
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

    strategy = FedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=users,
        min_available_clients=users,
        initial_parameters=ndarrays_to_parameters(first),
        evaluate_fn=note,
    )
    shares = max(3, users - 1 + users % 2)  # an odd number, as SecAgg+ wants it
    secure = SecAggPlusWorkflow(num_shares=shares, reconstruction_threshold=shares // 2 + 1, clipping_range=8.0)
    legacy = LegacyContext(context=context, config=ServerConfig(num_rounds=rounds), strategy=strategy)
    DefaultWorkflow(fit_workflow=secure)(grid, legacy)
