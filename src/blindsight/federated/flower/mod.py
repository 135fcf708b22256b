"""The client mod: what a ClientApp learns leaves its node encrypted, and nothing else of a training does.

::

    app = ClientApp(mods=[encrypted_updates])

*The guarantee.* A training that the server asks for without encryption is refused, and so is one with another model or
config than the aggregator signed, one in which Flower would ask another function of the app than `train`, and one under
another run config than this node joined with, which is that of all members (`settings_of`). One that it asks for
through `Encrypted` runs the app as it is, takes the difference between the arrays that came and those that the app
returns, and contributes it to a sum (`sums`). The number of examples travels inside that sum, as a weight, and
so do the metrics that the run config names; all others stay here, and so does what a failing app says. What was not
sent, for want of room, stays on this node's disk and is sent later. Of what goes wrong on this node the server is told
only the kind of error; sentences about its own messages, and about what this node refuses, it is told (`answer`). What
the app replies to evaluations passes unchanged: the server sees its metrics.

On the key generator's node the app is never called. Other mods of an app (one that clips and adds noise, say) come
after this one, so that they see what the app returns. Apps have functions for messages (``@app.train()``); one of
Flower's older interface (a ``client_fn`` that returns a NumPyClient) is refused.

The node-config says who this node is:

| key of the node-config | for | meaning |
| --- | --- | --- |
| `role` | all | "member" (default) or "key-generator" |
| `home` | all | the folder with the identity and the state of this party, which nobody else can read |
| `key-generator` | members | the fingerprint of the key generator, told out of band |
| `members-file` | key generator | the members file: names and fingerprints, agreed out of band |
| `quorum` | all | sums of fewer members are refused, at least 3 (default 3) |
| `minimum-per-position` | members | sparse sums of fewer members at a position are refused (default 1) |
| `schemes` | members | the schemes it takes part in, separated by commas (default: all but plain) |
| `privacy-epsilon` | members | runs that prove no epsilon of at most this much are refused (default: none is) |
| `insecure` | all | true allows keys of 1024 bits: for tests alone |

*In Flower's simulation* one more mod is needed, and no keys, files or node-configs::

    app = ClientApp(mods=[simulated_nodes, encrypted_updates])          # in client_app.py
    strategy = Encrypted(FedAvg(), simulated=True)                      # in server_app.py

    flwr run . --federation-config num-supernodes=11                    # ten members and the key generator

The server makes all parties' identities in a folder of its own before the first round, and `simulated_nodes` gives each
virtual node its own: the last partition is the key generator's, and the app sees one partition less. Messages are made
and checked as between machines, but one machine holds all keys. Take the mod out before you deploy: a node without it
never uses such keys, and one with it answers nobody but a simulation on its own machine.
"""

import copy
import hmac
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.flower.transport import (
    HEAD,
    PARTS,
    aligned,
    content_digest,
    flatten,
    is_ours,
    pack,
    unpack,
)
from blindsight.federated.identity import (
    GENERATOR_ROLE,
    IDENTITY_FILE,
    MEMBER_ROLE,
    Identity,
    KeyStore,
    Members,
    answer_hello,
)
from blindsight.federated.node import KeyGeneratorNode, MemberNode
from blindsight.federated.updates import AppLearner, Training
from blindsight.files import as_path, exclusive_lock, storage_errors
from blindsight.rounds import MIN_MEMBERS, Memory, Task, Update
from blindsight.sums import HIDING_SCHEMES, SCHEMES, Terms
from blindsight.sums.messages import weights_digest
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR

ClientAppCallable = Callable[[Message, Context], Message]
Do = Callable[[MemberNode, tuple[bytes, ...]], list[bytes]]
"""What a member does with the parts of a message of some kind, and returns."""

ROLES = (MEMBER_ROLE, GENERATOR_ROLE)

_LOG = logging.getLogger("flwr")
_MEMBERS = "members.toml"  # of a simulation
_POLL_SECONDS = 0.5
_RENAMED = {"minimum-users": "quorum", "members": "members-file"}
_REFUSED = 6  # Flower's code of an error for what a mod does not let through


