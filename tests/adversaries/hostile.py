"""Servers, networks and members that do not follow the protocol: each attack is played, and what it reads is counted.

| attack | who | schemes |
| --- | --- | --- |
| differencing attempts: a round is retried without a member, and the sums are subtracted | server, network | all |
| differencing rounds: the same with two rounds of nearly equal models | server | all: works where there is no noise |
| inconsistent drop-out sets: members are told different survivors | server with c members | masks |
| keys of the aggregator's own: it stands between a member and all others | server | masks |
| copied keys: a member advertises another one's, so that masks of two pairs cancel | server with c members | masks |
| chosen ciphertexts: something else is to be opened than the sum | server | dphe, block-dphe, bfv |
| malleable copies: a member contributes minus what others sent | member that is shown the others' messages | all |
| the same with multiples that pass the check | member and server | dphe: works, as the statement says |
| a model of its own for each member: all but one learn from dead weights | server | all |
| one member ends the run | member | all |
| forged contributor counts (`minimum_per_position`) | member | dphe, block-dphe |
| forged numbers of senders, with which those counts are compared | server | dphe, block-dphe |
| training that fails on data | server | selective sharing (`failing_on_data`) |

Every one of them succeeded against an implementation that followed its paper. They are played between real roles, on a
few weights and under short keys: none depends on the length of a key. The server here is the real `Aggregator`, which
forgets what it did, signs and asks for what it likes; a lying member is the real `Member`, which signs what it likes.
What the statement of the scheme says cannot be read or stopped is *refuted* if it is (`Read`), *as stated* if the
statement admits it, and else *not refuted*. More forms of some of these attacks are in test_forms.py.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from blindsight.audit.finding import Verdict
from blindsight.audit.recovery import cosine
from blindsight.crypto import bfv as lattice
from blindsight.crypto import paillier
from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.shamir import SHARE_BYTES
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.data.features import Standardiser
from blindsight.errors import BlindsightError, MessageError, PrivacyError
from blindsight.extras import require
from blindsight.learn.protection import RecordGaussian
from blindsight.papers.selective.noise import ParticipantGaussian, Sharing, SparseUpdate
from blindsight.papers.selective.protocol import LARGEST_PARAMETER, Participant
from blindsight.papers.selective.softmax import SoftmaxTrainer
from blindsight.rng import science, system_bytes
from blindsight.statement import find_line
from blindsight.sums import HIDING_SCHEMES, OWN_SCHEMES, SPARSE_SCHEMES, Aggregator, KeyGenerator, Member, bfv, masks
from blindsight.sums.dphe import Permutations, Shards, SparseAdder, SparseSum, layout_of, read_key
from blindsight.sums.mac import PRIME, context_of, tag
from blindsight.sums.masks import (
    ADVERTISE,
    CONSISTENCY,
    SHARE,
    UNMASK,
    Advertisement,
    Delivery,
    Directory,
    MaskMember,
    Peers,
    Reveal,
    RoundSecrets,
    SealedShares,
    Survivors,
    UnmaskRequest,
    agree,
    public_half,
)
from blindsight.sums.messages import Call, Reply, Setup, model_digest
from blindsight.sums.noise import NoisePlan
from blindsight.sums.scheme import CONTRIBUTE, SCHEMES, Adder, Turn
from blindsight.sums.session import make_terms
from blindsight.sums.statements import statement
from blindsight.sums.terms import AGGREGATOR, Integers, Terms
from tests.adversaries.coalitions import bared, joined

VICTIM, LIAR = "ann", "eve"
MEMBERS = (VICTIM, "bob", "cem", "dia", LIAR)
DIMENSION = 12
MODEL, OTHER = (model_digest([name]) for name in (b"the model that is learned from", b"another one"))

Updates = Mapping[str, Integers]


class _Forged(Adder):
    """Stands for a sum of the server's own making."""

    body: bytes

    def check(self, step: str, member: str, reply: Reply) -> None:
        return None

    def add(self, step: str, member: str, checked: None) -> None:
        return None

    def request(self) -> bytes:
        return self.body


