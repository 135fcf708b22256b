"""The roles of a run, written once for all schemes: member, aggregator, and the key generator (`generator`).

They exchange bytes.

*What holds against a hostile server and network*, whatever they lose, forge, repeat, reorder or try again:

- A *member* does what the aggregator signed, each step of an attempt once: asked again in the same words it answers the
  same, asked in others it refuses. It contributes to a round only if the terms say that it is asked there, one update a
  round, and from a model that it has not answered before. After a sum of zeros, which does not move the model, it may
  answer again if the key generator signed that sum, and under masks if its own update was zero, too. (So it does not
  give two updates other than zero from one model. An aggregator that signs zeros in the place of a sum and asks again
  learns from who answers which updates were nothing but zeros.) Under a keyed scheme there is one attempt at a round.
  Under masks it takes part in another attempt, with the same update and new masks, until it has revealed shares; then
  the round is over for it. In schemes with fixed cohorts it remembers no models, for nothing rests on them. It stops
  when more members may have been missing from sums than the terms allow. Under masks it counts those missing from the
  sets that it has revealed shares for; under a keyed scheme the key generator signs who was in a sum, and of one that
  it was not shown a member assumes the worst.
- The *key generator* opens a round at most once, for signed receipts of enough members that name the same model, and
  only what it can check to be their sum (`mac`). Asked again for that round it gives the recorded answer, whatever
  comes with the request. What fails uses up a round for which a member has signed, and gets one sentence, whatever the
  reason. What was decrypted and is no sum of theirs also uses up the key: that it was refused tells something about it.
  The log says what happened.
- What the two services say to each other is sealed, refusals too, and so are contributions to them: who is neither can
  only lose it.

With a `path`, a role's state is on disk before anything that depends on it leaves, readable by its owner alone. A copy
must never be put back in its place: a role that forgot what it answered could answer again, differently. A symbolic
link is another name of the same file; hard links are refused, since each would become a copy when the file is replaced.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import CorruptFileError, InputError, MessageError, PrivacyError
from blindsight.files import AnyPath, as_path, only_link
from blindsight.sums.messages import (
    RECEIPT_BYTES,
    Answer,
    Call,
    Enrolment,
    MemberState,
    MessageJournal,
    Receipt,
    Refusal,
    Reply,
    Request,
    Roster,
    RoundBegun,
    Setup,
    StepClosed,
    model_digest,
    read_state,
    refuse_to_overwrite,
    state_errors,
    write_state,
)
from blindsight.sums.scheme import CONTRIBUTE, Adder, MemberPart, Opened, Resources, Turn
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Integers, Terms

Record = Callable[[bytes], object]
"""Called with each message a role receives, after unsealing: a view holds whatever secrets the role was handed."""

_KEPT_BYTES = 1 << 17  # a member without a path keeps no longer replies: a thousand of them may be in one process
_MODELS = 1024  # that a member remembers to have answered


def forget(message: bytes) -> None:
    """Keep nothing: the default of every role."""


@dataclass(frozen=True, eq=False)
class Total:
    """The sum of one round: whose contributions it holds, as exact integers and as the weights they stand for."""

    round: int
    members: tuple[str, ...]
    integers: Integers
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcome(Total):
    """A round's sum as one member sees it; `entered` marks the weights at which its own update is part of it."""

    entered: NDArray[np.bool_]


