"""More forms of the attacks in hostile.py, each of which once succeeded: by other steps, numbers, encodings and counts.

Where a defence is taken away they work, and not with it.
"""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from blindsight.crypto import bfv
from blindsight.crypto.paillier import Ciphertexts
from blindsight.crypto.sealedbox import unseal
from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.wire import decode, encode
from blindsight.errors import BlindsightError, MessageError, PrivacyError, StorageError
from blindsight.sums import (
    Aggregator,
    Engine,
    KeyGenerator,
    Member,
    Patience,
    RefusedError,
    Session,
    mac,
    masks,
    statement,
)
from blindsight.sums import dphe as dphe_module
from blindsight.sums.bfv import length
from blindsight.sums.dphe import IndexedValues, Permutations, SparseSum, layout_of
from blindsight.sums.engine import LocalTransport, Response
from blindsight.sums.masks import (
    Delivery,
    MaskMember,
    RoundSecrets,
    SealedShares,
    add_masks,
    agree,
    colluders,
    public_half,
    threshold,
)
from blindsight.sums.messages import Answer, Refusal, Reply
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR
from tests.adversaries import catalogue
from tests.keys import _pair, bfv_key, paillier_key
from tests.learn.mutants import LARGEST, LEAST, wrapping
from tests.sums.runs import ALL, KEYED, NAMES, SIZE, Run, key_of, terms_of

MODEL = b"m" * 32
HIDING = ("masks", *KEYED)


# Differencing attempts


def rebuilt(run, round, *names, model=b""):
    """A second aggregator with the same key, that has got the replies of these members in this round."""
    other = Aggregator(run.terms, seed=run.key(AGGREGATOR).secret_bytes())
    other.accept(run.generator.setup()[AGGREGATOR])
    other.open(round, model=model)
    for name in names:
        other.receive(run.role(name)._state.sent)
    other.advance()
    return other


def test_differencing_attempts_at_two_names_of_the_key_generators_file(tmp_path):
    """Were a link replaced by a copy, the file would still be that of a key generator that opened nothing."""
    run, link = Run("dphe", tmp_path / "run"), tmp_path / "link"
    run.begin(0)
    run.play_step()
    path, without = run.path(KEY_GENERATOR), rebuilt(run, 0, *NAMES[:4])
    other = tmp_path / "other"
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(StorageError, match="2 hard links"):
            KeyGenerator.load(name).answer(run.aggregator.request())
    other.unlink()
    link.symlink_to(path)
    KeyGenerator.load(link).answer(run.aggregator.request())
    with pytest.raises(MessageError, match="other members"):
        without.conclude(run.generator.answer(without.request()))
    assert len(run.generator.log) == 1


def test_a_member_under_two_names_answers_a_model_once(tmp_path):
    run, link = Run("masks", tmp_path / "run"), tmp_path / "link"
    link.symlink_to(run.path("ann"))
    run.begin(0, model=MODEL)
    while run.aggregator.step:
        run.deliver(run.ask("ann", role=Member.load(link)))
        run.send(*NAMES[1:])
        run.aggregator.advance()
    run.begin(1, model=MODEL)
    run.play_until("share")
    with pytest.raises(PrivacyError, match="learns from a model once"):
        run.ask("ann")


@pytest.mark.parametrize("defended", [True, False])
@pytest.mark.parametrize("count", [4, 5, 10])
def test_a_sum_of_zeros_that_the_server_signs_opens_no_second_sum_of_a_model(count, defended):
    """Everybody is shown zeros in the place of the sum; then the same model comes without the last member."""
    names = tuple(f"u{i}" for i in range(count))
    run = Run("masks", members=names)
    whole = run.play(0, model=MODEL)
    with nullcontext() if defended else catalogue.believed_zeros():
        for name in names:
            run.role(name).settle(run.zeros(), 0)
    run.begin(1, model=MODEL)
    if defended:
        with pytest.raises(PrivacyError, match="learns from a model once"):
            run.finish(*names[:-1])
    else:
        np.testing.assert_array_equal(whole - run.finish(*names[:-1]), run.updates[names[-1]])


