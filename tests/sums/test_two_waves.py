"""Two waves: values by an independent oracle, and each rule that the proof needs (``docs/proofs/masks.md``)."""

import hashlib
import hmac
import itertools
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy.stats import hypergeom

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.statement import line_id
from blindsight.sums import Engine, KeyGenerator, Member, Patience, Session, UnansweredError, statement, twowave
from blindsight.sums import terms as terms_module
from blindsight.sums.engine import LocalTransport
from blindsight.sums.generator import Partitions
from blindsight.sums.masks import agree
from blindsight.sums.messages import Call, Enrolment, Roster
from blindsight.sums.noise import NoisePlan, uncounted, withstood
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR
from blindsight.sums.twowave import (
    UNMASK,
    Contribution,
    PairState,
    Reveal,
    TwoWaveOptions,
    UnmaskRequest,
    framed,
    leaves_of,
    parameters,
    run_colluders,
)
from tests.sums.runs import NAMES, SIZE, Run, terms_of
from tests.sums.test_masks import OF_LOW_ORDER

P, SCHEME = 65521, "two-wave-masks"
ONE, TWO = b"1" * 32, b"2" * 32
FIELD = 2**255 - 19


def state_of(run, name):
    return decode(run.role(name)._state.secrets, PairState)


class Hostile:
    """An aggregator that lies: it makes its own calls, keeps uploads and reveals, and knows the liars' boxes."""

    def __init__(self, folder=None, *, names=NAMES, **changes):
        self.run = Run(SCHEME, folder, members=names, **changes)
        self.names, self.uploads, self.reveals = self.run.names, {}, {}

    def call(self, name, step, *, round=0, model=ONE, body=b"", attempt=0):
        run = self.run
        call = Call(run.digest, round, attempt, name, step, model, body, b"")
        update = run.updates[name] if step == CONTRIBUTE else None
        reply = run.role(name).answer(run.signed(AGGREGATOR, call), update)
        return run.opened(reply, name)[1]

    def contribute(self, *names, round=0, model=ONE, **changes):
        for name in names or self.names:
            body = self.call(name, CONTRIBUTE, round=round, model=model, **changes)
            self.uploads[name, round] = decode(body, Contribution)

    def request(self, name, there, *, round=0, **changes):
        others = [owner for owner in there if owner != name]
        place = self.names.index(name)
        boxes, rows = [], b""
        for owner in others:
            upload = self.uploads.get((owner, round)) or next(iter(self.uploads.values()))
            boxes.append(dict(zip([n for n in self.names if n != owner], upload.boxes, strict=True))[name])
            size = 32 * len(self.names)
            rows += hashlib.sha256(upload.leaves[size * place : size * (place + 1)]).digest()
        return replace(UnmaskRequest(tuple(there), tuple(boxes), rows), **changes)

    def unmask(self, name, there, *, round=0, model=ONE, attempt=0, **changes):
        """Show a member a set U and return what it reveals, by owner."""
        body = encode(self.request(name, there, round=round, **changes))
        reveal = decode(self.call(name, UNMASK, round=round, model=model, body=body, attempt=attempt), Reveal)
        outside = [member for member in self.names if member not in there]
        owners = [owner for owner in there if owner not in reveal.complaints]
        shares = np.frombuffer(reveal.shares, "<u2").astype(np.int64).reshape(len(owners), 1 + len(outside), 16)
        for owner, (own, *pairs) in zip(owners, shares, strict=True):
            kept = self.reveals.setdefault((owner, round), {})
            for secret, share in zip((owner, *outside), (own, *pairs), strict=True):
                kept.setdefault(secret, {})[self.names.index(name) + 1] = share
        return reveal

    def opened(self, owner, secret, *, round=0):
        """Return a secret of an owner from the shares that members revealed, by whole numbers of Python."""
        return interpolated(self.reveals[owner, round][secret])


def interpolated(shares, at=0):
    total = np.zeros(16, dtype=object)
    for i, share in shares.items():
        weight = 1
        for j in shares:
            if j != i:
                weight = weight * (at - j) * pow(i - j, -1, P) % P
        total = (total + weight * share.astype(object)) % P
    return total


def packed(limbs):
    return b"".join(int(limb).to_bytes(2, "little") for limb in limbs)


# An oracle of all values, from the text of the protocol


def expanded(key, salt, info):
    """HKDF-SHA256 of 32 bytes (RFC 5869)."""
    return hmac.digest(hmac.digest(salt, key, "sha256"), info + b"\x01", "sha256")


