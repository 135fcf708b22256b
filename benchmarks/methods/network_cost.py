"""What carrying a round's messages takes in a deployment, beside what the roles compute (`costmodel`).

Every message to a node is handled by a process that starts for it, and every byte is hashed, encrypted, stored and read
several times on its way through the SuperLink. Both cost CPU time, on the machines of all parties together:

    CPU of a round = roles + message x messages + byte x bytes

And nodes are asked twice in a round, all users for a contribution, then the key generator to open the sum (users read
it with the next call); each time whoever was asked finds out when it next looks, every `poll` seconds.

`NetworkCost.fit` finds the constants in rounds that were measured; nothing is typed in. On one machine all parties
share its cores, so wall time is that of polls and of all CPU time shared out (between machines: `costmodel.Network`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.methods.costmodel import Figures, aggregate_seconds, fit
from blindsight.errors import InputError

_WEIGHT_BYTES = 8  # of the shared model that goes out with every call


@dataclass(frozen=True)
class Exchange:
    """What a round of so many users carries: messages, bytes there and back; and CPU seconds of its roles."""

    users: int
    bytes: float
    roles: float

    @classmethod
    def of(cls, figures: Figures, users: int, weights: int) -> "Exchange":
        """Return that of a round with these figures (`CostModel.predict`)."""
        each = figures["answer"] + _WEIGHT_BYTES * weights + figures["contribution"]
        work = users * (figures["encrypt"] + figures["read"]) + aggregate_seconds(figures, users) + figures["decrypt"]
        return cls(users, users * each + figures["request"] + figures["answer"], work)

    @property
    def messages(self) -> int:
        """One to each user, one to the key generator."""
        return self.users + 1


@dataclass(frozen=True)
class NetworkCost:
    """CPU seconds that a message takes, and a byte."""

    message: float
    byte: float

    @classmethod
    def fit(cls, rounds: Sequence[tuple[Exchange, float]]) -> "NetworkCost":
        """Return the constants that explain the CPU seconds of measured rounds, beyond those of the roles."""
        beyond = [((exchange.messages, exchange.bytes), found - exchange.roles) for exchange, found in rounds]
        if len(beyond) < 2 or min(value for _, value in beyond) <= 0:
            raise InputError("a network is calibrated on two rounds or more that took longer than their roles compute.")
        return cls(*fit(beyond))

    def cpu_seconds(self, exchange: Exchange) -> float:
        """Return the CPU seconds of a round, of all parties together."""
        return exchange.roles + self.message * exchange.messages + self.byte * exchange.bytes

    def wall_seconds(self, exchange: Exchange, *, cores: float, poll: float = 3.0) -> float:
        """Return how long a round takes on one machine with so many cores to spare.

        Users look at times of their own, and the last of n does so n / (n + 1) of a poll after the call, on average.
        """
        waiting = poll * (exchange.users / (exchange.users + 1) + 0.5)
        return waiting + self.cpu_seconds(exchange) / cores
