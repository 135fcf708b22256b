"""The key generator of sums under BFV: reads one sum a round, for users it can name.

It could decrypt anything, so it answers the aggregator alone, once a round, for the signed receipts of at least
`SumTerms.minimum` users, and on record. The same users' request, repeated, gets the same answer, whatever ciphertext
comes with it; another request for that round is refused, and so is every earlier round. A sum that these users cannot
have is not released, and uses up the round, because an error also tells something about what was decrypted.
"""

import numpy as np

from blindsight.crypto.bfv import SecretKey, generate_keys
from blindsight.crypto.secret import Secret
from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.dphe.views import Record, forget
from blindsight.learn.lattice.answers import SETUP_ROUND
from blindsight.learn.lattice.messages import Answer, Request, Setup, Vouched, checksum
from blindsight.learn.lattice.receipts import contributors
from blindsight.learn.residues import to_residues
from blindsight.learn.roster import Roster, RoundMessage


class LatticeKeyGenerator(Secret):
    """The key generator."""

    def __init__(
        self, roster: Roster, key: SigningKey, *, secret: SecretKey | None = None, record: Record = forget
    ) -> None:
        """Generate the keys of a run; an existing pair may be given."""
        roster.check_identity(KEY_GENERATOR, key)
        self.roster = roster
        self.log: tuple[str, ...] = ()
        self._key, self._record = key, record
        terms = roster.terms
        self._secret = secret or generate_keys(max_sum=terms.max_integer * len(terms.users))
        self._round, self._receipts, self._answer = -1, frozenset[bytes](), b""

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
        vouched = decode(request, Vouched)
        _, message = self.roster.open(vouched.envelope, Request, round=None, authors=[AGGREGATOR])
        round = message.round
        key = bytes.fromhex(self._secret.public.fingerprint)
        users = contributors(self.roster, message.receipts, key=key, round=round)
        receipts = frozenset(message.receipts)
        if round == self._round and receipts == self._receipts and self._answer:
            return self._answer
        if round <= self._round:
            raise PrivacyError(
                f"round {round} is over: a round is decrypted once, and the last was round {self._round}. "
                "Begin a new round."
            )
        if checksum(vouched.vector) != message.checksum:
            raise MessageError("the request is for another vector than it came with.")
        vector = self._secret.public.read_vector(vouched.vector)
        if vector.terms != len(users) or len(vector) != self.roster.terms.dimension:
            raise MessageError("the encrypted sum has another length, or another number of terms than receipts.")
        self._round, self._receipts, self._answer = round, receipts, b""
        sums = self._secret.decrypt(vector)
        if (np.abs(sums) > len(users) * self.roster.terms.max_integer).any():
            self.log += (f"round {round}: nothing was released",)
            raise MessageError("the sum is not one that these contributors can have: one overflowed or was forged.")
        self._answer = self._signed(
            Answer(self.roster.digest, round, users, to_residues(sums, self.roster.terms).tobytes())
        )
        self.log += (f"round {round}: the sum of {', '.join(users)} was released",)
        return self._answer

    def _signed(self, message: RoundMessage) -> bytes:
        return self._key.sign(encode(message), author=KEY_GENERATOR)
