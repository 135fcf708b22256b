"""Masked sums in two waves: members contribute, and those whose uploads count unmask one sum.

*The guarantee.* Of the n members of a cohort up to c may collude with an aggregator and a network that lie as they
like; t shares open a secret, and a member helps to open sums of q = n - d uploads or more, once a round. If 2t > n + c
and t > c, what they learn of the updates of the others in a round is one sum of one model, over at least
h = ceil((n - c)(1 - d / (t - c))) of them, or nothing (`Parameters`). Up to d members may drop out, in both waves
together. Protocol, theorem and proof, with its symbols and these names, are in ``docs/proofs/masks.md``.

::

    step           the aggregator sends              the member replies
    "contribute"   the model                         `Contribution`: y_u, a box for every other member, hashes
    "unmask"       `UnmaskRequest`: U and the boxes  `Reveal`: shares of b_u for u in U, of h_uv for v outside U

Before the first round every pair of a cohort has agreed on a chain of keys (`pair_chain`), bound to both names and both
public keys; the key generator signs nothing, but all hold its roster, which also fixes the cohorts for the whole run.
The scheme stands on the ideas of K. Bonawitz et al. (CCS 2017), and is registered as ``two-wave-masks``.
"""

import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.shamir import LIMBS, PRIME_16, Limbs, below_prime, deal, recover, uniform_limbs
from blindsight.crypto.wire import Message, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.rng import ByteSource
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.sums.masks import add_streams, agree, colluders, public_half
from blindsight.sums.messages import Call, Key, Names, Reply, Roster, Setup, framed
from blindsight.sums.scheme import (
    CONTRIBUTE,
    Adder,
    MemberPart,
    Opened,
    Resources,
    Scheme,
    SchemeOptions,
    Turn,
    register,
)
from blindsight.sums.statements import line, lines
from blindsight.sums.terms import Digest, Integers, Residues, Terms

UNMASK = "unmask"
STEPS = (CONTRIBUTE, UNMASK)

_SHARE = 2 * LIMBS  # bytes of a secret and of a share
_HASH = 32
_BOX = 28  # bytes of a box around its row: nonce and tag
_FOR_GOOD = 1 << 62


# Parameters


