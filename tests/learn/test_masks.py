"""Pairwise masks: uploads look random, sums are exact, drop-outs are lifted out, and a lying server gains nothing."""

import hmac
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.masks.expansion import agree, expand, public_half
from blindsight.learn.masks.keys import Peers, RoundKeys, pair_mask, self_mask, threshold
from blindsight.learn.masks.messages import Delivery, Directory, Reveal, SealedShares, UnmaskRequest, Upload
from blindsight.learn.masks.server import MaskServer
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.residues import to_integers
from blindsight.learn.roster import Roster
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes

USERS = ("ann", "bob", "cem", "dia", "eve")


class Run:
    """All parties of a run, and the messages of its round as far as it got."""

    def __init__(self, users=USERS, *, dimension=8, seed=0, slot_bits=32):
        source = seeded_bytes(seed)
        terms = SumTerms(run="test", users=users, dimension=dimension, fraction_bits=8, slot_bits=slot_bits)
        self.identities = {name: SigningKey.generate(source) for name in (*users, "aggregator")}
        self.roster = Roster(terms, {name: key.public for name, key in self.identities.items()})
        self.users = {name: MaskUser(name, self.roster, self.identities[name], source=source) for name in users}
        self.server = MaskServer(self.roster, self.identities["aggregator"])
        self.updates = {name: np.arange(dimension) * (-1) ** i + 1000 * i for i, name in enumerate(users)}
        self.round = -1

    def advertise(self, names=None):
        self.round += 1
        self.server.open(self.round)
        for name in names or self.users:
            self.server.receive(self.users[name].advertise(self.round))
        self.directory = self.server.directory()
        return self.directory

    def share(self, names=None):
        for name in names or self.users:
            self.server.receive(self.users[name].share(self.directory))
        self.deliveries = self.server.deliveries()
        return self.deliveries

    def upload(self, names=None):
        for name in names or self.users:
            self.server.receive(self.users[name].mask_integers(self.updates[name], self.deliveries[name]))
        self.request = self.server.request()
        return self.request

    def finish(self, names):
        for name in names:
            self.server.receive(self.users[name].unmask(self.request))
        self.result = self.server.result()
        return self.users[next(iter(names))].read(self.result).integers

    def sum(self, names):
        return np.sum([self.updates[name] for name in names], axis=0)

    def by_server(self, message):
        return self.identities["aggregator"].sign(encode(message), author="aggregator")


def body(envelope):
    return decode(envelope, Signed).body


# The sum


def test_a_whole_round_gives_the_sum():
    run = Run()
    run.advertise(), run.share(), run.upload()
    assert np.array_equal(run.finish(USERS), run.sum(USERS))
    total = run.users["eve"].read(run.result)
    assert total.users == USERS
    assert np.array_equal(total.values, run.sum(USERS) / 256)


@pytest.mark.parametrize("slot_bits", [8, 16, 24, 40, 64])
def test_every_width_holds_extreme_sums(slot_bits):
    run = Run(dimension=3, slot_bits=slot_bits)
    limit = run.roster.terms.max_integer
    run.updates = {name: np.array([limit, -limit, 0]) for name in USERS}
    run.advertise(), run.share(), run.upload()
    assert run.finish(USERS).tolist() == [5 * limit, -5 * limit, 0]


def test_two_uploads_add_up_to_the_truth_and_their_own_masks():
    run = Run(dimension=50)
    source = seeded_bytes(1)
    keys = {name: RoundKeys(name, run.roster, 0, source) for name in ("ann", "bob")}
    peers = Peers(run.roster.digest, 0, {name: key.advertisement() for name, key in keys.items()}, b"")
    own = [self_mask(key._seed, run.roster, 0) for key in keys.values()]
    uploads = [keys[name].masked(run.updates[name], keys, peers) for name in keys]
    assert np.array_equal(to_integers(sum(uploads) - sum(own)), run.sum(["ann", "bob"]))
    assert not np.array_equal(to_integers(uploads[0] - own[0]), run.updates["ann"])


