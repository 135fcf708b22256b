"""The ledger adds up what may be added, refuses the rest, and forgets nothing: after a crash, in company."""

import math
import os
from datetime import UTC, datetime
from subprocess import PIPE, Popen, run
from sys import executable
from threading import Thread

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blindsight.dp.accounting import BoundedLoss, GaussianLoss, LaplaceLoss, SampledGaussianLoss, compose
from blindsight.dp.journal import Journal
from blindsight.dp.ledger import HEADER, Budget, Ledger, Spend
from blindsight.dp.mechanisms import GaussianMechanism, LaplaceMechanism, RandomisedResponse
from blindsight.errors import (
    BudgetExceededError,
    CorruptFileError,
    IncomparableError,
    InputError,
    PrivacyError,
    StorageError,
    UnknownNameError,
)
from blindsight.rng import seeded_bytes

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PERSON = {"scope": "photos", "unit": "person", "neighbours": "add/remove"}
WHY = {"mechanism": "Laplace noise", "purpose": "a count"}


def in_memory():
    return Ledger(clock=lambda: NOON)


def limited(epsilon, delta=0.0, path=None):
    ledger = Ledger(path, clock=lambda: NOON)
    ledger.set_budget("photos", unit="person", neighbours="add/remove", epsilon=epsilon, delta=delta)
    return ledger


# --- adding up ---


def test_entries_tell_everything_and_compose():
    ledger = in_memory()
    losses = [LaplaceLoss(0.1), LaplaceLoss(0.1), GaussianLoss(5.0), BoundedLoss(0.2)]
    entries = [ledger.spend(loss, **PERSON, **WHY) for loss in losses]
    assert entries[0] == Spend(**PERSON, **WHY, loss=LaplaceLoss(0.1), time="2026-03-01T12:00:00+00:00")
    assert ledger.spends("photos", "person") == tuple(entries)
    assert ledger.spent("photos", "person", delta=1e-6) == compose(losses, delta=1e-6)
    assert ledger.remaining("photos", "person") == math.inf


@pytest.mark.parametrize("other", [{"unit": "record"}, {"unit": "bit"}, {"neighbours": "replace"}])
def test_what_cannot_be_added_is_refused_and_not_recorded(other):
    ledger = limited(0.6)  # and a budget cannot be evaded by it
    ledger.spend(LaplaceLoss(0.5), **PERSON, **WHY)
    with pytest.raises(IncomparableError, match=r"per person \(add/remove\)"):
        ledger.spend(LaplaceLoss(5.0), **PERSON | other, **WHY)
    assert ledger.spent("photos", "person", delta=0).epsilon == 0.5
    ledger.spend(LaplaceLoss(0.1), **PERSON | other | {"scope": "a scope of its own"}, **WHY)


def test_questions_in_another_unit_or_scope_are_refused():
    ledger = in_memory()
    ledger.spend(LaplaceLoss(0.5), **PERSON | {"unit": "bit"}, **WHY)
    with pytest.raises(IncomparableError, match="bit"):
        ledger.spent("photos", "person", delta=0)
    with pytest.raises(UnknownNameError, match="'photos'"):
        ledger.spent("photo", "bit", delta=0)


@pytest.mark.parametrize(
    "wrong", [{"purpose": " "}, {"mechanism": ""}, {"scope": ""}, {"unit": "family"}, {"neighbours": "x"}]
)
def test_entries_that_leave_something_out_are_refused(wrong):
    with pytest.raises(InputError):
        in_memory().spend(LaplaceLoss(1.0), **PERSON | WHY | wrong)
    with pytest.raises(InputError, match="adding or removing"):
        in_memory().spend(SampledGaussianLoss(1.0, 0.1), **PERSON | {"neighbours": "replace"}, **WHY)


def test_the_table_for_a_report():
    ledger = limited(10.0, 1e-5)
    for _ in range(3):
        ledger.spend(LaplaceLoss(0.1, count=20), **PERSON, **WHY)
    ledger.spend(BoundedLoss(1.0, count=48), scope="codes", unit="record", neighbours="replace", **WHY)
    codes, photos = ledger.table(delta=1e-6)
    assert (codes.scope, codes.unit, codes.releases, codes.budget) == ("codes", "record", 48, None)
    assert (codes.spent.delta, codes.spent.basic) == (1e-6, 48.0)
    assert (photos.scope, photos.releases, photos.budget) == ("photos", 60, Budget(10.0, 1e-5))
    assert photos.spent.delta == 1e-5
    assert photos.spent.pld < photos.spent.basic == pytest.approx(6.0)


# --- budgets ---


