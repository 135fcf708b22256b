"""BFV: dense updates under lattice encryption (`learn.lattice`)."""

from functools import partial

import numpy as np

from blindsight.crypto.bfv import SecretKey
from blindsight.crypto.signing import SigningKey
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.roster import Roster
from blindsight.learn.schemes.keyed import play_round
from blindsight.learn.session import Encoded, Post, Recorder, Session, Sum, Transit, recorder_of
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement, randomness_of


class LatticeSession(Session):
    """A run of sums under BFV."""

    scheme = "bfv"

    def __init__(
        self,
        terms: SumTerms,
        *,
        key: SecretKey | None = None,
        source: ByteSource = system_bytes,
        record: Recorder | None = None,
        transit: Transit | None = None,
    ) -> None:
        """Make all parties, with identities known to each other; hand out the public half of a key, given or new."""
        super().__init__(terms, transit=transit)
        post, self._source = Post(terms.users), source
        identities = {party: SigningKey.generate(source) for party in (*terms.users, AGGREGATOR, KEY_GENERATOR)}
        self.roster = roster = Roster(terms, {party: identity.public for party, identity in identities.items()})
        records = {party: recorder_of(record, party) for party in identities}
        with post.working(KEY_GENERATOR, "set up"):
            self._generator = LatticeKeyGenerator(
                roster, identities[KEY_GENERATOR], secret=key, record=records[KEY_GENERATOR]
            )
            setup = self._generator.setup()
        self._aggregator = LatticeAggregator(roster, identities[AGGREGATOR], record=records[AGGREGATOR])
        self._users = {user: LatticeUser(user, roster, identities[user], record=records[user]) for user in terms.users}
        readers = {AGGREGATOR: self._aggregator.accept} | {name: user.accept for name, user in self._users.items()}
        post.spread(setup, KEY_GENERATOR, ("set up", "set up"), readers)
        self.setup_cost = post.meter.cost()

    def _add(self, updates: Encoded, number: int, post: Post) -> Sum:
        users = {name: self._users[name] for name in updates}

        def contribute(name: str) -> list[bytes]:
            return users[name].contribute_integers(updates[name](), number)

        ciphertexts = -(-self.terms.dimension // self._generator.degree)
        totals = play_round(
            number,
            post,
            contribute={name: partial(contribute, name) for name in users},
            aggregator=self._aggregator,
            close=self._aggregator.close,
            answer=self._generator.answer,
            read={name: partial(user.read, round=number) for name, user in users.items()},
            ciphertexts=ciphertexts,
            requested=lambda: ciphertexts,
        )
        total = next(iter(totals.values()))
        return Sum(total.users, total.integers, np.empty(0, dtype=np.int64))

    def statement(self) -> PrivacyStatement:
        """Return what BFV protects."""
        return statement(self._generator.degree, source=self._source)


def statement(degree: int, *, source: ByteSource = system_bytes) -> PrivacyStatement:
    """Return what sums under BFV of this ring degree protect."""
    return PrivacyStatement(
        guarantee="cryptographic",
        mechanism=f"BFV: lattice encryption of whole updates, ring degree {degree}, 128 bits of "
        "security; a user that drops out is not in the sum, and nothing else changes",
        unit="person",
        epsilon=None,
        delta=None,
        randomness=randomness_of(source),
        who_sees={
            "key generator": "the sum, and who contributed; it could decrypt any contribution, but receives none",
            "aggregator": "ciphertexts, the sum, and who contributed",
            "users": "their own update, the sum, and who contributed",
            "someone who intercepts a contribution": "ciphertexts: their number, nothing else",
        },
        not_protected=(
            "what the sum itself tells: it is exact and has no noise, so it is not differentially private; where "
            "one user alone changed a weight, the sum is that user's weight",
            "that a user took part",
        ),
        assumptions=(
            "all parties follow the protocol (semi-honest); in particular the aggregator adds up what the receipts "
            "name, which the key generator cannot check, and users encrypt honest updates",
            "no collusion: the key generator with anyone who has a contribution reads it; all users but one read "
            "the last one's update",
            "ring-LWE with the parameters of crypto.bfv; Ed25519 signatures, whose keys everyone knows beforehand",
        ),
    )
