"""Coalitions that DPHE has to fear, what each reads, and whether its statement admits it (Yonetani et al., ICCV 2017).

Section 2.5 assumes that aggregator, key generator and users do not collude (supplement, Definition 1). If they do:

| coalition | dphe, block-dphe |
| --- | --- |
| all members but one | the update, where it is released |
| aggregator and key generator | the update |
| aggregator and one member | blocks sent; weights nobody else sent |

They follow the protocol and talk to each other. A coalition that reads what the statement says it would read gives the
verdict *as stated*. One that reads what the statement does not speak of *refutes* it, and one that reads nothing does
*not refute* it.

*A round* of real messages is played between parties made for it (`play`, of any scheme). A party holds what it
received, set-up included, and what it drew itself: its update, and the secrets that never leave it. A coalition is the
`PlayedRound` of what its parties hold, and nothing else. What the key generator *sent* it knows as well: with it come
all set-up messages. *Every coalition* has the sum, less what its own members put into it (`from_sum`). Where one member
is left, that is its update; where several are, the best guess is an equal share of it.

*Aggregator and one member.* The aggregator undoes every phi^(n), any member knows phi (section 2.4): together they read
which blocks each member sent, padding included. A block that the victim did not send is zero. One that nobody else
outside the coalition sent holds, less the coalition's own weights, exactly the victim's, in the plain sum; unless it
was withheld. Of blocks that several others sent they know the sum. Encryption keeps them from more: it is randomised,
so a guess at a plaintext cannot be checked. *All members but one* have the sum of the last one's weights, which are its
weights, where they were released. Members are told where: a block that was withheld though a single contributor was
missing, the last member did not change. *Aggregator and key generator* (or whoever has a contribution): it is simply
decrypted.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Verdict, exactly, rate
from blindsight.audit.recovery import ChanceTest, cosine, signs_test
from blindsight.audit.views import author, is_message
from blindsight.crypto import bfv, paillier
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.errors import UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.statement import find_line
from blindsight.sums.dphe import CheckedShards, Layout, SparseAdder, layout_of
from blindsight.sums.engine import Parts
from blindsight.sums.masks import RoundSecrets
from blindsight.sums.messages import Receipt, Reply, Setup
from blindsight.sums.scheme import CONTRIBUTE, SCHEMES, Resources
from blindsight.sums.session import RoundResult, Session, make_terms
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Integers

Mask = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)
ROUND = 0
TURN = ROUND, 0


@dataclass(frozen=True, eq=False, repr=False)
class PlayedRound:
    """What `parties` of one round hold together: at first all of them, hence the truth about every member.

    `updates` are encoded, `views` are what each party received, `secrets` what members drew and were handed in a masked
    round. `session` and `result` are what everybody knows: terms, public keys, the statement, the sum.
    """

    parties: tuple[str, ...]
    session: Session
    result: RoundResult
    updates: Mapping[str, Integers]
    views: Mapping[str, list[bytes]]
    key: PrivateKey | SecretKey | None
    secrets: Mapping[str, RoundSecrets]

    def pool(self, parties: Iterable[str]) -> "PlayedRound":
        """Return what a coalition of these parties holds."""
        chosen = tuple(dict.fromkeys(parties))
        for party in chosen:
            if party not in self.parties:
                raise UnknownNameError("party", party, self.parties)

        def of(held: Mapping[str, Any]) -> dict[str, Any]:
            return {party: held[party] for party in chosen if party in held}

        key = self.key if KEY_GENERATOR in chosen else None
        mine = (of(self.updates), of(self.views), key, of(self.secrets))
        return PlayedRound(chosen, self.session, self.result, *mine)

    @property
    def rest(self) -> tuple[str, ...]:
        """Who is in the sum and not in the coalition."""
        return tuple(member for member in self.result.contributors if member not in self.parties)

    def replies(self, step: str = CONTRIBUTE) -> dict[str, bytes]:
        """Return the bodies of the members' replies to a step, which the aggregator received."""
        found: dict[str, bytes] = {}
        for message in self.views[AGGREGATOR]:
            member = author(message)
            if member is not None:
                reply = decode(message, Reply)
                if decode(decode(reply.receipt, Signed).body, Receipt).step == step:
                    found[member] = reply.body
        return found

    def setups(self, *parties: str) -> list[Setup]:
        """Return what these parties were given at set-up."""
        return [decode(one, Setup) for party in parties for one in self.views[party] if is_message(one, Setup)]


