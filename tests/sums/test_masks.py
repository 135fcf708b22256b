"""Pairwise masks: uploads look random, masks cancel, groups, and a server that lies gains nothing."""

import hashlib
import hmac
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy.stats import chi2

from blindsight.crypto.sealedbox import of_low_order
from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.rng import seeded_bytes
from blindsight.sums import Session, statement
from blindsight.sums import terms as terms_module
from blindsight.sums.masks import (
    STEPS,
    Advertisement,
    Delivery,
    Directory,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    add_masks,
    agree,
    colluders,
    enough,
    mask_context,
    public_half,
    threshold,
)
from blindsight.sums.messages import Answer, Receipt, Reply
from blindsight.sums.scheme import CONTRIBUTE, Resources
from blindsight.sums.terms import AGGREGATOR
from tests.sums.runs import NAMES, SIZE, Run, terms_of

SHARE, CONSISTENCY, UNMASK = STEPS[1], STEPS[3], STEPS[4]


def played(step, **changes):
    """A run in round 0, with all steps before this one ended."""
    run = Run("masks", **changes)
    run.begin(0)
    run.play_until(step)
    return run


def told(run, name, message, **changes):
    """Let a member answer the present step with another body than the truth."""
    call = run.call(run.aggregator.calls(only=[name])[name])
    lie = replace(call, member=name, body=encode(message), **changes)
    return run.ask(name, call=run.signed(AGGREGATOR, lie))


def body_for(run, name, kind):
    return decode(run.call(run.aggregator.calls(only=[name])[name]).body, kind)


# Masks


def test_an_upload_wears_its_own_mask_and_those_of_pairs():
    run = played(CONSISTENCY)
    kept = {name: run.kept(name) for name in NAMES}
    roster, group = run.generator.roster, run.aggregator._adder._groups[0]
    left = group.sum.copy()
    add_masks(left, [(kept[name].seed, mask_context(b"self", roster, (0, 0), (name,)), False) for name in NAMES])
    np.testing.assert_array_equal(left.astype(np.int32), run.sum())  # those of pairs have cancelled
    ann = run.terms.read_residues(run.opened(run.role("ann")._state.sent, "ann")[1]).copy()
    add_masks(ann, [(kept["ann"].seed, mask_context(b"self", roster, (0, 0), ("ann",)), False)])
    assert (ann.astype(np.int32) != run.updates["ann"]).sum() > SIZE - 4
    pairs = {name: agree(kept[name].mask, public_half(kept["ann"].mask)) for name in NAMES[1:]}
    add_masks(ann, [(pairs[name], mask_context(b"pair", roster, (0, 0), (name, "ann")), False) for name in pairs])
    np.testing.assert_array_equal(ann.astype(np.int32), run.updates["ann"])


def test_masks_are_new_in_every_attempt_and_round():
    run, uploads = Run("masks"), []
    for round, attempt in ((0, 0), (0, 1), (1, 0)):
        run.begin(round, attempt=attempt)
        run.play_until(CONTRIBUTE)
        uploads.append(run.opened(run.ask("ann"), "ann")[1])
    for one, two in pairwise(uploads):
        assert sum(a == b for a, b in zip(one, two, strict=True)) < 6


def test_masks_are_hkdf_and_aes_in_counter_mode():
    """The same mask from HMAC and single AES blocks."""
    extracted = hmac.digest(b"blindsight masks 3", b"s" * 32, "sha256")
    block = Cipher(AES256(hmac.digest(extracted, b"here\x01", "sha256")), ECB()).encryptor()
    stream = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(3))
    for plus in (True, False):
        vector = np.zeros(9, dtype="<u4")
        add_masks(vector, [(b"s" * 32, b"here", plus)])
        assert (vector if plus else -vector).tobytes() == stream[:36]


def test_masks_longer_than_a_chunk_are_one_stream():
    long, short = np.zeros(200_000, dtype="<u4"), np.zeros(70_000, dtype="<u4")
    for vector in (long, short):
        add_masks(vector, [(b"s" * 32, b"here", True)])
    np.testing.assert_array_equal(long[:70_000], short)


