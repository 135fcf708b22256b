"""Certificates hold against every attacker: by brute force over all of them, and by simulated coverage."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy, balanced_accuracy_interval
from blindsight.sift.certificate import Certificate, certify, certify_joint, symbol_codes
from blindsight.sift.consent import readings
from blindsight.sift.harden import with_few_levels
from blindsight.sift.sift import LinearSift
from blindsight.sift.verify import Verifier
from blindsight.statement import PrivacyStatement


def rows(yes, no):
    """Symbols and labels with so many rows of every symbol."""
    symbols = np.concatenate([np.repeat(np.arange(len(counts)), counts) for counts in (yes, no)])
    return symbols, np.repeat([1, 0], [sum(yes), sum(no)])


@settings(max_examples=6, deadline=None)
@given(st.lists(st.tuples(st.integers(10, 200), st.integers(10, 200)), min_size=2, max_size=3))
def test_estimate_and_bound_are_those_of_the_best_of_all_attackers(counts):
    yes, no = zip(*counts, strict=True)
    symbols, private = rows(yes, no)
    certificate = certify(symbols, private, confidence=0.95)
    losses, limits = [], []
    for said in product((0, 1), repeat=len(counts)):  # every attacker: what it says to each symbol
        guess = np.array(said)[symbols]
        losses.append(balanced_accuracy(private, guess) - 0.5)
        limits.append(balanced_accuracy_interval(private, guess, confidence=0.9).high - 0.5)
    assert certificate.estimate == pytest.approx(max(losses))
    assert certificate.bound == pytest.approx(min(0.5, max(limits)))  # skipping attackers lost nothing
    assert certificate.method == "exact binomial"


@pytest.mark.parametrize(("symbols", "people"), [(3, None), (9, None), (2, 3)])
def test_coverage_is_at_least_the_stated_confidence(symbols, people):
    """False alarm below 1e-6: so seldom does a coverage of 90% fail 19 of 50 times or more."""
    rng = np.random.default_rng(symbols)
    with_it, without = rng.dirichlet(np.full(symbols, 5.0), 2)
    truth = float(np.abs(with_it - without).sum()) / 4
    copies, failures = people or 1, 0
    for _ in range(50):
        yes, no = (rng.choice(symbols, 130, p=law) for law in (with_it, without))
        released = np.repeat(np.concatenate([yes, no]), copies)  # a person's pictures all look the same: the worst case
        private, persons = np.repeat([1, 0], 130 * copies), np.repeat(np.arange(260), copies)
        bound = certify(released, private, confidence=0.9, persons=persons if people else None).bound
        failures += bound < truth
    assert failures < 19


def test_pictures_of_the_same_person_are_not_counted_twice():
    symbols, private = rows((220, 180), (180, 220))
    once = certify(symbols, private, confidence=0.95, persons=np.arange(800))
    thrice = [np.repeat(column, 3) for column in (symbols, private, np.arange(800))]
    repeated = certify(thrice[0], thrice[1], confidence=0.95, persons=thrice[2])
    careless = certify(thrice[0], thrice[1], confidence=0.95)
    assert once == certify(symbols, private, confidence=0.95)
    assert (repeated.n1, repeated.n0, repeated.estimate) == (once.n1, once.n0, once.estimate)
    assert careless.bound < once.bound < repeated.bound < once.bound + 0.004  # part of the error is for averages


def test_published_example_is_certified_more_closely_than_by_a_union_over_attackers():
    """5,867 rows, PrivLoss .058: .075 by a union bound over attackers; a plain label at .084 could not be certified."""

    def label(loss, n1=2900, n0=2967):
        return rows(
            (round(n1 * (0.5 + loss)), n1 - round(n1 * (0.5 + loss))),
            (n0 - round(n0 * (0.5 + loss)), round(n0 * (0.5 + loss))),
        )

    symbol, plain = (certify(*label(loss), confidence=0.95) for loss in (0.058, 0.084))
    union = 0.058 + np.sqrt((np.log(2) + np.log(20)) * (1 / 2900 + 1 / 2967) / 2) / 2
    assert union == pytest.approx(0.075, abs=0.001)
    assert 0.066 < symbol.bound < 0.070
    assert plain.bound < 0.10


def test_more_symbols_cost_no_confidence_only_estimate():
    rng = np.random.default_rng(0)
    private = rng.integers(0, 2, 4000)
    few, many = (certify(rng.integers(0, m, 4000), private, confidence=0.95) for m in (9, 100))
    assert many.bound - many.estimate == pytest.approx(few.bound - few.estimate)
    assert many.estimate > 2 * few.estimate
    tiny = certify(rng.integers(0, 9, 4000), private, confidence=0.95, share=1e-12)
    assert (tiny.method, tiny.share) == ("Hoeffding", 1e-12)
    assert tiny.bound > few.bound


def test_joint_certificate_bounds_every_question_about_the_private_bits():
    rng = np.random.default_rng(6)
    first, second = rng.integers(0, 2, (2, 6000))
    symbols = (rng.random(6000) < 0.4 + 0.2 * (first ^ second)).astype(int)  # tells neither, but whether they differ
    alone = [certify(symbols, bit, confidence=0.95).bound for bit in (first, second)]
    joint = certify_joint(symbols, {"male": first, "young": second}, confidence=0.95)
    assert max(alone) < 0.05
    assert "male and young" in joint.attribute
    classes = 2 * first + second
    for question in (1, 3, 6, 7, 9, 14):  # ways to split the four combinations in two
        assert certify(symbols, (question >> classes) & 1, confidence=0.95).estimate <= joint.bound
    assert joint.bound > certify(symbols, first ^ second, confidence=0.95).estimate > 0.08


def test_unknown_labels_are_left_out():
    symbols, private = rows((300, 200), (200, 300))
    known = certify(symbols, private, confidence=0.95)
    between = np.concatenate([np.zeros(50, int), 1 + 2 * symbols, np.full(50, 2)])  # unknown rows below and in between
    unknown = np.concatenate([np.full(50, -1), private, np.full(50, -1)])
    assert certify(between, unknown, confidence=0.95) == known
    both = certify_joint(between, {"a": unknown}, confidence=0.95)
    assert (both.estimate, both.bound) == (known.estimate, known.bound)


def test_levels_of_several_numbers_are_one_alphabet():
    assert symbol_codes([[0, 1], [1, 0], [0, 1]]).tolist() == [0, 1, 0]
    rng = np.random.default_rng(7)
    X = rng.standard_normal((3000, 4)).astype(np.float32)
    sift = LinearSift(np.zeros(4), np.ones(4), np.eye(4)[:, :2])
    few = with_few_levels(sift, X[:1000], 3)
    assert few.alphabet == 9
    assert np.bincount(few.apply(X[:1000])[:, 0]) == pytest.approx(1000 / 3, abs=2)
    private = (X[1000:, 0] > 0).astype(int)
    certificate = certify(few.apply(X[1000:]), private, confidence=0.95)
    assert certificate == certify(few.symbols(X[1000:]), private, confidence=0.95)
    assert certificate.bound > certificate.estimate > 0.3
    with pytest.raises(InputError, match="2 levels"):
        with_few_levels(sift, X, 1)
    with pytest.raises(InputError, match="4 different"):
        with_few_levels(sift, np.rint(X / 3), 4)


def test_statement_says_that_it_holds_for_everyone():
    certificate = certify(*rows((300, 200), (200, 300)), confidence=0.95, attribute="smiling")
    statement = certificate.statement
    assert statement.status == "proven"
    for fact in ("Certified", "smiling", "anybody", "95% sure"):
        assert fact in statement.headline()
    assert PrivacyStatement.from_json(statement.to_json()) == statement
    assert Certificate("x", 0.1, 0.12341, 0.95, 2, 9, 9, "Hoeffding").sentence.count("62.4%") == 1  # rounded up
    assert certificate.to_dict()["bound"] == certificate.bound


SAME, HALF = np.zeros(100, int), np.arange(100) % 2


@pytest.mark.parametrize(
    ("symbols", "private", "confidence", "named"),
    [
        (np.arange(100), HALF, 0.95, "100 symbols"),
        *((SAME, labels, 0.95, "in all rows") for labels in (SAME, SAME + 1, SAME - 1)),
        (np.zeros(100), HALF, 0.95, "Quantise"),
        (SAME[1:], HALF, 0.95, "99, 100"),
        (SAME, HALF, 95, "0.95"),
        (SAME, np.arange(100) % 3, 0.95, "must be 1"),
    ],
)
def test_bad_input_is_refused(symbols, private, confidence, named):
    with pytest.raises(InputError, match=named):
        certify(symbols, private, confidence=confidence)


def test_a_rare_symbol_that_gives_few_people_away_surely_is_not_accepted():
    """4% of those who have it get a symbol that nobody else gets: on average they gain .02."""
    rng = np.random.default_rng(3)
    private = np.repeat([0, 1], 3000).astype(np.int8)
    symbols = rng.integers(0, 2, 6000)
    harmless = certify(symbols, private, confidence=0.95)
    assert 0 < harmless.exposed < 0.002  # only what nobody has seen in 3,000 rows
    symbols[private == 1] = np.where(rng.random(3000) < 0.04, 2, symbols[private == 1])
    found = certify(symbols, private, confidence=0.95)
    assert found.bound < 0.10
    assert 0.04 < found.exposed < 0.08
    verified = Verifier().verify(symbols, {"smiling": private}, certified=True)
    assert (verified.verdict, verified.exposed) == ("inconclusive", found.exposed)
    assert "90%" in verified.sentence
    assert Verifier(exempt=0.08).verify(symbols, {"smiling": private}, certified=True).verdict == "accept"
    flipped = certify(symbols, 1 - private, confidence=0.95)
    assert flipped.exposed == pytest.approx(found.exposed)  # of those who lack it as of those who have it


@pytest.mark.parametrize("m", [3, 20])
def test_the_share_of_exposed_people_is_covered(m):
    """The limit fails in 5% of cases at most; 15 of 60 would be a false alarm below 1e-6."""
    rng, failed = np.random.default_rng(m), 0
    common = (1 - 0.05 - 0.004) / (m - 2)
    p1, p0 = (np.r_[rare, 0.05 + 0.004 - rare, np.full(m - 2, common)] for rare in (0.05, 0.004))
    assert p1[0] / p0[0] > 9
    for _ in range(60):
        symbols = np.r_[rng.choice(m, 1000, p=p1), rng.choice(m, 1000, p=p0)]
        found = certify(symbols, np.repeat([1, 0], 1000), confidence=0.95)
        failed += found.exposed < 0.05  # the truth
    assert failed < 15


@pytest.mark.parametrize("shown", ["those who differ", "odd parity of three", "one cell and a few others"])
def test_a_rare_symbol_that_tells_several_attributes_together_is_not_accepted(shown):
    """None of the attributes is told by itself, on average or surely; who knows all but one of them is told that."""
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2, (3, 24_000)).astype(np.int8)
    a, b, c = bits
    odd = (a ^ b if shown == "those who differ" else a ^ b ^ c) == 1
    chance = np.where(odd, 0.12, 0.0)
    if shown.startswith("one cell"):
        chance = np.where((a == 1) & (b == 0), 0.12, np.where((a == 0) & (b == 1), 0.04, 0.0))
    symbols = (rng.random(24_000) < chance).astype(np.int64)
    hidden = dict(zip("abc", bits if shown.startswith("odd") else bits[:2], strict=False))
    alone = [certify(symbols, column, confidence=0.95) for column in hidden.values()]
    found = certify_joint(symbols, hidden, confidence=0.95)
    assert max(one.bound for one in alone) < 0.05
    assert max(one.exposed for one in alone) < 0.02
    assert found.bound < 0.10
    assert (found.surest, 0.1 < found.exposed < 0.2) == (0.9, True)
    verified = Verifier().verify(symbols, hidden, certified=True)
    assert (verified.verdict, verified.exposed) == ("inconclusive", found.exposed)
    assert f"{np.ceil(1e3 * found.exposed) / 10:.1f}%" in verified.sentence
    reading = readings(verified)[-1]
    assert (reading.attribute, reading.surest, reading.exposed) == (found.attribute, 0.9, found.exposed)
    assert Verifier(exempt=0.2).verify(symbols, hidden, certified=True).verdict == "accept"
    assert Verifier().verify(symbols, {"a": a}, certified=True).verdict == "accept"


def test_a_joint_certificate_of_what_tells_nothing_is_accepted():
    bits = np.random.default_rng(12).integers(0, 2, (2, 1200)).astype(np.int8)
    hidden, symbols = dict(zip("ab", bits, strict=True)), np.arange(1200) % 2
    assert min((2 * bits[0] + bits[1] == cell).sum() for cell in range(4)) > 253  # the fewest that show it
    assert Verifier(share=0.25).verify(symbols, hidden, certified=True).verdict == "accept"


@pytest.mark.parametrize("m", [2, 20])
def test_the_share_of_people_exposed_by_a_joint_question_is_covered(m):
    """The largest of 12 pairs and 10 questions, at the alpha of one: it fails in 5% of cases at most, so that 11 of 30
    would be a false alarm below 1e-6. The truth is .05, of those who differ.
    """
    rng, failed = np.random.default_rng(m), 0
    first, second = np.repeat([0, 0, 1, 1], 500), np.tile(np.repeat([0, 1], 500), 2)
    for _ in range(30):
        rare = rng.random(2000) < np.where(first != second, 0.05, 0.004)
        symbols = np.where(rare, 0, rng.integers(1, m, 2000))
        failed += certify_joint(symbols, {"a": first, "b": second}, confidence=0.95).exposed < 0.05
    assert failed < 11


def clustered(rng, people, pictures, alike):
    """Persons with several pictures, each like the others with a probability; the symbol gains .08."""
    who = np.repeat(np.arange(people), pictures)
    private = np.arange(people) % 2
    mine = rng.random(people) < np.where(private == 1, 0.58, 0.42)
    again = rng.random(len(who)) < np.where(private[who] == 1, 0.58, 0.42)
    symbols = np.where(rng.random(len(who)) < alike, mine[who], again)
    return symbols.astype(np.int64), private[who].astype(np.int8), who


def bounds_of(rng, runs, people, most, alike):
    """Certificates of so many samples; one person has `most` pictures, others up to ten."""
    for _ in range(runs):
        pictures = rng.integers(1, min(most, 10) + 1, people)
        pictures[0] = most
        symbols, private, who = clustered(rng, people, pictures, alike)
        yield certify(symbols, private, confidence=0.95, persons=who)


@pytest.mark.parametrize(("most", "alike"), [(5, 0.7), (527, 0.7), (10, 0.2)])
def test_persons_count_once_each_however_many_pictures_they_have(most, alike):
    """Mean bound at a truth of .08, 1,000 persons. Its deviation is .016; 8 of 8 bounds would fail once in 1e10."""
    found = list(bounds_of(np.random.default_rng(most), 8, 1000, most, alike))
    assert np.mean([one.bound for one in found]) <= 0.11 + 0.01
    assert any(one.bound > 0.08 for one in found)
    assert any(one.method == "betting" for one in found) or alike > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("most", "alike"), [(1, 0.0), (5, 0.7), (527, 0.7), (10, 0.2), (5, 1.0)])
def test_bounds_over_persons_cover_and_are_close(most, alike):
    """400 samples: at a coverage of 95%, 41 failures or more would be a false alarm below 1e-4 per case."""
    bounds = np.array([one.bound for one in bounds_of(np.random.default_rng(most), 400, 1000, most, alike)])
    assert bounds.mean() <= 0.11
    assert (bounds < 0.08).sum() < 41


def test_a_momentary_attribute_is_certified_person_by_person():
    """Everybody is on pictures of either class, and shows the same symbol on all."""
    rng = np.random.default_rng(5)
    who = np.repeat(np.arange(600), 6)
    private = rng.integers(0, 2, len(who))
    blind = certify(rng.integers(0, 2, 600)[who], private, confidence=0.95, persons=who)
    assert blind.n1 + blind.n0 == 600
    assert blind.bound < 0.12
    telling = certify(private, private, confidence=0.95, persons=who)
    assert telling.bound == telling.estimate == 0.5
