"""An owner: it adds one to every weight."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable


def encrypted(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Encrypt where the run says so."""
    if not context.run_config["encrypted"]:
        return call_next(message, context)
    from blindsight.federated.flower import encrypted_updates

    return encrypted_updates(message, context, call_next)


app = ClientApp(mods=[encrypted])


@app.train()
def learn(message: Message, context: Context) -> Message:
    arrays = [array + 1 for array in message.content.array_records["arrays"].to_numpy_ndarrays()]
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 100})})
    return Message(content, reply_to=message)
