"""Pairwise masks: uploads look random, masks cancel, and a server that lies gains nothing."""

import hmac
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy.stats import chi2

from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.masks.expansion import agree, expand, public_half
from blindsight.learn.masks.keys import Peers, RoundKeys, colluders, pair_mask, read_directory, self_mask, threshold
from blindsight.learn.masks.messages import (
    Consistency,
    Delivery,
    Directory,
    Result,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    Upload,
)
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.residues import to_integers
from blindsight.learn.roster import Roster
from blindsight.learn.schemes.masks import statement as masks_statement
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import seeded_bytes
from tests.learn.sums.schemes import AGGREGATOR, SIZE, USERS, Masks


def body(envelope):
    return decode(envelope, Signed).body


def played(last=None, folder=None, **options):
    """A run in round 0, with all phases up to this one ended."""
    run = Masks(folder, **options)
    run.begin(0)
    for phase in run.phases[: run.phases.index(last) + 1 if last else 0]:
        run.send(phase, USERS)
        run.end(phase)
    return run


def mutated(message, source):
    changed = bytearray(message)
    changed[source.integers(len(changed))] ^= int(source.integers(1, 256))
    return bytes(changed)


# The sum


@pytest.mark.parametrize("slot_bits", [8, 16, 24, 40, 64])
def test_every_width_holds_extreme_sums(slot_bits):
    run = Masks(dimension=3, slot_bits=slot_bits)
    limit = run.max_integer
    run.updates = {name: np.array([limit, -limit, 0]) for name in USERS}
    assert run.play(0).tolist() == [5 * limit, -5 * limit, 0]


def test_two_uploads_add_up_to_the_truth_and_their_own_masks():
    run, source = Masks(), seeded_bytes(1)
    keys = {name: RoundKeys(name, run.roster, 0, source) for name in ("ann", "bob")}
    peers = Peers(run.roster.digest, 0, {name: key.advertisement() for name, key in keys.items()}, b"", 2)
    own = [self_mask(key._seed, run.roster, 0) for key in keys.values()]
    uploads = [keys[name].masked(run.updates[name], keys, peers) for name in keys]
    assert np.array_equal(to_integers(sum(uploads) - sum(own)), run.sum(["ann", "bob"]))
    assert not np.array_equal(to_integers(uploads[0] - own[0]), run.updates["ann"])


def test_masks_are_new_in_every_round():
    run, uploads = Masks(), []
    for round in (0, 1):
        run.play(round)
        uploads.append(decode(body(run.ask("mask", "ann")[0]), Upload).masked)
    assert sum(a == b for a, b in zip(*uploads, strict=True)) < 4


# What the aggregator sees


def uniform(data):
    """Chi-square on bytes with a false-alarm rate of 1e-6 (the sources are seeded, so it does not flicker)."""
    counts, expected = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256), len(data) / 256
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255))


@pytest.mark.parametrize("value", [0, 1, -1, 429496729])
def test_an_upload_is_uniform_whatever_it_hides_and_so_is_the_sum_before_unmasking(value):
    run = played("share", dimension=30_000, seed=2)
    run.updates = {name: np.full(30_000, value) for name in USERS}
    assert not uniform(run.updates["ann"].astype("<u4").tobytes())
    for name in USERS:
        (upload,) = run.ask("mask", name)
        assert uniform(decode(body(upload), Upload).masked)
        run.deliver(upload)
    assert uniform(run.role(AGGREGATOR)._round.sum.tobytes())


def test_masks_are_hkdf_and_aes_in_counter_mode():
    """The same mask from HMAC and single AES blocks."""
    terms = SumTerms(run="x", users=USERS, dimension=9, fraction_bits=0)
    extracted = hmac.digest(b"blindsight masks 1", b"s" * 32, "sha256")
    block = Cipher(AES256(hmac.digest(extracted, b"here\x01", "sha256")), ECB()).encryptor()
    stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(3))
    assert expand(b"s" * 32, terms, context=b"here").tobytes() == stream[:36]


def test_both_sides_of_a_pair_make_the_same_mask_and_others_another():
    run = Masks()
    ann, bob, eve = (bytes([i]) * 32 for i in (1, 2, 3))
    one = pair_mask(ann, public_half(bob), run.roster, 4)
    assert np.array_equal(one, pair_mask(bob, public_half(ann), run.roster, 4))
    assert not np.array_equal(one, pair_mask(ann, public_half(eve), run.roster, 4))
    assert not np.array_equal(one, pair_mask(ann, public_half(bob), run.roster, 5))
    assert not np.array_equal(one, pair_mask(ann, public_half(bob), Masks(seed=9).roster, 4))


