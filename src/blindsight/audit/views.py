"""What an aggregator received, read in every way that could make sense, and compared with the updates behind it.

The attacker knows every format, undoes the permutation phi^(n) that the aggregator shares with each member, and reads
whatever is left as numbers: single bytes, 32-bit integers of either byte order at every alignment, from every start
near the front of a message and in consecutive stretches behind it; for DPHE also one number per ciphertext, or its
bytes as the weights of its block, at the places they were sent for. The best guess counts, with the right sign and
length; so what fails here fails for want of information, not of luck.

No finite test proves a cipher. What is proven is in the statements of the schemes; what is tested here is that the
messages of this implementation give away nothing that simple means could see: a forgotten mask, a value in the clear.

*A recorded view* (`attack_view`) has no set-up and may be of a real run, so that updates cannot be sent in disguise.
What of its messages can depend on an update are their fields of bytes, without names, numbers and the frames around
them: names differ in length from owner to owner and shift everything behind them. (The places of DPHE, which lie in a
shard in ascending order, are left out.) What all messages have in common says nothing either, so guesses and updates
are taken less those of another owner: a guess is right if it tells how two owners differ. Chance is the same score with
the signs of the difference drawn at random.

    Claim. If the messages are independent of the updates, and exchanging an entry of one owner's guesses for the
    other's does not change their distribution, p = (1 + scores of chance at least as large) / (1 + trials) has
    P(p <= alpha) <= alpha.
    Proof. The exchange turns the sign of an entry of the guesses' difference around, which gives the same score as
    turning that of the updates' around; so the true score and the `trials` others have one distribution. []

That is for guesses without a byte in common. Of overlapping ones the scores are correlated, and under drawn signs less
so than under the truth; the largest of correlated normal scores is no larger than that of independent ones (Sidak, JASA
1967), so they make alarms rarer: of 435 tests in sound rounds with updates of one sign 2% had p <= 0.05.

Ciphertexts and masked updates are such: both owners' bytes are draws of one distribution, independent of each other and
of the bytes beside them. An owner that cannot be compared with any other is not tested, and not among the results.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Verdict, exactly
from blindsight.audit.recovery import ChanceTest, Vector, needed_trials, signs_test
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import Message, decode
from blindsight.errors import InputError, MessageError
from blindsight.rng import science
from blindsight.sums import SCHEMES
from blindsight.sums.dphe import Layout, Shards, layout_of
from blindsight.sums.masks import Advertisement, Reveal, SealedShares
from blindsight.sums.messages import Receipt, Reply, Roster, RosterMessage, Setup
from blindsight.sums.terms import AGGREGATOR, Terms

_STARTS = 64  # how many starts are tried near the front of a message
_STRETCHES = 32  # and how many consecutive stretches behind it, at each alignment
_KINDS = ("i1", "<i4", ">i4")
_FRAME = 256  # of compressed ciphertexts: lengths, and the tables of the compression
_MESSAGES: tuple[type[Message], ...] = (Reply, Signed, Receipt, Shards, Advertisement, SealedShares, Reveal)
Payloads = dict[str, list[bytes]]
"""By the name of a field, what one owner sent in it, message by message."""


class Recorder:
    """Keeps the messages that the aggregator receives; give it to `open_session` as `record`."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.received: list[bytes] = []

    def __call__(self, party: str, message: bytes) -> None:
        """Note a message if it is the aggregator's."""
        if party == AGGREGATOR:
            self.received.append(message)

    def forget_rounds(self) -> None:
        """Keep only the set-up: a round's messages are read with it."""
        self.received = [message for message in self.received if is_message(message, Setup)]


@dataclass(frozen=True, eq=False)
class OwnerGuesses:
    """Guesses of one owner's update, a row each, unscaled; and the blocks its messages name, if they name any."""

    rows: NDArray[np.float64]
    places: NDArray[np.int64] | None
    block: int

    def __repr__(self) -> str:
        return f"<OwnerGuesses: {len(self.rows)}, hidden>"