def play(scheme: str, updates: Mapping[str, ArrayLike], *, fraction_bits: int = 20, **options: Any) -> PlayedRound:
    """Play one round of a scheme with these members' updates and keep all of it; `options` are those of `make_terms`.

    All secrets are drawn for this round and protect nobody: the updates are the caller's own.
    """
    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
    vectors = {member: np.asarray(update, dtype=np.float64) for member, update in updates.items()}
    dimension = max((vector.size for vector in vectors.values()), default=0)
    fixed: dict[str, Any] = {"run": "audit", "dimension": dimension, "fraction_bits": fraction_bits, "absences": -1}
    terms = make_terms(scheme, members=tuple(vectors), **fixed, **{"minimum_per_position": 1} | options)
    views: defaultdict[str, list[bytes]] = defaultdict(list)
    secrets: dict[str, RoundSecrets] = {}
    key: PrivateKey | SecretKey | None = None
    if terms.sparse:
        chosen = layout_of(terms).options
        key = paillier.generate_keys(chosen.key_bits, insecure=chosen.insecure)
    elif terms.keyed:
        key = bfv.generate_keys(max_sum=terms.max_integer * len(terms.members))

    def transit(sender: str, receiver: str, kind: str, parts: Parts) -> list[Parts]:
        if terms.scheme == "masks" and kind == CONTRIBUTE and receiver == AGGREGATOR:
            secrets[sender] = decode(session.members[sender]._state.secrets, RoundSecrets)
        return [parts]

    session = Session(terms, record=lambda party, message: views[party].append(message), transit=transit, key=key)
    result = session.round(vectors, ROUND)
    views[KEY_GENERATOR] += [view[0] for view in views.values() if view]  # what it sent
    truth = {member: terms.integers(vector) for member, vector in vectors.items()}
    parties = (*terms.members, AGGREGATOR, KEY_GENERATOR)
    return PlayedRound(parties, session, result, truth, dict(views), key, secrets)


class Account(NamedTuple):
    """A coalition's account of one member's update, weight by weight.

    `update` is its best guess (as encoded integers, fractions where it shares out a sum), `known` marks the weights it
    is certain of, `possible` those that may be other than zero, as far as it can tell.
    """

    update: NDArray[np.float64]
    known: Mask
    possible: Mask


class Held(NamedTuple):
    """What a coalition holds of one member's update where it should be worth nothing: guesses, a row each.

    They are of the update, or of how it differs from that of the member they are taken `less`.
    """

    rows: NDArray[np.float64]
    less: str | None = None


@dataclass(frozen=True)
class Gain:
    """A coalition's account compared with the truth, in `positions`: weights, or blocks where they share a ciphertext.

    Of the positions that the victim `changed`, the weights of `read` are known to the coalition. It cannot rule out
    `named` positions, of which `right` were changed. `wrong` counts what it was certain of and is not so. `cosine` is
    that of guess and truth, `alone` that of the best guess of its parties if they did not talk to each other.
    """

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


class Coalition(NamedTuple):
    """A kind of coalition: its parties but for the victim's, what they do, and which lines of a statement admit it."""

    kind: str
    helpers: Callable[[str], list[str]]
    attack: "Callable[[PlayedRound, str], Account | Held]"
    admitted: tuple[str, ...] = ()


