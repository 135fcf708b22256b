"""An owner: it learns from its own images."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from blindsight.federated.flower import encrypted_updates
from digits.task import accuracy, load_data, train

app = ClientApp(mods=[encrypted_updates])


@app.train()
def learn(message: Message, context: Context) -> Message:
    images, labels = load_data(int(context.node_config["partition-id"]))
    model = train(message.content["arrays"].to_numpy_ndarrays(), images, labels)
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    images, labels = load_data(int(context.node_config["partition-id"]))
    score = accuracy(message.content["arrays"].to_numpy_ndarrays(), images, labels)
    metrics = MetricRecord({"accuracy": score, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
