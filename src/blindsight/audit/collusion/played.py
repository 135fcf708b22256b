"""A round of real messages between parties made for the audit: what any coalition of them holds, and its worth.

A party holds what it received, set-up included, and what it drew itself: its update, and the secrets that never leave
it. A `Coalition` hands out what its parties hold and nothing else. What the key generator *sent* it knows as well: with
it come all set-up messages. Runs of real parties cannot be audited so, because nobody records their secrets; play
their updates again (`learn.recording` keeps them).

`from_sum` is what every coalition has: the sum, less what its own members put into it. Where one member is left, that
is its update; where several are, the best guess is an equal share of it. A scheme's own attacks start from there
(`coalitions`). `gain` counts how much of what a coalition says is true, against what it would know by chance; what
should be worth nothing (`Held`: an upload in masks, ciphertexts without a key) is tested against the truth.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.leakage.recovery import ChanceTest, signs_test
from blindsight.audit.leakage.schemes import author
from blindsight.crypto import bfv, paillier
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.sums.masks import RoundSecrets
from blindsight.sums.messages import Receipt, Reply, Setup
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.session import RoundResult, Session
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, SCHEMES, SPARSE_SCHEMES, Integers, Terms
from blindsight.sums.transport import Parts

Mask = NDArray[np.bool_]
Views = Mapping[str, tuple[bytes, ...]]

ROUND = 0


@dataclass(frozen=True, eq=False, repr=False)
class Coalition:
    """What its parties hold together; `session` stands for what everybody knows: terms, public keys, the statement.

    `secrets` are what members of it drew and were handed in a masked round.
    """

    parties: tuple[str, ...]
    session: Session
    result: RoundResult
    updates: Mapping[str, Integers]
    key: PrivateKey | SecretKey | None
    secrets: Mapping[str, RoundSecrets]
    _views: Views
    _issued: tuple[bytes, ...]

    @property
    def rest(self) -> tuple[str, ...]:
        """Who is in the sum and not in the coalition."""
        return tuple(member for member in self.result.contributors if member not in self.parties)

    def messages(self, party: str) -> tuple[bytes, ...]:
        """Return everything that a party of the coalition received."""
        if party not in self.parties:
            raise InputError(f"{party!r} is not in the coalition of {', '.join(self.parties)}.")
        return self._views.get(party, ())

    def replies(self, step: str = CONTRIBUTE) -> dict[str, bytes]:
        """Return the bodies of the members' replies to a step, which the aggregator received."""
        found: dict[str, bytes] = {}
        for message in self.messages(AGGREGATOR):
            member = author(message)
            if member is not None:
                reply = decode(message, Reply)
                if decode(decode(reply.receipt, Signed).body, Receipt).step == step:
                    found[member] = reply.body
        return found

    @cached_property
    def shared_secret(self) -> bytes:
        """The secret behind DPHE's phi, which members and key generator know."""
        for message in (*self._issued, *(item for member in self.updates for item in self.messages(member))):
            if (setup := _setup(message)) is not None and setup.shared:
                return setup.shared
        raise InputError(f"nobody in the coalition of {', '.join(self.parties)} knows the members' permutation.")

    @property
    def aggregator_setup(self) -> Setup:
        """The secrets behind DPHE's phi^(n), which the aggregator knows."""
        return next(setup for setup in map(_setup, self.messages(AGGREGATOR)) if setup is not None)


def _setup(message: bytes) -> Setup | None:
    try:
        return decode(message, Setup)
    except MessageError:
        return None