def from_sum(coalition: PlayedRound, victim: str) -> Account:
    """Return what the sum tells about a member in it, after its parties have subtracted their own part."""
    left, released = left_of_sum(coalition)
    known = released if coalition.rest == (victim,) else np.zeros_like(released)
    return Account(left / len(coalition.rest), known, (left != 0) | ~released)


def left_of_sum(coalition: PlayedRound) -> tuple[Integers, Mask]:
    """Return the sum of everybody else's weights, and which of them were released: members know, others do not."""
    released = np.ones(coalition.result.total.size, dtype=np.bool_)
    if coalition.updates:
        released[coalition.result.withheld] = False
    left = coalition.result.total.copy()
    for own in coalition.updates.values():
        left -= np.where(released, own, 0)
    return left, released


def gain(played: PlayedRound, parties: Sequence[str], victim: str, account: Account) -> Gain:
    """Compare an account with the truth."""
    truth, block = played.updates[victim], played.session.block
    changed: Mask = np.any(_by_block(truth != 0, block), axis=1)
    possible: Mask = np.any(_by_block(account.possible, block), axis=1)
    same = account.update == truth
    read = changed & _by_block(account.known & same, block, fill=True).all(axis=1)
    return Gain(
        victim=victim,
        positions=len(changed),
        changed=int(changed.sum()),
        read=int(read.sum()),
        named=int(possible.sum()),
        right=int((possible & changed).sum()),
        wrong=int((account.known & ~same).sum() + (~account.possible & (truth != 0)).sum()),
        cosine=cosine(account.update, truth),
        alone=max(cosine(left_of_sum(played.pool([party]))[0], truth) for party in parties),
    )