class Seven(Masks):
    """A run in which two thirds are more than the three users that a sum needs."""

    users = (*USERS, "fay", "gus")


def test_at_every_step_more_than_two_thirds_of_all_users_are_needed():
    run = Seven()
    run.begin(0)
    for phase in run.phases:
        if phase == "share":
            listed = decode(body(run.ended["advertise"]), Directory).advertisements
            with pytest.raises(PrivacyError, match="4 users"):
                run.role("ann").share(run.by_server(Directory(run.roster.digest, 0, listed[:4])))
        if phase == "consistency":
            with pytest.raises(PrivacyError, match="4 users"):
                run.role("ann").sign(run.by_server(Survivors(run.roster.digest, 0, run.users[:4])))
        if phase == "unmask":
            signed = decode(body(run.ended["consistency"]), UnmaskRequest).signed
            for some, count in ((signed[:4], 4), (signed[:1] * 5, 1), ((), 0)):
                with pytest.raises(PrivacyError, match=f"{count} users"):
                    run.role("ann").unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, some)))
        run.send(phase, run.users[:4])
        with pytest.raises(PrivacyError, match="4 users; it needs 5"):
            run.end(phase)
        run.send(phase, run.users[4:5])  # one more arrives in time
        run.end(phase)
    assert np.array_equal(run.read("ann").integers, run.sum(run.users[:5]))


def test_the_threshold_and_how_many_may_lie():
    for count in range(3, 60):
        t, c = threshold(count), colluders(count)
        assert 3 * (t - 1) <= 2 * count < 3 * t
        assert c >= 1
        assert 2 * t > count + c
        assert t - c >= 2
        assert 2 * t == count + c + 1 or t - c == 2  # one more would be too many
        said = str(masks_statement(count).to_dict())
        for words in (f"t = {t} of {count}", f"{count - t} may drop out", f"c = {c} collude", f"sums of {t - c} other"):
            assert words in said


# A server that lies


def test_the_server_cannot_put_in_keys_of_its_own():
    run = played("advertise")
    listed = list(decode(body(run.ended["advertise"]), Directory).advertisements)
    forger = RoundKeys("bob", run.roster, 0, seeded_bytes(5))
    listed[1] = run.identities[AGGREGATOR].sign(encode(forger.advertisement()), author="bob")
    for wrong, words in ((listed, "not signed by 'bob'"), (listed[2:], "other keys for 'ann'")):
        with pytest.raises(MessageError, match=words):
            run.role("ann").share(run.by_server(Directory(run.roster.digest, 0, tuple(wrong))))


def test_directories_that_differ_and_shares_for_others_cannot_be_opened():
    run = played("advertise")
    listed = decode(body(run.ended["advertise"]), Directory).advertisements
    shares = {name: decode(body(run.ask("share", name)[0]), SealedShares) for name in USERS[1:]}
    without_eve = run.by_server(Directory(run.roster.digest, 0, listed[:4]))
    shares["ann"] = decode(body(run.role("ann").share(without_eve)), SealedShares)
    senders = ("ann", "cem", "dia")
    for_bob = tuple(shares[sender].sealed[shares[sender].receivers.index("bob")] for sender in senders)
    run.ended["share"] = {"bob": run.by_server(Delivery(run.roster.digest, 0, senders, for_bob))}
    with pytest.raises(MessageError, match="secret"):
        run.ask("mask", "bob")
    run = played("share")
    for_bob = decode(body(run.ended["share"]["bob"]), Delivery)
    to_ann = Delivery(run.roster.digest, 0, ("bob", *for_bob.senders[1:]), for_bob.sealed)
    run.ended["share"]["ann"] = run.by_server(to_ann)
    with pytest.raises(MessageError, match="secret"):
        run.ask("mask", "ann")


@pytest.mark.parametrize(
    ("senders", "count"),
    [(("bob", "bob", "cem"), 2), (("bob", "cem"), 3), (("ann", "bob", "cem"), 3), (("bob", "cem", "zoe"), 3)],
)
def test_deliveries_that_make_no_sense_are_refused(senders, count):
    run = played("share")
    run.ended["share"]["ann"] = run.by_server(Delivery(run.roster.digest, 0, senders, (b"",) * count))
    with pytest.raises(MessageError, match="delivery"):
        run.ask("mask", "ann")