@dataclass(frozen=True)
class Parameters:
    """What holds for a cohort: how many members n and colluders c, threshold t and quorum q; d and h follow.

    >>> found = Parameters(members=50, colluders=17, threshold=40, quorum=40)
    >>> found.drop_outs, found.honest
    (10, 19)
    """

    members: int
    colluders: int
    threshold: int
    quorum: int

    def __post_init__(self) -> None:
        n, c, t, q = self.members, self.colluders, self.threshold, self.quorum
        rules = {
            "2t > n + c": 2 * t > n + c,
            "t > c": t > c,
            "c >= 0": c >= 0,
            "t <= q <= n": t <= q <= n,
        }
        if broken := [rule for rule, holds in rules.items() if not holds]:
            raise InputError(f"masks of n={n}, c={c}, t={t}, q={q} protect nothing: {', '.join(broken)} must hold.")
        if self.honest < 2:
            raise InputError(
                f"masks of n={n}, c={c}, t={t}, q={q} could open a sum of h={self.honest} honest members; it must be 2 "
                "or more."
            )

    @property
    def drop_outs(self) -> int:
        """d: how many may be missing from a sum, in both waves together."""
        return self.members - self.quorum

    @property
    def honest(self) -> int:
        """h: how many members that do not collude are in every sum that is opened, at least."""
        spare = self.threshold - self.colluders
        return max(0, -(-(self.members - self.colluders) * (spare - self.drop_outs) // spare))


def parameters(members: int, least: int = 0) -> Parameters:
    """Return the parameters of a cohort whose sums hold `least` members or more: d is a fifth of them at most.

    >>> [parameters(members).honest for members in (3, 4, 5, 10, 20, 50, 99)]
    [2, 2, 2, 5, 8, 19, 39]
    """
    drop_outs = 1 if members == 4 else members // 5
    threshold = members - drop_outs
    return Parameters(members, colluders(members), threshold, max(threshold, least))


def most_colluders(members: int) -> int:
    """Return the largest c for which the sums of a cohort still hold two honest members, at its usual d.

    >>> [most_colluders(members) for members in (3, 4, 5, 10, 50)]
    [1, 1, 2, 5, 29]
    """
    usual, found = parameters(members), 0
    for lying in range(members - 1):
        try:
            found = replace(usual, colluders=lying).colluders
        except InputError:
            break
    return found


class Spread(NamedTuple):
    """How many members of a run may collude, and with which probability one of its cohorts has more than its c."""

    lying: int
    members: int
    cohorts: int
    most: int
    odds: float


def run_colluders(terms: Terms) -> Spread:
    """Return the most members of a run that may collude if a cohort is to have more than its c once in a million."""
    sizes, members = terms.group_sizes, len(terms.members)
    most = min(cohort_parameters(terms, size).colluders for size in sizes)
    lying, odds = most, 0.0
    while lying < members:
        found = sum(_tail(members, lying + 1, size, cohort_parameters(terms, size).colluders) for size in sizes)
        if found > 1e-6:
            break
        lying, odds = lying + 1, found
    return Spread(lying, members, len(sizes), most, odds)


def _tail(members: int, lying: int, size: int, most: int) -> float:
    """Return how likely a random cohort of this size has more than `most` of the lying members."""
    ways = sum(
        math.comb(lying, k) * math.comb(members - lying, size - k) for k in range(most + 1, min(lying, size) + 1)
    )
    return ways / math.comb(members, size)


def cohort_parameters(terms: Terms, size: int) -> Parameters:
    """Return the parameters of a cohort of this size, which follow from the terms alone."""
    return parameters(size, -(-terms.minimum * size // terms.asked))


class TwoWaveOptions(SchemeOptions, name="masks/two-wave-options.1"):
    """What members of two-wave masks agree on: each contributes to at most `rounds` rounds, numbered 0 ... `rounds`."""

    rounds: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= 1 << 20:
            raise InputError(f"rounds must be in 1 ... {1 << 20}; got {self.rounds}.")


# Messages


class Contribution(Message, name="masks/contribution.1"):
    """y_u, the boxes for the other members in the order of names, and SHA-256 of each secret and of each share.

    `leaves` has those of the shares of the first holder first, in the order of the secrets.
    """

    masked: bytes
    boxes: tuple[bytes, ...]
    commitments: bytes
    leaves: bytes


class UnmaskRequest(Message, name="masks/unmask-request.4"):
    """U; and of each of its members but the receiver the box for it, and SHA-256 of the leaves of that box's row."""

    there: Names
    boxes: tuple[bytes, ...]
    rows: bytes


class Reveal(Message, name="masks/reveal.3"):
    """For every u in U that is not complained of: the share of b_u, then of h_uv for every v outside U.

    `there` is SHA-256 of U, so that a receipt says which set its author has revealed for.
    """

    there: Digest
    shares: bytes
    complaints: Names


class PairState(Message, name="masks/pairs.1"):
    """What a member keeps: before set-up its X25519 key alone, later the chains as they are in round `step`.

    `made` counts its contributions. Between contribution and answer also the model that it contributed to, and its own
    row of shares.
    """

    private: Key = b""
    made: int = 0
    step: int = 0
    chains: bytes = b""
    model: Digest = b""
    row: bytes = b""


# Keys


def pair_chain(private: bytes, roster: Roster, name: str, other: str) -> bytes:
    """Return chain_uv(0) of two members: bound to both names, both public keys and the roster."""
    pair = sorted((name, other))
    keys = [roster.exchange[member] for member in pair]
    info = framed(b"chain", *[member.encode() for member in pair], *keys, roster.digest)
    secret = agree(private, roster.exchange[other])
    return HKDF(algorithm=SHA256(), length=32, salt=b"blindsight masks 4", info=info).derive(secret)


def stepped(chain: bytes, steps: int) -> bytes:
    """Return a chain as it is that many rounds later; from there is no way back."""
    for _ in range(steps):
        chain = _derived(chain, b"step")
    return chain


def pair_seed(chain: bytes, round: int, model: bytes) -> Limbs:
    """Return h_uv of a round and model."""
    found = np.frombuffer(_derived(chain, b"pair", _number(round), model), dtype="<u2")
    return (found % np.uint16(PRIME_16)).astype(np.uint16)


def box_key(chain: bytes, sender: str, receiver: str, round: int, model: bytes) -> bytes:
    """Return the key of the one box that a member makes for another in a round."""
    return _derived(chain, b"box", sender.encode(), receiver.encode(), _number(round), model)


def mask_key(seed: Limbs, roster: Roster, round: int, model: bytes, *names: str) -> bytes:
    """Return the key of the mask of one member or of a pair, which is the stream of AES-256 in counter mode."""
    who = [name.encode() for name in sorted(names)]
    purpose = b"mask" if len(names) == 2 else b"self"
    return _derived(seed.astype("<u2").tobytes(), purpose, *who, _number(round), model, roster.digest)


def _derived(key: bytes, *parts: bytes) -> bytes:
    return hmac.digest(key, framed(*parts), "sha256")


def _number(round: int) -> bytes:
    return round.to_bytes(8, "big")


def leaves_of(row: bytes) -> bytes:
    """Return SHA-256 of each share in a row."""
    hashed = hashlib.sha256
    return b"".join([hashed(row[start : start + _SHARE]).digest() for start in range(0, len(row), _SHARE)])


def _row(data: bytes, size: int) -> Limbs:
    """Return shares or secrets, one in each row; `MessageError` if they are not."""
    if len(data) != _SHARE * size:
        raise MessageError(f"{size} shares take {_SHARE * size} bytes; got {len(data)}.")
    found = np.frombuffer(data, dtype="<u2").astype(np.uint16).reshape(size, LIMBS)
    if not below_prime(found):
        raise MessageError("a share is out of its range.")
    return found


# The member


class TwoWaveMember(MemberPart):
    """Hides its update under masks that cancel in the sum, and helps to lift the others once a round."""

    steps: ClassVar[Names] = STEPS

    @classmethod
    def check(cls, terms: Terms) -> None:
        if terms.sample:
            raise InputError(f"{terms.scheme} asks all members in every round; got sample={terms.sample}. Use 0.")
        for size in set(terms.group_sizes):
            cohort_parameters(terms, size)

    @classmethod
    def needed(cls, terms: Terms) -> int:
        return max(terms.minimum, min(cohort_parameters(terms, size).quorum for size in terms.group_sizes))

    @classmethod
    def prepared(cls, source: ByteSource) -> bytes:
        return encode(PairState(private=source(32)))

    @classmethod
    def exchange_key(cls, secrets: bytes) -> bytes:
        return public_half(decode(secrets, PairState).private)

    def begun(self, secrets: bytes) -> bytes:
        """Return what is kept after set-up: the chains, and the private key no more."""
        private = decode(secrets, PairState).private
        if not private or public_half(private) != self.roster.exchange[self.name]:
            raise MessageError(f"the roster has another exchange key for {self.name!r} than its own.")
        return encode(PairState(chains=b"".join(pair_chain(private, self.roster, self.name, v) for v in self._others)))

    @cached_property
    def _cohort(self) -> Names:
        return self.roster.cohort(self.name)

    @cached_property
    def _others(self) -> Names:
        return tuple(name for name in self._cohort if name != self.name)

    @cached_property
    def _parameters(self) -> Parameters:
        return cohort_parameters(self.terms, len(self._cohort))

    def answer(self, call: Call, integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        kept = decode(secrets, PairState)
        if call.step == CONTRIBUTE:
            body, after = self._contribute(call, self.contribution(integers), kept)
        else:
            body, after = self._unmask(call, kept)
        return body, encode(after)

    def missing(self, call: Call, secrets: bytes) -> int:
        return len(self._cohort) - len(decode(call.body, UnmaskRequest).there) if call.step == UNMASK else 0

    def _chains(self, kept: PairState, steps: int = 0) -> dict[str, bytes]:
        keys = [kept.chains[start : start + 32] for start in range(0, len(kept.chains), 32)]
        return {name: stepped(key, steps) for name, key in zip(self._others, keys, strict=True)}

    def _contribute(self, call: Call, integers: Integers, kept: PairState) -> tuple[bytes, PairState]:
        round, model, source = call.round, call.model, self.resources.source
        rounds = options_of(self.terms).rounds
        if not kept.step <= round <= rounds or kept.made >= rounds:
            raise PrivacyError(
                f"{self.name!r} has contributed to {kept.made} of {rounds} rounds, and goes on with those numbered "
                f"{kept.step} ... {rounds}; got {round}."
            )
        chains = self._chains(kept, round - kept.step)
        seeds = {name: pair_seed(chain, round, model) for name, chain in chains.items()}
        seeds[self.name] = uniform_limbs(LIMBS, source)  # b_u
        secrets = np.stack([seeds[name] for name in self._cohort])
        size = len(self._cohort)
        shares = deal(secrets, threshold=self._parameters.threshold, holders=size, source=source)
        rows = {name: row.astype("<u2").tobytes() for name, row in zip(self._cohort, shares, strict=True)}
        boxes = [
            seal(box_key(chains[name], self.name, name, round, model), rows[name], purpose=b"row", source=source)
            for name in self._others
        ]
        masked = self.terms.residues(integers)
        own = mask_key(seeds[self.name], self.roster, round, model, self.name), True
        pairs = [
            (mask_key(seeds[name], self.roster, round, model, self.name, name), self.name < name)
            for name in self._others
        ]
        add_streams(masked, [own, *pairs])
        body = Contribution(
            masked.tobytes(),
            tuple(boxes),
            leaves_of(secrets.astype("<u2").tobytes()),
            b"".join(leaves_of(row) for row in rows.values()),
        )
        return encode(body), PairState(b"", kept.made + 1, round, b"".join(chains.values()), model, rows[self.name])

    def _unmask(self, call: Call, kept: PairState) -> tuple[bytes, PairState]:
        """Reveal one share of each secret that the sum over U needs; then the round is over and its keys are gone."""
        request = decode(call.body, UnmaskRequest)
        if (kept.step, kept.model) != (call.round, call.model) or not kept.row:
            raise PrivacyError(f"{self.name!r} has not contributed to round {call.round} with this model.")
        there = self._checked(request)
        chains, size = self._chains(kept), len(self._cohort)
        outside = [place for place, name in enumerate(self._cohort) if name not in there]
        others = [name for name in there if name != self.name]
        sent = dict(zip(others, zip(request.boxes, split_hashes(request.rows), strict=True), strict=True))
        shares, complaints = [], []
        for owner in there:
            try:
                row = kept.row if owner == self.name else self._opened(owner, *sent[owner], chains[owner], kept)
                found = _row(row, size)
            except MessageError:
                complaints.append(owner)
            else:
                shares.append(found[[self._cohort.index(owner), *outside]].astype("<u2").tobytes())
        after = b"".join(stepped(chain, 1) for chain in chains.values())
        reveal = Reveal(set_digest(there), b"".join(shares), tuple(complaints))
        return encode(reveal), PairState(b"", kept.made, call.round + 1, after)

    def _checked(self, request: UnmaskRequest) -> Names:
        there = request.there
        if list(there) != sorted(set(there)) or not set(there) <= set(self._cohort):
            raise MessageError("a sum names each of its members once, in order, and members of one cohort alone.")
        if self.name not in there:
            raise MessageError(f"{self.name!r} is asked to unmask a sum without its own upload.")
        if len(there) < self._parameters.quorum:
            raise PrivacyError(
                f"the sum holds {len(there)} members; {self.name!r} unmasks one of {self._parameters.quorum} or more."
            )
        if len(request.boxes) != len(there) - 1 or len(request.rows) != _HASH * (len(there) - 1):
            raise MessageError("a call to unmask has one box and one hash for every other member of the sum.")
        return there

    def _opened(self, owner: str, box: bytes, leaves: bytes, chain: bytes, kept: PairState) -> bytes:
        """Return the row in a box; `MessageError` if it does not open or is not the one its owner signed for."""
        row = unseal(box_key(chain, owner, self.name, kept.step, kept.model), box, purpose=b"row")
        if hashlib.sha256(leaves_of(row)).digest() != leaves:
            raise MessageError(f"the shares in the box of {owner!r} are not those it has signed for.")
        return row


def options_of(terms: Terms) -> TwoWaveOptions:
    if not isinstance(terms.options, TwoWaveOptions):
        raise InputError(f"{terms.scheme} is no scheme of two waves.")
    return terms.options


def set_digest(there: Names) -> bytes:
    return hashlib.sha256(framed(*[name.encode() for name in there])).digest()


def split_hashes(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + _HASH] for start in range(0, len(hashes), _HASH)]


# The aggregator


@dataclass(frozen=True, eq=False)
class _Upload:
    """What is kept of a contribution besides the sum."""

    boxes: Mapping[str, bytes]
    commitments: bytes
    leaves: bytes

    def row(self, holder: int) -> bytes:
        """Return the leaves of all shares of one holder."""
        size = len(self.commitments)
        return self.leaves[holder * size : (holder + 1) * size]

    def signed(self, holder: int, secrets: list[int]) -> bytes:
        """Return the leaves of one holder's shares of these secrets."""
        first = holder * len(self.commitments)
        starts = [first + _HASH * secret for secret in secrets]
        return b"".join([self.leaves[start : start + _HASH] for start in starts])


@dataclass(eq=False, repr=False)
class _Cohort:
    """What the aggregator holds of one cohort."""

    names: Names
    parameters: Parameters
    sum: Residues
    uploads: dict[str, _Upload] = field(default_factory=dict)
    there: Names = ()  # U
    digest: bytes = b""  # of U
    reveals: dict[str, dict[str, Limbs]] = field(default_factory=dict)  # by holder, by owner it does not complain of
    secrets: dict[str, Limbs] | None = None  # b_u, then h_uv for every v outside U, of each u in U
    liars: set[str] = field(default_factory=set)  # owners whose shares fit what they signed and give another secret

    @property
    def outside(self) -> list[int]:
        return [place for place, name in enumerate(self.names) if name not in self.there]

    def holders(self, owner: str) -> list[str]:
        """Return who has revealed shares of an owner's secrets."""
        return [holder for holder in sorted(self.reveals) if owner in self.reveals[holder]]

    @property
    def spoilt(self) -> set[str]:
        """The owners of whose secrets too few shares can be used, though enough members have answered."""
        needed = self.parameters.threshold
        if len(self.reveals) < needed:
            return set()
        return {owner for owner in self.there if len(self.holders(owner)) < needed} | self.liars

    @property
    def condemned(self) -> set[str]:
        """The owners that more members complain of than can be liars."""
        if len(self.reveals) < self.parameters.threshold:
            return set()
        most = self.parameters.members - self.parameters.threshold
        return {owner for owner in self.there if len(self.reveals) - len(self.holders(owner)) > most}


class TwoWaveAdder(Adder):
    """Adds up what it cannot read, passes on boxes, and unmasks the sum of those who were there.

    A cohort with fewer uploads than its quorum is left out of the sum. An owner that spoils a sum sits out the next
    round, then two, then four; one that more than n - t members complain of sits out the run.
    """

    steps: ClassVar[Names] = STEPS

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._cohorts = [
            _Cohort(names, cohort_parameters(self.terms, len(names)), self._zeros()) for names in roster.cohorts
        ]
        self._of = {name: cohort for cohort in self._cohorts for name in cohort.names}
        self._sitting: dict[
            str, tuple[int, int]
        ] = {}  # how often a member spoiled a sum, and the last round it sits out

    def _zeros(self) -> Residues:
        return np.zeros(self.terms.dimension, self.terms.residue_type)

    def follow(self, ahead: Mapping[str, bytes]) -> None:
        self._sitting = {
            name: (int.from_bytes(kept[:8], "big"), int.from_bytes(kept[8:], "big")) for name, kept in ahead.items()
        }

    def carried(self, turn: Turn) -> Mapping[str, bytes]:
        sitting, (round, _) = dict(self._sitting), self.turn
        for cohort in self._cohorts:
            if cohort.there and self._usable(cohort):
                self._recover(cohort)
            for name in cohort.spoilt | cohort.condemned:
                times = self._sitting.get(name, (0, 0))[0]
                sitting[name] = times + 1, _FOR_GOOD if name in cohort.condemned else round + 2 ** min(times, 32)
        return {name: b"".join(_number(number) for number in kept) for name, kept in sitting.items()}

    def asked(self, names: Names) -> Names:
        """Leave out who sits out a round; where too few of a cohort would be left, no member of it does."""
        out = {name for name, (_, until) in self._sitting.items() if self.turn[0] <= until}
        for cohort in self._cohorts:
            if len(set(cohort.names) - out) < cohort.parameters.quorum:
                out -= set(cohort.names)
        return tuple(name for name in names if name not in out)

    def bodies(self, step: str, members: Names) -> Mapping[str, bytes]:
        if step == CONTRIBUTE:
            return super().bodies(step, members)
        return {name: self._request(self._of[name], name) for name in members}

    def _request(self, cohort: _Cohort, receiver: str) -> bytes:
        others, place = [name for name in cohort.there if name != receiver], cohort.names.index(receiver)
        boxes = tuple(cohort.uploads[name].boxes[receiver] for name in others)
        rows = [hashlib.sha256(cohort.uploads[name].row(place)).digest() for name in others]
        return encode(UnmaskRequest(cohort.there, boxes, b"".join(rows)))

    def check(self, step: str, member: str, reply: Reply) -> Any:
        if step == CONTRIBUTE:
            return self._check_upload(self._of[member], member, decode(reply.body, Contribution))
        return self._check_reveal(self._of[member], member, decode(reply.body, Reveal))

    def _check_upload(self, cohort: _Cohort, member: str, body: Contribution) -> tuple[Residues, _Upload]:
        size = len(cohort.names)
        fits = (
            len(body.boxes) == size - 1
            and {len(box) for box in body.boxes} == {_SHARE * size + _BOX}
            and (len(body.commitments), len(body.leaves)) == (_HASH * size, _HASH * size * size)
        )
        if not fits:
            raise MessageError(f"{member!r} sends boxes or hashes for other members than there are.")
        others = [name for name in cohort.names if name != member]
        upload = _Upload(dict(zip(others, body.boxes, strict=True)), body.commitments, body.leaves)
        return self.terms.read_residues(body.masked), upload

    def _check_reveal(self, cohort: _Cohort, member: str, body: Reveal) -> dict[str, Limbs]:
        if body.there != cohort.digest:
            raise MessageError(f"{member!r} reveals shares for another set than it was sent.")
        if not set(body.complaints) <= set(cohort.there) - {member}:
            raise MessageError(f"{member!r} complains of others than it was sent boxes of.")
        owners = [name for name in cohort.there if name not in body.complaints]
        outside, place = cohort.outside, cohort.names.index(member)
        count = 1 + len(outside)
        found = _row(body.shares, len(owners) * count)
        for owner, leaves in zip(owners, split_by(leaves_of(body.shares), _HASH * count), strict=True):
            if leaves != cohort.uploads[owner].signed(place, [cohort.names.index(owner), *outside]):
                raise MessageError(f"{member!r} reveals shares of {owner!r} that it was not given.")
        return dict(zip(owners, found.reshape(len(owners), count, LIMBS), strict=True))

    def add(self, step: str, member: str, checked: Any) -> None:
        cohort = self._of[member]
        if step == CONTRIBUTE:
            residues, cohort.uploads[member] = checked
            cohort.sum += residues
        else:
            cohort.reveals[member] = checked

    def suffices(self, step: str, heard: Names) -> bool:
        if step == CONTRIBUTE:
            return self._enough(self._there(heard))
        return all(
            set(cohort.reveals) == set(cohort.there) or self._usable(cohort) for cohort in self._cohorts if cohort.there
        )

    def _usable(self, cohort: _Cohort) -> bool:
        return len(cohort.reveals) >= cohort.parameters.threshold and not cohort.spoilt

    def _there(self, heard: Names) -> list[Names]:
        """Return U of every cohort: those who contributed, if they are enough."""
        found = [tuple(name for name in cohort.names if name in heard) for cohort in self._cohorts]
        return [
            names if len(names) >= cohort.parameters.quorum else ()
            for names, cohort in zip(found, self._cohorts, strict=True)
        ]

    def _enough(self, there: list[Names]) -> bool:
        return sum(map(len, there)) >= self.terms.minimum

    def close(self, step: str, heard: Names) -> Names:
        if step == UNMASK:
            return self._closed(heard)
        there = self._there(heard)
        if not self._enough(there):
            raise PrivacyError(
                f"round {self.turn[0]} has contributions of {len(heard)} members; each cohort needs "
                f"{min(cohort.parameters.quorum for cohort in self._cohorts)} or more. Wait for more, or begin a new "
                "round."
            )
        for cohort, names in zip(self._cohorts, there, strict=True):
            cohort.there, cohort.digest = names, set_digest(names)
        self.members = tuple(sorted(name for names in there for name in names))
        return self.members

    def may_end(self, step: str, heard: Names) -> bool:
        """Return True if enough have answered, also where owners are known by now to have spoiled the sum."""
        enough = all(len(one.reveals) >= one.parameters.threshold for one in self._cohorts if one.there)
        return self.suffices(step, heard) or (step == UNMASK and enough)

    def _closed(self, heard: Names) -> Names:
        """Recover the secrets of every cohort that can be unmasked; the others are left out, and lost."""
        for cohort in self._cohorts:
            if cohort.there and self._usable(cohort):
                self._recover(cohort)
        opened = self._unmasked
        if not self._enough([cohort.there for cohort in opened]):
            if spoilt := sorted(name for cohort in self._cohorts for name in cohort.spoilt):
                raise PrivacyError(
                    f"round {self.turn[0]} is lost: the shares of {', '.join(spoilt)} cannot be used. Begin the next "
                    "one, which they sit out."
                )
            needed = max(cohort.parameters.threshold for cohort in self._cohorts)
            raise PrivacyError(f"{len(heard)} members have helped to unmask the sum; it takes {needed}.")
        self.members = tuple(sorted(name for cohort in opened for name in cohort.there))
        return heard

    @property
    def _unmasked(self) -> list[_Cohort]:
        return [cohort for cohort in self._cohorts if cohort.secrets is not None and not cohort.liars]

    def _recover(self, cohort: _Cohort) -> None:
        """Put the secrets of a cohort together; mark the owners whose secrets are not those they signed for."""
        if cohort.secrets is not None:
            return
        places = {name: place + 1 for place, name in enumerate(cohort.names)}
        found: dict[str, Limbs] = {}
        chosen: dict[tuple[str, ...], list[str]] = {}
        for owner in cohort.there:
            chosen.setdefault(tuple(cohort.holders(owner)[: cohort.parameters.threshold]), []).append(owner)
        for holders, owners in chosen.items():
            shares = np.stack([np.stack([cohort.reveals[holder][owner] for owner in owners]) for holder in holders])
            secrets = recover(shares, [places[holder] for holder in holders])
            found |= dict(zip(owners, secrets, strict=True))
        for owner, secrets in found.items():
            commitments = split_hashes(cohort.uploads[owner].commitments)
            signed = [commitments[place] for place in (places[owner] - 1, *cohort.outside)]
            if leaves_of(secrets.astype("<u2").tobytes()) != b"".join(signed):
                cohort.liars.add(owner)
        cohort.secrets = found

    def opened(self) -> Opened:
        total, members = self._zeros(), list[str]()
        for cohort in self._unmasked:
            total += cohort.sum
            add_streams(total, self._remaining(cohort))
            members += cohort.there
        try:
            sums = self.terms.read_sums(total.tobytes(), len(members))
        except MessageError:
            raise MessageError("the masks did not cancel: somebody did not follow the protocol.") from None
        return Opened(tuple(sorted(members)), sums)

    def _remaining(self, cohort: _Cohort) -> list[tuple[bytes, bool]]:
        """Return the masks that are left in a sum of uploads, to be taken away."""
        key = (self.roster, self.turn[0], self.model)
        gone = [cohort.names[place] for place in cohort.outside]
        masks = []
        for owner, (own, *pairs) in (cohort.secrets or {}).items():
            masks.append((mask_key(own, *key, owner), False))
            masks += [(mask_key(seed, *key, owner, name), owner > name) for seed, name in zip(pairs, gone, strict=True)]
        return masks


def split_by(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


# What it promises


def _statement(terms: Terms, source: ByteSource) -> PrivacyStatement:
    sizes = terms.group_sizes
    worst = min((cohort_parameters(terms, size) for size in sizes), key=lambda one: one.honest)
    size, several = worst.members, len(sizes) > 1
    spread = (line("waves-run", **run_colluders(terms)._asdict()),) if several else ()
    where = f" of each of {len(sizes)} cohorts" if several else ""
    return PrivacyStatement(
        guarantee="cryptographic",
        mechanism=f"pairwise masks and self-masks in two waves (X25519, HMAC-SHA256, AES-256 in counter mode, Shamir "
        f"shares); t = {worst.threshold} of n = {size} members{where} lift the masks of a sum of q = {worst.quorum} or "
        f"more uploads, each once a round",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "aggregator": "uploads that look uniformly random, "
            f"{'the sum of each cohort' if several else 'the sum'}, who contributed and who dropped out",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts an upload": "uniformly random bytes; one who intercepts every message of a "
            "round computes the sum, as the aggregator does",
        },
        not_protected=lines("exact-sum", "differences", "took-part", "spoilt-waves", "later-rounds", "new-cohorts"),
        assumptions=(
            line("waves-all-in-one", most=most_colluders(size), size=size),
            line("waves-aggregator", lying=worst.colluders, size=size, honest=worst.honest),
            *spread,
            line("waves-drop-outs", drop_outs=worst.drop_outs, size=size),
            line("masks-threshold", needed=worst.threshold),
            *lines("waves-absences", "waves-generator", "masks-members", "waves-hardness"),
        ),
    )


TWO_WAVES = register(
    Scheme(
        name="two-wave-masks",
        member=TwoWaveMember,
        adder=TwoWaveAdder,
        statement=_statement,
        options=TwoWaveOptions,
        threshold=True,
        cohorts=True,
    )
)
