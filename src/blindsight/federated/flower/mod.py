"""The client mod: whatever a ClientApp learns leaves its node encrypted, and nothing else of a training does.

::

    app = ClientApp(mods=[encrypted_updates])

*The guarantee.* A training that the server asks for without encryption is refused, and so is one with another model or
config than the aggregator signed. One that it asks for through `EncryptedFedAvg` runs the app as it is, takes the
difference between the arrays that came and those that the app returns, and contributes it to a sum (`sums`). How many
examples an owner has travels inside that sum, as a weight; all other metrics of the training stay here, and so does
what an app that fails has to say. What was not sent, for want of room, stays on this node's disk and is sent later. Of
what goes wrong on this node the server is told no more than the kind of error; sentences about its own messages, and
about what this node refuses, it is told (`answer`). What the app replies to evaluations passes unchanged: the server
sees its metrics.

On the key generator's node the app is never called. Other mods of an app (one that clips and adds noise, say) come
after this one in the list, so that they see what the app returns.

The node-config says who this node is:

| key of the node-config | for | meaning |
| --- | --- | --- |
| `role` | all | "member" (default) or "key-generator" |
| `home` | all | the folder with the identity and the state of this party, which nobody else can read |
| `key-generator` | members | the fingerprint of the key generator, told out of band |
| `members` | key generator | the members file: names and fingerprints, agreed out of band |
| `minimum-users` | all | sums of fewer members are refused, at least 3 (default 3) |
| `minimum-per-position` | members | sparse sums of fewer members at a position are refused (default 1) |
| `schemes` | members | the schemes it takes part in, separated by commas (default: all but plain and sharing) |
| `insecure` | all | true allows keys of 1024 bits: for tests alone |
"""

import hmac
import math
from collections.abc import Callable, Mapping
from logging import ERROR, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.flower.records import (
    HEAD,
    PARTS,
    Floats,
    aligned,
    content_digest,
    flatten,
    is_ours,
    pack,
    unpack,
)
from blindsight.federated.identity import KeyStore
from blindsight.federated.membership import GENERATOR_ROLE, MEMBER_ROLE, Members
from blindsight.federated.node import SHARING, GeneratorHandler, MemberHandler
from blindsight.federated.task import UpdateConfig, propose_update
from blindsight.files import as_path, exclusive_lock
from blindsight.learn.rounds import Memory, Proposal
from blindsight.sums import HIDING_SCHEMES, SCHEMES

Do = Callable[[MemberHandler, tuple[bytes, ...]], list[bytes]]
"""What a member does with the parts of a message of some kind, and returns."""

ROLES = (MEMBER_ROLE, GENERATOR_ROLE)