class LyingServer(Aggregator):
    """An aggregator that signs and asks for what it likes."""

    @property
    def handed(self) -> Setup:
        """What the key generator has given to it."""
        return self._ready[1]

    def pretend(self, model: bytes) -> None:
        """Go on as if the round were learned from another model."""
        self._state = replace(self._state, model=model)

    def call(self, turn: Turn, step: str, model: bytes, body: bytes) -> bytes:
        """Return a signed call of any content."""
        return self.roster.signed(self._key, AGGREGATOR, Call(self.roster.digest, *turn, "", step, model, body, b""))

    def zeros(self) -> bytes:
        """Return the signed answer of this round with zeros in the place of the sum."""
        opened = self._done.opened()
        return self._own_answer(replace(opened, sums=0 * opened.sums))[0]

    def unsealed(self, reply: bytes) -> tuple[str, bytes]:
        """Return who sent a reply of the present round, and its body."""
        message = decode(reply, Reply)
        member = decode(message.receipt, Signed).author
        return member, self._unsealed(member, message.body)

    def _fresh_adder(self) -> Any:
        _, setup, roster = self._ready
        kind: type[Adder] = SparseAdder if self.terms.sparse else bfv.LatticeAdder
        return kind(roster, setup, self._turn, self.resources)

    def added(self, bodies: Mapping[str, bytes]) -> bytes:
        """Return the body of the request for the sum of these contributions."""
        adder = self._fresh_adder()
        for name, body in bodies.items():
            adder.add(CONTRIBUTE, name, adder.check(CONTRIBUTE, name, Reply(b"", body)))
        return bytes(adder.request())

    def shards(self, bodies: Mapping[str, bytes]) -> Iterator[tuple[Ciphertexts, Ciphertexts]]:
        """Yield sparse contributions of all blocks, in the order of phi, and the tag of each."""
        for name, body in bodies.items():
            checked = self._fresh_adder().check(CONTRIBUTE, name, Reply(b"", body))
            yield checked.ciphertexts[0][np.argsort(checked.places[0])], checked.tag

    def ask(self, turn: Turn, receipts: Mapping[str, bytes], body: bytes) -> bytes:
        """Return the request to open a body of any content under these members' receipts."""
        _, setup, roster = self._ready
        forged = _Forged(roster, setup, turn, self.resources)
        forged.members, forged.body = tuple(sorted(receipts)), body
        self._state = replace(self._state, round=turn[0], attempt=turn[1])
        self.step, self._adder, self._receipts = "", forged, dict(receipts)
        return self.request()


class LyingMember(Member):
    """A member that can lie."""

    def say(self, step: str, turn: Turn, model: bytes, body: bytes) -> bytes:
        """Return a well-signed reply of any content."""
        return self._vouch(step, turn, model, body)

    def twin(self) -> "LyingMember":
        """Return the same member as it is now, to do the same step twice."""
        return LyingMember(self.name, self.terms, state=self._state)

    def copy(self, source: "LyingMember") -> None:
        """Advertise the mask keys of another member as its own from now on, and do everything else as it should."""
        self._part = copier = _Copier(self.name, self.roster, self.handed, self.resources, self._vouch)
        copier.source = source

    @property
    def secrets(self) -> RoundSecrets:
        """What it keeps of a masked round."""
        return decode(self._state.secrets, RoundSecrets)

    @property
    def handed(self) -> Setup:
        """What the key generator has given to it."""
        return decode(self._state.setup, Setup)


class _Copier(MaskMember):
    source: LyingMember

    def answer(self, call: Call, integers: Integers | None, secrets: bytes) -> tuple[bytes, bytes]:
        body, kept = super().answer(call, integers, secrets)
        if call.step == ADVERTISE:
            self._own = decode(body, Advertisement)
            body = encode(replace(self._own, mask_key=public_half(self.source.secrets.mask)))
        return body, kept

    def _peers(self, call: Call, directory: bytes) -> Peers:
        peers = super()._peers(call, directory)
        return replace(peers, keys={**peers.keys, self.name: self._own})


class Run:
    """All parties of a run with a few weights."""

    def __init__(self, scheme: str, *, members: Sequence[str] = MEMBERS, **options: Any) -> None:
        if SCHEMES[scheme].sparse:
            few = {"capacity": DIMENSION, "block": 1 if scheme == "dphe" else 4, "key_bits": 1024, "insecure": True}
            options = few | options
        fixed: dict[str, Any] = {"run": "audit", "dimension": DIMENSION, "fraction_bits": 16, "absences": -1}
        self.terms = make_terms(scheme, members=members, **fixed | options)
        self.generator, self._seed = KeyGenerator(self.terms), system_bytes(32)
        self.members = {name: LyingMember(name, self.terms) for name in members}
        for party in (*self.members.values(), LyingServer(self.terms, seed=self._seed)):
            self.generator.enrol(party.enrolment())
        self.set_up()

    def set_up(self) -> None:
        """Hand out keys, the first or new ones."""
        self._setups = self.generator.setup()
        for name, member in self.members.items():
            member.accept(self._setups[name])

    def server(self) -> LyingServer:
        """Return the server as it is before the first round: what it did since, it has forgotten."""
        server = LyingServer(self.terms, seed=self._seed)
        server.accept(self._setups[AGGREGATOR])
        return server

    def collect(
        self,
        turn: Turn,
        updates: Updates,
        *,
        model: bytes = MODEL,
        models: Mapping[str, bytes] | None = None,
        lies: Callable[[LyingServer, dict[str, bytes]], bytes] | None = None,
        until: str = "",
    ) -> tuple[LyingServer, dict[str, bytes]]:
        """Play the steps of a round with these members: return the server, and the contributions.

        The server may have `models` for single members. `LIAR` contributes what `lies` makes of what the others sent.
        Who refuses is left out, as a server would do.
        """
        server, sent = self.server(), dict[str, bytes]()
        server.open(turn[0], attempt=turn[1], model=model)
        names = sorted(updates, key=lambda name: (name == LIAR, name))
        while server.step != until:
            for name in names:
                server.pretend((models or {}).get(name, model))
                if name not in server.awaited:
                    continue
                try:
                    call = server.calls(only=[name])[name]
                    if server.step == CONTRIBUTE and name == LIAR and lies is not None:
                        reply = lies(server, sent)
                    else:
                        reply = self.members[name].answer(call, updates[name] if server.step == CONTRIBUTE else None)
                    server.receive(reply)
                    if server.step == CONTRIBUTE:
                        sent[name] = reply
                except (MessageError, PrivacyError):
                    continue
            server.pretend(model)
            server.advance()
        return server, sent

    def play(self, turn: Turn, updates: Updates, **how: Any) -> Integers | None:
        """Return the sum of a round that is played as `collect` says; None if none is opened."""
        try:
            return self.conclude(self.collect(turn, updates, **how)[0])
        except PrivacyError:
            return None

    def conclude(self, server: LyingServer, request: bytes | None = None) -> Integers | None:
        """Return the sum that is opened for a server, by default the one it has added up; None if none is."""
        try:
            if not self.terms.keyed:
                return server.conclude()[1].integers
            return server.conclude(self.generator.answer(request or server.request()))[1].integers
        except (MessageError, PrivacyError):
            return None

    def updates(self, *, dead: Sequence[str] = ()) -> dict[str, Integers]:
        """Return an update for everybody, without a zero; those of the `dead` are nothing but zeros."""
        rng = science(len(self.members))
        drawn = {name: rng.integers(1, 1 << 14, self.terms.dimension) for name in self.terms.members}
        return {name: update * (name not in dead) for name, update in drawn.items()}


