"""What all parties of a run across machines agree on: the scheme, who adds up, how long the vectors are, how exactly.

The server proposes the terms, so nobody takes them on trust: users refuse terms that protect them less than they were
told to ask for (`userdesk`), everything that is encrypted or signed later is bound to them, and a party that was given
other terms than the rest cannot take part. The digest of the briefing, what the run is about, is one of the terms: the
server tells all users the same, or some of them refuse.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Self

from blindsight.crypto.bfv import parameters_for
from blindsight.crypto.paillier import check_key_bits
from blindsight.crypto.wire import MAX_BYTES, decode, encode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.federated.sums.messages import RunTermsMessage
from blindsight.learn.aggregation import SCHEMES, SPARSE_SCHEMES
from blindsight.learn.dphe import Terms
from blindsight.learn.residues import residue_type
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms

_LATTICE_BYTES = {4096: 17, 8192: 30}  # of a weight, by ring degree (`crypto.bfv`)
_AROUND = 1 << 22  # bytes, at most, around what a user encrypts: keys, names, signatures


def briefing_digest(briefing: bytes) -> bytes:
    """Return what the terms hold of a briefing."""
    return hashlib.sha256(briefing).digest()


@dataclass(frozen=True, kw_only=True)
class RunTerms:
    """The terms of one run; `aggregation.open_session` explains them, `briefing_digest` the last."""

    scheme: str
    run: str
    users: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int = 32
    minimum: int = 3
    capacity: int
    key_bits: int = 3072
    minimum_per_position: int = 1
    insecure: bool = False
    briefing: bytes = briefing_digest(b"")

    def __post_init__(self) -> None:
        """Refuse terms on which nothing can be added."""
        if self.scheme not in SCHEMES:
            raise UnknownNameError("aggregation scheme", self.scheme, SCHEMES)
        if not self.run.isalnum():
            raise InputError("a run across machines has a name of letters and digits.")
        _ = self.sums
        if self.sparse:
            check_key_bits(self.key_bits, insecure=self.insecure)
            _ = self.paillier
        elif self.minimum_per_position != 1:
            raise InputError(f"{self.scheme} does not count who changed a position. Use dphe or block-dphe.")
        if len(self.briefing) != len(briefing_digest(b"")):
            raise InputError("the terms hold the SHA-256 of the briefing.")
        if self.contribution_bytes + _AROUND > MAX_BYTES:  # answers are shorter: 8 bytes a weight, of 2^24 at most
            raise InputError(
                f"a contribution of {self.dimension} weights under {self.scheme} takes {self.contribution_bytes >> 20} "
                f"MiB; a message may take {MAX_BYTES >> 20}. Learn fewer weights, send fewer of them (sparsity), or "
                "use another scheme."
            )

    @property
    def sparse(self) -> bool:
        """Tell whether only changed weights are sent."""
        return self.scheme in SPARSE_SCHEMES

    @property
    def contribution_bytes(self) -> int:
        """How long a user's contribution is, about; of a sparse one, with as many blocks as there is room for."""
        if self.sparse:
            return self.paillier.contribution_bytes
        if self.scheme == "bfv":
            lattice = parameters_for(self.sums.max_integer * len(self.users))
            return -(-self.dimension // lattice.degree) * lattice.degree * _LATTICE_BYTES[lattice.degree]
        return self.dimension * residue_type(self.sums).itemsize

    @property
    def most_bytes(self) -> int:
        """What no contribution exceeds: sparse ones may come in several shards, ciphertexts compress more or less."""
        shards = self.paillier.max_shards if self.sparse else 1
        return min(MAX_BYTES, 2 * shards * self.contribution_bytes + _AROUND)

    @cached_property
    def sums(self) -> SumTerms:
        """The terms that all schemes share."""
        return SumTerms(
            run=self.run,
            users=self.users,
            dimension=self.dimension,
            fraction_bits=self.fraction_bits,
            slot_bits=self.slot_bits,
            minimum=self.minimum,
        )

    @cached_property
    def paillier(self) -> Terms:
        """The terms of DPHE and block DPHE."""
        return sparse_terms(
            self.sums,
            blocks=self.scheme == "block-dphe",
            capacity=self.capacity,
            key_bits=self.key_bits,
            minimum_per_position=self.minimum_per_position,
            insecure=self.insecure,
        )

    def to_bytes(self) -> bytes:
        return encode(RunTermsMessage(**asdict(self)))

    @cached_property
    def digest(self) -> bytes:
        return hashlib.sha256(self.to_bytes()).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; terms that cannot be are refused."""
        message = decode(data, RunTermsMessage, max_bytes=1 << 20)
        try:
            return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})
        except InputError as error:
            raise MessageError(f"the run is on impossible terms: {error}") from None