def guesses_from_view(received: Sequence[bytes], owner: str, dimension: int) -> OwnerGuesses:
    """Return all guesses of an update with so many weights from what an aggregator received in one round."""
    replies = [decode(message, Reply) for message in received if author(message) == owner]
    if not replies:
        raise InputError(
            f"the aggregator's view has no message of {owner!r}. Record the round: open_session(..., record=...)."
        )
    rows = [row for reply in replies for part in (reply.receipt, reply.body) for row in stretches(part, dimension)]
    setups = [decode(message, Setup) for message in received if is_message(message, Setup)]
    terms = [Terms.from_bytes(decode(setup.roster, RosterMessage).terms) for setup in setups]
    if not terms or not terms[0].sparse:
        return OwnerGuesses(_stacked(rows, dimension), None, 1)
    layout = layout_of(terms[0])
    sent = [_shards(reply, setups[0], layout, owner) for reply in replies]
    for number in (0, 1):  # the places as they were sent, and with phi^(n) undone
        rows += _placed([(where[number], ciphertexts) for where, ciphertexts in sent], layout)
    places = np.concatenate([where[1] for where, _ in sent])
    return OwnerGuesses(_stacked(rows, dimension), places, layout.slots)


def author(message: bytes) -> str | None:
    """Return who made a reply; None if it is none."""
    try:
        return decode(decode(message, Reply).receipt, Signed).author
    except MessageError:
        return None


