"""Attackers learn what can be learnt, in every view, and the fast engine stays optional."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from blindsight.errors import InputError, MissingExtraError
from blindsight.metrics import balanced_accuracy
from blindsight.sift import attackers as module
from blindsight.sift.attackers import LOOKUP, MODERN, PAPER, VIEWS, Attacker, best_threshold, chosen_attackers, fit_view

LINEAR = {"linear SVM", "linear SVM, balanced and tuned", "shrinkage discriminant, tuned"}
CURVED = {attacker.name for attacker in MODERN} - LINEAR


@pytest.fixture(scope="module")
def ring():
    """800 points, the attribute says whether they lie outside a circle: no line tells."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((800, 2))
    return points * (3.0, 0.01), (np.sum(points**2, axis=1) > 1.4).astype(np.int8)


@pytest.mark.parametrize("attacker", MODERN, ids=lambda attacker: attacker.name)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_attacker_learns_what_it_can(attacker, ring):
    points, outside = ring
    if attacker.view == "natural":
        points = points / (3.0, 0.01)  # a direction that small is nothing in natural units
    guess = attacker.attack(points[:500], outside[:500], points[500:], seed=3)
    learnt = balanced_accuracy(outside[500:], guess) > 0.85
    assert learnt == (attacker.name in CURVED)
    assert (guess == attacker.attack(points[:500], outside[:500], points[500:], seed=3)).all()


def test_the_papers_parameters():
    linear, nearest, network, kernel, forest = (attacker.make(0) for attacker in PAPER)
    assert linear.C == 10
    assert nearest.n_neighbors == 9
    assert (network.hidden_layer_sizes, network.activation) == ((100,), "tanh")
    assert (kernel.C, kernel.kernel, kernel.gamma) == (10, "rbf", "auto")  # auto: 1 / K
    assert forest.n_estimators == 500
    assert all(model.get_params().get("class_weight") is None for model in (linear, kernel, forest))
    assert set(PAPER) < set(MODERN)


@pytest.mark.parametrize("ties", [3, 1000])
def test_threshold_is_the_best_of_all_by_brute_force(ties):
    rng = np.random.default_rng(3)
    labels = np.arange(30) % 2

    def gain(scores, threshold):
        return np.mean(scores[labels == 1] > threshold) - np.mean(scores[labels == 0] > threshold)

    for _ in range(20):
        scores = rng.integers(0, ties, 30) + 0.3 * ties * labels
        best = max(gain(scores, threshold) for threshold in np.unique(scores) - 1e-3)
        assert best > 0
        assert gain(scores, best_threshold(scores, labels)) == pytest.approx(best)


def test_thresholds_are_tuned_on_training_rows_alone(ring):
    points, outside = ring
    seen = []

    class Spy(GaussianNB):
        def predict_proba(self, X):
            seen.append(len(X))
            return super().predict_proba(X)

    guess = Attacker("spy", lambda seed: Spy(), tune=True).attack(points[:500], outside[:500], points[500:])
    assert seen == [125, 300]  # a quarter of the training rows, then the test rows once
    assert balanced_accuracy(outside[500:], guess) > 0.85


def test_tuning_keeps_persons_apart():
    rng = np.random.default_rng(4)
    persons, labels = np.repeat(np.arange(60), 5), np.repeat(rng.permutation(np.arange(60) % 2), 5).astype(np.int8)
    met = {}

    class Spy(GaussianNB):
        def fit(self, X, y):
            met["learn"] = set(X[:, 0])
            return super().fit(X, y)

        def predict_proba(self, X):
            met.setdefault("held out", set(X[:, 0]))
            return super().predict_proba(X)

    spy = Attacker("spy", lambda seed: Spy(), "released", tune=True)
    spy.attack(persons[:, None], labels, persons[:5, None], persons=persons)
    assert met["learn"].isdisjoint(met["held out"])
    assert len(met["learn"]) + len(met["held out"]) == 60


def test_lookup_table_knows_symbols_by_heart():
    symbols, labels = np.array([[0, 1], [0, 1], [1, 0], [1, 0], [1, 0]]), np.array([1, 1, 0, 0, 1])
    guess = LOOKUP.attack(symbols, labels, np.array([[0, 1], [1, 0], [7, 7]]))
    assert guess.tolist() == [1, 0, 0]


def test_views_whiten_and_round():
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 5000))
    pair = np.stack([a, a + 1e-4 * b, np.full(5000, 7.0)], axis=1) * (1e6, 1e6, 1)
    whitened = fit_view("whitened", pair)(pair)
    assert np.cov(whitened.T) == pytest.approx(np.eye(2), abs=1e-3)  # the constant is gone
    assert max(abs(np.corrcoef(column, b)[0, 1]) for column in whitened.T) > 0.99
    assert len(np.unique(fit_view("quantised", pair)(pair)[:, 0])) == 16
    assert np.std(fit_view("standardised", pair)(pair), axis=0) == pytest.approx([1, 1, 0], abs=1e-5)
    assert (fit_view("released", pair)(pair) == pair).all()
    for view in VIEWS:  # which survive numbers that never change
        assert np.isfinite(fit_view(view, np.full((10, 2), 3.0))(np.full((4, 2), 3.0))).all()


def test_without_the_extra_the_same_attackers_run_on_scikit_learn(monkeypatch, ring):
    def missing(name, *, extra, purpose):
        raise MissingExtraError(f"{purpose} needs {name}. Run: pip install 'blindsight-vision[{extra}]'")

    monkeypatch.setattr(module, "require", missing)
    module.engine.cache_clear()
    try:
        points, outside = ring
        models = [attacker.make(0) for attacker in PAPER]
        assert module.engine() == "scikit-learn"
        assert all(type(model).__module__.startswith("sklearn.") for model in models)
        for attacker in (PAPER[1], PAPER[3]):
            guess = attacker.attack(points[:500], outside[:500], points[500:])
            assert balanced_accuracy(outside[500:], guess) > 0.85
    finally:
        module.engine.cache_clear()


def test_fast_and_plain_attackers_guess_alike(monkeypatch, ring):
    pytest.importorskip("sklearnex")
    points, outside = ring
    fast = [attacker.attack(points[:500], outside[:500], points[500:]) for attacker in (PAPER[1], PAPER[3])]
    assert type(PAPER[3].make(0)).__module__.startswith("sklearnex.")
    monkeypatch.setattr(module, "engine", lambda: "scikit-learn")
    plain = [attacker.attack(points[:500], outside[:500], points[500:]) for attacker in (PAPER[1], PAPER[3])]
    assert np.mean(np.array(fast) == np.array(plain)) > 0.99


def test_bad_attackers_are_refused(ring):
    points, outside = ring
    for refuse, named in [
        (lambda: chosen_attackers("moderm"), "'modern'"),
        (lambda: chosen_attackers([PAPER[0], PAPER[0]]), "name"),
        (lambda: chosen_attackers([]), "one or more"),
        (lambda: fit_view("sideways", points), "view"),
    ]:
        with pytest.raises(InputError, match=named):
            refuse()

    class Silent:
        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.full(len(X), 0.3)

    for tune, named in ((True, "scores"), (False, "300 rows")):
        with pytest.raises(InputError, match=named):
            Attacker("silent", lambda seed: Silent(), tune=tune).attack(points[:500], outside[:500], points[500:])
