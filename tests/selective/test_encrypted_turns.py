"""The sum of what several share, under any scheme: the same parameters, nothing else shown, noise that adds up."""

from dataclasses import replace

import numpy as np
import pytest

from blindsight.crypto.wire import decode
from blindsight.dp import Ledger
from blindsight.errors import InputError, MessageError, PrivacyError, StorageError
from blindsight.rng import seeded_bytes
from blindsight.selective import EncryptedTurns, Sharing
from blindsight.selective.protection import ParticipantGaussian
from blindsight.selective.simulation import TooFewError
from blindsight.selective.terms import Request, Total
from blindsight.sums import OWN_SCHEMES as SCHEMES
from blindsight.sums import open_session

NAMES = ("ann", "bob", "cem", "dia")
SIZE, BITS = 78, 20
HIDING = [scheme for scheme in SCHEMES if scheme != "plain"]


def opened(scheme, **options):
    if scheme == "bfv":
        pytest.importorskip("tenseal")
    settings = {
        "members": NAMES,
        "dimension": SIZE,
        "fraction_bits": BITS,
        "key_bits": 1024,
        "insecure": True,
        "minimum_per_position": 1,
    }
    return open_session(scheme, **(settings | options))


@pytest.fixture
def begin(make_server, make_terms, join):
    """Return a function that begins a run of four participants under a scheme."""

    def make(scheme="masks", sharing=None, *, together=3, **options):
        terms = make_terms(participants=NAMES, together=together)
        server = make_server(terms=terms, **options.pop("server", {}))
        session = options.pop("session", None) or opened(scheme)
        sharing = sharing or Sharing(0.2, residual=True)
        participants = [join(server, name, sharing, **({"batches": 2} | options)) for name in NAMES]
        return server, participants, EncryptedTurns(server, participants, session)

    return make


class Overheard:
    """Remembers what each participant contributed, as itself knows it."""

    def __init__(self, participants):
        self.updates = {}
        for participant in participants:
            setattr(participant, "contribute", self._listening(participant))  # noqa: B010

    def _listening(self, participant):
        contribute = participant.contribute

        def listened(turn):
            self.updates[participant.name] = contribute(turn)
            return self.updates[participant.name]

        return listened

    def sum(self):
        """The oracle: the sum of what was shared, each rounded to the fixed point."""
        exact = [np.rint(update.dense().astype(np.float64) * 2**BITS) for update in self.updates.values()]
        return np.sum(exact, axis=0).astype(np.int64)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_gives_the_plain_sum_bit_for_bit(scheme, begin):
    server, participants, turns = begin(scheme)
    for turn in (1, 2):
        before, counters = server.parameters, server.counters
        overheard = Overheard(participants)
        result = turns.turn()
        np.testing.assert_array_equal(result.total, overheard.sum())
        added = (overheard.sum() / 2**BITS).astype(np.float32)
        assert server.parameters.tobytes() == (before + added).tobytes()
        np.testing.assert_array_equal(server.counters - counters, added != 0)
        assert (server.version, server.turn, result.contributors) == (turn, turn, NAMES)


@pytest.mark.parametrize("scheme", ["plain", "masks"])
def test_nobody_but_its_owner_sees_an_upload(scheme, begin):
    seen = []
    session = opened(scheme, record=lambda party, message: seen.append(message))
    _, participants, turns = begin(session=session, server={"record": seen.append})
    del seen[:]
    overheard = Overheard(participants)
    turns.turn()
    of_server = [blob for blob in seen if blob.startswith(b"BLSM") and b"selective/" in blob[:40]]
    assert [type(decode(blob, Request, Total)) for blob in of_server] == [Request] * 4 + [Total]
    for update in overheard.updates.values():
        residues = np.rint(update.dense().astype(np.float64) * 2**BITS).astype("<i4").tobytes()
        assert any(residues in blob for blob in seen) == (scheme == "plain")


