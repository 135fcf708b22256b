"""BFV: dense updates under lattice encryption; a key generator decrypts their checked sum.

A member encrypts its vector, followed by its tag (`mac`). The aggregator adds ciphertexts as they come: memory is for
one vector. The key generator checks every slot it decrypts: weights and tag by the code, the rest must be zero. So it
does not release, for instance, what a request with c0 = 0 and c1 = floor(q / t) decrypts to: its own secret key.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.bfv import EncryptedVector, PublicKey, SecretKey, add_all, generate_keys, parameters_for
from blindsight.errors import MessageError
from blindsight.rng import ByteSource
from blindsight.statement import PrivacyStatement, randomness_of
from blindsight.sums.mac import TAG_BITS, context_of, matches, tag
from blindsight.sums.messages import Call, Reply, Roster, Setup
from blindsight.sums.scheme import (
    Adder,
    ForgedError,
    MemberPart,
    Opened,
    Opener,
    Resources,
    Scheme,
    Sizes,
    Turn,
    Vouch,
    register,
)
from blindsight.sums.statements import KEYED, lines
from blindsight.sums.terms import AGGREGATOR, Integers, Terms, beyond

_WEIGHT_BYTES = {4096: 17, 8192: 30}  # by ring degree


def limb_bits(terms: Terms) -> int:
    """How many bits of a tag go into one slot, so that the sum over all members still fits."""
    return min(TAG_BITS, terms.max_integer.bit_length() - 1) if terms.max_integer > 1 else 1


def limbs(terms: Terms) -> int:
    return -(-TAG_BITS // limb_bits(terms))


def length(terms: Terms) -> int:
    """Return how many slots a vector fills: whole ciphertexts, so that the key generator sees every slot there is."""
    degree = degree_of(terms)
    return -(-(terms.dimension + limbs(terms)) // degree) * degree


def degree_of(terms: Terms) -> int:
    return parameters_for(terms.max_integer * len(terms.members)).degree


def read_key(data: bytes, roster: Roster) -> PublicKey:
    if hashlib.sha256(data).digest() != roster.encryption_key:
        raise MessageError("the encryption key is not the one in the roster.")
    key = PublicKey.from_bytes(data)
    if key.max_value(len(roster.terms.members)) < roster.terms.max_integer:
        raise MessageError("the encryption key is too small for the sums of this run.")
    return key


class LatticeMember(MemberPart):
    """Encrypts its whole update."""

    def __init__(self, name: str, roster: Roster, setup: Setup, resources: Resources, vouch: Vouch) -> None:
        super().__init__(name, roster, setup, resources, vouch)
        self._key = read_key(setup.encryption_key, roster)

    @classmethod
    def sizes(cls, terms: Terms) -> Sizes:
        degree = degree_of(terms)
        return Sizes(-(-terms.dimension // degree) * degree * _WEIGHT_BYTES[degree])

    def answer(self, call: Call, integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        values, terms = self.contribution(integers), self.terms
        context = context_of(self.roster.digest, call.round)
        number = tag(values, shared=self.setup.shared, offset=self.setup.offset, context=context)
        bits = limb_bits(terms)
        parts = [(number >> (bits * place)) & ((1 << bits) - 1) for place in range(limbs(terms))]
        whole = np.zeros(length(terms), dtype=np.int64)
        whole[: terms.dimension] = values
        whole[terms.dimension : terms.dimension + len(parts)] = parts
        return self._key.encrypt(whole, terms=len(terms.members)).to_bytes(), b""


class LatticeAdder(Adder):
    """Adds up vectors it cannot read."""

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._key = read_key(setup.encryption_key, roster)
        self._sum: EncryptedVector | None = None

    def check(self, step: str, member: str, reply: Reply) -> EncryptedVector:
        vector = self._key.read_vector(reply.body)
        if vector.terms != 1 or len(vector) != length(self.terms):
            raise MessageError(f"the vector of {member!r} has the wrong length, or is a sum already.")
        return vector if self._sum is None else add_all([self._sum, vector])

    def add(self, step: str, member: str, checked: EncryptedVector) -> None:
        self._sum = checked
        self.ciphertexts[member] = len(checked.parts)

    def request(self) -> bytes:
        if self._sum is None:
            raise MessageError("there is nothing to decrypt.")
        self.ciphertexts[AGGREGATOR] = len(self._sum.parts)
        return self._sum.to_bytes()


class LatticeOpener(Opener):
    """Decrypts checked sums."""

    def __init__(self, terms: Terms, secret: SecretKey | bytes | None, resources: Resources) -> None:
        self._terms = terms
        if isinstance(secret, bytes):
            secret = SecretKey.from_secret_bytes(secret)
        self._secret = secret or generate_keys(max_sum=terms.max_integer * len(terms.members))
        self.encryption_key = self._secret.public.to_bytes()

    def secret_bytes(self) -> bytes:
        return self._secret.secret_bytes()

    def open(self, body: bytes, members: tuple[str, ...], round: int, setup: Setup, offsets: list[bytes]) -> Opened:
        terms = self._terms
        vector = self._secret.public.read_vector(body)
        if vector.terms != len(members) or len(vector) != length(terms):
            raise MessageError("the encrypted sum has another length, or another number of terms than receipts.")
        try:
            slots = self._secret.decrypt(vector)
        except Exception as error:
            raise ForgedError(f"the sum cannot be decrypted ({type(error).__name__}).") from None
        sums = slots[: terms.dimension]
        if not _checked(slots, terms, round, setup, offsets):
            raise ForgedError("the sum does not match the contributors' tags.")
        if beyond(sums, len(members) * terms.max_integer):
            raise ForgedError("the sum is not one that these contributors can have: one of them overflowed.")
        return Opened(members, sums)


def _checked(slots: NDArray[np.int64], terms: Terms, round: int, setup: Setup, offsets: list[bytes]) -> bool:
    end = terms.dimension + limbs(terms)
    bits, parts = limb_bits(terms), slots[terms.dimension : end].tolist()
    total = sum(part << (bits * place) for place, part in enumerate(parts))
    context = context_of(hashlib.sha256(setup.roster).digest(), round)
    right = matches(slots[: terms.dimension], total, shared=setup.shared, offsets=offsets, context=context)
    return right and not slots[end:].any()


def _statement(terms: Terms, source: ByteSource) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="cryptographic",
        summary="only sums of updates are opened (BFV; the aggregator colludes with nobody)",
        mechanism=f"BFV: lattice encryption of whole updates, ring degree {degree_of(terms)}, 128 bits of security, "
        "with a tag that shows the sum to be the sum; a member that drops out is not in it, and nothing else changes",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "key generator": "the sum, and who contributed; it could decrypt any contribution, but receives none",
            "aggregator": "ciphertexts, the sum, and who contributed",
            "members": "their own update, the sum, and who contributed",
            "someone who intercepts a contribution": "nothing but its length: it is sealed",
        },
        not_protected=lines("exact-sum", "differences", "spoilt-round", "took-part"),
        assumptions=lines(*KEYED, "bfv-hardness"),
    )


BFV = register(
    Scheme(
        name="bfv",
        member=LatticeMember,
        adder=LatticeAdder,
        opener=LatticeOpener,
        statement=_statement,
        sealed=True,
        requires="tenseal",
    )
)