@dataclass(frozen=True, eq=False, repr=False)
class PlayedRound:
    """One round: the truth about every member (`updates`, encoded), and what everybody received and drew."""

    session: Session
    result: RoundResult
    updates: Mapping[str, Integers]
    views: Views
    key: PrivateKey | SecretKey | None
    secrets: Mapping[str, RoundSecrets]

    def pool(self, parties: Iterable[str]) -> Coalition:
        """Return what these parties hold together."""
        chosen, known = tuple(dict.fromkeys(parties)), (*self.session.terms.members, AGGREGATOR, KEY_GENERATOR)
        for party in chosen:
            if party not in known:
                raise UnknownNameError("party", party, known)
        with_generator = KEY_GENERATOR in chosen
        return Coalition(
            parties=chosen,
            session=self.session,
            result=self.result,
            updates={member: self.updates[member] for member in chosen if member in self.updates},
            key=self.key if with_generator else None,
            secrets={member: self.secrets[member] for member in chosen if member in self.secrets},
            _views={party: self.views.get(party, ()) for party in chosen},
            _issued=tuple(message for view in self.views.values() for message in view[:1]) if with_generator else (),
        )


def play(
    scheme: str,
    updates: Mapping[str, ArrayLike],
    *,
    fraction_bits: int = 20,
    slot_bits: int = 32,
    minimum_per_position: int = 1,
    capacity: int | None = None,
    key_bits: int = 3072,
    insecure: bool = False,
) -> PlayedRound:
    """Play one round of a scheme with these members' updates and keep all of it; see `sums.open_session`.

    All secrets are drawn for this round and protect nobody: the updates are the caller's own.
    """
    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
    vectors = {member: np.asarray(update, dtype=np.float64) for member, update in updates.items()}
    dimension = max((vector.size for vector in vectors.values()), default=0)
    sparse: dict[str, Any] = {"minimum_per_position": minimum_per_position}
    if scheme in SPARSE_SCHEMES:
        sparse |= {
            "capacity": -(-dimension // 10) if capacity is None else capacity,
            "key_bits": key_bits,
            "insecure": insecure,
        }
    terms = Terms(
        scheme=scheme,
        run="audit",
        members=tuple(vectors),
        dimension=dimension,
        fraction_bits=fraction_bits,
        slot_bits=slot_bits,
        **sparse,
    )
    views: defaultdict[str, list[bytes]] = defaultdict(list)
    secrets: dict[str, RoundSecrets] = {}
    key: PrivateKey | SecretKey | None = None
    if terms.sparse:
        key = paillier.generate_keys(key_bits, insecure=insecure)
    elif scheme == "bfv":
        key = bfv.generate_keys(max_sum=terms.max_integer * len(terms.members))

    def transit(sender: str, receiver: str, kind: str, parts: Parts) -> list[Parts]:
        if scheme == "masks" and kind == CONTRIBUTE and receiver == AGGREGATOR:
            secrets[sender] = decode(session.members[sender]._state.secrets, RoundSecrets)
        return [parts]

    session = Session(terms, record=lambda party, message: views[party].append(message), transit=transit, key=key)
    result = session.round(vectors, ROUND)
    truth = {member: terms.integers(vector) for member, vector in vectors.items()}
    return PlayedRound(session, result, truth, {party: tuple(view) for party, view in views.items()}, key, secrets)


@dataclass(frozen=True, eq=False)
class Recovery:
    """A coalition's account of one member's update, weight by weight.

    `update` is its best guess (as encoded integers, fractions where it shares out a sum), `known` marks the weights it
    is certain of, `possible` those that may be other than zero, as far as it can tell.
    """

    parties: tuple[str, ...]
    victim: str
    update: NDArray[np.float64]
    known: Mask
    possible: Mask

    def __repr__(self) -> str:
        who = ", ".join(self.parties)
        return f"Recovery({who} about {self.victim}: {int(self.known.sum())} of {self.known.size} weights)"


@dataclass(frozen=True, eq=False)
class Held:
    """What a coalition holds of one member's update where it should be worth nothing: guesses, a row each.

    They are of the update, or of how it differs from that of the member they are taken `less`.
    """

    rows: NDArray[np.float64]
    less: str | None = None

    def __repr__(self) -> str:
        return f"<Held: {len(self.rows)} guesses, hidden>"


@dataclass(frozen=True)
class Gain:
    """A recovery beside the truth, counted in `positions`: weights, or blocks where they share a ciphertext.

    Of the positions that the victim `changed`, the weights of `read` are known to the coalition. It cannot rule out
    `named` positions, of which `right` were changed. `wrong` counts what it was certain of and is not so. `cosine` is
    that of guess and truth, `alone` that of the best guess of its parties if they did not talk to each other.
    """

    parties: tuple[str, ...]
    victim: str
    positions: int
    changed: int
    read: int
    named: int
    right: int
    wrong: int
    cosine: float
    alone: float

    @property
    def overlap(self) -> float:
        """Changed and named positions in common, as a share of both together (Jaccard)."""
        return _overlap(self.right, self.named, self.changed)

    @property
    def chance_overlap(self) -> float:
        """About the overlap of as many positions named at random."""
        return _overlap(self.named * self.changed / self.positions, self.named, self.changed)


def from_sum(coalition: Coalition, victim: str) -> Recovery:
    """Return what the sum tells about a member in it, after its parties have subtracted their own part."""
    if victim not in coalition.rest:
        raise InputError(f"{victim!r} is in the coalition, or not in the sum: there is nothing to find out.")
    left, released = left_of_sum(coalition)
    alone = coalition.rest == (victim,)
    known = released if alone else np.zeros_like(released)
    return Recovery(coalition.parties, victim, left / len(coalition.rest), known, (left != 0) | ~released)


def left_of_sum(coalition: Coalition) -> tuple[Integers, Mask]:
    """Return the sum of everybody else's weights, and which of them were released: members know, others do not."""
    released = np.ones(coalition.result.total.size, dtype=np.bool_)
    if coalition.updates:
        released[coalition.result.withheld] = False
    left = coalition.result.total.copy()
    for own in coalition.updates.values():
        left -= np.where(released, own, 0)
    return left, released


def gain(played: PlayedRound, recovery: Recovery) -> Gain:
    """Compare a recovery with the truth."""
    truth, block = played.updates[recovery.victim], played.session.block
    changed: Mask = np.any(_by_block(truth != 0, block), axis=1)
    possible: Mask = np.any(_by_block(recovery.possible, block), axis=1)
    same = recovery.update == truth
    read = changed & _by_block(recovery.known & same, block, fill=True).all(axis=1)
    guesses = [played.pool([party]) for party in recovery.parties]
    alone = [_cosine(left_of_sum(one)[0], truth) for one in guesses]
    return Gain(
        parties=recovery.parties,
        victim=recovery.victim,
        positions=len(changed),
        changed=int(changed.sum()),
        read=int(read.sum()),
        named=int(possible.sum()),
        right=int((possible & changed).sum()),
        wrong=int((recovery.known & ~same).sum() + (~recovery.possible & (truth != 0)).sum()),
        cosine=_cosine(recovery.update, truth),
        alone=max(alone),
    )


def held_test(
    played: PlayedRound, held: Held, victim: str, *, generator: np.random.Generator, false_alarm: float
) -> ChanceTest | None:
    """Test what a coalition holds against the truth; if it is uniform, or a ciphertext, either sign is as likely.

    None if there is nothing to find out: the truth is zero, or nothing that is held is as long as it.
    """
    truth = played.updates[victim].astype(np.float64)
    if held.less is not None:
        truth = truth - played.updates[held.less]
    if not truth.any() or not len(held.rows):
        return None
    return signs_test(held.rows, truth, generator=generator, false_alarm=false_alarm)


def _by_block(marks: Mask, block: int, *, fill: bool = False) -> Mask:
    """Return a row of marks per block; the last is filled up."""
    rows = np.full(-(-marks.size // block) * block, fill)
    rows[: marks.size] = marks
    return rows.reshape(-1, block)


def _cosine(guess: NDArray[Any], truth: Integers) -> float:
    a, b = guess.astype(np.float64), truth.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths else 0.0


def _overlap(common: float, left: int, right: int) -> float:
    return common / (left + right - common) if left + right else 1.0
