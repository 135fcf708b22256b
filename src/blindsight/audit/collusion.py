"""Which coalitions a scheme has to fear, what each of them reads, and whether the scheme's statement admits it.

| coalition | plain | dphe, block-dphe | bfv | masks |
| --- | --- | --- | --- | --- |
| all members but one | the update | the update, where it is released | the update | the update |
| aggregator and key generator | - | the update | the update | - |
| aggregator and one member | - | blocks sent; weights nobody else sent | ciphertexts, and the sum | - |
| aggregator and as many members as the threshold | - | - | - | the update |
| aggregator and one member fewer | - | - | - | a masked upload, and the sum |

They follow the protocol and talk to each other; `hostile` has those who do not follow it. A coalition that reads what
the statement says it would read gives the verdict *as stated*. One that reads what the statement does not speak of
*refutes* it, and one that reads nothing does *not refute* it. Ciphertexts and masked uploads are compared with the
updates: what tells more of them than chance *refutes* the statement.

*A round* of real messages is played between parties made for the audit (`play`). A party holds what it received,
set-up included, and what it drew itself: its update, and the secrets that never leave it. A coalition is the
`PlayedRound` of what its parties hold, and nothing else. What the key generator *sent* it knows as well: with it come
all set-up messages. Runs of real parties cannot be audited so, because nobody records their secrets; play their updates
again (`learn.recording` keeps them). *Every coalition* has the sum, less what its own members put into it (`from_sum`).
Where one member is left, that is its update; where several are, the best guess is an equal share of it.

*DPHE: aggregator and one member.* The aggregator undoes every phi^(n), any member knows phi: together they read which
blocks each member sent, padding included. A block that the victim did not send is zero. One that nobody else outside
the coalition sent holds, less the coalition's own weights, exactly the victim's, in the plain sum; unless it was
withheld. Of blocks that several others sent they know the sum. Encryption keeps them from more: it is randomised, so a
guess at a plaintext cannot be checked. *All members but one* have the sum of the last one's weights, which are its
weights, where they were released. Members are told where: a block that was withheld though a single contributor was
missing, the last member did not change. *Aggregator and key generator* (or whoever has a contribution): it is simply
decrypted.

*Masks.* An upload wears its own mask and one for every other member (`sums.masks`). In every round the aggregator is
given the seeds of the survivors' own masks; that is how it lifts them from the sum. A member knows the mask it shares
with the victim. The masks that the victim shares with honest members come off only with its mask key, of which every
member holds a share: the threshold is how many it takes. One fewer, and a uniformly random mask remains.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Verdict, exactly, rate
from blindsight.audit.leakage.recovery import ChanceTest, cosine, signs_test
from blindsight.audit.leakage.schemes import author, differences, is_message, owner_payloads
from blindsight.crypto import bfv, paillier
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey
from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.errors import UnknownNameError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.statement import find_line
from blindsight.sums import masks
from blindsight.sums.dphe import CheckedShards, Layout, SparseAdder, layout_of
from blindsight.sums.engine import Parts
from blindsight.sums.masks import UNMASK, Peers, Reveal, RoundSecrets, agree, read_directory
from blindsight.sums.messages import Receipt, Reply, Roster, Setup
from blindsight.sums.scheme import CONTRIBUTE, SCHEMES, Resources, Turn
from blindsight.sums.session import RoundResult, Session, make_terms
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Integers, threshold

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
        if terms.traits.threshold and kind == CONTRIBUTE and receiver == AGGREGATOR:
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
    return _certain(rows.ravel()[: layout.terms.dimension])


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


def _certain(update: Integers) -> Account:
    return Account(update.astype(np.float64), np.ones(update.size, dtype=np.bool_), update != 0)


# BFV


def lattice_with_the_key(coalition: PlayedRound, victim: str) -> Account:
    """Return a member's update, decrypted with the key generator's key from what the aggregator received."""
    key = coalition.key
    assert isinstance(key, SecretKey)
    update = key.decrypt(key.public.read_vector(coalition.replies()[victim]))
    return _certain(update[: coalition.session.terms.dimension])


def lattice_with_a_member(coalition: PlayedRound, victim: str) -> Held:
    """Return how a member's ciphertexts differ from those of another one outside the coalition, read as numbers."""
    other = next(member for member in coalition.rest if member != victim)
    mine, others = (owner_payloads(coalition.views[AGGREGATOR], member) for member in (victim, other))
    return Held(differences(mine, others, coalition.session.terms.dimension), other)


# Masks


def masked_with_members(coalition: PlayedRound, victim: str) -> Account:
    """Return a member's update, which enough members and the aggregator strip bare."""
    return _certain(stripped_upload(coalition, victim)[0])


def masked_with_too_few(coalition: PlayedRound, victim: str) -> Held:
    """Return what is left of a member's upload when too few have lifted what they can; uniform, if masks are."""
    return Held(stripped_upload(coalition, victim)[0][None].astype(np.float64))


