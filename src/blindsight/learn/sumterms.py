"""What a run adds up, whichever scheme does it: whose vectors, how long, at which fixed point, for how many at least.

Every scheme adds the integers that `SumTerms.integers` makes of the updates, so all of them give the same sum bit for
bit. That sum is exact: each integer is at most `max_integer` in absolute value, and that of all users together stays
below 2^(slot_bits - 1), which is within the slots of Paillier plaintexts (`crypto.encoding`), the plain modulus of BFV
(`crypto.bfv`) and the modulus of the masks (`residues`).
"""

from dataclasses import dataclass

from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.errors import InputError
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.fixedpoint import FixedPointTerms

MAX_DIMENSION = 1 << 24
MAX_USERS = 1024


@dataclass(frozen=True, kw_only=True)
class SumTerms(FixedPointTerms):
    """The terms of one run; `minimum` users must contribute to a round before anybody learns its sum.

    >>> terms = SumTerms(run="a", users=("ann", "bob", "cem"), dimension=3, fraction_bits=4)
    >>> terms.integers([1.0, -0.5, 0.03125]).tolist()
    [16, -8, 0]
    """

    run: str
    users: tuple[str, ...]
    dimension: int
    fraction_bits: int
    slot_bits: int = 32
    minimum: int = 3

    def __post_init__(self) -> None:
        FixedPoint(self.fraction_bits)
        self._check_users()
        if not 1 <= len(self.run) <= 64:
            raise InputError(f"a run's name has 1 to 64 characters; got {len(self.run)}.")
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise InputError(f"dimension must be in 1 ... {MAX_DIMENSION}; got {self.dimension}.")
        if self.max_integer < 1:
            raise InputError(f"{len(self.users)} users need slots of more than {self.slot_bits} bits.")

    def _check_users(self) -> None:
        for name in self.users:
            if not 1 <= len(name) <= 64 or name in (AGGREGATOR, KEY_GENERATOR):
                reserved = f"{AGGREGATOR!r} or {KEY_GENERATOR!r}"
                raise InputError(f"a user's name has 1 to 64 characters and is not {reserved}; got {name!r}.")
        if len(set(self.users)) != len(self.users):
            raise InputError("every user needs a name of its own.")
        if not 3 <= len(self.users) <= MAX_USERS:
            raise InputError(
                f"a run has 3 to {MAX_USERS} users; got {len(self.users)}. With fewer than three, each user reads the "
                "other's update from the sum."
            )
        if not 3 <= self.minimum <= len(self.users):
            raise InputError(f"minimum must be in 3 ... {len(self.users)}, the number of users; got {self.minimum}.")

    @property
    def max_integer(self) -> int:
        return SlotPacking(self.slot_bits, 1).max_value(len(self.users))
