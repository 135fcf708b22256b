"""Runs of every scheme, driven step by step, for tests of what each of them must do and of who may lie.

With a folder a role lives no longer than one call: it is loaded from its file whenever it is used.
"""

import hashlib
from dataclasses import replace

import numpy as np

from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.sums import SCHEMES, Aggregator, KeyGenerator, Member, make_terms
from blindsight.sums.dphe import layout_of
from blindsight.sums.masks import RoundSecrets
from blindsight.sums.messages import Answer, Call, Receipt, Refusal, Reply, Request, Setup
from blindsight.sums.roles import ANSWER, REQUEST, body_purpose
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.keys import bfv_key, paillier_key

NAMES = ("ann", "bob", "cem", "dia", "eve")
SIZE = 8
KEYED = ("bfv", "dphe", "block-dphe")
ALL = ("plain", "masks", "two-wave-masks", *KEYED)
SPARSE = {"capacity": 6, "key_bits": 1024, "insecure": True, "minimum_per_position": 1}


def terms_of(scheme, **changes):
    """Terms of a small run; a dense update takes two shards under DPHE."""
    settings = {"run": "test", "members": NAMES, "dimension": SIZE, "fraction_bits": 8, "absences": -1}
    if scheme in SCHEMES and SCHEMES[scheme].sparse:
        settings |= SPARSE | ({"block": 4} if SCHEMES[scheme].packed else {})
    return make_terms(scheme, **settings | changes)


def key_of(terms, number=0):
    """A fixed key pair for these terms."""
    if terms.sparse:
        options = layout_of(terms).options
        return paillier_key(options.key_bits, number, keys=options.keys)
    return bfv_key(number, max_sum=terms.max_integer * len(terms.members)) if terms.keyed else None


