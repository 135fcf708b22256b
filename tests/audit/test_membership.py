"""Members of models that memorise are found, models that never saw anybody give nobody away, oracles agree."""

import math
import warnings
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm, rankdata
from sklearn.metrics import roc_auc_score, roc_curve

from blindsight.audit.finding import rate
from blindsight.audit.membership import (
    Game,
    MembershipResult,
    audit_members,
    code_fit,
    fewest_others,
    findings,
    hash_trainer,
    largest_auc,
    largest_tpr,
    likelihood_ratio,
    linear_trainer,
    loss_threshold,
    margin_fit,
    measure,
    of_exchange,
    shadow_attacks,
)
from blindsight.data.features import Standardiser
from blindsight.errors import InputError
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import Attributes, Classes, LinearModel
from blindsight.search import ITQ, CentralHasher
from blindsight.statement import PrivacyStatement

SURE = 1 - 3e-7  # of each of three rows of findings: a false alarm less than once in 10^6


def clouds(rows, dimensions, seed, classes=2):
    """Normal features with a little to learn from."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    X = rng.normal(size=(rows, dimensions))
    X[np.arange(rows), y] += 1
    return X, y


def memoriser(X, y, seed):
    """A model that knows its rows: one nearest neighbour."""

    def fit(rows, labels):
        squares = (rows**2).sum(axis=1)[:, None] + (X**2).sum(axis=1) - 2 * rows @ X.T
        return -squares.min(axis=1)

    return fit


def overfitted(dimensions, classes=2):
    """A linear classifier with next to no ridge: it separates any rows that are fewer than dimensions."""
    standardiser = Standardiser(np.zeros(dimensions), np.ones(dimensions))
    return linear_trainer(LinearTraining(ridge=1e-4), classes=range(classes), standardiser=standardiser, passes=30)


def coin_game(X, y, *, random_state):
    """Half of the rows are members, at random."""
    member = np.zeros(len(X), dtype=bool)
    member[np.random.default_rng(random_state).permutation(len(X))[: len(X) // 2]] = True
    return Game(X, y, member)


@pytest.fixture(scope="module")
def game():
    return coin_game(*clouds(2400, 20, seed=1), random_state=2)


def test_a_model_that_memorises_is_found(game):
    result = loss_threshold(game.train(memoriser, 0), game)
    assert [point.tpr.value for point in result.roc.points] == [1, 1]
    assert {row.verdict for row in findings(result, "1-NN", source="nobody")} == {"leaks"}
    private = findings(result, "1-NN", source="somebody", epsilon=1.0, delta=1e-6)
    assert [row.verdict for row in private] == ["refuted", "refuted", "refuted"]
    assert "TPR is at most 0.0272 at 1.0% FPR" in private[1].proven


@pytest.mark.parametrize("attack", ["threshold", "online", "offline"])
def test_a_model_that_never_saw_the_rows_is_at_chance(game, attack):
    stranger = overfitted(20)(*clouds(1200, 20, seed=5), 0)
    if attack == "threshold":
        result = loss_threshold(stranger, game, confidence=SURE)
    else:
        reference = None if attack == "online" else clouds(2400, 20, seed=6)
        result = likelihood_ratio(
            stranger, game, overfitted(20), shadows=4, reference=reference, confidence=SURE, random_state=0
        )
    assert {row.verdict for row in findings(result, "a stranger", source="nobody")} == {"at chance"}
    private = findings(result, "a stranger", source="us", epsilon=0.0)
    assert [row.verdict for row in private] == ["not refuted", "not refuted", "at chance"]


def mixed(rows, dimensions, seed):
    """Rows of which some are easy, for any model, and others can only be learned by heart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    X = rng.normal(size=(rows, dimensions))
    X[:, 0] = (2 * y - 1) * rng.choice([0, 1.5, 3, 4.5, 6], rows)
    return X.astype(np.float32), y