class Role(Secret):
    """What all roles have in common: terms, a signing key, a state that may be kept, and after set-up the roster."""

    _key: SigningKey
    _state: Any

    def __init__(
        self, name: str, terms: Terms, path: AnyPath | None, resources: Resources | None, record: Record
    ) -> None:
        self.name, self.terms, self.resources = name, terms, resources or Resources()
        self._path, self._record = path if path is None else only_link(as_path(path)), record

    def _keep(self, state: Any) -> None:
        if self._path is not None:
            write_state(only_link(self._path), state)
        self._state = state

    def enrolment(self) -> bytes:
        return encode(Enrolment(self.name, self.terms.digest, self._key.public))

    def _read_setup(self, setup: bytes, known: bytes) -> tuple[Setup, Roster]:
        """Return a set-up that is for this party: the first, the same again, or one with a new key after a forgery."""
        message = decode(setup, Setup)
        roster = Roster.from_bytes(message.roster, expected=self.terms)
        if roster.keys.get(self.name) != self._key.public:
            raise MessageError(f"the set-up is not for {self.name!r} as it enrolled.")
        if known and known != setup:
            before = Roster.from_bytes(decode(known, Setup).roster, expected=self.terms)
            if not self.terms.keyed or roster.generation <= before.generation or roster.keys != before.keys:
                raise MessageError(f"{self.name!r} was already set up, differently.")
        return message, roster