def test_overspending_is_refused_and_not_recorded():
    ledger = limited(1.0)
    ledger.spend(LaplaceLoss(0.9), **PERSON, **WHY)
    for loss in (LaplaceLoss(0.2), BoundedLoss(math.inf)):
        with pytest.raises(BudgetExceededError, match=r"1 at delta 0 per person; it has spent 0\.9"):
            ledger.spend(loss, **PERSON, **WHY)
    assert ledger.remaining("photos", "person") == pytest.approx(0.1)
    ledger.spend(LaplaceLoss(0.1), **PERSON, **WHY)
    assert ledger.remaining("photos", "person") == pytest.approx(0.0)


def test_decimal_fractions_fit_as_people_expect():
    ledger = limited(0.3)
    for epsilon in (0.1, 0.2):  # 0.1 + 0.2 > 0.3 in binary
        ledger.spend(LaplaceLoss(epsilon), **PERSON, **WHY)
    with pytest.raises(BudgetExceededError):
        ledger.spend(LaplaceLoss(1e-8), **PERSON, **WHY)


def test_the_best_proof_decides():
    ledger = limited(18.0, 1e-5)
    ledger.spend(LaplaceLoss(0.1, count=1000), **PERSON, **WHY)  # 100 by adding, 18.6 by RDP, 17.4 by PLD
    with pytest.raises(BudgetExceededError):
        ledger.spend(LaplaceLoss(0.1, count=100), **PERSON, **WHY)


def test_a_calibrated_gaussian_release_fits_exactly():
    ledger = limited(1.0, 1e-6)
    ledger.spend(GaussianMechanism.calibrated(sensitivity=1.0, epsilon=1.0, delta=1e-6).loss, **PERSON, **WHY)
    with pytest.raises(BudgetExceededError):
        ledger.spend(LaplaceLoss(0.01), **PERSON, **WHY)


def test_budgets_may_be_lowered_but_not_raised():
    ledger = limited(1.0, 1e-6)
    kind = {"unit": "person", "neighbours": "add/remove"}
    for epsilon, delta in ((1.1, 1e-6), (1.0, 1e-5), (0.5, 1e-5)):
        with pytest.raises(PrivacyError, match="may be lowered, not raised"):
            ledger.set_budget("photos", **kind, epsilon=epsilon, delta=delta)
    ledger.spend(LaplaceLoss(0.6), **PERSON, **WHY)
    ledger.set_budget("photos", **kind, epsilon=0.5, delta=0.0)
    assert ledger.remaining("photos", "person") == 0.0
    with pytest.raises(BudgetExceededError):
        ledger.spend(LaplaceLoss(0.01), **PERSON, **WHY)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.0), (math.inf, 0.0), (math.nan, 0.0), (1.0, 1.0), (1.0, -0.1)])
def test_what_is_no_budget_is_refused(epsilon, delta):
    with pytest.raises(InputError, match="a budget's"):
        limited(epsilon, delta)


# --- releases ---


def test_a_release_is_recorded_before_it_is_given_out():
    ledger = limited(1.0)
    with pytest.raises(InputError, match="finite"):  # refused values cost nothing
        ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=1.0), [math.nan], **PERSON, purpose="a mistake")
    mechanism = LaplaceMechanism(sensitivity=1.0, epsilon=0.6)
    noisy = ledger.release(mechanism, [1.0, 2.0], **PERSON, purpose="two counts", source=seeded_bytes(1))
    assert np.array_equal(noisy, mechanism.release([1.0, 2.0], seeded_bytes(1)))
    (entry,) = ledger.spends("photos", "person")
    assert (entry.loss, entry.mechanism, entry.purpose) == (LaplaceLoss(0.6), str(mechanism), "two counts")
    with pytest.raises(BudgetExceededError):
        ledger.release(mechanism, [1.0, 2.0], **PERSON, purpose="once more")
    codes = RandomisedResponse(epsilon=0.5, bits_per_unit=48)  # costs all its bits
    ledger.release(codes, np.ones((10, 48), dtype=np.uint8), **PERSON | {"scope": "codes"}, purpose="codes")
    assert ledger.spent("codes", "person", delta=0).epsilon == 24.0


# --- restarts, crashes, company ---

