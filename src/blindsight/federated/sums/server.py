"""The server of a run across machines: it sets everybody up, calls for contributions, and finds out their sum.

*The guarantee.* What it adds up are the exact integers of those whose contributions counted, whatever is lost, doubled,
late, forged or garbage on the way, and whoever is killed. A round ends with those who came before its deadline, if
they are at least `minimum`. A server that was killed goes on with the attempt it had begun (DPHE, BFV) or begins
another (masks); users answer an attempt in one way only, and a round that has a sum keeps it.

*What it takes on trust.* Another attempt at a round asks for the same updates again, perhaps of other users. A server
that lied about an attempt having failed could subtract one sum from the other.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.courier import Courier, Reply
from blindsight.federated.sums.aggregatorend import AGGREGATOR_ENDS, UnansweredError
from blindsight.federated.sums.messages import Call, Contribution, Step
from blindsight.federated.sums.orders import lesson_of, next_attempt, ordinal, readable, same_lesson, sign_order
from blindsight.federated.sums.runterms import briefing_digest
from blindsight.federated.sums.serverrun import ServerRun
from blindsight.learn.costs import Cost
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import KEY_GENERATOR
from blindsight.learn.session import RoundResult


@dataclass(frozen=True)
class Patience:
    """How many seconds to wait: for users in a round, for any step besides, for whoever is away to come back.

    `pause` is the least time between two tries, and `attempts` how often a round may be spoilt before it fails.
    """

    round: float = 120.0
    step: float = 60.0
    generator: float = 600.0
    attempts: int = 3
    pause: float = 1.0

    def __post_init__(self) -> None:
        """Refuse not to wait at all."""
        if not min(self.round, self.step, self.generator) > 0 or not self.pause >= 0 or self.attempts < 1:
            raise InputError("every deadline must be above 0 seconds, the pause not below, and attempts at least 1.")


class SumServer:
    """The server of one run that has been set up (`opening.open_run`)."""

    def __init__(
        self, run: ServerRun, courier: Courier, patience: Patience, *, seed: int = 0, briefing: bytes = b""
    ) -> None:
        """Go on where the run stands; users get the `briefing` with their set-up, and `seed` decides theirs."""
        if briefing_digest(briefing) != run.terms.briefing:
            raise InputError("the run began with another briefing, and its users accept no other.")
        self.run, self.terms = run, run.terms
        self._courier, self._patience, self._seed, self._briefing = courier, patience, seed, briefing
        self._end = AGGREGATOR_ENDS[self.terms.scheme](self.terms, run.folder)
        self._end.accept(run.own_setup)
        self._ready: set[str] = set()
        self.refused: dict[str, str] = {}

    def begin(self, round: int, payload: Sequence[bytes] = ()) -> dict[str, bytes]:
        """Begin a round of learning, or go on with it; return the signed `Call` for each user that is there.

        The payload goes with every call: users refuse the call with any other.
        """
        if self._number(round, payload):
            self.refused = {}
        present = self._prepared([user for user in self.terms.users if user in self._courier.present()])
        notes = self._end.begin(self.run.progress.attempt, present, self._ask)
        self.refused |= self._end.refused
        return {user: self._call(user, note, payload) for user, note in notes.items() if user in present}

    def receive(self, user: str, reply: bytes) -> None:
        """Take in a user's `Contribution`; whatever is wrong with it is noted and changes nothing."""
        try:
            contribution = decode(reply, Contribution, max_bytes=self.terms.most_bytes)
            if contribution.attempt != self.run.progress.attempt:
                raise MessageError(
                    f"{user!r} contributes to attempt {ordinal(contribution.attempt)}, which is not the present."
                )
            for message in contribution.messages:
                self._end.receive(user, message)
            if user not in self._end.contributors:
                raise MessageError(f"{user!r} has not sent all of its contribution.")
            self.refused.pop(user, None)
        except (MessageError, PrivacyError) as error:
            self.refused[user] = readable(str(error))

    @property
    def contributors(self) -> tuple[str, ...]:
        """Whose contributions have come."""
        return self._end.contributors

    def finish(self) -> RoundResult:
        """End the round and return its sum.

        `PrivacyError` says that there are too few users, and more may contribute; `UnansweredError` that the key
        generator may be asked again; any other `MessageError` that this attempt is spoilt: `give_up`, begin another.
        """
        answer, total = self._answer()
        self.run.keep_answer(self.run.progress.attempt, answer)
        return self._concluded(total)

    def play(self, round: int, payload: Sequence[bytes]) -> RoundResult:
        """Play one round: call for contributions, with what is to be learned from, and add up what comes in time.

        A round that was played before, by a server that was killed since, has the same sum as then.
        """
        if self._has_sum(round):
            attempt = self.run.progress.attempt
            return self._concluded(self._end.read(self.run.answer(attempt), attempt))
        until, spoilt = time.monotonic() + self._patience.generator, 0
        while True:
            try:
                self._gather(round, payload)
                return self.finish()
            except UnansweredError:
                raise
            except PrivacyError as error:
                if time.monotonic() > until:
                    raise PrivacyError(f"{error}{self._complaints()}") from None
            except MessageError as error:
                spoilt += 1
                self.give_up()
                if spoilt == self._patience.attempts:
                    raise MessageError(f"round {round} failed {spoilt} times, at last because {error}") from None
            time.sleep(self._patience.pause)

    def give_up(self) -> None:
        """Let the next `begin` be another attempt."""
        self.run.progress.open = False
        self.run.keep_progress()

    def _has_sum(self, round: int) -> bool:
        now = self.run.progress
        return now.round == round and self.run.has_answer(now.attempt)

    def _concluded(self, total: Total) -> RoundResult:
        """Remember whose contributions are in the sum, and return it."""
        now = self.run.progress
        now.open = False
        now.counted |= dict.fromkeys(total.users, now.attempt)
        self.run.keep_progress()
        self.run.forget_answers()
        nowhere = np.empty(0, dtype=np.int64)  # only users know which blocks were withheld
        cost = Cost(self.terms.users, (), ())
        return RoundResult(now.round, total.users, total.integers, total.values, nowhere, dict(self.refused), cost)

    def _gather(self, round: int, payload: Sequence[bytes]) -> None:
        """Call upon those whose contributions are missing, and take in what comes before the deadline."""
        calls = {user: call for user, call in self.begin(round, payload).items() if user not in self.contributors}
        tickets = {self._courier.send(user, "contribute", (call, *payload)): user for user, call in calls.items()}
        for ticket, reply in self._courier.collect(tickets, seconds=self._patience.round):
            self.take(tickets[ticket], reply)

    def take(self, user: str, reply: Reply) -> None:
        """Take in what a user replied to its call."""
        if reply.error:
            self.refused[user] = readable(reply.error)
        elif len(reply.parts) != 1:
            self.refused[user] = "it sent something that is no contribution."
        else:
            self.receive(user, reply.parts[0])

    def _number(self, round: int, payload: Sequence[bytes]) -> bool:
        """Begin another attempt, unless one at this round with this payload is open and can go on; tell which."""
        now = self.run.progress
        if round < now.round:
            raise InputError(f"the run is at round {now.round}; there is no way back to round {round}.")
        if self._has_sum(round):
            raise InputError(f"round {round} has its sum already. Play the next.")
        goes_on = now.open and now.round == round and same_lesson(now.attempt, lesson_of(payload))
        if goes_on and self.terms.scheme != "masks":
            return False
        now.round, now.attempt, now.open = round, next_attempt(now.attempt, payload), True
        self.run.keep_progress()
        return True

    def _prepared(self, present: Collection[str]) -> list[str]:
        """Give the key generator's letter to those who may not have it; return those who are ready."""
        run = self.terms.run.encode()
        tickets = {
            self._courier.send(user, "set-up", (run, self.run.letters[user], self._briefing)): user
            for user in present
            if user not in self._ready
        }
        for ticket, reply in self._courier.collect(tickets, seconds=self._patience.step):
            if reply.error:
                self.refused[tickets[ticket]] = reply.error
            else:
                self._ready.add(tickets[ticket])
        return [user for user in present if user in self._ready]

    def _call(self, user: str, note: bytes, payload: Sequence[bytes]) -> bytes:
        now = self.run.progress
        settles = now.counted.get(user, -1)
        answer = self.run.answer(settles) if settles >= 0 else b""
        call = Call(self.terms.run, user, now.round, now.attempt, self._seed, settles, answer, note)
        return sign_order(self.run.identity, "contribute", call, payload)

    def _answer(self) -> tuple[bytes, Total]:
        """Find out the sum; a key generator that is away is waited for, and asked for the same again."""
        until = time.monotonic() + self._patience.generator
        while True:
            try:
                return self._end.finish(self._ask)
            except UnansweredError:
                if time.monotonic() > until:
                    raise
            except (MessageError, PrivacyError) as error:
                error.args = (readable(str(error)),)
                raise
            finally:
                self.refused |= self._end.refused
            time.sleep(self._patience.pause)

    def _ask(self, kind: str, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Ask parties for a step of the present attempt; a key generator's refusal ends the attempt."""
        if KEY_GENERATOR in messages and KEY_GENERATOR not in self._courier.present():
            return {}
        tickets = {
            self._courier.send(party, kind, (self._step(party, kind, message),)): party
            for party, message in messages.items()
        }
        answers = {}
        for ticket, reply in self._courier.collect(tickets, seconds=self._patience.step):
            party = tickets[ticket]
            if reply.error and party == KEY_GENERATOR:
                raise MessageError(f"the key generator refused: {readable(reply.error)}")
            if reply.error:
                self.refused[party] = readable(reply.error)
            elif len(reply.parts) == 1:
                answers[party] = reply.parts[0]
        return answers

    def _step(self, party: str, kind: str, message: bytes) -> bytes:
        """Return a step of the present attempt; what the key generator is asked for bears receipts instead."""
        step = Step(self.terms.run, self.run.progress.attempt, message)
        return encode(step) if party == KEY_GENERATOR else sign_order(self.run.identity, kind, step)

    def _complaints(self) -> str:
        return "".join(f" {user}: {sentence}" for user, sentence in sorted(self.refused.items()))
