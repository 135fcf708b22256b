"""Inconsistent drop-out sets: an aggregator of masks that tells members different sets reads nobody's update.

Where members do not check (`careless`), each attack reads what it is after; with the consistency round it does not.
"""

import hashlib
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.sums import masks
from blindsight.sums.masks import (
    Delivery,
    Directory,
    MaskMember,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    add_masks,
    agree,
    colluders,
    mask_context,
    public_half,
    threshold,
)
from blindsight.sums.messages import Receipt, Reply
from blindsight.sums.scheme import CONTRIBUTE
from blindsight.sums.terms import AGGREGATOR
from tests.sums.runs import Run

SIZES = (5, 7, 8, 9, 10, 12, 20)
SEED, MASK_KEY = 1, 0
TURN = 0, 0


class Lied(Run):
    """A run whose aggregator lies from the deliveries on; `colluding` members tell it all they hold, and sign anything.

    `reveals` are the shares that honest members revealed, by holder, owner and kind.
    """

    def __init__(self, count, *, colluding=0, last="share"):
        super().__init__("masks", members=tuple(f"u{i:02d}" for i in range(count)))
        self.honest, self.colluding = self.names[: count - colluding], self.names[count - colluding :]
        self.begin(0)
        self.play_until("share")
        if last == "share":
            self.play_step()
            self.truth = self.aggregator.calls()
        group = self.aggregator._adder._groups[0]
        self.peers, self.t, self.reveals = group.peers, group.peers.threshold, {}

    def told(self, name, step, message):
        """Let a member answer a call of any content."""
        call = self.call(self.aggregator.calls(only=[name])[name])
        lie = replace(call, member=name, step=step, body=encode(message))
        return self.opened(self.ask(name, call=self.signed(AGGREGATOR, lie), update=self.integers(name, step)), name)[1]

    def upload(self, told):
        """Let everyone upload; of U2 members are `told`, by name, or the truth."""
        self.uploads, self.pairs = {}, {}
        for name in self.names:
            whole = decode(self.call(self.truth[name]).body, Delivery)
            sealed = dict(zip(whole.senders, whole.sealed, strict=True))
            senders = tuple(member for member in told.get(name, self.names) if member != name)
            lie = Delivery(senders, tuple(sealed[sender] for sender in senders))
            self.uploads[name], self.pairs[name] = self.told(name, CONTRIBUTE, lie), senders

    def unmask(self, told):
        """Tell honest members of U3, by name, and show each all signatures there are on its set."""
        signed = {}
        for name, survivors in told.items():
            try:
                self.told(name, "consistency", Survivors(tuple(survivors)))
            except MessageError:
                continue  # it knows better
            signed[name] = decode(self.role(name)._state.sent, Reply).receipt
        for name in signed:
            same = [signed[other] for other in signed if told[other] == told[name]]
            same += [self.forged(liar, told[name]) for liar in self.colluding if liar in told[name]]
            held = self.kept(name)
            try:
                reveal = decode(self.told(name, "unmask", UnmaskRequest(tuple(same))), Reveal)
            except PrivacyError:
                continue
            kinds = [SEED if owner in told[name] else MASK_KEY for owner in held.owners]
            shares = zip(held.owners, kinds, reveal.shares, strict=True)
            self.reveals[name] = {owner: {kind: share} for owner, kind, share in shares}

    def forged(self, liar, survivors):
        """A signature of a member that signs any set."""
        agreed = hashlib.sha256(self.peers.agreed(survivors)).digest()
        return self.signed(liar, Receipt(self.digest, *TURN, "consistency", b"", agreed))

    def secret(self, owner, kind):
        """Return a secret of a member, if enough of its shares are there."""
        held = {name: share[owner][kind] for name, share in self.reveals.items() if kind in share.get(owner, {})}
        for liar in self.colluding:
            kept = self.kept(liar)
            shares = kept.seed_shares if kind == SEED else kept.mask_key_shares
            held[liar] = dict(zip(kept.owners, shares, strict=True))[owner]
        shares = {self.peers.number(name): held[name] for name in sorted(held)[: self.t]}
        return Reconstruction(list(shares)).secret(shares) if len(shares) == self.t else None

    def stripped(self, victim):
        """Return an upload without all masks that can be lifted, and how many are left."""
        left, worn, roster = self.terms.read_residues(self.uploads[victim]).copy(), 0, self.generator.roster
        if seed := self.secret(victim, SEED):
            add_masks(left, [(seed, mask_context(b"self", roster, TURN, (victim,)), False)])
        worn += seed is None
        for other in self.pairs[victim]:
            key = self.kept(other).mask if other in self.colluding else self.secret(other, MASK_KEY)
            if key is None:
                worn += 1
                continue
            assert public_half(key) == self.peers.keys[other].mask_key
            pair = agree(key, self.peers.keys[victim].mask_key)
            add_masks(left, [(pair, mask_context(b"pair", roster, TURN, (victim, other)), not victim < other)])
        return left.astype(np.int32).astype(np.int64), worn