COLLUDING = 2
"""How many of five members masks hold against together with a lying server, as the statement says."""


class Read(NamedTuple):
    """What an attack found: a `value` above `most` refutes the claim, unless a line of the statement has `admitted` it.

    A value below `least` shows an attack that could not be played as it was meant.
    """

    value: float
    most: float = 0.0
    admitted: str | None = None
    least: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if self.value > self.most:
            return "as stated" if self.admitted else "refuted"
        return "undecided" if self.value < self.least else "not refuted"

    @property
    def measured(self) -> str:
        return f"{self.value:.3g}"


Finder = Callable[[str], Iterator[Read]]


def _admission(terms: Terms, id: str) -> str | None:
    said = statement(terms)
    return find_line((*said.not_protected, *said.assumptions), id)


def _read(opened: Integers | None, truth: Integers) -> float:
    """Return the share of a victim's weights that a sum shows."""
    return 0.0 if opened is None else float(np.mean(opened == truth))


_RESEMBLES = 0.9  # a cosine: with twelve weights, what is unrelated resembles as much less than twice in 10^5


def differencing_attempts(scheme: str) -> Iterator[Read]:
    """Retry a round without the victim in every way there is: count the sums that are opened (one is the round's).

    The first time members hear nothing of the sum, the second time they get the answer.
    """
    turns = [(1, 0), (1, 1), (2, 0)]  # the same attempt, another one, another round: all with the same model
    sums = []
    for answered in (False, True):
        run = Run(scheme)
        updates = run.updates()
        others = {name: update for name, update in updates.items() if name != VICTIM}
        server, _ = run.collect((1, 0), updates)
        answer, opened = server.conclude(run.generator.answer(server.request()) if run.terms.keyed else b"")
        for member in run.members.values() if answered else ():
            member.settle(answer, 1)
        again = [run.play(turn, others) for turn in turns]
        sums.append(len({total.tobytes() for total in (opened.integers, *again) if total is not None}))
    yield Read(max(sums), most=1, least=1)


def differencing_rounds(scheme: str, plan: NoisePlan | None = None) -> Iterator[Read]:
    """Subtract the sums of two rounds that are learned from nearly the same model, the second without the victim.

    Read the cosine of the difference with the update of the member that is missing from one.
    Under a `plan` members add noise to what they send.
    """
    run, rng = Run(scheme), science(0)
    rows, answers = rng.normal(size=(len(MEMBERS), 40, DIMENSION)), rng.normal(size=(len(MEMBERS), 40))
    model = rng.normal(size=DIMENSION)

    def learned(weights: Any, names: Sequence[str]) -> dict[str, Integers]:
        steps = {name: rows[i].T @ (answers[i] - rows[i] @ weights) / 40 for i, name in enumerate(MEMBERS)}
        if plan is not None:
            return {name: plan.contribution([steps[name]]) for name in names}
        return {name: run.terms.integers(steps[name]) for name in names}

    first = learned(model, MEMBERS)
    near = learned(model + 1e-3 * rng.normal(size=DIMENSION), MEMBERS[1:])
    whole, rest = run.play((1, 0), first), run.play((2, 0), near, model=OTHER)
    left = np.zeros(DIMENSION) if whole is None or rest is None else whole - rest
    alike = round(cosine(left, rows[0].T @ (answers[0] - rows[0] @ model)), 6)
    yield Read(alike, most=_RESEMBLES, least=-1, admitted=_admission(run.terms, "differences"))