def test_likelihood_ratios_find_more_than_the_loss_alone():
    """Easy rows are fitted best, members or not: that they say nothing, only shadows know."""
    game, train = coin_game(*mixed(600, 300, seed=1), random_state=2), overfitted(300)
    target = game.train(train, 0)
    plain = loss_threshold(target, game, fprs=(0.01,))
    online = likelihood_ratio(target, game, train, fprs=(0.01,), random_state=3)
    offline = likelihood_ratio(target, game, train, reference=mixed(600, 300, seed=5), fprs=(0.01,), random_state=3)
    assert online.roc.points[0].tpr.low > 2 * plain.roc.points[0].tpr.high
    assert online.roc.auc.value > offline.roc.auc.value + 0.05 > plain.roc.auc.value + 0.1


def test_relative_likelihoods_need_fewer_shadows():
    """On the same target with the same four shadows; the ratio is that of the mean of all shadows."""
    game, train = coin_game(*mixed(600, 300, seed=1), random_state=2), overfitted(300)
    lira, rmia = shadow_attacks(game.train(train, 0), game, train, shadows=4, fprs=(0.01,), random_state=3)
    assert rmia.roc.auc.value > lira.roc.auc.value + 0.02
    assert rmia.roc.auc.low > 0.6
    unseen = train(*mixed(300, 300, seed=9), 0)
    for reference in (None, mixed(600, 300, seed=5)):
        found = shadow_attacks(
            unseen, game, train, shadows=4, reference=reference, fprs=(0.01,), confidence=SURE, random_state=3
        )
        assert not any(result.roc.tells() for result in found)
        assert {result.attack.partition(",")[0] for result in found} == {
            "likelihood ratio",
            "relative likelihood (RMIA)",
        }


@pytest.mark.parametrize(("members", "others", "shift"), [(30, 300, 0.0), (100, 100, 0.5), (60, 60, 1.5)])
def test_intervals_of_the_area_cover_the_truth(members, others, shift):
    """400 draws at 95%: fewer than 350 cover with probability below 1e-5 if 93% do; seeds are fixed."""
    rng, truth = np.random.default_rng(0), norm.cdf(shift / np.sqrt(2))
    found = [measure(rng.normal(shift, 1, members), rng.normal(0, 1, others), fprs=()).auc for _ in range(400)]
    assert sum(one.low <= truth <= one.high for one in found) >= 350
    hoeffding = 2 * np.sqrt(np.log(40) / (2 * min(members, others)))
    assert np.mean([one.high - one.low for one in found]) < hoeffding * 0.7


def test_scores_that_tell_perfectly_have_an_exact_limit():
    told = measure(np.ones(20), np.zeros(50), fprs=()).auc
    assert (told.value, told.high) == (1, 1)
    assert told.low == pytest.approx(0.025 ** (1 / 20))
    assert measure(np.zeros(5), np.ones(5), fprs=()).auc.low == 0
    same = measure(np.zeros(9), np.zeros(9), fprs=())
    assert not same.tells()


def test_a_private_model_has_a_largest_area():
    curve = np.linspace(0, 1, 200_001)
    for epsilon, delta in ((0.5, 0.0), (2.0, 0.01)):
        limit = np.minimum(1, np.minimum(np.exp(epsilon) * curve + delta, 1 - np.exp(-epsilon) * (1 - delta - curve)))
        assert largest_auc(epsilon, delta) == pytest.approx(np.trapezoid(limit, curve), abs=1e-4)


@pytest.mark.parametrize(
    ("neighbours", "expected"), [("replace", (1.0, 1e-6)), ("add/remove", (2.0, (1 + math.e) * 1e-6))]
)
def test_members_and_others_trade_places_which_is_twice_one_that_is_there_or_not(neighbours, expected):
    stated = PrivacyStatement(
        guarantee="differential privacy",
        mechanism="noise",
        unit="record",
        epsilon=1.0,
        delta=1e-6,
        randomness="operating system",
        who_sees={"all": "the model"},
        not_protected=("time",),
        assumptions=(),
        accountant="pld",
        neighbours=neighbours,
    )
    assert of_exchange(stated) == pytest.approx(expected)
    assert of_exchange(None) == (None, 0.0)


