"""The key generator: makes the keys of a run, and opens one checked sum a round (`roles` has what it guarantees)."""

import hashlib
import hmac
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from blindsight.crypto.sealedbox import of_low_order, seal, unseal
from blindsight.crypto.signing import SigningKey, of_small_order
from blindsight.crypto.wire import Message, Secret, decode, encode
from blindsight.errors import BlindsightError, InputError, MessageError, PrivacyError
from blindsight.files import AnyPath, as_path
from blindsight.rng import ByteSource, system_bytes
from blindsight.sums.messages import (
    RECEIPT_BYTES,
    Answer,
    Enrolment,
    GeneratorState,
    Key,
    Receipt,
    Refusal,
    Request,
    Roster,
    Setup,
    framed,
    read_state,
    refuse_to_overwrite,
    state_errors,
    write_state,
)
from blindsight.sums.roles import ANSWER, REQUEST, Record, Role, forget
from blindsight.sums.scheme import CONTRIBUTE, ForgedError, Opened, Opener, Resources, released_purpose
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, Terms


class KeyGenerator(Role):
    """Issues keys and secrets, and opens one checked sum a round; for masks and plain sums it only vouches for keys."""

    _state: GeneratorState

    def __init__(
        self,
        terms: Terms,
        *,
        key: Any = None,
        partition: bytes = b"",
        path: AnyPath | None = None,
        resources: Resources | None = None,
        record: Record = forget,
        state: GeneratorState | None = None,
    ) -> None:
        """Generate all keys and secrets of a run (Algorithm 1 of DPHE, step 1); an existing key pair may be given.

        `partition` is the seed of fixed cohorts, for the schemes that have them (`Partitions.seed`).
        """
        super().__init__(KEY_GENERATOR, terms, path, resources, record)
        self._opener = self._make_opener(key if state is None else state.private_key or None)
        if state is None:
            if len(partition) != (32 if terms.traits.cohorts else 0):
                raise InputError(
                    f"partition must have {32 if terms.traits.cohorts else 0} bytes under {terms.scheme}; got "
                    f"{len(partition)}. Partitions.seed gives it."
                )
            refuse_to_overwrite(path)
            self._keep(self._new_state(partition))
        else:
            self._state = state
            self._keep_key()  # if it was killed while it made one
        self._key = SigningKey(self._state.seed)

    @classmethod
    def load(cls, path: AnyPath, *, resources: Resources | None = None, record: Record = forget) -> "KeyGenerator":
        """Go on where the key generator that kept its state at `path` stopped."""
        state = read_state(path, GeneratorState)
        with state_errors(path):
            terms = Terms.from_bytes(state.terms)
            return cls(terms, path=path, resources=resources, record=record, state=state)

    @property
    def log(self) -> tuple[str, ...]:
        """A sentence for every round that was asked for: what was released, or why nothing."""
        return self._state.log

    def enrol(self, message: bytes) -> None:
        """Learn which signatures are a party's; each enrols once, through a channel that proves who it is."""
        self._record(message)
        enrolment = decode(message, Enrolment, max_bytes=4096)
        parties = (*self.terms.members, AGGREGATOR)
        if enrolment.party not in parties or len(enrolment.key) != 32:
            raise MessageError("someone who does not take part wants to enrol.")
        if enrolment.terms != self.terms.digest:
            raise PrivacyError(f"{enrolment.party!r} agreed to other terms than the key generator was asked for.")
        if of_small_order(enrolment.key):
            raise MessageError(
                f"the signing key of {enrolment.party!r} is of small order: its signatures fit anything."
            )
        paired = self.terms.traits.cohorts and enrolment.party != AGGREGATOR
        if len(enrolment.exchange) != (32 if paired else 0):
            raise MessageError(f"{enrolment.party!r} enrols with an exchange key of {len(enrolment.exchange)} bytes.")
        if paired and of_low_order(enrolment.exchange):
            raise MessageError(f"the exchange key of {enrolment.party!r} is of low order.")
        keys = dict(zip(parties, self._state.keys, strict=True))
        exchange = dict(zip(parties, self._state.exchange or (b"",) * len(parties), strict=True))
        known = keys[enrolment.party], exchange[enrolment.party]
        if known not in ((b"", b""), (enrolment.key, enrolment.exchange)):
            raise MessageError(f"{enrolment.party!r} has enrolled with another key already.")
        keys[enrolment.party], exchange[enrolment.party] = enrolment.key, enrolment.exchange
        self._keep(replace(self._state, keys=tuple(keys.values()), exchange=tuple(exchange.values())))

    @property
    def roster(self) -> Roster:
        parties, state = (*self.terms.members, AGGREGATOR), self._state
        if missing := [party for party, key in zip(parties, state.keys, strict=True) if not key]:
            raise InputError(f"not everyone has enrolled yet: {', '.join(missing)}.")
        keys = dict(zip(parties, state.keys, strict=True))
        if self.terms.keyed:
            keys[KEY_GENERATOR] = self._key.public
        digest = hashlib.sha256(state.encryption_key).digest() if state.encryption_key else b""
        exchange = zip(self.terms.members, state.exchange, strict=False) if state.partition else ()
        return Roster(self.terms, keys, digest, state.generation, dict(exchange), state.partition)

    def setup(self) -> dict[str, bytes]:
        """Return the set-up of every member and of the aggregator (Algorithm 1 of DPHE, step 2).

        They carry secrets: send each through an encrypted channel to the one it is for. Asked again, it is the same.
        """
        state, whole = self._state, self._whole()
        if not self.terms.keyed:
            bare = encode(replace(whole, shared=b"", own=(), offset=b"", channel=b""))
            return dict.fromkeys((*self.terms.members, AGGREGATOR), bare)
        setups = {
            member: encode(replace(whole, own=(own,), offset=offset, channel=b""))
            for member, own, offset in zip(self.terms.members, state.own, state.offsets, strict=True)
        }
        setups[AGGREGATOR] = encode(replace(whole, shared=b""))
        return setups

    def _whole(self) -> Setup:
        state = self._state
        return Setup(
            self.roster.to_bytes(), state.encryption_key, state.shared, state.own, b"", state.channel, state.void
        )

    def answer(self, request: bytes) -> bytes:
        """Decrypt the sum that the aggregator asks for (Algorithm 1 of DPHE, step 6), or refuse to.

        The reply is sealed for the aggregator. Only what is not the aggregator's request raises.
        """
        if self._opener is None:
            raise MessageError(f"nothing is decrypted in a run of {self.terms.scheme}.")
        if self.terms.traits.sealed:
            request = unseal(self._state.channel, request, purpose=REQUEST)
        self._record(request)
        message, state = decode(request, Request), self._state
        if message.round < 0 or message.attempt:
            raise MessageError("the request is not one of this run.")
        if message.round == state.round:
            return state.answer
        outdated = message.run != self.roster.digest
        if message.round < state.round or outdated:
            sentence = f"round {message.round} is over: a round is opened once, and the last was round {state.round}."
            return self._sealed(self._refusal(message, sentence, renewed=outdated))
        try:
            members = self._contributors(message)
            offsets = dict(zip(self.terms.members, state.offsets, strict=True))
            opened = self._opener.open(
                message.body, members, message.round, self._whole(), [offsets[member] for member in members]
            )
        except Exception as error:
            if not self._begun(message):  # nothing was decrypted
                return self._sealed(self._refusal(message, f"no member has contributed to round {message.round}."))
            return self._refused(message, error)
        entry = f"round {message.round}: the sum of {', '.join(members)} was released."
        answer = self._sealed(self._answered(message, opened))
        self._keep(replace(state, round=message.round, answer=answer, log=(*state.log, entry)))
        return answer

    def _begun(self, request: Request) -> bool:
        """Tell whether a member has signed a receipt for this round: else the request does not use it up."""
        for envelope in request.receipts:
            with suppress(MessageError):
                self.roster.open(
                    envelope, Receipt, authors=self.terms.members, turn=(request.round, 0), max_bytes=RECEIPT_BYTES
                )
                return True
        return False

    def _contributors(self, request: Request) -> tuple[str, ...]:
        """Return the members who signed the receipts, each once, for one model; raise if they are too few."""
        members: list[str] = []
        model: bytes | None = None
        asked = self.terms.sampled(request.round)
        for envelope in request.receipts:
            member, receipt = self.roster.open(
                envelope, Receipt, authors=asked, turn=(request.round, 0), max_bytes=RECEIPT_BYTES
            )
            if receipt.step != CONTRIBUTE or (model is not None and receipt.model != model):
                raise MessageError(f"the receipt of {member!r} is for another step or model.")
            members.append(member)
            model = receipt.model
        if len(set(members)) != len(members) or members != sorted(members):
            raise MessageError("a member is named twice in a request, or out of order.")
        if len(members) < self.terms.minimum:
            raise PrivacyError(f"a sum needs {self.terms.minimum} members; got {len(members)}.")
        return tuple(members)

    def _answered(self, request: Request, opened: Opened) -> bytes:
        released = b""
        if opened.released is not None:
            released = seal(
                self._state.shared,
                np.packbits(opened.released).tobytes(),
                purpose=released_purpose(request.round),
                source=self.resources.source,
            )
        sums = self.terms.residues(opened.sums).tobytes()
        turn = request.round, request.attempt
        answer = Answer(self.roster.digest, *turn, opened.members, sums, released)
        return self.roster.signed(self._key, KEY_GENERATOR, answer)

    def _refused(self, request: Request, reason: Exception) -> bytes:
        """Use up the round, and the key if a sum was forged.

        The sentence is the same whatever the reason: one that tells why is an oracle about what was decrypted.
        """
        why = str(reason) if isinstance(reason, BlindsightError) else f"of a {type(reason).__name__}."
        entry, forged = f"round {request.round}: nothing was released, because {why}", isinstance(reason, ForgedError)
        sentence = (
            f"nothing of round {request.round} is released, and it is over: this is not the sum of enough contributors "
            "of this round, or a part of it overflowed or was forged. Begin a new round."
        )
        answer = self._sealed(self._refusal(request, sentence, renewed=forged))
        state = replace(self._state, round=request.round, answer=answer)
        if forged:
            entry += " The key is used up, and there is a new one."
            used_up = {**_key_pair(None), "generation": state.generation + 1, "void": request.round}
            state = replace(state, **used_up)
        self._keep(replace(state, log=(*state.log, entry)))
        if forged:  # the old key is void, also if no new one can be made
            self._opener = None
            self._opener = self._make_opener(None)
            self._keep_key()
        return answer

    def _keep_key(self) -> None:
        """Keep the key pair where the state has none."""
        if self._opener is not None and not self._state.private_key:
            self._keep(replace(self._state, **_key_pair(self._opener)))

    def _refusal(self, request: Request, sentence: str, *, renewed: bool = False) -> bytes:
        refusal = Refusal(request.run, request.round, request.attempt, renewed, sentence)
        return self.roster.signed(self._key, KEY_GENERATOR, refusal)

    def _sealed(self, answer: bytes) -> bytes:
        if not self.terms.traits.sealed:
            return answer
        return seal(self._state.channel, answer, purpose=ANSWER, source=self.resources.source)

    def _make_opener(self, key: Any) -> Opener | None:
        kind = self.terms.traits.opener
        return None if kind is None else kind(self.terms, key, self.resources)

    def _new_state(self, partition: bytes) -> GeneratorState:
        members, source = self.terms.members, self.resources.source

        def secret() -> bytes:
            return source(32) if self.terms.keyed else b""

        return GeneratorState(
            terms=self.terms.to_bytes(),
            seed=SigningKey.generate(source).secret_bytes(),
            **_key_pair(self._opener),
            shared=secret(),
            own=tuple(secret() for _ in members),
            offsets=tuple(secret() for _ in members),
            channel=secret(),
            keys=(b"",) * (len(members) + 1),
            partition=partition,
        )