class Member(Role):
    """One member of a run."""

    _state: MemberState

    def __init__(
        self,
        name: str,
        terms: Terms,
        *,
        path: AnyPath | None = None,
        resources: Resources | None = None,
        record: Record = forget,
        state: MemberState | None = None,
    ) -> None:
        """Make a member with a new signing key; `load` goes on with an old one."""
        super().__init__(name, terms, path, resources, record)
        if name not in terms.members:
            raise InputError(f"{name!r} does not take part in the run {terms.run!r}.")
        if state is None:
            refuse_to_overwrite(path)
            seed = SigningKey.generate(self.resources.source).secret_bytes()
            secrets = terms.traits.member.prepared(self.resources.source)
            self._keep(MemberState(terms.to_bytes(), name, seed, secrets=secrets))
        else:
            self._state = state
        self._key = SigningKey(self._state.seed)

    @classmethod
    def load(cls, path: AnyPath, *, resources: Resources | None = None, record: Record = forget) -> "Member":
        """Go on where the member that kept its state at `path` stopped, in the middle of a round or not."""
        state = read_state(path, MemberState)
        with state_errors(path):
            terms = Terms.from_bytes(state.terms)
            return cls(state.member, terms, path=path, resources=resources, record=record, state=state)

    @property
    def roster(self) -> Roster:
        return self._part.roster

    def enrolment(self) -> bytes:
        if self._state.setup:
            exchange = self.roster.exchange.get(self.name, b"")
        else:
            exchange = self.terms.traits.member.exchange_key(self._state.secrets)
        return encode(Enrolment(self.name, self.terms.digest, self._key.public, exchange))

    def accept(self, setup: bytes) -> None:
        """Receive the roster and the secrets that are for this member (Algorithm 1 of DPHE, step 2)."""
        self._record(setup)
        message, roster = self._read_setup(setup, self._state.setup)
        if setup == self._state.setup:
            return
        part = self._make_part(message, roster)  # refuses keys that do not fit
        state = replace(self._state, setup=setup, secrets=part.begun(self._state.secrets))
        if state.round == message.void and state.over:  # nothing of that round was opened
            state = replace(state, answered=state.answered[:-32], asked=b"settled", sent=b"")
        self._keep(state)
        self.__dict__.pop("_part", None)

    def answer(self, call: bytes, integers: Integers | None = None) -> bytes:
        """Do a step of a round and return the reply; to contribute, bring the encoded update (`Terms.integers`)."""
        self._record(call)
        roster, state = self.roster, self._state
        _, message = roster.open(call, Call, authors=[AGGREGATOR])
        turn = message.round, message.attempt
        if integers is not None:
            integers = self.terms.checked(integers)
        proposal = b"" if integers is None else hashlib.sha256(integers.tobytes()).digest()
        asked = model_digest((message.step.encode(), message.model, message.body, proposal))
        if (*turn, message.step) == (state.round, state.attempt, state.step):
            if asked != state.asked or not state.sent:
                raise PrivacyError(
                    f"{self.name!r} has done this step of round {message.round} already and does so once: "
                    f"{message.step}."
                )
            return state.sent
        self._check_call(message)
        if message.step == CONTRIBUTE:
            self._check_proposal(message, proposal)
        body, secrets = self._part.answer(message, integers, state.secrets)
        sent = self._vouch(message.step, turn, message.model, body)
        last = message.step == self._part.steps[-1]
        state = replace(
            state,
            round=message.round,
            attempt=message.attempt,
            step=message.step,
            asked=asked,
            sent=sent if self._path is not None or len(sent) <= _KEPT_BYTES else b"",
            secrets=secrets,
            proposal=proposal or (state.proposal if message.round == state.round else b""),
            over=last,
            missed=self._missed(message.round) + self._part.missing(message, state.secrets),
        )
        if last and not self.terms.traits.cohorts:
            state = replace(state, answered=(state.answered + (self._learned(message) or bytes(32)))[-32 * _MODELS :])
        self._keep(state)
        return sent

    def read_call(self, call: bytes) -> Call:
        """Return a call that this member would answer, else raise; ask before you learn. `answer` checks the update."""
        state, (_, message) = self._state, self.roster.open(call, Call, authors=[AGGREGATOR])
        if (message.round, message.attempt, message.step) != (state.round, state.attempt, state.step):
            self._check_call(message)
        return message

    def _learned(self, call: Call) -> bytes:
        """Return the digest of what is learned from once.

        Under masks: the weights, since a member knows whether it helped to open what it learned from them. Under a
        keyed scheme it does not, and a round never opened must not keep it from the next: there, other settings make
        another model.
        """
        return call.base if call.base and self.terms.traits.threshold else call.model

    def _check_proposal(self, call: Call, proposal: bytes) -> None:
        if not proposal:
            raise InputError(f"{self.name!r} is asked to contribute and has no update.")
        if call.round == self._state.round and self._state.proposal not in (b"", proposal):
            raise PrivacyError(f"{self.name!r} contributes one update to round {call.round}, and has another already.")

    def _check_call(self, call: Call) -> None:
        state, part, turn = self._state, self._part, (call.round, call.attempt)
        if call.member not in ("", self.name):
            raise MessageError(f"the call is for {call.member!r}; this is {self.name!r}.")
        if call.step not in part.steps or call.round < 0 or call.attempt < 0:
            raise MessageError(f"members of {self.terms.scheme} are not asked to {call.step!r}.")
        if not {len(call.model), len(call.base)} <= {0, 32}:
            raise MessageError("the digest of a model has 32 bytes.")
        if self.name not in self.terms.sampled(call.round):
            raise PrivacyError(f"the terms of the run do not ask {self.name!r} in round {call.round}.")
        if call.attempt and self.terms.traits.cohorts:
            raise PrivacyError(f"{self.terms.scheme} has one attempt at a round; got attempt {call.attempt}.")
        if turn < (state.round, state.attempt):
            raise MessageError(
                f"the call to round {call.round} comes too late: {self.name!r} is in round {state.round}."
            )
        if call.model and not self.terms.traits.cohorts and self._learned(call) in _split(state.answered):
            raise PrivacyError(f"{self.name!r} has answered this model before, and learns from a model once.")
        if turn == (state.round, state.attempt):
            if part.steps.index(call.step) != part.steps.index(state.step) + 1:
                raise PrivacyError(f"{self.name!r} does not do {call.step!r} after {state.step!r}: each step once.")
        elif not part.begins(call.step, turn, state.secrets):
            raise MessageError(f"{self.name!r} begins a round with {part.steps[0]!r}; got {call.step!r}.")
        elif call.round == state.round and (state.over or self.terms.keyed):
            raise PrivacyError(f"round {call.round} is over for {self.name!r}: its sum is opened at most once.")
        if 0 <= self.terms.absences < (missed := self._missed(call.round)):
            raise PrivacyError(
                f"up to {missed} members have been missing from the sums of this run; {self.name!r} takes part while "
                f"they are at most {self.terms.absences}."
            )

    def _missed(self, round: int) -> int:
        """Return how many members may have been missing before a round.

        Members that open a sum themselves know. Under a keyed scheme it is as many as can, where no answer was seen.
        """
        state, terms = self._state, self.terms
        if not state.over or state.asked == b"settled" or round <= state.round or terms.traits.threshold:
            return state.missed
        return state.missed + terms.asked - terms.minimum

    def read(self, answer: bytes, round: int) -> Outcome:
        """Read the signed answer of a round: the sum, and where this member's update is part of it."""
        self._record(answer)
        message, sums = read_answer(self.roster, answer, round)
        entered = self._part.released(message) & (self.name in message.members)
        return Outcome(round, message.members, sums, self.terms.values(sums), entered)

    def settle(self, answer: bytes, round: int) -> Outcome:
        """Read the answer of this member's last round, note absences; forget the model if nothing came of it."""
        outcome, state = self.read(answer, round), self._state
        if self.terms.traits.cohorts or round != state.round or not state.over or state.asked == b"settled":
            return outcome
        unseen = 0 if self.terms.traits.threshold else self.terms.asked - len(outcome.members)
        zeros = outcome.integers.size and not outcome.integers.any()  # a brief answer is not of zeros
        again = zeros and (self.terms.keyed or self._had_no_update())  # an aggregator may sign any sum
        answered = state.answered[:-32] if again else state.answered
        self._keep(replace(state, missed=state.missed + unseen, answered=answered, asked=b"settled", sent=b""))
        return outcome

    def _had_no_update(self) -> bool:
        zeros = np.zeros(self.terms.dimension, dtype=np.int64)
        return self._state.proposal == hashlib.sha256(zeros.tobytes()).digest()

    @cached_property
    def _part(self) -> MemberPart:
        if not self._state.setup:
            raise InputError(f"{self.name!r} is not set up yet. Give it the key generator's message first.")
        setup = decode(self._state.setup, Setup)
        return self._make_part(setup, Roster.from_bytes(setup.roster, expected=self.terms))

    def _make_part(self, setup: Setup, roster: Roster) -> MemberPart:
        return self.terms.traits.member(self.name, roster, setup, self.resources, self._vouch)

    def _vouch(self, step: str, turn: Turn, model: bytes, body: bytes) -> bytes:
        """Return a reply: a signed receipt, and the body, sealed for the aggregator where it could be decrypted."""
        roster = self._part.roster
        receipt = Receipt(roster.digest, *turn, step, model, hashlib.sha256(body).digest())
        if self.terms.traits.sealed:
            body = seal(
                self._part.setup.own[0], body, purpose=body_purpose(self.name, turn), source=self.resources.source
            )
        return encode(Reply(roster.signed(self._key, self.name, receipt), body))