def encrypted_updates(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer Blindsight's messages, and let the app train only where its update leaves encrypted."""
    if not is_ours(message.content):
        if message.metadata.message_type.partition(".")[0] != MessageType.EVALUATE:
            return _refused(message, "this node learns only where updates are encrypted. Use Encrypted.")
        if context.node_config.get("role") == GENERATOR_ROLE:
            return _refused(message, "this node is the key generator: it has no data.")
        return _evaluated(message, context, call_next)

    def contribute(node: MemberNode, parts: tuple[bytes, ...]) -> list[bytes]:
        return [_trained(node, parts, message, context, call_next)]

    return answer(message, context, {"contribute": contribute}, settings_of(context))


def settings_of(context: Context) -> tuple[str, ...]:
    """Return what an app is told of its run by the SuperLink alone, sorted; every entry shows the type of its value.

    >>> settings_of(Context(7, 1, {}, RecordDict(), {"rate": 1.0, "fit": True}))
    ('"fit": true', '"rate": 1.0', 'run_id: 7', 'series_id: 0')
    """
    numbers = [f"run_id: {context.run_id}", f"series_id: {getattr(context, 'series_id', 0)}"]  # not in every Flower
    config = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in context.run_config.items()]
    return tuple(sorted(numbers + config))


def answer(message: Message, context: Context, members_do: Mapping[str, Do], settings: tuple[str, ...] = ()) -> Message:
    """Return the reply to one of Blindsight's messages; `members_do` is what members do, by kind, besides the protocol.

    `settings` is what the app is told besides by the SuperLink, where its training may depend on it (`node`).
    One message at a time: a second process with the same key store waits, so that two never write state. The server is
    told what is wrong with a message, or against a rule of this node; any other error may speak of files and data, and
    goes to this node's log.
    """
    kind = ""
    try:
        kind, parts, _ = unpack(message.content)
        node = node_of(context.node_config, settings)
        with exclusive_lock(node.store.path / "lock"):
            if kind == "hello":
                reply = pack(kind, answer_hello(node.store.identity, node.role, parts, context.node_id))
            elif kind in members_do and isinstance(node, MemberNode):
                reply = pack(kind, members_do[kind](node, parts))
            else:
                reply = pack(kind, node.handle(kind, parts))
    except (MessageError, PrivacyError) as error:
        _LOG.warning("%s is refused: %s", kind or "a message", error)
        reply = pack(kind, (), error=str(error))
    except Exception as error:
        expected = isinstance(error, BlindsightError)
        _LOG.error("%s failed: %s", kind or "a message", error, exc_info=None if expected else error)
        reply = pack(kind, (), error=f"it failed on its side ({type(error).__name__}); the node's log says more.")
    return Message(reply, reply_to=message)


def _refused(message: Message, sentence: str) -> Message:
    _LOG.warning(sentence)
    return Message(Error(_REFUSED, sentence), reply_to=message)


