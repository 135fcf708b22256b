"""The roles of every scheme, driven alike, for tests of what each of them must do.

A round goes through `phases`. In each, users are asked for their messages, the aggregator receives them and ends the
phase; after the last one everyone reads the sum of those who sent something in the phase `counted`. With a folder a
role lives no longer than one call: it is loaded from its file whenever it is used.
"""

from dataclasses import replace

import numpy as np

from blindsight.crypto.bfv import add_all
from blindsight.crypto.sealedbox import seal
from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.learn.dphe import Aggregator, KeyGenerator, Terms, User
from blindsight.learn.dphe import messages as dphe
from blindsight.learn.lattice import messages as bfv
from blindsight.learn.lattice import states as bfv_states
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.keygenerator import LatticeKeyGenerator
from blindsight.learn.lattice.user import LatticeUser
from blindsight.learn.masks import userstate as mask_states
from blindsight.learn.masks.keys import threshold
from blindsight.learn.masks.server import MaskServer
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes
from tests.keys import bfv_key, paillier_key

USERS = ("ann", "bob", "cem", "dia", "eve")
SIZE = 8
AGGREGATOR, GENERATOR = "aggregator", "key generator"


class Run:
    """A run of one scheme; runs of the same seed have the same signing keys, whatever they are called."""

    phases = ("contribute",)
    counted = "contribute"
    users = USERS

    def __init__(self, folder=None, *, name="test", seed=0):
        self.folder, self.name = folder, name
        self.sources = {party: seeded_bytes(1000 * seed + i) for i, party in enumerate(self.parties)}
        self.updates = {user: np.arange(SIZE) * (-1) ** i + 1000 * i for i, user in enumerate(self.users)}
        self.round, self.result = -1, b""
        known = folder is not None and folder.exists()  # a run that goes on
        made = [party for party in self.parties if not (known and party in self.kept)]
        self.roles = {party: self.make(party, self.path(party)) for party in made}
        if not known:
            self.introduce()

    @property
    def parties(self):
        return (*self.users, AGGREGATOR, GENERATOR)

    @property
    def kept(self):
        """The roles with a file."""
        return self.parties

    def path(self, party):
        return self.folder / party if self.folder and party in self.kept else None

    def role(self, party):
        """Return a role as it is, or as its file tells."""
        return self.load(party, self.path(party)) if self.path(party) else self.roles[party]

    def begin(self, round):
        self.role(AGGREGATOR).open(round)
        self.round = round

    def deliver(self, *messages):
        for message in messages:
            self.role(AGGREGATOR).receive(message)

    def send(self, phase, names):
        for name in names:
            self.deliver(*self.ask(phase, name))

    def play(self, round, names=USERS):
        """Play a whole round with these users and return the sum."""
        self.begin(round)
        for phase in self.phases:
            self.send(phase, names)
            self.end(phase)
        return self.read(names[0]).integers

    def sum(self, names=USERS):
        return np.sum([self.updates[name] for name in names], axis=0)

    @property
    def least(self):
        """How many users a phase needs."""
        return 3

    # Of schemes with a key generator

    def ask(self, phase, name, *, update=None, user=None):
        """Let a user make its messages of a phase, from its own update or another."""
        update = self.updates[name] if update is None else update
        return (user or self.role(name)).contribute_integers(update, self.round)

    def end(self, phase):
        self.result = self.role(GENERATOR).answer(self.role(AGGREGATOR).close())

    def read(self, name, round=None):
        return self.role(name).read(self.result, self.round if round is None else round)

    def receipts(self, *names):
        return tuple(self.receipt(message) for name in names for message in self.ask("contribute", name))