def test_rounding_and_range_of_the_sum_are_remembered(begin):
    session = opened("plain", fraction_bits=6, slot_bits=8)  # at most 31 / 64, in steps of 1/64
    server, participants, turns = begin(session=session, batches=1, random_state=0)
    for participant in participants:
        residual = np.linspace(-2, 2, SIZE, dtype=np.float32)
        participant._state = replace(participant._state, residual=residual)
    start = server.parameters
    before = [participant.parameters for participant in participants]
    turns.turn()
    wanted = sum(p.parameters - b + np.linspace(-2, 2, SIZE) for p, b in zip(participants, before, strict=True))
    held = sum(participant._state.residual for participant in participants)
    np.testing.assert_allclose(server.parameters - start + held, wanted, atol=1e-5)
    assert np.abs(server.parameters - start).max() == pytest.approx(4 * turns.limit)


def test_places_that_were_withheld_are_remembered(begin):
    session = opened("dphe", minimum_per_position=3)
    server, participants, turns = begin(session=session, batches=1)
    start = server.parameters
    before = [participant.parameters for participant in participants]
    result = turns.turn()
    assert 0 < result.withheld.size < SIZE
    assert (server.parameters[result.withheld] == start[result.withheld]).all()
    wanted = sum(p.parameters - b for p, b in zip(participants, before, strict=True))
    held = sum(participant._state.residual for participant in participants)
    np.testing.assert_allclose(server.parameters - start + held, wanted, atol=1e-5)


# --- too few ---


def test_too_few_with_photos_do_not_train(begin):
    server, participants, turns = begin(batches=0)
    for participant in participants[:2]:
        participant.gather(np.ones((4, 5, 5)), [0, 1, 2, 0])
    with pytest.raises(PrivacyError, match="2 participants"):
        turns.turn()
    assert [participant.waiting for participant in participants] == [4, 4, 0, 0]
    assert server.version == 0


def shared(among=4, **options):
    return Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=1.0, among=among), **options)


def test_shared_noise_needs_as_many_contributors(begin):
    with pytest.raises(PrivacyError, match="shared among 4"):
        begin(sharing=shared(), together=3)
    with pytest.raises(PrivacyError, match="session sums of 3"):
        begin(sharing=shared(), together=4)
    session = opened("masks", minimum=4, fraction_bits=22)
    server, participants, turns = begin(sharing=shared(), together=4, session=session)
    participants[0]._state = replace(participants[0]._state, spent=True)
    with pytest.raises(PrivacyError, match="needs 4"):
        turns.turn()
    assert server.version == 0


def test_if_too_few_contributions_arrive_nothing_is_opened(begin):
    lost = {"ann"}
    sharing = shared(residual=True)
    session = opened(
        "masks", minimum=4, fraction_bits=22, transit=lambda sender, _, kind, parts: [] if sender in lost else [parts]
    )
    server, participants, turns = begin(sharing=sharing, together=4, session=session, source=seeded_bytes(1))
    start = server.parameters
    with pytest.raises((PrivacyError, MessageError)):
        turns.turn()
    np.testing.assert_array_equal(server.parameters, start)
    assert all(participant.ready for participant in participants)  # their contributions were withdrawn
    held = [participant._state.residual for participant in participants]
    assert all(residual is not None and residual.any() for residual in held)
    lost.clear()
    turns.turn()
    assert server.version == 1


@pytest.mark.parametrize(
    "others", [Sharing(1.0), shared(residual=True), replace(shared(), share=0.3, select="random")], ids=repr
)
def test_noise_is_shared_only_by_participants_who_share_alike(begin, join, others):
    session = opened("masks", minimum=4, fraction_bits=22)
    server, participants, _ = begin(sharing=shared(), together=4, session=session)
    mixed = [*participants[:3], join(server, "dia", others)]
    for order in (mixed, mixed[::-1]):
        with pytest.raises(PrivacyError, match="alike"):
            EncryptedTurns(server, order, session)


def test_if_budgets_run_out_on_the_way_too_few_are_left_and_nothing_is_opened(begin):
    ledger = Ledger()
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=2.0))
    for name, epsilon in zip(NAMES, (50.0, 1.0, 1.0, 50.0), strict=True):
        ledger.set_budget(f"test: {name}", unit="person", neighbours="add/remove", epsilon=epsilon, delta=1e-5)
    server, participants, turns = begin(sharing=sharing, ledger=ledger, source=seeded_bytes(1))
    with pytest.raises(TooFewError, match="2 participants"):
        turns.turn()
    assert server.version == 0
    assert [participant.ready for participant in participants] == [True, False, False, True]