def test_rounds_follow_each_other_with_new_keys():
    run, uploads = Run(), []
    for _ in range(2):
        run.advertise(), run.share()
        uploads.append(run.users["ann"].mask_integers(run.updates["ann"], run.deliveries["ann"]))
        run.upload()
        assert np.array_equal(run.finish(USERS), run.sum(USERS))
    first, second = (decode(body(upload), Upload).masked for upload in uploads)
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 4


# What the aggregator sees


def uniform(data):
    """Chi-square on bytes with a false-alarm rate of 1e-6 (the sources are seeded, so it does not flicker)."""
    counts, expected = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256), len(data) / 256
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255))


@pytest.mark.parametrize("value", [0, 1, -1, 429496729])
def test_an_upload_is_uniform_whatever_it_hides(value):
    run = Run(dimension=30_000, seed=2)
    run.updates = {name: np.full(30_000, value) for name in USERS}
    assert not uniform(run.updates["ann"].astype("<u4").tobytes())
    run.advertise(), run.share()
    for name in USERS:
        upload = run.users[name].mask_integers(run.updates[name], run.deliveries[name])
        assert uniform(decode(body(upload), Upload).masked)


def test_even_the_sum_of_all_uploads_is_uniform_before_unmasking():
    run = Run(dimension=30_000, seed=3)
    run.advertise(), run.share(), run.upload()
    assert uniform(run.server._round.sum.tobytes())


def test_masks_are_hkdf_and_aes_in_counter_mode():
    """The same mask from HMAC and single AES blocks."""
    terms = SumTerms(run="x", users=USERS, dimension=9, fraction_bits=0)
    extracted = hmac.digest(b"blindsight masks 1", b"s" * 32, "sha256")
    key = hmac.digest(extracted, b"here\x01", "sha256")
    block = Cipher(AES256(key), ECB()).encryptor()
    stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(3))
    assert expand(b"s" * 32, terms, context=b"here").tobytes() == stream[:36]


def test_both_sides_of_a_pair_make_the_same_mask_and_others_another():
    run = Run()
    ann, bob, eve = (bytes([i]) * 32 for i in (1, 2, 3))
    one = pair_mask(ann, public_half(bob), run.roster, 4)
    assert np.array_equal(one, pair_mask(bob, public_half(ann), run.roster, 4))
    assert not np.array_equal(one, pair_mask(ann, public_half(eve), run.roster, 4))
    assert not np.array_equal(one, pair_mask(ann, public_half(bob), run.roster, 5))
    assert not np.array_equal(one, pair_mask(ann, public_half(bob), Run(seed=9).roster, 4))


# Drop-outs


@given(st.data())
@settings(max_examples=25)
def test_drop_outs_at_any_step_leave_the_sum_of_those_who_uploaded(data):
    run = Run()
    advertised = data.draw(st.permutations(USERS))[: data.draw(st.integers(3, 5))]
    run.advertise(advertised)
    needed = max(3, threshold(len(advertised)))
    shared = advertised[: data.draw(st.integers(needed, len(advertised)))]
    run.share(shared)
    uploaded = shared[: data.draw(st.integers(needed, len(shared)))]
    run.upload(uploaded)
    revealed = uploaded[: data.draw(st.integers(threshold(len(advertised)), len(uploaded)))]
    assert np.array_equal(run.finish(revealed), run.sum(uploaded))
    assert run.users[revealed[0]].read(run.result).users == tuple(sorted(uploaded))


def test_too_many_drop_outs_fail_with_a_sentence_at_every_step():
    users = (*USERS, "fay", "gus")  # seven: a majority is four
    run = Run(users)
    with pytest.raises(PrivacyError, match="down to 2 users; it needs 3"):
        run.advertise(users[:2])
    run.advertise()
    with pytest.raises(PrivacyError, match="down to 3 users; it needs 4"):
        run.share(users[:3])
    run.share(users[3:4])  # one more arrives in time
    with pytest.raises(PrivacyError, match="down to 3 users; it needs 4"):
        run.upload(users[:3])
    run.upload(users[3:4])
    with pytest.raises(PrivacyError, match="down to 3 users; it needs 4"):
        run.finish(users[:3])
    assert np.array_equal(run.finish(users[3:4]), run.sum(users[:4]))