class DPHE(Run):
    """DPHE; an update takes two shards."""

    min_per_block = 1

    def make(self, party, path):
        terms = Terms(
            run=self.name,
            users=USERS,
            dimension=SIZE,
            capacity=6,
            fraction_bits=8,
            key_bits=1024,
            min_per_block=self.min_per_block,
            insecure=True,
        )
        if party == GENERATOR:
            return KeyGenerator(terms, key=paillier_key(), path=path, source=self.sources[party])
        if party == AGGREGATOR:
            return Aggregator(terms, path=path, source=self.sources[party])
        return User(party, terms, path=path, source=self.sources[party])

    def load(self, party, path):
        kind = {GENERATOR: KeyGenerator, AGGREGATOR: Aggregator}.get(party, User)
        return kind.load(path, source=self.sources[party])

    def introduce(self):
        for name in USERS:
            self.role(GENERATOR).enrol(self.role(name).enrolment())
        for party in (AGGREGATOR, *USERS):
            self.role(party).accept(self.setup(party))

    def setup(self, party, generator=None):
        return (generator or self.role(GENERATOR)).setup()[party]

    def another_generator(self):
        """A key generator for the same users, with other secrets."""
        generator = KeyGenerator(self.role(GENERATOR).terms, key=paillier_key())
        for name in USERS:
            generator.enrol(self.role(name).enrolment())
        return generator

    def key(self, name):
        return self.role(name)._key

    def resigned(self, message, key, author):
        contribution = decode(message, dphe.Contribution)
        signed = key.sign(decode(contribution.receipt, Signed).body, author=author)
        return encode(replace(contribution, receipt=signed))

    def receipt(self, message):
        return decode(message, dphe.Contribution).receipt

    def request(self, receipts, total, *, round=0, run=None, **changes):
        """What an aggregator that breaks the protocol may ask for: any receipts, any number as the first weight."""
        agreement = self.role("ann")._agreement
        ciphertexts = agreement.key.encrypt([total]).to_matrix()
        digest = agreement.digest if run is None else run
        places = np.arange(agreement.terms.blocks)
        senders = np.full(places.size * agreement.terms.counting, len(receipts) // 2)  # of two shards each
        request = dphe.Request(digest, round, receipts, places, ciphertexts, senders)
        return self.sealed(encode(replace(request, **changes)))

    def sealed(self, request):
        setup = decode(self.setup(AGGREGATOR), dphe.AggregatorSetup)
        return seal(setup.channel_secret, request, purpose=dphe.REQUEST_FOR_DECRYPTION)

    @property
    def max_integer(self):
        return self.role(GENERATOR).terms.max_integer

    def misfits(self):
        """States whose parts are whole and do not fit, by role."""
        user = decode(self.path("ann").read_bytes(), dphe.UserState)
        generator = decode(self.path(GENERATOR).read_bytes(), dphe.GeneratorState)
        yield from (("ann", replace(user, **wrong)) for wrong in ({"user": "zoe"}, {"terms": b""}, {"seed": b"short"}))
        yield from ((GENERATOR, replace(generator, **wrong)) for wrong in ({"terms": b""}, {"private_key": b"none"}))


class Signing(Run):
    """A scheme with a roster."""

    def __init__(self, folder=None, *, name="test", seed=0, **terms):
        source = seeded_bytes(seed)
        self.identities = {party: SigningKey.generate(source) for party in self.parties}
        terms = SumTerms(**{"run": name, "users": self.users, "dimension": SIZE, "fraction_bits": 8} | terms)
        self.roster = Roster(terms, {party: key.public for party, key in self.identities.items()})
        super().__init__(folder, name=name, seed=seed)

    def key(self, name):
        return self.identities[name]

    @property
    def max_integer(self):
        return self.roster.terms.max_integer


class BFV(Signing):
    """Sums under lattice encryption."""

    def make(self, party, path):
        identity = self.identities[party]
        if party == GENERATOR:
            return LatticeKeyGenerator(self.roster, identity, secret=bfv_key(), path=path)
        if party == AGGREGATOR:
            return LatticeAggregator(self.roster, identity, path=path)
        return LatticeUser(party, self.roster, identity, path=path)

    def load(self, party, path):
        kind = {GENERATOR: LatticeKeyGenerator, AGGREGATOR: LatticeAggregator}.get(party, LatticeUser)
        return kind.load(path)

    def introduce(self):
        for party in (AGGREGATOR, *USERS):
            self.role(party).accept(self.setup(party))

    def setup(self, party, generator=None):
        return (generator or self.role(GENERATOR)).setup()

    def another_generator(self):
        return LatticeKeyGenerator(self.roster, self.identities[GENERATOR], secret=bfv_key(1))

    def resigned(self, message, key, author):
        vouched = decode(message, bfv.Vouched)
        return encode(replace(vouched, envelope=key.sign(decode(vouched.envelope, Signed).body, author=author)))

    def receipt(self, message):
        return decode(message, bfv.Vouched).envelope

    def request(self, receipts, total, *, round=0, run=None, vector=None, author=AGGREGATOR):
        if vector is None:
            count = max(1, len(receipts))
            numbers = np.zeros((count, SIZE), dtype=np.int64)
            numbers[:, 0] = total // count
            numbers[0, 0] += total % count
            vector = add_all([bfv_key().public.encrypt(row, terms=count) for row in numbers]).to_bytes()
        request = bfv.Request(run or self.roster.digest, round, bfv.checksum(vector), receipts)
        return encode(bfv.Vouched(self.identities[author].sign(encode(request), author=AGGREGATOR), vector))

    def misfits(self):
        user = decode(self.path("ann").read_bytes(), bfv_states.UserState)
        generator = decode(self.path(GENERATOR).read_bytes(), bfv_states.GeneratorState)
        for wrong in ({"user": "bob"}, {"roster": b""}, {"public_key": user.roster}):
            yield "ann", replace(user, **wrong)
        for wrong in ({"seed": bytes(31)}, {"secret_key": user.public_key}):
            yield GENERATOR, replace(generator, **wrong)


class Masks(Signing):
    """Pairwise masks; the aggregator keeps nothing on disk."""

    phases = ("advertise", "share", "mask", "consistency", "unmask")
    counted = "mask"

    def __init__(self, folder=None, **options):
        self.ended = {}
        super().__init__(folder, **options)

    @property
    def parties(self):
        return (*self.users, AGGREGATOR)

    @property
    def kept(self):
        return self.users

    def make(self, party, path):
        if party == AGGREGATOR:
            return MaskServer(self.roster, self.identities[party])
        return MaskUser(party, self.roster, self.identities[party], path=path, source=self.sources[party])

    def load(self, party, path):
        return MaskUser.load(path, source=self.sources[party])

    def introduce(self):
        """Users of masks know each other by the roster."""

    def ask(self, phase, name, *, update=None, user=None):
        user, update = user or self.role(name), self.updates[name] if update is None else update
        if phase == "advertise":
            return [user.advertise(self.round)]
        if phase == "share":
            return [user.share(self.ended["advertise"])]
        if phase == "mask":
            return [user.mask_integers(update, self.ended["share"][name])]
        if phase == "consistency":
            return [user.sign(self.ended["mask"])]
        return [user.unmask(self.ended["consistency"])]

    def end(self, phase):
        server = self.role(AGGREGATOR)
        ends = (server.directory, server.deliveries, server.survivors, server.request, server.result)
        self.ended[phase] = ends[self.phases.index(phase)]()
        self.result = self.ended[phase]

    def read(self, name, round=None):
        return self.role(name).read(self.result)

    @property
    def least(self):
        return threshold(len(self.users))

    def resigned(self, message, key, author):
        return key.sign(decode(message, Signed).body, author=author)

    def by_server(self, message):
        """What an aggregator that breaks the protocol may send."""
        return self.identities[AGGREGATOR].sign(encode(message), author=AGGREGATOR)

    def misfits(self):
        state = decode(self.path("ann").read_bytes(), mask_states.UserState)
        for wrong in (
            {"roster": b""},
            {"user": "bob"},
            {"seed": bytes(31)},
            {"secrets": state.secrets[1:]},
            {"sent": state.sent[1:]},
            {"directory": state.sent[0]},
            {"owners": state.owners[1:]},
            {"seed_shares": state.seed_shares[1:]},
        ):
            yield "ann", replace(state, **wrong)


SCHEMES = {"dphe": DPHE, "bfv": BFV, "masks": Masks}
KEYED = {"dphe": DPHE, "bfv": BFV}