def stretches(message: bytes, dimension: int) -> Iterator[NDArray[np.float64]]:
    """Read stretches of a message as numbers of every kind."""
    for kind in _KINDS:
        size = np.dtype(kind).itemsize
        for shift in range(size):
            usable = message[shift : shift + (len(message) - shift) // size * size]
            numbers = np.frombuffer(usable, dtype=kind).astype(np.float64)
            last = numbers.size - dimension
            starts = {*range(min(_STARTS, last + 1)), *range(0, last + 1, dimension), max(last, 0)}
            for start in sorted(starts)[: _STARTS + _STRETCHES]:
                if start <= last:
                    yield numbers[start : start + dimension]


Placed = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Blocks, and for each the bytes of its ciphertext."""


def _shards(
    reply: Reply, setup: Setup, layout: Layout, owner: str
) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], NDArray[np.uint8]]:
    """Return the places of a contribution as they were sent and as phi K (Eq. 8), and its ciphertexts."""
    round, shards = decode(decode(reply.receipt, Signed).body, Receipt).round, decode(reply.body, Shards)
    secret = dict(zip(layout.terms.members, setup.own, strict=True))[owner]
    own = layout.permutations(Roster.from_bytes(setup.roster, expected=layout.terms)).own(secret, owner, round)
    places = shards.places.ravel()
    return (places, own.backward(places)), shards.ciphertexts.reshape(places.size, -1)


def _placed(shards: list[Placed], layout: Layout) -> list[NDArray[np.float64]]:
    """Return guesses that take a ciphertext for its block: its leading bytes as one number, or its bytes as weights."""
    numbers, weights = np.zeros((2, layout.blocks, layout.slots))
    for places, ciphertexts in shards:
        numbers[places] = ciphertexts[:, :1].astype(np.float64) - 127.5
        wide = np.ascontiguousarray(ciphertexts[:, ::-1][:, : 4 * layout.slots]).view("<i4")  # little-endian slots
        weights[places, : wide.shape[1]] = wide
    return [numbers.ravel()[: layout.terms.dimension], weights.ravel()[: layout.terms.dimension]]


def _stacked(rows: list[NDArray[np.float64]], dimension: int) -> NDArray[np.float64]:
    """Return the guesses that are not all zero, one row each."""
    kept = [row for row in rows if row.any()]
    return np.array(kept) if kept else np.zeros((1, dimension))


# Two owners' messages, field by field


def owner_payloads(received: Iterable[bytes], owner: str) -> Payloads:
    """Return what an owner sent, of all that an aggregator received."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for message in received:
        if author(message) == owner:
            for field, data in _leaves(message):
                found[field].append(data)
    return dict(found)


def differences(one: Payloads, other: Payloads, dimension: int) -> NDArray[np.float64]:
    """Return guesses of how two owners' updates differ, a row each: no rows if nothing that they sent is long enough.

    Of fields that differ in length, as compressed ciphertexts do, the front and the end are left out, which tell how
    long they are.
    """
    rows = []
    for part in one:
        for mine, theirs in zip(one[part], other.get(part, ()), strict=False):
            both = (mine, theirs) if len(mine) == len(theirs) else _cut(mine, theirs)
            left, right = (stretches(data, dimension) for data in both)
            rows += [guess - another for guess, another in zip(left, right, strict=True)]
    return np.array(rows).reshape(-1, dimension)


def _leaves(message: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a message and of the messages within."""
    found = decode(message, *_MESSAGES)
    for part in fields(found):  # type: ignore[arg-type]
        data = _bytes_of(getattr(found, part.name))
        if data is None or (isinstance(found, Shards) and part.name == "places"):
            continue
        if is_message(data, *_MESSAGES):
            yield from _leaves(data)
        else:
            yield f"{type(found).__name__}.{part.name}", data


def _bytes_of(value: Any) -> bytes | None:
    """Return a field as bytes; None if it holds names or a number."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, tuple) and all(isinstance(item, bytes) for item in value):
        return b"".join(value)
    return None


def is_message(data: bytes, *kinds: type[Message]) -> bool:
    """Tell whether bytes are a message of one of these kinds."""
    try:
        decode(data, *kinds)
    except MessageError:
        return False
    return True


def _cut(mine: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    until = max(min(len(mine), len(theirs)) - _FRAME, _FRAME)
    return mine[_FRAME:until], theirs[_FRAME:until]


def attack_view(
    received: Sequence[bytes],
    sent: Mapping[str, Vector],
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
) -> dict[str, ChanceTest]:
    """Test guesses of every owner's update from what the aggregator received in one round; `sent` is the truth.

    `false_alarm` is the probability with which any of the tests calls chance a leak; the cost grows with its inverse.
    """
    updates = {owner: np.asarray(update, dtype=np.float64) for owner, update in sent.items()}
    victims = [owner for owner, update in updates.items() if update.any()]
    if not victims:
        raise InputError("every owner of the recorded round sent zeros: there is nothing to find out.")
    generator, rate = science(random_state), false_alarm / len(victims)
    needed_trials(rate)
    payloads = {owner: owner_payloads(received, owner) for owner in updates}
    tests = {}
    for owner in victims:
        compared = _compared(owner, updates, payloads)
        if compared is not None:
            tests[owner] = signs_test(*compared, generator=generator, false_alarm=rate)
    if not tests:
        raise InputError(
            "no two owners of the recorded round have different updates and sent messages that can be compared."
        )
    return tests


def _compared(
    owner: str, updates: Mapping[str, Vector], payloads: Mapping[str, Payloads]
) -> tuple[NDArray[np.float64], Vector] | None:
    """Return guesses of how an owner's update differs from that of the next one with another, and the truth."""
    if not payloads[owner]:
        raise InputError(f"the aggregator's view has no message of {owner!r}.")
    names = list(updates)
    start = names.index(owner) + 1
    for other in names[start:] + names[: start - 1]:
        truth = updates[owner] - updates[other]
        rows = differences(payloads[owner], payloads[other], truth.size)
        if truth.any() and len(rows):
            return rows, truth
    return None


def view_finding(tests: Mapping[str, ChanceTest], scheme: str, attack: str) -> Finding:
    """Return one row: the owner about whom most was found out."""
    worst = min(tests, key=lambda owner: (tests[owner].found_nothing, -tests[owner].score))
    test, plain = tests[worst], not SCHEMES[scheme].hides
    verdict: Verdict = "at chance" if test.found_nothing else "leaks" if plain else "refuted"
    return Finding(
        claim=f"{scheme}: the aggregator of this run learned nothing of an owner's update but the sum",
        source="nobody" if plain else "the statement of the run",
        proven="nothing: updates were sent in the clear" if plain else "cryptographically, under its assumptions",
        measure=f"|cosine| of the best of {test.guesses} guesses with {worst}'s update, less another's "
        f"(chance exceeds {test.threshold:.2f} in {test.false_alarm:.2%} of the cases)",
        measured=exactly(test.score),
        verdict=verdict,
        attack=attack,
        details={
            "owners tested": len(tests),
            "owners at chance": sum(one.found_nothing for one in tests.values()),
            "p_value": test.p_value,
            "false_alarm": test.false_alarm,
        },
    )
