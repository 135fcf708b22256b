"""Flower's Grid as a transport, Blindsight's messages inside Flower's, and models as vectors of numbers.

*The transport*: names instead of node numbers, responses as they come, nodes that come and go. Every node proves who it
is before anything else is sent to it (`identity`). A silent node is not waited for, except at the beginning, when
nobody else is known; it is asked again later, after ever longer pauses. Replies are pulled a few at a time, so
that the server holds few contributions at once. Every message says by which protocol and version it was made.
`GridTransport.traffic` counts what each kind took.

*Messages* are all of Flower's type "train": Flower hands a message to an app's mods only if the app has a function for
its type, and every app that learns has one to train. A record of ours says what they are. Flower carries every record,
every array and every 20 MB of one in requests of their own, each of which costs the SuperLink some ten CPU
milliseconds. So a message is one ConfigRecord with all its parts, up to 2 MB of them. Larger ones, which Flower would
encode and hash as one block (ten times as long for 100 MB), travel as arrays of uint8 of a serialisation type of their
own, plain bytes: nothing is copied to pack them, and nothing from elsewhere is parsed to unpack them. Of text from
elsewhere, which ends up in logs, 500 printable characters are kept.

*Models.* As a vector, a model is all of its numbers. Integers (a counter of batches, say) come back as floating point,
as Flower's own strategies make them.
"""

import hashlib
import struct
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from blindsight.errors import InputError, MessageError
from blindsight.federated import identity
from blindsight.federated.identity import Directory, Members, PublicIdentity, hello
from blindsight.sums.engine import Response

Floats = NDArray[np.float64]

HEAD, PARTS = "blindsight", "blindsight-parts"
MOST_PARTS, MOST_CHARACTERS = 64, 500
_BYTES = "blindsight.bytes"
_INLINE = 1 << 21  # bytes of all parts together that travel in one record
_POLL_SECONDS = 0.25
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0  # seconds before a node that was refused is asked again
_AT_ONCE = 4  # replies in memory
_GONE = frozenset({3, 4, 5, 8})  # codes of Flower's errors: message, reply or node unavailable, the app crashed


# Messages


def pack(kind: str, parts: Sequence[bytes], *, error: str = "") -> RecordDict:
    head: dict[str, Any] = {"kind": kind, "error": error}
    head |= {"protocol": identity.PROTOCOL, "software": identity.software()}
    if sum(map(len, parts)) <= _INLINE:
        return RecordDict({HEAD: ConfigRecord({"parts": list(parts), **head})})
    arrays = {_key(number): Array("uint8", (len(part),), _BYTES, part) for number, part in enumerate(parts)}
    return RecordDict({HEAD: ConfigRecord({"parts": len(parts), **head}), PARTS: ArrayRecord(arrays)})


def is_ours(content: RecordDict) -> bool:
    return HEAD in content


