"""Coalitions read exactly what the statements admit, and nothing from what they lack."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from blindsight.errors import InputError, UnknownNameError
from blindsight.papers.dphe.coalitions import (
    Account,
    findings,
    from_sum,
    gain,
    play,
    sparse_with_a_member,
    sparse_with_the_key,
)
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums.terms import AGGREGATOR, KEY_GENERATOR, threshold
from tests.adversaries import coalitions
from tests.adversaries.coalitions import (
    attack_every_coalition,
    lattice_with_the_key,
    masked_with_members,
    stripped_upload,
)

MEMBERS = ("ann", "bob", "cem", "dia", "eve")
SIZE, BLOCK = 400, 31  # a plaintext under a 1024-bit key holds 31 weights of 32 bits


def sparse_updates(seed, share=0.08, block=1):
    """Changes at random positions, or in random blocks, of which there are a tenth as many."""
    rng, positions = np.random.default_rng(seed), SIZE if block == 1 else SIZE // 10
    changed = {member: np.repeat(rng.random(positions) < share, block) for member in MEMBERS}
    return {member: np.where(changed[member], rng.normal(size=positions * block), 0) for member in MEMBERS}


def played(scheme, updates, **options):
    sparse = {"key_bits": 1024, "insecure": True, "capacity": 80} if "dphe" in scheme else {}
    return play(scheme, updates, **sparse | options)


def gained(done, parties, victim="eve"):
    return gain(done, parties, victim, sparse_with_a_member(done.pool(parties), victim))


@pytest.fixture(scope="module")
def rounds():
    found = {scheme: played(scheme, sparse_updates(1)) for scheme in SCHEMES if scheme != "block-dphe"}
    return found | {"block-dphe": played("block-dphe", sparse_updates(2, share=0.1, block=BLOCK), capacity=4 * BLOCK)}


@pytest.fixture(scope="module")
def results(rounds):
    return {scheme: {one.kind: one for one in attack_every_coalition(rounds[scheme])} for scheme in SCHEMES}


EXACT = [
    *((scheme, "all members but one") for scheme in SCHEMES),
    *((scheme, "aggregator and key generator") for scheme in ("dphe", "block-dphe", "bfv")),
    ("masks", "aggregator and as many members as the threshold"),
]


@pytest.mark.parametrize(("scheme", "kind"), EXACT)
def test_coalitions_that_can_read_everything_do(results, scheme, kind):
    gains = results[scheme][kind].gains
    assert [one.victim for one in gains] == list(MEMBERS)
    for one in gains:
        assert (one.read, one.named, one.right, one.wrong) == (one.changed, one.changed, one.changed, 0)
        assert one.changed > 0
        assert one.cosine == pytest.approx(1)
        assert one.overlap == 1 > one.chance_overlap


def test_a_decrypted_update_is_the_one_that_was_sent(rounds):
    for scheme, attack in (
        ("dphe", sparse_with_the_key),
        ("block-dphe", sparse_with_the_key),
        ("bfv", lattice_with_the_key),
    ):
        coalition = rounds[scheme].pool([AGGREGATOR, KEY_GENERATOR])
        found = attack(coalition, "dia")
        np.testing.assert_array_equal(found.update, rounds[scheme].updates["dia"])


def test_the_aggregator_and_a_member_read_places_and_lonely_weights(results):
    """Never a wrong word: all that was changed is named, all that is said to be known is so."""
    for scheme, capacity in (("dphe", 80), ("block-dphe", 4)):
        for one in results[scheme]["aggregator and one member"].gains:
            assert one.wrong == 0
            assert one.right == one.changed <= one.named <= capacity * max(1, -(-one.changed // capacity))
    gains = results["dphe"]["aggregator and one member"].gains
    cosine, alone, overlap, chance, read, changed = (
        sum(getattr(one, name) for one in gains)
        for name in ("cosine", "alone", "overlap", "chance_overlap", "read", "changed")
    )
    # Padding is drawn anew each time. Three others send a fifth of all places each, so (4/5)^3 = .51 of some 150
    # changed ones are the victim's alone, with a deviation of .04: beyond these bounds less than once in 10^6.
    assert 0.3 < read / changed < 0.72
    assert cosine / 5 > alone / 5 + 0.1
    assert overlap > 3 * chance


def test_without_padding_the_named_places_are_the_changed_ones():
    rng = np.random.default_rng(3)
    updates = {member: (rng.permutation(SIZE) < 30).astype(float) for member in MEMBERS}  # as many as fit
    full = played("dphe", updates, capacity=30)
    found = gained(full, [AGGREGATOR, "ann"])
    assert (found.named, found.right, found.changed) == (30, 30, 30)


def test_members_beside_the_aggregator_add_what_they_know(rounds):
    """With more members fewer senders are unknown: with all others nothing is."""
    gains = [gained(rounds["dphe"], [AGGREGATOR, *MEMBERS[:count]]) for count in (1, 2, 3, 4)]
    read = [one.read for one in gains]
    assert read == sorted(read)
    assert read[0] < read[-1] == gains[-1].changed
    assert {one.wrong for one in gains} == {0}


def test_withheld_positions_stay_withheld():
    counted = played("dphe", sparse_updates(4, share=0.15), minimum_per_position=3)
    found = {one.kind: one for one in attack_every_coalition(counted)}
    assert {one.wrong for result in found.values() for one in result.gains} == {0}
    assert all(one.read == 0 for one in found["aggregator and one member"].gains)
    for one in found["all members but one"].gains:
        others = sum((counted.updates[member] != 0).astype(int) for member in MEMBERS if member != one.victim)
        truth = counted.updates[one.victim] != 0
        assert one.read == (truth & (others >= 2)).sum() < one.changed
        # Where two others changed a position and it was withheld, the victim did not; with fewer, nobody can tell.
        assert one.named == (truth & (others >= 2)).sum() + (others < 2).sum()
    assert all(one.read == one.changed for one in found["aggregator and key generator"].gains)


HELD = [("bfv", "aggregator and one member"), ("masks", "aggregator and one member fewer than the threshold")]


@pytest.mark.parametrize(("scheme", "kind"), HELD)
def test_what_a_coalition_cannot_read_tells_it_nothing(results, rounds, scheme, kind):
    """A sound round is called a leak with probability of at most .01, three in a row at most once in 10^6."""
    found = [results[scheme][kind]]
    while len(found) < 3 and not all(test.at_chance for test in found[-1].tests):
        found.append({one.kind: one for one in attack_every_coalition(played(scheme, sparse_updates(1)))}[kind])
    assert len(found[-1].tests) == len(MEMBERS)
    assert not found[-1].gains
    (row,) = findings([found[-1]])
    assert (row.verdict, row.measured.value < 0.5) == ("at chance", True)


def test_an_update_among_ciphertexts_is_found(rounds, monkeypatch):
    """Planted: the victims' integers lie where their ciphertexts are said to be, behind a header of another length."""
    truth = rounds["bfv"].updates
    plain = {member: {"vector": [bytes(300) + update.astype("<i4").tobytes()]} for member, update in truth.items()}
    monkeypatch.setattr(coalitions, "owner_payloads", lambda received, member: plain[member])
    done = {one.kind: one for one in attack_every_coalition(rounds["bfv"], random_state=0)}
    (row,) = findings([done["aggregator and one member"]])
    assert (row.verdict, row.measured.value > 0.999) == ("refuted", True)