class Aggregator(Role):
    """The server: adds up contributions that it cannot read.

    A reply that is damaged, forged, late, different from an earlier one, for another round or from a stranger is
    refused with a sentence and changes nothing. With a `path`, a journal holds each accepted reply before it is
    acknowledged: an aggregator that was killed goes on where it was, also between the shares that unmask a sum.
    """

    _state: RoundBegun

    def __init__(
        self,
        terms: Terms,
        *,
        path: AnyPath | None = None,
        resources: Resources | None = None,
        record: Record = forget,
        seed: bytes = b"",
    ) -> None:
        super().__init__(AGGREGATOR, terms, path, resources, record)
        refuse_to_overwrite(path)
        self.refused = 0
        self.step = ""
        """The step being answered; empty before the first and after the last."""
        self._key = SigningKey(seed) if seed else SigningKey.generate(self.resources.source)
        self._journal = MessageJournal(path) if path else None
        self._setup: tuple[bytes, Setup, Roster] | None = None
        self._adder: Adder | None = None
        self._expected: tuple[str, ...] = ()
        self._heard: dict[str, bytes] = {}
        self._receipts: dict[str, bytes] = {}
        self._keep(RoundBegun(terms.to_bytes(), self._key.secret_bytes()))

    @classmethod
    def load(cls, path: AnyPath, *, resources: Resources | None = None, record: Record = forget) -> "Aggregator":
        """Go on where the aggregator that kept its journal at `path` stopped, in the middle of a round or not."""
        journal = MessageJournal(path)
        messages = journal.messages()
        try:
            begun = decode(next(messages, b""), RoundBegun)
            aggregator = cls(Terms.from_bytes(begun.terms), resources=resources, seed=begun.seed)
            if begun.setup:
                aggregator.accept(begun.setup)
            if begun.round >= 0:
                aggregator._open(begun)
            for message in messages:
                if isinstance(decode(message, StepClosed, Reply), StepClosed):
                    aggregator.advance()
                else:
                    aggregator._receive(message)
        except (MessageError, PrivacyError, ValueError) as error:
            raise CorruptFileError(f"{path} is not an aggregator's journal: {error}") from error
        aggregator._journal, aggregator._record = journal, record
        return aggregator

    @property
    def roster(self) -> Roster:
        return self._ready[2]

    @property
    def round(self) -> int:
        """The round that was opened last; -1 if none was."""
        return self._state.round

    @property
    def attempt(self) -> int:
        return self._state.attempt

    @property
    def model(self) -> bytes:
        return self._state.model

    @property
    def void(self) -> int:
        """The last round that was used up, with its key, by a forged sum; -1 if none was."""
        return self._ready[1].void

    @property
    def _turn(self) -> Turn:
        return self._state.round, self._state.attempt

    @property
    def awaited(self) -> tuple[str, ...]:
        return tuple(name for name in self._expected if name not in self._heard)

    @property
    def complete(self) -> bool:
        """Tell whether enough members have answered the present step to end it."""
        return not self.step or self._begun.suffices(self.step, tuple(sorted(self._heard)))

    @property
    def may_end(self) -> bool:
        """Return True if the present step can be ended without those who have not answered."""
        return not self.step or self._begun.may_end(self.step, tuple(sorted(self._heard)))

    @property
    def contributors(self) -> tuple[str, ...]:
        return tuple(sorted(self._receipts))

    @property
    def ciphertexts(self) -> Mapping[str, int]:
        """How many ciphertexts each member sent in this round, and the aggregator asked to decrypt."""
        return {} if self._adder is None else self._adder.ciphertexts

    def accept(self, setup: bytes) -> None:
        self._record(setup)
        message, roster = self._read_setup(setup, self._state.setup)
        if setup == self._state.setup:
            return
        if self.terms.keyed and len(message.own) != len(self.terms.members):
            raise MessageError("the set-up does not have one secret per member.")
        self._keep(replace(self._state, setup=setup, early=(), ahead=()))
        self._setup, self._adder, self.step = (setup, message, roster), None, ""

    @property
    def _ready(self) -> tuple[bytes, Setup, Roster]:
        if self._setup is None:
            raise InputError("the aggregator is not set up yet. Give it the key generator's message first.")
        return self._setup

    def open(self, round: int, *, model: bytes = b"", base: bytes = b"", attempt: int = 0) -> None:
        """Begin a round, or another attempt at it; numbers go up, and what is unfinished is given up."""
        if (round, attempt) <= self._turn or round < 0:
            raise InputError(f"rounds count up from 0: after round {self.round} there is no round {round}.")
        before = self._adder
        early = {} if before is None else before.carried((round, attempt))
        begun = replace(self._state, round=round, attempt=attempt, model=model, base=base)
        self._open(replace(begun, early=tuple(early), ahead=tuple(early.values())))

    def _open(self, begun: RoundBegun) -> None:
        _, setup, roster = self._ready
        adder = self.terms.traits.adder(roster, setup, (begun.round, begun.attempt), self.resources)
        adder.model = begun.model
        adder.follow(dict(zip(begun.early, begun.ahead, strict=True)))
        self._keep(begun)
        self._adder, self._receipts = adder, {}
        self._begin(adder.steps[0], adder.asked(self.terms.sampled(begun.round)))

    def _begin(self, step: str, expected: tuple[str, ...]) -> None:
        self.step, self._expected, self._heard = step, expected, {}
        if step and self._adder is not None:
            self._heard = dict.fromkeys(self._adder.already(step), b"")

    def calls(self, notes: Mapping[str, bytes] | None = None, only: Collection[str] | None = None) -> dict[str, bytes]:
        """Return the signed call of the present step for each member (of `only` these) that has not answered it."""
        asked, notes = self.awaited if only is None else tuple(only), notes or {}
        told = self._begun.bodies(self.step, asked)
        readers: dict[tuple[bytes, bytes], list[str]] = {}
        for name in asked:
            readers.setdefault((told.get(name, b""), notes.get(name, b"")), []).append(name)
        calls: dict[str, bytes] = {}
        for (body, note), names in readers.items():  # what is for several members is signed once
            to = names[0] if len(names) == 1 else ""
            model, base = (b"", b"") if self.step == "advertise" else (self._state.model, self._state.base)
            call = Call(self.roster.digest, *self._turn, to, self.step, model, body, note, base)
            calls |= dict.fromkeys(names, self.roster.signed(self._key, AGGREGATOR, call))
        return calls

    def receive(self, reply: bytes) -> str:
        """Take in a member's reply and return its name; what is wrong with one raises and changes nothing."""
        try:
            return self._receive(reply)
        except MessageError:
            self.refused += 1
            raise

    def _receive(self, reply: bytes) -> str:
        message = decode(reply, Reply, max_bytes=self.terms.most_bytes)
        adder = self._begun
        member, receipt = self.roster.open(
            message.receipt, Receipt, authors=self.terms.members, max_bytes=RECEIPT_BYTES
        )
        if (receipt.round, receipt.attempt) != self._turn:
            raise MessageError(f"{member!r} speaks of round {receipt.round}; this is round {self.round}.")
        if receipt.step not in adder.steps:
            raise MessageError(f"{member!r} answers to a step that there is not.")
        digest = hashlib.sha256(message.receipt).digest()
        if self._heard.get(member) == digest and receipt.step == self.step:
            return member
        order = adder.steps.index(receipt.step) - (adder.steps.index(self.step) if self.step else len(adder.steps))
        if order:
            raise MessageError(
                f"{member!r} answers {receipt.step!r} too {'late' if order < 0 else 'early'} in round {self.round}."
            )
        if receipt.model != (b"" if receipt.step == "advertise" else self.model):
            raise MessageError(f"{member!r} contributes to round {self.round} with another model.")
        if member in self._heard:
            raise MessageError(f"{member!r} has sent something else in round {self.round} already.")
        if member not in self._expected:
            raise MessageError(f"{member!r} is not asked in round {self.round}, or has dropped out of it.")
        body = self._unsealed(member, message.body)
        if hashlib.sha256(body).digest() != receipt.body:
            raise MessageError(f"the receipt of {member!r} is for another body than it came with.")
        message = Reply(message.receipt, body)
        if self._record is not forget:
            self._record(encode(message))
        checked = adder.check(self.step, member, message)
        self._append(reply)
        adder.add(self.step, member, checked)
        self._heard[member] = digest
        if self.step == CONTRIBUTE:
            self._receipts[member] = message.receipt
        return member

    def _unsealed(self, member: str, body: bytes) -> bytes:
        if not self.terms.traits.sealed:
            return body
        secret = self._ready[1].own[self.terms.members.index(member)]
        return unseal(secret, body, purpose=body_purpose(member, self._turn))

    def advance(self) -> str:
        """End the present step, return the next or ""; too few members raise `PrivacyError` and leave it open."""
        adder, step = self._begun, self.step
        if not step:
            return ""
        going_on = adder.close(step, tuple(sorted(self._heard)))
        self._append(encode(StepClosed(step)))
        place = adder.steps.index(step) + 1
        self._begin(adder.steps[place] if place < len(adder.steps) else "", going_on)
        return self.step

    def request(self) -> bytes:
        """Return the sealed request to the key generator; asked again, also after a restart, it is for the same sum."""
        adder, setup = self._done, self._ready[1]
        receipts = tuple(self._receipts[member] for member in adder.members)
        request = encode(Request(self.roster.digest, *self._turn, receipts, adder.request()))
        if not self.terms.traits.sealed:
            return request
        return seal(setup.channel, request, purpose=REQUEST, source=self.resources.source)

    def conclude(self, answer: bytes = b"") -> tuple[bytes, Total]:
        """Return the signed answer of the round, for all members, and the sum in it.

        `answer` is what the key generator replied to the request. What it refuses raises `PrivacyError`; what did not
        come from it raises `MessageError`, and it may be asked again.
        """
        if not self.terms.keyed:
            return self._own_answer(self._done.opened())
        setup = self._ready[1]
        if self.terms.traits.sealed:
            answer = unseal(setup.channel, answer, purpose=ANSWER)
        self._record(answer)
        kinds: tuple[type[Any], ...] = (Answer, Refusal)
        _, message = self.roster.open(answer, *kinds, authors=[KEY_GENERATOR], turn=self._turn)
        if isinstance(message, Refusal):
            raise RefusedError(message.sentence, renewed=message.renewed)
        if message.members != self._done.members:
            raise MessageError("the answer names other members than the request did.")
        sums = self.terms.read_sums(message.sums, len(message.members))
        return answer, Total(self.round, message.members, sums, self.terms.values(sums))

    def _own_answer(self, opened: Opened) -> tuple[bytes, Total]:
        sums = self.terms.residues(opened.sums).tobytes()
        answer = Answer(self.roster.digest, *self._turn, opened.members, sums, b"")
        total = Total(self.round, opened.members, opened.sums, self.terms.values(opened.sums))
        return self.roster.signed(self._key, AGGREGATOR, answer), total

    def brief(self, answer: bytes) -> bytes:
        """Return an answer without its sums, for members that have them from the next model.

        Left as they are: what a key generator signed, and a sum of zero (after which the model is the same).
        """
        if self.terms.keyed:
            return answer
        _, message = self.roster.open(answer, Answer, authors=[AGGREGATOR])
        if not np.frombuffer(message.sums, dtype=self.terms.residue_type).any():
            return answer
        return self.roster.signed(self._key, AGGREGATOR, replace(message, sums=b""))

    @property
    def _begun(self) -> Adder:
        if self._adder is None:
            raise MessageError("no round has begun.")
        return self._adder

    @property
    def _done(self) -> Adder:
        if self._adder is None or self.step:
            raise InputError("no sum is due: the round is not closed.")
        return self._adder

    def _keep(self, state: RoundBegun) -> None:
        """Begin the journal again."""
        if self._journal is not None:
            self._journal.restart(state)
        self._state = state

    def _append(self, message: bytes) -> None:
        if self._journal is not None:
            self._journal.append(message)


