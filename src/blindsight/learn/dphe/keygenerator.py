"""The key generator G: issues keys and permutations, and decrypts one sum a round for users it can name.

It could decrypt anything, so it is careful what it answers: the sum of one round, once, for the signed receipts of at
least `Terms.min_users` different users (a user's shards count once), in plain order, and on record. The record is on
disk before the answer leaves. The same users' request, repeated, gets the recorded answer, whatever ciphertexts come
with it, so a second request teaches nobody anything; another request for that round is refused, and so is every
earlier round. Whatever fails once a request is known to be the aggregator's, for this run and a round to come, uses up
that round, stands in the log and gets one and the same sentence: that something failed also tells something about what
was decrypted.
"""

import hashlib
from dataclasses import replace
from functools import cached_property
from typing import Any

from blindsight.crypto.paillier import PrivateKey, generate_keys
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.answers import nothing_released, seal_released, sign_answer
from blindsight.learn.dphe.decryptedsum import decrypt_sum
from blindsight.learn.dphe.messages import (
    REQUEST_FOR_DECRYPTION,
    AggregatorSetup,
    Answer,
    Enrolment,
    GeneratorState,
    Request,
    UserSetup,
)
from blindsight.learn.dphe.receipts import contributors
from blindsight.learn.dphe.storage import read_state, refuse_to_overwrite, state_errors, write_state
from blindsight.learn.dphe.terms import AGGREGATOR, Terms
from blindsight.learn.dphe.views import Record, forget
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes


