"""The client mod: whatever a ClientApp learns leaves its node encrypted, and nothing else of a training does.

::

    app = ClientApp(mods=[encrypted_updates])

*The guarantee.* A training that the server asks for without encryption is refused. One that it asks for through
`EncryptedFedAvg` runs the app as it is, takes the difference between the arrays that came and those that the app
returns, and contributes it to a sum (`sums`). How many examples an owner has travels inside that sum, as a weight; all
other metrics of the training stay here. What was not sent, for want of room, stays on this node's disk and is sent
later. Evaluations pass unchanged: their metrics are seen by the server.

The node-config says who this node is (`node`). On the key generator's node the app is never called.
"""

from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from blindsight.crypto.wire import decode
from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError
from blindsight.federated.flower.flattening import Floats, check_alike, flatten
from blindsight.federated.flower.node import desk_of
from blindsight.federated.flower.records import HEAD, PARTS, is_ours, pack, unpack
from blindsight.federated.sums.generatordesk import GeneratorDesk
from blindsight.federated.sums.messages import Call
from blindsight.federated.sums.ownerpart import OwnerPart
from blindsight.federated.sums.userdesk import UserDesk
from blindsight.federated.updates import Briefing, propose_update
from blindsight.files import exclusive_lock
from blindsight.learn.federation import Memory, Proposal

_WEIGHT_KEY = "num-examples"


def encrypted_updates(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer Blindsight's messages, and let the app train only where its update leaves encrypted."""
    if not is_ours(message.content):
        if message.metadata.message_type.partition(".")[0] == MessageType.EVALUATE:
            _check_has_data(context)
            return call_next(message, context)
        raise PrivacyError("this node trains only where updates are encrypted: use EncryptedFedAvg in the ServerApp.")

    def contribute(desk: UserDesk, parts: tuple[bytes, ...]) -> list[bytes]:
        return [_trained(desk, parts, message, context, call_next)]

    return answer(message, context, {"contribute": contribute})


Do = Callable[[UserDesk, tuple[bytes, ...]], list[bytes]]


def answer(message: Message, context: Context, users_do: Mapping[str, Do]) -> Message:
    """Return the reply to one of Blindsight's messages; `users_do` is what users do, by kind, besides the protocol.

    One message at a time: a second process in the same home waits, so that no state is written by two.
    """
    kind = ""
    try:
        kind, parts, _ = unpack(message.content)
        desk = desk_of(context.node_config)
        with exclusive_lock(desk.home.path / "lock"):
            if kind in users_do and isinstance(desk, UserDesk):
                reply = pack(kind, users_do[kind](desk, parts))
            else:
                reply = pack(kind, desk.handle(kind, parts))
    except BlindsightError as error:
        reply = pack(kind, (), error=str(error))
    return Message(reply, reply_to=message)


def _trained(
    desk: UserDesk, parts: tuple[bytes, ...], message: Message, context: Context, call_next: ClientAppCallable
) -> bytes:
    """Let the app train, and return the contribution."""
    if len(parts) != 1:
        raise MessageError("a call to contribute has one part.")
    call = decode(parts[0], Call)
    end, briefing = desk.end(call.run), Briefing.from_bytes(desk.briefing(call.run))

    def propose(memory: Memory, seed: int) -> Proposal:
        change, examples = _learned(message, context, call_next, briefing)
        return propose_update(change, examples, memory, briefing)

    return OwnerPart(end).contribute(call, propose)


def _learned(
    message: Message, context: Context, call_next: ClientAppCallable, briefing: Briefing
) -> tuple[Floats, float]:
    """Return what the app changed in the arrays it was given, and on how many examples."""
    records = {name: record for name, record in message.content.items() if name not in (HEAD, PARTS)}
    given = _only_arrays(RecordDict(records), "the ServerApp")
    message.content = RecordDict(records)
    reply = call_next(message, context)
    if reply.has_error():
        raise InputError(f"the app could not train: {reply.error.reason}")
    returned = _only_arrays(reply.content, "the ClientApp")
    check_alike(returned, given)
    return flatten(returned) - flatten(given), _examples(reply.content, briefing)


def _only_arrays(content: RecordDict, who: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise InputError(f"{who} must send one ArrayRecord, the model; got {len(records)}.")
    return records[0]


def _examples(content: RecordDict, briefing: Briefing) -> float:
    """Return the weight that the app gives to its update, one if all owners weigh the same."""
    if not briefing.most_examples:
        return 1.0
    for metrics in content.metric_records.values():
        if isinstance(found := metrics.get(_WEIGHT_KEY), int | float) and np.isfinite(found) and found > 0:
            return float(found)
    raise InputError(f"the ClientApp must report {_WEIGHT_KEY!r}, above 0, in its metrics: updates are weighed by it.")


def _check_has_data(context: Context) -> None:
    if isinstance(desk_of(context.node_config), GeneratorDesk):
        raise InputError("this node is the key generator: it has no data.")
