"""Inconsistent drop-out sets: an aggregator of masks that tells users different sets reads nobody's update.

Where users do not check (`careless`), each attack reads what it is after; with the consistency round it does not.
"""

from itertools import combinations

import numpy as np
import pytest

from blindsight.crypto.shamir import Reconstruction
from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError
from blindsight.learn.masks import keys
from blindsight.learn.masks.expansion import public_half
from blindsight.learn.masks.keys import pair_mask, read_directory, self_mask
from blindsight.learn.masks.messages import (
    Consistency,
    Delivery,
    Directory,
    Reveal,
    SealedShares,
    Survivors,
    UnmaskRequest,
    Upload,
)
from blindsight.learn.masks.user import MaskUser
from blindsight.learn.residues import read_residues, to_integers
from tests.learn.sums.schemes import Masks

SIZES = (5, 7, 8, 9, 10, 12, 20)
SEED, MASK_KEY = 1, 0


def body(envelope, kind):
    return decode(decode(envelope, Signed).body, kind)


class Lied(Masks):
    """A run whose aggregator lies from the deliveries on; `colluding` users give it all they hold, and sign anything.

    `reveals` are the shares that honest users revealed, by holder, owner and kind.
    """

    def __init__(self, count, *, colluding=0, last="share"):
        self.users = tuple(f"u{i:02d}" for i in range(count))
        super().__init__()
        self.honest, self.colluding = self.users[: count - colluding], self.users[count - colluding :]
        self.begin(0)
        for phase in self.phases[: self.phases.index(last) + 1]:
            self.send(phase, self.users)
            self.end(phase)
        self.peers = read_directory(self.roster, self.ended["advertise"], round=0)
        self.digest, self.t, self.reveals = self.roster.digest, self.peers.threshold, {}

    def upload(self, told):
        """Let everyone upload; of U2 users are `told`, by name, or the truth."""
        for name, members in told.items():
            whole = body(self.ended["share"][name], Delivery)
            sealed = dict(zip(whole.senders, whole.sealed, strict=True))
            senders = tuple(member for member in members if member != name)
            lie = Delivery(self.digest, 0, senders, tuple(sealed[sender] for sender in senders))
            self.ended["share"][name] = self.by_server(lie)
        self.uploads = {name: body(self.ask("mask", name)[0], Upload) for name in self.users}

    def unmask(self, told):
        """Tell honest users of U3, by name, and show each all signatures there are on its set."""
        signed = {}
        for name, survivors in told.items():
            try:
                signed[name] = self.role(name).sign(self.by_server(Survivors(self.digest, 0, survivors)))
            except MessageError:
                continue  # it knows better
        for name in signed:
            agreed = encode(Consistency(self.digest, 0, self.peers.agreed(told[name])))
            same = [signed[other] for other in signed if told[other] == told[name]]
            same += [self.identities[liar].sign(agreed, author=liar) for liar in self.colluding if liar in told[name]]
            try:
                reveal = self.role(name).unmask(self.by_server(UnmaskRequest(self.digest, 0, tuple(same))))
            except PrivacyError:
                continue
            shares = zip(*(getattr(body(reveal, Reveal), field) for field in ("owners", "shares")), strict=True)
            self.reveals[name] = {owner: {SEED if owner in told[name] else MASK_KEY: share} for owner, share in shares}

    def secret(self, owner, kind):
        """Return a secret of a user, if enough of its shares are there."""
        held = {name: share[owner][kind] for name, share in self.reveals.items() if kind in share.get(owner, {})}
        held |= {liar: self.role(liar)._round.held[owner][kind] for liar in self.colluding}
        shares = {self.peers.number(name): held[name] for name in sorted(held)[: self.t]}
        return Reconstruction(list(shares)).secret(shares) if len(shares) == self.t else None

    def stripped(self, victim):
        """Return an upload without all masks that can be lifted, and how many are left."""
        left, worn = read_residues(self.uploads[victim].masked, self.roster.terms), 0
        if seed := self.secret(victim, SEED):
            assert seed == self.role(victim)._round.keys._seed
            left = left - self_mask(seed, self.roster, 0)
        worn += seed is None
        for other in self.uploads[victim].peers:
            if other == victim:
                continue
            key = self.role(other)._round.keys._mask if other in self.colluding else self.secret(other, MASK_KEY)
            if key is None:
                worn += 1
                continue
            assert public_half(key) == self.peers.keys[other].mask_key
            mask = pair_mask(key, self.peers.keys[victim].mask_key, self.roster, 0)
            left = left - mask if victim < other else left + mask
        return to_integers(left), worn


