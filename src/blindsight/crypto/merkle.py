"""Merkle tree over an append-only list of records, with proofs of inclusion and of consistency (RFC 6962).

*The guarantee.* Under the collision resistance of SHA-256 one head (size and root) fixes all records up to it, in their
order. `included` checks a proof that a record stands at a place under a head, `consistent` one that one head's records
are the beginning of another's: nothing was changed, cut or inserted between the two. Either takes O(log n) hashes. A
`TreeHead` is signed: who holds two that are not consistent can prove to everybody that the signer told two histories.

    RFC 6962                  here
    MTH({d(0)})               `leaf_hash`: SHA-256 of 0x00 and the record
    MTH(D[n])                 `Tree.root`: inner nodes are SHA-256 of 0x01 and both children
    PATH(m, D[n])             `Tree.inclusion(m + 1, n)`: positions here begin with 1
    PROOF(m, D[n])            `Tree.consistency(m, n)`
    signed tree head          `TreeHead`, an Ed25519 signature over size, root and time

*What is stored.* With each record the hash of the largest complete subtree that it ends: at position n the subtree of
2^tz(n) records, tz(n) the trailing zeros of n (`extend`). Every other node is made of at most log n of these, so that
no proof reads the list (`Tree`). Algorithms of verification: RFC 9162, sections 2.1.3.2 and 2.1.4.2.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from blindsight.crypto.signing import SigningKey, verify
from blindsight.errors import InputError, MessageError

R = TypeVar("R")

EMPTY = hashlib.sha256(b"").digest()

Stored = tuple[bytes, bytes]
"""Of one position: the hash of its record, and of the largest complete subtree that it ends."""


def leaf_hash(record: bytes) -> bytes:
    return hashlib.sha256(b"\0" + record).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def peaks_at(size: int) -> list[int]:
    """Return the positions whose stored subtrees make up a tree of this size, largest first.

    >>> peaks_at(11)
    [8, 10, 11]
    """
    ends, end = [], 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            end += 1 << level
            ends.append(end)
    return ends


def extend(peaks: list[bytes], size: int, leaf: bytes) -> bytes:
    """Add a record to a tree of `size`, given and kept by its peaks; return what is stored with the record."""
    node = leaf
    while size & 1:
        node, size = node_hash(peaks.pop(), node), size >> 1
    peaks.append(node)
    return node


def root_of(peaks: Sequence[bytes]) -> bytes:
    """Return the root over complete subtrees from left to right."""
    if not peaks:
        return EMPTY
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def new_inclusions(peaks: Sequence[bytes], size: int, leaves: Sequence[bytes]) -> list[list[str]]:
    """Return, as hex, the proofs of records just added to a tree of `size` with these peaks; levels are made once."""
    level, first, left, paths = list(leaves), size, list(peaks), [list[str]() for _ in leaves]
    height = 0
    while first or len(level) > 1:
        if first & 1:
            level.insert(0, left.pop())
            first -= 1
        texts, last = [node.hex() for node in level], len(level) - 1
        for number, path in enumerate(paths, start=size):
            if (beside := ((number >> height) ^ 1) - first) <= last:
                path.append(texts[beside])
        pairs = [node_hash(*level[at : at + 2]) for at in range(0, last, 2)]
        level = pairs if last & 1 else [*pairs, level[-1]]
        first, height = first >> 1, height + 1
    return paths


class Tree:
    """Roots and proofs from what is stored; `fetch` is told positions and returns what is stored with each."""

    def __init__(self, fetch: Callable[[Collection[int]], Mapping[int, Stored]]) -> None:
        self._fetch = fetch

    def root(self, size: int) -> bytes:
        return self._read(lambda at: _range(at, 0, size))

    def inclusion(self, position: int, size: int) -> list[bytes]:
        """Return the proof that the record at `position`, from 1, is under the root of `size` records."""
        return self.inclusions([position], size)[0]

    def inclusions(self, positions: Sequence[int], size: int) -> list[list[bytes]]:
        """Return such proofs for several records, read together."""
        for position in positions:
            if not 1 <= position <= size:
                raise InputError(f"a position must be in [1, {size}], the size of the log; got {position}.")
        return self._read(lambda at: [_path(at, position - 1, 0, size) for position in positions])

    def consistency(self, first: int, second: int) -> list[bytes]:
        """Return the proof that the first `first` of `second` records are those under the root of that size."""
        if not 0 <= first <= second:
            raise InputError(f"the sizes of two heads must be in order; got {first} and {second}.")
        return self._read(lambda at: _subproof(at, first, 0, second, whole=True)) if first else []

    def _read(self, make: Callable[["_At"], R]) -> R:
        """Find out which positions are needed, fetch them together, and compute."""
        needed: set[int] = set()

        def note(position: int) -> Stored:
            needed.add(position)
            return EMPTY, EMPTY

        make(note)
        return make(self._fetch(needed).__getitem__)


_At = Callable[[int], Stored]


def _complete(at: _At, end: int, level: int) -> bytes:
    """Return the hash of the 2^level records that end with position `end`."""
    if end & -end == 1 << level:
        return at(end)[1]
    if level == 0:
        return at(end)[0]
    half = 1 << level - 1
    return node_hash(_complete(at, end - half, level - 1), _complete(at, end, level - 1))


def _range(at: _At, begin: int, end: int) -> bytes:
    """Return MTH(D[begin:end]), where `begin` is a multiple of every power of two below the length."""
    ends = [begin + one for one in peaks_at(end - begin)]
    return root_of([_complete(at, one, (one - before).bit_length() - 1) for before, one in zip([begin, *ends], ends)])  # noqa: B905 - the first is one longer


def _path(at: _At, leaf: int, begin: int, end: int) -> list[bytes]:
    if end - begin <= 1:
        return []
    middle = begin + _split(end - begin)
    if leaf < middle:
        return [*_path(at, leaf, begin, middle), _range(at, middle, end)]
    return [*_path(at, leaf, middle, end), _range(at, begin, middle)]


def _subproof(at: _At, size: int, begin: int, end: int, *, whole: bool) -> list[bytes]:
    if size == end - begin:
        return [] if whole else [_range(at, begin, end)]
    half = _split(end - begin)
    if size <= half:
        return [*_subproof(at, size, begin, begin + half, whole=whole), _range(at, begin + half, end)]
    return [*_subproof(at, size - half, begin + half, end, whole=False), _range(at, begin, begin + half)]


def _split(size: int) -> int:
    return 1 << (size - 1).bit_length() - 1


def included(leaf: bytes, position: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Tell whether a proof shows that a record, by its hash, stands at `position` under this root."""
    if not 1 <= position <= size:
        return False
    number, last, node = position - 1, size - 1, leaf
    for part in proof:
        if last == 0:
            return False
        if number & 1 or number == last:
            node = node_hash(part, node)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            node = node_hash(node, part)
        number, last = number >> 1, last >> 1
    return last == 0 and node == root


