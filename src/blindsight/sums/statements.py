"""What a run of sums guarantees, to whom, against whom, under which assumptions; and where a paper's theorem fails."""

from functools import partial

from blindsight.crypto.bfv import parameters_for
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Claim, PrivacyStatement, randomness_of
from blindsight.sums.masks import colluders
from blindsight.sums.terms import Terms, threshold

_of_person = partial(PrivacyStatement, unit="person", epsilon=None, delta=None)
"""A statement about everything that one person contributes, whose sums have no noise."""

_THEOREM = "no one but a user can identify its update and its non-zero indices"

_EXACT = (
    "what the sum itself tells: it is exact and has no noise, so it is not differentially private; where one member "
    "alone changed a weight, the sum is that member's weight"
)
_DIFFERENCES = (
    "what the difference of two rounds tells: where a member is missing from one of two sums that were learned from "
    "nearly the same model, subtracting them gives about its update; no round is opened twice, and only noise helps"
)
_SPOILT = (
    "the round itself: a member that sends a wrong tag, or numbers out of range, spoils it and costs the key, and "
    "nobody can tell which member it was"
)
_KEYED = (
    "the aggregator and the network may lie, forge, lose and repeat as they like: what is opened is the checked sum of "
    "what enough members signed for one model, once a round; a forged request is opened with probability 2^-60 at most",
    "the aggregator does not collude with any member: one that does knows the secret behind the check, and has opened "
    "what it likes; then only masks promise anything",
    "the key generator follows the protocol and does not collude: with anyone who has a contribution it reads it",
    "members follow the protocol: one that lies within the range of the numbers poisons the sum and learns no more "
    "than the sum; all members but one read the last one's update",
)