class PartitionState(Message, name="sums/partition-state.1"):
    """The secret of all partitions, and the digests of the sets of members that have had one."""

    secret: Key
    sets: tuple[bytes, ...] = ()


class Partitions(Secret):
    """Draws who is summed with whom: one partition for a set of members, whatever runs they make.

    The seed follows from a secret of the key generator and the members' fingerprints. So neither names of runs nor
    terms nor restarts draw again; another set of members does, and no more than `most` sets get a partition.
    """

    def __init__(self, path: AnyPath | None = None, *, most: int = 16, source: ByteSource = system_bytes) -> None:
        """Go on with the secret at `path`, or make one there; without a path it lives as long as this object."""
        self._path, self.most = path, most
        if path is not None and as_path(path).exists():
            self._state = read_state(path, PartitionState)
        else:
            self._keep(PartitionState(source(32)))

    def seed(self, fingerprints: Iterable[bytes]) -> bytes:
        """Return the seed for members with these fingerprints of their long-term keys."""
        members = framed(*sorted(set(fingerprints)))
        digest, state = hashlib.sha256(members).digest(), self._state
        if digest not in state.sets:
            if len(state.sets) >= self.most:
                raise PrivacyError(
                    f"{len(state.sets)} sets of members have had a partition, and one more would let a server choose "
                    "among them. Make a new key generator and tell all members why."
                )
            self._keep(replace(state, sets=(*state.sets, digest)))
        return hmac.digest(state.secret, framed(b"partition", members), "sha256")

    def _keep(self, state: PartitionState) -> None:
        if self._path is not None:
            write_state(self._path, state)
        self._state = state


def _key_pair(opener: Opener | None) -> dict[str, Any]:
    private, public = (opener.secret_bytes(), opener.encryption_key) if opener else (b"", b"")
    return {"private_key": private, "encryption_key": public}