def test_members_without_an_update_are_no_test():
    """Nobody can be told anything about zeros; the others are tested."""
    some = sparse_updates(1) | {"eve": np.zeros(SIZE)}
    done = {one.kind: one for one in attack_every_coalition(played("masks", some), random_state=0)}
    assert len(done["aggregator and one member fewer than the threshold"].tests) == len(MEMBERS) - 1


def test_places_named_at_random_are_no_finding(results):
    result = results["dphe"]["aggregator and one member"]
    blind = [replace(one, named=one.positions, right=one.changed) for one in result.gains]  # names every place
    *_, row = findings([replace(result, gains=tuple(blind))])
    assert "where its update is not zero" in row.claim
    assert row.verdict == "at chance"


def test_one_member_fewer_than_the_threshold_leaves_an_upload_masked(rounds):
    masks, needed = rounds["masks"], threshold(len(MEMBERS))
    assert needed == 4
    coalition = masks.pool([AGGREGATOR, *MEMBERS[: needed - 1]])
    stripped, worn = stripped_upload(coalition, "eve")
    assert worn == ("dia",)
    left, truth = stripped.astype(float), masks.updates["eve"].astype(float)
    # Uniform residues: a cosine c with a fixed vector has probability below 2 exp(-400 c^2 / 2), at .3 it is 3e-8.
    assert abs(left @ truth) < 0.3 * np.linalg.norm(left) * np.linalg.norm(truth)
    enough = masks.pool([AGGREGATOR, *MEMBERS[:needed]])
    assert stripped_upload(enough, "eve")[1] == ()
    np.testing.assert_array_equal(masked_with_members(enough, "eve").update, masks.updates["eve"])


def test_all_other_members_and_the_aggregator_strip_an_upload_without_its_key():
    """Three members: each of the two members knows its own mask with the third."""
    few = played("masks", {member: update for member, update in sparse_updates(5).items() if member in MEMBERS[:3]})
    for victim in MEMBERS[:3]:
        members = [member for member in MEMBERS[:3] if member != victim]
        np.testing.assert_array_equal(
            masked_with_members(few.pool([AGGREGATOR, *members]), victim).update, few.updates[victim]
        )
        assert stripped_upload(few.pool([AGGREGATOR, members[0]]), victim)[1] == (members[1],)