def inconsistent_drop_outs(scheme: str) -> Iterator[Read]:
    """Tell some members that the victim has uploaded and others that it has not, and collect both kinds of shares.

    The server has `COLLUDING` members, who sign and reveal whatever it likes.
    """
    run, turn = Run(scheme), (1, 0)
    updates = run.updates()
    server, sent = run.collect(turn, updates, until=CONSISTENCY)
    colluding, honest = MEMBERS[-COLLUDING:], MEMBERS[:-COLLUDING]
    held = run.members[VICTIM].secrets  # what everybody knows of it: the directory, and who is in it
    told = {with_victim: tuple(n for n in MEMBERS if with_victim or n != VICTIM) for with_victim in (True, False)}
    shares: dict[bool, dict[str, bytes]] = {}
    for with_victim, survivors in told.items():
        half = len(honest) - len(honest) // 2
        asked = honest[:half] if with_victim else honest[half:]
        parties = {name: run.members[name] for name in asked} | {name: run.members[name].twin() for name in colluding}
        signed = {}
        for name, member in parties.items():
            try:
                call = server.call(turn, CONSISTENCY, MODEL, encode(Survivors(survivors)))
                signed[name] = decode(member.answer(call), Reply).receipt
            except (MessageError, PrivacyError):
                continue
        shares[with_victim] = _revealed(server, turn, parties, tuple(signed.values()), held.owners.index(VICTIM))
    peers = masks.read_directory(server.roster, held.directory, turn, MODEL, tuple(sorted(MEMBERS)))
    seed, key = joined(peers, shares[True]), joined(peers, shares[False])
    opened = None
    if seed is not None and key is not None:
        pairs = {name: agree(key, peers.keys[name].mask_key) for name in held.owners if name != VICTIM}
        opened = bared(server.roster, turn, decode(sent[VICTIM], Reply).body, VICTIM, seed, pairs)
    yield Read(_read(opened, updates[VICTIM]))


def _revealed(
    server: LyingServer, turn: Turn, parties: Mapping[str, LyingMember], receipts: tuple[bytes, ...], place: int
) -> dict[str, bytes]:
    """Return the shares of the victim's secret that parties reveal for these signatures, by holder."""
    found = {}
    for name, member in parties.items():
        try:
            reply = member.answer(server.call(turn, UNMASK, MODEL, encode(UnmaskRequest(receipts))))
            found[name] = decode(decode(reply, Reply).body, Reveal).shares[place]
        except (MessageError, PrivacyError):
            continue
    return found


def keys_of_its_own(scheme: str) -> Iterator[Read]:
    """Hand the victim keys of the server's own making for everybody else, and read what it seals and masks for them.

    The shares of its two secrets are then sealed for the server, which holds all of them, and so is every mask.
    """
    run, turn = Run(scheme), (1, 0)
    updates, server, victim = run.updates(), run.server(), run.members[VICTIM]
    server.open(turn[0], model=MODEL)
    signed = {name: decode(run.members[name].answer(call), Reply) for name, call in server.calls().items()}
    others, opened = sorted(set(MEMBERS) - {VICTIM}), None
    keys = system_bytes(32), system_bytes(32), system_bytes(32)
    made = {name: RoundSecrets(*turn, *keys, b"", (), (), (), ()) for name in others}
    told = signed | {name: replace(signed[name], body=encode(made[name].advertisement)) for name in others}
    directory = encode(Directory(tuple(encode(told[name]) for name in sorted(told))))
    try:
        reply = decode(victim.answer(server.call(turn, SHARE, MODEL, directory)), Reply)
        peers = masks.read_directory(server.roster, directory, turn, MODEL, tuple(sorted(MEMBERS)))
        channel = {name: agree(made[name].channel, peers.keys[VICTIM].channel_key) for name in others}
        boxes = dict(zip(others, decode(reply.body, SealedShares).sealed, strict=True))
        shares = {n: unseal(channel[n], boxes[n], purpose=masks._purpose(peers, VICTIM, n)) for n in others}
        sealed = [seal(channel[n], shares[n], purpose=masks._purpose(peers, n, VICTIM)) for n in others]  # of any kind
        asked = server.call(turn, CONTRIBUTE, MODEL, encode(Delivery(tuple(others), tuple(sealed))))
        upload = decode(victim.answer(asked, updates[VICTIM]), Reply).body
        seed = joined(peers, {name: share[SHARE_BYTES:] for name, share in shares.items()})
        if seed is not None:
            pairs = {name: agree(made[name].mask, peers.keys[VICTIM].mask_key) for name in others}
            opened = bared(server.roster, turn, upload, VICTIM, seed, pairs)
    except (MessageError, PrivacyError):
        opened = None
    yield Read(_read(opened, updates[VICTIM]))


