"""The key generator of sums under BFV: reads one sum a round, for users it can name.

It could decrypt anything, so it answers the aggregator alone, once a round, for the signed receipts of at least
`SumTerms.minimum` users, and on record; with a `path`, the record is on disk before the answer leaves. The same users'
request, repeated, gets the same answer, whatever ciphertext comes with it; another request for that round is refused,
and so is every earlier round. Whatever fails once a request is known to be the aggregator's, for a round to come, uses
up that round, stands in the log and gets one and the same sentence: that something failed also tells something about
what was decrypted.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from blindsight.crypto.bfv import SecretKey, generate_keys
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.answers import nothing_released
from blindsight.learn.dphe.storage import read_state, refuse_to_overwrite, state_errors, write_state
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.lattice.answers import SETUP_ROUND
from blindsight.learn.lattice.messages import Answer, Request, Setup, Vouched, checksum
from blindsight.learn.lattice.receipts import contributors
from blindsight.learn.lattice.states import GeneratorState
from blindsight.learn.residues import beyond, to_residues
from blindsight.learn.roster import Roster, RoundMessage


@dataclass(frozen=True, eq=False, repr=False)
class _Memory:
    round: int = -1
    request: bytes = b""  # digest of the receipts that were answered
    answer: bytes = b""
    log: tuple[str, ...] = ()


class LatticeKeyGenerator(Secret):
    """The key generator. With a `path`, its state is on disk before anything that depends on it is returned."""

    def __init__(
        self,
        roster: Roster,
        key: SigningKey,
        *,
        secret: SecretKey | None = None,
        path: AnyPath | None = None,
        record: Record = forget,
    ) -> None:
        """Generate the keys of a run; an existing pair may be given."""
        roster.check_identity(KEY_GENERATOR, key)
        refuse_to_overwrite(path)
        self.roster = roster
        self._key, self._path, self._record = key, path, record
        terms = roster.terms
        self._secret = secret or generate_keys(max_sum=terms.max_integer * len(terms.users))
        self._memory = _Memory()
        self._remember()

    @classmethod
    def load(cls, path: AnyPath, *, record: Record = forget) -> "LatticeKeyGenerator":
        state = read_state(path, GeneratorState)
        with state_errors(path):
            secret = SecretKey.from_secret_bytes(state.secret_key)
            generator = cls(Roster.from_bytes(state.roster), SigningKey(state.seed), secret=secret, record=record)
        generator._memory = _Memory(state.round, state.request, state.answer, state.log)
        generator._path = path
        return generator

    @property
    def log(self) -> tuple[str, ...]:
        return self._memory.log

    @property
    def degree(self) -> int:
        """How many weights one ciphertext holds."""
        return self._secret.public.parameters.degree

    def setup(self) -> bytes:
        """Return the public key, for everyone."""
        return self._signed(Setup(self.roster.digest, SETUP_ROUND, self._secret.public.to_bytes()))

    def answer(self, request: bytes) -> bytes:
        """Decrypt the sum that the aggregator asks for and return the answer, for everyone."""
        self._record(request)
        vouched, memory = decode(request, Vouched), self._memory
        _, message = self.roster.open(vouched.envelope, Request, round=None, authors=[AGGREGATOR])
        round = message.round
        if checksum(vouched.vector) != message.checksum:
            raise MessageError("the request is for another vector than it came with.")
        receipts = hashlib.sha256(b"".join(sorted(message.receipts))).digest()
        if round == memory.round and receipts == memory.request and memory.answer:
            return memory.answer
        if round <= memory.round:
            raise PrivacyError(
                f"round {round} is over: a round is decrypted once, and the last was round {memory.round}. "
                "Begin a new round."
            )
        try:
            users, answer = self._decrypted(message, vouched.vector)
        except Exception as error:
            if hashlib.sha256(vouched.vector[:-32]).digest() != message.checksum:
                raise MessageError("the request was damaged on its way: its checksum does not match.") from None
            refusal, entry = nothing_released(round, error)
            self._remember(round=round, request=receipts, answer=b"", log=(*memory.log, entry))
            raise refusal from None
        entry = f"round {round}: the sum of {', '.join(users)} was released"
        self._remember(round=round, request=receipts, answer=answer, log=(*memory.log, entry))
        return answer

    def _decrypted(self, request: Request, data: bytes) -> tuple[tuple[str, ...], bytes]:
        """Return whose sum it is, and the answer."""
        terms, public = self.roster.terms, self._secret.public
        key = bytes.fromhex(public.fingerprint)
        users = contributors(self.roster, request.receipts, key=key, round=request.round)
        vector = public.read_vector(data)
        if vector.terms != len(users) or len(vector) != terms.dimension:
            raise MessageError("the encrypted sum has another length, or another number of terms than receipts.")
        sums = self._secret.decrypt(vector)
        if beyond(sums, len(users) * terms.max_integer):
            raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
        residues = to_residues(sums, terms).tobytes()
        return users, self._signed(Answer(self.roster.digest, request.round, users, residues))

    def _signed(self, message: RoundMessage) -> bytes:
        return self._key.sign(encode(message), author=KEY_GENERATOR)

    def _remember(self, **changes: Any) -> None:
        memory = replace(self._memory, **changes)
        if self._path is not None:
            state = GeneratorState(
                roster=self.roster.to_bytes(),
                seed=self._key.secret_bytes(),
                secret_key=self._secret.secret_bytes(),
                round=memory.round,
                request=memory.request,
                answer=memory.answer,
                log=memory.log,
            )
            write_state(self._path, state)
        self._memory = memory
