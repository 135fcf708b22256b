"""Verdicts follow from evidence, whatever the number of processes, and never from persons an attacker has met."""

import json

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy_interval
from blindsight.sift.attackers import MODERN, PAPER, Attacker, PublicClassifier, train_public_classifier
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.sift import LinearSift
from blindsight.sift.verdict import Confidence, measure, supported_width, with_all_rows
from blindsight.sift.verify import Verifier

LOGISTIC = Attacker("logistic", lambda seed: LogisticRegression(), "standardised")
BAYES = Attacker("bayes", lambda seed: GaussianNB(), "whitened", tune=True)
QUICK = (LOGISTIC, BAYES)


def leaky(rows, leak, seed=0):
    """Numbers from which the best attacker guesses the attribute with PrivLoss `leak`, and the attribute."""
    rng = np.random.default_rng(seed)
    private = rng.integers(0, 2, rows).astype(np.int8)
    told = np.where(rng.random(rows) < 0.5 + leak, private, 1 - private)
    return np.stack([told + 0.1 * rng.standard_normal(rows), rng.standard_normal(rows)], axis=1), private


@pytest.mark.parametrize(("leak", "verdict"), [(0.05, "accept"), (0.10, "inconclusive"), (0.2, "reject")])
def test_verdict(leak, verdict):
    released, private = leaky(6000, leak)
    verification = Verifier(QUICK, stop_early=False).verify(released, {"smiling": private})
    assert verification.verdict == verdict
    assert verification.priv_loss == pytest.approx(leak, abs=0.03)  # four standard errors, and the seed is fixed
    assert verification.sentence.startswith(verdict.capitalize())
    assert (verification.needed is None) == (verdict != "inconclusive")
    assert verification.bound == max(result.reach for result in verification.results) - 0.5
    assert all(result.reach > result.limit for result in verification.results)