def consistent(first: int, first_root: bytes, second: int, second_root: bytes, proof: Sequence[bytes]) -> bool:
    """Tell whether a proof shows that the records under the first head are the beginning of those under the second."""
    if not 0 <= first <= second or (first == second and (proof or first_root != second_root)):
        return False
    if first == second:
        return True
    if first == 0:
        return not proof and first_root == EMPTY
    parts = [first_root, *proof] if first & (first - 1) == 0 else list(proof)
    if not parts:
        return False
    number, last = first - 1, second - 1
    while number & 1:
        number, last = number >> 1, last >> 1
    before = after = parts[0]
    for part in parts[1:]:
        if last == 0:
            return False
        if number & 1 or number == last:
            before, after = node_hash(part, before), node_hash(part, after)
            while not number & 1 and number:
                number, last = number >> 1, last >> 1
        else:
            after = node_hash(after, part)
        number, last = number >> 1, last >> 1
    return last == 0 and (before, after) == (first_root, second_root)


_AUTHOR = "log"


@dataclass(frozen=True)
class TreeHead:
    """Size and root of a tree at a moment, signed; as text ``size:root``. All but the size is text, hashes as hex."""

    size: int
    root: str
    time: str
    key: str
    signature: str

    @classmethod
    def sign(cls, key: SigningKey, size: int, root: bytes, time: str) -> Self:
        signature = key.sign(_told(size, root.hex(), time), author=_AUTHOR)
        return cls(size, root.hex(), time, key.public.hex(), signature.hex())

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Return the head that `dataclasses.asdict` described, if its signature holds; else raise `MessageError`."""
        try:
            head = cls(**data)
            _, told = verify(bytes.fromhex(head.signature), {_AUTHOR: bytes.fromhex(head.key)})
            if told == _told(head.size, head.root, head.time) and type(head.size) is int and head.size >= 0:
                return head
        except (TypeError, ValueError, MessageError):
            pass
        raise MessageError("this is no head of a log, or it was not signed by the key that it names.")

    def __str__(self) -> str:
        return f"{self.size}:{self.root}"


def _told(size: int, root: str, time: str) -> bytes:
    return json.dumps(["blindsight tree head 1", size, root, time]).encode()


def check_receipt(receipt: Mapping[str, Any]) -> tuple[list[Any], TreeHead]:
    """Return the record that a receipt is about and the head it stands under, or raise `MessageError`."""
    try:
        head = TreeHead.from_dict(receipt["head"])
        proof = [bytes.fromhex(one) for one in receipt["proof"]]
        leaf, record = leaf_hash(receipt["record"].encode()), json.loads(receipt["record"])
        holds = included(leaf, receipt["position"], head.size, proof, bytes.fromhex(head.root))
    except (KeyError, TypeError, ValueError, AttributeError):
        holds = False
    if not holds or type(record) is not list or record[:1] != [receipt["position"]]:
        raise MessageError("this receipt does not prove that its record is in the log.")
    return record, head
