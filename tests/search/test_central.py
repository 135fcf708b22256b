"""Central mode: sensitivities by brute force, the noise that is really drawn, and what the function finds."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm
from sklearn.base import clone

from blindsight.dp.accounting import epsilon_of
from blindsight.dp.ledger import Ledger
from blindsight.errors import InputError
from blindsight.metrics import query_average_precision
from blindsight.rng import seeded_bytes
from blindsight.search import central
from blindsight.search.central import CentralHasher, in_directions, sum_of_products, sum_of_rows, sum_with_signs
from blindsight.search.codes import hamming
from blindsight.search.itq import ITQ
from blindsight.search.private import PrivateHasher

FALSE_ALARM = 1e-7


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(6)
    centres, labels = rng.normal(0, 1, (10, 60)), rng.integers(10, size=2000)
    X = centres[labels] + rng.normal(0, 0.7, (2000, 60))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), labels


def neighbours(seed):
    """Return two sets of rows of all kinds that differ in one, and random directions and hyperplanes."""
    rng = np.random.default_rng(seed)
    n, d, bits = rng.integers(1, 30), rng.integers(1, 8), int(rng.integers(1, 10))
    X = (rng.normal(0, 1, (n, d)) * 10.0 ** rng.integers(-4, 5, (n, 1))).astype(np.float32)
    other = X.copy()
    other[rng.integers(n)] = rng.choice([-1, 0, 0.5, 1e6]) * X[0] + rng.choice([0, 1e-3, 1]) * rng.normal(0, 1, d)
    return X, other, rng.normal(0, 0.3, d), np.linalg.qr(rng.normal(0, 1, (d, d)))[0], rng.normal(0, 1, (d, bits))


# --- what exchanging one row can do ---


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
def test_no_exchange_of_a_row_moves_a_sum_by_more_than_stated(seed):
    X, other, mean, W, R = neighbours(seed)
    plan = PLANS[R.shape[1]]
    moved = np.linalg.norm(sum_of_rows(X, 2.0) - sum_of_rows(other, 2.0))
    assert moved <= plan.mean.sensitivity == 2.0
    moved = np.linalg.norm(sum_of_products(X, mean) - sum_of_products(other, mean))
    assert moved <= plan.directions.sensitivity
    assert plan.directions.sensitivity == pytest.approx(math.sqrt(2))
    signs = (sum_with_signs(in_directions(rows, mean, W), R) for rows in (X, other))
    assert np.linalg.norm(next(signs) - next(signs)) <= plan.rotation.sensitivity
    assert plan.rotation.sensitivity == pytest.approx(2 * math.sqrt(R.shape[1]))


PLANS = {bits: CentralHasher(1.0, 1e-6, 1.0, bits=bits).plan() for bits in range(1, 10)}


def test_the_stated_sensitivities_are_reached():
    east, north = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
    nowhere = np.zeros(2)
    assert np.linalg.norm(sum_of_rows(east, 1.0) - sum_of_rows(-east, 1.0)) == 2
    assert np.linalg.norm(sum_of_products(east, nowhere) - sum_of_products(north, nowhere)) == math.sqrt(2)
    # nearly opposite rows to one side of all hyperplanes
    hyperplanes, lean = np.tile([[1.0], [0.0]], 16), np.float32([[0.01, 0]])
    moved = sum_with_signs(north + lean, hyperplanes) - sum_with_signs(-north + lean, hyperplanes)
    assert np.linalg.norm(moved) == pytest.approx(8, rel=1e-3)


@pytest.mark.parametrize("rows", [5, 3000, 2**21])
def test_rows_are_never_longer_than_one_and_sums_are_exact(rows):
    rng = np.random.default_rng(rows)
    units = central._units(rng.normal(0, 1, (500, 3)), rows)
    assert max(sum(int(x * 2**16) ** 2 for x in row) for row in units.tolist()) <= 2**32
    assert np.linalg.norm(units, axis=1).min() > 1 - 1e-3
    assert rows * float(2**16) ** 2 <= 2**53 or np.all(units * 2**15 == np.rint(units * 2**15))
    for scale in (0.0, 1e-300, 1e-170, 1e-80, 1e80):  # too short or long to be measured
        assert np.linalg.norm(central._units(rng.normal(0, scale, (50, 4)), rows), axis=1).max() <= 1


def test_sums_do_not_depend_on_the_order_of_rows(collection):
    X = collection[0]
    mixed = X[np.random.default_rng(1).permutation(len(X))]
    mean = np.full(60, 0.01)
    np.testing.assert_array_equal(sum_of_rows(X, 1.0), sum_of_rows(mixed, 1.0))
    np.testing.assert_array_equal(sum_of_products(X, mean), sum_of_products(mixed, mean))


def test_rows_within_the_clip_are_summed_as_they_are(collection):
    X = collection[0]
    np.testing.assert_allclose(2.0 * sum_of_rows(X, 2.0) / len(X), X.mean(axis=0, dtype=np.float64), atol=1e-4)
    halved = sum_of_rows(X, 0.5) * 0.5
    np.testing.assert_allclose(halved / len(X), 0.5 * X.mean(axis=0, dtype=np.float64), atol=1e-4)


# --- the noise, and what it adds up to ---


@pytest.mark.parametrize(("epsilon", "delta", "iterations"), [(0.1, 1e-8, 5), (1.0, 1e-6, 1), (8.0, 1e-5, 0)])
def test_all_releases_together_keep_to_the_budget_by_three_accountants(epsilon, delta, iterations):
    hasher = CentralHasher(epsilon, delta, 1.0, iterations=iterations)
    losses = hasher.plan().losses
    assert sum(loss.count for loss in losses) == 2 + iterations
    assert epsilon_of(losses, delta=delta) <= epsilon * (1 + 1e-9)
    assert epsilon_of([hasher.loss], delta=delta) == pytest.approx(epsilon_of(losses, delta=delta))  # for a ledger
    # the profile of Balle and Wang, by hand
    mu = math.sqrt(sum(loss.count / loss.noise_multiplier**2 for loss in losses))
    spent = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    assert 0.999 * delta < spent <= delta * (1 + 1e-6)
    # the library, whose own rounding is upwards
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4 * max(1, epsilon))
    for loss in losses:
        accountant.compose(dp_accounting.GaussianDpEvent(loss.noise_multiplier), loss.count)
    assert 0.999 * epsilon < accountant.get_epsilon(delta) <= 1.002 * epsilon


def test_for_persons_the_noise_grows_with_their_pictures():
    one, five = CentralHasher(1.0, 1e-6, 1.0).plan(), CentralHasher(1.0, 1e-6, 1.0, per_person=5).plan()
    for alone, together in zip(one[:3], five[:3], strict=True):
        assert together.sigma == pytest.approx(5 * alone.sigma)
        assert together.sensitivity == alone.sensitivity


def assert_deviation(noise, sigma):
    """Assert that these are draws of this deviation; false alarms: 2e-7."""
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], noise.size) / noise.size
    assert low <= float(np.mean(np.square(noise))) / sigma**2 <= high


def test_the_noise_in_the_released_mean_has_the_stated_deviation():
    X = np.random.default_rng(2).normal(0, 1, (40, 400)).astype(np.float32)
    hasher = CentralHasher(1.0, 1e-6, 50.0, bits=2).fit(X)
    noise = hasher.function_.mean - sum_of_rows(X, 50.0) * 50.0 / 40
    assert_deviation(noise, hasher.plan().mean.sigma * 50.0 / 40)


def test_the_noise_in_directions_and_rotations_has_the_stated_deviation(collection, monkeypatch):
    X, seen = collection[0], []
    release = central.GaussianMechanism.release

    def watched(mechanism, values, source):
        noisy = release(mechanism, values, source)
        seen.append((mechanism, noisy - values))
        return noisy

    monkeypatch.setattr(central.GaussianMechanism, "release", watched)
    hasher = CentralHasher(4.0, 1e-6, 1.0, bits=32).fit(X)
    plan = hasher.plan()
    assert [mechanism for mechanism, _ in seen] == [plan.mean, plan.directions, *[plan.rotation] * plan.iterations]
    assert [noise.shape for _, noise in seen[:2]] == [(60,), (60, 60)]
    for mechanism, noise in seen[1:]:
        assert_deviation(noise, mechanism.sigma)
    averaged = (seen[1][1] + seen[1][1].T) / 2
    assert_deviation(averaged[np.triu_indices(60, 1)], plan.directions.sigma / math.sqrt(2))
    assert_deviation(np.diag(averaged), plan.directions.sigma)


def test_noise_shows_no_directions_and_what_rises_above_it_is_found():
    width, mechanism = 200, CentralHasher(1.0, 1e-6, 1.0).plan().directions
    noise = mechanism.release(np.zeros((width, width)), seeded_bytes(4))
    noise = (noise + noise.T) / 2
    edge = math.sqrt(2 * width) * mechanism.sigma
    assert 0.95 < np.linalg.eigvalsh(noise)[-1] / edge < 1.0  # the edge is where noise ends, not far beyond
    assert central._above_noise(noise, mechanism.sigma, 64).shape == (width, 0)
    planted = np.linalg.qr(np.random.default_rng(5).normal(0, 1, (width, 3)))[0]
    W = central._above_noise(noise + 3 * edge * planted @ planted.T, mechanism.sigma, 64)
    assert W.shape == (width, 3)
    assert np.linalg.svd(planted.T @ W)[1].min() > 0.95
    assert central._above_noise(noise + 3 * edge * planted @ planted.T, mechanism.sigma, 2).shape == (width, 2)


def test_with_too_few_directions_the_hyperplanes_are_random_and_no_more_is_released(collection, monkeypatch):
    monkeypatch.setattr(central, "sum_with_signs", lambda *_: pytest.fail("a rotation was released"))
    hasher = CentralHasher(0.01, 1e-6, 1.0, bits=16, random_state=3).fit(collection[0])
    assert hasher.directions_ == 0
    expected = np.random.default_rng(3).standard_normal((60, 16))
    np.testing.assert_allclose(hasher.function_.matrix, expected, rtol=1e-6)


# --- what it finds ---


def found(hasher, collection):
    X, labels = collection
    codes = hasher.fit(X).transform(X)
    return query_average_precision(hamming(codes[:200], codes), labels[:200, None] == labels).mean()


def test_more_budget_finds_more_and_enough_finds_as_much_as_without_noise(collection):
    # The bytes are fixed, so there are no false alarms.
    scores = [
        found(CentralHasher(epsilon, 1e-6, 1.0, bits=32, source=seeded_bytes(1)), collection)
        for epsilon in (0.05, 2.0, 100.0)
    ]
    assert scores[0] + 0.1 < scores[1] < scores[2] + 0.02
    assert scores[2] > 0.9


def test_rotating_finds_more_than_random_hyperplanes_in_the_same_directions(collection):
    def mean(iterations):
        asked = {"bits": 12, "iterations": iterations}
        hashers = (CentralHasher(100.0, 1e-6, 1.0, random_state=s, source=seeded_bytes(s), **asked) for s in range(3))
        return np.mean([found(hasher, collection) for hasher in hashers])

    assert mean(10) > mean(0) + 0.02


@pytest.mark.parametrize("bits", [1, 7, 100])
def test_any_number_of_bits_also_more_than_features(collection, bits):
    hasher = CentralHasher(50.0, 1e-6, 1.0, bits=bits)
    assert clone(hasher).get_params() == hasher.get_params()
    digests = {hasher.fit(collection[0]).function_.digest for _ in range(2)}
    assert len(digests) == 2  # noise comes from the operating system
    assert hasher.function_.bits == bits
    assert 1 <= hasher.directions_ <= bits
    assert hasher.fit(np.ones((20, 4))).transform(np.ones((2, 4))).shape == (2, -(-bits // 8))  # nothing varies


def test_a_few_bits_are_spent_on_the_foremost_directions(collection):
    X = collection[0]
    hasher = CentralHasher(1e4, 1e-6, 1.0, bits=2).fit(X)
    foremost = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]
    inside = np.linalg.norm(foremost @ hasher.function_.matrix) ** 2 / np.linalg.norm(hasher.function_.matrix) ** 2
    assert inside > 0.99


# --- what it says ---


def test_the_statement_says_what_is_proven_and_what_stays_home(collection):
    statement = CentralHasher(1.0, 1e-6, 1.0).fit(collection[0]).statement_
    assert (statement.status, statement.epsilon, statement.delta) == ("proven", 1.0, 1e-6)
    assert (statement.unit, statement.neighbours) == ("record", "replace")
    assert any("clip = 1" in line for line in statement.assumptions)
    assert any("queries" in line for line in statement.not_protected)
    person = CentralHasher(1.0, 1e-6, 1.0, per_person=3, source=seeded_bytes(1)).fit(collection[0]).statement_
    assert (person.unit, person.status) == ("person", "void")
    assert any("3 of the rows" in line for line in person.assumptions)


@pytest.mark.parametrize(
    ("name", "value"),
    [("epsilon", 0.0), ("delta", 0.0), ("clip", 0.0), ("bits", 0), ("iterations", -1), ("per_person", 0)],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(InputError, match=name):
        CentralHasher(**{"epsilon": 1.0, "delta": 1e-6, "clip": 1.0} | {name: value}).fit(np.eye(4))


def test_a_public_start_is_moved_to_a_private_mean_or_left_as_it_is():
    rng = np.random.default_rng(5)
    public = rng.normal(0, 1, (400, 30)).astype(np.float32) * np.linspace(2, 0.2, 30, dtype=np.float32)
    X = public[:300] / 10 + 0.7  # the same shape elsewhere: signs about the public mean tell little
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    start = ITQ(16, random_state=0).fit(public).function_
    told = np.unique(start(X), axis=0).shape[0]
    hasher = CentralHasher(4.0, 1e-6, 1.0, 16, start=start, source=seeded_bytes(0)).fit(X)
    assert hasher.released_
    np.testing.assert_array_equal(hasher.function_.matrix, start.matrix)
    # The mean of 300 rows carries noise of deviation 2 * 1.1 / 300 in each of 30 numbers: .1 is 14 of these away.
    assert np.abs(hasher.function_.mean - X.mean(axis=0)).max() < 0.1
    assert np.unique(hasher.transform(X), axis=0).shape[0] > 2 * told
    assert (hasher.statement_.epsilon, hasher.loss) == (4.0, CentralHasher(4.0, 1e-6, 1.0).loss)
    assert [one.sensitivity for one in hasher.plan().releases] == [2.0]  # all of the budget
    assert hasher.plan().mean.loss.noise_multiplier == pytest.approx(hasher.loss.noise_multiplier)
    aside = CentralHasher(4.0, 1e-6, 1.0, 16, start=start, start_rows=public, source=seeded_bytes(0)).fit(X)
    assert not np.array_equal(aside.function_.mean, start.mean)
    near = CentralHasher(4.0, 1e-6, 6.0, 16, start=start, start_rows=public[:200], source=seeded_bytes(0))
    assert near.fit(public[200:]).function_ is start  # never below the public one where that is in place
    assert near.released_  # the private mean was looked at, so it is paid for
    assert near.statement_.epsilon == 4.0
    few = CentralHasher(1.0, 1e-6, 1.0, 16, start=start).fit(X[:40])
    assert not few.released_
    assert few.function_ is start
    assert (few.statement_.epsilon, few.statement_.delta) == (0.0, 0.0)
    with pytest.raises(InputError, match="8 bits"):
        CentralHasher(1.0, 1e-6, 1.0, 8, start=start).fit(X)
    ledger = Ledger()
    PrivateHasher(1.0, mode="central", delta=1e-6, clip=1.0, bits=16, ledger=ledger, scope="a").fit(
        X[:40], public=public
    )
    assert not ledger.table(delta=1e-6)  # nothing was released, so nothing is spent