def test_more_rows_as_many_as_were_asked_for_decide():
    released, private = leaky(1000, 0.08)
    undecided = Verifier(QUICK).verify(released, {"smiling": private})
    assert undecided.verdict == "inconclusive"
    assert 1000 < undecided.needed < 20_000
    assert f"{undecided.needed:,}" in undecided.sentence
    copies = -(-undecided.needed // 1000)  # the same rows again: accuracies stay what they are
    again = Verifier((LOGISTIC,)).verify(np.tile(released, (copies, 1)), {"smiling": np.tile(private, copies)})
    assert again.verdict != "inconclusive"


def test_a_sift_at_the_threshold_is_accepted_no_more_often_than_stated():
    """False alarm below 1e-6: so seldom does an event of 5% happen 7 times in 12. Both attackers are at .10."""
    rng, accepted = np.random.default_rng(1), 0
    truth = np.repeat([0, 1], 100)
    for _ in range(12):
        guesses = [np.where(rng.random(200) < 0.6, truth, 1 - truth) for _ in range(2)]
        accepted += max(Confidence(0.95, 2).bounds(truth, guess, None)[1] for guess in guesses) <= 0.6
    assert accepted < 7
    guess = np.tile([0, 1, 1, 0], 50)  # intervals hold together, the limit alone
    interval, limit = Confidence(0.95, 4).bounds(truth, guess, None)
    assert interval == balanced_accuracy_interval(truth, guess, confidence=0.95, comparisons=4)
    assert limit == balanced_accuracy_interval(truth, guess, confidence=0.9).high < interval.high


def test_unweighted_attackers_of_the_paper_miss_what_tuned_ones_read():
    rng = np.random.default_rng(3)
    rare = (rng.random(5000) < 0.1).astype(np.int8)
    released = rng.standard_normal((5000, 2)) + 0.9 * rare[:, None]
    verdicts = [Verifier(attackers).verify(released, {"bald": rare}).verdict for attackers in ((PAPER[0],), (BAYES,))]
    assert verdicts == ["accept", "reject"]


def test_a_sure_reject_spares_the_rest():
    released, private = leaky(2000, 0.4)

    def too_expensive(seed):
        raise AssertionError("the cheap attacker had already proven the leak")

    attackers = (LOGISTIC, Attacker("expensive", too_expensive))
    verification = Verifier(attackers).verify(released, {"smiling": private})
    assert (verification.verdict, verification.ending) == ("reject", "sure reject")
    assert [result.attacker for result in verification.results] == ["logistic"]
    with pytest.raises(AssertionError):
        Verifier(attackers, stop_early=False).verify(released, {"smiling": private})


@pytest.mark.slow
def test_processes_do_not_change_the_evidence():
    released, private = leaky(1500, 0.05)
    attackers = (
        *QUICK,
        PAPER[1],
        Attacker("coin", lambda seed: DummyClassifier(strategy="uniform", random_state=seed)),
    )
    alone, together = (
        Verifier(attackers, jobs=jobs, random_state=5).verify(released, {"a": private, "b": 1 - private})
        for jobs in (1, 2)
    )
    assert alone == together
    other = Verifier(attackers, random_state=6).verify(released, {"a": private, "b": 1 - private})
    assert other.results != alone.results


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_progress_and_cancelling_keep_what_was_found(jobs):
    released, private = leaky(1000, 0.0)
    calls = []
    verification = Verifier((*QUICK, PAPER[1]), jobs=jobs).verify(
        released,
        {"smiling": private},
        progress=lambda what, done, total: calls.append((what, done, total)),
        cancelled=lambda: len(calls) == 3,
    )
    assert calls == [("attacking", 0, 3), ("attacking", 1, 3), ("attacking", 2, 3), ("attacking", 2, 3)]
    assert (verification.ending, verification.verdict, len(verification.results)) == ("cancelled", "inconclusive", 2)
    assert "2 of 3" in verification.sentence
    at_once = Verifier(QUICK).verify(released, {"smiling": private}, cancelled=lambda: True)
    assert at_once.verdict == "inconclusive"
    assert json.loads(at_once.to_json())["priv_loss"] is None


def test_recognising_people_is_not_reading_an_attribute():
    rng = np.random.default_rng(2)
    persons = np.repeat(np.arange(200), 6)
    private = rng.permutation(np.arange(200) % 2).astype(np.int8)[persons]
    released = persons[:, None] + 0.01 * rng.standard_normal((1200, 1))  # tells who it is, and nothing else
    nearest = Verifier((Attacker("nearest", lambda seed: KNeighborsClassifier(1)),))
    assert nearest.verify(released, {"male": private}).priv_loss > 0.45
    disjoint = nearest.verify(released, {"male": private}, persons=persons)
    assert abs(disjoint.priv_loss) < 0.2  # 100 independent persons: four standard errors
    assert disjoint.setting.persons == 200


def test_pictures_of_one_person_count_as_what_they_are_worth():
    rng = np.random.default_rng(4)
    truth = np.repeat(np.arange(400) % 2, 5)
    persons = np.repeat(np.arange(400), 5)
    by_person = np.where(np.repeat(rng.random(400) < 0.6, 5), truth, 1 - truth)
    by_picture = np.where(rng.random(2000) < 0.6, truth, 1 - truth)
    sure = Confidence(0.95, 1)
    clustered, careless = (sure.bounds(truth, by_person, who)[0] for who in (persons, None))
    single = sure.bounds(truth[::5], by_person[::5], None)[0]
    assert clustered == pytest.approx(single, abs=0.005)
    assert clustered.high - clustered.low > 2 * (careless.high - careless.low)
    averaged = sure.bounds(truth, by_picture, persons)[0]
    assert averaged.high - averaged.low < 0.9 * (clustered.high - clustered.low)  # five glimpses are worth more


def test_who_votes_for_the_majority_proves_nothing_and_blocks_nothing():
    """200 persons, of whom one has 527 pictures: every guess alike is right in half of the cases, all but surely."""
    pictures = np.r_[527, np.full(199, 5)]
    persons = np.repeat(np.arange(200), pictures)
    truth = persons % 2
    found = measure(truth, np.zeros_like(truth), persons, Confidence(0.95, 13))
    assert found["balanced_accuracy"] == 0.5
    assert found["limit"] < 0.54


def test_unknown_labels_are_left_out_attribute_by_attribute():
    released, private = leaky(2000, 0.05)
    partly = private.copy()
    partly[::2] = -1
    verification = Verifier((LOGISTIC,)).verify(
        released, {"known": private, "partly": partly}, groups=[["known"], ["partly"]]
    )
    known, half = verification.results[:2]
    assert known.positives + known.negatives == 1000
    assert half.positives + half.negatives == pytest.approx(500, abs=2)


def sift_of(width=2, dimension=6):
    return LinearSift(np.zeros(dimension), np.ones(dimension), np.eye(dimension)[:, :width])


def test_sift_with_few_levels_is_certified_whenever_it_can_be_and_attacked_only_beyond():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((6000, 6)).astype(np.float32)
    private = (X[:, 0] + 8 * rng.standard_normal(6000) > 0).astype(np.int8)
    rows, hidden = X[1000:], {"smiling": private[1000:]}
    few = with_few_levels(sift_of(), X[:1000], 2)
    verification = Verifier().verify((few, rows), hidden)
    assert (verification.verdict, verification.certified) == ("accept", True)
    assert [result.attacker for result in verification.results] == ["lookup table"]
    assert verification.bound == verification.certificates[0].bound
    assert verification.statement.guarantee == "certified"
    assert verification.setting.sift == few.digest
    measured = Verifier(QUICK).verify((sift_of(), rows), hidden)
    assert (measured.certified, measured.statement.guarantee) == (False, "measured")
    with pytest.raises(InputError, match="Quantise"):
        Verifier(QUICK).verify((sift_of(), rows), hidden, certified=True)
    many, coin = with_few_levels(sift_of(1), X[:1000], 145), {"coin": (np.arange(3000) % 2).astype(np.int8)}
    few_rows, attacked = (Verifier(QUICK).verify((many, rows[:3000]), coin, certified=wish) for wish in (None, False))
    assert (few_rows.verdict, few_rows.certified) == ("inconclusive", True)  # 10 rows a symbol: no list of attackers
    assert (attacked.verdict, attacked.certified) == ("accept", False)
    assert [result.attacker for result in attacked.results][:3] == ["lookup table", "logistic", "bayes"]


def test_a_certificate_speaks_of_all_private_attributes_together():
    rng = np.random.default_rng(6)
    first, second = rng.integers(0, 2, (2, 6000)).astype(np.int8)
    differ = (rng.random((6000, 1)) < 0.3 + 0.4 * (first ^ second)[:, None]).astype(int)  # tells neither by itself
    alone = Verifier().verify(differ, {"male": first}, certified=True)
    both = Verifier().verify(differ, {"male": first, "young": second}, certified=True)
    assert (alone.verdict, both.verdict) == ("accept", "inconclusive")
    assert [one.attribute for one in both.certificates][:2] == ["male", "young"]
    assert "male and young" in both.sentence
    seldom = np.where(rng.random(6000) < 0.001, 1 - first, first).astype(np.int8)
    with pytest.raises(InputError, match="male and tall"):
        Verifier().verify(differ, {"male": first, "tall": seldom}, certified=True)
    truth = first[:1000]
    clear, unclear = (np.where(rng.random(1000) < right, truth, 1 - truth) for right in (0.9, 0.6))
    clear, unclear = (Verifier().verify(symbols, {"male": truth}, certified=True) for symbols in (clear, unclear))
    assert (clear.verdict, unclear.verdict) == ("reject", "inconclusive")
    assert unclear.needed > 1000


def test_attackers_are_set_on_whether_two_private_attributes_differ():
    rng = np.random.default_rng(7)
    first, second = rng.integers(0, 2, (2, 4000)).astype(np.int8)
    released = (first ^ second) + 0.2 * rng.standard_normal(4000)
    hidden = {"male": first, "young": second}
    apart = Verifier((LOGISTIC,)).verify(released, hidden, groups=[["male"], ["young"]])
    together = Verifier((LOGISTIC,)).verify(released, hidden)
    assert (apart.verdict, together.verdict) == ("accept", "reject")
    assert together.best.attribute == "whether male and young differ"
    assert together.best.balanced_accuracy > 0.95
    both = (first & second) * 0.8 + rng.standard_normal(4000)  # tells of one cell twice what it tells of either
    found = Verifier((BAYES,), stop_early=False).verify(both, hidden)
    assert found.best.attribute == "male and young"
    assert {result.attribute for result in found.results} > {"male and not young", "not male and young"}


def test_a_release_too_wide_for_the_rows_is_accepted_by_certificate_only():
    rng = np.random.default_rng(8)
    hidden = {"male": rng.integers(0, 2, 4000).astype(np.int8)}
    wide, narrow = (Verifier((LOGISTIC,)).verify(rng.standard_normal((4000, width)), hidden) for width in (80, 5))
    assert (wide.verdict, narrow.verdict) == ("inconclusive", "accept")
    assert wide.too_wide
    assert "80 numbers" in wide.sentence
    assert wide.best.limit - 0.5 < wide.bound  # that attackers found nothing proves little
    symbols = Verifier((LOGISTIC,)).verify(rng.integers(0, 2, (4000, 3)), hidden, certified=True)
    assert (symbols.verdict, symbols.too_wide) == ("accept", False)


def test_attackers_that_learn_from_all_rows_take_an_acceptance_back():
    """Whether an even number of six bits is set: half of the rows leave nearest neighbours in cells that lie."""
    rng = np.random.default_rng(12)
    bits = rng.integers(0, 2, (2400, 6))
    labels = np.where(rng.random(2400) < 0.8, bits.sum(axis=1) % 2, 1 - bits.sum(axis=1) % 2).astype(np.int8)
    released, hidden = bits + 0.1 * rng.standard_normal(bits.shape), {"male": labels}
    nearest = Attacker("nearest", lambda seed: KNeighborsClassifier(45), "standardised")
    before = Verifier((nearest,), cross_fitted=0).verify(released, hidden)
    after = Verifier((nearest,)).verify(released, hidden, persons=np.arange(2400))
    assert (before.verdict, after.verdict) == ("accept", "inconclusive")
    assert [result.folds for result in after.results] == [1, 5]
    assert after.best.folds == 5
    assert after.priv_loss > 0.2 > before.bound  # and yet no proof: its limits are approximate
    assert after.best.positives + after.best.negatives == 2400
    blind = Verifier((LOGISTIC,)).verify(rng.standard_normal((40_000, 1)), {"male": np.arange(40_000) % 2})
    assert [result.folds for result in blind.results] == [1]  # more rows teach nothing here


def test_the_learning_curve_foretells_what_more_rows_teach():
    """Classes a known distance apart, a discriminant of their means: 400 rows foretell what 40,000 teach."""
    rng = np.random.default_rng(11)
    labels = np.arange(44_000) % 2
    for features, distance in ((30, 0.8), (200, 1.2)):
        rows = rng.standard_normal((len(labels), features))
        rows[:, 0] += distance * labels

        def read(learned, rows=rows):
            seen, known = rows[:learned], labels[:learned]
            means = [seen[known == value].mean(axis=0) for value in (0, 1)]
            guess = (rows[40_000:] - sum(means) / 2) @ (means[1] - means[0]) > 0
            return float(np.mean(guess == labels[40_000:]))

        told = with_all_rows(read(400), features, (200, 200))
        assert told == pytest.approx(read(40_000), abs=0.03)  # more than three deviations of what 4,000 rows measure
        assert told > read(400) + 0.02
    widths = [supported_width(rows, 1000, threshold=0.1, confidence=0.95) for rows in (500, 2000, 8000)]
    assert widths[1] == pytest.approx(2 * widths[0], abs=2)  # as the root of the rows
    assert widths[2] == pytest.approx(2 * widths[1], abs=2)


def test_whitening_hides_nothing_from_attackers_who_know_the_sift():
    """Two large numbers of sixty tell by their distance from zero; hardened they are as small as the rest."""
    rng = np.random.default_rng(12)
    X = rng.standard_normal((3000, 60)).astype(np.float32) * np.r_[8.0, 8.0, np.full(58, 0.5)].astype(np.float32)
    far = (np.hypot(X[:, 0], X[:, 1]) > 8 * 1.18).astype(np.int8)
    sift = harden(LinearSift(np.zeros(60), np.ones(60), np.eye(60)), X)
    chosen = {one.name: one for one in MODERN}
    pair = [chosen[name] for name in ("kernel SVM, balanced and tuned", "kernel SVM in natural units, tuned")]
    found = Verifier(pair, stop_early=False).verify((sift, X), {"far": far}, certified=False)
    whitened, natural = (result.priv_loss for result in found.results)
    assert natural > 0.35 > 0.25 > whitened


def test_attackers_learn_from_further_rows():
    """Sixty numbers of which each tells a little: 150 rows teach an attacker less than 6,000."""
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 2, 6300).astype(np.int8)
    numbers = rng.standard_normal((6300, 60)) + 0.12 * (2 * labels[:, None] - 1)
    few = Verifier((LOGISTIC,)).verify(numbers[:300], {"male": labels[:300]})
    more = Verifier((LOGISTIC,)).verify(
        numbers[:300], {"male": labels[:300]}, persons=np.arange(300), learn=(numbers[300:], {"male": labels[300:]})
    )
    assert more.setting.train == 6150
    assert more.priv_loss > few.priv_loss + 0.05  # .82 of the best there is, and about .7
    with pytest.raises(InputError, match="60"):
        Verifier((LOGISTIC,)).verify(numbers[:300], {"male": labels[:300]}, learn=(numbers[:, :3], {"male": labels}))


