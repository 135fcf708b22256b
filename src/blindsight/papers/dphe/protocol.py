"""DPHE as published, and with one thing left out or more: variants of `blindsight.sums.dphe` that protect less.

| scheme | differs from "dphe" in | paper |
| --- | --- | --- |
| "dphe-published" | one permutation for all rounds, one ciphertext of zero, no tag, nothing sealed | Algorithm 1 |
| "dphe-single" | members have no permutation of their own: a listener who is a member reads places | section 2.3 |
| "dphe-all" | every place is decrypted, also those that nobody sent, under zeros of their own | Eqs. 4 to 6 |

In the second and third, a block may have several weights, too. A party that did not import this module does not know
these schemes, and refuses their terms.
"""

from dataclasses import replace
from typing import ClassVar

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.permutation import SecretPermutation
from blindsight.errors import InputError
from blindsight.rng import ByteSource
from blindsight.statement import Claim, Line, PrivacyStatement, line_id
from blindsight.sums.dphe import DPHE, CheckedShards, DpheOptions, Layout, Permutations, SparseAdder, layout_of
from blindsight.sums.messages import Roster, Setup
from blindsight.sums.scheme import Resources, Turn, register
from blindsight.sums.statements import KEYED
from blindsight.sums.terms import Terms

THEOREM_8 = "no one but a user can identify its update and its non-zero indices"

Places = NDArray[np.int64]


class SinglePermutations(Permutations):
    """phi alone: phi^(n) is the identity."""

    def own(self, secret: bytes, member: str, round: int) -> SecretPermutation:
        return SecretPermutation(np.arange(self.size))


class FixedPermutations(Permutations):
    """The same permutations in every round."""

    def context(self, round: int) -> dict[str, str | int | bytes]:
        return super().context(0)


class FixedSinglePermutations(FixedPermutations, SinglePermutations):
    """The same phi in every round, and nothing else."""


# As published


class PublishedOptions(DpheOptions, name="papers/dphe-published.1"):
    """`single`: members have no permutation of their own, as in section 2.3."""

    minimum_per_position: int = 1
    single: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minimum_per_position != 1 or self.block > 1:
            raise InputError("the published scheme has one weight in a ciphertext, and withholds nothing.")

    def layout(self, terms: Terms) -> Layout:
        return PublishedLayout(terms, self)


class PublishedLayout(Layout):
    """One ciphertext for each weight of the sum, and no tag."""

    tagged: ClassVar[bool] = False
    order: ClassVar[str] = "permutation of their indices (the same in every round)"

    @property
    def seen(self) -> str:
        return ""

    @property
    def blocks_per_request(self) -> int:
        return 1

    def permutations(self, roster: Roster) -> Permutations:
        single = isinstance(self.options, PublishedOptions) and self.options.single
        return FixedSinglePermutations(roster) if single else FixedPermutations(roster)


class PublishedAdder(SparseAdder):
    """Eqs. 4 to 6 to the letter: every contribution puts one and the same Enc0 at each place it does not touch."""

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._shards = 0

    def add(self, step: str, member: str, checked: CheckedShards) -> None:
        super().add(step, member, checked)
        self._shards += len(checked.places)

    def total(self) -> tuple[Places, Ciphertexts]:
        key, counts = self.key, self.sum.counts
        modulus = mpz(key.n) ** 2
        (enc0,) = key.encrypt_zeros(1, source=self.resources.source).values
        powers = [gmpy2.powmod(enc0, exponent, modulus) for exponent in range(self._shards + 1)]
        places, touched = self.sum.touched()
        one, products = mpz(1), dict(zip(places.tolist(), touched.values, strict=True))
        values = [
            products.get(place, one) * powers[-1 - count] % modulus for place, count in enumerate(counts.tolist())
        ]
        return np.arange(len(values)), Ciphertexts(key, tuple(values))


# With one thing left out


class SingleOptions(DpheOptions, name="papers/dphe-single.1"):
    """Those of DPHE."""

    def layout(self, terms: Terms) -> Layout:
        return SingleLayout(terms, self)


