"""The schemes side by side: what a round costs with each, who learns what, what a drop-out does, and which to take.

Size does not decide that (masks cost least at every size that a run may have), but how often a member may be asked in
a round. DPHE and block DPHE are taken by name: where members choose themselves what they send, most of what a sum of
few members opens is one member's own, so that it has to be withheld.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from blindsight.errors import InputError, UnknownNameError
from blindsight.sums import SCHEMES
from blindsight.sums.costs import Cost, Step
from blindsight.sums.terms import AGGREGATOR

MASK_WAVES = 5
"""How often a member is asked in a round of masks: keys, shares, upload, signature, unmasking shares."""

_REASONS = {
    "masks": "nobody holds a key that opens an update, and every number that is opened is a sum over all contributors",
    "bfv": "a member is asked once in a round; a key generator that does not collude with the aggregator opens the sum",
    "dphe": "the paper's protocol; members choose what they send, so weights that too few changed are withheld",
    "block-dphe": "the paper's protocol with blocks of weights; those that too few members changed are withheld",
    "plain": "nothing is hidden: the aggregator reads every update",
}


@dataclass(frozen=True)
class Choice:
    """A scheme and the reason for it."""

    scheme: str
    why: str

    def __str__(self) -> str:
        return f"{self.scheme}: {self.why}"


def choose_scheme(wanted: str | None = None, *, waves: int | None = None) -> Choice:
    """Return the scheme that is wanted, or else masks, or bfv where a member may be asked `waves` times at most.

    >>> choose_scheme().scheme, choose_scheme(waves=2).scheme
    ('masks', 'bfv')
    """
    if waves is not None and waves < 1:
        raise InputError(f"a member is asked at least once in a round; got waves={waves}.")
    chosen = wanted or ("masks" if waves is None or waves >= MASK_WAVES else "bfv")
    if chosen not in _REASONS:
        raise UnknownNameError("aggregation scheme", chosen, SCHEMES)
    return Choice(chosen, _REASONS[chosen])


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
