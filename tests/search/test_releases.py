"""Permanent releases: never drawn twice, paid before they are shown, whole after every interruption."""

import hashlib
import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen, run
from sys import executable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.dp.accounting import BoundedLoss
from blindsight.dp.ledger import EQUAL_CONTENTS, Ledger
from blindsight.errors import BudgetExceededError, CorruptFileError, InputError, StorageError
from blindsight.files import read_arrays, write_arrays
from blindsight.papers.hashing.learners import LSH
from blindsight.papers.hashing.published import PHashing
from blindsight.rng import system_bytes
from blindsight.search.releases import Releases, check_store, erase_releases

SCOPE = "album"


@dataclass
class Coins:
    """A mechanism whose releases are 16 random bytes each, so that no two draws are ever equal."""

    epsilon: float = 1.0
    name: str = "coins"
    drawn: list = field(default_factory=list)

    @property
    def loss(self):
        return BoundedLoss(self.epsilon)

    @property
    def digest(self):
        return hashlib.sha256(f"{self.name} {self.epsilon}".encode()).hexdigest()

    def release(self, X, *, source=system_bytes):
        self.drawn.append(len(X))
        return np.frombuffer(source(16 * len(X)), dtype=np.uint8).reshape(len(X), 16)


class Parity(Coins):
    """A mechanism that looks at nothing of a record but whether its first feature is odd."""

    def basis(self, X):
        return np.rint(np.asarray(X)[:, 0]).astype(np.int64) % 2


def rows(*values):
    return np.array([[value, value + 0.5] for value in values], dtype=np.float32)


def spent(ledger):
    return sum(spend.loss.epsilon * spend.loss.count for spend in ledger.spends(SCOPE, "record"))


@pytest.fixture(params=["memory", "file"])
def path(request, tmp_path):
    return tmp_path / "releases.npz" if request.param == "file" else None


# --- permanence ---


@pytest.mark.parametrize("ids", [[7, -3, 12], ["b", "é", "a b"]])
def test_a_record_is_drawn_once_however_often_it_is_asked_for(path, ids):
    mechanism = Coins()
    store = Releases(path, mechanism)
    first = store.release(ids, rows(1, 2, 3))
    np.testing.assert_array_equal(store.release(ids[::-1], rows(3, 2, 1)), first[::-1])
    np.testing.assert_array_equal(store.release(ids[:1], rows(1)), first[:1])
    np.testing.assert_array_equal(store.stored(ids), first)
    assert mechanism.drawn == [3]
    assert store.ids.tolist() == ids
    assert (len(store), store.most_releases) == (3, 1)


def test_only_new_and_changed_records_are_drawn(path):
    mechanism = Coins()
    store = Releases(path, mechanism)
    first = store.release([1, 2], rows(1, 2))
    second = store.release([1, 2, 3], rows(1, 9, 3))
    assert mechanism.drawn == [2, 2]
    np.testing.assert_array_equal(second[0], first[0])
    assert (second[1] != first[1]).any()
    assert store.most_releases == 2
    zeros = [store.release([4], np.array([[zero, 1.0]])) for zero in (0.0, -0.0)]
    np.testing.assert_array_equal(*zeros)  # the same content


def test_an_edit_is_drawn_again_whatever_it_changed(path):
    """Two versions of an index must not tell whether the true symbol changed: the odds of a new draw are the same."""
    mechanism = Parity()
    store = Releases(path, mechanism)
    first = store.release([1, 2, 3], rows(1, 2, 3))
    second = store.release([1, 2, 3], rows(3, 4, 3))  # as odd as before, as even as before, not edited
    assert (mechanism.drawn, store.most_releases) == ([3, 2], 2)
    assert (first != second).any(axis=1).tolist() == [True, True, False]
    store.release([1, 2, 3], rows(4, 4, 3))  # odd becomes even: drawn just the same
    assert mechanism.drawn == [3, 2, 1]