actions = st.lists(
    st.tuples(
        st.sampled_from(["photos", "video", "Fotos ü\n"]),
        st.one_of(
            st.builds(LaplaceLoss, st.floats(0.01, 2.0), st.integers(1, 9)),
            st.builds(GaussianLoss, st.floats(0.5, 20.0)),
            st.builds(SampledGaussianLoss, st.floats(0.5, 5.0), st.floats(0.001, 1.0)),
            st.builds(BoundedLoss, st.floats(0.0, 1e6) | st.just(math.inf), st.floats(0.0, 0.5)),
        ),
    ),
    max_size=4,
)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions)
def test_a_restart_forgets_nothing(tmp_path, steps):
    path = tmp_path / "ledger"
    path.unlink(missing_ok=True)
    before = Ledger(path)
    for scope, loss in steps:
        before.spend(loss, **PERSON | {"scope": scope}, **WHY)
    for scope in {scope for scope, _ in steps}:
        before.set_budget(scope, unit="person", neighbours="add/remove", epsilon=0.25, delta=0.5)
    after = Ledger(path)
    assert after.head == before.head
    assert [(row.scope, row.releases, row.budget) for row in after.table(delta=0)] == [
        (scope, sum(loss.count for at, loss in steps if at == scope), Budget(0.25, 0.5))
        for scope in sorted({scope for scope, _ in steps})
    ]
    for scope, _ in steps:
        assert after.spends(scope, "person") == before.spends(scope, "person")


def test_a_torn_last_line_is_reported_and_was_never_spent(tmp_path):
    path = tmp_path / "ledger"
    ledger = limited(1.0, path=path)
    ledger.spend(LaplaceLoss(0.4), **PERSON, **WHY)
    with path.open("ab") as stream:
        stream.write(b'{"kind":"spend","loss":{"epsi')
    again = Ledger(path)
    assert again.recovered is not None
    assert "cut off" in again.recovered
    assert again.remaining("photos", "person") == pytest.approx(0.6)


def test_a_read_only_ledger_tells_and_records_nothing(tmp_path):
    path = tmp_path / "ledger"
    with pytest.raises(StorageError, match="read"):
        Ledger(path, readonly=True)
    with pytest.raises(InputError, match="in memory"):
        Ledger(readonly=True)
    assert not list(tmp_path.iterdir())
    limited(1.0, path=path).spend(LaplaceLoss(0.4), **PERSON, **WHY)
    before = path.read_bytes()
    ledger = Ledger(path, readonly=True)
    for attempt in (
        lambda: ledger.spend(LaplaceLoss(0.1), **PERSON, **WHY),
        lambda: ledger.set_budget(**PERSON, epsilon=0.5, delta=0.0),
        lambda: ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=0.1), [1.0], **PERSON, purpose="a count"),
    ):
        with pytest.raises(StorageError, match="reading only"):
            attempt()
    assert path.read_bytes() == before
    assert ledger.remaining("photos", "person") == pytest.approx(0.6)


def test_a_lowered_number_in_the_file_is_noticed(tmp_path):
    path = tmp_path / "ledger"
    limited(1.0, path=path).spend(LaplaceLoss(0.9), **PERSON, **WHY)
    path.write_bytes(path.read_bytes().replace(b'"epsilon":0.9', b'"epsilon":0.1'))
    with pytest.raises(CorruptFileError):
        Ledger(path)


def test_an_older_copy_is_noticed_by_its_head(tmp_path):
    path = tmp_path / "ledger"
    ledger = limited(1.0, path=path)
    older = path.read_bytes()
    ledger.spend(LaplaceLoss(0.9), **PERSON, **WHY)
    head = ledger.head
    assert head is not None
    assert Ledger(path).includes(head)
    path.write_bytes(older)
    assert not Ledger(path).includes(head)
    with pytest.raises(CorruptFileError, match="shorter"):
        ledger.remaining("photos", "person")
    assert in_memory().head is None


@pytest.mark.parametrize("whole", [True, False])
def test_a_ledger_of_another_version_is_refused_and_stays(tmp_path, whole):
    """Taken for an empty one it would let everything be spent once more."""
    path, older = tmp_path / "ledger", {**HEADER, "version": HEADER["version"] - 1}
    with Journal(path, header=older).locked() as real:
        before = real.read_bytes() if whole else b'{"scope": "photos", "epsilon": 0.9}\n'
        real.write_bytes(before)
    for readonly in (True, False):
        with pytest.raises(CorruptFileError, match="ledger"):
            Ledger(path, readonly=readonly)
    with pytest.raises(CorruptFileError, match="version" if whole else "record"):
        limited(1.0, path=path)
    assert path.read_bytes() == before


