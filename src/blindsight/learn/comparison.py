"""The schemes side by side: what a round costs with each, who learns what, and what a drop-out does."""

from collections.abc import Mapping
from dataclasses import dataclass

from blindsight.errors import UnknownNameError
from blindsight.sums.costs import Cost, Step
from blindsight.sums.terms import AGGREGATOR


@dataclass(frozen=True)
class ComparisonRow:
    """One scheme. Seconds are CPU time: of one user on average, of the aggregator, of all who help to decrypt.

    Megabytes (10^6) are those of one user on average; whoever sent nothing in the round is not counted.
    """

    scheme: str
    encrypt_seconds: float
    aggregate_seconds: float
    decrypt_seconds: float
    megabytes_sent: float
    megabytes_received: float
    ciphertexts_sent: float
    who_learns: str
    drop_out: str

    @property
    def total_seconds(self) -> float:
        """One user's encryption, the aggregation and the decryption together."""
        return self.encrypt_seconds + self.aggregate_seconds + self.decrypt_seconds


_NO_LOSS = "costs nothing: the sum is that of the users who are left, if there are enough"

_WHO_LEARNS = {
    "plain": "the aggregator reads every update",
    "dphe": "the aggregator learns the sum, and how many changed weights any two users have in common; the key "
    "generator learns the sum, and could read a contribution if somebody showed it one",
    "block-dphe": "the aggregator learns the sum, and how many changed blocks any two users have in common; the key "
    "generator learns the sum, and could read a contribution if somebody showed it one",
    "bfv": "the aggregator learns the sum; the key generator learns the sum, and could read a contribution if somebody "
    "showed it one",
    "masks": "the aggregator learns the sum; nobody holds a key that opens an upload",
}
_DROP_OUT = {
    "plain": _NO_LOSS,
    "dphe": _NO_LOSS,
    "block-dphe": _NO_LOSS,
    "bfv": _NO_LOSS,
    "masks": "costs one more mask per user who is left, whose shares lift it; if no more than two thirds of all are "
    "left, the round is lost and must be repeated when more are there",
}


def compare(costs: Mapping[str, Cost]) -> list[ComparisonRow]:
    """Return a row for each scheme and its cost of one round, in the given order."""
    return [_row(scheme, cost) for scheme, cost in costs.items()]


def _row(scheme: str, cost: Cost) -> ComparisonRow:
    if scheme not in _WHO_LEARNS:
        raise UnknownNameError("aggregation scheme", scheme, _WHO_LEARNS)
    making: tuple[Step, ...] = ("share", "encrypt")
    users = [member for member in cost.members if cost.sent(member)]
    count = max(len(users), 1)
    return ComparisonRow(
        scheme=scheme,
        encrypt_seconds=sum(cost.seconds(*making, party=user) for user in users) / count,
        aggregate_seconds=cost.seconds("share", "aggregate", party=AGGREGATOR),
        decrypt_seconds=cost.seconds("decrypt"),
        megabytes_sent=sum(map(cost.sent, users)) / count / 1e6,
        megabytes_received=sum(map(cost.received, users)) / count / 1e6,
        ciphertexts_sent=sum(map(cost.ciphertexts, users)) / count,
        who_learns=_WHO_LEARNS[scheme],
        drop_out=_DROP_OUT[scheme],
    )