def tell_different_survivors(run):
    """Collect the victim's seed and the mask keys of the fewest users that it accepts as U2."""
    count, least = len(run.users), max(3, run.t)
    victim, helpers = run.users[0], run.users[1:least]
    run.upload({victim: run.users[:least]})
    missing, told = dict.fromkeys(helpers, run.t), {victim: run.users[:least]}
    for holder in (*run.users[least:], *helpers):  # each is told that some helpers, never itself, dropped out
        others = sorted((name for name in helpers if name != holder), key=lambda name: -missing[name])
        dropped = [name for name in others[: count - least] if missing[name] > 0]
        for name in dropped:
            missing[name] -= 1
        told[holder] = tuple(name for name in run.users if name not in dropped)
    run.unmask(told)
    return victim


@pytest.fixture
def majority(monkeypatch):
    monkeypatch.setattr(keys, "threshold", lambda users: users // 2 + 1)


@pytest.fixture
def careless(monkeypatch):
    monkeypatch.setattr(MaskUser, "_check_signatures", lambda *_: None)


@pytest.mark.parametrize("count", SIZES)
def test_different_survivors_give_an_update_away_where_nobody_checks(majority, careless, count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    left, worn = run.stripped(victim)
    assert worn == 0
    np.testing.assert_array_equal(left, run.updates[victim])


@pytest.mark.parametrize("count", SIZES)
def test_inconsistent_drop_out_sets_reveal_nothing(count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    assert run.reveals == {}
    assert run.stripped(victim)[1] == len(run.uploads[victim].peers)


@pytest.mark.parametrize("count", SIZES)
def test_the_consistency_round_alone_keeps_both_locks_from_opening(majority, count):
    run = Lied(count)
    victim = tell_different_survivors(run)
    assert run.stripped(victim)[1] > 0
    assert not any(run.secret(name, SEED) and run.secret(name, MASK_KEY) for name in run.users)


def both_locks(count, colluding):
    """Tell half of the honest users that the first one dropped out; return its secrets."""
    run = Lied(count, colluding=colluding)
    run.upload({})
    half = (len(run.honest) + 1) // 2
    told = dict.fromkeys(run.honest[:half], run.users) | dict.fromkeys(run.honest[half:], run.users[1:])
    run.unmask(told)
    return [kind for kind in (SEED, MASK_KEY) if run.secret(run.users[0], kind)]


@pytest.mark.parametrize("count", SIZES)
def test_users_who_sign_two_sets_do_not_help_if_they_are_no_more_than_stated(count):
    assert len(both_locks(count, keys.colluders(count))) < 2
    assert len(both_locks(count, 2 * keys.threshold(count) - count)) == 2  # 2t = n + c


@pytest.mark.parametrize("count", SIZES)
def test_different_deliveries_open_the_whole_sum_or_nothing(count):
    """The victim knows another U2, so that as few as possible of those it has masks with are in U3."""
    run = Lied(count, colluding=keys.colluders(count))
    victim, *others = run.honest
    known = [victim, *run.colluding, *others[::-1]][: run.t]
    gone = [name for name in known if name in others][: count - run.t - 1]
    run.upload({victim: tuple(sorted(known))})
    run.unmask(dict.fromkeys(run.honest, tuple(name for name in run.users if name not in gone)))
    assert len(run.reveals) + len(run.colluding) == run.t
    assert run.stripped(victim)[1] == 1  # the mask with an honest user that signed
    uploads = {name: run.stripped(name)[0] for name in run.honest if name not in gone}
    for size in range(1, len(uploads) + 1):
        for group in combinations(uploads, size):
            left = np.sum([uploads[name] for name in group], axis=0) - run.sum(group)
            assert (left % 2**32).any()


@pytest.mark.parametrize("count", SIZES)
def test_different_directories_do_not_get_as_far_as_an_upload(count):
    run = Lied(count, last="advertise")
    listed = body(run.ended["advertise"], Directory).advertisements
    shorter, half = run.by_server(Directory(run.digest, 0, listed[:-1])), run.users[: count // 2]
    sealed = {}
    for name in run.users:
        shares = body(run.role(name).share(shorter if name in half else run.ended["advertise"]), SealedShares)
        sealed[name] = dict(zip(shares.receivers, shares.sealed, strict=True))
    for name in run.users:
        others = [other for other in run.users if name in sealed[other]]
        alike = [other for other in others if (other in half) == (name in half)]
        for senders in (others, alike):
            lie = Delivery(run.digest, 0, tuple(senders), tuple(sealed[sender][name] for sender in senders))
            with pytest.raises((MessageError, PrivacyError)):
                run.role(name).mask_integers(run.updates[name], run.by_server(lie))