def copied_keys(scheme: str) -> Iterator[Read]:
    """Let one of three members advertise the mask key of another; the name of the victim is between theirs.

    The server plays every step as it should, and lifts the victim's own mask from its upload.
    """
    source, victim, turn = "bob", "cem", (1, 0)
    run = Run(scheme, members=(source, victim, LIAR))
    run.members[LIAR].copy(run.members[source])
    updates = run.updates()
    server, sent = run.collect(turn, updates)
    adder: Any = server._adder
    (group,) = adder._groups
    seed = adder._secrets(group, group.peers)[victim]
    opened = bared(server.roster, turn, decode(sent[victim], Reply).body, victim, seed, {})
    yield Read(_read(opened, updates[victim]))


def chosen_ciphertexts(scheme: str) -> Iterator[Read]:
    """Ask the key generator to open something else than the sum, under honest receipts; then for the sum after all.

    What is refused must use up the round, or else refusals tell something about what was decrypted.
    """
    run, opened, again = Run(scheme), 0, 0
    kinds, forgery = (SPARSE_FORGERIES, _sparse_forgery) if run.terms.sparse else (LATTICE_FORGERIES, _lattice_forgery)
    for number, kind in enumerate(kinds):
        if number:
            run.set_up()  # new keys, as the old ones are given up
        server, sent = run.collect((number, 0), run.updates(), model=model_digest([b"%d" % number]))
        body = forgery(kind, server, dict(server.unsealed(reply) for reply in sent.values()))
        liar = run.server()
        request = liar.ask((number, 0), {name: decode(reply, Reply).receipt for name, reply in sent.items()}, body)
        opened += run.conclude(liar, request) is not None
        again += run.conclude(server) is not None
    yield Read(opened / len(kinds))
    yield Read(again / len(kinds))


Bodies = Mapping[str, bytes]
SPARSE_FORGERIES = "victim", "altered", "doubled", "untagged", "wrapped"
LATTICE_FORGERIES = "victim", "altered", "doubled", "secret key"


def _sparse_forgery(kind: str, server: LyingServer, bodies: Bodies) -> bytes:
    """Return the victim's contribution or the sum with an alteration, as if everybody had sent every place of it."""
    request = decode(server.added({VICTIM: bodies[VICTIM]} if kind == "victim" else bodies), SparseSum)
    request = replace(request, senders=np.full_like(request.senders, len(server.terms.members)))
    key = read_key(server.handed.encryption_key, server.roster)
    sums, tags = (Ciphertexts.from_matrix(key, matrix) for matrix in (request.ciphertexts, request.tag))
    if kind == "altered":  # one more in the first slot
        sums = sums + key.encrypt([1] + [0] * (len(sums) - 1))
    elif kind == "doubled":
        sums, tags = sums * 2, tags * 2
    elif kind == "untagged":
        tags = key.encrypt([0])
    elif kind == "wrapped":  # places that seem to ascend, because differences of 64-bit integers wrap around
        request = replace(request, places=np.append(request.places[:-2], [(1 << 63) - 1, -(1 << 63)]))
    return encode(replace(request, ciphertexts=sums.to_matrix(), tag=tags.to_matrix()))


def _lattice_forgery(kind: str, server: LyingServer, bodies: Bodies) -> bytes:
    """Return the victim's contribution or the sum with an alteration, as if it were everybody's."""
    key, members = bfv.read_key(server.handed.encryption_key, server.roster), len(server.terms.members)
    total = key.read_vector(bodies[VICTIM] if kind == "victim" else server.added(bodies))
    if kind == "altered":  # one more in the first slot
        total = total + key.encrypt(np.eye(1, len(total), dtype=np.int64)[0], terms=members)
    elif kind == "doubled":
        total = total + total
    elif kind == "secret key":
        total = replace(total, parts=(_secret_key_part(total.parts[0]), *total.parts[1:]))
    return replace(total, terms=members).to_bytes()


def _secret_key_part(part: Any) -> Any:
    """Return c0 = 0, c1 = floor(q / t), which decrypts to the key generator's secret key.

    TenSEAL cannot write single coefficients. So the bytes are laid out as those of SEAL are: a header (magic number,
    its length, version, no compression, length of all), digest of the parameters, NTT form, sizes, scale, correction
    factor, and the coefficients with a header of their own.
    """
    whole: bytes = part.serialize()
    parameters = part.context().seal_context().data.first_context_data().parms()
    primes = [modulus.value() for modulus in parameters.coeff_modulus()]
    factor = math.prod(primes) // parameters.plain_modulus().value()
    numbers = np.zeros((2, len(primes), parameters.poly_modulus_degree()), dtype="<u8")
    numbers[1, :, 0] = [factor % prime for prime in primes]
    start = whole.index(b"\x5e\xa1")

    def framed(content: bytes) -> bytes:
        return whole[start : start + 5] + struct.pack("<BHQ", 0, 0, 16 + len(content)) + content

    digest, shape = part.ciphertext()[0].parms_id(), (2, numbers.shape[2], len(primes))
    sizes = struct.pack("<4QB3QdQ", *digest, 0, *shape, 1.0, 1)
    ciphertext = framed(sizes + framed(struct.pack("<Q", numbers.size) + numbers.tobytes()))
    length, left = b"", len(ciphertext)
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    forged = whole[: whole.index(b"\x12", 3) + 1] + length + bytes([left]) + ciphertext
    return require("tenseal", extra="he", purpose="lattice encryption (BFV)").bfv_vector_from(part.context(), forged)