class RefusedError(PrivacyError):
    """The key generator released nothing of the round; `renewed`: there is a new key, and a new set-up for everyone."""

    def __init__(self, sentence: str, *, renewed: bool = False) -> None:
        super().__init__(sentence)
        self.renewed = renewed


def read_answer(roster: Roster, answer: bytes, round: int) -> tuple[Answer, Integers]:
    """Return a round's answer, signed by the key generator (or else the aggregator), and its sums, empty if `brief`."""
    author = KEY_GENERATOR if roster.terms.keyed else AGGREGATOR
    _, message = roster.open(answer, Answer, authors=[author])
    if message.round != round:
        raise MessageError(f"the answer is not for round {round} of this run.")
    if list(message.members) != sorted(set(message.members) & set(roster.terms.sampled(round))):
        raise MessageError("the answer names members twice, out of order, or that were not asked.")
    if not message.sums and not roster.terms.keyed:
        return message, np.empty(0, dtype=np.int64)
    return message, roster.terms.read_sums(message.sums, len(message.members))


def _split(answered: bytes) -> list[bytes]:
    return [answered[i : i + 32] for i in range(0, len(answered), 32)]


def body_purpose(member: str, turn: Turn) -> bytes:
    return b"contribution of round %d by " % turn[0] + member.encode()


REQUEST, ANSWER = b"request for decryption", b"answer to a request"
