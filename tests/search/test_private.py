"""One door: the right hasher behind it, budgets that are divided and recorded, and sentences for what cannot be."""

import numpy as np
import pytest

from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, InputError, PrivacyError, UnknownNameError
from blindsight.rng import seeded_bytes
from blindsight.search.central import CentralHasher
from blindsight.search.localmode import LocalHasher
from blindsight.search.private import PrivateHasher


@pytest.fixture(scope="module")
def features():
    """Public and private features of the same kinds of pictures."""
    rng = np.random.default_rng(12)
    centres = rng.normal(0, 1, (5, 24))
    X = centres[rng.integers(5, size=800)] + rng.normal(0, 0.3, (800, 24))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return X[:400], X[400:]


IDS = list(range(400))


def another_symbol(hasher, X):
    """Return a row of another symbol than the first, changed a little so that it is no record's content."""
    symbols = hasher.hasher_.true_symbols(X)
    return X[[np.argmax(symbols != symbols[0])]] + np.float32(1e-5)


def test_local_mode_learns_from_public_features_and_releases_each_record_once(features, tmp_path):
    public, X = features
    hasher = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=public)
    first = hasher.release(IDS, X)
    assert len(first) == len(X)
    np.testing.assert_array_equal(hasher.release(IDS[::-1], X[::-1]), first[::-1])
    rebuilt = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=public)
    np.testing.assert_array_equal(rebuilt.release(IDS, X), first)
    assert isinstance(hasher.hasher_, LocalHasher)
    assert hasher.hasher_.epsilon == 4.0
    assert (hasher.statement_.unit, hasher.statement_.epsilon, hasher.statement_.status) == ("record", 4.0, "proven")


def test_a_saved_hasher_takes_up_the_releases_made_with_it(features, tmp_path):
    public, X = features
    first = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=public)
    released = first.release(IDS, X)
    first.hasher_.save(tmp_path / "hasher.npz")
    loaded = LocalHasher.load(tmp_path / "hasher.npz")
    again = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=loaded)
    np.testing.assert_array_equal(again.release(IDS, X), released)
    with pytest.raises(InputError, match="spends epsilon 4 on a record; 2 was asked for"):
        PrivateHasher(2.0).fit(public=loaded)


def test_public_labels_are_learned_from(features):
    public = features[0]
    hasher = PrivateHasher(4.0).fit(public=public, public_labels=np.arange(400) % 5)
    assert hasher.hasher_.labelled_


def test_local_mode_never_looks_at_the_records_it_is_fitted_beside(features):
    public, X = features
    digests = {PrivateHasher(4.0).fit(rows, public=public).hasher_.digest for rows in (None, X, -X)}
    assert len(digests) == 1


def test_releases_are_recorded_and_refused_beyond_the_budget(features):
    public, X = features
    ledger = Ledger()
    ledger.set_budget("album", unit="record", neighbours="replace", epsilon=4.0, delta=0.0)
    hasher = PrivateHasher(4.0, ledger=ledger, scope="album").fit(public=public)
    assert ledger.spends("album", "record") == ()  # learning from public features costs nothing
    hasher.release(IDS[:200], X[:200])
    hasher.release(IDS, X)
    assert ledger.remaining("album", "record") == 0
    with pytest.raises(BudgetExceededError):
        hasher.release([0], another_symbol(hasher, X))
    other = PrivateHasher(2.0, ledger=ledger, scope="album").fit(public=public)
    with pytest.raises(BudgetExceededError):
        other.release([0], X[:1])


def test_the_statement_follows_what_was_released(features, tmp_path):
    public, X = features
    hasher = PrivateHasher(4.0, path=tmp_path / "r.npz").fit(public=public)
    hasher.release(IDS, X)
    assert (hasher.statement_.epsilon, hasher.releases_.most_releases) == (4.0, 1)
    once = hasher.statement_.assumptions
    hasher.release([0], another_symbol(hasher, X))
    statement = PrivateHasher(4.0, path=tmp_path / "r.npz").fit(public=public).statement_  # whoever opens it
    assert statement == hasher.statement_
    assert statement.headline() == "Proven: epsilon = 8.00 per record"
    assert "times 2" in statement.accountant
    assert once[1] not in statement.assumptions
    assert any("2 times" in line for line in statement.assumptions)


def test_features_that_differ_in_their_last_digits_are_not_released_anew(features):
    public, X = features
    hasher = PrivateHasher(4.0).fit(public=public)
    first = hasher.release(IDS, X)
    jittered = X * np.float32(1 + 1e-6)
    assert (jittered != X).any(axis=1).all()
    still = hasher.hasher_.true_symbols(jittered) == hasher.hasher_.true_symbols(X)
    assert still.mean() > 0.99
    np.testing.assert_array_equal(hasher.release(np.flatnonzero(still), jittered[still]), first[still])
    assert hasher.statement_.epsilon == 4.0


def test_a_store_of_another_epsilon_is_refused(features, tmp_path):
    public, X = features
    PrivateHasher(4.0, path=tmp_path / "r.npz").fit(public=public).release(IDS, X)
    with pytest.raises(InputError, match="another mechanism"):
        PrivateHasher(2.0, path=tmp_path / "r.npz").fit(public=public)


