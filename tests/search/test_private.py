"""One door: the right hasher behind it, budgets that are divided and recorded, and sentences for what cannot be."""

import numpy as np
import pytest
from sklearn.base import clone

from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, InputError, PrivacyError
from blindsight.rng import seeded_bytes
from blindsight.search.central import CentralHasher
from blindsight.search.localmode import LocalHasher
from blindsight.search.private import PrivateHasher


@pytest.fixture(scope="module")
def features():
    """Public and private features of the same kinds of pictures."""
    rng = np.random.default_rng(12)
    centres = rng.normal(0, 1, (5, 24))
    X = centres[rng.integers(5, size=400)] + rng.normal(0, 0.3, (400, 24))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return X[:200], X[200:]


@pytest.fixture(scope="module")
def learned(features):
    """What public features teach, once for all."""
    return LocalHasher(4.0, kinds=5).fit(features[0])


IDS = list(range(200))
CENTRAL = {"mode": "central", "delta": 1e-6, "clip": 1.0}


def another_symbol(hasher, X):
    """Return a row of another symbol than the first, changed a little so that it is no record's content."""
    symbols = hasher.hasher_.true_symbols(X)
    return X[[np.argmax(symbols != symbols[0])]] + np.float32(1e-5)


@pytest.mark.usefixtures("few_cells")
def test_local_mode_learns_from_public_features_and_releases_each_record_once(features, tmp_path):
    public, X = features
    hasher = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=public)
    first = hasher.release(IDS, X)
    np.testing.assert_array_equal(hasher.release(IDS[::-1], X[::-1]), first[::-1])
    for rows in (None, X, -X):  # it never looks at the records it is fitted beside
        rebuilt = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(rows, public=public)
        np.testing.assert_array_equal(rebuilt.release(IDS, X), first)
        assert rebuilt.hasher_.digest == hasher.hasher_.digest
    assert (hasher.statement_.unit, hasher.statement_.epsilon, hasher.statement_.status) == ("record", 4.0, "proven")
    assert not hasher.hasher_.labelled_
    assert PrivateHasher(4.0).fit(public=public, public_labels=np.arange(200) % 5).hasher_.labelled_
    with pytest.raises(InputError, match="mechanism"):  # a store of another epsilon
        PrivateHasher(2.0, path=tmp_path / "releases.npz").fit(public=public)
    hasher.hasher_.save(tmp_path / "hasher.npz")
    loaded = LocalHasher.load(tmp_path / "hasher.npz")  # takes up the releases made with it
    again = PrivateHasher(4.0, path=tmp_path / "releases.npz").fit(public=loaded)
    np.testing.assert_array_equal(again.release(IDS, X), first)
    with pytest.raises(InputError, match="epsilon 4"):
        PrivateHasher(2.0).fit(public=loaded)
    versioned = hasher.release(IDS, X * np.float32(1 + 1e-6), versions=np.arange(len(X))[:, None])
    jittered = hasher.release(IDS, X, versions=np.arange(len(X))[:, None])  # other last digits, the same versions
    np.testing.assert_array_equal(jittered, versioned)


def test_releases_are_recorded_and_refused_beyond_the_budget(features, learned):
    X, ledger = features[1], Ledger()
    ledger.set_budget("album", unit="record", neighbours="replace", epsilon=4.0, delta=0.0)
    hasher = PrivateHasher(4.0, ledger=ledger, scope="album").fit(public=learned)
    assert ledger.spends("album", "record") == ()  # learning from public features costs nothing
    hasher.release(IDS[:100], X[:100])
    hasher.release(IDS, X)
    assert ledger.remaining("album", "record") == 0
    with pytest.raises(BudgetExceededError):
        hasher.release([0], another_symbol(hasher, X))
    other = PrivateHasher(2.0, ledger=ledger, scope="album").fit(public=LocalHasher(2.0, kinds=2).fit(features[0]))
    with pytest.raises(BudgetExceededError):
        other.release([0], X[:1])
    refused = PrivateHasher(1.5, **CENTRAL, ledger=ledger, scope="album")
    with pytest.raises(BudgetExceededError):
        refused.fit(X)
    assert not hasattr(refused, "hasher_")
    assert not hasattr(refused, "statement_")


def test_the_statement_follows_what_was_released(features, learned, tmp_path):
    X = features[1]
    hasher = PrivateHasher(4.0, path=tmp_path / "r.npz").fit(public=learned)
    hasher.release(IDS, X)
    assert (hasher.statement_.epsilon, hasher.releases_.most_releases) == (4.0, 1)
    once = hasher.statement_.assumptions
    hasher.release([0], another_symbol(hasher, X))
    statement = PrivateHasher(4.0, path=tmp_path / "r.npz").fit(public=learned).statement_  # whoever opens it
    assert statement == hasher.statement_
    assert (statement.status, statement.epsilon, statement.unit) == ("proven", 8.0, "record")
    assert "times 2" in statement.accountant
    assert once[1] not in statement.assumptions
    assert any("2 times" in line for line in statement.assumptions)