class KeyGenerator(Secret):
    """The key generator. With a `path`, its state is on disk before anything that depends on it is returned."""

    def __init__(
        self,
        terms: Terms,
        *,
        key: PrivateKey | None = None,
        path: AnyPath | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
        state: GeneratorState | None = None,
    ) -> None:
        """Generate all keys and secrets of a run (Algorithm 1, step 1); an existing key pair may be given."""
        self.terms = terms
        if state is None:
            refuse_to_overwrite(path)
        self._path, self._source, self._record = path, source, record
        self._key = key or generate_keys(terms.key_bits, keys=terms.keys, insecure=terms.insecure, source=source)
        public = self._key.public
        if (public.bits, public.keys) != (terms.key_bits, terms.keys):
            raise InputError(
                f"the terms ask for a {terms.keys} key of {terms.key_bits} bits; got {public.bits}, {public.keys}."
            )
        self._keep(state or _new_state(terms, self._key, source))
        self._signing_key = SigningKey(self._state.seed)

    @classmethod
    def load(cls, path: AnyPath, *, source: ByteSource = system_bytes, record: Record = forget) -> "KeyGenerator":
        """Go on where the key generator that kept its state at `path` stopped."""
        state = read_state(path, GeneratorState)
        with state_errors(path):
            terms = Terms.from_bytes(state.terms)
            key = PrivateKey.from_secret_bytes(state.private_key, insecure=terms.insecure)
            return cls(terms, key=key, path=path, source=source, record=record, state=state)

    @property
    def log(self) -> tuple[str, ...]:
        """A sentence for every round that was asked for: what was released, or why nothing."""
        return self._state.log

    def enrol(self, message: bytes) -> None:
        """Learn which signatures are a user's; each user enrols once, through a channel that proves who it is."""
        self._record(message)
        enrolment = decode(message, Enrolment)
        if enrolment.user not in self.terms.users or len(enrolment.user_key) != 32:
            raise MessageError("someone who does not take part wants to enrol.")
        keys = dict(zip(self.terms.users, self._state.user_keys, strict=True))
        if keys[enrolment.user] not in (b"", enrolment.user_key):
            raise MessageError(f"{enrolment.user!r} has enrolled with another key already.")
        keys[enrolment.user] = enrolment.user_key
        self._remember(user_keys=tuple(keys.values()))

    def setup(self) -> dict[str, bytes]:
        """Return the set-up message of every user and of the aggregator (Algorithm 1, step 2).

        They carry secrets: send each through an encrypted channel to the one it is for.
        """
        agreement, state = self._agreement.to_bytes(), self._state
        messages = {
            user: encode(UserSetup(agreement, user, state.shared_secret, own_secret))
            for user, own_secret in zip(self.terms.users, state.own_secrets, strict=True)
        }
        messages[AGGREGATOR] = encode(AggregatorSetup(agreement, state.channel_secret, state.own_secrets))
        return messages

    def answer(self, request: bytes, *, threads: int | None = None, progress: Progress = silent) -> bytes:
        """Decrypt and reorder the sum that the aggregator asks for (Algorithm 1, step 6), for all to read."""
        message, state = self._read(request), self._state
        receipts = hashlib.sha256(b"".join(sorted(message.receipts))).digest()
        if message.round == state.round and receipts == state.request and state.answer:
            return state.answer
        if message.round <= state.round:
            raise PrivacyError(
                f"round {message.round} is over: a round is decrypted once, and the last was round {state.round}. "
                "Begin a new round."
            )
        try:
            users = contributors(self._agreement, message.receipts, round=message.round)
            answer, forged = self._decrypted(message, users, threads, progress)
        except Exception as error:
            refusal, entry = nothing_released(message.round, error)
            self._remember(round=message.round, request=receipts, answer=b"", log=(*state.log, entry))
            raise refusal from None
        entry = f"round {message.round}: the sum of {', '.join(users)} was released."
        if forged:
            entry += f" Of its blocks, {forged} were withheld: one of these users forged a number in them."
        self._remember(round=message.round, request=receipts, answer=answer, log=(*state.log, entry))
        return answer

    @cached_property
    def _agreement(self) -> Agreement:
        missing = [user for user, key in zip(self.terms.users, self._state.user_keys, strict=True) if not key]
        if missing:
            raise InputError(f"not everyone has enrolled yet: {', '.join(missing)}.")
        return Agreement(self.terms, self._key.public, self._signing_key.public, self._state.user_keys)

    def _read(self, request: bytes) -> Request:
        if not self.terms.as_published:
            request = unseal(self._state.channel_secret, request, purpose=REQUEST_FOR_DECRYPTION)
        self._record(request)
        message = decode(request, Request)
        if message.run != self._agreement.digest or message.round < 0:
            raise MessageError("the request is not one of this run.")
        return message

    def _decrypted(
        self, request: Request, users: tuple[str, ...], threads: int | None, progress: Progress
    ) -> tuple[bytes, int]:
        """Return the answer, and how many blocks are withheld from it because they were forged."""
        secret = self._state.shared_secret
        sums, released, forged = decrypt_sum(
            request,
            self.terms,
            key=self._key,
            shared=self._agreement.shared_permutation(secret, request.round),
            contributors=len(users),
            threads=threads,
            progress=progress,
        )
        sealed = seal_released(self._agreement, released, secret, round=request.round, source=self._source)
        answer = Answer(self._agreement.digest, request.round, users, sums, sealed)
        return sign_answer(self._signing_key, answer), forged

    def _remember(self, **changes: Any) -> None:
        self._keep(replace(self._state, **changes))

    def _keep(self, state: GeneratorState) -> None:
        """Adopt a new state once it is on disk."""
        if self._path is not None:
            write_state(self._path, state)
        self._state = state


def _new_state(terms: Terms, key: PrivateKey, source: ByteSource) -> GeneratorState:
    own = [source(32) if terms.permutations == "double" else b"" for _ in terms.users]
    return GeneratorState(
        terms=terms.to_bytes(),
        private_key=key.secret_bytes(),
        seed=SigningKey.generate(source).secret_bytes(),
        shared_secret=source(32),
        channel_secret=source(32),
        own_secrets=tuple(own),
        user_keys=(b"",) * len(terms.users),
        round=-1,
        request=b"",
        answer=b"",
        log=(),
    )