def malleable_copies(scheme: str) -> Iterator[Read]:
    """Let a member that is shown what the others sent contribute minus that of all but the victim."""
    run, turn = Run(scheme), (1, 0)
    updates = run.updates()
    negative = {"bfv": _lattice_negative, "masks": _masked_negative}.get(scheme, _sparse_negative)

    def lies(server: LyingServer, sent: dict[str, bytes]) -> bytes:
        bodies = dict(server.unsealed(reply) for name, reply in sent.items() if name != VICTIM)
        return run.members[LIAR].say(CONTRIBUTE, turn, MODEL, negative(run, server, bodies))

    opened = run.play(turn, updates, lies=lies)
    yield Read(_read(opened, updates[VICTIM]))


def _sparse_negative(run: Run, server: LyingServer, bodies: Bodies) -> bytes:
    """Minus the others' blocks, and so many in the slot that counts contributors that nothing is withheld."""
    terms, layout = run.terms, layout_of(run.terms)
    blocks = np.arange(layout.blocks)
    seen = list(server.shards(bodies))
    sums, tags = (paillier.add_all(parts) * -1 for parts in zip(*seen, strict=True))
    counts = (len(terms.members) - 1) << (terms.slot_bits * layout.slots) if layout.counting else 0
    sums = sums.key.rerandomise(sums + sums.key.encrypt([counts] * layout.blocks))
    own = Permutations(server.roster).own(run.members[LIAR].handed.own[0], LIAR, 1).forward(blocks)
    order = np.argsort(own)
    return encode(Shards(system_bytes(32), own[order][None], sums[order].to_matrix()[None], tags.to_matrix()))


def _lattice_negative(run: Run, server: LyingServer, bodies: Bodies) -> bytes:
    key = bfv.read_key(server.handed.encryption_key, server.roster)
    zero = key.encrypt(np.zeros(bfv.length(run.terms), dtype=np.int64), terms=len(run.terms.members))
    seen = lattice.add_all([key.read_vector(body) for body in bodies.values()])
    return replace(zero, parts=tuple(a - b for a, b in zip(zero.parts, seen.parts, strict=True))).to_bytes()


def _masked_negative(run: Run, server: LyingServer, bodies: Bodies) -> bytes:
    uploads = np.array([run.terms.read_residues(body) for body in bodies.values()])
    return bytes(np.negative(uploads.sum(axis=0, dtype=uploads.dtype)).tobytes())


def copies_with_the_server(scheme: str) -> Iterator[Read]:
    """Let a member that the server shows the victim's ciphertexts contribute multiples of them that pass the check.

    It knows the factors r of the code (`sums.mac`), hence u and v with r_a u + r_b v = 0 (mod P) of about sqrt(P). To
    the blocks a and b it adds u and v times the victim's weight in a: the tag of zeros fits, and of the sum that is
    opened in a, u times that weight is by far the largest part. Blocks must hold one weight.
    """
    run, turn = Run(scheme, slot_bits=56), (1, 0)
    updates, terms, liar = run.updates(), run.terms, run.members[LIAR]
    factors: dict[int, int] = {}
    blocks = layout_of(terms).blocks

    def lies(server: LyingServer, sent: dict[str, bytes]) -> bytes:
        handed, context = liar.handed, context_of(server.roster.digest, turn[0])
        rows, counts = np.eye(blocks * 2, dtype=np.int64), np.tile([0, 1], blocks)
        tags = [tag(row, shared=handed.shared, offset=handed.offset, context=context) for row in (*rows, 0 * rows[0])]
        permutations = Permutations(server.roster)
        phi = permutations.shared(handed.shared, turn[0]).forward(np.arange(blocks))
        ((ciphertexts, _),) = server.shards(dict([server.unsealed(sent[VICTIM])]))
        victim, key = ciphertexts[phi], ciphertexts.key  # in plain order
        parts = []
        for a in range(0, blocks, 2):
            u, v = _relation(tags[2 * a] - tags[-1], tags[2 * a + 2] - tags[-1])
            factors[a] = u
            for factor in (u, v):  # and one in the slot that counts, as everybody has
                count = (1 - factor) << terms.slot_bits
                parts.append(victim[a : a + 1] * factor + key.encrypt([abs(count)]) * (1 if count > 0 else -1))
        code = tag(counts, shared=handed.shared, offset=handed.offset, context=context)
        places = permutations.own(handed.own[0], LIAR, turn[0]).forward(phi)
        order = np.argsort(places)
        matrix = np.concatenate([parts[place].to_matrix() for place in order.tolist()])
        shards = Shards(system_bytes(32), places[order][None], matrix[None], key.encrypt([code]).to_matrix())
        return liar.say(CONTRIBUTE, turn, MODEL, encode(shards))

    opened, guess = run.play(turn, updates, lies=lies), np.zeros(terms.dimension, dtype=np.int64)
    for place, factor in factors.items():
        guess[place] = 0 if opened is None else round(int(opened[place]) / factor)
    yield Read(_read(guess, updates[VICTIM]), admitted=_admission(terms, "aggregator-apart"))