def encrypted_updates(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer Blindsight's messages, and let the app train only where its update leaves encrypted."""
    if not is_ours(message.content):
        if message.metadata.message_type.partition(".")[0] != MessageType.EVALUATE:
            return _refused(message, "this node learns only where updates are encrypted. Use EncryptedFedAvg.")
        if context.node_config.get("role") == GENERATOR_ROLE:
            return _refused(message, "this node is the key generator: it has no data.")
        return _evaluated(message, context, call_next)

    def contribute(handler: MemberHandler, parts: tuple[bytes, ...]) -> list[bytes]:
        return [_trained(handler, parts, message, context, call_next)]

    return answer(message, context, {"contribute": contribute})


def answer(message: Message, context: Context, members_do: Mapping[str, Do]) -> Message:
    """Return the reply to one of Blindsight's messages; `members_do` is what members do, by kind, besides the protocol.

    One message at a time: a second process with the same key store waits, so that no state is written by two. What is
    wrong with a message, or against a rule of this node, the server is told; any other error may speak of files and
    data that are none of its business, and goes to this node's log.
    """
    kind = ""
    try:
        kind, parts, _ = unpack(message.content)
        handler = handler_of(context.node_config)
        with exclusive_lock(handler.store.path / "lock"):
            if kind == "hello":
                reply = pack(kind, handler.handshake(parts, context.node_id))
            elif kind in members_do and isinstance(handler, MemberHandler):
                reply = pack(kind, members_do[kind](handler, parts))
            else:
                reply = pack(kind, handler.handle(kind, parts))
    except (MessageError, PrivacyError) as error:
        log(WARNING, "%s is refused: %s", kind or "a message", error)
        reply = pack(kind, (), error=str(error))
    except Exception as error:
        expected = isinstance(error, BlindsightError)
        log(ERROR, "%s failed: %s", kind or "a message", error, exc_info=None if expected else error)
        reply = pack(kind, (), error=f"it failed on its side ({type(error).__name__}); the node's log says more.")
    return Message(reply, reply_to=message)


def _refused(message: Message, sentence: str) -> Message:
    log(WARNING, sentence)
    return Message(Error(ErrorCode.MOD_FAILED_PRECONDITION, sentence), reply_to=message)


def _evaluated(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Let the app evaluate; what it says when it fails stays here, too."""
    try:
        return call_next(message, context)
    except Exception as error:
        log(ERROR, "the app failed in evaluation", exc_info=error)
        return _refused(message, f"its app failed in evaluation with a {type(error).__name__}; its log says more.")


def _trained(
    handler: MemberHandler, parts: tuple[bytes, ...], message: Message, context: Context, call_next: ClientAppCallable
) -> bytes:
    """Let the app train, and return the signed reply.

    The aggregator has signed the call together with its last parts, the digests of the arrays and of all that the app
    gets: from the same arrays a member learns once, whatever config comes with them.
    """
    if len(parts) != 4:
        raise MessageError("a call to contribute has four parts.")
    arrays = RecordDict({name: record for name, record in message.content.array_records.items() if name != PARTS})
    for part, content in ((parts[2], arrays), (parts[3], message.content)):
        if not hmac.compare_digest(part, content_digest(content)):
            raise MessageError("the aggregator has signed another model or config than came with its call.")

    def propose(config: bytes, round: int, memory: Memory, seed: int) -> Proposal:
        update = UpdateConfig.from_bytes(config)
        update.check(handler.member(parts[0].decode()).terms, round)
        try:
            change, examples = _learned(message, context, call_next, update)
        except MessageError as error:
            if update.noise is None:
                raise
            # Whether training fails may depend on a single picture: under noise nobody is told.
            log(ERROR, "this round counts as no change: %s", error)
            change, examples = np.zeros(update.noise.dimension - 1), 1.0
        return propose_update(change, examples, memory, update)

    return handler.contribute(parts, propose)


def _learned(
    message: Message, context: Context, call_next: ClientAppCallable, config: UpdateConfig
) -> tuple[Floats, float]:
    """Return what the app changed in the arrays it was given, and on how many examples."""
    message.content = RecordDict({key: record for key, record in message.content.items() if key not in (HEAD, PARTS)})
    given = ArrayRecord(dict(_model(message.content, "the ServerApp")))  # the app may write into the record it gets
    reply = _app_reply(message, context, call_next)
    returned = aligned(_model(reply, "the ClientApp"), given)
    return flatten(returned) - flatten(given), _examples(reply, config)


def _app_reply(message: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """Let the app train; what it says when it fails may tell of its data, so it goes to this node's log alone."""
    try:
        reply = call_next(message, context)
    except Exception as error:
        log(ERROR, "the app failed in training", exc_info=error)
        raise MessageError(
            f"its app failed in training with a {type(error).__name__}; the node's log says more."
        ) from None
    if reply.has_error():
        log(ERROR, "the app failed in training: %s", reply.error.reason)
        raise MessageError(f"its app failed with code {reply.error.code}; the node's log says more.")
    return reply.content


def _model(content: RecordDict, who: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MessageError(f"{who} must send one ArrayRecord, the model; got {len(records)}.")
    return records[0]


def _examples(content: RecordDict, config: UpdateConfig) -> float:
    """Return the weight that the app gives to its update, one if all owners weigh the same."""
    if not config.most_examples:
        return 1.0
    key, records = config.weighted_by, content.metric_records.values()
    reported = [metrics[key] for metrics in records if key in metrics]
    if len(reported) != 1 or not isinstance(number := reported[0], int | float) or not 0 < number < math.inf:
        raise MessageError(f"the ClientApp must report {key!r}, above 0, in its metrics: updates are weighed by it.")
    if number > config.most_examples:
        log(WARNING, "this node's %s count as %d, the most of this run", key, config.most_examples)
    return float(number)


def handler_of(config: Mapping[str, Any]) -> MemberHandler | GeneratorHandler:
    """Return the handler of the party that this node-config describes."""
    role = config.get("role", MEMBER_ROLE)
    if role not in ROLES:
        raise UnknownNameError("role in the node-config", str(role), ROLES)
    store, minimum = KeyStore(as_path(_needed(config, "home"))), config.get("minimum-users", 3)
    if not isinstance(minimum, int) or minimum < 3:
        raise InputError(f"minimum-users must be a whole number of at least 3; got {minimum}.")
    insecure = config.get("insecure", False) is True
    if role == GENERATOR_ROLE:
        members = Members.read(_needed(config, "members"))
        return GeneratorHandler(store, members, minimum, insecure)
    per_position = config.get("minimum-per-position", 1)
    if not isinstance(per_position, int) or per_position < 1:
        raise InputError(f"minimum-per-position must be a whole number of at least 1; got {per_position}.")
    return MemberHandler(store, _needed(config, "key-generator"), minimum, _schemes(config), insecure, per_position)


def _schemes(config: Mapping[str, Any]) -> tuple[str, ...]:
    schemes = tuple(str(config.get("schemes", ",".join(HIDING_SCHEMES))).replace(" ", "").split(","))
    for scheme in schemes:
        if scheme not in (*SCHEMES, SHARING):
            raise UnknownNameError("scheme in the node-config", scheme, (*SCHEMES, SHARING))
    return schemes


def _needed(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"this node has no {key!r}. Start it with --node-config '{key}=\"...\"'.")
    return value
