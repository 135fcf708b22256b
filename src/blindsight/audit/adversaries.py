"""Parties that do not follow the protocol: a server that forgets, signs and asks for what it likes, members that lie.

They are the real roles with a few doors more; whoever is honest is the real role and no more. `Run` holds all parties
of a run with a few weights, under short keys, and plays its rounds for a lying server.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.errors import MessageError, PrivacyError
from blindsight.rng import science, system_bytes
from blindsight.sums import bfv
from blindsight.sums.dphe import SparseAdder
from blindsight.sums.masks import RoundSecrets
from blindsight.sums.messages import Call, Reply, Setup, model_digest
from blindsight.sums.roles import Aggregator, KeyGenerator, Member
from blindsight.sums.scheme import CONTRIBUTE, Adder, Turn
from blindsight.sums.session import default_per_position
from blindsight.sums.terms import AGGREGATOR, SPARSE_SCHEMES, Integers, Terms

VICTIM, LIAR = "ann", "eve"
MEMBERS = (VICTIM, "bob", "cem", "dia", LIAR)
DIMENSION = 12
MODEL, OTHER = (model_digest([name]) for name in (b"the model that is learned from", b"another one"))

Updates = Mapping[str, Integers]


class _Forged(Adder):
    """Stands for a sum of the server's own making."""

    body: bytes

    def check(self, step: str, member: str, reply: Reply) -> None:
        return None

    def add(self, step: str, member: str, checked: None) -> None:
        return None

    def request(self) -> bytes:
        return self.body


class LyingServer(Aggregator):
    """An aggregator that signs and asks for what it likes."""

    @property
    def handed(self) -> Setup:
        """What the key generator has given to it."""
        return self._ready[1]

    def pretend(self, model: bytes) -> None:
        """Go on as if the round were learned from another model."""
        self._model = model

    def call(self, turn: Turn, step: str, model: bytes, body: bytes) -> bytes:
        """Return a signed call of any content."""
        return self.roster.signed(self._key, AGGREGATOR, Call(self.roster.digest, *turn, "", step, model, body, b""))

    def unsealed(self, reply: bytes) -> tuple[str, bytes]:
        """Return who sent a reply of the present round, and its body."""
        message = decode(reply, Reply)
        member = decode(message.receipt, Signed).author
        return member, self._unsealed(member, message.body)

    def added(self, bodies: Mapping[str, bytes]) -> bytes:
        """Return the body of the request for the sum of these contributions."""
        _, setup, roster = self._ready
        kind: type[Adder] = SparseAdder if self.terms.sparse else bfv.LatticeAdder
        adder = kind(roster, setup, self._turn, self.resources)
        for name, body in bodies.items():
            adder.add(CONTRIBUTE, name, adder.check(CONTRIBUTE, name, Reply(b"", body)))
        return adder.request()

    def shards(self, bodies: Mapping[str, bytes]) -> Iterator[tuple[Ciphertexts, Ciphertexts]]:
        """Yield sparse contributions of all blocks, in the order of phi, and the tag of each."""
        _, setup, roster = self._ready
        adder = SparseAdder(roster, setup, self._turn, self.resources)
        for name, body in bodies.items():
            checked = adder.check(CONTRIBUTE, name, Reply(b"", body))
            yield checked.ciphertexts[0][np.argsort(checked.places[0])], checked.tag

    def ask(self, turn: Turn, receipts: Mapping[str, bytes], body: bytes) -> bytes:
        """Return the request to open a body of any content under these members' receipts."""
        _, setup, roster = self._ready
        forged = _Forged(roster, setup, turn, self.resources)
        forged.members, forged.body = tuple(sorted(receipts)), body
        self._turn, self._step, self._adder, self._receipts = turn, "", forged, dict(receipts)
        return self.request()