@pytest.mark.parametrize("honest", [True, False])
def test_what_a_sum_of_zeros_that_the_server_signs_tells_it(honest):
    """It is which updates were nothing but zeros, by who answers the model again; an honest answer does not tell it."""
    run = Run("masks")
    run.updates |= dict.fromkeys(NAMES[:2], np.zeros(SIZE, dtype=np.int64))
    run.play(0, model=MODEL)
    for name in NAMES:
        run.role(name).settle(run.answer if honest else run.zeros(), 0)
    run.begin(1, model=MODEL)
    run.play_until("share")
    again = []
    for name, call in run.aggregator.calls().items():
        try:
            run.role(name).read_call(call)
            again.append(name)
        except PrivacyError:
            pass
    assert again == ([] if honest else ["ann", "bob"])


class Network:
    """Between honest parties: loses and forges whatever it likes, and sees what the aggregator opens."""

    def __init__(self, run, rng):
        self.run, self.rng = run, rng
        handlers = {name: lambda kind, parts, name=name: self.answered(name, kind, parts) for name in run.names}
        handlers[KEY_GENERATOR] = lambda kind, parts: [run.generator.answer(parts[0])]
        self.transport = LocalTransport(handlers, transit=self.transit)
        self.earlier = []

    def answered(self, name, kind, parts):
        return [self.run.role(name).answer(parts[0], self.run.integers(name, kind))]

    def transit(self, sender, receiver, kind, parts):
        self.earlier.append(parts)
        fate = self.rng.integers(8)
        if fate == 0:
            return []
        if fate == 1:
            return [parts, (b"there was an error",)]
        if fate == 2:
            return [self.earlier[self.rng.integers(len(self.earlier))], parts]
        return [parts] * (2 if fate == 3 else 1)

    def collect(self, tickets, *, seconds):
        for ticket, response in self.transport.collect(tickets, seconds=seconds):
            if self.rng.random() < 0.1:
                yield ticket, Response(error="it has refused: forged.")
            yield ticket, response

    def present(self):
        return {name: number for name, number in self.transport.present().items() if self.rng.random() < 0.95}

    def send(self, *message):
        return self.transport.send(*message)


@pytest.mark.parametrize("scheme", HIDING)
def test_differencing_attempts_by_the_network(scheme):
    """Whatever it loses, forges or repeats, and however often a round is tried: one sum of it comes out, or none."""
    run, rng, opened = Run(scheme), np.random.default_rng(0), 0
    for round in range(8 if scheme != "bfv" else 5):
        sums = {}
        for _ in range(3):  # the server plays the round again, also when it is over
            engine = Engine(run.aggregator, Network(run, rng), Patience(pause=1e-6, attempts=3))
            try:
                _, total = engine.play(round, (b"model %d" % round,))
            except BlindsightError:
                continue
            np.testing.assert_array_equal(total.integers, run.sum(*total.members))
            sums[total.members] = total
        assert len(sums) <= 1
        opened += len(sums)
    assert opened > 1


# Chosen ciphertexts


def contributed(scheme, round=0, **changes):
    """A run in which everybody has contributed."""
    run = Run(scheme, **changes)
    run.begin(round)
    run.play_step()
    return run


def forged_sparse(run, numbers):
    """A request for a vector of the aggregator's own, with everybody's receipts and tags."""
    honest = decode(run.request().body, SparseSum)
    packed = run.generator._opener._secret.public.encrypt(numbers).to_matrix()
    return replace(run.request(), body=encode(replace(honest, ciphertexts=packed)))


def test_an_omitted_place():
    """A place that is left out counts as zero: it is missed."""
    run = contributed("dphe", block=1)
    honest, request = decode(run.request().body, SparseSum), run.request()
    adder = run.aggregator._adder
    adder.sum.counts[3] = 0  # which the aggregator leaves out
    assert decode(adder.request(), SparseSum).places.size == honest.places.size - 1
    refused = run.answered(replace(request, body=adder.request()))
    assert refused.renewed


def test_a_tag_over_whole_plaintexts_is_no_check():
    """Naive: sum of r_i m_i over packed plaintexts modulo p. Whoever raises a ciphertext to 1 + p passes it."""
    run = contributed("dphe")
    packed = Ciphertexts.from_matrix(paillier_key().public, decode(run.request().body, SparseSum).ciphertexts)
    raised = packed * (1 + mac.PRIME)
    key = paillier_key()
    before, after = (key.decrypt(numbers)[0] for numbers in (packed, raised))
    assert before != after
    assert before % mac.PRIME == after % mac.PRIME  # any naive tag is the same
    honest = decode(run.request().body, SparseSum)
    refused = run.answered(replace(run.request(), body=encode(replace(honest, ciphertexts=raised.to_matrix()))))
    assert refused.renewed