class Run:
    """A run that has been set up."""

    def __init__(self, scheme, folder=None, *, key=None, **changes):
        self.terms = terms_of(scheme, **changes)
        self.names, self.folder = self.terms.members, folder
        self.parties = (*self.names, AGGREGATOR, KEY_GENERATOR)
        self.updates = {
            name: np.arange(self.terms.dimension) * (-1) ** i + 100 * i for i, name in enumerate(self.names)
        }
        self.roles, self.model, self.answer, self.total = {}, b"", b"", None
        if folder is not None and folder.exists():  # a run that goes on
            return
        if folder is not None:
            folder.mkdir()
        for party in self.parties:
            self.roles[party] = self.make(party, key=key or key_of(self.terms))
        for party in self.parties[:-1]:
            self.role(KEY_GENERATOR).enrol(self.role(party).enrolment())
        self.set_up()

    def set_up(self):
        for party, setup in self.role(KEY_GENERATOR).setup().items():
            self.role(party).accept(setup)

    def make(self, party, *, key=None):
        path = self.path(party)
        if party == KEY_GENERATOR:
            seed = b"p" * 32 if self.terms.traits.cohorts else b""
            return KeyGenerator(self.terms, key=key or key_of(self.terms), partition=seed, path=path)
        return Aggregator(self.terms, path=path) if party == AGGREGATOR else Member(party, self.terms, path=path)

    def path(self, party):
        return self.folder / party if self.folder else None

    def role(self, party):
        """Return a role as it is, or as its file tells."""
        if self.folder is None:
            return self.roles[party]
        return {AGGREGATOR: Aggregator, KEY_GENERATOR: KeyGenerator}.get(party, Member).load(self.path(party))

    @property
    def aggregator(self):
        return self.role(AGGREGATOR)

    @property
    def generator(self):
        return self.role(KEY_GENERATOR)

    @property
    def steps(self):
        return self.aggregator._begun.steps

    @property
    def round(self):
        return self.aggregator.round

    def begin(self, round, *, model=b"", attempt=0):
        self.aggregator.open(round, model=model, attempt=attempt)

    def integers(self, name, step):
        return self.updates[name] if step == CONTRIBUTE else None

    def ask(self, name, *, update=None, role=None, call=None):
        """Let a member answer the present step, from its own update or another."""
        aggregator = self.aggregator
        call = aggregator.calls(only=[name])[name] if call is None else call
        integers = self.integers(name, aggregator.step) if update is None else update
        return (role or self.role(name)).answer(call, integers)

    def deliver(self, *replies):
        for reply in replies:
            self.aggregator.receive(reply)

    def send(self, *names):
        """Let these members answer the present step, except where it is known what they would say."""
        for name in names or self.names:
            aggregator = self.aggregator
            if name in aggregator.awaited:
                call = aggregator.calls(only=[name])[name]
                aggregator.receive(self.role(name).answer(call, self.integers(name, aggregator.step)))

    def play_step(self, *names):
        self.send(*names)
        return self.aggregator.advance()

    def play_until(self, step, *names):
        """Play the steps before this one."""
        while self.aggregator.step != step:
            self.play_step(*names)

    def finish(self, *names):
        """Play the rest of the round and return the sum."""
        while self.aggregator.step:
            self.play_step(*names)
        aggregator = self.aggregator
        answer = self.generator.answer(aggregator.request()) if self.terms.keyed else b""
        self.answer, self.total = aggregator.conclude(answer)
        return self.total.integers

    def play(self, round, *names, model=b""):
        """Play a whole round and return the sum."""
        self.begin(round, model=model)
        return self.finish(*names)

    def sum(self, *names):
        return np.sum([self.updates[name] for name in names or self.names], axis=0)

    # What parties know that may lie

    def kept(self, name):
        """What a member keeps of a masked round."""
        return decode(self.role(name)._state.secrets, RoundSecrets)

    def key(self, party):
        """The signing key of a party."""
        return self.role(party)._key

    def setup(self, party):
        return decode(self.generator.setup()[party], Setup)

    @property
    def digest(self):
        return self.generator.roster.digest

    def signed(self, party, message, *, author=None):
        return self.key(party).sign(encode(message), author=author or party)

    def zeros(self):
        """The answer of the last round with another sum, as an aggregator without a key generator can sign it."""
        answer = decode(decode(self.answer, Signed).body, Answer)
        return self.signed(AGGREGATOR, replace(answer, sums=bytes(len(answer.sums))))

    def call(self, envelope):
        return decode(decode(envelope, Signed).body, Call)

    def opened(self, reply, name):
        """Return the receipt and the unsealed body of a reply."""
        message = decode(reply, Reply)
        receipt = decode(decode(message.receipt, Signed).body, Receipt)
        body = message.body
        if self.terms.traits.sealed:
            body = unseal(self.setup(name).own[0], body, purpose=body_purpose(name, (receipt.round, receipt.attempt)))
        return receipt, body

    def reply(self, name, receipt, body, *, vouched=True):
        """Return a reply of any content, well signed and sealed by the member it comes from."""
        if vouched:
            receipt = replace(receipt, body=hashlib.sha256(body).digest())
        if self.terms.traits.sealed:
            purpose = body_purpose(name, (receipt.round, receipt.attempt))
            body = seal(self.setup(name).own[0], body, purpose=purpose)
        return encode(Reply(self.signed(name, receipt), body))

    def receipts(self, *names, round, model=b"", **changes):
        """Receipts that members sign; whatever they are for."""
        receipt = Receipt(self.digest, round, 0, CONTRIBUTE, model, bytes(32))
        return tuple(self.signed(name, replace(receipt, **changes)) for name in names)

    def request(self):
        """Return the request of the aggregator as it is under the seal."""
        return decode(unseal(self.setup(AGGREGATOR).channel, self.aggregator.request(), purpose=REQUEST), Request)

    def sealed(self, request):
        blob = request if isinstance(request, bytes) else encode(request)
        return seal(self.setup(AGGREGATOR).channel, blob, purpose=REQUEST)

    def answered(self, request):
        """Return what the key generator answers, under seal and signature."""
        answer = self.generator.answer(request if isinstance(request, bytes) else self.sealed(request))
        answer = unseal(self.setup(AGGREGATOR).channel, answer, purpose=ANSWER)
        return decode(decode(answer, Signed).body, Answer, Refusal)


def flipped(message, rng):
    """The message with one byte changed."""
    changed = bytearray(message)
    changed[rng.integers(len(changed))] ^= int(rng.integers(1, 256))
    return bytes(changed)
