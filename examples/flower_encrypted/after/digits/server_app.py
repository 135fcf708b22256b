"""The server: it averages what the owners have learned."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from blindsight.federated.flower import EncryptedFedAvg
from digits.task import accuracy, first_model, load_data

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = EncryptedFedAvg(home=config["home"], members_file=config["members-file"], members=5)
    strategy.start(grid, ArrayRecord(first_model()), num_rounds=int(context.run_config["rounds"]), evaluate_fn=evaluate)


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    score = accuracy(arrays.to_numpy_ndarrays(), *load_data(-1))
    print(f"round {number}: {score:.1%} of the test images are read")
    return MetricRecord({"accuracy": score})