def test_folding_by_an_aggregator_that_learned_r_from_a_member_succeeds():
    """What the statement says: against an aggregator with a member's help the code does nothing.

    It adds k times the victim's weight to the sum and k r mod P times the ciphertext to the tag, with a k for which
    k r mod P is small enough for the tag to stay in its range.
    """
    run = Run("dphe", block=1, slot_bits=40)
    run.updates = {name: np.arange(SIZE) % 3 - 1 for name in NAMES}
    run.updates["ann"] = np.array([40, -70, 90, 55, -61, 77, 83, -99])
    run.begin(0)
    replies = {name: run.ask(name) for name in NAMES}
    run.deliver(*replies.values())
    run.aggregator.advance()
    target, bob, adder = 2, run.setup("bob"), run.aggregator._adder
    factors = mac._stream(bob.shared, b"factors of " + mac.context_of(run.digest, 0), SIZE) & np.uint64(mac.PRIME)
    half = mac.PRIME // 2
    shifts = {scale: (scale * int(factors[target]) + half) % mac.PRIME - half for scale in range(2000, 40000)}
    scale, shift = min(shifts.items(), key=lambda pair: abs(pair[1]))
    place = Permutations(run.generator.roster).shared(bob.shared, 0).forward(np.array([target]))
    checked = adder.check(CONTRIBUTE, "ann", Reply(b"", run.opened(replies["ann"], "ann")[1]))
    shard = next(i for i, places in enumerate(checked.places) if place[0] in places)
    victim = checked.ciphertexts[shard][np.flatnonzero(checked.places[shard] == place[0])]
    adder.sum.add(victim * scale, place)
    adder._tags.add(victim * shift)
    opened = run.answered(replace(run.request(), body=adder.request()))
    assert isinstance(opened, Answer)
    total = run.terms.read_sums(opened.sums, 5)
    assert round(total[target] / scale) == run.updates["ann"][target]
    assert any("collude with any member" in line for line in statement(run.terms).assumptions)


@pytest.mark.parametrize("scheme", KEYED)
def test_the_reaction_attack(scheme, monkeypatch):
    """Accept or reject must not become an oracle: after a rejection there is another key, and other numbers r."""
    monkeypatch.setattr("blindsight.crypto.paillier.draw_subgroup_pair", lambda bits, source: _pair(bits, 1))
    run = contributed(scheme)
    old, request = run.setup("ann"), run.request()
    spoilt = replace(request, receipts=request.receipts[:4])  # the sum of five for the receipts of four
    if scheme == "bfv":  # whose sums say of how many they are
        zero = bfv_key(max_sum=5 * run.terms.max_integer).public.encrypt(np.zeros(length(run.terms), int), terms=5)
        spoilt = replace(request, body=bfv.add_all([zero] * 5).to_bytes())
    first = run.answered(spoilt)
    assert first.renewed
    assert run.answered(request) == run.answered(spoilt) == first  # the round is used up
    before = len(run.generator.log)
    again = run.answered(replace(request, round=1, receipts=run.receipts(*NAMES, round=1, run=request.run)))
    assert isinstance(again, Refusal)  # under the old key: nothing is decrypted
    assert len(run.generator.log) == before
    new = run.setup("ann")
    assert new.encryption_key != old.encryption_key
    assert new.roster != old.roster
    with pytest.raises(RefusedError, match="nothing of round 0") as caught:
        run.finish()
    assert caught.value.renewed
    run.set_up()
    np.testing.assert_array_equal(run.play(1), run.sum())