def test_a_plain_session_opens_every_upload_so_noise_cannot_be_shared(begin):
    with pytest.raises(PrivacyError, match="plain"):
        begin(sharing=shared(), together=4, session=opened("plain", minimum=4))


@pytest.mark.parametrize("options", [{"fraction_bits": 8}, {"fraction_bits": 30}])
def test_a_session_that_would_round_or_cut_shared_noise_is_refused(begin, options):
    with pytest.raises(InputError, match=r"fraction_bits=\d+"):
        begin(sharing=shared(), together=4, session=opened("masks", minimum=4, **options))


@pytest.mark.parametrize(("share", "select"), [(1.0, "largest"), (0.5, "random")])
def test_shared_noise_of_all_but_one_adds_up_to_the_noise_accounted_for(begin, make_trainer, share, select):
    noise = ParticipantGaussian(clip=1.0, noise_multiplier=0.01, among=4)
    server, participants, turns = begin(
        sharing=Sharing(share, select=select, noise=noise),
        together=4,
        session=opened("masks", minimum=4, fraction_bits=23),
        batches=12,
        source=seeded_bytes(1),
        trainer=make_trainer(learning_rate=1e-12),  # there is nothing but noise to share
    )
    sums = []
    for _ in range(12):
        start, counters, overheard = server.parameters, server.counters, Overheard(participants)
        turns.turn()
        changed = server.counters > counters
        assert changed.sum() == round(share * SIZE)  # the same places for all, drawn anew in each turn
        others = (server.parameters - start) - overheard.updates["dia"].dense()  # as dia knows the sum
        sums.append(others[changed] / noise.sigma)
    squares = np.concatenate(sums).astype(np.float64) ** 2
    # The mean square of n standard normal numbers has deviation sqrt(2/n); beyond 6 of them with probability 2e-9.
    assert squares.mean() == pytest.approx(1.0, abs=6 * np.sqrt(2 / squares.size))
    assert (server.counters > 0).all()


# --- failures ---


def test_a_spent_participant_is_left_out_and_the_others_go_on(begin, join):
    ledger = Ledger()
    sharing = Sharing(1.0, noise=ParticipantGaussian(clip=1.0, noise_multiplier=2.0))
    for name, epsilon in zip(NAMES, (1.0, 50.0, 50.0, 50.0), strict=True):
        ledger.set_budget(f"test: {name}", unit="person", neighbours="add/remove", epsilon=epsilon, delta=1e-5)
    server, participants, turns = begin(sharing=sharing, ledger=ledger, source=seeded_bytes(1))
    assert turns.turn().contributors == NAMES[1:]
    assert [participant.spent for participant in participants] == [True, False, False, False]
    assert participants[0].waiting == 8
    assert turns.turn().contributors == NAMES[1:]
    assert server.version == 2


def test_a_sum_that_could_not_be_stored_is_withdrawn(begin, monkeypatch):
    def full(total):
        raise StorageError("the disk is full.")

    server, participants, turns = begin(batches=2)
    with monkeypatch.context() as patch:
        patch.setattr(server, "receive_total", full)
        with pytest.raises(StorageError):
            turns.turn()
    assert all(participant.ready for participant in participants)
    turns.turn()
    assert server.version == 1


def test_sessions_and_participants_of_other_runs_are_refused(begin, make_server, make_terms):
    server, participants, _ = begin()
    for wrong in (opened("plain", dimension=SIZE + 1), opened("plain", members=("eve", *NAMES[1:]))):
        with pytest.raises(InputError, match="dimension"):
            EncryptedTurns(server, participants, wrong)
    other = make_server(terms=make_terms(participants=NAMES, together=3, run="other"))
    with pytest.raises(InputError, match="run"):
        EncryptedTurns(other, participants, opened("plain"))
    with pytest.raises(PrivacyError, match="sums of 1"):
        begin(together=1)