class SingleLayout(Layout):
    """That of DPHE, under one permutation."""

    order: ClassVar[str] = "single permutation of their indices (fresh in every round)"

    def permutations(self, roster: Roster) -> Permutations:
        return SinglePermutations(roster)


class AllOptions(DpheOptions, name="papers/dphe-all.1"):
    """Those of DPHE."""

    def layout(self, terms: Terms) -> Layout:
        return AllLayout(terms, self)


class AllLayout(Layout):
    """That of DPHE, for requests that name every block."""

    @property
    def seen(self) -> str:
        return super().seen if self.counting else ""


class AllAdder(SparseAdder):
    """Asks for every place: a zero of its own for each ciphertext hides which of its places nobody sent."""

    def total(self) -> tuple[Places, Ciphertexts]:
        places, sums = self.sum.touched()
        values = np.full(self.layout.blocks, mpz(1), dtype=object)
        values[places] = sums.values
        packed = self.packed(Ciphertexts(self.key, tuple(values)))
        return np.arange(len(values)), packed + self.key.encrypt_zeros(len(packed), source=self.resources.source)


# What is promised, and what the paper claims

LINES = {
    "support-changed": "from the aggregator: whether a member's support changed between rounds, and by how much",
    "untouched-blocks": "from whoever sees the encrypted sum: which blocks nobody sent, which share one ciphertext of "
    "zero",
    "unsealed": "from whoever intercepts contributions: ciphertexts and doubly permuted indices",
    "unsealed-single": "from a member who intercepts contributions: the indices of what others changed",
    "all-honest": "all parties follow the protocol (semi-honest) and nobody colludes: the key generator opens whatever "
    "the aggregator asks for",
}


def theorem_8(terms: Terms) -> Claim:
    """Return what the paper claims of a sparse run on these terms, and why that fails."""
    least = layout_of(terms).minimum_per_position
    if isinstance(terms.options, PublishedOptions):
        why = (
            "one permutation serves all rounds, so the aggregator recognises the same support again; one ciphertext of "
            "zero marks every block nobody sent; and where one member alone changed a weight, the sum is that weight"
        )
    elif least == 1:
        why = "where one member alone changed a weight, the sum is that weight, for every party to read"
    elif least == 2:
        why = (
            "where two members changed a weight, each reads the other's from the sum, and the key generator still sees "
            "the weights that one member alone changed"
        )
    else:
        why = (
            "the key generator still sees the weights that one member alone changed (it withholds them from the "
            "others), and the aggregator sees how many blocks any two members have in common"
        )
    return Claim("DPHE (Theorem 8)", THEOREM_8, why)


def _published(terms: Terms, source: ByteSource) -> PrivacyStatement:
    said = DPHE.statement(terms, source)
    single = isinstance(terms.options, PublishedOptions) and terms.options.single
    intercepted = "unsealed-single" if single else "unsealed"
    return replace(
        said,
        guarantee="none",
        who_sees={**said.who_sees, "someone who intercepts a contribution": LINES[intercepted].partition(": ")[2]},
        not_protected=(*said.not_protected, *_lines("support-changed", "untouched-blocks", intercepted)),
        assumptions=(*_lines("all-honest"), *(line for line in said.assumptions if line_id(line) not in KEYED)),
        claim=theorem_8(terms),
    )


def _variant(terms: Terms, source: ByteSource) -> PrivacyStatement:
    return replace(DPHE.statement(terms, source), claim=theorem_8(terms))


def _lines(*ids: str) -> tuple[Line, ...]:
    return tuple(Line(id, LINES[id]) for id in ids)


PUBLISHED = register(
    replace(
        DPHE,
        name="dphe-published",
        adder=PublishedAdder,
        options=PublishedOptions,
        statement=_published,
        sealed=False,
    )
)
SINGLE = register(replace(DPHE, name="dphe-single", options=SingleOptions, statement=_variant))
ALL = register(replace(DPHE, name="dphe-all", adder=AllAdder, options=AllOptions, statement=_variant))