def test_included_mode_ships_a_classifier_and_tells_its_price():
    rng = np.random.default_rng(7)
    public, private = rng.integers(0, 2, (2, 3000)).astype(np.int8)
    X = (rng.standard_normal((3000, 6)) + np.outer(public, (1.5, 0, 0, 0, 0, 1.5))).astype(np.float32)
    verification = Verifier((LOGISTIC,)).verify((sift_of(1), X), {"smiling": private}, public={"male": public})
    classifier = verification.public["male"]
    assert classifier.accuracy == pytest.approx(0.773, abs=0.03)  # Phi(1.5 / 2)
    assert classifier.raw.accuracy == pytest.approx(0.856, abs=0.03)  # Phi(1.5 sqrt(2) / 2)
    assert classifier.pub_loss == pytest.approx(0.082, abs=0.04)
    again = PublicClassifier(classifier.mean, classifier.weights, classifier.threshold)
    assert json.loads(verification.to_json())["public"]["male"]["digest"] == again.summary()["digest"]
    unmeasured = Verifier((LOGISTIC,)).verify(X[:, :1], {"smiling": private}, public={"male": public}).public["male"]
    assert (unmeasured.raw, unmeasured.pub_loss) == (None, None)
    for refuse in (lambda: classifier.predict([[1.0, 2.0]]), lambda: classifier.predict([[np.nan]])):
        with pytest.raises(InputError):
            refuse()
    with pytest.raises(InputError, match="same"):
        train_public_classifier(X, np.ones(3000))