class LyingMember(Member):
    """A member that can lie."""

    def say(self, step: str, turn: Turn, model: bytes, body: bytes) -> bytes:
        """Return a well-signed reply of any content."""
        return self._vouch(step, turn, model, body)

    def twin(self) -> "LyingMember":
        """Return the same member as it is now, to do the same step twice."""
        return LyingMember(self.name, self.terms, state=self._state)

    @property
    def secrets(self) -> RoundSecrets:
        """What it keeps of a masked round."""
        return decode(self._state.secrets, RoundSecrets)

    @property
    def handed(self) -> Setup:
        """What the key generator has given to it."""
        return decode(self._state.setup, Setup)


class Run:
    """All parties of a run with a few weights."""

    def __init__(self, scheme: str, *, members: Sequence[str] = MEMBERS, **options: Any) -> None:
        if scheme in SPARSE_SCHEMES:
            few = {"capacity": DIMENSION, "minimum_per_position": default_per_position(len(members)), "block": 4}
            few |= {"block": 1} if scheme == "dphe" else {}
            options = few | {"key_bits": 1024, "insecure": True} | options
        fixed: dict[str, Any] = {"run": "audit", "dimension": DIMENSION, "fraction_bits": 16}
        self.terms = Terms(scheme=scheme, members=tuple(members), **fixed | options)
        self.generator, self._seed = KeyGenerator(self.terms), system_bytes(32)
        self.members = {name: LyingMember(name, self.terms) for name in members}
        for party in (*self.members.values(), LyingServer(self.terms, seed=self._seed)):
            self.generator.enrol(party.enrolment())
        self.set_up()

    def set_up(self) -> None:
        """Hand out keys, the first or new ones."""
        self._setups = self.generator.setup()
        for name, member in self.members.items():
            member.accept(self._setups[name])

    def server(self) -> LyingServer:
        """Return the server as it is before the first round: what it did since, it has forgotten."""
        server = LyingServer(self.terms, seed=self._seed)
        server.accept(self._setups[AGGREGATOR])
        return server

    def play(
        self,
        turn: Turn,
        updates: Updates,
        *,
        model: bytes = MODEL,
        models: Mapping[str, bytes] | None = None,
        lies: Callable[[LyingServer, dict[str, bytes]], bytes] | None = None,
    ) -> tuple[Integers | None, LyingServer, dict[str, bytes]]:
        """Play a round of these members: return the sum if one is opened, the server, and the contributions.

        The server may have `models` for single members. `LIAR` contributes what `lies` makes of what the others sent.
        Who refuses is left out, as a server would do.
        """
        server, sent = self.server(), dict[str, bytes]()
        server.open(turn[0], attempt=turn[1], model=model)
        names = sorted(updates, key=lambda name: (name == LIAR, name))
        while server.step:
            for name in names:
                server.pretend((models or {}).get(name, model))
                if name not in server.awaited:
                    continue
                try:
                    call = server.calls(only=[name])[name]
                    if server.step == CONTRIBUTE and name == LIAR and lies is not None:
                        reply = lies(server, sent)
                    else:
                        reply = self.members[name].answer(call, updates[name] if server.step == CONTRIBUTE else None)
                    server.receive(reply)
                    if server.step == CONTRIBUTE:
                        sent[name] = reply
                except (MessageError, PrivacyError):
                    continue
            server.pretend(model)
            try:
                server.advance()
            except PrivacyError:
                return None, server, sent
        return self.conclude(server), server, sent

    def conclude(self, server: LyingServer, request: bytes | None = None) -> Integers | None:
        """Return the sum that is opened for a server, by default the one it has added up; None if none is."""
        try:
            if not self.terms.keyed:
                return server.conclude()[1].integers
            return server.conclude(self.generator.answer(request or server.request()))[1].integers
        except (MessageError, PrivacyError):
            return None

    def updates(self, *, dead: Sequence[str] = ()) -> dict[str, Integers]:
        """Return an update for everybody, without a zero; those of the `dead` are nothing but zeros."""
        rng = science(len(self.members))
        drawn = {name: rng.integers(1, 1 << 14, self.terms.dimension) for name in self.terms.members}
        return {name: update * (name not in dead) for name, update in drawn.items()}