def test_a_person_has_the_budget_once_for_all_pictures(features):
    public, X = features
    local, ledger = LocalHasher(2.0, kinds=2).fit(public), Ledger()
    asked = {"unit": "person", "per_person": np.int64(3), "ledger": ledger, "scope": "album"}
    hasher = PrivateHasher(6.0, **asked).fit(public=local)
    assert hasher.hasher_.epsilon == 2.0
    assert (hasher.statement_.unit, hasher.statement_.epsilon) == ("person", 6.0)
    assert any("more than 3 of the records" in line for line in hasher.statement_.assumptions)
    assert not any("same person" in line for line in hasher.statement_.not_protected)
    assert any("same person" in line for line in local.statement().not_protected)
    hasher.release(IDS, X)
    assert ledger.spent("album", "person", delta=0.0).epsilon == pytest.approx(6.0)
    hasher.release([0], another_symbol(hasher, X))
    assert ledger.spent("album", "person", delta=0.0).epsilon == pytest.approx(12.0)
    assert (hasher.statement_.unit, hasher.statement_.epsilon) == ("person", 12.0)


def test_central_mode_learns_from_the_records_and_records_the_spend(features):
    X, ledger = features[1], Ledger()
    hasher = PrivateHasher(1.0, **CENTRAL, bits=32, ledger=ledger, scope="album").fit(X)
    assert isinstance(hasher.hasher_, CentralHasher)
    assert hasher.transform(X).shape == (200, 4)
    statement = hasher.statement_
    assert (statement.status, statement.epsilon, statement.delta, statement.unit) == ("proven", 1.0, 1e-6, "record")
    assert ledger.spent("album", "record", delta=1e-6).epsilon == pytest.approx(1.0)
    with pytest.raises(PrivacyError):
        hasher.release(IDS, X)
    persons = PrivateHasher(1.0, **CENTRAL, unit="person", per_person=4).fit(X)
    assert (persons.hasher_.per_person, persons.statement_.unit) == (4, "person")


@pytest.mark.parametrize("needed", [{}, CENTRAL])
def test_every_statement_says_who_sees_what_and_injected_randomness_voids_it(features, learned, needed):
    statement = PrivateHasher(4.0, **needed).fit(features[1], public=None if needed else learned).statement_
    assert statement.who_sees
    assert statement.not_protected
    assert statement.assumptions
    seeded = PrivateHasher(4.0, source=seeded_bytes(1), **needed).fit(features[1], public=None if needed else learned)
    assert seeded.statement_.status == "void"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"mode": "paper"}, "PITQ"),
        ({"mode": "cloud"}, "'central'"),
        ({"unit": "bit"}, "bit"),
        ({"unit": "album"}, "unit"),
        ({"unit": "person"}, "per_person"),
        ({"unit": "person", "per_person": True}, "True"),
        ({"unit": "person", "per_person": 2.0}, "2.0"),
        ({"unit": "person", "per_person": 0}, "0"),
        ({"per_person": 3}, "unit='person'"),
        ({"delta": 1e-6}, "pure"),
        ({"ledger": Ledger()}, "scope"),
    ],
)
def test_what_cannot_be_promised_is_refused_at_once(settings, named):
    with pytest.raises(InputError, match=named):
        PrivateHasher(**{"epsilon": 1.0} | settings)


def test_missing_parts_are_named(features, learned):
    X = features[1]
    for settings, data, named in [
        ({}, {"X": X}, "public"),
        (CENTRAL | {"delta": None}, {"X": X}, "delta"),
        (CENTRAL | {"clip": None}, {"X": X}, "clip"),
        (CENTRAL, {"public": X}, "give X"),
    ]:
        with pytest.raises(InputError, match=named):
            PrivateHasher(1.0, **settings).fit(**data)
    with pytest.raises(InputError, match="fit"):
        PrivateHasher(1.0).release([1], X[:1])
    with pytest.raises(PrivacyError):
        PrivateHasher(4.0).fit(public=learned).transform(X)


def test_it_is_an_estimator(features):
    hasher = PrivateHasher(4.0, unit="person", per_person=2, kinds=8)
    twin = clone(hasher)
    assert twin.get_params() == hasher.get_params()
    assert repr(twin) == "PrivateHasher(epsilon=4.0, kinds=8, per_person=2, unit='person')"
    assert twin.set_params(epsilon=8.0).fit(public=features[0]).hasher_.epsilon == 4.0
    with pytest.raises(InputError, match="epsilon"):
        twin.set_params(epsilon=-1.0).fit(public=features[0])