def unpack(content: RecordDict) -> tuple[str, tuple[bytes, ...], str]:
    """Return kind, parts and error of a message; `MessageError` on anything that `pack` did not make.

    A message of another version is refused as such, except a hello, to which its reader answers with its own.
    """
    head, arrays = content.get(HEAD), content.get(PARTS, ArrayRecord())
    if not isinstance(head, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise MessageError("this is not one of Blindsight's messages.")
    kind, parts, error = head.get("kind"), head.get("parts"), head.get("error")
    if not isinstance(kind, str) or not isinstance(parts, int | list) or not isinstance(error, str):
        raise MessageError("this is not one of Blindsight's messages: its head is damaged.")
    if kind != "hello":
        identity.check_protocol(head.get("protocol"), printable(str(head.get("software"))))
    count, held = (parts, len(arrays)) if isinstance(parts, int) else (len(parts), len(parts))
    if not 0 <= count == held <= MOST_PARTS:
        raise MessageError(f"a message announces {count} parts and has {held}.")
    found = [_part(arrays, number) for number in range(count)] if isinstance(parts, int) else parts
    if wrong := [part for part in found if not isinstance(part, bytes)]:
        raise MessageError(f"the parts of a message are bytes; got {type(wrong[0]).__name__}.")
    return printable(kind), tuple(part for part in found if isinstance(part, bytes)), printable(error)


def content_digest(content: RecordDict) -> bytes:
    """Return the SHA-256 of all that a message tells the app: every record but Blindsight's own.

    Of a model it covers the order, names, types, shapes and bytes of the arrays, of a config all entries and their
    types, in whatever order; every piece is written with its length.
    """
    digest = hashlib.sha256(b"blindsight content 1")
    for name in sorted(content.keys() - {HEAD, PARTS}):
        record = content[name]
        items = record.items() if isinstance(record, ArrayRecord) else sorted(record.items())
        for piece in (name, type(record).__name__, len(record), *(part for item in items for part in _pieces(item))):
            text = piece if isinstance(piece, bytes) else str(piece).encode()
            digest.update(len(text).to_bytes(8, "big"))
            digest.update(text)
    return digest.digest()


def _pieces(value: Any) -> Iterator[Any]:
    """Yield what makes a value of a record what it is, with types and lengths; what comes last may be any bytes."""
    if isinstance(value, tuple | list):
        yield from ("list", len(value))
        for part in value:
            yield from _pieces(part)
    elif isinstance(value, Array):
        yield from ("array", value.dtype, len(value.shape), *value.shape, value.stype, value.data)
    elif isinstance(value, float):
        yield from ("float", struct.pack(">d", value))
    else:
        yield from (type(value).__name__, value)


def printable(text: str) -> str:
    """Return the beginning of a text on one line, with a space for what cannot be printed.

    >>> printable("gone\\n\\x1b[2J")
    'gone  [2J'
    """
    return "".join(character if character.isprintable() else " " for character in text[:MOST_CHARACTERS])


def response_in(content: RecordDict) -> Response:
    try:
        _, parts, error = unpack(content)
    except MessageError as problem:
        return Response(error=str(problem))
    return Response(error=error) if error else Response(parts)


def _key(number: int) -> str:
    return f"{number:02d}"


def _part(arrays: ArrayRecord, number: int) -> bytes:
    array = arrays.get(_key(number))
    if array is None or array.dtype != "uint8" or array.stype != _BYTES or array.shape != (len(array.data),):
        raise MessageError(f"part {number} of a message is no row of bytes.")
    return array.data


# Models as vectors


def flatten(arrays: ArrayRecord) -> Floats:
    parts = [_numbers(name, value).astype(np.float64).ravel() for name, value in arrays.items()]
    vector: Floats = np.concatenate(parts) if parts else np.zeros(0)
    return vector


def unflatten(vector: Floats, like: ArrayRecord) -> ArrayRecord:
    """Return arrays of the names and shapes of `like`; what is no floating-point number there is one here."""
    made, start = {}, 0
    for name, value in like.items():
        part = value.numpy()
        dtype = part.dtype if part.dtype.kind == "f" else np.dtype(np.float64)
        made[name] = Array(vector[start : start + part.size].reshape(part.shape).astype(dtype))
        start += part.size
    if start != vector.size:
        raise InputError(f"the arrays hold {start} numbers; got {vector.size}.")
    return ArrayRecord(made)


def aligned(arrays: ArrayRecord, like: ArrayRecord) -> ArrayRecord:
    """Return arrays, of any type of numbers, in the order of the model that was sent; refuse others than it has."""
    wanted, found = ({name: tuple(value.shape) for name, value in record.items()} for record in (like, arrays))
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise MessageError(
                f"the array {name!r} is {_told(wanted.get(name))} in the model of the run and "
                f"{_told(found.get(name))} here. Use the same model and data of the same dimensions everywhere."
            )
    return ArrayRecord({name: arrays[name] for name in like})


def _numbers(name: str, value: Array) -> NDArray[Any]:
    part = value.numpy()
    if part.dtype.kind not in "fiub":
        raise MessageError(f"the array {name!r} must hold real numbers; got {part.dtype}.")
    return part


def _told(shape: tuple[int, ...] | None) -> str:
    return "not there" if shape is None else f"of shape {shape}"


# The grid


@dataclass
class Traffic:
    """What the messages of one kind took: number, bytes there and back, and seconds of waiting and handling."""

    messages: int = 0
    sent: int = 0
    received: int = 0
    seconds: float = 0.0


@dataclass
class _Stranger:
    """A node that has not said who it is; one that was refused is asked again at `again`, after `pause` seconds."""

    message: bytes = b""
    ticket: str = ""
    due: float = 0.0
    again: float = 0.0
    pause: float = 0.0


class GridTransport:
    """Carries Blindsight's messages over a Grid to the members of a federation."""

    def __init__(
        self, grid: Grid, members: Members, *, hello_seconds: float = 60.0, names: Mapping[int, str] | None = None
    ) -> None:
        """Know nobody yet; a node that does not say who it is within `hello_seconds` is refused until it does.

        `names` are those under which nodes were registered at the SuperLink, to complain of them by name.
        """
        self._grid, self._hello_seconds, self._names = grid, hello_seconds, names or {}
        self._strangers: dict[int, _Stranger] = {}
        self._arrived: dict[str, Response | None] = {}
        self._kinds: dict[str, str] = {}
        self.directory = Directory(members)
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)

    def present(self) -> Mapping[str, int]:
        """Return the members that can be reached now; new nodes are asked, and waited for only if nobody is known."""
        nodes, now = set(self._grid.get_node_ids()), time.monotonic()
        self.directory.keep(nodes)
        self._strangers = {node: one for node, one in self._strangers.items() if node in nodes}
        for node, one in self._strangers.items():  # a refused one may have been mended, or its double stopped
            if node in self.directory.refused and now >= one.again:
                del self.directory.refused[node]
                one.ticket = ""
        for node in sorted(nodes - self.directory.known):
            if not (one := self._strangers.setdefault(node, _Stranger())).ticket:
                self._ask(node, one)
        self._hear()
        return dict(self.directory.nodes)

    def identities(self) -> Mapping[str, PublicIdentity]:
        return {name: self.directory.identities[name] for name in self.present()}

    def send(self, name: str, kind: str, parts: Sequence[bytes]) -> str:
        """Send parts to a member; to one that is not there nothing is sent, and no reply will come."""
        node = self.directory.nodes.get(name)
        return "" if node is None else self._push(node, kind, parts)

    def collect(self, tickets: Collection[str], *, seconds: float) -> Iterator[tuple[str, Response]]:
        """Yield replies as they come; a node that is gone is not waited for."""
        waiting, begun = {ticket for ticket in tickets if ticket}, time.monotonic()
        until, kind = begun + seconds, next((self._kinds[one] for one in tickets if one in self._kinds), "")
        try:
            while waiting:
                for ticket, reply in self._pulled(waiting):
                    waiting.discard(ticket)
                    if reply is not None:
                        self.traffic[self._kinds.pop(ticket, kind)].received += sum(map(len, reply.parts))
                        yield ticket, reply
                if not waiting or time.monotonic() >= until:
                    return
                _sleep(_POLL_SECONDS, until)
            if tickets:  # everybody asked is away: do not ask again at once
                _sleep(_POLL_SECONDS * 4, until)
        finally:
            if kind:
                self.traffic[kind].seconds += time.monotonic() - begun

    def complaints(self) -> str:
        return "".join(f" {sentence}" for sentence in self.refusals())

    def refusals(self) -> list[str]:
        """Return why nodes are not let in, each with the name or number of the node."""
        refused = self.directory.refused.items()
        return [f"Node {node}{f' ({name})' if (name := self._names.get(node)) else ''}: {why}" for node, why in refused]

    def _ask(self, node: int, one: _Stranger) -> None:
        one.message, one.due = hello(node), time.monotonic() + self._hello_seconds
        one.ticket = self._push(node, "hello", [one.message])
        if not one.ticket:
            self._refuse(node, one, "Flower took no message for it.")

    def _hear(self) -> None:
        """Take in who nodes say they are; wait only if nobody is known; refuse an overdue node until it answers."""
        asked = {node: one for node, one in self._strangers.items() if one.ticket}
        left = max((one.due - time.monotonic() for one in asked.values()), default=0.0)
        patience = 0.0 if self.directory.nodes else left
        heard = dict(self.collect([one.ticket for one in asked.values()], seconds=patience))
        for node, one in asked.items():
            if one.ticket in heard:
                self._meet(node, one, heard[one.ticket])
            elif time.monotonic() >= one.due and node not in self.directory.refused:
                self._refuse(node, one, "it did not say who it is in time.")

    def _meet(self, node: int, one: _Stranger, reply: Response) -> None:
        one.ticket = ""
        self.directory.refused.pop(node, None)
        if not reply.error:
            self.directory.enter(node, reply.parts, one.message)
        if sentence := reply.error or self.directory.refused.get(node):
            self._refuse(node, one, sentence)
        else:
            del self._strangers[node]

    def _refuse(self, node: int, one: _Stranger, sentence: str) -> None:
        """Do not let a node in; each time it is twice as long until it is asked again."""
        one.pause = min(2 * one.pause, _LONGEST_PAUSE) if one.pause else _FIRST_PAUSE
        one.again = time.monotonic() + one.pause
        self.directory.refused[node] = sentence

    def _push(self, node: int, kind: str, parts: Sequence[bytes]) -> str:
        """Send a message and return its ticket; none if Flower would not take it."""
        self.traffic[kind].messages += 1
        self.traffic[kind].sent += sum(map(len, parts))
        ticket = next(iter(self._grid.push_messages([envelope(node, kind, parts)])), None) or ""
        self._kinds[ticket] = kind
        return ticket

    def _pulled(self, tickets: Collection[str]) -> Iterator[tuple[str, Response | None]]:
        """Yield what has come, None for a node that is gone; what is not taken now is kept."""
        queue = sorted(tickets)
        for start in range(0, len(queue), _AT_ONCE):
            few = queue[start : start + _AT_ONCE]
            missing = [ticket for ticket in few if ticket not in self._arrived]
            for message in self._grid.pull_messages(missing) if missing else ():
                self._arrived[message.metadata.reply_to_message_id] = read_response(message)
            for ticket in few:
                if ticket in self._arrived:
                    yield ticket, self._arrived.pop(ticket)


def envelope(node: int, kind: str, parts: Sequence[bytes]) -> Message:
    return Message(pack(kind, parts), dst_node_id=node, message_type=MessageType.TRAIN)


def read_response(message: Message) -> Response | None:
    """Return what a node replied; None if it is gone."""
    if not message.has_error():
        return response_in(message.content)
    if message.error.code in _GONE:
        return None
    return Response(error=f"its app failed: {printable(message.error.reason or 'no reason was given.')}")


def _sleep(seconds: float, until: float) -> None:
    time.sleep(max(0.0, min(seconds, until - time.monotonic())))