def test_all_refusals_read_alike():
    """Whatever was wrong with what was decrypted, and whether anything was."""
    run, sentences = Run("dphe"), set()
    n = paillier_key().public.n
    for round, numbers in enumerate(([7], [1 << 33], [-(1 << 200)], [(n - 1) // 2 >> 2], [n // 9])):
        run.begin(round)
        run.play_step()
        refused = run.answered(forged_sparse(run, numbers))
        sentences.add((refused.sentence.replace(f"round {round} ", "this round "), refused.renewed))
        run.set_up()
    assert len(sentences) == 1
    assert len(run.generator.log) == 5


@pytest.mark.parametrize("scheme", KEYED)
def test_an_overflow_by_a_member_with_a_right_tag_uses_up_the_key_too(scheme, monkeypatch):
    """Members can then go on from the same model, as nothing of it was opened."""
    run = Run(scheme)
    limit = run.terms.max_integer
    run.updates |= {name: np.full(SIZE, limit) for name in NAMES[:4]}
    run.begin(0, model=MODEL)
    with monkeypatch.context() as patch:
        patch.setattr(type(run.terms), "checked", lambda terms, integers: integers)
        patch.setattr(bfv.PublicKey, "max_value", lambda key, terms: 2 * limit)
        patch.setattr("blindsight.crypto.encoding.SlotPacking.max_value", lambda packing, terms: 2 * limit)
        run.deliver(run.ask("eve", update=np.full(SIZE, limit + 1)))
    run.send(*NAMES[:4])
    run.aggregator.advance()
    with pytest.raises(RefusedError) as caught:
        run.finish()
    assert caught.value.renewed
    run.set_up()
    run.begin(1, model=MODEL)
    run.updates["eve"] = np.zeros(SIZE, dtype=np.int64)
    np.testing.assert_array_equal(run.finish(), run.sum())


# Malleable copies


@pytest.mark.parametrize("scheme", KEYED)
def test_contributions_are_sealed_for_the_aggregator(scheme):
    """A member or the network does not get to see what it could copy."""
    run = Run(scheme)
    run.begin(0)
    reply = decode(run.ask("ann"), Reply)
    for secret in (run.setup("bob").own[0], run.setup("bob").shared, run.setup("bob").offset):
        with pytest.raises(MessageError):
            unseal(secret, reply.body, purpose=b"contribution of round 0 by ann")
    receipt, _ = run.opened(run.ask("bob"), "bob")
    with pytest.raises(MessageError):  # nor does a sealed copy open as another's
        run.deliver(encode(Reply(run.signed("bob", receipt), reply.body)))


# A model of its own for each member


@pytest.mark.parametrize("scheme", ALL)
def test_a_model_of_ones_own_for_each_member(scheme):
    """The server hands eve the model and everybody else dead weights: no sum comes of it."""
    run = Run(scheme)
    other = b"x" * 32
    for round, step in enumerate(("share", CONTRIBUTE, "consistency", "unmask")):
        if scheme != "masks" and step != CONTRIBUTE:
            continue
        run.begin(round, model=MODEL[:-1] + bytes([round]))
        run.play_until(step)
        call = run.call(run.aggregator.calls(only=["eve"])["eve"])
        lie = run.signed(AGGREGATOR, replace(call, member="eve", model=other[:-1] + bytes([round])))
        try:
            reply = run.ask("eve", call=lie)
        except (MessageError, PrivacyError):
            assert step in (CONTRIBUTE, "unmask")
        else:
            with pytest.raises(MessageError, match="another model"):
                run.deliver(reply)
        run.finish(*NAMES[:4])
        expected = NAMES if step in ("consistency", "unmask") else NAMES[:4]
        assert run.total.members == expected


@pytest.mark.parametrize("scheme", KEYED)
def test_receipts_for_two_models_are_no_sum(scheme):
    """A lying aggregator accepts both and asks the key generator."""
    run = Run(scheme)
    run.begin(0, model=MODEL)
    run.send()
    run.aggregator.advance()
    request = run.request()
    mixed = (*request.receipts[:4], *run.receipts("eve", round=0, model=b"x" * 32))
    assert isinstance(run.answered(replace(request, receipts=mixed)), Refusal)
    assert "model" in run.generator.log[0]


# Refusals as an oracle, and what ends a run

NOT_ARRAYS = (
    *[{"ciphertexts": np.zeros(shape, dtype=np.uint8)} for shape in ((), (0,), (2,), (2, 6, 0), (6, 2, 256))],
    *[{"places": np.array(places, np.int64)} for places in (0, [], [0, LARGEST, LEAST], [[[0]]])],
    *[{"places": np.stack([wrapping(6)] * 2)}],
    *[
        {"places": np.array([[first, 1, 2, 3, 4, last]] * 2)}
        for first, last in ((0, LARGEST), (LEAST, 5), (0, 4), (5, 0))
    ],
    {"tag": np.zeros((), dtype=np.uint8)},
    {"tag": np.zeros((0, 256), dtype=np.uint8)},
    {"tag": np.zeros((2, 256), dtype=np.uint8)},
)


def test_an_unlimited_range_oracle_at_the_key_generator():
    """Each failure uses up its round and is on record, and the answer does not tell one from another."""
    run, sentences = Run("dphe"), set()
    wrong = [changes for changes in NOT_ARRAYS if "tag" not in changes]
    wrong += [{"places": np.array([0, LARGEST, LEAST])}, {"senders": np.array([1])}, {"tag": np.zeros(3, np.uint8)}]
    for round, changes in enumerate(wrong):
        run.begin(round)
        run.play_step()
        request = run.request()
        refused = run.answered(replace(request, body=encode(replace(decode(request.body, SparseSum), **changes))))
        assert isinstance(refused, Refusal)
        sentences.add(refused.sentence.replace(f"round {round} ", "this round "))
        assert run.answered(request) == refused  # nor is there a second try
        assert len(run.generator.log) == round + 1
    assert len(sentences) == 1
    np.testing.assert_array_equal(run.play(len(wrong)), run.sum())


def test_no_request_ends_the_run_by_its_number():
    """A round that no member has contributed to is not used up."""
    run = contributed("dphe")
    for round in (1, 7, LARGEST):
        refused = run.answered(replace(run.request(), round=round))
        assert isinstance(refused, Refusal)
    assert run.generator.log == ()
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_a_weight_whose_absolute_value_is_itself_is_out_of_range():
    run = Run("plain", slot_bits=64)
    run.begin(0)
    receipt, _ = run.opened(run.ask("ann"), "ann")
    with pytest.raises(MessageError, match="not one that"):
        run.deliver(run.reply("ann", receipt, run.terms.residues(np.full(SIZE, LEAST)).tobytes()))


# Forged contributor counts: ann, bob and cem change five blocks each and pad none; mal sends every block and lies.
# What is no sum of honest counts refuses the round as a whole: withheld one by one, blocks would show whose they are.

COUNTED = {
    "members": ("ann", "bob", "cem", "mal"),
    "dimension": 80,
    "block": 4,
    "capacity": 20,
    "minimum_per_position": 3,
}
DISJOINT = {"ann": np.arange(0, 5), "bob": np.arange(5, 10), "cem": np.arange(10, 15)}


def play_with_mal(run, supports, lies, monkeypatch, round=0, *, shards=None, slots=None):
    """Play a round in which mal sends these plaintexts by block, with the tag that fits what they add up to.

    Return the released sum by block, and the true one.
    """
    terms, layout, rng = run.terms, layout_of(run.terms), np.random.default_rng(round)
    rows = {name: np.zeros((layout.blocks, layout.slots), dtype=np.int64) for name in terms.members}
    for name, blocks in supports.items():
        rows[name][blocks] = rng.integers(1, 1000, (len(blocks), layout.slots))
    parts = shards or np.array_split(np.arange(layout.blocks), layout.blocks // layout.room)
    run.updates = {name: row.ravel() for name, row in rows.items()}
    run.begin(round)
    run.send(*terms.members[:3])
    if slots is None:
        times = np.bincount(np.concatenate(parts), minlength=layout.blocks)
        slots = np.zeros((layout.blocks, layout.packing.slots), dtype=np.int64)
        slots[:, -1] = [time * (lie >> terms.slot_bits * layout.slots) for time, lie in zip(times, lies, strict=True)]
    with monkeypatch.context() as patch:
        shown = [IndexedValues(blocks, [lies[block] for block in blocks]) for blocks in parts]
        patch.setattr(dphe_module, "decompose", lambda *_, **__: shown)
        patch.setattr(dphe_module, "slots_of", lambda *_: slots.ravel())
        run.send("mal")
    return run.finish().reshape(layout.blocks, -1), sum(rows.values())


def counts(terms, numbers):
    """Plaintexts with these numbers in the slots that count."""
    return [int(number) << terms.slot_bits * layout_of(terms).slots for number in numbers]


@contextmanager
def spoilt(run):
    """The key generator releases nothing, renews its key and notes why; then everybody is set up again."""
    with pytest.raises(RefusedError) as caught:
        yield
    assert caught.value.renewed
    assert run.generator._state.void == run.round
    assert "nothing was released" in run.generator.log[-1]
    assert "forged" in run.generator.log[-1]
    run.set_up()


def test_forged_counts(monkeypatch):
    run = Run("block-dphe", **COUNTED)
    terms = run.terms
    for round, count in enumerate((2, 3, 1000, -1, 2**20)):
        for blocks in (20, 1):
            with spoilt(run):
                lies = counts(terms, [0] * (20 - blocks) + [count] * blocks)
                play_with_mal(run, DISJOINT, lies, monkeypatch, 2 * round + (blocks == 1))
    opened, _ = play_with_mal(run, DISJOINT, counts(terms, [1] * 20), monkeypatch, 10)
    assert not opened.any()  # two senders are not enough, as always
    assert "was released" in run.generator.log[-1]
    often = [DISJOINT["ann"]] * 4  # four shards of one member are one sender
    with spoilt(run):
        play_with_mal(run, DISJOINT, counts(terms, [1] * 20), monkeypatch, 11, shards=often)
    same = dict.fromkeys(DISJOINT, np.arange(5))
    opened, total = play_with_mal(run, same, counts(terms, [0] * 20), monkeypatch, 12)
    np.testing.assert_array_equal(opened, total)


def test_forged_counts_without_a_tag_that_fits_use_up_the_key(monkeypatch):
    run = Run("block-dphe", **COUNTED)
    with pytest.raises(RefusedError) as caught:
        play_with_mal(run, DISJOINT, counts(run.terms, [2] * 20), monkeypatch, slots=np.zeros((20, 5), dtype=np.int64))
    assert caught.value.renewed


def test_counts_forged_in_other_blocks_of_the_same_plaintext(monkeypatch):
    """Six sums share a plaintext: what mal writes beyond its own block lands in the counts of its neighbours."""
    run = Run("block-dphe", **COUNTED)
    terms = run.terms
    layout = layout_of(terms)
    assert layout.blocks_per_request == 6
    beyond = counts(terms, [2])[0] << terms.slot_bits * layout.packing.slots
    phi = Permutations(run.generator.roster).shared(run.setup("mal").shared, 0)
    places = phi.forward(np.arange(20))
    inside = (places % 6 < 5) & (places < 19)  # the last of a plaintext has no neighbour
    slots = np.zeros((20, 5), dtype=np.int64)
    slots[phi.backward(places[inside] + 1), -1] = 2
    lies = [beyond * bool(fits) for fits in inside]
    with spoilt(run):
        play_with_mal(run, DISJOINT, lies, monkeypatch, slots=slots)


def test_no_lie_opens_a_block_that_too_few_sent(monkeypatch):
    run, rng, refused = Run("block-dphe", **COUNTED), np.random.default_rng(0), 0
    for round in range(12):
        supports = {name: rng.choice(20, 5, replace=False) for name in DISJOINT}
        senders = 1 + np.bincount(np.concatenate(list(supports.values())), minlength=20)
        lies = rng.integers(0, 2, 20)
        lies[rng.integers(20)] = rng.integers(-2, 4)
        try:
            opened, total = play_with_mal(run, supports, counts(run.terms, lies), monkeypatch, round)
        except RefusedError:
            refused += 1
            run.set_up()
            continue
        released = opened.any(axis=1)
        assert (senders[released] >= 3).all()
        np.testing.assert_array_equal(released, senders - 1 + lies >= 3)
        np.testing.assert_array_equal(opened[released], total[released])
    assert 0 < refused < 12


@pytest.mark.parametrize("scheme", ["dphe", "block-dphe"])
@pytest.mark.parametrize("defended", [True, False])
def test_forged_numbers_of_senders(scheme, defended):
    """The server names four of five for every block: what ann did not send is released, what all sent is not."""
    slots, blocks = 4 if scheme == "block-dphe" else 1, 6
    sizes = {"dimension": blocks * slots, "capacity": 3 * slots, "block": slots, "minimum_per_position": 3}
    run = Run(scheme, **sizes)
    run.updates = {name: np.arange(blocks * slots) + 1 for name in NAMES}
    run.updates["ann"] = np.where(np.arange(blocks * slots) < 3 * slots, 5, 0)
    run.begin(0, model=MODEL)
    run.play_step()
    run.aggregator._adder._senders[:] = 4
    if not defended:
        with catalogue.withheld_forgeries():
            shown = run.finish().reshape(blocks, slots).any(axis=1)
        np.testing.assert_array_equal(shown, np.arange(blocks) >= 3)
        return
    with spoilt(run):
        run.finish()
    run.begin(1, model=MODEL)  # nothing of it was opened: members answer again
    np.testing.assert_array_equal(run.finish(), run.sum())


@pytest.mark.parametrize("scheme", ["dphe", "block-dphe"])
@pytest.mark.parametrize("number", [-1, 6, 2**62])
def test_numbers_of_senders_that_cannot_be(scheme, number):
    """Nothing is decrypted, so the key stays."""
    run = Run(scheme, minimum_per_position=3)
    run.begin(0, model=MODEL)
    run.play_step()
    run.aggregator._adder._senders[0] = number
    with pytest.raises(RefusedError) as caught:
        run.finish()
    assert not caught.value.renewed
    assert "nothing was released" in run.generator.log[-1]


# Copied keys: liars advertise the mask keys of honest members, or keys that agree on the same secrets, as their own.
# Where masks are not derived for the names of their pair, they are equal in pairs, and cancel in an upload whose name
# lies between. Curve25519 in affine coordinates: v^2 = u^3 + A u^2 + u modulo P.

P, A = 2**255 - 19, 486662
LOW_ORDER = {"order 2": 0, "order 4": 1, "order 8": 0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0}


def on_curve(u):
    """Return a point with this u, which must be on the curve."""
    square = (u**3 + A * u**2 + u) % P
    root = pow(square, (P + 3) // 8, P)
    if root * root % P != square:
        root = root * pow(2, (P - 1) // 4, P) % P
    assert root * root % P == square
    return u, root


def plus(one, other):
    """Add two points of different u."""
    slope = (one[1] - other[1]) * pow(one[0] - other[0], -1, P) % P
    u = (slope**2 - A - one[0] - other[0]) % P
    return u, (slope * (one[0] - u) - one[1]) % P


def copied(key, form):
    """Return a key with which everybody agrees on the same secret as with another."""
    if form in LOW_ORDER:
        point = plus(on_curve(int.from_bytes(key, "little") % P), on_curve(LOW_ORDER[form]))
        return point[0].to_bytes(32, "little")
    return key[:31] + bytes([key[31] ^ 128 * (form == "bit 255")])


FORMS = ("the key", "bit 255", *LOW_ORDER)


@pytest.mark.parametrize("form", FORMS)
def test_copied_keys_are_other_bytes_and_the_same_secret(form):
    key, mine = public_half(b"v" * 32), b"u" * 32
    assert (copied(key, form) == key) == (form == "the key")
    assert agree(mine, copied(key, form)) == agree(mine, key)


@pytest.mark.parametrize("defended", [True, False])
@pytest.mark.parametrize(("form", "count"), [*product(FORMS, (3, 5, 10))][1:])  # the first is in hostile.py
def test_copied_keys(form, count, defended, monkeypatch):
    """As many liars as masks hold against copy the keys of all honest members in the sum but the victim."""
    if not defended:
        named = masks.mask_context
        monkeypatch.setattr(masks, "mask_context", lambda *given: named(*given[:3], ()))
    lying, needed = colluders(count), threshold(count)
    others, liars = ([f"{kind}{i}" for i in range(many)] for kind, many in (("a", needed - lying - 1), ("z", lying)))
    away = [f"n{i}" for i in range(count - needed)]
    there, source = (*others, "m", *liars), dict(zip(liars, others, strict=False))
    run, keys = Run("masks", members=(*others, "m", *away, *liars)), {}
    drawn, true = MaskMember._drawn, RoundSecrets.advertisement.fget

    def drawing(part, turn):
        kept = drawn(part, turn)
        if part.name in source:
            keys[kept.mask] = copied(true(run.kept(source[part.name])).mask_key, form)
        return kept

    def advertised(kept):
        return replace(true(kept), mask_key=keys.get(kept.mask, true(kept).mask_key))

    monkeypatch.setattr(MaskMember, "_drawn", drawing)
    monkeypatch.setattr(RoundSecrets, "advertisement", property(advertised))
    run.begin(0)
    run.play_until("consistency", *there)
    upload = run.opened(run.role("m")._state.sent, "m")[1]
    own = {liar: run.kept(liar).mask for liar in liars if liar not in source}
    run.play_until("", *there)  # every check passes
    roster, (group,) = run.generator.roster, run.aggregator._adder._groups
    seed = run.aggregator._adder._secrets(group, group.peers)["m"]  # opened as it should be
    worn = [(seed, masks.mask_context(b"self", roster, (0, 0), ("m",)), False)]
    for liar, key in own.items():
        pair = agree(key, group.peers.keys["m"].mask_key)
        worn.append((pair, masks.mask_context(b"pair", roster, (0, 0), ("m", liar)), liar < "m"))
    left = run.terms.read_residues(upload).copy()
    add_masks(left, worn)
    read = left.astype(np.int32) == run.updates["m"]
    assert read.all() != defended
    assert read.any() != defended  # one of eight weights by chance: 2 in 10^9


@pytest.mark.parametrize("defended", [True, False])
@pytest.mark.parametrize("count", [7, 10])
def test_copied_channel_keys(count, defended, monkeypatch):
    """A liar advertises the victim's channel key, hands the victim's shares on as its own, and drops out: whoever takes
    them reveals shares of the victim's mask key with those of its seed, and both locks open.
    """
    if not defended:
        monkeypatch.setattr(masks, "_purpose", lambda *given: b"shares")
    others, keys = [f"n{i}" for i in range(count - 2)], {}
    run = Run("masks", members=("m", *others, "z"))
    drawn, true = MaskMember._drawn, RoundSecrets.advertisement.fget

    def drawing(part, turn):
        kept = drawn(part, turn)
        if part.name == "z":
            keys[kept.channel] = true(run.kept("m")).channel_key
        return kept

    def advertised(kept):
        return replace(true(kept), channel_key=keys.get(kept.channel, true(kept).channel_key))

    monkeypatch.setattr(MaskMember, "_drawn", drawing)
    monkeypatch.setattr(RoundSecrets, "advertisement", property(advertised))
    run.begin(0)
    run.play_until("share")
    run.send("m", *others)
    *boxes, last = decode(run.opened(run.role("m")._state.sent, "m")[1], SealedShares).sealed
    receipt = run.opened(run.ask("z"), "z")[0]
    run.deliver(run.reply("z", receipt, encode(SealedShares((last, *boxes)))))
    run.aggregator.advance()
    if defended:
        for name in others:
            with pytest.raises(MessageError, match="another purpose"):
                run.ask(name)
        return
    call = run.call(run.aggregator.calls(only=["m"])["m"])
    senders, sealed = decode(call.body, Delivery).senders[:-1], decode(call.body, Delivery).sealed[:-1]
    lie = replace(call, member="m", body=encode(Delivery(senders, sealed)))  # the victim cannot open what z hands on
    run.deliver(run.ask("m", call=run.signed(AGGREGATOR, lie)))
    run.play_step(*others)
    run.play_step("m", *others)
    run.send(*others)
    (group,), kept, secrets = run.aggregator._adder._groups, run.kept("m"), []
    for owner in ("z", "m"):
        shares = {group.peers.number(one): group.reveals[one][owner] for one in others[: group.peers.threshold]}
        secrets.append(Reconstruction(list(shares)).secret(shares))
    assert secrets == [kept.mask, kept.seed]


# The code that checks sums, and the renewal of keys


@pytest.mark.parametrize("scheme", KEYED)
def test_a_key_is_renewed_end_to_end(scheme, monkeypatch):
    """One member's wrong tag costs the round and the key; the same updates are added in the next one."""
    terms = terms_of(scheme)
    session = Session(terms, key=key_of(terms))
    updates = {name: np.full(SIZE, 1.0 + i) for i, name in enumerate(NAMES)}
    before = session.generator.setup()["ann"]
    module, original = scheme.removeprefix("block-"), mac.tag
    with monkeypatch.context() as patch:
        patch.setattr(f"blindsight.sums.{module}.tag", lambda *given, **named: (original(*given, **named) + 1) % 99)
        with pytest.raises(RefusedError, match="nothing of round 0"):
            session.round(updates, 0)
    assert session.generator.setup()["ann"] != before
    for number in (1, 2):
        assert session.round(updates, number).values.tolist() == [15.0] * SIZE


def test_a_wrong_sum_passes_as_often_as_the_claim_says(monkeypatch):
    """With the prime 31 instead of 2^61 - 1: one in 31, within what binomial draws do in all but 1e-6 of the cases."""
    monkeypatch.setattr(mac, "PRIME", 31)
    monkeypatch.setattr(mac, "TAG_BITS", 5)
    values, wrong, trials, passed = np.array([3, -5, 7]), np.array([3, -4, 7]), 3000, 0
    offsets = [b"a" * 32, b"b" * 32]
    for trial in range(trials):
        context, shared = mac.context_of(b"run", trial), b"s" * 32
        tags = sum(mac.tag(part, shared=shared, offset=offset, context=context)
                   for part, offset in zip((values, 0 * values), offsets, strict=True))  # fmt: skip
        assert mac.matches(values, tags, shared=shared, offsets=offsets, context=context)
        passed += mac.matches(wrong, tags, shared=shared, offsets=offsets, context=context)
    # r is 61 uniform bits cut to five, so that 0 and 31 are both zero: at most 2/32 of the draws
    assert binom.ppf(5e-7, trials, 1 / 32) <= passed <= binom.isf(5e-7, trials, 2 / 32)