def derived(key, *parts):
    return hmac.digest(key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")


def stream(key, count):
    block = Cipher(AES256(key), ECB()).encryptor()
    data = b"".join(block.update(number.to_bytes(16, "big")) for number in range(-(-4 * count // 16)))
    return np.frombuffer(data, "<u4")[:count]


class Oracle:
    def __init__(self, run, private):
        self.roster, self.names = run.generator.roster, run.names
        self.chains = {}
        for u, v in itertools.combinations(sorted(self.names), 2):
            public = X25519PrivateKey.from_private_bytes(private[v]).public_key()
            shared = X25519PrivateKey.from_private_bytes(private[u]).exchange(public)
            keys = [self.roster.exchange[name] for name in (u, v)]
            parts = (b"chain", u.encode(), v.encode(), *keys, self.roster.digest)
            info = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
            self.chains[u, v] = expanded(shared, b"blindsight masks 4", info)

    def chain(self, u, v, round):
        chain = self.chains[min(u, v), max(u, v)]
        for _ in range(round):
            chain = derived(chain, b"step")
        return chain

    def pair(self, u, v, round, model):
        raw = derived(self.chain(u, v, round), b"pair", round.to_bytes(8, "big"), model)
        return [int.from_bytes(raw[i : i + 2], "little") % P for i in range(0, 32, 2)]

    def mask(self, seed, round, model, *who):
        purpose = b"self" if len(who) == 1 else b"mask"
        names = [name.encode() for name in sorted(who)]
        key = derived(packed(seed), purpose, *names, round.to_bytes(8, "big"), model, self.roster.digest)
        return stream(key, SIZE)

    def row(self, box, sender, receiver, round, model):
        chain = self.chain(sender, receiver, round)
        key = derived(chain, b"box", sender.encode(), receiver.encode(), round.to_bytes(8, "big"), model)
        sealing = expanded(key, b"blindsight dphe sealing 1", b"row")
        row = AESGCM(sealing).decrypt(box[:12], box[12:], b"row")
        return np.frombuffer(row, "<u2").astype(np.int64).reshape(len(self.names), 16)


@pytest.mark.parametrize(("round", "model", "there"), [(0, ONE, NAMES), (3, b"", NAMES[1:])])
def test_all_values_are_those_of_the_oracle(round, model, there):
    hostile = Hostile.__new__(Hostile)
    run = hostile.run = Run(SCHEME)
    private = {}
    original = twowave.TwoWaveMember.begun

    def noted(part, secrets):
        private[part.name] = decode(secrets, PairState).private
        return original(part, secrets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twowave.TwoWaveMember, "begun", noted)
        hostile.__init__()
    run, oracle = hostile.run, Oracle(hostile.run, private)
    hostile.contribute(*there, round=round, model=model)
    rows = {}
    for owner in there:
        upload = hostile.uploads[owner, round]
        others = [name for name in NAMES if name != owner]
        for name, box in zip(others, upload.boxes, strict=True):
            rows[owner, name] = oracle.row(box, owner, name, round, model)
        rows[owner, owner] = np.frombuffer(state_of(run, owner).row, "<u2").astype(np.int64).reshape(5, 16)
        secrets = {}
        for place, secret in enumerate(NAMES):
            shares = {x + 1: rows[owner, name][place] for x, name in enumerate(NAMES)}
            for chosen in itertools.combinations(shares, 4):
                secrets[secret] = interpolated({x: shares[x] for x in chosen})
                if secret != owner:
                    assert secrets[secret].tolist() == oracle.pair(owner, secret, round, model)
        assert split(upload.commitments) == [sha(packed(secrets[name])) for name in NAMES]
        assert split(upload.leaves) == [sha(packed(rows[owner, name][i])) for name in NAMES for i in range(5)]
        expected = run.updates[owner].astype("<u4") + oracle.mask(secrets[owner], round, model, owner)
        for name in others:
            mask = oracle.mask(secrets[name], round, model, owner, name)
            expected = expected + mask if owner < name else expected - mask
        np.testing.assert_array_equal(np.frombuffer(upload.masked, "<u4"), expected)
    for holder in there:
        assert hostile.unmask(holder, there, round=round, model=model).complaints == ()
        for owner in there:
            place = NAMES.index(holder) + 1
            for secret in (owner, *sorted(set(NAMES) - set(there))):
                share = hostile.reveals[owner, round][secret][place]
                np.testing.assert_array_equal(share, rows[owner, holder][NAMES.index(secret)])


def sha(data):
    return hashlib.sha256(data).digest()


def split(hashes):
    return [hashes[start : start + 32] for start in range(0, len(hashes), 32)]


# 1. The chain of a pair names both members, their keys and the roster


def copies_of(key):
    """Return keys with which every other key gives the same secret: itself, bit 255 flipped, plus the point (0, 0)."""
    u = int.from_bytes(key, "little") % 2**255
    return [key, key[:31] + bytes([key[31] ^ 128]), pow(u, -1, FIELD).to_bytes(32, "little")]


def with_copied_key(kind, patch):
    """A run in which eve enrols with a key that gives the secrets of bob's."""
    original = Member.enrolment

    def lying(self):
        honest = original(self)
        if self.name != "eve" or self._state.setup:
            return honest
        return encode(replace(decode(honest, Enrolment), exchange=copies_of(stolen["bob"])[kind]))

    stolen = {}

    def kept(self):
        sent = original(self)
        stolen[self.name] = decode(sent, Enrolment).exchange
        return sent

    patch.setattr(Member, "enrolment", lambda self: lying(self) if self.name == "eve" else kept(self))
    patch.setattr(twowave.TwoWaveMember, "begun", lambda part, secrets: (
        encode(PairState(chains=bytes(128))) if part.name == "eve" else begun(part, secrets)))  # fmt: skip
    return Hostile()


begun = twowave.TwoWaveMember.begun


def unnamed_chain(private, roster, name, other):
    return hashlib.sha256(agree(private, roster.exchange[other])).digest()


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("named", [True, False])
def test_a_liar_with_a_copied_key_learns_a_sum_or_nothing(kind, named, monkeypatch):
    if not named:
        monkeypatch.setattr(twowave, "pair_chain", unnamed_chain)
    hostile = with_copied_key(kind, monkeypatch)
    run, there = hostile.run, NAMES[:4]
    assert agree(b"k" * 32, run.generator.roster.exchange["eve"]) == agree(
        b"k" * 32, run.generator.roster.exchange["bob"]
    )
    hostile.contribute(*there)
    for name in there:
        hostile.unmask(name, there)
    roster, bare = run.generator.roster, np.frombuffer(hostile.uploads["bob", 0].masked, "<u4").copy()

    def lift(seed, who, sign):
        key = derived(packed(seed), b"mask" if len(who) == 2 else b"self", *[name.encode() for name in sorted(who)],
                      bytes(8), ONE, roster.digest)  # fmt: skip
        bare[:] += (sign * stream(key, SIZE).astype(np.int64)).astype("<u4")

    lift(hostile.opened("bob", "bob"), ("bob",), -1)
    lift(hostile.opened("bob", "eve"), ("bob", "eve"), -1)
    for other in ("ann", "cem", "dia"):  # h of the other with eve, taken for that with bob
        lift(hostile.opened(other, "eve"), ("bob", other), 1 if other < "bob" else -1)
    assert (bare.view("<i4").tolist() == run.updates["bob"].tolist()) == (not named)


# 2. Every box has a key and a nonce of its own


def test_names_that_look_like_others_do_not_share_keys():
    hostile = Hostile(names=("a", "a>a", "b", "b>a"))
    chain, keys = b"c" * 32, set()
    for sender, receiver in itertools.permutations(hostile.names, 2):
        keys.add(twowave.box_key(chain, sender, receiver, 0, ONE))
    assert len(keys) == 12
    assert framed(b"a", b"b>a") != framed(b"a>b", b"a")
    hostile.contribute()
    for name in hostile.names:
        assert hostile.unmask(name, hostile.names).complaints == ()


@pytest.mark.parametrize("broken", [False, True])
def test_a_restored_state_that_contributes_again_opens_nothing_of_what_it_sent(tmp_path, broken, monkeypatch):
    """With one nonce, a single reveal would open both uploads: shares differ by the exclusive or of two boxes."""
    if broken:
        monkeypatch.setattr(twowave, "seal", lambda key, row, purpose, source: bytes(12) + AESGCM(
            expanded(key, b"blindsight dphe sealing 1", purpose)).encrypt(bytes(12), row, purpose))  # fmt: skip
    hostile = Hostile(tmp_path / "roles")
    run, path = hostile.run, hostile.run.path("ann")
    backup = path.read_bytes()
    hostile.contribute()
    first = hostile.uploads["ann", 0]
    rows = state_of(run, "ann").row
    path.write_bytes(backup)
    run.updates["ann"] = run.updates["ann"] + 5
    hostile.contribute("ann")
    second = hostile.uploads["ann", 0]
    assert (first.boxes[0][:12] == second.boxes[0][:12]) == broken
    for name in NAMES:
        hostile.unmask(name, NAMES)
    shares = {}
    for place, box, other in zip(range(2, 6), first.boxes, second.boxes, strict=True):
        revealed = packed(hostile.reveals["ann", 0]["ann"][place])
        mixed = bytes(a ^ b ^ c for a, b, c in zip(revealed, box[12:44], other[12:44], strict=True))
        shares[place] = np.frombuffer(mixed, "<u2").astype(np.int64) % P
    assert (sha(packed(interpolated(shares))) == first.commitments[:32]) == broken
    assert rows not in path.read_bytes()


# 3. Seeds and boxes belong to a round and a model


def test_a_holder_of_another_model_reveals_nothing_of_these_uploads():
    hostile = Hostile()
    hostile.contribute(*NAMES[1:])
    hostile.contribute("ann", model=TWO)
    reveal = hostile.unmask("ann", NAMES, model=TWO)
    assert reveal.complaints == NAMES[1:]
    assert len(reveal.shares) == 32  # of its own seed
    with pytest.raises(PrivacyError, match="with this model"):
        hostile.unmask("bob", NAMES, model=TWO)


def test_boxes_of_another_round_are_complained_of():
    hostile = Hostile()
    hostile.contribute()
    earlier = dict(hostile.uploads)
    hostile.contribute(round=1)
    hostile.uploads["bob", 1] = earlier["bob", 0]
    assert hostile.unmask("ann", NAMES, round=1).complaints == ("bob",)


def test_masks_differ_by_round_model_and_roster():
    one, two = Hostile(), Hostile(run="other")
    chain = b"c" * 32
    seed = twowave.pair_seed(chain, 0, ONE)
    assert len({twowave.pair_seed(chain, r, m).tobytes() for r in (0, 1, 2) for m in (b"", ONE, TWO)}) == 9
    rosters = [hostile.run.generator.roster for hostile in (one, two)]
    keys = {
        twowave.mask_key(seed, roster, r, m, *who)
        for roster in rosters
        for r in (0, 1)
        for m in (ONE, TWO)
        for who in (("ann",), ("bob",), ("ann", "bob"))
    }
    assert len(keys) == 24


# 4. One upload and one answer a round


def test_one_upload_and_one_answer_a_round_also_after_restarts(tmp_path):
    hostile = Hostile(tmp_path / "roles")
    hostile.contribute()
    again = hostile.call("ann", CONTRIBUTE)
    assert decode(again, Contribution) == hostile.uploads["ann", 0]
    for changes in ({"model": TWO}, {"attempt": 1}, {"round": 1, "attempt": 1}):
        with pytest.raises(PrivacyError):
            hostile.call("ann", CONTRIBUTE, **changes)
    with pytest.raises(PrivacyError, match="attempt"):
        hostile.unmask("ann", NAMES, attempt=1)
    first = hostile.unmask("ann", NAMES[:4])
    assert hostile.unmask("ann", NAMES[:4]) == first
    before = hostile.run.path("ann").read_bytes()
    for there in (NAMES, ("ann", "bob", "cem", "eve")):
        with pytest.raises(PrivacyError, match="once"):
            hostile.unmask("ann", there)
    for step in (CONTRIBUTE, UNMASK):
        with pytest.raises((PrivacyError, MessageError)):
            hostile.call("ann", step, model=TWO, attempt=1)
    hostile.contribute("ann", round=2)  # the same model: nothing rests on that
    for round in (0, 1):
        with pytest.raises((PrivacyError, MessageError)):
            hostile.unmask("ann", NAMES, round=round)
    with pytest.raises(MessageError, match="too late"):
        hostile.call("ann", CONTRIBUTE, round=1)
    assert hostile.run.path("ann").read_bytes() != before


def test_a_member_that_was_not_asked_to_contribute_reveals_nothing():
    hostile = Hostile()
    hostile.contribute(*NAMES[1:])
    with pytest.raises((PrivacyError, MessageError)):
        hostile.call("ann", UNMASK, body=encode(hostile.request("bob", NAMES[1:])))


# 5. What a holder checks of a set


@pytest.mark.parametrize(
    ("there", "changes", "error"),
    [
        (("ann", "bob", "cem"), {}, PrivacyError),  # fewer than q
        (("bob", "cem", "dia", "eve"), {}, MessageError),  # without itself
        (("ann", "bob", "cem", "cem"), {}, MessageError),
        (("ann", "cem", "bob", "dia"), {}, MessageError),  # out of order
        (("ann", "bob", "cem", "zoe"), {}, MessageError),
        (NAMES, {"boxes": ()}, MessageError),
        (NAMES, {"rows": b""}, MessageError),
        (NAMES, {"rows": bytes(32 * 5)}, MessageError),
    ],
)
def test_sets_that_make_no_sense_or_are_too_small_are_refused_and_use_up_nothing(there, changes, error):
    hostile = Hostile()
    hostile.contribute()
    asked = tuple(name if name in NAMES else "eve" for name in there)
    body = encode(replace(hostile.request("ann", asked), there=there, **changes))
    with pytest.raises(error):
        hostile.call("ann", UNMASK, body=body)
    assert hostile.unmask("ann", NAMES).complaints == ()


def test_members_that_sit_out_count_as_absent():
    """Sets are counted from the cohort and nothing else: seven of nine minus two complained of would be too few."""
    names = tuple("abcdefghij")
    hostile = Hostile(names=names)
    assert parameters(10).quorum == 8
    hostile.contribute()
    with pytest.raises(PrivacyError, match="7 members"):
        hostile.unmask("a", names[:7])
    assert hostile.unmask("a", names[:8]).complaints == ()


# 6. Parameters follow from terms and roster


@pytest.mark.parametrize(("count", "drop_outs"), [(3, 0), (4, 1), (5, 1), (10, 2)])
def test_up_to_d_members_may_drop_out_in_both_waves_together(count, drop_outs):
    names = tuple(f"m{number}" for number in range(count))
    for first in range(drop_outs + 1):
        run = Run(SCHEME, members=names)
        run.begin(0)
        there = names[: count - first]
        run.play_step(*there)
        run.send(*there[: count - drop_outs])
        assert run.aggregator.complete
        np.testing.assert_array_equal(run.finish(*there[: count - drop_outs]), run.sum(*there))
        assert run.total.members == there
    run = Run(SCHEME, members=names)
    run.begin(0)
    run.send(*names[: count - drop_outs - 1])
    with pytest.raises(PrivacyError):
        run.aggregator.advance()


def test_the_minimum_of_the_terms_raises_the_quorum():
    hostile = Hostile(minimum=5)
    hostile.contribute()
    with pytest.raises(PrivacyError, match="4 members"):
        hostile.unmask("ann", NAMES[:4])
    assert terms_of(SCHEME).needed == 4
    assert terms_of(SCHEME, minimum=5).needed == 5


@pytest.mark.parametrize("changes", [{"sample": 4}, {"rounds": 0}, {"rounds": 1 << 21}])
def test_terms_that_cannot_be_kept_are_refused(changes):
    with pytest.raises(InputError, match=f"{next(iter(changes))}"):
        terms_of(SCHEME, **changes)


# 7. Fresh polynomials, and numbers in range


def test_two_owners_of_a_pair_deal_two_polynomials():
    hostile = Hostile()
    hostile.contribute(*NAMES[:4])
    for name in NAMES[:4]:
        hostile.unmask(name, NAMES[:4])
    one, two = Hostile(), Hostile()
    one.contribute()
    two.contribute()
    assert one.uploads["ann", 0].leaves != two.uploads["ann", 0].leaves
    run = one.run
    rows = {name: np.frombuffer(state_of(run, name).row, "<u2").reshape(5, 16) for name in ("ann", "bob")}
    # ann's and bob's own shares of the seed that they have in common lie on different polynomials
    leaf = split(one.uploads["bob", 0].leaves)[0 * 5 + 0]  # the share of h_bob,ann that ann holds
    assert sha(rows["ann"][1].tobytes()) != leaf


def test_self_seeds_are_drawn_by_rejection():
    drawn = iter([b"\xff\xff" * 16, *[b"\x01\x00" * 16] * 100])
    part = Run(SCHEME).role("ann")._part
    found = twowave.uniform_limbs(16, lambda count: next(drawn)[:count])
    assert found.tolist() == [1] * 16
    assert part.terms.scheme == SCHEME


def forged(run, name, change):
    """A member's reply to the present step with another body, well signed."""
    receipt, body = run.opened(run.ask(name), name)
    kind = Contribution if run.aggregator.step == CONTRIBUTE else Reveal
    return run.reply(name, receipt, encode(change(decode(body, kind))))


def test_shares_out_of_range_in_a_box_are_complained_of_and_in_a_reveal_refused():
    run = Run(SCHEME)
    run.begin(0)
    run.send()
    run.aggregator.advance()
    wrong = forged(run, "eve", lambda body: replace(body, shares=b"\xff\xff" + body.shares[2:]))
    with pytest.raises(MessageError, match="range"):
        run.deliver(wrong)
    np.testing.assert_array_equal(run.finish(*NAMES[:4]), run.sum())
    hostile = Hostile()
    hostile.contribute()
    upload, chain = hostile.uploads["bob", 0], state_of(hostile.run, "bob").chains[:32]
    row = b"\xff\xff" * 80
    box = twowave.seal(twowave.box_key(chain, "bob", "ann", 0, ONE), row, purpose=b"row")
    leaves = leaves_of(row) + upload.leaves[160:]
    hostile.uploads["bob", 0] = replace(upload, boxes=(box, *upload.boxes[1:]), leaves=leaves)
    assert hostile.unmask("ann", NAMES).complaints == ("bob",)


# 8 and 13. Every share is signed for; who spoils a sum is known and sits out


def spoiling(run, name, *, boxes=(), secret=False):
    """Let a member send boxes that do not open to some, or deal shares of another secret than it signs for."""
    receipt, body = run.opened(run.ask(name), name)
    upload = decode(body, Contribution)
    others = [other for other in run.names if other != name]
    spoilt = [bytes(len(box)) if other in boxes else box for other, box in zip(others, upload.boxes, strict=True)]
    commitments = b"?" * 32 + upload.commitments[32:] if secret else upload.commitments
    commitments = (
        commitments
        if not secret
        else b"".join(sha(b"wrong") if run.names[i] == name else one for i, one in enumerate(split(upload.commitments)))
    )
    run.deliver(run.reply(name, receipt, encode(replace(upload, boxes=tuple(spoilt), commitments=commitments))))


def in_round(round=0, names=NAMES, folder=None):
    run = Run(SCHEME, folder, members=names)
    run.begin(round)
    return run


def test_a_wrong_share_puts_its_holder_out_and_costs_nothing():
    run = in_round()
    run.play_step()
    for start in (0, 32, 64):  # a share of b, and of two others'
        wrong = forged(run, "eve", lambda body, start=start: replace(
            body, shares=body.shares[:start] + bytes(32) + body.shares[start + 32 :]))  # fmt: skip
        with pytest.raises(MessageError, match="not given"):
            run.deliver(wrong)
    np.testing.assert_array_equal(run.finish(*NAMES[:4]), run.sum())
    run.begin(1)
    assert run.aggregator.awaited == NAMES


def test_an_owner_whose_shares_give_another_secret_is_named_and_sits_out(tmp_path):
    run = in_round(folder=tmp_path / "roles")
    spoiling(run, "eve", secret=True)
    run.play_step(*NAMES[:4])
    run.send()
    with pytest.raises(PrivacyError, match="eve cannot"):
        run.aggregator.advance()
    run.begin(1)
    assert run.aggregator.awaited == NAMES[:4]
    np.testing.assert_array_equal(run.finish(), run.sum(*NAMES[:4]))
    run.begin(2)
    assert run.aggregator.awaited == NAMES
    spoiling(run, "eve", secret=True)
    run.play_step(*NAMES[:4])
    run.send()
    for round in (3, 4):  # the second time two rounds, however often the aggregator was killed in between
        run.begin(round)
        assert run.aggregator.awaited == NAMES[:4]
    run.begin(5)
    assert run.aggregator.awaited == NAMES


def test_boxes_that_do_not_open_cost_a_round_at_most():
    run = in_round()
    spoiling(run, "eve", boxes=("ann",))  # one complaint: four of five can still use the others
    run.play_step(*NAMES[:4])
    np.testing.assert_array_equal(run.finish(), run.sum())
    run.begin(1)
    assert run.aggregator.awaited == NAMES
    spoiling(run, "eve", boxes=("ann", "bob"))
    run.play_step(*NAMES[:4])
    run.send()
    with pytest.raises(PrivacyError, match="eve cannot"):
        run.aggregator.advance()
    run.begin(2)
    np.testing.assert_array_equal(run.finish(), run.sum(*NAMES[:4]))
    for round in range(3, 40):  # more than n - t complained: it sits out for good
        run.begin(round)
        assert run.aggregator.awaited == NAMES[:4]


def accusing(run, name, *owners):
    """Let a liar complain of members whose boxes are in order."""

    def lie(body):
        there = run.aggregator._adder._of[name].there
        kept = [owner for owner in there if owner not in body.complaints]
        size = len(body.shares) // len(kept)
        shares = [body.shares[size * i : size * (i + 1)] for i, owner in enumerate(kept) if owner not in owners]
        return replace(body, shares=b"".join(shares), complaints=tuple(sorted({*body.complaints, *owners})))

    run.deliver(forged(run, name, lie))


def test_a_liar_with_d_members_absent_gets_nobody_named_for_good():
    """One complaint is then enough to spoil a round; whoever it names comes back."""
    run = in_round()
    run.play_step(*NAMES[:4])
    accusing(run, "dia", "ann", "bob", "cem")
    run.send(*NAMES[:3])
    with pytest.raises(PrivacyError, match="lost"):
        run.aggregator.advance()
    run.begin(1)
    assert run.aggregator.awaited == NAMES  # too few would be left: nobody sits out
    np.testing.assert_array_equal(run.finish(), run.sum())
    run.begin(2)
    assert run.aggregator.awaited == NAMES


def test_a_liar_that_spoils_boxes_and_falls_silent_is_named():
    names = tuple("abcdefghij")  # n = 10, t = 8
    run = in_round(names=names)
    spoiling(run, "j", boxes=("a", "b"))
    run.play_step(*names[:9])
    run.send(*names[:9])
    assert not run.aggregator.complete  # j could still answer
    assert run.aggregator.may_end
    with pytest.raises(PrivacyError, match="of j cannot"):
        run.aggregator.advance()
    run.begin(1)
    assert run.aggregator.awaited == names[:9]


def test_with_too_few_answers_nobody_is_named_and_the_sum_can_still_be_opened():
    run = in_round()
    spoiling(run, "eve", boxes=("ann", "bob"))
    run.play_step(*NAMES[:4])
    run.send("ann", "bob", "cem")
    assert not run.aggregator.may_end
    with pytest.raises(PrivacyError, match="3 members"):
        run.aggregator.advance()
    run.begin(1)
    assert run.aggregator.awaited == NAMES


def test_a_receipt_of_the_second_wave_names_the_set():
    run = in_round()
    run.play_step()
    with pytest.raises(MessageError, match="another set"):
        run.deliver(forged(run, "ann", lambda body: replace(body, there=twowave.set_digest(NAMES[:4]))))
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_a_cohort_whose_liar_falls_silent_is_left_out_when_waiting_ends(cohorts_of_ten):
    names = tuple(f"m{number:02d}" for number in range(20))
    run = Run(SCHEME, members=names, dimension=2)
    first, second = run.generator.roster.cohorts
    run.begin(0)
    liar, silent = first[0], {first[0]}
    receipt, body = run.opened(run.ask(liar), liar)
    upload = decode(body, Contribution)
    boxes = tuple(bytes(len(box)) for box in upload.boxes)
    run.deliver(run.reply(liar, receipt, encode(replace(upload, boxes=boxes))))
    run.send(*[name for name in names if name != liar])
    run.aggregator.advance()
    run.send(*[name for name in names if name not in silent])
    assert not run.aggregator.complete
    assert run.aggregator.may_end
    run.aggregator.advance()
    np.testing.assert_array_equal(run.finish(), run.sum(*second))


def test_complaints_are_of_others_that_were_sent():
    run = in_round()
    run.play_step()
    for complaints in (("ann",), ("zoe",), (*NAMES[1:], "zoe")):
        with pytest.raises(MessageError):
            run.deliver(forged(run, "ann", lambda body, complaints=complaints: replace(body, complaints=complaints)))
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_a_member_that_has_complained_has_answered():
    hostile = Hostile()
    hostile.contribute()
    good = hostile.uploads["bob", 0]
    hostile.uploads["bob", 0] = replace(good, boxes=tuple(bytes(len(box)) for box in good.boxes))
    assert hostile.unmask("ann", NAMES).complaints == ("bob",)
    hostile.uploads["bob", 0] = good
    with pytest.raises(PrivacyError, match="once"):
        hostile.unmask("ann", NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_a_liar_costs_at_most_a_logarithm_of_the_rounds_and_no_honest_member_is_named(seed):
    """Liars and absent members are d at most; rounds are lost only when a liar is named, and each sits out longer."""
    rng, names = np.random.default_rng(seed), tuple("abcdefghij")
    run, lost = Run(SCHEME, members=names), 0
    for round in range(24):
        run.begin(round)
        there = [name for name in names if name in run.aggregator.awaited]
        assert set(names[:9]) <= set(there)
        absent = str(rng.choice(names[:9])) if rng.random() < 0.5 else ""
        there = [name for name in there if name != absent]
        if "j" in there:
            spoiling(run, "j", boxes=rng.permutation(names[:9])[: rng.integers(3)].tolist())
        run.play_step(*[name for name in there if name != "j"])
        if "j" in there and rng.random() < 0.5:
            accusing(run, "j", *rng.permutation([name for name in there if name != "j"])[:2].tolist())
        run.send(*[name for name in there if name != "j"])
        try:
            run.finish(*[name for name in there if name != "j"])
        except PrivacyError:
            lost += 1
        else:
            np.testing.assert_array_equal(run.total.integers, run.sum(*there))
    assert lost <= 1 + math.log2(24)


# 15. Planted defects, each with the attack that finds it


def update_alone(hostile, victim, liar, rows, *, round=0, model=ONE):
    """Return one member's update if the shares that an aggregator and a liar hold lift all masks of its upload."""
    names, roster = hostile.names, hostile.run.generator.roster
    bare = np.frombuffer(hostile.uploads[victim, round].masked, "<u4").copy()

    def secret(owner, which):
        shares = dict(hostile.reveals.get((owner, round), {}).get(which, {}))
        shares[names.index(liar) + 1] = rows[owner][names.index(which)]
        return interpolated(shares) if len(shares) >= parameters(len(names)).threshold else None

    for other in names:
        pairs = ((victim, other),) if other in (victim, liar) else ((victim, other), (other, victim))
        found = [secret(*pair) for pair in pairs]
        if other == liar:
            found = [twowave.pair_seed(hostile.chain_of(liar, victim, round), round, model)]
        found = [one for one in found if one is not None]
        if not found:
            return None
        who = sorted({victim, other})
        key = derived(packed(found[0]), b"self" if len(who) == 1 else b"mask", *[name.encode() for name in who],
                      round.to_bytes(8, "big"), model, roster.digest)  # fmt: skip
        bare = bare - stream(key, SIZE) if victim <= other else bare + stream(key, SIZE)
    return bare.view("<i4")


class WithLiar(Hostile):
    """The aggregator and eve together."""

    def chain_of(self, liar, other, round):
        others = [name for name in self.names if name != liar]
        kept = state_of(self.run, liar).chains
        start = 32 * others.index(other)
        return twowave.stepped(kept[start : start + 32], round - state_of(self.run, liar).step)

    def rows(self, liar, *, round=0, model=ONE):
        """Return the rows of shares that a liar can open, by owner."""
        place, found = self.names.index(liar), {}
        for owner in self.names:
            if owner != liar and (owner, round) in self.uploads:
                box = self.uploads[owner, round].boxes[place - (self.names.index(owner) < place)]
                key = twowave.box_key(self.chain_of(liar, owner, round), owner, liar, round, model)
                row = twowave.unseal(key, box, purpose=b"row")
                found[owner] = np.frombuffer(row, "<u2").astype(np.int64).reshape(len(self.names), 16)
        return found


@pytest.mark.parametrize("broken", [False, True])
def test_a_holder_that_answers_twice_gives_an_update_away(broken):
    hostile = WithLiar()
    hostile.contribute(*NAMES[:4])
    members = [hostile.run.role(name) for name in NAMES[:4]]
    before = [member._state for member in members]
    for name in NAMES[:4]:
        hostile.unmask(name, NAMES)
    if broken:
        for member, state in zip(members, before, strict=True):
            member._state = state
    for out in NAMES[1:4]:
        there = tuple(name for name in NAMES if name != out)
        for name, member, state in zip(NAMES, members, before, strict=False):
            if name == out:
                continue
            if broken:
                member._state = state
                hostile.unmask(name, there)
            else:
                with pytest.raises(PrivacyError, match="once"):
                    hostile.unmask(name, there)
    found = update_alone(hostile, "ann", "eve", hostile.rows("eve"))
    assert (found is not None and found.tolist() == hostile.run.updates["ann"].tolist()) == broken


@pytest.mark.parametrize("broken", [False, True])
def test_sets_below_the_quorum_give_an_update_away(broken):
    hostile = WithLiar()
    hostile.contribute(*NAMES[:4])
    if broken:
        for name in NAMES:
            hostile.run.role(name)._part.__dict__["_parameters"] = Quorum()
    for name in NAMES[:4]:
        there = tuple(sorted({"ann", name}))
        if broken:
            hostile.unmask(name, there)
        else:
            with pytest.raises(PrivacyError):
                hostile.unmask(name, there)
    found = update_alone(hostile, "ann", "eve", hostile.rows("eve"))
    assert (found is not None and found.tolist() == hostile.run.updates["ann"].tolist()) == broken


class Quorum:
    """Counts the members of a set from nothing."""

    quorum, threshold = 1, 4


@pytest.mark.parametrize("broken", [False, True])
def test_boxes_and_seeds_without_the_model_open_sums_over_two_models(broken, monkeypatch):
    if broken:
        box, seed = twowave.box_key, twowave.pair_seed
        monkeypatch.setattr(twowave, "box_key", lambda chain, one, two, round, model: box(chain, one, two, round, b""))
        monkeypatch.setattr(twowave, "pair_seed", lambda chain, round, model: seed(chain, round, b""))
    hostile = Hostile()
    hostile.contribute(*NAMES[1:])
    hostile.contribute("ann", model=TWO)
    assert (hostile.unmask("ann", NAMES, model=TWO).complaints == ()) == broken


@pytest.mark.parametrize("broken", [False, True])
def test_a_thief_of_a_state_reads_earlier_rounds_only_if_chains_are_not_stepped(broken, monkeypatch):
    if broken:
        monkeypatch.setattr(twowave, "stepped", lambda chain, steps: chain)
    hostile = Hostile()
    seed = twowave.pair_seed(state_of(hostile.run, "ann").chains[:32], 0, ONE)  # of ann and bob
    hostile.contribute()
    hostile.unmask("ann", NAMES)
    stolen = twowave.pair_seed(state_of(hostile.run, "ann").chains[:32], 0, ONE)
    assert (stolen.tolist() == seed.tolist()) == broken


# 9. Noise counts h shares


def test_noise_counts_on_the_members_that_a_lying_server_cannot_leave_out():
    members = tuple(f"m{number}" for number in range(50))
    how = {"members": members, "dimension": 10, "fraction_bits": 0, "slot_bits": 40}
    waves = terms_of(SCHEME, minimum=40, rounds=10, **how)
    masks = terms_of("masks", minimum=40, **how)
    assert withstood(waves) == withstood(masks) == 17
    assert uncounted(masks, 17) == 10
    assert uncounted(waves, 17) == 50 - 17 - 19
    how = {"epsilon": 1.0, "delta": 1e-6, "unit": "member", "clip": 1.0, "reach": 1.0}
    how |= {"members": 50, "drop_outs": 14, "colluders": 17, "dimension": 10, "rounds": 10}
    plan = NoisePlan.calibrated(**how, largest=waves.max_integer)
    assert plan.honest == plan.under(waves).honest == 19
    plan.check(waves, 1e-6)
    hopeful = replace(plan, drop_outs=10)
    assert hopeful.under(masks).honest == 23
    assert hopeful.under(waves).epsilon(1e-6) > hopeful.epsilon(1e-6)
    with pytest.raises(PrivacyError, match="36 are opened, planned 40"):
        hopeful.check(waves, 1e-6)
    with pytest.raises(PrivacyError, match="rounds is 11, planned 10"):
        plan.check(replace(waves, extra=TwoWaveOptions(11).to_bytes()), 1e-6)
    with pytest.raises(PrivacyError, match="proves nothing"):
        replace(plan, drop_outs=1, colluders=35).check(waves, 1e-6)


def test_noise_in_cohorts_counts_the_smallest(monkeypatch):
    monkeypatch.setattr(terms_module, "GROUP_MEMBERS", 10)
    terms = terms_of(SCHEME, members=tuple(f"m{number:02d}" for number in range(25)), dimension=2)
    assert terms.group_sizes == (13, 12)
    plan = NoisePlan.calibrated(epsilon=1.0, delta=1e-6, unit="member", clip=1.0, members=25, drop_outs=5, colluders=3,
                                dimension=2, rounds=5000, largest=2**30, reach=1.0, groups=2)  # fmt: skip
    honest = min(
        replace(twowave.cohort_parameters(terms, size), colluders=withstood(terms)).honest for size in (12, 13)
    )
    assert plan.under(terms).honest <= honest


# 10. One roster a run, fresh keys, fixed cohorts


def test_a_private_key_is_gone_with_the_set_up_and_a_second_roster_is_refused(tmp_path):
    run = Run(SCHEME, tmp_path / "roles")
    for name in NAMES:
        kept = state_of(run, name)
        assert kept.private == b""
        assert len(kept.chains) == 32 * 4
    setup = run.setup("ann")
    roster = Roster.from_bytes(setup.roster, expected=run.terms)
    for changes in ({"generation": 1}, {"partition": bytes(32)}):
        other = encode(replace(setup, roster=replace(roster, **changes).to_bytes()))
        for party in ("ann", AGGREGATOR):
            with pytest.raises(MessageError, match="already set up"):
                run.role(party).accept(other)


def test_members_draw_a_new_key_for_every_run_and_refuse_a_roster_with_another():
    one, two = (Member("ann", terms_of(SCHEME, run=run)) for run in ("one", "two"))
    keys = [decode(member.enrolment(), Enrolment).exchange for member in (one, two)]
    assert keys[0] != keys[1]
    run = Run(SCHEME)
    assert decode(run.role("ann").enrolment(), Enrolment).exchange == run.generator.roster.exchange["ann"]
    fresh = Member("ann", run.terms)
    fresh._key = run.key("ann")
    with pytest.raises(MessageError, match="exchange key"):
        fresh.accept(run.generator.setup()["ann"])


@pytest.mark.parametrize("key", [*OF_LOW_ORDER, b"", bytes(31)])
def test_the_key_generator_refuses_exchange_keys_that_cannot_agree(key):
    terms = terms_of(SCHEME)
    generator = KeyGenerator(terms, partition=bytes(32))
    enrolment = decode(Member("ann", terms).enrolment(), Enrolment)
    with pytest.raises(MessageError, match="exchange key"):
        generator.enrol(encode(replace(enrolment, exchange=key)))
    generator.enrol(encode(enrolment))
    with pytest.raises(MessageError, match="another key"):
        generator.enrol(encode(replace(enrolment, exchange=b"k" * 32)))


def test_other_schemes_have_no_exchange_keys_and_no_cohorts():
    run = Run("masks")
    assert run.generator.roster.exchange == {}
    with pytest.raises(InputError, match="cohorts"):
        _ = run.generator.roster.cohorts
    with pytest.raises(InputError, match="roster"):
        terms_of(SCHEME).groups(0)
    enrolment = decode(Member("ann", run.terms).enrolment(), Enrolment)
    with pytest.raises(MessageError, match="exchange key"):
        KeyGenerator(run.terms).enrol(encode(replace(enrolment, exchange=b"k" * 32)))
    with pytest.raises(InputError, match="partition"):
        KeyGenerator(run.terms, partition=bytes(32))
    with pytest.raises(InputError, match="partition"):
        KeyGenerator(terms_of(SCHEME))


def test_a_partition_follows_from_the_set_of_members_and_one_secret_alone(tmp_path):
    path, people = tmp_path / "partitions", [bytes([i]) * 32 for i in range(6)]
    kept = Partitions(path)
    seed = kept.seed(people)
    assert Partitions(path).seed(reversed(people)) == seed  # after a restart, and in any order
    assert Partitions().seed(people) != seed
    seeds = {kept.seed(people[:size]) for size in range(3, 6)}
    assert len({seed, *seeds}) == 4
    assert path.stat().st_mode & 0o777 == 0o600


def test_sets_of_members_are_counted_and_no_more_than_the_bound_get_a_partition(tmp_path):
    path, people = tmp_path / "partitions", [bytes([i]) * 32 for i in range(30)]
    seeds = [Partitions(path).seed(people[: 3 + size]) for size in range(16)]
    assert Partitions(path).seed(people[:3]) == seeds[0]  # known sets still have theirs
    with pytest.raises(PrivacyError, match="16 sets"):
        Partitions(path).seed(people)


@pytest.fixture
def cohorts_of_ten(monkeypatch):
    monkeypatch.setattr(terms_module, "GROUP_MEMBERS", 10)


def test_cohorts_are_fixed_for_the_run_whatever_its_name(cohorts_of_ten):
    names = tuple(f"m{number:02d}" for number in range(25))
    rosters = [Run(SCHEME, members=names, run=name, dimension=2).generator.roster for name in ("a", "b")]
    first, second = rosters[0].cohorts
    assert rosters[0].cohorts == rosters[1].cohorts
    assert sorted((*first, *second)) == list(names)
    assert tuple(map(len, (first, second))) == terms_of(SCHEME, members=names).group_sizes == (13, 12)
    assert replace(rosters[0], partition=b"q" * 32).cohorts != rosters[0].cohorts


def test_a_cohort_that_is_too_small_is_left_out_and_the_others_are_added(cohorts_of_ten):
    names = tuple(f"m{number:02d}" for number in range(20))
    run = Run(SCHEME, members=names, dimension=2)
    first, second = run.generator.roster.cohorts
    there = (*first[:7], *second[:8])  # q = 8
    np.testing.assert_array_equal(run.play(0, *there), run.sum(*second[:8]))
    assert run.total.members == second[:8]
    np.testing.assert_array_equal(run.play(1), run.sum())


def test_a_cohort_that_is_spoilt_is_left_out_and_the_others_are_added(cohorts_of_ten):
    names = tuple(f"m{number:02d}" for number in range(20))
    run = Run(SCHEME, members=names, dimension=2)
    first, second = run.generator.roster.cohorts
    run.begin(0)
    spoiling_in(run, first[0], first)
    run.send(*[name for name in names if name != first[0]])
    run.aggregator.advance()
    np.testing.assert_array_equal(run.finish(), run.sum(*second))
    run.begin(1)
    assert first[0] not in run.aggregator.awaited


def spoiling_in(run, name, cohort):
    receipt, body = run.opened(run.ask(name), name)
    upload = decode(body, Contribution)
    commitments = b"".join(
        sha(b"wrong") if member == name else one for member, one in zip(cohort, split(upload.commitments), strict=True)
    )
    run.deliver(run.reply(name, receipt, encode(replace(upload, commitments=commitments))))


# 11. Chains go forward


def test_chains_are_stepped_at_the_answer_and_when_a_later_round_begins():
    hostile = Hostile()
    start = state_of(hostile.run, "ann")
    first = start.chains[:32]
    hostile.contribute()
    assert state_of(hostile.run, "ann").chains == start.chains
    assert len(state_of(hostile.run, "ann").row) == 160
    hostile.unmask("ann", NAMES)
    after = state_of(hostile.run, "ann")
    assert (after.step, after.row, after.model) == (1, b"", b"")
    assert after.chains[:32] == derived(first, b"step")
    hostile.contribute("bob", round=3)
    bob = state_of(hostile.run, "bob")
    assert bob.step == 3
    assert bob.chains[:32] == derived(derived(derived(first, b"step"), b"step"), b"step")
    for chain in (first, after.chains[:32]):
        assert chain not in hostile.run.role("bob")._state.secrets


def test_no_member_contributes_to_more_rounds_than_were_agreed():
    """Numbers begin at 0 or 1; either way no member contributes more often than was agreed."""
    hostile = Hostile(rounds=3)
    with pytest.raises(PrivacyError, match="got 4"):
        hostile.contribute("ann", round=4)
    for round in range(3):
        hostile.contribute("ann", round=round)
        assert state_of(hostile.run, "ann").made == round + 1
    with pytest.raises(PrivacyError, match="3 of 3 rounds"):
        hostile.contribute("ann", round=3)
    hostile.contribute("bob", round=3)


# 12. The set is on disk before anybody is asked to unmask it


def test_the_set_is_closed_before_the_first_call_and_stays_closed(tmp_path):
    run = in_round(folder=tmp_path / "roles")
    late = run.ask("eve")
    run.send(*NAMES[:4])
    journal = run.path(AGGREGATOR).stat().st_size
    run.aggregator.advance()
    assert run.path(AGGREGATOR).stat().st_size > journal
    asked = decode(run.call(run.aggregator.calls(only=["ann"])["ann"]).body, UnmaskRequest)
    assert asked.there == NAMES[:4]
    with pytest.raises(MessageError, match="too late"):
        run.deliver(late)
    again = decode(run.call(run.aggregator.calls(only=["ann"])["ann"]).body, UnmaskRequest)
    assert again == asked
    np.testing.assert_array_equal(run.finish(), run.sum(*NAMES[:4]))


# 14. What is promised


def test_the_statement_names_the_bounds_of_the_theorem():
    for count, t, d, c, h in ((3, 3, 0, 1, 2), (10, 8, 2, 3, 5), (50, 40, 10, 17, 19)):
        terms = terms_of(SCHEME, members=tuple(map(str, range(count))), slot_bits=40)
        said = statement(terms)
        found = {line_id(one): str(one) for one in (*said.assumptions, *said.not_protected)}
        assert f"c = {c} " in found["waves-aggregator"]
        assert f"h = {h} " in found["waves-aggregator"]
        assert f"d = {d} " in found["waves-drop-outs"]
        assert f"t = {t} " in found["masks-threshold"]
        assert {"waves-all-in-one", "waves-absences", "later-rounds", "new-cohorts", "spoilt-waves"} <= set(found)
        assert "waves-run" not in found
    several = statement(terms_of(SCHEME, members=tuple(map(str, range(200))), slot_bits=48))
    found = {line_id(one): str(one) for one in several.assumptions}
    assert "of 200 members" in found["waves-run"]


def test_the_odds_of_a_cohort_with_too_many_liars():
    """Exact hypergeometric tails against scipy."""
    found = run_colluders(terms_of(SCHEME, members=tuple(map(str, range(200))), slot_bits=48))
    assert found.members, found.cohorts == (200, 4)
    assert found.odds == pytest.approx(4 * hypergeom.sf(17, 200, found.lying, 50), rel=1e-6)
    assert found.odds <= 1e-6 < 4 * hypergeom.sf(17, 200, found.lying + 1, 50)


def test_members_count_the_absent_from_the_set_that_they_reveal_for():
    """Whatever the aggregator signs as its answer: `absences` bounds what can be singled out."""
    run = Run(SCHEME, absences=1)
    for round in (0, 1):
        run.play(round, *NAMES[:4])
        lie = run.zeros()
        for name in NAMES[:4]:
            run.role(name).settle(lie, round)
            assert run.role(name)._state.missed == round + 1
    run.begin(2)
    with pytest.raises(PrivacyError, match="2 members have been missing"):
        run.ask("ann")
    assert run.role("eve")._state.missed == 0


# Engine


def test_an_engine_loses_a_spoilt_round_and_plays_the_next(tmp_path):
    run = Run(SCHEME)
    lying = {"on": True}

    def handle(name, kind, parts):
        reply = run.role(name).answer(parts[0], run.integers(name, kind))
        if name == "eve" and kind == CONTRIBUTE and lying["on"]:
            receipt, body = run.opened(reply, name)
            upload = decode(body, Contribution)
            return [run.reply(name, receipt, encode(replace(upload, boxes=tuple(map(bytes, map(len, upload.boxes))))))]
        return [reply]

    handlers = {name: partial(handle, name) for name in NAMES}
    engine = Engine(run.aggregator, LocalTransport(handlers), Patience(attempts=2, pause=0.0))
    with pytest.raises(PrivacyError, match="eve cannot"):
        engine.play(0, (b"one",))
    _, total = engine.play(1, (b"two",))
    assert total.members == NAMES[:4]
    np.testing.assert_array_equal(total.integers, run.sum(*NAMES[:4]))


def test_silence_in_the_second_wave_is_waited_for_and_the_sum_finished_later():
    run = Run(SCHEME)
    silent = {"ann", "bob"}

    def handle(name, kind, parts):
        if kind == UNMASK and name in silent:
            raise MessageError("away")
        return [run.role(name).answer(parts[0], run.integers(name, kind))]

    engine = Engine(
        run.aggregator,
        LocalTransport({name: partial(handle, name) for name in NAMES}),
        Patience(attempts=1, pause=0.0),
    )
    with pytest.raises(UnansweredError):
        engine.play(0)
    silent.clear()
    np.testing.assert_array_equal(engine.play(0)[1].integers, run.sum())


def test_a_session_of_cohorts_adds_up(cohorts_of_ten):
    rng = np.random.default_rng(0)
    terms = terms_of(SCHEME, members=tuple(f"m{number:02d}" for number in range(23)), dimension=7)
    session = Session(terms)
    updates = {name: rng.integers(-50, 50, 7) for name in terms.members}
    for number in (0, 4):
        result = session.round(updates, number, encoded=True)
        assert result.total.tolist() == np.sum(list(updates.values()), axis=0).tolist()
