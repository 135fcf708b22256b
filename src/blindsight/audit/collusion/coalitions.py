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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.collusion.played import (
    ROUND,
    Coalition,
    Gain,
    Held,
    Mask,
    PlayedRound,
    Recovery,
    from_sum,
    gain,
    held_test,
    left_of_sum,
)
from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.audit.leakage.recovery import RECOVERED, ChanceTest
from blindsight.audit.leakage.schemes import differences, owner_payloads
from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.paillier import PrivateKey
from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.wire import decode
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.statement import PrivacyStatement
from blindsight.sums import masks
from blindsight.sums.dphe import CheckedShards, Permutations, SparseAdder
from blindsight.sums.masks import UNMASK, Peers, Reveal, agree, mask_context, read_directory
from blindsight.sums.messages import Reply, Roster
from blindsight.sums.scheme import CONTRIBUTE, Resources, Turn
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, SPARSE_SCHEMES, Integers, Terms, threshold

T = TypeVar("T", bound=np.generic)

TURN = ROUND, 0

Kind = Literal[
    "all members but one",
    "aggregator and key generator",
    "aggregator and one member",
    "aggregator and as many members as the threshold",
    "aggregator and one member fewer than the threshold",
]

_ADMITTED: dict[Kind, tuple[str, ...]] = {
    "all members but one": ("members but one read", "every member's update, and all"),
    "aggregator and key generator": ("with anyone who has a contribution",),
    "aggregator and one member": ("no collusion of the aggregator with a member",),
    "aggregator and as many members as the threshold": ("fewer than t = ",),
    "aggregator and one member fewer than the threshold": (),
}
"""The words by which a statement admits that a coalition reads something."""


# Sparse schemes


def sparse_with_a_member(coalition: Coalition, victim: str) -> Recovery:
    """Return what the aggregator and members of a sparse round learn about another one, from places and sum."""
    terms, guess = _sparse(coalition), from_sum(coalition, victim)
    sent = {member: np.zeros(terms.blocks, dtype=np.bool_) for member in terms.members}
    for member, blocks, _ in _plain_shards(coalition):
        sent[member][blocks] = True
    senders: Integers = np.sum([sent[member] for member in coalition.rest], axis=0, dtype=np.int64)
    left, released = left_of_sum(coalition)
    mine = _weights(sent[victim], terms)
    alone = _weights(senders == 1, terms) & released
    update = np.where(mine, left / np.maximum(_weights(senders, terms), 1), 0.0)
    known = ~mine | alone | guess.known
    return Recovery(coalition.parties, victim, update, known, mine & ~(known & (update == 0)))


def sparse_all_but_one(coalition: Coalition, victim: str) -> Recovery:
    """Return what all other members learn about one, from the sum and from what of it was withheld."""
    terms, found = _sparse(coalition), from_sum(coalition, victim)
    if not terms.counting:
        return found
    changes = [_changed(own, terms) for own in coalition.updates.values()]
    missing_one = np.sum(changes, axis=0, dtype=np.int64) == terms.minimum_per_position - 1
    zero = _weights(missing_one, terms) & ~left_of_sum(coalition)[1]
    return replace(found, known=found.known | zero, possible=found.possible & ~zero)


def sparse_with_the_key(coalition: Coalition, victim: str) -> Recovery:
    """Return a member's update, decrypted from what the aggregator received."""
    terms, key = _sparse(coalition), coalition.key
    if not isinstance(key, PrivateKey):
        raise InputError(f"nobody in the coalition of {', '.join(coalition.parties)} can decrypt.")
    rows = np.zeros((terms.blocks, terms.slots), dtype=np.int64)
    for member, blocks, shards in _plain_shards(coalition):
        if member == victim:
            numbers = [number for ciphertexts in shards.ciphertexts for number in key.decrypt(ciphertexts)]
            slots = terms.packing.unpack(numbers, blocks.size * terms.packing.slots)
            np.add.at(rows, blocks, slots.reshape(blocks.size, -1)[:, : terms.slots])
    return _certain(coalition, victim, rows.ravel()[: terms.dimension])


def _plain_shards(coalition: Coalition) -> Iterator[tuple[str, Integers, CheckedShards]]:
    """Yield every contribution, and its blocks in plain order: phi^(n) is undone by one party, phi by another."""
    roster = coalition.session.aggregator.roster
    adder = SparseAdder(roster, coalition.aggregator_setup, TURN, Resources())
    phi = Permutations(roster).shared(coalition.shared_secret, ROUND)
    for member, body in coalition.replies().items():
        shards = adder.check(CONTRIBUTE, member, Reply(b"", body))
        yield member, phi.backward(np.concatenate(shards.places)), shards


def _sparse(coalition: Coalition) -> Terms:
    if not coalition.session.terms.sparse:
        raise InputError(f"only dphe and block-dphe permute what they send; got {coalition.session.scheme!r}.")
    return coalition.session.terms


def _changed(integers: Integers, terms: Terms) -> Mask:
    """Return which blocks an update changes."""
    rows = np.zeros(terms.blocks * terms.slots, dtype=np.int64)
    rows[: integers.size] = integers
    return np.asarray(np.any(rows.reshape(terms.blocks, terms.slots), axis=1))


def _weights(blocks: NDArray[T], terms: Terms) -> NDArray[T]:
    """Return what is said of each block, for each of its weights."""
    return np.asarray(np.repeat(blocks, terms.slots)[: terms.dimension])