def stripped_upload(coalition: PlayedRound, victim: str) -> tuple[Integers, tuple[str, ...]]:
    """Lift every mask of a member's upload that aggregator and members can lift together.

    Return what is left of it, and the members whose masks it still wears.
    """
    terms, roster = coalition.session.terms, coalition.session.aggregator.roster
    group = next(names for names in terms.groups(ROUND) if victim in names)
    told = next(kept for kept in coalition.secrets.values() if victim in kept.owners)
    peers = read_directory(roster, told.directory, TURN, b"", group)
    reveals = {name: decode(body, Reveal).shares for name, body in coalition.replies(UNMASK).items() if name in group}
    seed = joined(
        peers, {name: dict(zip(told.owners, shares, strict=True))[victim] for name, shares in reveals.items()}
    )
    held = {
        name: dict(zip(kept.owners, kept.mask_key_shares, strict=True))[victim]
        for name, kept in coalition.secrets.items()
        if victim in kept.owners
    }
    key = joined(peers, held)
    pairs: dict[str, bytes] = {}
    for other in told.owners:
        if other != victim and key is not None:
            pairs[other] = agree(key, peers.keys[other].mask_key)
        elif other in coalition.secrets:
            pairs[other] = agree(coalition.secrets[other].mask, peers.keys[victim].mask_key)
    assert seed is not None  # the aggregator had enough shares of it: it has opened the sum
    bare = bared(roster, TURN, coalition.replies()[victim], victim, seed, pairs)
    return bare, tuple(name for name in told.owners if name != victim and name not in pairs)


def joined(peers: Peers, shares: Mapping[str, bytes]) -> bytes | None:
    """Return the secret that shares by holder give; None if they are too few."""
    chosen = {peers.number(holder): share for holder, share in sorted(shares.items())[: peers.threshold]}
    return Reconstruction(list(chosen)).secret(chosen) if len(chosen) == peers.threshold else None


def bared(roster: Roster, turn: Turn, upload: bytes, victim: str, seed: bytes, pairs: Mapping[str, bytes]) -> Integers:
    """Return a member's upload without its own mask and those it shares with others, by the secret behind each."""
    residues = roster.terms.read_residues(upload).copy()
    worn = [(seed, masks.mask_context(b"self", roster, turn, (victim,)), False)]
    for other, secret in pairs.items():
        worn.append((secret, masks.mask_context(b"pair", roster, turn, (victim, other)), victim > other))
    masks.add_masks(residues, worn)
    return residues.view(residues.dtype.str.replace("u", "i")).astype(np.int64)


# Every coalition of a scheme

Kind = Literal[
    "all members but one",
    "aggregator and key generator",
    "aggregator and one member",
    "aggregator and as many members as the threshold",
    "aggregator and one member fewer than the threshold",
]

_ADMITTED: dict[Kind, tuple[str, ...]] = {
    "all members but one": ("honest-members", "masks-threshold", "every-update"),
    "aggregator and key generator": ("generator-apart",),
    "aggregator and one member": ("shared-permutation",),
    "aggregator and as many members as the threshold": ("masks-threshold",),
    "aggregator and one member fewer than the threshold": (),
}
"""The lines of a statement (`sums.statements`) that admit that a coalition reads something."""


@dataclass(frozen=True)
class CoalitionResult:
    """What one kind of coalition found out about every member in turn, in a round of one scheme."""

    kind: Kind
    scheme: str
    admitted: str | None
    """The sentence of the scheme's statement that speaks of this coalition."""
    gains: tuple[Gain, ...] = ()
    tests: tuple[ChanceTest, ...] = ()
    """Of what a coalition holds that should be worth nothing, against each member's update."""


def attack_round(
    played: PlayedRound,
    *,
    false_alarm: float = 0.01,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[CoalitionResult, ...]:
    """Let every kind of coalition that its scheme has attack every member of a round.

    `false_alarm` is the probability with which a coalition that holds nothing of worth is said to hold something.
    """
    statement, plans, members = played.session.statement(), list(_plans(played)), played.result.contributors
    generator, results = science(random_state), list[CoalitionResult]()
    for done, (kind, helpers, attack) in enumerate(plans):
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
        admitted = find_line((*statement.assumptions, *statement.not_protected), *_ADMITTED[kind])
        results.append(CoalitionResult(kind, played.session.scheme, admitted, tuple(gains), tuple(tests)))
    progress("coalitions", len(plans), len(plans))
    return tuple(results)


Plan = tuple[Kind, Callable[[str], list[str]], Callable[[PlayedRound, str], Account | Held]]


def _plans(played: PlayedRound) -> Iterator[Plan]:
    """Yield kinds of coalitions: whom they have, given the victim, and what they do."""
    terms, members = played.session.terms, played.result.contributors

    def others(victim: str) -> list[str]:
        (group,) = (names for names in terms.groups(ROUND) if victim in names)
        mates = [member for member in members if member in group and member != victim]
        return mates + [member for member in members if member not in group]

    yield "all members but one", others, sparse_all_but_one if terms.sparse else from_sum
    if terms.keyed:
        with_the_key, with_a_member = (
            (sparse_with_the_key, sparse_with_a_member)
            if terms.sparse
            else (lattice_with_the_key, lattice_with_a_member)
        )
        yield "aggregator and key generator", lambda _: [AGGREGATOR, KEY_GENERATOR], with_the_key
        yield "aggregator and one member", lambda victim: [AGGREGATOR, others(victim)[0]], with_a_member
    elif terms.traits.threshold:
        size = len(terms.groups(ROUND)[0])
        needed = threshold(size)
        few = min(needed - 1, size - 2)  # of three members, one: two are all but one
        enough: Kind = "aggregator and as many members as the threshold"
        fewer: Kind = "aggregator and one member fewer than the threshold"
        yield enough, lambda victim: [AGGREGATOR, *others(victim)[:needed]], masked_with_members
        yield fewer, lambda victim: [AGGREGATOR, *others(victim)[:few]], masked_with_too_few


def findings(results: Sequence[CoalitionResult], *, confidence: float = 0.95) -> tuple[Finding, ...]:
    """Return what was read, and for coalitions that read places where updates lie: one row each."""
    held = [_held_finding(result) for result in results if result.tests]
    read = [_weights_finding(result, confidence) for result in results if result.gains]
    located = [
        _places_finding(result, confidence)
        for result in results
        if SCHEMES[result.scheme].sparse and result.kind == "aggregator and one member"
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