def test_versions_tell_an_edit_from_another_machines_rounding(path):
    mechanism = Coins()
    store = Releases(path, mechanism)
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    first = store.release([1, 2], rows(1, 2), versions=pixels)
    np.testing.assert_array_equal(store.release([1, 2], rows(1.0001, 2), versions=pixels), first)
    pixels[1, 0] ^= 1
    second = store.release([1, 2], rows(1, 2), versions=pixels)
    assert (first != second).any(axis=1).tolist() == [False, True]
    for wrong in (pixels[:1], pixels / 2):
        with pytest.raises(InputError, match="versions"):
            store.release([1, 2], rows(1, 2), versions=wrong)


@pytest.mark.parametrize("kind", ["releases.1", "releases.2", "releases.3"])
def test_a_store_of_an_older_version_is_refused_and_stays(tmp_path, kind):
    """Taken for an empty one it would draw again, and spend once more."""
    file, mechanism, ledger = tmp_path / "r.npz", Coins(), Ledger()
    Releases(file, mechanism).release([1, 2], rows(1, 2))
    document, arrays = read_arrays(file, "blindsight/releases.4")
    write_arrays(file, f"blindsight/{kind}", document, arrays, private=True)
    before = file.read_bytes()
    for use in (
        lambda: Releases(file, mechanism, ledger=ledger, scope=SCOPE),
        lambda: erase_releases(file, [1], ["a"]),
        lambda: check_store(file),
    ):
        with pytest.raises(CorruptFileError, match=kind):
            use()
    assert file.read_bytes() == before
    assert (mechanism.drawn, ledger.table(delta=0)) == ([2], ())


def test_codes_of_a_public_function_are_released_for_good():
    X, ledger = np.random.default_rng(2).normal(0, 1, (30, 8)), Ledger()
    hasher = PHashing(LSH(20).fit(X), 2.0, public_function=True).fit(X)
    store = Releases(None, hasher, ledger=ledger, scope=SCOPE)
    first = store.release(list(range(30)), X)
    np.testing.assert_array_equal(store.release(list(range(30)), X), first)
    assert (hasher.release(X) != first).any()
    assert spent(ledger) == pytest.approx(hasher.statement_.epsilon)


def test_releases_survive_a_restart_and_two_stores_on_one_file_see_each_other(tmp_path):
    one, late = (Releases(tmp_path / "deep" / "r.npz", Coins()) for _ in range(2))
    first = one.release([1, 2], rows(1, 2))
    np.testing.assert_array_equal(late.release([2, 1], rows(2, 1)), first[::-1])
    late.release([3], rows(3))
    assert len(one) == 3
    mechanism = Coins()
    np.testing.assert_array_equal(Releases(tmp_path / "deep" / "r.npz", mechanism).release([1], rows(1)), first[:1])
    assert not mechanism.drawn


RELEASER = """
import sys
import numpy as np
from blindsight.dp.accounting import BoundedLoss
from blindsight.search.releases import Releases
class Coins:
    loss, digest = BoundedLoss(1.0), "coins"
    def release(self, X, *, source):
        return np.frombuffer(source(16 * len(X)), dtype=np.uint8).reshape(len(X), 16)
store = Releases(sys.argv[1], Coins())
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2]), 20):
    print(store.release([number], np.array([[number]], dtype=np.float32)).tobytes().hex())
"""