def _evaluated(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Let the app evaluate; what it says when it fails stays here, too."""
    try:
        return call_next(message, context)
    except Exception as error:
        _LOG.error("the app failed in evaluation", exc_info=error)
        return _refused(message, f"its app failed in evaluation with a {type(error).__name__}; its log says more.")


def _trained(
    node: MemberNode, parts: tuple[bytes, ...], message: Message, context: Context, call_next: ClientAppCallable
) -> bytes:
    """Let the app train, and return the signed reply.

    The aggregator has signed the call together with its last parts, the digests of the weights and of all that the app
    gets: from the same weights a member learns once, however they are written and whatever config comes with them.
    """
    if len(parts) != 4:
        raise MessageError("a call to contribute has four parts.")
    asked = message.metadata.message_type, message.metadata.group_id
    if asked != (MessageType.TRAIN, ""):
        raise PrivacyError(
            f"a call to contribute is of the type {MessageType.TRAIN!r}, in no group, so that all members ask the same "
            f"function of their apps; this one came with the type {asked[0]!r} and the group {asked[1]!r}."
        )
    if not hmac.compare_digest(parts[3], content_digest(message.content)):
        raise MessageError("the aggregator has signed another model or config than came with its call.")

    def learn(task: Task, terms: Terms, round: int, memory: Memory) -> Update:
        records = [record for name, record in message.content.array_records.items() if name != PARTS]
        weights = weights_digest(value.numpy() for record in records for value in record.values())
        if not hmac.compare_digest(parts[2], weights):
            raise MessageError("the aggregator has signed the digest of other weights than came with its call.")
        learner = AppLearner.of(task)
        try:
            trained = _learned(message, context, call_next, learner)
        except MessageError as error:
            if learner.noise is None:
                raise
            # Whether training fails may depend on a single picture: under noise nobody is told.
            _LOG.error("this round counts as no change: %s", error)
            trained = Training(np.zeros(learner.numbers))
        update, clipped = learner.update_of(trained, memory, terms, round)
        if clipped:
            _LOG.warning("%d values of this node are beyond the range of the run and are clipped", clipped)
        return update

    return node.contribute(parts, learn)


def _learned(message: Message, context: Context, call_next: ClientAppCallable, learner: AppLearner) -> Training:
    """Return what the app changed in the arrays it was given, on how many examples, and what it measured."""
    message.content = RecordDict({key: record for key, record in message.content.items() if key not in (HEAD, PARTS)})
    given = ArrayRecord(dict(_model(message.content, "the ServerApp")))  # the app may write into the record it gets
    reply = _app_reply(message, context, call_next)
    returned = aligned(_model(reply, "the ClientApp"), given)
    metrics = tuple(_metric(reply, name) for name in learner.metrics)
    return Training(flatten(returned) - flatten(given), _examples(reply, learner), metrics)


def _app_reply(message: Message, context: Context, call_next: ClientAppCallable) -> RecordDict:
    """Let the app train; what it says when it fails may tell of its data, so it goes to this node's log alone."""
    try:
        reply = call_next(message, context)
    except Exception as error:
        if isinstance(error, KeyError) and str(error).strip("'").startswith("fitins."):
            raise MessageError("its app has a client_fn, of Flower's older interface; use @app.train().") from None
        _LOG.error("the app failed in training", exc_info=error)
        raise MessageError(
            f"its app failed in training with a {type(error).__name__}; the node's log says more."
        ) from None
    if reply.has_error():
        _LOG.error("the app failed in training: %s", reply.error.reason)
        raise MessageError(f"its app failed with code {reply.error.code}; the node's log says more.")
    return reply.content


def _model(content: RecordDict, who: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise MessageError(f"{who} must send one ArrayRecord, the model; got {len(records)}.")
    return records[0]


def _metric(content: RecordDict, key: str) -> float:
    reported = [metrics[key] for metrics in content.metric_records.values() if key in metrics]
    if len(reported) != 1 or not isinstance(number := reported[0], int | float):
        raise MessageError(f"the ClientApp must report {key!r}, a number, in its metrics once: the run asks for it.")
    return float(number)


def _examples(content: RecordDict, learner: AppLearner) -> float:
    """Return the weight that the app gives to its update, one if all members weigh the same."""
    if not learner.max_examples:
        return 1.0
    number = _metric(content, learner.weighted_by)
    if not 0 < number < math.inf:
        raise MessageError(f"{learner.weighted_by!r} must be above 0: updates are weighed by it; got {number}.")
    if number > learner.max_examples:
        _LOG.warning("this node's %s count as %d, the most of this run", learner.weighted_by, learner.max_examples)
    return number


def node_of(config: Mapping[str, Any], settings: tuple[str, ...] = ()) -> MemberNode | KeyGeneratorNode:
    """Return the node that a node-config describes."""
    refuse_renamed(config, "node-config", _RENAMED)
    role = config.get("role", MEMBER_ROLE)
    if role not in ROLES:
        raise UnknownNameError("role in the node-config", str(role), ROLES)
    store, quorum = KeyStore(as_path(_needed(config, "home"))), _count(config, "quorum", MIN_MEMBERS)
    insecure = config.get("insecure", False) is True
    if role == GENERATOR_ROLE:
        return KeyGeneratorNode(store, Members.read(_needed(config, "members-file")), quorum, insecure)
    epsilon = config.get("privacy-epsilon")
    if epsilon is not None and not (isinstance(epsilon, int | float) and epsilon > 0):
        raise InputError(f"privacy-epsilon must be a number above 0; got {epsilon!r}.")
    return MemberNode(
        store,
        _needed(config, "key-generator"),
        quorum,
        _schemes(config),
        insecure,
        _count(config, "minimum-per-position", 1),
        epsilon,
        settings,
    )


def refuse_renamed(config: Mapping[str, Any], what: str, renamed: Mapping[str, str]) -> None:
    """Refuse settings that have another name now."""
    for name in renamed.keys() & config.keys():
        raise InputError(f"{name!r} in the {what} is now {renamed[name]!r}; got {name}={config[name]!r}.")


def _count(config: Mapping[str, Any], key: str, least: int) -> int:
    number = config.get(key, least)
    if type(number) is not int or number < least:
        raise InputError(f"{key} must be a whole number of at least {least}; got {number!r}.")
    return number


def _schemes(config: Mapping[str, Any]) -> tuple[str, ...]:
    schemes = tuple(str(config.get("schemes", ",".join(HIDING_SCHEMES))).replace(" ", "").split(","))
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise UnknownNameError("scheme in the node-config", scheme, SCHEMES)
    return schemes


def _needed(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"this node has no {key!r}. Start it with --node-config '{key}=\"...\"'.")
    return value


# In Flower's simulation


def simulated_nodes(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the simulated party whose partition this is; the first of an app's mods."""
    config = context.node_config
    place, count = config.get("partition-id"), config.get("num-partitions")
    if not isinstance(place, int) or not isinstance(count, int):
        raise InputError(
            "simulated_nodes is for Flower's simulation, whose nodes have a partition-id. Leave it out here."
        )
    folder = _folder(context.run_id)
    members = Members.read(folder / _MEMBERS)
    own = copy.copy(context)
    if place == count - 1:
        name, more = KEY_GENERATOR, {"role": GENERATOR_ROLE, "members-file": str(folder / _MEMBERS)}
    else:
        name, more = _name(place), {"key-generator": members.fingerprints[KEY_GENERATOR]}
    own.node_config = {**config, **more, "home": str(_home(folder, name)), "num-partitions": count - 1}
    reply = call_next(message, own)
    context.state = own.state
    return reply


def make_parties(grid: Grid, *, members: int, seconds: float) -> tuple[KeyStore, Members]:
    """Wait for the virtual nodes and make everybody's keys, the last node's as key generator; return the server's.

    Flower starts all nodes of a simulation at once: those that are there when no more come are all.
    """
    folder, nodes, until = _folder(grid.run.run_id), -1, time.monotonic() + seconds
    while (found := len(list(grid.get_node_ids()))) <= members or found != nodes:
        if found == nodes and time.monotonic() > until:
            raise InputError(
                f"a simulation has {members + 1} nodes or more, the members (at least three: of two, each reads the "
                f"other's update in the sum) and the key generator; got {nodes}. Raise num-supernodes."
            )
        nodes = found
        time.sleep(min(_POLL_SECONDS, seconds))
    names = [AGGREGATOR, KEY_GENERATOR, *map(_name, range(nodes - 1))]
    with storage_errors("make", folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    identities = {}
    for name in names:
        path = _home(folder, name) / IDENTITY_FILE
        identities[name] = Identity.load(path) if path.exists() else Identity.create(path, name)
    listed = Members({name: identity.public.fingerprint for name, identity in identities.items()})
    (folder / _MEMBERS).write_text(listed.to_toml(), encoding="utf-8")
    return KeyStore(_home(folder, AGGREGATOR)), listed


def _name(place: int) -> str:
    return f"member {place:04d}"


def _home(folder: Path, name: str) -> Path:
    return folder / name.replace(" ", "-")


def _folder(run: int) -> Path:
    return Path(tempfile.gettempdir()) / f"blindsight-simulation-{os.getuid()}" / str(run)
