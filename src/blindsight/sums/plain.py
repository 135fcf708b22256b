"""No protection at all, for comparison: the aggregator adds up updates that it can read."""

import numpy as np

from blindsight.sums.messages import Call, Reply, Roster, Setup
from blindsight.sums.scheme import Adder, MemberPart, Opened, Resources, Turn
from blindsight.sums.terms import Integers


class PlainMember(MemberPart):
    """Sends its update."""

    def answer(self, call: Call, integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        return self.terms.residues(self.contribution(integers)).tobytes(), b""


class PlainAdder(Adder):
    """Adds up what it reads."""

    def __init__(self, roster: Roster, setup: Setup, turn: Turn, resources: Resources) -> None:
        super().__init__(roster, setup, turn, resources)
        self._sum = np.zeros(self.terms.dimension, dtype=np.int64)

    def check(self, step: str, member: str, reply: Reply) -> Integers:
        return self.terms.read_sums(reply.body, 1)

    def add(self, step: str, member: str, checked: Integers) -> None:
        self._sum += checked

    def opened(self) -> Opened:
        return Opened(self.members, self._sum)