def test_a_person_has_the_budget_once_for_all_pictures(features):
    public, X = features
    ledger = Ledger()
    hasher = PrivateHasher(6.0, unit="person", per_person=np.int64(3), ledger=ledger, scope="album").fit(public=public)
    assert hasher.hasher_.epsilon == 2.0
    assert (hasher.statement_.unit, hasher.statement_.epsilon) == ("person", 6.0)
    assert "no person ever has more than 3 of the records, deleted ones included" in hasher.statement_.assumptions
    assert not any("same person" in line for line in hasher.statement_.not_protected)
    assert any("same person" in line for line in hasher.hasher_.statement().not_protected)
    hasher.release(IDS, X)
    assert ledger.spent("album", "person", delta=0.0).epsilon == pytest.approx(6.0)
    hasher.release([0], another_symbol(hasher, X))
    assert ledger.spent("album", "person", delta=0.0).epsilon == pytest.approx(12.0)
    assert (hasher.statement_.unit, hasher.statement_.epsilon) == ("person", 12.0)
    assert "3 records of 4 each" in hasher.statement_.accountant


def test_central_mode_learns_from_the_records_and_records_the_spend(features):
    X = features[1]
    ledger = Ledger()
    hasher = PrivateHasher(1.0, mode="central", delta=1e-6, clip=1.0, bits=32, ledger=ledger, scope="album").fit(X)
    assert isinstance(hasher.hasher_, CentralHasher)
    assert hasher.transform(X).shape == (400, 4)
    assert hasher.statement_.headline() == "Proven: epsilon = 1.00 (delta = 1e-06) per record"
    assert ledger.spent("album", "record", delta=1e-6).epsilon == pytest.approx(1.0)
    with pytest.raises(PrivacyError, match="never a code"):
        hasher.release(IDS, X)


def test_a_refused_spend_leaves_no_function_behind(features):
    ledger = Ledger()
    ledger.set_budget("album", unit="record", neighbours="replace", epsilon=1.0, delta=1e-6)
    hasher = PrivateHasher(1.5, mode="central", delta=1e-6, clip=1.0, ledger=ledger, scope="album")
    with pytest.raises(BudgetExceededError):
        hasher.fit(features[1])
    assert not hasattr(hasher, "hasher_")
    assert not hasattr(hasher, "statement_")


def test_central_mode_for_persons(features):
    hasher = PrivateHasher(1.0, mode="central", unit="person", per_person=4, delta=1e-6, clip=1.0).fit(features[1])
    assert hasher.hasher_.per_person == 4
    assert hasher.statement_.unit == "person"


@pytest.mark.parametrize("mode", ["local", "central"])
def test_injected_randomness_voids_the_statement(features, mode):
    needed = {"delta": 1e-6, "clip": 1.0} if mode == "central" else {}
    hasher = PrivateHasher(2.0, mode=mode, source=seeded_bytes(1), **needed).fit(features[1], public=features[0])
    assert hasher.statement_.status == "void"


@pytest.mark.parametrize("mode", ["local", "central"])
def test_every_statement_says_who_sees_what(features, mode):
    needed = {"delta": 1e-6, "clip": 1.0} if mode == "central" else {}
    statement = PrivateHasher(2.0, mode=mode, **needed).fit(features[1], public=features[0]).statement_
    assert statement.who_sees
    assert statement.not_protected
    assert statement.assumptions


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        ({"epsilon": 0.0}, InputError, "epsilon must be positive"),
        ({"mode": "paper"}, InputError, "PHashing and PITQ"),
        ({"mode": "cloud"}, InputError, "'local' or 'central'"),
        ({"unit": "bit"}, InputError, "per bit protects nobody"),
        ({"unit": "album"}, UnknownNameError, "unknown unit"),
        ({"unit": "person"}, InputError, "needs per_person"),
        ({"unit": "person", "per_person": True}, InputError, "got True"),
        ({"unit": "person", "per_person": 2.0}, InputError, "got 2.0"),
        ({"unit": "person", "per_person": 0}, InputError, "got 0"),
        ({"per_person": 3}, InputError, "say unit='person'"),
        ({"delta": 1e-6}, InputError, "local mode is pure"),
        ({"ledger": Ledger()}, InputError, "scope"),
    ],
)
def test_what_cannot_be_promised_is_refused_at_once(settings, error, sentence):
    with pytest.raises(error, match=sentence):
        PrivateHasher(**{"epsilon": 1.0} | settings)


def test_missing_parts_get_a_sentence(features):
    X = features[1]
    with pytest.raises(InputError, match="public features, never from private ones"):
        PrivateHasher(1.0).fit(X)
    with pytest.raises(InputError, match="central mode needs delta"):
        PrivateHasher(1.0, mode="central", clip=1.0).fit(X)
    with pytest.raises(InputError, match="central mode needs clip"):
        PrivateHasher(1.0, mode="central", delta=1e-6).fit(X)
    with pytest.raises(InputError, match="give X"):
        PrivateHasher(1.0, mode="central", delta=1e-6, clip=1.0).fit(public=X)
    with pytest.raises(InputError, match="call fit first"):
        PrivateHasher(1.0).release([1], X[:1])
    with pytest.raises(PrivacyError, match="noisy release only"):
        PrivateHasher(1.0).fit(public=X).transform(X)