def _relation(first: int, second: int) -> tuple[int, int]:
    """Return small u and v, not both zero, with first u + second v = 0 (mod P), by Euclid's algorithm halfway."""
    before, after = (PRIME, 0), (-second * pow(first, -1, PRIME) % PRIME, 1)
    while after[0] ** 2 > PRIME:
        quotient = before[0] // after[0]
        before, after = after, (before[0] - quotient * after[0], before[1] - quotient * after[1])
    return after


def models_of_their_own(scheme: str) -> Iterator[Read]:
    """Let all but the victim learn from weights that nothing changes: what they send is zero."""
    run = Run(scheme, minimum_per_position=1)  # no block is withheld because the others changed nothing
    dead = [name for name in MEMBERS if name != VICTIM]
    updates = run.updates(dead=dead)
    opened = run.play((1, 0), updates, models=dict.fromkeys(dead, OTHER))
    yield Read(_read(opened, updates[VICTIM]))


def one_member_ends_the_run(scheme: str) -> Iterator[Read]:
    """Let a member sign garbage of many kinds; the sum of the others must be opened all the same."""
    run, failed = Run(scheme), 0
    updates, kinds = run.updates(), [b"", bytes(1000), system_bytes(1000), *_garbage(run.terms)]
    others = sum(update for name, update in updates.items() if name != LIAR)
    for number, body in enumerate(kinds):
        turn, model = (number, 0), model_digest([b"%d" % number])

        def lies(server: LyingServer, sent: dict[str, bytes], said: tuple[Any, ...] = (turn, model, body)) -> bytes:
            return run.members[LIAR].say(CONTRIBUTE, *said)

        try:
            opened = run.play(turn, updates, model=model, lies=lies)
        except Exception:  # of any kind: that is what is looked for
            opened = None
        failed += opened is None or not np.array_equal(opened, others)
    yield Read(failed / len(kinds))


def _garbage(terms: Terms) -> Iterator[bytes]:
    """Yield bodies of the right kind and the wrong content."""
    if terms.scheme == "masks":
        yield bytes(terms.dimension * terms.residue_type.itemsize + 1)
    if not terms.sparse:
        return
    width, room = layout_of(terms).ciphertext_bytes, layout_of(terms).room
    places, least, most = np.arange(room), -(1 << 63), (1 << 63) - 1
    honest = Shards(bytes(32), places[None], np.ones((1, room, width), np.uint8), np.ones((1, width), np.uint8))
    shapes = (), (0,), (1,), (1, 0, width), (1, room, 0), (1, room, width - 1), (room, 1, width)
    ends = (0, most), (least, room - 1), (most, least), (0, room - 2), (room - 1, 0)  # of places that should ascend
    wrong: list[dict[str, Any]] = [{"ciphertexts": np.zeros(shape, np.uint8)} for shape in shapes]
    wrong += [{"places": np.concatenate([[first], places[1:-1], [last]])[None]} for first, last in ends]
    wrong += [{"places": np.array(other, np.int64)} for other in (0, [], [0, most, least], [[[0]]])]
    wrong += [{"places": places[None] + 1}, {"places": places[None, :0], "ciphertexts": honest.ciphertexts[:, :0]}]
    wrong += [{"tag": np.zeros(shape, np.uint8)} for shape in ((), (0, width), (2, width))]
    yield from (encode(replace(honest, **changes)) for changes in (*wrong, {"ciphertexts": 0 * honest.ciphertexts}))


