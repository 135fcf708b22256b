"""The user U^(n): encrypts what it learned, and reads the sum of what everyone learned.

What leaves it is Enc(v), under fresh randomness, and Phi(K) = phi^(n) phi K (Eq. 7), sorted, so that the order tells
nothing; see `decomposition` for what these reveal. It contributes once a round: asked again, it sends the same bytes.
"""

import hashlib
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.crypto.permutation import SecretPermutation
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Secret, decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.files import AnyPath
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.answers import Total, read_answer, released_blocks
from blindsight.learn.dphe.decomposition import IndexedValues, decompose
from blindsight.learn.dphe.messages import Enrolment, Shard, UserSetup, UserState
from blindsight.learn.dphe.receipts import vouch
from blindsight.learn.dphe.storage import read_state, refuse_to_overwrite, state_errors, write_state
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
        path: AnyPath | None = None,
        source: ByteSource = system_bytes,
        record: Record = forget,
        state: UserState | None = None,
    ) -> None:
        """Make a user of a run, with a new signing key."""
        if name not in terms.users:
            raise InputError(f"{name!r} does not take part in the run {terms.run!r}.")
        if state is None:
            refuse_to_overwrite(path)
        self.name, self.terms = name, terms
        self._path, self._source, self._record = path, source, record
        self._keep(state or _new_state(name, terms, source))
        self._key = SigningKey(self._state.seed)

    @classmethod
    def load(cls, path: AnyPath, *, source: ByteSource = system_bytes, record: Record = forget) -> "User":
        """Go on where the user that kept its state at `path` stopped."""
        state = read_state(path, UserState)
        with state_errors(path):
            return cls(state.user, Terms.from_bytes(state.terms), path=path, source=source, record=record, state=state)

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
        if self._state.setup not in (b"", setup):
            raise MessageError(f"{self.name!r} was already set up, differently.")
        self._remember(setup=setup)

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
        if round == self._state.round and update == self._state.update:
            return list(self._state.sent)
        if round < 0:
            raise InputError(f"rounds are numbered from 0; got {round}.")
        if round <= self._state.round:
            raise PrivacyError(
                f"{self.name!r} has contributed to round {self._state.round} already and does so once. "
                "Send that again, or wait for the next round."
            )
        agreement, setup = self._agreement, self._setup
        # Algorithm 1, step 3: w = K v.
        shards = decompose(integers, self.terms, source=self._source)
        # Step 4: Enc(v) and Phi(K) = phi^(n) phi K.
        shared = agreement.shared_permutation(setup.shared_secret, round)
        own = agreement.own_permutation(setup.own_secret, self.name, round)
        bodies = [encode(self._encrypted(shard, shared, own, pool, progress)) for shard in shards]
        sent = vouch(self._key, self.name, bodies, run=agreement.digest, round=round)
        self._remember(round=round, update=update, sent=tuple(sent))
        return sent

    def sent(self, round: int) -> list[bytes]:
        """Return again what was contributed to a round."""
        if round != self._state.round:
            raise InputError(f"{self.name!r} keeps its last contribution, to round {self._state.round}; got {round}.")
        return list(self._state.sent)

    def read(self, answer: bytes, round: int) -> Outcome:
        """Read the key generator's answer in this round: the sum, and where this user's update is part of it."""
        self._record(answer)
        message = read_answer(self._agreement, answer, round=round)
        released = released_blocks(self._agreement, message, self._setup.shared_secret)
        entered = np.repeat(released, self.terms.slots)[: self.terms.dimension] & (self.name in message.users)
        return Outcome(round, message.users, message.sums, self.terms.values(message.sums), entered)

    @cached_property
    def _setup(self) -> UserSetup:
        if not self._state.setup:
            raise InputError(f"{self.name!r} is not set up yet. Give it the key generator's message first.")
        return decode(self._state.setup, UserSetup)

    @cached_property
    def _agreement(self) -> Agreement:
        return Agreement.from_bytes(self._setup.agreement, expected=self.terms)

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
        return Shard(self._source(32), places[order], ciphertexts.to_matrix())

    def _remember(self, **changes: Any) -> None:
        self._keep(replace(self._state, **changes))

    def _keep(self, state: UserState) -> None:
        if self._path is not None:
            write_state(self._path, state)
        self._state = state


def _new_state(name: str, terms: Terms, source: ByteSource) -> UserState:
    return UserState(
        terms=terms.to_bytes(),
        user=name,
        seed=SigningKey.generate(source).secret_bytes(),
        setup=b"",
        round=-1,
        update=b"",
        sent=(),
    )
