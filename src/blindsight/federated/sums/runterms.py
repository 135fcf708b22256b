"""What all parties of a run across machines agree on: the scheme, who adds up, how long the vectors are, how exactly.

The server proposes the terms, so nobody takes them on trust: users refuse terms that protect them less than they were
told to ask for (`userdesk`), everything that is encrypted or signed later is bound to them, and a party that was given
other terms than the rest cannot take part.
"""

import hashlib
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Self

from blindsight.crypto.paillier import check_key_bits
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, UnknownNameError
from blindsight.federated.sums.messages import RunTermsMessage
from blindsight.learn.aggregation import SCHEMES, SPARSE_SCHEMES
from blindsight.learn.dphe import Terms
from blindsight.learn.schemes.paillier import sparse_terms
from blindsight.learn.sumterms import SumTerms


@dataclass(frozen=True, kw_only=True)
class RunTerms:
    """The terms of one run; `aggregation.open_session` explains them."""

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

    @property
    def sparse(self) -> bool:
        """Tell whether only changed weights are sent."""
        return self.scheme in SPARSE_SCHEMES

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
        """Return the terms as a message."""
        return encode(RunTermsMessage(**asdict(self)))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything agreed."""
        return hashlib.sha256(self.to_bytes()).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; terms that cannot be are refused."""
        message = decode(data, RunTermsMessage, max_bytes=1 << 20)
        try:
            return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})
        except InputError as error:
            raise MessageError(f"the run is on impossible terms: {error}") from None
