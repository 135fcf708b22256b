"""What runs of sums leave open and what they assume, sentence by sentence; each scheme says which hold for it.

`LINES` is the one place of a sentence. Programs compare ids (`statement.Line`), so wording may change.
"""

from typing import TYPE_CHECKING

from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import Line, PrivacyStatement

if TYPE_CHECKING:  # schemes stand on this module, terms on them
    from blindsight.sums.terms import Terms

LINES: dict[str, str] = {
    # What is not protected
    "every-update": "every member's update, and all that can be learned from it about its pictures",
    "exact-sum": "what the sum itself tells: it is exact and has no noise, so it is not differentially private; where "
    "one member alone changed a weight, the sum is that member's weight",
    "exact-blocks": "what the sum itself tells: it is exact and has no noise, so it is not differentially private",
    "differences": "what the difference of two rounds tells: where a member is missing from one of two sums that were "
    "learned from nearly the same model, subtracting them gives about its update; no round is opened twice, and only "
    "noise helps",
    "took-part": "that a member took part",
    "took-part-zeros": "that a member took part, or dropped out; and, from an aggregator that gives out a sum of zeros "
    "and asks again, whether its update was nothing but zeros",
    "took-part-shards": "that a member took part, and how many shards it needed",
    "spoilt-round": "the round itself: a member that sends a wrong tag, or numbers out of range, spoils it and costs "
    "the key, and nobody can tell which member it was",
    "spoilt-waves": "the round itself: a member that sends shares that cannot be used spoils it and sits out the next "
    "ones; one that sends a wrong upload spoils it and is not found; an aggregator may give out any numbers as the sum",
    "later-rounds": "later rounds of a member from a thief of its state; earlier ones stay hidden, as keys are stepped",
    "new-cohorts": "who is summed with whom, in a new run of other members: it has other cohorts",
    "spoilt-run": "the run itself: a member that sends wrong shares or a wrong upload spoils a round, after which "
    "members refuse its model and a new run must begin; and an aggregator may give out any numbers as the sum",
    "plain-indices": "from the aggregator: the plain indices of a member that sent every block anyone sent, because "
    "the sum shows which of them are non-zero",
    "single-blocks": "a block that one member alone changed: the sum there is that member's weights, though not its "
    "name; with independent supports of full capacity that is true of {share} of the changed blocks",
    "withheld-blocks": "from the key generator: a block that fewer than {least} members changed, which it sees before "
    "it withholds it from the others",
    "pair-blocks": "a block that two members changed: either of them subtracts its own weights and has the other's",
    "forged-count": "a block that at least {least} members sent (padding included), from a member who lies about how "
    "many changed it: it is opened even if one member alone changed it; one that fewer sent never is",
    "forged-senders": "whether some block has more contributors than the aggregator says sent it: one bit a round, "
    "from an aggregator that lies about that; if so, nothing is opened and the key is used up",
    "short-key": "against an attacker who can factor {bits} bits: anything",
    "lone-shares": "anything from the aggregator, who sees single contributions with one share of noise each, a "
    "deviation of {deviation:.3g}; epsilon is that of the sums",
    "epsilon": "a {unit} beyond what epsilon = {epsilon:.3g} allows to be told of it",
    "every-round": "the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
    "sample-count": "how many samples all members have together, where that sets the strength of the penalty or the "
    "fixed point",
    "took-part-records": "that a member took part, how many records it has, and which of its rounds it missed",
    "general-truth": "what is true of the pictures in general, whether or not one of them took part",
    # What is assumed
    "noise-shares": "{honest} of {group} members add their share to every sum that is opened: at most d = {drop_outs} "
    "drop out of a round and at most c = {colluders} tell theirs to {reader}",
    "noise-minimum": "members refuse to unmask (the key generator, to decrypt) fewer than n - d = {needed} "
    "contributions, and each round is opened once",
    "public-shape": "the number of records, and the type and shape of arrays that hold them, are public; a unit that "
    "is left out has zero in its place",
    "checked-sums": "the aggregator and the network may lie, forge, lose and repeat as they like: what is opened is "
    "the checked sum of what enough members signed for one model, once a round; a forged request is opened with "
    "probability 2^-60 at most",
    "aggregator-apart": "the aggregator does not collude with any member: one that does knows the secret behind the "
    "check, and has opened what it likes; then only masks promise anything",
    "generator-apart": "the key generator follows the protocol and does not collude: with anyone who has a "
    "contribution it reads it",
    "honest-members": "members follow the protocol: one that lies within the range of the numbers poisons the sum and "
    "learns no more than the sum; all members but one read the last one's update",
    "shared-permutation": "no collusion of the aggregator with a member (who knows phi): it reads which blocks every "
    "member sent, and the weights of those that nobody else sent",
    "masks-aggregator": "the aggregator and the network may lie, forge, lose and repeat as they like: a round is "
    "unmasked once at most, for one set of contributors and one model; with up to c = {lying} members of a group of "
    "{size} (2t > n + c, t - c >= 2) the aggregator opens sums of {others} other members at least",
    "waves-aggregator": "the aggregator and the network may lie, forge, lose and repeat as they like: with up to c = "
    "{lying} members of a cohort of {size} (2t > n + c, t > c) the aggregator opens one sum a round, of one model and "
    "h = {honest} other members at least, or none (docs/proofs/masks.md)",
    "waves-all-in-one": "if all members that collude are in one cohort of {size}, {most} of them still leave two "
    "others in every sum",
    "waves-run": "of the whole run, {lying} of {members} members may collude: the key generator draws the {cohorts} "
    "cohorts, and one has more than its c = {most} of them with a probability of {odds:.1g}",
    "waves-drop-outs": "a round is lost only if more than d = {drop_outs} members of a cohort of {size} are missing or "
    "lie, both waves together; more liars can stop the run, and learn nothing by it",
    "waves-absences": "fewer than twice as many members as it has counted as missing can be singled out from the sums "
    "of a run by who is missing",
    "waves-generator": "the key generator vouches for every member's keys and fixes the cohorts; one that lies "
    "together with the aggregator breaks the masks",
    "waves-hardness": "gap Diffie-Hellman on Curve25519, SHA-256 as a random oracle, AES-256; Ed25519 signatures, "
    "whose keys everyone knows beforehand",
    "masks-threshold": "fewer than t = {needed} members of a group collude with an aggregator that follows the "
    "protocol; all members but one read the last one's update",
    "masks-members": "the other members follow the protocol (semi-honest) and mask honest updates",
    "masks-hardness": "Diffie-Hellman on Curve25519, HKDF-SHA256, AES-256; Ed25519 signatures, whose keys everyone "
    "knows beforehand",
    "bfv-hardness": "ring-LWE with the parameters of crypto.bfv; HKDF-SHA256 and AES-256; Ed25519 signatures, whose "
    "keys everyone knows beforehand",
    "dphe-hardness": "decisional composite residuosity, with the short exponents of Damgard, Jurik and Nielsen; "
    "HKDF-SHA256 and AES-256",
    "dphe-hardness-subgroup": "decisional composite residuosity, and the subgroup assumption (Paillier 1999, third "
    "scheme; Ma et al. 2021): powers of a public base whose order is a product of two secret 256-bit primes cannot be "
    'told from random squares modulo n; the best known attack takes 2^128 steps. keys="conservative" does without it; '
    "HKDF-SHA256 and AES-256",
    "sealed-setup": "enrolments and set-up messages travel through authenticated, encrypted channels",
}

HIDDEN_BY_NOISE = ("exact-sum", "exact-blocks", "differences", "took-part", "took-part-zeros")
"""What noise in the sums protects, or says more exactly."""

KEYED = ("checked-sums", "aggregator-apart", "generator-apart", "honest-members")
"""What every scheme with a key generator assumes."""


def line(id: str, **numbers: object) -> Line:
    """Return a sentence of `LINES` with its numbers."""
    return Line(id, LINES[id].format(**numbers))


def lines(*ids: str) -> tuple[Line, ...]:
    return tuple(map(line, ids))


def statement(terms: "Terms", *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return the privacy statement of a run on these terms, with secrets drawn from `source`."""
    return terms.traits.statement(terms, source)