def test_a_coalition_holds_what_its_members_hold(rounds):
    dphe, masks, plain = rounds["dphe"], rounds["masks"], rounds["plain"]
    assert set(masks.pool([AGGREGATOR, "ann"]).secrets) == {"ann"}
    assert dphe.pool([AGGREGATOR, "ann"]).updates.keys() == {"ann"}
    for call in [
        lambda: sparse_with_a_member(dphe.pool([AGGREGATOR]), "eve"),
        lambda: sparse_with_the_key(dphe.pool(["ann", KEY_GENERATOR]), "eve"),
        lambda: sparse_with_the_key(dphe.pool([AGGREGATOR, "ann"]), "eve"),
        lambda: lattice_with_the_key(rounds["bfv"].pool([AGGREGATOR, "ann"]), "eve"),
        lambda: masked_with_members(masks.pool([AGGREGATOR]), "eve"),
    ]:
        with pytest.raises((AssertionError, KeyError, ValueError, StopIteration)):
            call()
    for error, call, word in [
        (UnknownNameError, lambda: plain.pool(["zoe"]), "'zoe'"),
        (UnknownNameError, lambda: plain.pool(["ann"]).pool(["eve"]), "'eve'"),
        (UnknownNameError, lambda: play("mask", {}), "'masks'"),
        (InputError, lambda: play("plain", sparse_updates(1), minimum_per_position=2), "plain"),
        (InputError, lambda: play("plain", {"ann": [1.0], "bob": [1.0]}), "got 2"),
    ]:
        with pytest.raises(error, match=word):
            call()


def test_verdicts_follow_the_statements(results):
    for scheme in SCHEMES:
        for row in findings([one for one in results[scheme].values() if not one.tests]):
            assert row.verdict == "as stated", (scheme, row.attack)
    (row,) = findings([results["masks"]["aggregator and as many members as the threshold"]])
    assert "fewer than t = 4 members" in row.proven
    assert row.measured.value == 1 > row.measured.low > 0.9
    assert row.to_dict()["details"]["victims"] == 5


def test_a_statement_that_is_silent_is_refuted(results):
    result = replace(results["dphe"]["aggregator and one member"], admitted=None)
    assert [row.verdict for row in findings([result])] == ["refuted", "refuted"]


def test_an_attack_that_fails_acquits_nobody(rounds, monkeypatch):
    """Too few shares of the victim's key: the coalition takes what is left of the upload for the update."""
    monkeypatch.setattr(coalitions, "joined", lambda peers, shares: bytes(32))
    done = {one.kind: one for one in attack_every_coalition(rounds["masks"], random_state=0)}
    (row,) = findings([done["aggregator and as many members as the threshold"]])
    assert (row.verdict, row.measured.value) == ("undecided", 0)


def test_one_weight_that_is_masked_is_no_leak():
    """Every number has a |cosine| of 1 with any other. Four false alarms of 1% in eight rounds come once in 10^6."""
    rng, verdicts = np.random.default_rng(0), []
    for _ in range(8):
        done = attack_every_coalition(
            play("masks", {member: rng.normal(size=1) for member in MEMBERS}), random_state=rng
        )
        verdicts += [row.verdict for row in findings([one for one in done if one.tests])]
    assert verdicts.count("at chance") > 4


def test_a_guess_at_random_gains_nothing(rounds):
    """A planted failure: certainties that are wrong are counted as wrong, not as read."""
    rng = np.random.default_rng(0)
    every = np.ones(SIZE, dtype=bool)
    noise = Account(np.rint(1e6 * rng.normal(size=SIZE)), every, rng.random(SIZE) < 0.5)
    found = gain(rounds["plain"], ["ann"], "eve", noise)
    assert found.read == 0
    assert found.wrong >= SIZE
    assert abs(found.cosine) < 0.3  # 400 dimensions: beyond .3 less than once in 10^7
    assert abs(found.overlap - found.chance_overlap) < 0.1


@settings(max_examples=30)
@given(arrays(np.int64, (4, 7), elements=st.integers(-1000, 1000)), st.integers(0, 3))
def test_all_members_but_one_subtract(updates, victim):
    given = {name: row / 2**20 for name, row in zip(MEMBERS, updates, strict=False)}
    done = play("plain", given)
    members = [name for name in given if name != MEMBERS[victim]]
    found = from_sum(done.pool(members), MEMBERS[victim])
    np.testing.assert_array_equal(found.update, updates[victim])
    assert found.known.all()
    fewer = from_sum(done.pool(members[:-1]), MEMBERS[victim])
    assert not fewer.known.any()
    np.testing.assert_array_equal(2 * fewer.update, updates[victim] + updates[MEMBERS.index(members[-1])])