def _certain(coalition: Coalition, victim: str, update: Integers) -> Recovery:
    known = np.ones(update.size, dtype=np.bool_)
    return Recovery(coalition.parties, victim, update.astype(np.float64), known, update != 0)


# BFV


def lattice_with_the_key(coalition: Coalition, victim: str) -> Recovery:
    """Return a member's update, decrypted with the key generator's key from what the aggregator received."""
    key = coalition.key
    if not isinstance(key, SecretKey):
        raise InputError(f"nobody in the coalition of {', '.join(coalition.parties)} can decrypt lattice ciphertexts.")
    update = key.decrypt(key.public.read_vector(coalition.replies()[victim]))
    return _certain(coalition, victim, update[: coalition.session.terms.dimension])


def lattice_with_a_member(coalition: Coalition, victim: str) -> Held:
    """Return how a member's ciphertexts differ from those of another one outside the coalition, read as numbers."""
    other = next(member for member in coalition.rest if member != victim)
    received = coalition.messages(AGGREGATOR)
    mine, others = (owner_payloads(received, member) for member in (victim, other))
    return Held(differences(mine, others, coalition.session.terms.dimension), other)


# Masks


@dataclass(frozen=True, eq=False)
class Stripped:
    """An upload without the masks that a coalition can lift; `worn` are the members whose masks it still wears."""

    integers: Integers
    worn: tuple[str, ...]


def masked_with_members(coalition: Coalition, victim: str) -> Recovery:
    """Return a member's update, which enough members and the aggregator strip bare."""
    stripped = stripped_upload(coalition, victim)
    if stripped.worn:
        raise InputError(f"{len(coalition.updates)} members are too few to strip the upload of {victim!r}.")
    return _certain(coalition, victim, stripped.integers)


def masked_with_too_few(coalition: Coalition, victim: str) -> Held:
    """Return what is left of a member's upload when too few have lifted what they can; uniform, if masks are."""
    return Held(stripped_upload(coalition, victim).integers[None].astype(np.float64))


def stripped_upload(coalition: Coalition, victim: str) -> Stripped:
    """Lift every mask of a member's upload that aggregator and members can lift together."""
    if coalition.session.scheme != "masks":
        raise InputError(f"only masks have masks to lift; got {coalition.session.scheme!r}.")
    if not coalition.secrets:
        raise InputError("masks are lifted by the aggregator with members; there is no member in the coalition.")
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
    return Stripped(bare, tuple(name for name in told.owners if name != victim and name not in pairs))


def joined(peers: Peers, shares: Mapping[str, bytes]) -> bytes | None:
    """Return the secret that shares by holder give; None if they are too few."""
    chosen = {peers.number(holder): share for holder, share in sorted(shares.items())[: peers.threshold]}
    return Reconstruction(list(chosen)).secret(chosen) if len(chosen) == peers.threshold else None


def bared(roster: Roster, turn: Turn, upload: bytes, victim: str, seed: bytes, pairs: Mapping[str, bytes]) -> Integers:
    """Return a member's upload without its own mask and those it shares with others, by the secret behind each."""
    residues = roster.terms.read_residues(upload).copy()
    worn = [(seed, mask_context(b"self", roster, turn), False)]
    worn += [(secret, mask_context(b"pair", roster, turn), victim > other) for other, secret in pairs.items()]
    masks.add_masks(residues, worn)
    return residues.view(residues.dtype.str.replace("u", "i")).astype(np.int64)


# Every coalition of a scheme


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
            found = attack(played.pool(helpers(victim)), victim)
            if isinstance(found, Held):
                rate = false_alarm / len(members)
                test = held_test(played, found, victim, generator=generator, false_alarm=rate)
                tests += [] if test is None else [test]
            else:
                gains.append(gain(played, found))
        admitted = _admission(statement, kind)
        results.append(CoalitionResult(kind, played.session.scheme, admitted, tuple(gains), tuple(tests)))
    progress("coalitions", len(plans), len(plans))
    return tuple(results)


Plan = tuple[Kind, Callable[[str], list[str]], Callable[[Coalition, str], Recovery | Held]]


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
    elif terms.scheme == "masks":
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
        if result.scheme in SPARSE_SCHEMES and result.kind == "aggregator and one member"
    ]
    return (*read, *located, *held)


def _admission(statement: PrivacyStatement, kind: Kind) -> str | None:
    sentences = (*statement.assumptions, *statement.not_protected)
    return next((said for said in sentences if any(words in said for words in _ADMITTED[kind])), None)


def _weights_finding(result: CoalitionResult, confidence: float) -> Finding:
    read, changed = (sum(getattr(one, name) for one in result.gains) for name in ("read", "changed"))
    verdict: Verdict = "not refuted"
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
    worst = min(result.tests, key=lambda test: (test.p_value, -test.score))
    known = any(test.score >= RECOVERED for test in result.tests)  # is no luck, however few its weights
    return Finding(
        claim=f"{result.scheme}: nobody but a member knows its update",
        source="its statement",
        proven="masks and ciphertexts tell nothing of what they hide",
        measure="|cosine| of what is left in their hands with a member's update, at worst of "
        f"{len(result.tests)} members (chance exceeds {worst.threshold:.2f} in {worst.false_alarm:g} of the cases)",
        measured=Interval(worst.score, worst.score, worst.score, 1.0),  # of this round: nothing to be unsure of
        verdict="at chance" if worst.at_chance and not known else "refuted",
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