def test_after_a_failed_append_nothing_is_released_or_spent(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = limited(1.0, path=path)

    def fail(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("blindsight.dp.journal.os.fsync", fail)
    with pytest.raises(StorageError, match="Nothing may be released"):
        ledger.release(LaplaceMechanism(sensitivity=1.0, epsilon=0.5), [1.0], **PERSON, purpose="a count")
    monkeypatch.undo()
    with pytest.raises(StorageError, match="open it anew"):
        ledger.remaining("photos", "person")
    assert Ledger(path).remaining("photos", "person") == 1.0


def test_what_others_spend_is_seen_at_once(tmp_path):
    one = limited(1.0, path=tmp_path / "ledger")
    two = Ledger(tmp_path / "ledger")
    two.spend(LaplaceLoss(0.75), **PERSON, **WHY)
    assert one.remaining("photos", "person") == 0.25
    with pytest.raises(BudgetExceededError):
        one.spend(LaplaceLoss(0.5), **PERSON, **WHY)


SPENDER = """
import sys
from pathlib import Path
from blindsight.dp.ledger import Ledger
from blindsight.dp.accounting import LaplaceLoss
from blindsight.errors import BudgetExceededError
ledger = Ledger(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
spent = 0
try:
    while True:
        ledger.spend(LaplaceLoss(0.01), scope="photos", unit="person", neighbours="add/remove",
                     mechanism="Laplace noise", purpose=sys.argv[2])
        spent += 1
except BudgetExceededError:
    print(spent)
"""


def other_name(path, kind):
    """The same file under another name."""
    other = path.parent / "elsewhere" / "another"
    other.parent.mkdir()
    if kind == "symbolic link":
        other.symlink_to(path)
    elif kind == "hard link":
        os.link(path, other)
    elif kind == "linked folder":
        other = other.with_name("folder") / path.name
        other.parent.symlink_to(path.parent, target_is_directory=True)
    else:
        return path
    return other


NAMES = ["the same name", "symbolic link", "hard link", "linked folder"]


@pytest.mark.parametrize("name", NAMES)
def test_processes_cannot_overspend_together(tmp_path, name):
    path = tmp_path / "ledger"
    limited(0.3, path=path)
    processes = [
        Popen([executable, "-c", SPENDER, str(one), f"process {n}"], stdin=PIPE, stdout=PIPE, text=True)
        for n, one in enumerate((path, other_name(path, name)))
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all are loaded: let them race
        process.stdin.write("go\n")
        process.stdin.flush()
    counts = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(counts) == 30
    ledger = Ledger(path)
    assert len(ledger.spends("photos", "person")) == 30
    assert ledger.spent("photos", "person", delta=0).epsilon == pytest.approx(0.3)


@pytest.mark.parametrize("name", NAMES)
def test_a_ledger_under_two_names_is_one(tmp_path, name):
    path = tmp_path / "ledger"
    first = limited(1.0, path=path)
    second = Ledger(other_name(path, name))
    second.spend(LaplaceLoss(0.4), **PERSON, **WHY)
    attempt = f"import fcntl; fcntl.flock(open({str(path)!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with second._current():  # nobody else reads or appends, by either name
        assert b"BlockingIOError" in run([executable, "-c", attempt], capture_output=True, check=False).stderr
    first.spend(LaplaceLoss(0.6), **PERSON, **WHY)
    for ledger in (first, second):
        with pytest.raises(BudgetExceededError):
            ledger.spend(LaplaceLoss(0.1), **PERSON, **WHY)


def test_a_link_to_a_ledger_that_is_not_there_yet_stays_a_link(tmp_path):
    link, path = tmp_path / "link", tmp_path / "ledger"
    link.symlink_to(path)
    limited(1.0, path=link).spend(LaplaceLoss(0.9), **PERSON, **WHY)
    assert link.is_symlink()
    with pytest.raises(BudgetExceededError):
        Ledger(path).spend(LaplaceLoss(0.9), **PERSON, **WHY)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_threads_cannot_overspend_together(tmp_path, where):
    ledger = limited(0.4, path=tmp_path / "ledger" if where == "file" else None)
    spent = []

    def spender():
        try:
            while True:
                spent.append(ledger.spend(LaplaceLoss(0.01), **PERSON, **WHY))
        except BudgetExceededError:
            pass

    threads = [Thread(target=spender) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(spent) == 40


def test_a_well_formed_file_with_an_impossible_record_is_refused(tmp_path):
    impossible = ({"kind": "gift"}, {"kind": "budget", "epsilon": -1.0, "delta": 0.0}, {"kind": "spend"})
    for n, record in enumerate(impossible):
        path = tmp_path / f"ledger-{n}"
        journal = Journal(path, header=HEADER)
        with journal.locked():
            journal.catch_up(lambda record: None)
            journal.append(record | PERSON)
        with pytest.raises(CorruptFileError, match="a record that cannot be"):
            Ledger(path)