def _by_block(marks: Mask, block: int, *, fill: bool = False) -> Mask:
    """Return a row of marks per block; the last is filled up."""
    rows = np.full(-(-marks.size // block) * block, fill)
    rows[: marks.size] = marks
    return rows.reshape(-1, block)


def _overlap(common: float, left: int, right: int) -> float:
    return common / (left + right - common) if left + right else 1.0


# Sparse schemes


def sparse_with_a_member(coalition: PlayedRound, victim: str) -> Account:
    """Return what the aggregator and members of a sparse round learn about another one, from places and sum."""
    terms, guess = coalition.session.terms, from_sum(coalition, victim)
    layout = layout_of(terms)
    sent = {member: np.zeros(layout.blocks, dtype=np.bool_) for member in terms.members}
    for member, blocks, _ in _plain_shards(coalition):
        sent[member][blocks] = True
    senders: Integers = np.sum([sent[member] for member in coalition.rest], axis=0, dtype=np.int64)
    left, released = left_of_sum(coalition)
    mine = _weights(sent[victim], layout)
    alone = _weights(senders == 1, layout) & released
    update = np.where(mine, left / np.maximum(_weights(senders, layout), 1), 0.0)
    known = ~mine | alone | guess.known
    return Account(update, known, mine & ~(known & (update == 0)))


def sparse_all_but_one(coalition: PlayedRound, victim: str) -> Account:
    """Return what all other members learn about one, from the sum and from what of it was withheld."""
    layout, found = layout_of(coalition.session.terms), from_sum(coalition, victim)
    if not layout.counting:
        return found
    changes = [_by_block(own != 0, layout.slots).any(axis=1) for own in coalition.updates.values()]
    missing_one = np.sum(changes, axis=0, dtype=np.int64) == layout.minimum_per_position - 1
    zero = _weights(missing_one, layout) & ~left_of_sum(coalition)[1]
    return found._replace(known=found.known | zero, possible=found.possible & ~zero)


def sparse_with_the_key(coalition: PlayedRound, victim: str) -> Account:
    """Return a member's update, decrypted from what the aggregator received."""
    layout, key = layout_of(coalition.session.terms), coalition.key
    assert isinstance(key, PrivateKey)
    rows = np.zeros((layout.blocks, layout.slots), dtype=np.int64)
    for member, blocks, shards in _plain_shards(coalition):
        if member == victim:
            numbers = [number for ciphertexts in shards.ciphertexts for number in key.decrypt(ciphertexts)]
            slots = layout.packing.unpack(numbers, blocks.size * layout.packing.slots)
            np.add.at(rows, blocks, slots.reshape(blocks.size, -1)[:, : layout.slots])
    return certain(rows.ravel()[: layout.terms.dimension])


def _plain_shards(coalition: PlayedRound) -> Iterator[tuple[str, Integers, CheckedShards]]:
    """Yield every contribution, and its blocks in plain order: phi^(n) is undone by one party, phi by another."""
    roster = coalition.session.aggregator.roster
    adder = SparseAdder(roster, coalition.setups(AGGREGATOR)[0], TURN, Resources())
    (secret,) = {setup.shared for setup in coalition.setups(*coalition.views) if setup.shared}
    phi = layout_of(roster.terms).permutations(roster).shared(secret, ROUND)
    for member, body in coalition.replies().items():
        shards = adder.check(CONTRIBUTE, member, Reply(b"", body))
        yield member, phi.backward(np.concatenate(shards.places)), shards


def _weights(blocks: NDArray[T], layout: Layout) -> NDArray[T]:
    """Return what is said of each block, for each of its weights."""
    return np.asarray(np.repeat(blocks, layout.slots)[: layout.terms.dimension])


def certain(update: Integers) -> Account:
    return Account(update.astype(np.float64), np.ones(update.size, dtype=np.bool_), update != 0)


def others(played: PlayedRound, victim: str) -> list[str]:
    """Return all members but one: first those of its group."""
    members = played.result.contributors
    session = played.session
    groups = session.aggregator.roster.cohorts if session.terms.traits.cohorts else session.terms.groups(ROUND)
    (group,) = (names for names in groups if victim in names)
    mates = [member for member in members if member in group and member != victim]
    return mates + [member for member in members if member not in group]


def sparse_plans(played: PlayedRound) -> tuple[Coalition, ...]:
    """Return every kind of coalition in a round of DPHE."""
    return (
        Coalition("all members but one", partial(others, played), sparse_all_but_one, ("honest-members",)),
        Coalition(
            "aggregator and key generator",
            lambda _: [AGGREGATOR, KEY_GENERATOR],
            sparse_with_the_key,
            ("generator-apart",),
        ),
        Coalition(
            WITH_A_MEMBER,
            lambda victim: [AGGREGATOR, others(played, victim)[0]],
            sparse_with_a_member,
            ("shared-permutation",),
        ),
    )


WITH_A_MEMBER = "aggregator and one member"


@dataclass(frozen=True)
class CoalitionResult:
    """What one kind of coalition found out about every member in turn, in a round of one scheme."""

    kind: str
    scheme: str
    admitted: str | None
    """The sentence of the scheme's statement that speaks of this coalition."""
    gains: tuple[Gain, ...] = ()
    tests: tuple[ChanceTest, ...] = ()
    """Of what a coalition holds that should be worth nothing, against each member's update."""


def attack_round(
    played: PlayedRound,
    plans: Sequence[Coalition],
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[CoalitionResult, ...]:
    """Let every kind of coalition attack every member of a round.

    `false_alarm` is the probability with which a coalition that holds nothing of worth is said to hold something.
    """
    statement, members = played.session.statement(), played.result.contributors
    generator, results = science(random_state), list[CoalitionResult]()
    for done, (kind, helpers, attack, lines) in enumerate(plans):
        progress("coalitions", done, len(plans))
        gains, tests = list[Gain](), list[ChanceTest]()
        for victim in members:
            coalition = played.pool(helpers(victim))
            found = attack(coalition, victim)
            if isinstance(found, Account):
                gains.append(gain(played, coalition.parties, victim, found))
                continue
            truth = played.updates[victim] - (0 if found.less is None else played.updates[found.less])
            if truth.any() and len(found.rows):  # else there is nothing to find out
                alarm = false_alarm / len(members)
                tests.append(signs_test(found.rows, truth.astype(np.float64), generator=generator, false_alarm=alarm))
        admitted = find_line((*statement.assumptions, *statement.not_protected), *lines)
        results.append(CoalitionResult(kind, played.session.scheme, admitted, tuple(gains), tuple(tests)))
    progress("coalitions", len(plans), len(plans))
    return tuple(results)


def findings(results: Sequence[CoalitionResult], *, confidence: float = 0.95) -> tuple[Finding, ...]:
    """Return what was read, and for coalitions that read places where updates lie: one row each."""
    held = [_held_finding(result) for result in results if result.tests]
    read = [_weights_finding(result, confidence) for result in results if result.gains]
    located = [
        _places_finding(result, confidence)
        for result in results
        if SCHEMES[result.scheme].sparse and result.kind == WITH_A_MEMBER
    ]
    return (*read, *located, *held)


def _weights_finding(result: CoalitionResult, confidence: float) -> Finding:
    """Count what is read; of a coalition that is certain of what is not so, the attack has failed, not the claim."""
    read, changed, wrong = (sum(getattr(one, name) for one in result.gains) for name in ("read", "changed", "wrong"))
    verdict: Verdict = "undecided" if wrong else "not refuted"
    if read:
        verdict = "refuted" if result.admitted is None else "as stated"
    return Finding(
        claim=f"{result.scheme}: nobody but a member knows its update",
        source="its statement" if result.admitted else "its statement, which makes no exception",
        proven=f"except: {result.admitted}" if result.admitted else "under its assumptions",
        measure="share of the positions a member changed whose weights are read exactly",
        measured=rate(read, changed, confidence=confidence),
        verdict=verdict,
        attack=result.kind,
        details=_details(result),
    )


def _held_finding(result: CoalitionResult) -> Finding:
    worst = min(result.tests, key=lambda test: (test.found_nothing, test.p_value, -test.score))
    return Finding(
        claim=f"{result.scheme}: nobody but a member knows its update",
        source="its statement",
        proven="masks and ciphertexts tell nothing of what they hide",
        measure="|cosine| of what is left in their hands with a member's update, at worst of "
        f"{len(result.tests)} members (chance exceeds {worst.threshold:.2f} in {worst.false_alarm:.2%} of the cases)",
        measured=exactly(worst.score),  # of this round: nothing to be unsure of
        verdict="at chance" if worst.found_nothing else "refuted",
        attack=result.kind,
        details={"victims": len(result.tests), "p_value": worst.p_value, "false_alarm": worst.false_alarm},
    )


def _places_finding(result: CoalitionResult, confidence: float) -> Finding:
    right, named, changed, all_positions = (
        sum(getattr(one, name) for one in result.gains) for name in ("right", "named", "changed", "positions")
    )
    measured, chance = rate(right, named, confidence=confidence), changed / all_positions
    found: Verdict = "as stated" if result.admitted else "refuted"
    return Finding(
        claim=f"{result.scheme}: nobody but a member knows where its update is not zero",
        source="its statement",
        proven=f"except: {result.admitted}",
        measure=f"share of the positions named as changed that are (chance: {chance:.3g}); "
        f"{right} of {changed} changed ones are named",
        measured=measured,
        verdict=found if measured.low > chance else "at chance",
        attack=result.kind,
        details=_details(result),
    )


def _details(result: CoalitionResult) -> dict[str, float]:
    def mean(name: str) -> float:
        return sum(float(getattr(one, name)) for one in result.gains) / len(result.gains)

    return {
        "victims": len(result.gains),
        "cosine": mean("cosine"),
        "cosine of the parties' guesses without each other": mean("alone"),
        "overlap of supports": mean("overlap"),
        "overlap by chance": mean("chance_overlap"),
    }