def test_a_row_says_which_rate_of_false_alarms_it_may_really_have():
    others = np.arange(200.0)
    roc = measure(np.arange(190.0, 290.0), others, fprs=(0.01,))
    row = findings(MembershipResult("asking", roc), "the model", source="us")[0]
    assert f"truly {roc.points[0].fpr.high:.1%} at most" in row.measure
    loose = findings(MembershipResult("asking", roc), "the model", source="us", epsilon=8.0)[0]
    assert loose.proven.startswith("nothing")  # e^8 times 1% is no limit


@pytest.mark.parametrize("shadows", [4, 64])
def test_likelihood_ratios_are_those_of_normal_densities(shadows):
    """Fits that a test makes up, ratios by scipy: one deviation for all rows, or with many shadows one each."""
    rng = np.random.default_rng(0)
    game = coin_game(np.arange(40.0)[:, None], np.zeros(40), random_state=1)
    kept = []

    def train(X, y, seed):
        inside = np.isin(np.arange(40), X[:, 0])
        fits = rng.normal(size=40) * (1 + np.arange(40)) + 3 * inside
        kept.append((inside, fits))
        return lambda X, y: fits

    target = rng.normal(size=40)
    result = likelihood_ratio(lambda X, y: target, game, train, shadows=shadows, fprs=(0.1,), random_state=2)
    inside, fits = (np.array(part) for part in zip(*kept, strict=True))
    assert (inside.sum(axis=0) == shadows // 2).all()
    logs = []
    for models in (inside, ~inside):
        rows = [fits[models[:, row], row] for row in range(40)]
        variances = np.array([np.var(row, ddof=1) for row in rows])
        spread = np.sqrt(variances.mean() if shadows == 4 else variances)
        logs.append(norm.logpdf(target, [row.mean() for row in rows], spread))
    expected = logs[0] - logs[1]
    np.testing.assert_allclose(np.sort(result.roc.members), np.sort(expected[game.member]))
    np.testing.assert_allclose(np.sort(result.roc.others), np.sort(expected[~game.member]))


def test_the_loss_threshold_is_that_of_the_adversarial_robustness_toolbox():
    """Its black-box attack, a logistic regression of loss and label, puts rows of one label in order of loss."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inference = pytest.importorskip("art.attacks.inference.membership_inference")
        classification = pytest.importorskip("art.estimators.classification")
    X, y = clouds(1200, 100, seed=7)
    both = coin_game(X.astype(np.float32), y, random_state=8)
    weights = (both.y[both.member] * 2 - 1) @ both.X[both.member] / 600
    game = Game(both.X[y == 1], y[y == 1], both.member[y == 1])
    layer = torch.nn.Linear(100, 2)
    with torch.no_grad():
        layer.weight[0], layer.weight[1], layer.bias[:] = 0, torch.tensor(weights), 0
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = classification.PyTorchClassifier(layer, loss, (100,), 2, device_type="cpu")
        attack = inference.MembershipInferenceBlackBox(classifier, attack_model_type="lr", input_type="loss")
        members, others = ((game.X[rows], game.y[rows]) for rows in (game.member, ~game.member))
        attack.fit(*members, *others)
        theirs = attack.infer(game.X, game.y, probabilities=True)[:, 0]
    model = LinearModel(np.append(weights, 0)[None], Standardiser(np.zeros(100), np.ones(100)), Classes(np.arange(2)))
    ours = loss_threshold(margin_fit(model), game, fprs=(0.01, 0.1)).roc
    assert ours.auc.value == pytest.approx(roc_auc_score(game.member, theirs), abs=1e-4)  # theirs are float32
    assert ours.auc.value > 0.55
    fpr, tpr, _ = roc_curve(game.member, theirs, drop_intermediate=False)
    for point in ours.points:
        assert point.tpr.value == pytest.approx(tpr[fpr <= point.allowed].max(), abs=1e-9)


def test_margins_are_scores_above_the_best_other_class_and_codes_are_judged_by_their_quantisation_error():
    labels, standardiser = Classes(np.array(["a", "b", "c"])), Standardiser(np.zeros(2), np.ones(2))
    weights = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0.5]])
    fit = margin_fit(LinearModel(weights, standardiser, labels))
    rows = np.array([[3.0, 1], [3, 1], [0, 0]])
    np.testing.assert_allclose(fit(rows, np.array(["a", "b", "c"])), [2, -2, 0.5])
    with pytest.raises(InputError, match="attributes"):
        margin_fit(LinearModel(weights, standardiser, Attributes(3)))
    function = ITQ(4).fit(np.random.default_rng(0).normal(size=(50, 6))).function_
    rows = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    scores = function.scores(rows)
    expected = [-np.mean([(np.copysign(1, s) - s) ** 2 for s in row]) for row in scores]
    np.testing.assert_allclose(code_fit(function)(rows, np.zeros(5)), expected, rtol=1e-5)


def test_an_overfitted_linear_classifier_gives_its_members_away():
    rng = np.random.default_rng(17)
    game = coin_game(rng.normal(size=(600, 300)), rng.integers(0, 3, 600), random_state=18)
    result = loss_threshold(game.train(overfitted(300, classes=3), 0), game, fprs=(0.1,), confidence=SURE)
    assert findings(result, "a linear classifier", source="nobody")[-1].verdict == "leaks"
    assert result.roc.points[0].tpr.value > 0.2


def test_iterative_quantisation_of_few_rows_shows_which():
    X, y = clouds(1100, 64, seed=13)
    game = Game(X.astype(np.float32), y, np.random.default_rng(14).permutation(1100) < 70)
    target = game.train(hash_trainer(lambda seed: ITQ(48, random_state=seed)), 0)
    result = loss_threshold(target, game, fprs=(0.01,), confidence=SURE)
    assert findings(result, "ITQ of 70 rows", source="nobody")[-1].verdict == "leaks"


def test_rows_of_an_audit_share_their_error():
    """Nothing was trained on anything: of the rows of an audit together, one in twenty may say otherwise."""
    rng = np.random.default_rng(0)
    game = coin_game(rng.normal(size=(1200, 2)), np.zeros(1200), random_state=1)
    fits = {seed: rng.normal(size=1200) for seed in range(99)}
    rows = audit_members(
        lambda X, y: fits[0],
        game,
        lambda X, y, seed: lambda X, y: fits[seed % 98 + 1],
        "it",
        effort=0.25,
        seed=0,
    )
    assert len(rows) >= 6
    assert sum(1 - row.measured.confidence for row in rows) <= 0.05 + 1e-9


def test_a_private_hash_function_stays_within_its_epsilon():
    X, y = clouds(2400, 16, seed=15)
    game = coin_game((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y, random_state=16)
    target = game.train(hash_trainer(lambda seed: CentralHasher(1.0, 1e-6, 1.0, bits=16, random_state=seed)), 0)
    result = loss_threshold(target, game, confidence=SURE)
    rows = findings(result, "central mode", source="its statement", epsilon=1.0, delta=1e-6)
    # True by proof, whatever the noise was: below 10^-6 only by the intervals' own error.
    assert [row.verdict for row in rows[:-1]] == ["not refuted", "not refuted"]
    assert rows[0].to_dict()["details"]["others"] == 1200


scores = st.lists(st.integers(0, 12).map(float), min_size=10, max_size=60)  # few values: many draws


@settings(max_examples=40)
@given(members=scores, others=scores)
def test_curve_and_area_are_scikit_learns(members, others):
    roc = measure(members, others, fprs=(0.1,))
    truth = np.repeat([1, 0], [len(members), len(others)])
    fpr, tpr, _ = roc_curve(truth, members + others, drop_intermediate=False)
    np.testing.assert_allclose(roc.curve(), (fpr, tpr))
    assert roc.auc.value == pytest.approx(roc_auc_score(truth, members + others))
    assert roc.auc.low <= roc.auc.value <= roc.auc.high


@settings(max_examples=40)
@given(members=scores, others=scores, allowed=st.sampled_from([0.1, 0.2, 0.5]))
def test_no_threshold_finds_more_members_at_the_allowed_rate(members, others, allowed):
    (point,) = measure(members, others, fprs=(allowed,)).points
    candidates = [-1.0, *sorted(set(members + others))]
    rates = [(np.mean(np.array(others) > t), np.mean(np.array(members) > t)) for t in candidates]
    assert point.tpr.value == max(tpr for fpr, tpr in rates if fpr <= allowed)
    assert point.fpr.value <= allowed <= 1


@given(st.data())
def test_rates_have_clopper_and_pearsons_interval(data):
    trials = data.draw(st.integers(1, 300))
    hits, confidence = data.draw(st.integers(0, trials)), data.draw(st.sampled_from([0.9, 0.95, 0.999]))
    found, exact = rate(hits, trials, confidence=confidence), binomtest(hits, trials).proportion_ci(confidence)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)


@settings(max_examples=40)
@given(members=scores, others=scores)
def test_rank_test_agrees_with_permutations_on_small_samples(members, others):
    """The exact p-value of a few distinct scores, by trying every division of them."""
    inside, outside = np.array(members[:4]) + np.arange(4) / 16, np.array(others[:4]) + np.arange(4) / 16 + 1 / 128
    found = measure(inside, outside, fprs=(0.5,)).p_value
    both = np.concatenate([inside, outside])
    sums = [sum(rankdata(both)[list(chosen)]) for chosen in combinations(range(8), 4)]
    assert found == pytest.approx(np.mean(np.array(sums) >= rankdata(both)[:4].sum() - 1e-9))


def test_a_small_gain_over_many_rows_is_not_called_chance():
    rng = np.random.default_rng(0)
    roc = measure(rng.normal(0.2, 1, 1200), rng.normal(size=600), fprs=(0.1,))
    assert roc.auc.low > 0.5
    assert roc.tells()
    assert not measure(np.zeros(50), np.zeros(50), fprs=(0.1,)).tells()


def test_scores_that_tell_nothing_are_seldom_called_a_leak():
    """At a tail of 2.5% 15 of 600 are expected; 45 or more happen less than once in 10^9."""
    rng = np.random.default_rng(0)
    alarms = sum(measure(rng.random(60), rng.random(40), fprs=(0.5,)).tells() for _ in range(600))
    assert 2 <= alarms < 45


def test_the_true_rate_behind_a_threshold_is_within_its_interval():
    rng, misses, confidence = np.random.default_rng(0), 0, 0.9
    for _ in range(500):
        (point,) = measure([0.0], rng.random(200), fprs=(0.05,), confidence=confidence).points
        misses += not point.fpr.low <= 1 - point.threshold <= point.fpr.high
    # At most 10% of 500 miss, on average; 95 or more happen less than once in 10^8.
    assert misses < 95


def test_what_cannot_be_played_or_measured_is_refused(game):
    assert measure(np.arange(10.0), np.arange(1000.0)).points[0].fpr.value == 0.001
    assert fewest_others(0.003) == 334
    assert largest_tpr(0.001, 0.0, 0.0) == 0.001
    assert largest_tpr(0.5, 100.0, 0.0) == largest_tpr(0.5, float("inf"), 0.0) == 1
    for call, words in [
        (lambda: largest_tpr(0.5, -1.0, 0.0), "epsilon"),
        (lambda: Game(game.X, game.y, np.ones(2400, dtype=bool)), "one kind"),
        (lambda: Game(game.X, game.y[:5], game.member), "mark"),
        (lambda: loss_threshold(lambda X, y: np.zeros(3), game), r"2400.*3"),
        (lambda: likelihood_ratio(memoriser(game.X, game.y, 0), game, memoriser, shadows=5), "got 5"),
        (lambda: measure(np.arange(10.0), np.arange(999.0)), r"1,000.*999"),
        *((lambda bad=bad: measure(bad, [1.0], fprs=(0.5,)), "scores") for bad in ([], [np.nan], [["a"]])),
        (lambda: measure([1.0], [0.0], fprs=(1,)), r"FPR.*got 1"),
        (lambda: rate(3, 2), "3 of 2"),
        (lambda: rate(1, 2, confidence=95), r"0\.95"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