def test_after_a_lost_round_those_who_are_left_make_a_new_one():
    run = Run()
    run.advertise(), run.share()
    with pytest.raises(PrivacyError):
        run.upload(["ann", "bob"])
    three = USERS[:3]
    run.advertise(three), run.share(three), run.upload(three)
    assert np.array_equal(run.finish(three), run.sum(three))


def test_whoever_missed_a_phase_is_out_of_the_round():
    run = Run()
    run.advertise(), run.share(USERS[:4])
    unasked = Upload(run.roster.digest, 0, USERS[:4], bytes(32))
    with pytest.raises(MessageError, match="'eve' had dropped out"):
        run.server.receive(run.identities["eve"].sign(encode(unasked), author="eve"))
    run.upload(USERS[:4])
    assert np.array_equal(run.finish(USERS[:4]), run.sum(USERS[:4]))


# A server that lies


def test_the_server_cannot_put_in_keys_of_its_own():
    run = Run()
    run.advertise()
    listed = list(decode(body(run.directory), Directory).advertisements)
    forger = RoundKeys("bob", run.roster, 0, seeded_bytes(5))
    listed[1] = run.identities["aggregator"].sign(encode(forger.advertisement()), author="bob")
    with pytest.raises(MessageError, match="not signed by 'bob'"):
        run.users["ann"].share(run.by_server(Directory(run.roster.digest, 0, tuple(listed))))
    with pytest.raises(MessageError, match="other keys for 'ann'"):
        run.users["ann"].share(run.by_server(Directory(run.roster.digest, 0, tuple(listed[2:]))))


def test_directories_that_differ_make_shares_unreadable():
    run = Run()
    run.advertise()
    listed = decode(body(run.directory), Directory).advertisements
    shares = {name: decode(body(run.users[name].share(run.directory)), SealedShares) for name in USERS[1:]}
    without_eve = run.by_server(Directory(run.roster.digest, 0, listed[:4]))
    shares["ann"] = decode(body(run.users["ann"].share(without_eve)), SealedShares)
    senders = ("ann", "cem", "dia")
    for_bob = tuple(shares[sender].sealed[shares[sender].receivers.index("bob")] for sender in senders)
    with pytest.raises(MessageError, match="not made with this run's secret"):
        run.users["bob"].mask_integers(
            run.updates["bob"], run.by_server(Delivery(run.roster.digest, 0, senders, for_bob))
        )


def test_shares_sealed_for_another_cannot_be_opened():
    run = Run()
    run.advertise(), run.share()
    for_bob = decode(body(run.deliveries["bob"]), Delivery)
    to_ann = Delivery(run.roster.digest, 0, ("bob", *for_bob.senders[1:]), for_bob.sealed)
    with pytest.raises(MessageError, match="not made with this run's secret"):
        run.users["ann"].mask_integers(run.updates["ann"], run.by_server(to_ann))


@pytest.mark.parametrize(
    ("senders", "count", "sentence"),
    [
        (("bob", "bob", "cem"), 2, "one sealed share for each"),
        (("bob", "cem"), 3, "one sealed share for each"),
        (("ann", "bob", "cem"), 3, "not in the directory"),
        (("bob", "cem", "zoe"), 3, "not in the directory"),
    ],
)
def test_deliveries_that_make_no_sense_are_refused(senders, count, sentence):
    run = Run()
    run.advertise(), run.share()
    delivery = run.by_server(Delivery(run.roster.digest, 0, senders, (b"",) * count))
    with pytest.raises(MessageError, match=sentence):
        run.users["ann"].mask_integers(run.updates["ann"], delivery)


def test_users_reveal_once_and_never_both_secrets():
    run = Run()
    run.advertise(), run.share(), run.upload()
    ann = run.users["ann"]
    first = ann.unmask(run.request)
    assert ann.unmask(run.request) == first
    other = run.by_server(UnmaskRequest(run.roster.digest, 0, USERS[:4]))
    with pytest.raises(PrivacyError, match="already: unmask"):
        ann.unmask(other)
    assert len(decode(body(first), Reveal).shares) == len(USERS)