@pytest.mark.parametrize("linked", ["file", "file that is not there yet", "folder"])
def test_processes_that_name_a_store_through_a_link_draw_once(tmp_path, linked):
    path, link = tmp_path / "home" / "r.npz", tmp_path / "link"
    path.parent.mkdir()
    other = link / path.name if linked == "folder" else link
    link.symlink_to(path.parent if linked == "folder" else path)
    if linked == "file":
        run([executable, "-c", RELEASER, str(path), "19"], input="go", text=True, capture_output=True, check=True)
    processes = [
        Popen([executable, "-c", RELEASER, str(one), "0"], stdin=PIPE, stdout=PIPE, text=True) for one in (path, other)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:  # all are loaded: let them race
        process.stdin.write("go\n")
        process.stdin.flush()
    drawn = [process.communicate(timeout=120)[0].split() for process in processes]
    assert len(drawn[0]) == 20
    assert drawn[0] == drawn[1]
    assert link.is_symlink()


def test_a_store_with_two_hard_links_is_refused_whichever_was_opened_first(tmp_path):
    path, other = tmp_path / "r.npz", tmp_path / "other.npz"
    ledger = Ledger()
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    kept = store.release([1], rows(1))
    os.link(path, other)
    for attempt in (
        lambda: Releases(path, Coins(), ledger=ledger, scope=SCOPE),
        lambda: Releases(other, Coins(), ledger=ledger, scope=SCOPE),
        lambda: store.release([2], rows(2)),
        lambda: store.delete([1]),
        lambda: erase_releases(other, [1], ["a"]),
    ):
        with pytest.raises(StorageError, match="2 hard links"):
            attempt()
    assert spent(ledger) == 1
    other.unlink()
    np.testing.assert_array_equal(store.release([1], rows(1)), kept)


def test_releases_erased_through_a_link_are_gone_from_the_store(tmp_path):
    path, link = tmp_path / "r.npz", tmp_path / "link.npz"
    store = Releases(path, Coins())
    store.release([1, 2], rows(1, 2))
    link.symlink_to(path)
    erase_releases(link, [1], ["a"])
    assert link.is_symlink()
    assert store.ids.tolist() == [2]


def test_a_deleted_record_is_gone_but_stays_counted(path):
    ledger = Ledger()
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    first = store.release([1, 2], rows(1, 2))
    store.delete([1])
    assert store.ids.tolist() == [2]
    with pytest.raises(InputError, match="1"):
        store.stored([1])
    assert path is None or [code.tobytes() in path.read_bytes() for code in first] == [False, True]
    assert spent(ledger) == 1
    back = store.release([1], rows(1))  # the same content, but its code is gone
    assert (back != first[:1]).any()
    assert (spent(ledger), store.most_releases) == (2, 2)


def test_the_file_is_private_and_holds_no_features(tmp_path):
    file = tmp_path / "r.npz"
    X = np.random.default_rng(1).normal(0, 1, (3, 20)).astype(np.float32)
    Releases(file, Coins()).release([1, 2, 3], X)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_bytes()
    for row in X:
        assert row[:2].tobytes() not in content
        assert hashlib.sha256(row.tobytes()).digest() not in content  # a plain digest could be guessed at


# --- erasing ---


def test_an_erased_name_that_comes_back_continues_its_count(tmp_path):
    """Under another id each time; to erase it twice, or after it was deleted, loses nothing."""
    file, ledger = tmp_path / "r.npz", Ledger()
    store = Releases(file, Coins(), ledger=ledger, scope=SCOPE)
    store.release([1, 100], rows(1, 0), names=["a", "other"])
    for turn in range(1, 5):
        if turn == 3:
            store.delete([turn])
        for _ in range(2):
            erase_releases(file, [turn, 99], ["a", "never released"])
        assert (store.ids.tolist(), store.most_releases, spent(ledger)) == ([100], turn, turn)
        store.release([turn + 1, 100], rows(turn % 2, 0), names=["a", "other"])  # of two contents in turn
        assert (store.most_releases, spent(ledger), store.excess) == (turn + 1, turn + 1, 0)
    store.release([5], rows(7), names=["a"])  # an edit
    store.release([6], rows(8), names=["new"])
    assert (store.most_releases, spent(ledger)) == (6, 6)


def test_a_name_that_comes_back_beyond_the_budget_is_refused_and_nothing_changes(tmp_path):
    file, ledger = tmp_path / "r.npz", Ledger()
    ledger.set_budget(SCOPE, unit="record", neighbours="replace", epsilon=2.0, delta=0.0)
    store = Releases(file, Coins(), ledger=ledger, scope=SCOPE)
    for number in (1, 2):
        store.release([number], rows(1), names=["a"])
        erase_releases(file, [number], ["a"])
    before = file.read_bytes()
    for value in (1, 9):
        with pytest.raises(BudgetExceededError):
            store.release([3, 4], rows(value, 2), names=["a", "b"])
    assert (file.read_bytes(), spent(ledger)) == (before, 2)
    store.release([4], rows(2), names=["b"])


def test_of_two_names_of_one_content_the_erased_one_counts_for_itself(tmp_path):
    file, ledger = tmp_path / "r.npz", Ledger()
    store = Releases(file, Coins(), ledger=ledger, scope=SCOPE)
    store.release([1, 2], rows(7, 7), names=["a", "b"])
    assert (store.most_releases, store.excess, spent(ledger)) == (1, 1, 2)
    erase_releases(file, [1], ["a"])
    store.release([2], rows(7), names=["b"])
    assert (store.most_releases, store.excess, spent(ledger)) == (1, 1, 2)
    store.release([3], rows(7), names=["a"])
    assert (store.most_releases, store.excess, spent(ledger)) == (2, 1, 3)
    store.release([4], rows(7), names=["under another name"])
    assert (store.most_releases, store.excess, spent(ledger)) == (2, 2, 4)


def test_an_erased_person_continues_under_every_name_in_their_folder(tmp_path):
    file = tmp_path / "r.npz"
    store = Releases(file, Coins())
    store.release([1, 2, 3], rows(1, 2, 3), names=["smith/1.png", "smith/at home/2.png", "smithson/1.png"])
    store.release([3], rows(33), names=["smithson/1.png"])
    erase_releases(file, [1, 2], ["smith/1.png", "smith/at home/2.png"], person="smith")
    store.release([4], rows(4), names=["smithson/2.png"])
    assert store.most_releases == 2
    store.release([5], rows(5), names=["smith/at home/new.png"])
    assert store.most_releases == 3
    erase_releases(file, [5], ["smith/at home/new.png"])  # one name: the others in the folder stay as they were
    store.release([6], rows(6), names=["smith/new.png"])
    assert store.most_releases == 3
    store.release([7], rows(5), names=["smith/at home/new.png"])
    assert store.most_releases == 4


def test_erased_names_cannot_be_read_or_tested_without_the_key(tmp_path):
    stored = []
    for key in (1, 2):
        file = tmp_path / f"{key}.npz"
        store = Releases(file, Coins(), source=lambda count, key=key: bytes([key]) * count)
        store.release([1, 2], rows(1, 2), names=["smith/secret.png", "smith/\udcff.png"])
        assert b"secret" not in file.read_bytes()  # the store needs no name until one is erased
        erase_releases(file, [1, 2], ["smith/secret.png", "smith/\udcff.png"], person="smith")
        arrays = read_arrays(file, "blindsight/releases.4")[1]
        digests = {digest.tobytes() for digest in arrays["erased"]}
        assert (len(digests), arrays["erased_counts"].tolist()) == (3, [1, 1, 1])
        content = file.read_bytes()
        for name in ("smith/secret.png", "smith"):
            assert not any(name.encode(code) in content for code in ("utf-8", "utf-32-le"))
            assert hashlib.sha256(name.encode()).digest() not in digests
        stored.append(digests)
    assert not stored[0] & stored[1]


def test_killed_at_any_step_an_erasure_forgets_no_count(tmp_path, monkeypatch):
    for stop in range(1, 30):
        file = tmp_path / str(stop) / "r.npz"
        store = Releases(file, Coins())
        store.release([1, 2], rows(1, 2), names=["a", "b"])
        with monkeypatch.context() as patch:
            calls = steps_of_a_release(patch, stop)
            try:
                erase_releases(file, [1], ["a"])
            except Killed:
                pass
            else:
                assert calls["count"] < stop
                break
        if stop % 2:  # else the owner does not ask again, and the id stays with the name
            erase_releases(file, [1], ["a"])
        store.release([3 if stop % 2 else 1, 2], rows(5, 2), names=["a", "b"])
        assert store.most_releases == 2
    else:
        pytest.fail("an erasure never came to its end")
    assert stop > 3  # the archive, its sync and the rename were all tried


# --- the ledger ---


def test_the_scope_is_charged_for_its_worst_record(path):
    ledger = Ledger()
    store = Releases(path, Coins(0.5), ledger=ledger, scope=SCOPE)
    for ids, values, charged in [
        ([1, 2], (1, 2), 0.5),
        ([3, 4, 5], (3, 4, 5), 0.5),  # other records: parallel composition
        ([1], (10,), 1.0),
        ([2, 3, 6], (20, 30, 6), 1.0),  # as often as record 1
        ([1], (100,), 1.5),
    ]:
        store.release(ids, rows(*values))
        assert spent(ledger) == charged
    assert store.most_releases == 3


def test_what_a_ledger_has_not_recorded_is_charged_before_anything_is_returned(tmp_path):
    file = tmp_path / "r.npz"
    alone = Releases(file, Coins(0.5))
    alone.release([1, 2], rows(1, 2))
    kept = alone.release([1, 2], rows(10, 2))
    before = file.read_bytes()
    poor, rich = Ledger(), Ledger()
    poor.set_budget(SCOPE, unit="record", neighbours="replace", epsilon=0.9, delta=0.0)
    refused = Releases(file, Coins(0.5), ledger=poor, scope=SCOPE)
    for use in (lambda: refused.release([1, 2], rows(10, 2)), lambda: refused.stored([2])):
        with pytest.raises(BudgetExceededError):
            use()
    assert (spent(poor), file.read_bytes()) == (0, before)  # not even the half that would fit
    for _ in range(2):
        store = Releases(file, Coins(0.5), ledger=rich, scope=SCOPE)
        np.testing.assert_array_equal(store.stored([1, 2]), kept)
        np.testing.assert_array_equal(store.release([1, 2], rows(10, 2)), kept)
        assert spent(rich) == 1.0 == 0.5 * store.most_releases
    Releases(file, Coins(0.5)).release([1], rows(100))  # again without the ledger
    store.release([1, 3], rows(1000, 3))
    assert spent(rich) == 2.0 == 0.5 * store.most_releases


def test_a_store_that_was_lost_or_copied_is_no_credit(tmp_path):
    ledger, file, copy = Ledger(), tmp_path / "r.npz", tmp_path / "copy.npz"
    store = Releases(file, Coins(), ledger=ledger, scope=SCOPE)
    store.release([1], rows(1))
    copy.write_bytes(file.read_bytes())
    store.release([1], rows(2))
    assert spent(ledger) == 2
    Releases(copy, Coins(), ledger=ledger, scope=SCOPE).release([1], rows(3))
    assert spent(ledger) == 3
    file.unlink()
    store.release([1], rows(4))
    assert spent(ledger) == 4
    Releases(tmp_path / "new.npz", Coins(), ledger=ledger, scope=SCOPE).release([1], rows(1))
    assert spent(ledger) == 5


def test_a_record_under_another_id_is_the_same_record(path):
    ledger = Ledger()
    ledger.set_budget(SCOPE, unit="record", neighbours="replace", epsilon=2.0, delta=0.0)
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    store.release(["a", "b"], rows(1, 2))
    store.delete(["a"])
    store.release(["c", "d"], rows(1, 3))
    assert spent(ledger) == 2
    assert (store.most_releases, store.excess) == (1, 1)  # which records are equal is for the owner alone
    store.release(["e"], rows(1))
    assert (spent(ledger), store.excess) == (3, 2)
    twins = Releases(None, Coins())
    twins.release([1, 2, 3], rows(7, 7, 8))
    assert (twins.most_releases, twins.excess) == (1, 1)


@pytest.mark.parametrize("first", [(7, 7), (7, 8)], ids=["equal", "different"])
def test_no_budget_tells_whether_two_records_are_equal(path, first):
    """The refused release is the same one in both worlds, as is what is left."""
    ledger = Ledger()
    ledger.set_budget(SCOPE, unit="record", neighbours="replace", epsilon=2.0, delta=0.0)
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    store.release([1, 2], rows(*first))
    assert ledger.remaining(SCOPE, "record") == 1
    store.release([1], rows(9))
    with pytest.raises(BudgetExceededError) as refusal:
        store.release([1], rows(10))
    assert "spent 2 " in str(refusal.value)
    with pytest.raises(BudgetExceededError):  # what is spent on the scope by something else
        ledger.spend(BoundedLoss(1.0), scope=SCOPE, unit="record", neighbours="replace", mechanism="m", purpose="p")
    assert spent(ledger) == (3 if len(set(first)) == 1 else 2)


def test_another_mechanism_has_a_file_of_its_own_and_adds_up_in_its_scope(tmp_path):
    ledger = Ledger()
    Releases(tmp_path / "one.npz", Coins(1.0), ledger=ledger, scope=SCOPE).release([1], rows(1))
    with pytest.raises(InputError, match="mechanism"):
        Releases(tmp_path / "one.npz", Coins(2.0), ledger=ledger, scope=SCOPE)
    Releases(tmp_path / "two.npz", Coins(2.0), ledger=ledger, scope=SCOPE).release([1], rows(1))
    assert spent(ledger) == 3.0
    Releases(tmp_path / "one.npz", Coins(1.0), ledger=ledger, scope="other").release([1], rows(1))
    assert [row.spent.epsilon for row in ledger.table(delta=0)] == [3.0, 1.0]


def test_an_exceeded_budget_changes_nothing(path):
    ledger = Ledger()
    ledger.set_budget(SCOPE, unit="record", neighbours="replace", epsilon=1.0, delta=0.0)
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    first = store.release([1, 2], rows(1, 2))
    before = path and path.read_bytes()
    with pytest.raises(BudgetExceededError):
        store.release([1, 3], rows(10, 3))
    assert (spent(ledger), store.ids.tolist()) == (1.0, [1, 2])
    np.testing.assert_array_equal(store.release([1, 2], rows(1, 2)), first)
    assert before == (path and path.read_bytes())
    store.release([3], rows(3))  # a first release of another record costs the scope nothing more


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["release", "delete"]),
            st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=4, unique_by=lambda t: t[0]),
        ),
        max_size=12,
    )
)
def test_any_history_agrees_with_a_simple_model(history):
    ledger, mechanism = Ledger(), Coins()
    store = Releases(None, mechanism, ledger=ledger, scope=SCOPE)
    contents, codes, counts, of_content = {}, {}, dict.fromkeys(range(6), 0), Counter()
    for action, records in history:
        ids = [key for key, _ in records]
        if action == "delete":
            if all(key in contents for key in ids):
                store.delete(ids)
                for key in ids:
                    del contents[key], codes[key]
            continue
        released = store.release(ids, rows(*(value for _, value in records)))
        for (key, value), code in zip(records, released, strict=True):
            same = contents.get(key) == value
            counts[key] += not same
            of_content[value] += not same
            assert (codes.get(key) == code.tobytes()) == same
            contents[key], codes[key] = value, code.tobytes()
    assert sorted(store.ids) == sorted(contents)
    assert store.most_releases == max(counts.values())
    assert store.excess == max(0, max(of_content.values(), default=0) - max(counts.values()))
    assert sum(mechanism.drawn) == sum(counts.values())
    if of_content:
        told = [one.loss.count for one in ledger.spends(SCOPE, "record") if one.purpose != EQUAL_CONTENTS]
        assert sum(told) == max(counts.values())  # may be published: counts edits, whatever the contents
        assert max(of_content.values()) <= spent(ledger) <= max(counts.values()) + max(of_content.values())