def test_record_tells_what_was_verified_and_with_what():
    released, private = leaky(1000, 0.05)
    record = json.loads(Verifier(QUICK, random_state=9).verify(released, {"smiling": private}).to_json())
    assert record["schema"] == "blindsight/sift-verification"
    assert record["setting"]["random_state"] == 9
    assert record["setting"]["planned"] == 2
    assert record["setting"]["software"]["scikit-learn"]
    assert [row["attacker"] for row in record["results"]][:2] == ["logistic", "bayes"]
    first = record["results"][0]
    assert first["interval"][0] < first["balanced_accuracy"] < first["limit"]
    assert record["statement"]["guarantee"] == "measured"
    who = np.arange(1000)
    sets = {
        Verifier((LOGISTIC,)).verify(numbers, {"smiling": labels}, persons=persons).setting.verification_set
        for numbers, labels, persons in (
            (released, private, None),
            (released, 1 - private, None),
            (2 * released, private, None),
            (released, private, who),
        )
    }
    assert len(sets) == 4


(GOOD, LABELS), HALF = leaky(400, 0.0), np.arange(400) >= 200


@pytest.mark.parametrize(
    ("released", "labels", "named"),
    [
        (np.full((400, 2), np.nan), LABELS, "NaN"),
        (GOOD, np.ones(400), "'p' is the same"),
        (GOOD, np.full(400, -1), "'p' is the same"),
        (GOOD, np.arange(400) < 3, "'p' has 3"),
        (GOOD[:30], LABELS[:30], "200"),
        (GOOD, LABELS[:399], "399"),
        (GOOD, LABELS * 2, "must be 1"),
        (np.zeros((400, 0)), LABELS, "numbers"),
        (np.array([["a"]] * 400), LABELS, "numbers"),
        ((GOOD, GOOD), LABELS, "pair"),
        ((sift_of(), GOOD), LABELS, "got 2"),
    ],
)
def test_bad_data_are_refused(released, labels, named):
    with pytest.raises(InputError, match=named):
        Verifier(QUICK).verify(released, {"p": labels})


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Verifier(QUICK).verify(GOOD, {}), "private"),
        (lambda: Verifier(QUICK).verify(GOOD, {"p": LABELS}, persons=np.arange(3)), "person"),
        (lambda: Verifier(QUICK).verify(GOOD, {"p": HALF}, persons=np.arange(400) // 200), "persons, not pictures"),
        (lambda: Verifier((LOGISTIC,)).verify(GOOD, {"p": LABELS}, public={"q": LABELS[:3]}), "'q'"),
        (lambda: Verifier(threshold=10), "threshold"),
        (lambda: Verifier(confidence=95), "0.95"),
        (lambda: Verifier(jobs=0), "jobs"),
        (lambda: Verifier(attackers="papers"), "'paper'"),
    ],
)
def test_what_makes_no_verification_is_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()


@pytest.mark.slow
def test_modern_attackers_from_end_to_end():
    released, private = leaky(3000, 0.3)
    assert Verifier(stop_early=False, jobs=2).verify(released, {"smiling": private}).verdict == "reject"
    assert (
        Verifier().verify(np.random.default_rng(0).standard_normal((3000, 3)), {"smiling": private}).verdict == "accept"
    )