def test_a_server_that_tells_different_users_different_things_gets_one_secret_at_most():
    run = Run()
    run.advertise(), run.share(), run.upload()
    without_eve = run.by_server(UnmaskRequest(run.roster.digest, 0, USERS[:4]))
    reveals = {name: run.users[name].unmask(without_eve if name in ("ann", "bob") else run.request) for name in USERS}
    of_eve = {USERS.index(name) + 1: decode(body(reveals[name]), Reveal).shares[4] for name in USERS}
    seed = Reconstruction([3, 4, 5]).secret(of_eve)
    keys = run.users["eve"]._round.keys
    assert seed == keys._seed
    mask_key = Reconstruction([1, 2]).secret(of_eve)  # two of the three it would take
    assert mask_key != keys._mask


@pytest.mark.parametrize(
    ("survivors", "sentence"),
    [
        (USERS[1:], "counts it as dropped out"),
        (("ann", "ann", "bob", "cem"), "names users twice"),
        (("ann", "bob", "cem", "fay"), "have not shared"),
    ],
)
def test_requests_that_make_no_sense_are_refused(survivors, sentence):
    run = Run()
    run.advertise(), run.share(), run.upload()
    with pytest.raises(MessageError, match=sentence):
        run.users["ann"].unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, survivors)))
    run.users["ann"].unmask(run.request)  # the refused request has used up nothing


def test_users_do_not_unmask_a_sum_of_too_few():
    run = Run()
    run.advertise(), run.share(), run.upload()
    with pytest.raises(PrivacyError, match="down to 2 users; 'ann' goes on with 3"):
        run.users["ann"].unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, ("ann", "bob"))))


def test_one_mask_never_hides_two_updates():
    run = Run()
    run.advertise(), run.share()
    ann = run.users["ann"]
    first = ann.mask_integers(run.updates["ann"], run.deliveries["ann"])
    assert ann.mask_integers(run.updates["ann"], run.deliveries["ann"]) == first
    with pytest.raises(PrivacyError, match="already: mask"):
        ann.mask_integers(run.updates["ann"] + 1, run.deliveries["ann"])


# Messages that are not what they should be


@pytest.mark.parametrize("phase", ["advertise", "share", "upload", "reveal"])
def test_the_server_refuses_what_is_wrong_and_loses_nothing(phase):
    run, ended = Run(), dict[str, Any]()
    server = run.server
    server.open(0)
    steps = {
        "advertise": (lambda user: user.advertise(0), server.directory),
        "share": (lambda user: user.share(ended["advertise"]), server.deliveries),
        "upload": (lambda user: user.mask_integers(run.updates[user.name], ended["share"][user.name]), server.request),
        "reveal": (lambda user: user.unmask(ended["upload"]), server.result),
    }
    for step, (make, end) in steps.items():
        messages = {name: make(user) for name, user in run.users.items()}
        if step == phase:
            _refuses_everything(run, messages["ann"])
        for message in messages.values():
            server.receive(message)
            server.receive(message)  # the same again changes nothing
        if step == phase:
            with pytest.raises(MessageError, match="something else"):
                server.receive(run.identities["ann"].sign(body(messages["bob"]), author="ann"))
        ended[step] = end()
        if step == phase:
            with pytest.raises(MessageError, match="too late"):
                server.receive(messages["ann"])
    assert np.array_equal(run.users["ann"].read(ended["reveal"]).integers, run.sum(USERS))


