"""An owner: it adds one to every weight."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable


def hidden(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Hide the update as the run says."""
    if context.run_config["kind"] == "masks":
        from blindsight.federated.flower import encrypted_updates

        return encrypted_updates(message, context, call_next)
    if context.run_config["kind"] == "secagg":
        from flwr.client.mod import secaggplus_mod

        return secaggplus_mod(message, context, call_next)
    return call_next(message, context)


app = ClientApp(mods=[hidden])


@app.train()
def learn(message: Message, context: Context) -> Message:
    if context.run_config["kind"] == "secagg":
        return Message(_older(message.content), reply_to=message)
    arrays = [array + 1 for array in message.content.array_records["arrays"].to_numpy_ndarrays()]
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 100})})
    return Message(content, reply_to=message)


def _older(content: RecordDict) -> RecordDict:
    """Answer in the form of Flower's older API, which its SecAgg+ has."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.compat.common import recorddict_compat as compat

    given = parameters_to_ndarrays(compat.recorddict_to_fitins(content, keep_input=True).parameters)
    parameters = ndarrays_to_parameters([array + 1 for array in given])
    return compat.fitres_to_recorddict(FitRes(Status(Code.OK, ""), parameters, 100, {}), keep_input=False)
