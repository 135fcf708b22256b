"""The user U^(n): encrypts what it learned, and reads the sum of what everyone learned.

What leaves it is Enc(v), under fresh randomness, and Phi(K) = phi^(n) phi K (Eq. 7), sorted, so that the order tells
nothing; see `decomposition` for what these reveal. It contributes once a round: asked again, it sends the same bytes.
"""

import hashlib
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.secret import Secret
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.answers import Total, read_answer, released_blocks
from blindsight.learn.dphe.decomposition import IndexedValues, decompose
from blindsight.learn.dphe.messages import Enrolment, Shard, UserSetup, UserState
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.dphe.storage import read_state, write_state
from blindsight.learn.dphe.terms import Terms
from blindsight.learn.dphe.views import Record, forget
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, system_bytes


@dataclass(frozen=True, eq=False)
class Outcome(Total):
    """A round's sum as one user sees it; `entered` marks the weights at which its own update is part of it."""

    entered: NDArray[np.bool_]


class User(Secret):
    """One user. With a `path`, its state is on disk before anything that depends on it is returned."""

    def __init__(
        self,
        name: str,
        terms: Terms,
        *,
        path: Path | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
        signing_key: SigningKey | None = None,
    ) -> None:
        """Make a user of the run, with a new signing key unless it has one already."""
        if name not in terms.users:
            raise InputError(f"{name!r} does not take part in the run {terms.run!r}.")
        self.name, self.terms = name, terms
        self._path, self._source, self._record = path, source, record
        self._key = signing_key or SigningKey.generate(source)
        self._setup = b""
        self._round, self._update, self._sent = -1, b"", ()
        self._save()

    @classmethod
    def load(cls, path: Path, *, source: ByteSource = system_bytes, record: Record = forget) -> "User":
        """Go on where the user that kept its state at `path` stopped."""
        state = read_state(path, UserState)
        user = cls(state.user, Terms.from_bytes(state.terms), source=source, signing_key=SigningKey(state.seed))
        if state.setup:
            user.accept(state.setup)
        user._round, user._update, user._sent = state.round, state.update, state.sent
        user._path, user._record = path, record
        return user

    def enrolment(self) -> bytes:
        """Return the message that tells the key generator which signatures are this user's."""
        return encode(Enrolment(self.name, self._key.public))

    def accept(self, setup: bytes) -> None:
        """Receive encryption key, phi and phi^(n) from the key generator (Algorithm 1, step 2)."""
        self._record(setup)
        message = decode(setup, UserSetup)
        agreement = Agreement.from_bytes(message.agreement, expected=self.terms)
        if message.user != self.name or agreement.verifiers[self.name] != self._key.public:
            raise MessageError(f"the set-up is not for {self.name!r} as it enrolled.")
        if self._setup not in (b"", setup):
            raise MessageError(f"{self.name!r} was already set up, differently.")
        self._setup, self._agreement = setup, agreement
        self._shared_secret, self._own_secret = message.shared_secret, message.own_secret
        self._save()

    def contribute(
        self, update: ArrayLike, round: int, *, pool: Executor | None = None, progress: Progress = silent
    ) -> list[bytes]:
        """Encrypt this round's update, encoded in fixed point, for the aggregator: one message per shard."""
        return self.contribute_integers(self.terms.integers(update), round, pool=pool, progress=progress)

    def contribute_integers(
        self, integers: NDArray[np.int64], round: int, *, pool: Executor | None = None, progress: Progress = silent
    ) -> list[bytes]:
        """Encrypt an update that is encoded already (`Terms.integers`)."""
        integers = self.terms.checked(integers)
        update = hashlib.sha256(integers.tobytes()).digest()
        if round == self._round and update == self._update:
            return list(self._sent)
        if round <= self._round:
            raise PrivacyError(
                f"{self.name!r} has contributed to round {self._round} already and does so once. "
                "Send that again, or wait for the next round."
            )
        agreement = self._agreed()
        # Algorithm 1, step 3: w = K v.
        shards = decompose(integers, self.terms, source=self._source)
        # Step 4: Enc(v) and Phi(K) = phi^(n) phi K.
        shared = agreement.shared_permutation(self._shared_secret, round)
        own = agreement.own_permutation(self._own_secret, self.name, round)
        bodies = [encode(self._encrypted(shard, shared, own, pool, progress)) for shard in shards]
        sent = vouch(self._key, self.name, bodies, run=agreement.digest, round=round)
        self._round, self._update, self._sent = round, update, tuple(sent)
        self._save()
        return sent

    def sent(self, round: int) -> list[bytes]:
        """Return again what was contributed to a round."""
        if round != self._round:
            raise InputError(f"{self.name!r} keeps its last contribution, to round {self._round}; got {round}.")
        return list(self._sent)

    def read(self, answer: bytes, round: int) -> Outcome:
        """Read the key generator's answer in this round: the sum, and where this user's update is part of it."""
        self._record(answer)
        agreement = self._agreed()
        message = read_answer(agreement, answer, round=round)
        released = released_blocks(agreement, message, self._shared_secret)
        entered = np.repeat(released, self.terms.slots)[: self.terms.dimension]
        return Outcome(
            round, message.users, message.sums, self.terms.values(message.sums), entered & (self.name in message.users)
        )

    def _encrypted(
        self,
        shard: IndexedValues,
        shared: SecretPermutation,
        own: SecretPermutation,
        pool: Executor | None,
        progress: Progress,
    ) -> Shard:
        places = own.forward(shared.forward(shard.blocks))  # Eq. 7
        order = np.argsort(places)
        plaintexts = [shard.plaintexts[i] for i in order.tolist()]
        ciphertexts = self._agreement.key.encrypt(plaintexts, source=self._source, pool=pool, progress=progress)
        return Shard(places[order], ciphertexts.to_matrix())

    def _agreed(self) -> Agreement:
        if not self._setup:
            raise InputError(f"{self.name!r} is not set up yet. Give it the key generator's message first.")
        return self._agreement

    def _save(self) -> None:
        if self._path is not None:
            seed = self._key.secret_bytes()
            state = UserState(
                self.terms.to_bytes(), self.name, seed, self._setup, self._round, self._update, self._sent
            )
            write_state(self._path, state)