def statement(terms: Terms, *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return the privacy statement of a run on these terms, with secrets drawn from `source`."""
    if terms.sparse:
        return _sparse(terms, source)
    return {"bfv": _lattice, "masks": _masks, "plain": _plain}[terms.scheme](terms, source)


def _plain(terms: Terms, source: ByteSource) -> PrivacyStatement:
    return _of_person(
        guarantee="none",
        mechanism="none: updates are sent and added up in the clear",
        randomness="none",
        who_sees={
            "aggregator": "every member's update, weight by weight, and the sum",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts a message": "the update in it",
        },
        not_protected=("every member's update, and all that can be learned from it about its pictures",),
    )


def consistency(terms: Terms) -> str:
    size = len(terms.groups(0)[0])
    needed = threshold(size)
    where = "" if len(terms.groups(0)) == 1 else f" in each of {len(terms.groups(0))} groups"
    return (
        f"t = {needed} of {size} members{where} sign whose uploads are in the sum before any of them helps to lift its "
        f"masks, so that {size - needed} may drop out and c = {colluders(size)} collude with a lying aggregator"
    )


def _masks(terms: Terms, source: ByteSource) -> PrivacyStatement:
    groups = terms.groups(0)
    size = len(groups[0])
    needed, lying = threshold(size), colluders(size)
    seen = "the sum" if len(groups) == 1 else f"the sum of each of {len(groups)} groups"
    return _of_person(
        guarantee="cryptographic",
        summary=f"only sums of updates are opened (masks; {lying} of {size} members may collude with the aggregator)",
        mechanism="pairwise masks (X25519, AES-256 in counter mode) and self-masks with Shamir shares, all fresh "
        f"in every attempt at a round; {consistency(terms)}; with fewer than t an attempt is given up before anything "
        "is unmasked, and repeated with new masks",
        randomness=randomness_of(source),
        who_sees={
            "aggregator": f"uploads that look uniformly random, {seen}, who contributed and who dropped out",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts an upload": "uniformly random bytes; one who intercepts every message of a "
            "round computes the sum, as the aggregator does",
        },
        not_protected=(
            _EXACT,
            _DIFFERENCES,
            "that a member took part, or dropped out; and, from an aggregator that gives out a sum of zeros and asks "
            "again, whether its update was nothing but zeros",
            "the run itself: a member that sends wrong shares or a wrong upload spoils a round, after which members "
            "refuse its model and a new run must begin; and an aggregator may give out any numbers as the sum",
        ),
        assumptions=(
            "the aggregator and the network may lie, forge, lose and repeat as they like: a round is unmasked once at "
            f"most, for one set of contributors and one model; with up to c = {lying} members of a group of {size} "
            f"(2t > n + c, t - c >= 2) the aggregator opens sums of {needed - lying} other members at least",
            f"fewer than t = {needed} members of a group collude with an aggregator that follows the protocol; all "
            "members but one read the last one's update",
            "the other members follow the protocol (semi-honest) and mask honest updates",
            "Diffie-Hellman on Curve25519, HKDF-SHA256, AES-256; Ed25519 signatures, whose keys everyone knows "
            "beforehand",
        ),
    )


def _lattice(terms: Terms, source: ByteSource) -> PrivacyStatement:
    degree = parameters_for(terms.max_integer * len(terms.members)).degree
    return _of_person(
        guarantee="cryptographic",
        summary="only sums of updates are opened (BFV; the aggregator colludes with nobody)",
        mechanism=f"BFV: lattice encryption of whole updates, ring degree {degree}, 128 bits of security, with a tag "
        "that shows the sum to be the sum; a member that drops out is not in it, and nothing else changes",
        randomness=randomness_of(source),
        who_sees={
            "key generator": "the sum, and who contributed; it could decrypt any contribution, but receives none",
            "aggregator": "ciphertexts, the sum, and who contributed",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts a contribution": "nothing but its length: it is sealed",
        },
        not_protected=(_EXACT, _DIFFERENCES, _SPOILT, "that a member took part"),
        assumptions=(
            *_KEYED,
            "ring-LWE with the parameters of crypto.bfv; HKDF-SHA256 and AES-256; Ed25519 signatures, whose keys "
            "everyone knows beforehand",
        ),
    )


def single_contributor_share(members: int, density: float) -> float:
    """Return the share of the changed blocks that one member alone changed, if supports are independent.

    >>> round(single_contributor_share(members=5, density=0.044), 2)
    0.91
    """
    changed = 1 - (1 - density) ** members
    return members * density * (1 - density) ** (members - 1) / changed


def _sparse(terms: Terms, source: ByteSource) -> PrivacyStatement:
    return _of_person(
        guarantee="none" if terms.as_published or terms.insecure else "cryptographic",
        summary=f"only sums of updates are opened ({terms.scheme}, {terms.key_bits} bits; the aggregator colludes with "
        "nobody)",
        mechanism=_sparse_mechanism(terms),
        randomness=randomness_of(source),
        who_sees=_sparse_views(terms),
        not_protected=tuple(_sparse_leaks(terms)),
        assumptions=_sparse_assumptions(terms),
        claim=Claim("DPHE (Theorem 8)", _THEOREM, _why_it_fails(terms)),
    )


def _sparse_assumptions(terms: Terms) -> tuple[str, ...]:
    trust: tuple[str, ...] = _KEYED
    if terms.as_published:
        trust = (
            "all parties follow the protocol (semi-honest) and nobody colludes: the key generator opens whatever the "
            "aggregator asks for",
        )
    hardness = "decisional composite residuosity, with the short exponents of Damgard, Jurik and Nielsen"
    if terms.keys == "subgroup":
        hardness = (
            "decisional composite residuosity, and the subgroup assumption (Paillier 1999, third scheme; Ma et al. "
            "2021): powers of a public base whose order is a product of two secret 256-bit primes cannot be told from "
            'random squares modulo n; the best known attack takes 2^128 steps. keys="conservative" does without it'
        )
    return (
        *trust,
        "no collusion of the aggregator with a member (who knows phi): it reads which blocks every member sent, and "
        "the weights of those that nobody else sent",
        f"{hardness}; HKDF-SHA256 and AES-256",
        "enrolments and set-up messages travel through authenticated, encrypted channels",
    )


def _sparse_mechanism(terms: Terms) -> str:
    name = "block DPHE" if terms.slots > 1 else "DPHE"
    weights = f"blocks of {terms.slots} weights" if terms.slots > 1 else "single weights"
    rounds = "the same in every round" if terms.as_published else "fresh in every round"
    checked = "" if terms.as_published else ", with a tag that shows the sum to be the sum"
    return (
        f"{name}: Paillier encryption of {weights} under a {terms.key_bits}-bit key, {terms.permutations} permutation "
        f"of their indices ({rounds}), padded to {terms.room} of {terms.blocks} per shard{checked}"
    )


def _sparse_views(terms: Terms) -> dict[str, str]:
    touched = ", which blocks were sent (padding included)" if terms.decrypt == "touched" else ""
    if terms.counting:
        touched = ", how many members changed each block and how many sent it (padding included)"
    listener = "nothing but the number of shards: contributions are sealed"
    if terms.as_published:
        listener = "ciphertexts and doubly permuted indices: their number, nothing else"
        if terms.permutations == "single":
            listener = "ciphertexts and permuted indices; to another member, who knows the permutation, the plain ones"
    return {
        "key generator": f"the sum in plain order before anything is withheld{touched}, and who contributed; it could "
        "decrypt any contribution, but receives none",
        "aggregator": "ciphertexts; in permuted order, which blocks each member sent (padding included), hence how "
        "many any two members share; how many shards each member sent; the sum in plain order",
        "members": f"their own update, the sum, {'which blocks were released, ' * terms.counting}and who contributed",
        "someone who intercepts a contribution": listener,
    }


def _sparse_leaks(terms: Terms) -> list[str]:
    lines = [
        "what the sum itself tells: it is exact and has no noise, so it is not differentially private",
        _DIFFERENCES,
        _SPOILT,
        "that a member took part, and how many shards it needed",
        "from the aggregator: the plain indices of a member that sent every block anyone sent, because the sum shows "
        "which of them are non-zero",
    ]
    if terms.minimum_per_position < 3:
        lines.append(
            "a block that one member alone changed: the sum there is that member's weights, though not its name; with "
            "independent supports of full capacity that is true of "
            f"{single_contributor_share(len(terms.members), terms.room / terms.blocks):.0%} of the changed blocks"
            if terms.minimum_per_position == 1
            else "a block that two members changed: either of them subtracts its own weights and has the other's"
        )
    if terms.counting:
        lines.append(
            f"a block that at least {terms.minimum_per_position} members sent (padding included), from a member who "
            "lies about how many changed it: it is opened even if one member alone changed it; one that fewer sent "
            "never is"
        )
        lines.append(
            "whether some block has more contributors than the aggregator says sent it: one bit a round, from an "
            "aggregator that lies about that; if so, nothing is opened and the key is used up"
        )
    if terms.as_published:
        lines.append("from the aggregator: whether a member's support changed between rounds, and by how much")
        lines.append(
            "from whoever sees the encrypted sum: which blocks nobody sent, which share one ciphertext of zero"
        )
    if terms.insecure:
        lines.append(f"against an attacker who can factor {terms.key_bits} bits: anything")
    return lines


def _why_it_fails(terms: Terms) -> str:
    if terms.as_published:
        return (
            "one permutation serves all rounds, so the aggregator recognises the same support again; one ciphertext of "
            "zero marks every block nobody sent; and where one member alone changed a weight, the sum is that weight"
        )
    if terms.minimum_per_position == 1:
        return "where one member alone changed a weight, the sum is that weight, for every party to read"
    if terms.minimum_per_position == 2:
        return (
            "where two members changed a weight, each reads the other's from the sum, and the key generator still sees "
            "the weights that one member alone changed"
        )
    return (
        "the key generator still sees the weights that one member alone changed (it withholds them from the others), "
        "and the aggregator sees how many blocks any two members have in common"
    )
