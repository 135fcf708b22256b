"""Pairwise masks: uploads look random, masks cancel, and a server that lies gains nothing."""

import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy.stats import chi2

from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.learn.masks.expansion import agree, expand, public_half
from blindsight.learn.masks.keys import Peers, RoundKeys, pair_mask, self_mask
from blindsight.learn.masks.messages import Delivery, Directory, Result, Reveal, SealedShares, UnmaskRequest, Upload
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.residues import to_integers
from blindsight.learn.roster import Roster
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
    peers = Peers(run.roster.digest, 0, {name: key.advertisement() for name, key in keys.items()}, b"")
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
    """A run in which a majority is more than the three users that a sum needs."""

    users = (*USERS, "fay", "gus")


def test_at_every_step_a_majority_of_those_who_began_is_needed():
    run = Seven()
    run.begin(0)
    run.send("advertise", run.users)
    run.end("advertise")
    for phase in ("share", "mask", "unmask"):
        if phase == "unmask":
            with pytest.raises(PrivacyError, match="3 users"):
                run.role("ann").unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, run.users[:3])))
        run.send(phase, run.users[:3])
        with pytest.raises(PrivacyError, match="3 users; it needs 4"):
            run.end(phase)
        run.send(phase, run.users[3:4])  # one more arrives in time
        run.end(phase)
    assert np.array_equal(run.read("ann").integers, run.sum(run.users[:4]))


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
    (first,) = run.ask("unmask", "ann")
    assert len(decode(body(first), Reveal).shares) == len(USERS)
    with pytest.raises(PrivacyError, match="unmask"):
        run.role("ann").unmask(run.by_server(UnmaskRequest(digest, 0, USERS[:4])))
    with pytest.raises(MessageError, match="other users"):
        run.role("ann").read(run.by_server(Result(digest, 0, USERS[:4], bytes(4 * SIZE))))
    run.send("unmask", USERS)
    run.end("unmask")
    assert np.array_equal(run.read("ann").integers, run.sum())


def test_a_server_that_tells_different_users_different_things_gets_one_secret_at_most():
    run = played("mask")
    without_eve = run.by_server(UnmaskRequest(run.roster.digest, 0, USERS[:4]))
    requests = {name: without_eve if name in ("ann", "bob") else run.ended["mask"] for name in USERS}
    reveals = {name: run.role(name).unmask(request) for name, request in requests.items()}
    of_eve = {USERS.index(name) + 1: decode(body(reveals[name]), Reveal).shares[4] for name in USERS}
    keys = run.role("eve")._round.keys
    assert Reconstruction([3, 4, 5]).secret(of_eve) == keys._seed
    assert Reconstruction([1, 2]).secret(of_eve) != keys._mask  # two of the three it would take


@pytest.mark.parametrize(
    ("survivors", "error", "words"),
    [
        (USERS[1:], MessageError, "dropped out"),
        (("ann", "ann", "bob", "cem"), MessageError, "twice"),
        (("ann", "bob", "cem", "fay"), MessageError, "not shared"),
        (("ann", "bob"), PrivacyError, "2 users"),
    ],
)
def test_requests_that_make_no_sense_or_name_too_few_are_refused(survivors, error, words):
    run = played("mask")
    with pytest.raises(error, match=words):
        run.role("ann").unmask(run.by_server(UnmaskRequest(run.roster.digest, 0, survivors)))
    run.ask("unmask", "ann")  # the refused request has used up nothing


# Messages that are not what they should be


@pytest.mark.parametrize("phase", ["share", "mask", "unmask"])
def test_the_server_refuses_content_that_does_not_fit_and_loses_nothing(phase):
    run = played(Masks.phases[Masks.phases.index(phase) - 1])
    digest = run.roster.digest
    wrong = [
        UnmaskRequest(digest, 0, USERS),
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
            "mask": ann.unmask,
            "unmask": ann.read,
        }
        for _ in range(50):
            with pytest.raises(MessageError):
                reads[phase](mutated(mine, source))
    assert np.array_equal(run.read("ann").integers, run.sum())


def test_a_forged_share_is_noticed():
    run = played("mask")
    honest = decode(body(run.ask("unmask", "ann")[0]), Reveal)
    forged = Reveal(honest.run, 0, honest.owners, (bytes(33), *honest.shares[1:]))
    run.deliver(run.identities["ann"].sign(encode(forged), author="ann"))
    run.send("unmask", ("bob", "cem"))
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
    run.end("mask")
    run.send("unmask", USERS)
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
