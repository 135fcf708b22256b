"""The server: FedAvg as it is, or over encrypted sums; it writes when each round ended, and the mean weight then."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, begun = context.run_config, time.monotonic()
    users, ends = int(config["users"]), []
    strategy: Any = FedAvg(fraction_evaluate=0.0, min_train_nodes=users, min_available_nodes=users)
    if config["encrypted"]:
        from blindsight.federated.flower import EncryptedFedAvg

        strategy = EncryptedFedAvg(home=config["home"], members=config["members"], users=users, fraction_evaluate=0.0)

    def note(number: int, arrays: ArrayRecord) -> MetricRecord:
        ends.append((time.monotonic() - begun, float(arrays.to_numpy_ndarrays()[0].mean())))
        return MetricRecord({})

    first = ArrayRecord([np.zeros(int(config["weights"]), dtype=np.float32)])
    strategy.start(grid, first, num_rounds=int(config["rounds"]), evaluate_fn=note)
    Path(str(config["out"])).write_text(json.dumps(ends))