def uniform(data):
    """Chi-square on bytes with a false-alarm rate of 1e-6 (the sources are seeded, so it does not flicker)."""
    counts, expected = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256), len(data) / 256
    return bool(((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 255))


@pytest.mark.parametrize("value", [0, -1, 429496729])
def test_an_upload_is_uniform_whatever_it_hides_and_so_is_the_sum_before_unmasking(value):
    seen, terms = [], terms_of("masks", dimension=30_000, fraction_bits=0)

    def transit(sender, receiver, kind, parts):
        if receiver == AGGREGATOR and kind == CONTRIBUTE:
            seen.append(decode(parts[0], Reply).body)
        return [parts]

    session = Session(terms, resources=Resources(source=seeded_bytes(2)), transit=transit)
    update = np.full(30_000, value)
    assert not uniform(update.astype("<u4").tobytes())
    session.round(dict.fromkeys(NAMES, update), 0)
    assert len(seen) == 5
    assert all(uniform(upload) for upload in seen)
    assert uniform(np.sum([terms.read_residues(upload) for upload in seen], axis=0, dtype="<u4").tobytes())


@pytest.mark.parametrize("key", [bytes(32), b"short"])
def test_keys_that_cannot_agree_are_refused(key):
    with pytest.raises(MessageError, match="agreed"):
        agree(b"k" * 32, key)


U_OF_LOW_ORDER = (
    *(0, 1, 2**255 - 20),
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
OF_LOW_ORDER = [  # the first two have a second encoding below 2^255, and bit 255 is ignored
    (u + again + top).to_bytes(32, "little")
    for u in U_OF_LOW_ORDER
    for again in (0, 2**255 - 19)
    for top in (0, 2**255)
    if u + again < 2**255
]


def test_keys_of_low_order_are_those_that_cannot_agree():
    assert len(OF_LOW_ORDER) == 14
    for key in OF_LOW_ORDER:
        assert of_low_order(key)
        with pytest.raises(MessageError, match="agreed"):
            agree(b"k" * 32, key)
    doubled = {(u * u - 1) ** 2 * pow(4 * u * (u * u + 486662 * u + 1), -1, 2**255 - 19) % (2**255 - 19)
               for u in U_OF_LOW_ORDER[3:]}  # fmt: skip
    assert doubled == {1}
    for seed in range(100):
        key = seeded_bytes(seed)(32)
        assert not of_low_order(key)
        agree(b"k" * 32, key)


@pytest.mark.parametrize("key", OF_LOW_ORDER)
@pytest.mark.parametrize("which", ["channel_key", "mask_key"])
def test_advertisements_of_low_order_are_refused_for_their_owner_alone(which, key):
    run = Run("masks")
    run.begin(0)
    receipt, body = run.opened(run.ask("eve"), "eve")
    wrong = run.reply("eve", receipt, encode(replace(decode(body, Advertisement), **{which: key})))
    with pytest.raises(MessageError, match="'eve' is of low order"):
        run.deliver(wrong)
    run.play_step(*NAMES[:4])
    listed = body_for(run, "ann", Directory).advertisements
    with pytest.raises(MessageError, match="'eve' is of low order"):
        told(run, "ann", Directory((*listed, wrong)))
    run.play_until(UNMASK, *NAMES[:4])
    receipt, body = run.opened(run.ask("dia"), "dia")
    reveal = decode(body, Reveal)
    ahead = decode(reveal.ahead, Reply)
    vouched, _ = run.opened(reveal.ahead, "dia")
    ahead = run.reply("dia", vouched, encode(replace(decode(ahead.body, Advertisement), **{which: key})))
    run.deliver(run.reply("dia", receipt, encode(replace(reveal, ahead=ahead))))
    np.testing.assert_array_equal(run.finish(*NAMES[:4]), run.sum(*NAMES[:4]))
    run.begin(1)
    assert run.aggregator.awaited == ("dia", "eve")  # asked for other keys
    np.testing.assert_array_equal(run.finish(), run.sum())


# Thresholds and groups


def test_the_threshold_and_how_many_may_lie():
    for count in range(3, 60):
        t, c = threshold(count), colluders(count)
        assert 3 * (t - 1) <= 2 * count < 3 * t
        assert c >= 1
        assert 2 * t > count + c
        assert t - c >= 2
        assert 2 * t == count + c + 1 or t - c == 2  # one more would be too many
        said = str(statement(terms_of("masks", members=tuple(map(str, range(count))))).to_dict())
        for words in (f"t = {t} of {count}", f"{count - t} may drop out", f"c = {c} collude", f"{t - c} other members"):
            assert words in said


def test_at_every_step_more_than_two_thirds_of_all_members_are_needed():
    seven = (*NAMES, "fay", "gus")
    run = Run("masks", members=seven)
    run.begin(0)
    while step := run.aggregator.step:
        if step == SHARE:
            listed = body_for(run, "ann", Directory).advertisements
            with pytest.raises(PrivacyError, match="4 members"):
                told(run, "ann", Directory(listed[:4]))
        if step == CONSISTENCY:
            with pytest.raises(PrivacyError, match="4 members"):
                told(run, "ann", Survivors(seven[:4]))
        if step == UNMASK:
            receipts = body_for(run, "ann", UnmaskRequest).receipts
            for some, count in ((receipts[:4], 4), (receipts[:1] * 5, 1), ((), 0)):
                with pytest.raises(PrivacyError, match=f"{count} members"):
                    told(run, "ann", UnmaskRequest(some))
        run.send(*seven[:4])
        with pytest.raises(PrivacyError, match="4 members; it needs 5"):
            run.aggregator.advance()
        run.send(seven[4])  # one more arrives in time
        run.aggregator.advance()
    np.testing.assert_array_equal(run.finish(), run.sum(*seven[:5]))


@pytest.fixture(params=[10, pytest.param(terms_module.GROUP_MEMBERS, marks=pytest.mark.slow)])
def group_members(request, monkeypatch):
    """The least members of a group; twice as many are shared out to groups."""
    monkeypatch.setattr(terms_module, "GROUP_MEMBERS", request.param)
    return request.param


def members_of(count):
    return terms_of("masks", members=tuple(f"m{i:03d}" for i in range(count)), dimension=2, fraction_bits=0)


def test_from_a_hundred_members_on_there_are_groups():
    assert len(members_of(99).groups(0)) == 1
    terms = members_of(101)
    groups = terms.groups(0)
    assert sorted(enough(terms, group) for group in groups) == [34, 35]
    assert "in each of 2 groups" in statement(terms).mechanism


def test_members_that_a_group_can_do_without_may_be_gone(group_members):
    terms, rng = members_of(2 * group_members + 1), np.random.default_rng(0)
    groups = terms.groups(0)
    assert len(groups) == 2
    needed = [enough(terms, group) for group in groups]
    assert [threshold(len(group)) for group in groups] == needed
    gone = {groups[0][i] for i in range(len(groups[0]) - needed[0])}
    updates = {name: rng.integers(-1000, 1000, 2) for name in terms.members if name not in gone}
    result = Session(terms).round(updates, 0)
    assert result.contributors == tuple(sorted(updates))
    assert result.total.tolist() == np.sum(list(updates.values()), axis=0).tolist()


def test_a_group_that_is_too_small_is_left_out_and_the_others_are_added(group_members):
    terms = members_of(2 * group_members)
    first, second = terms.groups(0)
    lost = set(first[: len(first) - enough(terms, first) + 1])
    session = Session(terms, transit=lambda sender, receiver, kind, parts: [parts] if sender not in lost else [])
    updates = {name: np.full(2, i) for i, name in enumerate(terms.members)}
    result = session.round(updates, 0)
    assert result.contributors == second
    assert result.total.tolist() == np.sum([updates[name] for name in second], axis=0).tolist()


def test_shares_of_one_group_are_none_of_another(group_members):
    run = Run("masks", members=members_of(2 * group_members).members, dimension=2)
    run.begin(0)
    run.play_until(SHARE)
    first, second = run.terms.groups(0)
    other = body_for(run, second[0], Directory)
    with pytest.raises(MessageError, match="another group"):
        told(run, first[0], other)


# A server that lies


def test_the_server_cannot_put_in_keys_of_its_own():
    run = played(SHARE)
    listed = list(body_for(run, "ann", Directory).advertisements)
    keys = encode(Advertisement(*[public_half(bytes([i]) * 32) for i in (1, 2)], bytes(32)))
    receipt = Receipt(run.digest, 0, 0, "advertise", b"", hashlib.sha256(keys).digest())
    forged = encode(Reply(run.signed(AGGREGATOR, receipt, author="bob"), keys))
    swapped = encode(replace(decode(listed[1], Reply), body=keys))
    for wrong, words in (
        ([listed[0], forged, *listed[2:]], "not signed by 'bob'"),
        ([listed[0], swapped, *listed[2:]], "other keys"),
        (listed[1:], "other keys for 'ann'"),
        ([*listed, listed[4]], "twice"),
        (listed[::-1], "out of order"),
    ):
        with pytest.raises(MessageError, match=words):
            told(run, "ann", Directory(tuple(wrong)))
    np.testing.assert_array_equal(run.finish(), run.sum())


@pytest.mark.parametrize(
    ("senders", "count"),
    [(("bob", "bob", "cem"), 3), (("bob", "cem"), 3), (("ann", "bob", "cem"), 3), (("bob", "cem", "zoe"), 3)],
)
def test_deliveries_that_make_no_sense_are_refused(senders, count):
    run = played(CONTRIBUTE)
    with pytest.raises(MessageError, match="delivery"):
        told(run, "ann", Delivery(senders, (b"",) * count))
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_shares_that_were_sealed_for_others_do_not_open():
    run = played(CONTRIBUTE)
    for_bob = body_for(run, "bob", Delivery)
    with pytest.raises(MessageError, match="secret"):
        told(run, "ann", Delivery(("bob", *for_bob.senders[1:]), for_bob.sealed))
    np.testing.assert_array_equal(run.finish(), run.sum())


@pytest.mark.parametrize(
    ("survivors", "error", "words"),
    [
        (NAMES[1:], MessageError, "dropped out"),
        (("ann", "ann", "bob", "cem"), MessageError, "twice"),
        (("ann", "bob", "cem", "fay"), MessageError, "not shared"),
        (("ann", "bob", "cem"), PrivacyError, "3 members"),
    ],
)
def test_survivors_that_make_no_sense_or_are_too_few_are_not_signed(survivors, error, words):
    run = played(CONSISTENCY)
    with pytest.raises(error, match=words):
        told(run, "ann", Survivors(survivors))
    np.testing.assert_array_equal(run.finish(), run.sum())  # the refused set has used up nothing


def test_signatures_that_do_not_count_unmask_nothing():
    run = played(UNMASK)
    good, peers = body_for(run, "ann", UnmaskRequest).receipts, run.aggregator._adder._groups[0].peers

    def agreed(by, survivors=NAMES, *, peers=peers, **changes):
        digest = hashlib.sha256(peers.agreed(survivors)).digest()
        return run.signed(by, replace(Receipt(run.digest, 0, 0, CONSISTENCY, b"", digest), **changes))

    stranger = SigningKey.generate(seeded_bytes(7))
    receipt = Receipt(run.digest, 0, 0, CONSISTENCY, b"", hashlib.sha256(peers.agreed(NAMES)).digest())
    wrong = {
        "not signed": stranger.sign(encode(receipt), author="bob"),
        "round 1": agreed("bob", round=1),
        "another run": agreed("bob", run=bytes(32)),
        "aggregator": agreed(AGGREGATOR),
        "other survivors": agreed("bob", NAMES[:4]),
        "'bob' was told": agreed("bob", peers=replace(peers, digest=bytes(32))),  # another directory
        "another model": agreed("bob", model=bytes(32)),
        "step": agreed("bob", step=UNMASK),
    }
    for words, bad in wrong.items():
        with pytest.raises((MessageError, PrivacyError), match=words):
            told(run, "ann", UnmaskRequest((good[0], bad, *good[2:])))
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_no_step_is_done_in_two_ways_also_after_a_restart(tmp_path):
    """Two directories or two requests could open both locks of an upload."""
    run = Run("masks", tmp_path / "roles")
    run.begin(0)
    run.play_until(SHARE)
    listed = body_for(run, "ann", Directory).advertisements
    lies = {
        SHARE: Directory(listed[:4]),
        CONTRIBUTE: None,
        CONSISTENCY: Survivors(NAMES[:4]),
        UNMASK: UnmaskRequest(()),
    }
    for step, lie in lies.items():
        run.play_until(step)
        first = run.ask("ann")
        assert run.ask("ann") == first
        if lie is None:
            whole = body_for(run, "ann", Delivery)
            lie = Delivery(whole.senders[:3], whole.sealed[:3])
        with pytest.raises(PrivacyError, match="once"):
            told(run, "ann", lie)
    assert len(decode(run.opened(first, "ann")[1], Reveal).shares) == 5
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_secrets_of_an_attempt_are_forgotten_when_they_have_served():
    run = played(UNMASK)
    before = run.kept("ann")
    run.ask("ann")
    after = run.role("ann")._state.secrets
    for secret in (before.channel, before.mask, before.seed, *before.seed_shares, *before.mask_key_shares):
        assert secret not in after


# Messages that are not what they should be


@pytest.mark.parametrize("step", STEPS)
def test_the_server_refuses_content_that_does_not_fit_and_loses_nothing(step):
    run = played(step)
    receipt, _ = run.opened(run.ask("ann"), "ann")
    wrong = [
        encode(UnmaskRequest((b"",))),
        encode(Survivors(NAMES)),
        encode(SealedShares((b"",) * 2)),
        encode(Reveal((b"no share",) * 5, b"")),
        encode(Reveal((b"",) * 2, b"")),
        encode(Advertisement(b"short", bytes(32), bytes(32))),
        b"short",
        b"",
    ]
    for body in wrong:
        with pytest.raises(MessageError):
            run.deliver(run.reply("ann", receipt, body))
    assert run.aggregator.refused == len(wrong)
    np.testing.assert_array_equal(run.finish(), run.sum())


def test_an_upload_out_of_range_is_noticed_in_the_sum():
    """Sums of 24 bits modulo 2^32: one out of range is seen (in eight weights, but for 2^-64)."""
    run = played(CONTRIBUTE, slot_bits=24)
    receipt, _ = run.opened(run.ask("ann"), "ann")
    run.deliver(run.reply("ann", receipt, seeded_bytes(3)(32)))
    with pytest.raises(MessageError, match="did not cancel"):
        run.finish()


@pytest.mark.parametrize("scheme", ["masks", "two-wave-masks"])
def test_absences_are_counted_from_the_set_that_a_member_reveals_for(scheme):
    """An aggregator that signs any list of names cannot hide them (12 of 12 sums were opened with a false list)."""
    run = Run(scheme, absences=2)
    for round in range(3):
        run.play(round, *NAMES[:4])
        answer = decode(decode(run.answer, Signed).body, Answer)
        lie = run.signed(AGGREGATOR, replace(answer, members=NAMES))
        for name in NAMES[:4]:
            run.role(name).settle(lie, round)
    run.begin(3)
    with pytest.raises(PrivacyError, match="3 members have been missing"):
        run.finish()


def test_keys_that_came_ahead_spare_a_step_and_wrong_ones_are_asked_for_again():
    run = Run("masks")
    run.play(0)
    run.begin(1)
    assert run.aggregator.awaited == ()
    np.testing.assert_array_equal(run.finish(), run.sum())
    run.begin(2)
    run.play_until(UNMASK)
    receipt, body = run.opened(run.ask("ann"), "ann")
    run.deliver(run.reply("ann", receipt, encode(replace(decode(body, Reveal), ahead=b"none"))))
    run.finish()
    run.begin(3)
    assert run.aggregator.awaited == ("ann",)
    np.testing.assert_array_equal(run.finish(), run.sum())