# --- interruptions ---


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours may catch and mend it."""


def steps_of_a_release(monkeypatch, stop):
    """Let the process die at the `stop`-th system call that a write makes; return how many were counted."""
    calls = {"count": 0}

    def dying(real):
        def call(*args, **kwargs):
            calls["count"] += 1
            if calls["count"] == stop:
                raise Killed
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(os, "fsync", dying(os.fsync))
    monkeypatch.setattr(Path, "replace", dying(Path.replace))
    monkeypatch.setattr(np, "savez", dying(np.savez))
    return calls


def test_killed_at_any_step_no_release_is_free_or_forgotten(tmp_path, monkeypatch):
    for stop in range(1, 30):
        folder = tmp_path / str(stop)
        ledger = Ledger(folder / "ledger")
        first = Releases(folder / "r.npz", Coins(), ledger=ledger, scope=SCOPE).release([1, 2], rows(1, 2))
        with monkeypatch.context() as patch:
            calls = steps_of_a_release(patch, stop)
            try:
                shown = Releases(folder / "r.npz", Coins(), ledger=ledger, scope=SCOPE).release([1, 3], rows(10, 3))
            except Killed:
                shown = None
        ledger = Ledger(folder / "ledger")  # a new process
        store = Releases(folder / "r.npz", Coins(), ledger=ledger, scope=SCOPE)
        assert spent(ledger) >= store.most_releases  # whatever is in the file was paid for
        np.testing.assert_array_equal(store.stored([2]), first[1:])
        after = store.release([1, 3], rows(10, 3))
        assert spent(ledger) >= 2
        if shown is not None:
            np.testing.assert_array_equal(after, shown)
            assert calls["count"] < stop
            break
    else:
        pytest.fail("a release never came to its end")
    assert stop > 4  # the ledger's sync, the archive, its sync, the rename and the folder's sync were all tried


# --- real mechanisms and bad input ---


def test_a_damaged_file_is_refused_or_gives_the_same_releases(tmp_path):
    file = tmp_path / "r.npz"
    first = Releases(file, Coins()).release([1], rows(1))
    content, refused = file.read_bytes(), 0
    for place in range(0, len(content), 13):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            np.testing.assert_array_equal(Releases(file, Coins()).stored([1]), first)  # a byte that means nothing
        except StorageError:
            refused += 1
    assert refused > len(content) / 13 / 2


@pytest.mark.parametrize(
    ("ids", "X", "named"),
    [
        ([1, 1], rows(1, 2), "twice"),
        ([1], rows(1, 2), "1 ids for 2 rows"),
        (["a"], rows(1), "integers"),
        ([1.5], rows(1), "text"),
        ([1], [[np.nan, 0]], "NaN"),
        ([], np.empty((0, 2)), "no records"),
    ],
)
def test_bad_input_is_refused_and_costs_nothing(path, ids, X, named):
    ledger = Ledger()
    with pytest.raises(InputError, match="scope"):
        Releases(path, Coins(), ledger=ledger)
    store = Releases(path, Coins(), ledger=ledger, scope=SCOPE)
    store.release([9], rows(9))
    with pytest.raises(InputError, match=named):
        store.release(ids, X)
    with pytest.raises(InputError, match="2 names for 1 records"):
        store.release([4], rows(1), names=["a", "b"])
    for action in (store.delete, store.stored):
        with pytest.raises(InputError, match="4"):
            action([4])
    assert (len(store), spent(ledger)) == (1, 1.0)
