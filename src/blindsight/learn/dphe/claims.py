"""What a DPHE run guarantees, to whom, under which assumptions, and where the paper's theorem fails."""

from blindsight.learn.dphe.terms import Terms
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Claim, PrivacyStatement, randomness_of

_THEOREM = "no one but a user can identify its update and its non-zero indices"


def statement(terms: Terms, *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return the privacy statement of a run on these terms, with secrets drawn from `source`."""
    return PrivacyStatement(
        guarantee="none" if terms.as_published or terms.insecure else "cryptographic",
        mechanism=_mechanism(terms),
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees=_who_sees(terms),
        not_protected=tuple(_not_protected(terms)),
        assumptions=(*_ASSUMPTIONS, _hardness(terms)),
        claim=Claim("DPHE (Theorem 8)", _THEOREM, _why_it_fails(terms)),
    )


def single_contributor_share(users: int, density: float) -> float:
    """Return the share of the changed blocks that one user alone changed, if supports are independent.

    >>> round(single_contributor_share(users=5, density=0.044), 2)
    0.91
    """
    changed = 1 - (1 - density) ** users
    return users * density * (1 - density) ** (users - 1) / changed


_ASSUMPTIONS = (
    "all parties follow the protocol (semi-honest); in particular the aggregator adds up what the receipts name, which "
    "the key generator cannot check, and says truly how many users sent each block; and users encrypt honest updates",
    "no collusion: the key generator with anyone who has a contribution reads it; the aggregator with any one user "
    "(who knows phi) reads which blocks every user sent, and the weights of those that nobody else sent; all users but "
    "one read the last one's update",
    "HKDF-SHA256 and AES-256",
    "enrolments and set-up messages travel through authenticated, encrypted channels",
)


def _hardness(terms: Terms) -> str:
    if terms.keys == "conservative":
        return "decisional composite residuosity, with the short exponents of Damgard, Jurik and Nielsen"
    return (
        "decisional composite residuosity, and the subgroup assumption (Paillier 1999, third scheme; Ma et al. 2021): "
        "powers of a public base whose order is a product of two secret 256-bit primes cannot be told from random "
        'squares modulo n; the best known attack takes 2^128 steps. keys="conservative" does without it'
    )


def _mechanism(terms: Terms) -> str:
    name = "block DPHE" if terms.slots > 1 else "DPHE"
    weights = f"blocks of {terms.slots} weights" if terms.slots > 1 else "single weights"
    rounds = "the same in every round" if terms.as_published else "fresh in every round"
    return (
        f"{name}: Paillier encryption of {weights} under a {terms.key_bits}-bit key, {terms.permutations} permutation "
        f"of their indices ({rounds}), padded to {terms.capacity} of {terms.blocks} per shard"
    )


def _who_sees(terms: Terms) -> dict[str, str]:
    touched = ", which blocks were sent (padding included)" if terms.decrypt == "touched" else ""
    if terms.counting:
        touched = ", how many users changed each block and how many sent it (padding included)"
    listener = "ciphertexts and doubly permuted indices: their number, nothing else"
    if terms.permutations == "single":
        listener = "ciphertexts and permuted indices; to another user, who knows the permutation, the plain indices"
    return {
        "key generator": f"the sum in plain order before anything is withheld{touched}, and who contributed "
        "in how many shards; it could decrypt any contribution, but receives none",
        "aggregator": "ciphertexts; in permuted order, which blocks each user sent (padding included), hence how many "
        "any two users share; how many shards each user sent; the sum in plain order",
        "users": f"their own update, the sum, {'which blocks were released, ' * terms.counting}and who contributed",
        "someone who intercepts a contribution": listener,
    }


def _not_protected(terms: Terms) -> list[str]:
    lines = [
        "what the sum itself tells: it is exact and has no noise, so it is not differentially private",
        "that a user took part, and how many shards it needed",
        "from the aggregator: the plain indices of a user that sent every block anyone sent, because the sum shows "
        "which of them are non-zero",
    ]
    if terms.min_per_block < 3:
        lines.append(
            "a block that one user alone changed: the sum there is that user's weights, though not its name; with "
            "independent supports of full capacity that is true of "
            f"{single_contributor_share(len(terms.users), terms.capacity / terms.blocks):.0%} of the changed blocks"
            if terms.min_per_block == 1
            else "a block that two users changed: either of them subtracts its own weights and has the other's"
        )
    if terms.counting:
        lines.append(
            f"a block that at least {terms.min_per_block} users sent (padding included), from a user who lies about "
            "how many changed it: it is opened even if one user alone changed it; one that fewer sent never is"
        )
    if terms.as_published:
        lines.append("from the aggregator: whether a user's support changed between rounds, and by how much")
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
            "zero marks every block nobody sent; and where one user alone changed a weight, the sum is that weight"
        )
    if terms.min_per_block == 1:
        return "where one user alone changed a weight, the sum is that weight, for every party to read"
    if terms.min_per_block == 2:
        return (
            "where two users changed a weight, each reads the other's from the sum, and the key generator still sees "
            "the weights that one user alone changed"
        )
    return (
        "the key generator still sees the weights that one user alone changed (it withholds them from the others), and "
        "the aggregator sees how many blocks any two users have in common"
    )
