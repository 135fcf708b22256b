"""DPHE and block DPHE: sparse updates under Paillier, at places that the aggregator cannot name (`learn.dphe`)."""

from concurrent.futures import Executor
from functools import partial

import numpy as np

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import Keys, PrivateKey
from blindsight.crypto.wire import decode
from blindsight.errors import InputError, MessageError
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User, statement
from blindsight.learn.dphe.messages import Request
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.schemes.keyed import play_round
from blindsight.learn.session import Encoded, Post, Recorder, Session, Sum, Transit, recorder_of
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement


def sparse_terms(
    terms: SumTerms,
    *,
    blocks: bool,
    capacity: int,
    key_bits: int,
    keys: Keys = "subgroup",
    minimum_per_position: int,
    insecure: bool,
) -> Terms:
    """Return the terms of DPHE, or of block DPHE with as many weights in a block as a plaintext holds.

    `capacity` is the number of weights that a user may change per shard; block DPHE rounds it up to whole blocks.
    """
    if not 1 <= capacity <= terms.dimension:
        raise InputError(f"capacity must be in 1 ... {terms.dimension}, the number of weights; got {capacity}.")
    counting = int(minimum_per_position > 1)
    room = SlotPacking.for_key(key_bits, slot_bits=terms.slot_bits).slots - counting
    slots = room if blocks else 1
    return Terms(
        run=terms.run,
        users=terms.users,
        dimension=terms.dimension,
        capacity=-(-capacity // slots),
        fraction_bits=terms.fraction_bits,
        slots=slots,
        slot_bits=terms.slot_bits,
        key_bits=key_bits,
        keys=keys,
        min_users=terms.minimum,
        min_per_block=minimum_per_position,
        insecure=insecure,
    )


class PaillierSession(Session):
    """A run of DPHE or block DPHE."""

    def __init__(
        self,
        terms: SumTerms,
        sparse: Terms,
        *,
        key: PrivateKey | None = None,
        pool: Executor | None = None,
        threads: int | None = None,
        source: ByteSource = system_bytes,
        record: Recorder | None = None,
        transit: Transit | None = None,
    ) -> None:
        """Make all parties and set them up (Algorithm 1, steps 1 and 2); an existing key pair may be given."""
        super().__init__(terms, transit=transit)
        self.scheme = "block-dphe" if sparse.slots > 1 else "dphe"
        self.block, self.sparse = sparse.slots, sparse
        self._pool, self._threads, self._source = pool, threads, source
        self._record = record
        self._noted = b""
        self._set_up(key)

    def _set_up(self, key: PrivateKey | None) -> None:
        post, source, sparse = Post(self.terms.users), self._source, self.sparse
        with post.working(KEY_GENERATOR, "set up"):
            self._generator = KeyGenerator(sparse, key=key, source=source, record=self._note)
        self._aggregator = Aggregator(sparse, source=source, record=recorder_of(self._record, AGGREGATOR))
        self._users = {
            name: User(name, sparse, source=source, record=recorder_of(self._record, name)) for name in sparse.users
        }
        for name, user in self._users.items():
            post.carry(user.enrolment(), (name, KEY_GENERATOR), ("set up", "set up"), self._generator.enrol)
        with post.working(KEY_GENERATOR, "set up"):
            messages = self._generator.setup()
        for name, message in messages.items():
            role = self._aggregator if name == AGGREGATOR else self._users[name]
            post.carry(message, (KEY_GENERATOR, name), ("set up", "set up"), role.accept)
        self.setup_cost = post.meter.cost()

    def _add(self, updates: Encoded, number: int, post: Post) -> Sum:
        users = {name: self._users[name] for name in updates}

        def contribute(name: str) -> list[bytes]:
            return users[name].contribute_integers(updates[name](), number, pool=self._pool)

        outcomes = play_round(
            number,
            post,
            contribute={name: partial(contribute, name) for name in users},
            aggregator=self._aggregator,
            close=partial(self._aggregator.close, threads=self._threads),
            answer=partial(self._generator.answer, threads=self._threads),
            read={name: partial(user.read, round=number) for name, user in users.items()},
            ciphertexts=self.sparse.capacity,
            requested=lambda: len(decode(self._noted, Request).ciphertexts),
        )
        for name, outcome in outcomes.items():
            if name in outcome.users:
                return Sum(outcome.users, outcome.integers, np.flatnonzero(~outcome.entered))
        raise MessageError("none of the contributors could read the answer. Begin a new round.")

    def _note(self, message: bytes) -> None:
        """Keep what the key generator received last: the number of ciphertexts in it is under seal before."""
        self._noted = message
        recorder_of(self._record, KEY_GENERATOR)(message)

    def statement(self) -> PrivacyStatement:
        """Return what DPHE protects, on these terms."""
        return statement(self.sparse, source=self._source)