def test_no_step_is_done_in_two_ways_also_after_a_restart(tmp_path):
    """Two directories or two requests could open both locks of an upload."""
    run = played("advertise", folder=tmp_path / "users")
    digest, listed = run.roster.digest, decode(body(run.ended["advertise"]), Directory).advertisements
    run.ask("share", "ann")
    with pytest.raises(PrivacyError, match="share"):
        run.role("ann").share(run.by_server(Directory(digest, 0, listed[:4])))
    for phase in ("share", "mask"):
        run.send(phase, USERS)
        run.end(phase)
    run.ask("consistency", "ann")
    with pytest.raises(PrivacyError, match="consistency"):
        run.role("ann").sign(run.by_server(Survivors(digest, 0, USERS[:4])))
    run.send("consistency", USERS)
    run.end("consistency")
    (first,) = run.ask("unmask", "ann")
    assert len(decode(body(first), Reveal).shares) == len(USERS)
    signed = decode(body(run.ended["consistency"]), UnmaskRequest).signed
    with pytest.raises(PrivacyError, match="unmask"):
        run.role("ann").unmask(run.by_server(UnmaskRequest(digest, 0, signed[:4])))
    for ask, step in (("share", run.role("ann").share), ("consistency", run.role("ann").sign)):  # of this round no more
        with pytest.raises(PrivacyError, match=ask):
            step(run.by_server(Survivors(digest, 0, USERS[:4])))
    with pytest.raises(PrivacyError, match="mask"):
        run.ask("mask", "ann", update=run.updates["bob"])
    with pytest.raises(MessageError, match="other users"):
        run.role("ann").read(run.by_server(Result(digest, 0, USERS[:4], bytes(4 * SIZE))))
    run.send("unmask", USERS)
    run.end("unmask")
    assert np.array_equal(run.read("ann").integers, run.sum())


@pytest.mark.parametrize(
    ("survivors", "error", "words"),
    [
        (USERS[1:], MessageError, "dropped out"),
        (("ann", "ann", "bob", "cem"), MessageError, "twice"),
        (("ann", "bob", "cem", "fay"), MessageError, "not shared"),
        (("ann", "bob", "cem"), PrivacyError, "3 users"),
    ],
)
def test_survivors_that_make_no_sense_or_are_too_few_are_not_signed(survivors, error, words):
    run = played("mask")
    with pytest.raises(error, match=words):
        run.role("ann").sign(run.by_server(Survivors(run.roster.digest, 0, survivors)))
    run.ask("consistency", "ann")  # the refused set has used up nothing


def test_signatures_that_do_not_count_unmask_nothing():
    run = played("consistency")
    digest, good = run.roster.digest, decode(body(run.ended["consistency"]), UnmaskRequest).signed
    peers = read_directory(run.roster, run.ended["advertise"], round=0)
    stranger = SigningKey.generate(seeded_bytes(7))
    right, fewer = peers.agreed(USERS), peers.agreed(USERS[:4])
    elsewhere = replace(peers, digest=bytes(32)).agreed(USERS)  # another directory
    wrong = {
        "not signed": stranger.sign(encode(Consistency(digest, 0, right)), author="bob"),
        "round 1": run.identities["bob"].sign(encode(Consistency(digest, 1, right)), author="bob"),
        "another run": run.identities["bob"].sign(encode(Consistency(bytes(32), 0, right)), author="bob"),
        "aggregator": run.by_server(Consistency(digest, 0, right)),
        "other survivors": run.identities["bob"].sign(encode(Consistency(digest, 0, fewer)), author="bob"),
        "'bob' was told": run.identities["bob"].sign(encode(Consistency(digest, 0, elsewhere)), author="bob"),
    }
    for words, bad in wrong.items():
        with pytest.raises((MessageError, PrivacyError), match=words):
            run.role("ann").unmask(run.by_server(UnmaskRequest(digest, 0, (good[0], bad, *good[2:]))))
    run.send("unmask", USERS)
    run.end("unmask")
    assert np.array_equal(run.read("ann").integers, run.sum())


# Messages that are not what they should be