def forged_counts(scheme: str) -> Iterator[Read]:
    """Let a member claim that three changed the blocks which the victim alone changed, and which two of them sent.

    And let the server claim that nobody sent the blocks that the victim did not send.
    """
    members, three = (VICTIM, "bob", "cem", LIAR), 3
    for padded in (False, True):
        if padded:
            yield _forged_senders(scheme)
        slots = 1 if scheme == "dphe" else 4
        blocks = DIMENSION // slots
        capacity = DIMENSION if padded else DIMENSION // 3
        run = Run(scheme, members=members, minimum_per_position=three, capacity=capacity)
        updates, mine = run.updates(), np.arange(DIMENSION)
        for place, name in enumerate(members[:3]):  # a third of the weights each
            updates[name] = updates[name] * (mine // (DIMENSION // 3) == place)
        lonely = np.arange(blocks) if padded else np.arange(blocks // 3)

        def lies(server: LyingServer, sent: dict[str, bytes], run: Run = run, lonely: Any = lonely) -> bytes:
            return run.members[LIAR].say(CONTRIBUTE, (1, 0), MODEL, _counted_twice(run, server, lonely))

        opened, victim = run.play((1, 0), updates, lies=lies), updates[VICTIM]
        read = _read(None if opened is None else opened[victim != 0], victim[victim != 0])
        yield Read(read, admitted=_admission(run.terms, "forged-count") if padded else None)


def _forged_senders(scheme: str) -> Read:
    """Name no senders of what the victim did not send: half of the blocks, which all others changed.

    Read the share of these blocks that the opened sum leaves out, while it has all that the victim sent.
    """
    half = 3 * (1 if scheme == "dphe" else 4)
    run = Run(scheme, dimension=2 * half, capacity=half)
    updates = run.updates()
    updates[VICTIM][half:] = 0
    server, sent = run.collect((1, 0), updates)
    adder: Any = server._adder
    body = server.unsealed(sent[VICTIM])[1]
    (places,) = adder.check(CONTRIBUTE, VICTIM, Reply(b"", body)).places
    adder._senders[np.setdiff1d(np.arange(layout_of(run.terms).blocks), places)] = 0
    opened = run.conclude(server)
    return Read(0.0 if opened is None or not opened[:half].all() else float(np.mean(opened[half:] == 0)))


def _counted_twice(run: Run, server: LyingServer, blocks: Integers) -> bytes:
    """Return a contribution of zeros to these blocks that counts as two."""
    layout, handed = layout_of(run.terms), run.members[LIAR].handed
    key, permutations = read_key(handed.encryption_key, server.roster), Permutations(server.roster)
    rows = np.zeros((layout.blocks, layout.packing.slots), dtype=np.int64)
    rows[blocks, -1] = 2
    places = permutations.own(handed.own[0], LIAR, 1).forward(permutations.shared(handed.shared, 1).forward(blocks))
    context = context_of(server.roster.digest, 1)
    numbers = [2 << (run.terms.slot_bits * layout.slots)] * blocks.size
    numbers.append(tag(rows.ravel(), shared=handed.shared, offset=handed.offset, context=context))
    matrix = key.encrypt(numbers).to_matrix()
    return encode(Shards(system_bytes(32), np.sort(places)[None], matrix[None, :-1], matrix[-1:]))


def failing_on_data(unit: str) -> Read:
    """Hand a participant of selective sharing weights with which training fails if a photo exceeds a number.

    Under noise a photo must not show in whether training fails, how, and how long what is uploaded is. Read the share
    of the choices of weights with which one photo changes what the server sees.
    """
    noise = (RecordGaussian if unit == "record" else ParticipantGaussian)(clip=1.0, noise_multiplier=1.0)
    attempts = [(LARGEST_PARAMETER, 1e36), (3e38, 1.2)]  # a weight, and a feature with which it overflows
    told = sum(_seen(noise, weight, 0.5) != _seen(noise, weight, feature) for weight, feature in attempts)
    return Read(told / len(attempts))


def _seen(noise: RecordGaussian | ParticipantGaussian, weight: float, feature: float) -> str:
    """Return what a server sees of a participant one of whose photos has this feature: an error, or a length."""
    rng, size, count = science(0), 4, 6
    standardiser = Standardiser(np.zeros(size), np.ones(size))
    per_record = noise if isinstance(noise, RecordGaussian) else None
    trainer = SoftmaxTrainer(standardiser=standardiser, classes=2, learning_rate=0.1, batch=2, record_noise=per_record)
    sharing = Sharing(0.5, select="random", noise=noise)
    participant = Participant(VICTIM, trainer, sharing, batch=count, random_state=1)
    photos = rng.uniform(-1, 1, (count, size)).astype(np.float32)
    photos[3] = feature
    participant.gather(photos, np.arange(count) % 2)
    weights = np.zeros(trainer.layout.dimension, dtype=np.float32)
    weights[2] = weight
    try:
        participant.take(SparseUpdate(weights.size, np.arange(weights.size), weights), 0)
        return f"{participant.train().update.indices.size} values"
    except BlindsightError as error:
        return f"{type(error).__name__}: {error}"


KEYED_SCHEMES = tuple(name for name in OWN_SCHEMES if SCHEMES[name].keyed)
PLAYED: tuple[tuple[str, Sequence[str], Finder], ...] = (
    ("differencing attempts", HIDING_SCHEMES, differencing_attempts),
    ("differencing rounds", HIDING_SCHEMES, differencing_rounds),
    ("inconsistent drop-out sets", ("masks",), inconsistent_drop_outs),
    ("keys of the aggregator's own", ("masks",), keys_of_its_own),
    ("copied keys", ("masks",), copied_keys),
    ("chosen ciphertexts", KEYED_SCHEMES, chosen_ciphertexts),
    ("malleable copies", HIDING_SCHEMES, malleable_copies),
    ("malleable copies, of a member with the server", ("dphe",), copies_with_the_server),
    ("a model of its own for each member", HIDING_SCHEMES, models_of_their_own),
    ("one member ends the run", HIDING_SCHEMES, one_member_ends_the_run),
    ("forged contributor counts", SPARSE_SCHEMES, forged_counts),
)
"""What is played against a sum: a name, the schemes that have to fear it, and the attack."""