def tell_different_survivors(run):
    """Collect the victim's seed and the mask keys of the fewest members that it accepts as U2."""
    count, least = len(run.names), max(3, run.t)
    victim, helpers = run.names[0], run.names[1:least]
    run.upload({victim: run.names[:least]})
    missing, told = dict.fromkeys(helpers, run.t), {victim: run.names[:least]}
    for holder in (*run.names[least:], *helpers):  # each is told that some helpers, never itself, dropped out
        others = sorted((name for name in helpers if name != holder), key=lambda name: -missing[name])
        dropped = [name for name in others[: count - least] if missing[name] > 0]
        for name in dropped:
            missing[name] -= 1
        told[holder] = tuple(name for name in run.names if name not in dropped)
    run.unmask(told)
    return victim


@pytest.fixture
def majority(monkeypatch):
    """Thresholds just over half."""
    monkeypatch.setattr(masks, "threshold", lambda members: members // 2 + 1)


@pytest.fixture
def careless(monkeypatch):
    """Members that reveal their shares whatever has been signed."""

    def unmask(part, call, kept):
        pairs = zip(kept.owners, kept.mask_key_shares, kept.seed_shares, strict=True)
        shares = [seed if owner in kept.survivors else mask_key for owner, mask_key, seed in pairs]
        return encode(Reveal(tuple(shares), b"")), kept

    monkeypatch.setattr(MaskMember, "_unmask", unmask)


@pytest.mark.parametrize("count", SIZES)
def test_inconsistent_drop_outs_give_an_update_away_where_nobody_checks(majority, careless, count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    left, worn = run.stripped(victim)
    assert worn == 0
    np.testing.assert_array_equal(left, run.updates[victim])


@pytest.mark.parametrize("count", SIZES)
def test_inconsistent_drop_outs(count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    assert run.reveals == {}
    assert run.stripped(victim)[1] == len(run.pairs[victim]) + 1


@pytest.mark.parametrize("count", SIZES)
def test_the_consistency_round_alone_keeps_both_locks_from_opening(majority, count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    assert run.stripped(victim)[1] > 0
    assert not any(run.secret(name, SEED) and run.secret(name, MASK_KEY) for name in run.names)


def both_locks(count, colluding):
    """Tell half of the honest members that the first one dropped out; return its secrets."""
    run = Lied(count, colluding=colluding)
    run.upload({})
    half = (len(run.honest) + 1) // 2
    told = dict.fromkeys(run.honest[:half], run.names) | dict.fromkeys(run.honest[half:], run.names[1:])
    run.unmask(told)
    return [kind for kind in (SEED, MASK_KEY) if run.secret(run.names[0], kind)]


@pytest.mark.parametrize("count", SIZES)
def test_members_who_sign_two_sets_do_not_help_if_they_are_no_more_than_stated(count):
    assert len(both_locks(count, colluders(count))) < 2
    assert len(both_locks(count, 2 * threshold(count) - count)) == 2  # 2t = n + c


@pytest.mark.parametrize("count", SIZES)
def test_different_deliveries_open_the_whole_sum_or_nothing(count):
    """The victim knows another U2, so that as few as possible of those it has masks with are in U3."""
    run = Lied(count, colluding=colluders(count))
    victim, *others = run.honest
    known = [victim, *run.colluding, *others[::-1]][: run.t]
    gone = [name for name in known if name in others][: count - run.t - 1]
    run.upload({victim: tuple(sorted(known))})
    run.unmask(dict.fromkeys(run.honest, tuple(name for name in run.names if name not in gone)))
    assert len(run.reveals) + len(run.colluding) == run.t
    assert run.stripped(victim)[1] == 1  # the mask with an honest member that signed
    uploads = {name: run.stripped(name)[0] for name in run.honest if name not in gone}
    for size in range(1, len(uploads) + 1):
        for group in combinations(uploads, size):
            left = np.sum([uploads[name] for name in group], axis=0) - run.sum(*group)
            assert (left % 2**32).any()


@pytest.mark.parametrize("count", SIZES)
def test_different_directories_do_not_get_as_far_as_an_upload(count):
    run = Lied(count, last="advertise")
    directory = decode(run.call(run.aggregator.calls()["u00"]).body, Directory)
    shorter, half = Directory(directory.advertisements[:-1]), run.names[: count // 2]
    sealed = {}
    for name in run.names:
        shares = decode(run.told(name, "share", shorter if name in half else directory), SealedShares)
        listed = run.names[:-1] if name in half else run.names
        sealed[name] = dict(zip([other for other in listed if other != name], shares.sealed, strict=True))
    for name in run.names:
        others = [other for other in run.names if name in sealed[other]]
        alike = [other for other in others if (other in half) == (name in half)]
        for senders in (others, alike):
            lie = Delivery(tuple(senders), tuple(sealed[sender][name] for sender in senders))
            with pytest.raises((MessageError, PrivacyError)):
                run.told(name, CONTRIBUTE, lie)