@pytest.mark.parametrize("phase", ["share", "mask", "consistency", "unmask"])
def test_the_server_refuses_content_that_does_not_fit_and_loses_nothing(phase):
    run = played(Masks.phases[Masks.phases.index(phase) - 1])
    digest = run.roster.digest
    wrong = [
        UnmaskRequest(digest, 0, (b"",)),
        Survivors(digest, 0, USERS),
        Consistency(digest, 0, bytes(32)),
        Upload(digest, 0, USERS, b"short"),
        Upload(digest, 0, USERS[:4], bytes(4 * SIZE)),
        Upload(digest, 1, USERS, bytes(4 * SIZE)),
        SealedShares(digest, 0, USERS[:2], (b"",) * 2),
        Reveal(digest, 0, USERS, (b"no share",) * 5),
        Reveal(digest, 0, USERS[:2], (b"",) * 2),
    ]
    for message in wrong:
        with pytest.raises(MessageError):
            run.deliver(run.identities["ann"].sign(encode(message), author="ann"))
    assert run.role(AGGREGATOR).refused == len(wrong)
    for later in run.phases[run.phases.index(phase) :]:
        run.send(later, USERS)
        run.end(later)
    assert np.array_equal(run.read("ann").integers, run.sum())


def test_users_refuse_altered_messages_and_lose_nothing():
    run, source = played(), np.random.default_rng(1)
    for phase in run.phases:
        run.send(phase, USERS)
        run.end(phase)
        good, ann = run.ended[phase], run.role("ann")
        mine = good["ann"] if phase == "share" else good
        reads = {
            "advertise": ann.share,
            "share": lambda bad, ann=ann: ann.mask_integers(run.updates["ann"], bad),
            "mask": ann.sign,
            "consistency": ann.unmask,
            "unmask": ann.read,
        }
        for _ in range(50):
            with pytest.raises(MessageError):
                reads[phase](mutated(mine, source))
    assert np.array_equal(run.read("ann").integers, run.sum())


def test_a_forged_share_is_noticed():
    run = played("consistency")
    honest = decode(body(run.ask("unmask", "ann")[0]), Reveal)
    forged = Reveal(honest.run, 0, honest.owners, (bytes(33), *honest.shares[1:]))
    run.deliver(run.identities["ann"].sign(encode(forged), author="ann"))
    run.send("unmask", ("bob", "cem", "dia"))
    with pytest.raises(MessageError, match="'ann'"):
        run.end("unmask")


def test_an_upload_out_of_range_is_noticed_in_the_sum():
    run = played(
        "share", slot_bits=24
    )  # sums of 24 bits modulo 2^32: out of range is seen (in eight weights, but for 2^-64)
    run.ask("mask", "ann")
    wild = Upload(run.roster.digest, 0, USERS, seeded_bytes(3)(32))
    run.deliver(run.identities["ann"].sign(encode(wild), author="ann"))
    run.send("mask", USERS[1:])
    for phase in ("mask", "consistency"):
        run.end(phase)
        run.send(run.phases[run.phases.index(phase) + 1], USERS)
    with pytest.raises(MessageError, match="did not cancel"):
        run.end("unmask")


def test_steps_come_in_order_also_after_a_restart(tmp_path):
    run = played(folder=tmp_path / "users")
    with pytest.raises(InputError, match="Advertise"):
        run.role("ann").share(b"")
    run.send("advertise", USERS)
    run.end("advertise")
    with pytest.raises(InputError, match="share"):
        run.role("ann").mask_integers(run.updates["ann"], b"")
    with pytest.raises(InputError, match="phase 1"):
        run.role(AGGREGATOR).request()


def test_whoever_missed_a_phase_is_out_of_the_round():
    run = played("advertise")
    run.send("share", USERS[:4])
    run.end("share")
    unasked = Upload(run.roster.digest, 0, USERS[:4], bytes(4 * SIZE))
    with pytest.raises(MessageError, match="'eve' had dropped out"):
        run.deliver(run.identities["eve"].sign(encode(unasked), author="eve"))


@pytest.mark.parametrize("key", [bytes(32), b"short"])
def test_keys_that_cannot_agree_are_refused(key):
    with pytest.raises(MessageError, match="agreed"):
        agree(b"k" * 32, key)


def test_only_parties_of_the_roster_can_play():
    run = Masks()
    with pytest.raises(InputError, match="'ann'"):
        MaskUser("ann", run.roster, run.identities["bob"])
    with pytest.raises(InputError, match="aggregator"):
        Roster(run.roster.terms, {name: run.identities[name].public for name in USERS})