def _refuses_everything(run, message):
    """Throw damaged, forged and foreign messages at the server: each is refused with a sentence."""
    stranger, foreign, source = SigningKey.generate(seeded_bytes(7)), Run(seed=8), np.random.default_rng(0)
    wrong = [
        b"",
        message[:-1],
        message + b"\0",
        bytes(len(message)),
        stranger.sign(body(message), author="ann"),
        stranger.sign(body(message), author="zoe"),
        run.identities["aggregator"].sign(body(message), author="aggregator"),
        run.identities["ann"].sign(encode(UnmaskRequest(run.roster.digest, 0, USERS)), author="ann"),
        run.identities["ann"].sign(encode(Upload(run.roster.digest, 1, USERS, b"")), author="ann"),
        run.identities["ann"].sign(encode(Upload(foreign.roster.digest, 0, USERS, b"")), author="ann"),
        run.identities["ann"].sign(encode(Upload(run.roster.digest, 0, USERS, b"short")), author="ann"),
        run.identities["ann"].sign(encode(Reveal(run.roster.digest, 0, USERS, (b"no share",) * 5)), author="ann"),
        run.identities["ann"].sign(encode(Reveal(run.roster.digest, 0, USERS[:2], (b"",) * 2)), author="ann"),
        *[_mutated(message, source) for _ in range(200)],
    ]
    before = run.server.refused
    for spoilt in wrong:
        with pytest.raises(MessageError):
            run.server.receive(spoilt)
    assert run.server.refused == before + len(wrong)


def _mutated(message, source):
    changed = bytearray(message)
    place = int(source.integers(len(changed)))
    changed[place] ^= int(source.integers(1, 256))
    return bytes(changed)


def test_users_refuse_what_is_wrong_and_lose_nothing():
    run, source = Run(), np.random.default_rng(1)
    ann = run.users["ann"]
    run.advertise()
    for _ in range(100):
        with pytest.raises(MessageError):
            ann.share(_mutated(run.directory, source))
    run.share()
    for _ in range(100):
        with pytest.raises(MessageError):
            ann.mask_integers(run.updates["ann"], _mutated(run.deliveries["ann"], source))
    run.upload()
    for _ in range(100):
        with pytest.raises(MessageError):
            ann.unmask(_mutated(run.request, source))
    assert np.array_equal(run.finish(USERS), run.sum(USERS))
    with pytest.raises(MessageError):
        ann.read(_mutated(run.result, source))


def test_a_forged_share_is_noticed():
    run = Run()
    run.advertise(), run.share(), run.upload()
    honest = decode(body(run.users["ann"].unmask(run.request)), Reveal)
    forged = Reveal(honest.run, 0, honest.owners, (bytes(33), *honest.shares[1:]))
    run.server.receive(run.identities["ann"].sign(encode(forged), author="ann"))
    with pytest.raises(MessageError, match="a secret of 'ann' do not give what it advertised"):
        run.finish(("bob", "cem"))


def test_an_upload_out_of_range_is_noticed_in_the_sum():
    run = Run(slot_bits=24)  # sums of 24 bits modulo 2^32: out of range is seen (in eight weights, but for 2^-64)
    run.advertise(), run.share()
    run.users["ann"].mask_integers(run.updates["ann"], run.deliveries["ann"])
    wild = Upload(run.roster.digest, 0, USERS, seeded_bytes(3)(32))
    run.server.receive(run.identities["ann"].sign(encode(wild), author="ann"))
    run.upload(USERS[1:])
    with pytest.raises(MessageError, match="did not cancel"):
        run.finish(USERS)


def test_steps_come_in_order():
    run = Run()
    with pytest.raises(InputError, match="Advertise first"):
        run.users["ann"].share(b"")
    run.advertise()
    with pytest.raises(InputError, match="before comes first: share"):
        run.users["ann"].mask_integers(run.updates["ann"], b"")
    with pytest.raises(InputError, match="phase 1"):
        run.server.request()
    with pytest.raises(InputError, match="after round 0 there is no round 0"):
        run.server.open(0)
    with pytest.raises(InputError, match="after round 0 there is no round -1"):
        run.users["ann"].advertise(-1)


def test_keys_that_cannot_agree_are_refused():
    with pytest.raises(MessageError, match="agreed"):
        agree(b"k" * 32, bytes(32))
    with pytest.raises(MessageError, match="agreed"):
        agree(b"k" * 32, b"short")


def test_only_parties_of_the_roster_can_play():
    run = Run()
    with pytest.raises(InputError, match="no 'ann' with this signing key"):
        MaskUser("ann", run.roster, run.identities["bob"])
    with pytest.raises(InputError, match="wrong: aggregator"):
        Roster(run.roster.terms, {name: run.identities[name].public for name in USERS})
    assert "hidden" in repr(run.users["ann"])
