"""Learning with noise inside the sum: what is cut, counted, refused and stated; and that it learns.

Noise is injected where a figure is compared. A test with the operating system's noise states its false-alarm rate.
"""

import math
import warnings
from datetime import date
from fractions import Fraction

import numpy as np
import pytest
from sklearn.datasets import load_digits

from blindsight.data.features import Standardiser
from blindsight.dp.ledger import Ledger
from blindsight.errors import BudgetExceededError, InputError, PrivacyError, UnknownNameError
from blindsight.learn import private
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.model import Attributes, Classes
from blindsight.learn.private import PrivateLearner, PublicSpace, Records, public_start, residuals, targets
from blindsight.rng import seeded_bytes
from blindsight.rounds import Memory, Privacy, RoundSum, Sums
from blindsight.sums import DpheOptions, open_session

TEN = Classes(np.arange(10))
BUDGET = {"epsilon": 4.0, "delta": 1e-5, "unit": "record"}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


@pytest.fixture(scope="module")
def shared_out(digits):
    X, y = digits
    owners = {name: (X[200 + k : 1400 : 5], y[200 + k : 1400 : 5]) for k, name in enumerate("abcde")}
    return owners, (X[:100], y[:100]), (X[1400:], y[1400:])


def learner(shared_out, *, source=None, labels=TEN, **privacy):
    owners, (X0, y0), test = shared_out
    standardiser = Standardiser.fit(X0)
    public = standardiser.apply(X0)
    space = PublicSpace.fit(public)
    sizes = [len(X) for X, _ in owners.values()]
    plan = Privacy(**BUDGET | privacy).plan(
        members=len(owners), dimension=labels.rows * space.size, rounds=10, records=max(sizes), scheme="plain"
    )
    held_out, known = (standardiser.apply(test[0]), test[1]), Records(space.rows(public), targets(labels, y0))
    return PrivateLearner(labels, standardiser, space, plan, sum(sizes), known, held_out, source or seeded_bytes(1))


def test_it_learns_from_records_that_nobody_shows(shared_out):
    owners, public, test = shared_out
    privacy = Privacy(**BUDGET, colluders=1, drop_outs=1)
    model = FederatedClassifier("masks", privacy=privacy).fit(owners, public=public, validation=test)
    assert model.public_score_ < model.history_[-1].score  # 4 points apart; a deviation is half a point
    assert model.score(*test) > 0.85
    said = model.statement_
    assert said.guarantee == "differential privacy"
    assert (said.unit, said.delta) == ("record", 1e-5)
    assert 3.99 < said.epsilon <= 4.0
    assert any("c = 1" in line and "d = 1" in line for line in said.assumptions)


@pytest.mark.parametrize("scheme", ["bfv", "block-dphe"])
def test_every_scheme_that_hides_adds_noise_up(shared_out, scheme):
    if scheme == "bfv":
        pytest.importorskip("tenseal")
    owners, public, test = shared_out
    sums = Sums.sending(scheme, key_bits=2048)
    model = FederatedClassifier(sums, privacy=Privacy(**BUDGET), rounds=1)
    model.fit(owners, public=public, validation=test)
    assert model.history_[0].withheld == 0
    assert model.history_[0].score > model.public_score_  # by 2 points, with a deviation of half a point
    assert model.statement_.epsilon <= 4.0


@pytest.mark.parametrize("owners", [99, 100, 260])
def test_shares_of_masks_count_by_group(owners):
    members = tuple(map(str, range(owners)))
    terms = open_session("masks", members=members, dimension=1).terms
    plan = Privacy(**BUDGET).plan(members=owners, dimension=100, rounds=1, records=10, scheme="masks")
    smallest = min(map(len, terms.groups(0)))
    assert plan.groups == len(terms.groups(0))
    assert plan.members // plan.groups == smallest
    stay = -(-(owners - plan.drop_outs) * smallest // owners)
    assert plan.honest == stay - plan.colluders >= 2
    same = Privacy(**BUDGET, colluders=plan.colluders)
    whole = same.plan(members=owners, dimension=100, rounds=1, records=10, scheme="plain")
    assert (plan.deviation > whole.deviation) == (plan.groups > 1)


def test_owners_are_a_unit_too(shared_out):
    owners, public, _ = shared_out
    privacy = Privacy(epsilon=8.0, delta=1e-5, unit="member", clip=0.5)
    model = FederatedClassifier("plain", privacy=privacy, rounds=2, random_state=0)
    model.fit(owners, public=public)
    assert model.statement_.unit == "person"
    assert "aggregator" in model.statement_.not_protected[0]
    assert model.model_.weights.shape == (10, 65)


def test_gradients_are_those_of_the_loss_and_no_longer_than_the_clip(shared_out):
    made = learner(shared_out)
    rows, wanted = made.read(shared_out[0]["a"])
    weights = public_start(TEN, *made.public) + 0.1

    def loss(weights):
        scores = rows @ weights.T
        top = scores.max(axis=1)
        return float(np.sum(top + np.log(np.exp(scores - top[:, None]).sum(axis=1)) - (scores * wanted).sum(axis=1)))

    gradient = residuals(TEN, rows @ weights.T, wanted).T @ rows
    step = np.zeros_like(weights)
    step[3, 5] = 1e-5
    slope = (loss(weights + step) - loss(weights - step)) / 2e-5
    assert gradient[3, 5] == pytest.approx(slope, rel=1e-5)
    for k in range(5):
        assert np.linalg.norm(made.gradient(weights, rows[k : k + 1], wanted[k : k + 1])) <= made.plan.clip


@pytest.mark.parametrize("unit", ["record", "member"])
def test_one_unit_moves_what_is_sent_by_no_more_than_the_sensitivity(shared_out, unit):
    """The same noise twice: what differs is the record, or all records, of an owner."""
    owners, public, test = shared_out
    X, y = owners["a"]
    gone = np.array(X, dtype=np.float64)
    gone[slice(7, 8) if unit == "record" else slice(None)] = np.nan
    sent = []
    for pair in ((X, y), (gone, y)):
        made = learner(({**owners, "a": pair}, public, test), unit=unit, clip=0.1, source=seeded_bytes(5))
        start = made.first(0)
        sent.append(made.update(pair, start, Memory(), 0).sent)
    distance = np.linalg.norm(sent[0] - sent[1])
    assert 0 < distance <= made.plan.sensitivity * (1 if unit == "record" else 2)


def test_strange_records_count_as_zero_and_never_as_an_error(shared_out):
    owners, public, test = shared_out
    X, y = (np.array(part) for part in owners["a"])
    X = X.astype(np.float64)
    X[0], X[1, 3], X[2] = np.nan, np.inf, 1e308
    y = y.astype(object)
    y[3], y[4], y[5] = 77, "cat", [1]
    made = learner(({**owners, "a": (X, y)}, public, test))
    rows, wanted = made.read((X, y))
    for weights in (made.first(0), np.full((10, made.space.size), 3e38), np.full((10, made.space.size), np.nan)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not made.gradient(weights, rows[:6], wanted[:6]).any()
            assert np.isfinite(made.update((X, y), weights, Memory(), 0).sent).all()
    model = FederatedClassifier("plain", privacy=Privacy(**BUDGET), rounds=2).fit(
        {**owners, "a": (X, y)}, public=public
    )
    assert np.isfinite(model.coef_).all()


class Unruly:
    """Whatever it is asked, it fails."""

    def __array__(self, *_, **__):
        raise RuntimeError

    __float__ = __hash__ = __eq__ = __array__


ODD = {
    "text": "?",
    "empty text": "",
    "a list": [1],
    "nested": [[1, 2], [3]],
    "a dict": {"a": 1},
    "None": None,
    "NaN": math.nan,
    "infinity": -math.inf,
    "complex": 1 + 2j,
    "numpy's complex": np.complex128(1 + 2j),
    "bytes": b"\xff",
    "a huge integer": 10**400,
    "an empty array": np.empty(0),
    "a 0-d array of text": np.array("?"),
    "a date": date(2020, 1, 1),
    "an object": object(),
    "what fails": Unruly(),
    "what cannot be hashed": {1, 2},
}
HOLDERS = {"lists": list, "tuples": tuple, "objects": lambda rows: boxed(rows)}


def boxed(rows):
    """Return a one-dimensional array of objects."""
    box = np.empty(len(rows), dtype=object)
    for place, row in enumerate(rows):
        box[place] = row
    return box


def sent_with(shared_out, pair, **options):
    """Return what the first owner sends with these data, always under the same noise, and the plan."""
    owners, public, test = shared_out
    made = learner(({**owners, "a": pair}, public, test), source=seeded_bytes(5), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return made.update(pair, made.first(0) + 0.1, Memory(), 0).sent, made.plan


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_one_odd_label_moves_what_is_sent_by_no_more_than_the_sensitivity(shared_out, odd, holder):
    """The same noise twice: nothing but the record with the odd label may count otherwise."""
    X, y = shared_out[0]["a"]
    labels = y.tolist()
    labels[7] = odd
    clean, plan = sent_with(shared_out, (X, y))
    sent, _ = sent_with(shared_out, (X, holder(labels)))
    assert 0 < np.linalg.norm(clean - sent) <= plan.sensitivity
    np.testing.assert_array_equal(sent, sent_with(shared_out, (X, [*y[:7].tolist(), 77, *y[8:].tolist()]))[0])


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
@pytest.mark.parametrize("whole", [True, False], ids=["row", "number"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_one_odd_row_moves_what_is_sent_by_no_more_than_the_sensitivity(shared_out, odd, whole, holder):
    X, y = shared_out[0]["a"]
    rows = X.tolist()
    rows[7] = odd if whole else [odd, *rows[7][1:]]
    clean, plan = sent_with(shared_out, (X, y))
    sent, _ = sent_with(shared_out, (holder(rows), y))
    assert 0 < np.linalg.norm(clean - sent) <= plan.sensitivity
    gone = np.array(X, dtype=np.float64)
    gone[7] = np.nan
    np.testing.assert_array_equal(sent, sent_with(shared_out, (gone, y))[0])


@pytest.mark.parametrize("cut", [slice(1, None), slice(0, 0), [*range(64), 0]], ids=["short", "empty", "long"])
def test_a_row_of_another_length_counts_as_zero(shared_out, cut):
    X, y = shared_out[0]["a"]
    rows = list(X)
    rows[7] = X[7][cut]
    gone = np.array(X, dtype=np.float64)
    gone[7] = np.nan
    sent, expected = (sent_with(shared_out, (part, y))[0] for part in (rows, gone))
    np.testing.assert_array_equal(sent, expected)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("whole", [True, False], ids=["row", "number"])
def test_one_odd_row_of_attributes_counts_as_zero(shared_out, odd, whole):
    owners, public, test = shared_out
    X, y = owners["a"]
    several = [(some, np.stack([part % 2, part > 4], axis=1)) for some, part in ((X, y), public, test)]
    (_, answers), *others = several
    shared, labels = ({**owners, "a": several[0]}, *others), Attributes(2)
    rows, expected = answers.tolist(), answers.astype(np.float64)
    rows[7] = odd if whole else [odd, 1]
    expected[7] = np.nan
    partly = not whole and isinstance(odd, float | None)  # an answer that is not known; the other one is
    if partly:
        expected[7, 1] = 1
    clean, plan = sent_with(shared, (X, answers), labels=labels)
    sent, _ = sent_with(shared, (X, rows), labels=labels)
    assert 0 < np.linalg.norm(clean - sent) <= plan.sensitivity * (1 + partly)  # one record for another
    np.testing.assert_array_equal(sent, sent_with(shared, (X, expected), labels=labels)[0])


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (list, list),
        (lambda X: X.tolist(), lambda y: y.tolist()),
        (lambda X: X.astype(object), lambda y: y.astype(object)),
        (lambda X: X.astype(np.float32), lambda y: y.astype(float)),
        (lambda X: X.astype(str), lambda y: y.astype(str)),
        (lambda X: [[*map(Fraction, row)] for row in X.tolist()], lambda y: [np.array(one) for one in y]),
    ],
    ids=["rows", "plain", "objects", "floats", "text", "others"],
)
def test_the_same_numbers_count_the_same_however_they_are_held(shared_out, features, labels):
    X, y = shared_out[0]["a"]
    expected = sent_with(shared_out, (X, y))[0]
    np.testing.assert_array_equal(expected, sent_with(shared_out, (features(X), labels(y)))[0])
    promoted = np.array([*y[:7].tolist(), "?", *y[8:].tolist()])  # by the owner's own array, all labels became text
    strange = sent_with(shared_out, (X, [*y[:7].tolist(), 77, *y[8:].tolist()]))[0]
    np.testing.assert_array_equal(strange, sent_with(shared_out, (X, promoted))[0])


@pytest.mark.parametrize("names", [[False, True], [0, 1], [0.0, 1.0]], ids=["booleans", "whole", "floats"])
@pytest.mark.parametrize("promoted", [str, lambda name: str(name).encode()], ids=["text", "bytes"])
def test_labels_that_one_odd_label_turned_into_text_are_known(names, promoted):
    clean, text = targets(Classes(np.array(names)), names), [promoted(name) for name in names]
    np.testing.assert_array_equal(clean, targets(Classes(np.array(names)), [*text, "?"])[:2])


@pytest.mark.parametrize("unit", ["record", "member"])
def test_odd_records_end_nothing(shared_out, unit):
    owners, public, _ = shared_out
    X, y = owners["a"]
    rows, labels = [*ODD.values(), *X.tolist()], [*ODD.values(), *y.tolist()]
    privacy = Privacy(**BUDGET | {"unit": unit}, clip=1.0)
    model = FederatedClassifier("plain", privacy=privacy, rounds=1)
    model.fit({**owners, "a": (rows + X.tolist()[: len(ODD)], y.tolist()[: len(ODD)] + labels)}, public=public)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize(
    ("pair", "named"),
    [
        ((np.zeros((5, 63)), np.zeros(5)), "63"),
        ((np.zeros((5, 64)), np.zeros(4)), "4"),
        ((np.zeros((5, 64)).tolist(), [0] * 4), "4"),
        ((np.zeros((5, 64)), np.zeros((5, 2))), "2"),
        ((np.zeros(5), np.zeros(5)), "features"),
        ((3.0, [1]), "features"),
        (("text", [1]), "features"),
        ((np.zeros((5, 64)), None), "labels"),
        (None, "pair"),
    ],
)
def test_what_is_public_of_an_owners_data_is_checked(shared_out, pair, named):
    owners, public, _ = shared_out
    with pytest.raises(InputError, match=f"a: .*{named}"):
        FederatedClassifier("plain", privacy=Privacy(**BUDGET)).fit({**owners, "a": pair}, public=public)


def test_sums_are_the_same_integers_with_drop_outs_and_without(shared_out):
    made = learner(shared_out, drop_outs=1, colluders=1)
    start = made.first(0)
    sent = {name: made.update(pair, start, Memory(), 0).sent for name, pair in shared_out[0].items()}
    for scheme in ("masks", "plain"):
        session = open_session(scheme, members=tuple(sent), dimension=made.plan.dimension, fraction_bits=0, minimum=4)
        for number, present in enumerate((sent, {name: sent[name] for name in "abde"})):
            result = session.round(present, number)
            assert (result.total == sum(present.values())).all()
            total = RoundSum(round=1, contributors=result.contributors, total=result.total, values=result.values)
            assert made.combine(start, total).shape == start.shape
        with pytest.raises(PrivacyError):
            session.round({name: sent[name] for name in "abc"}, 2)


def test_the_ledger_is_charged_before_anything_is_learned(shared_out, monkeypatch):
    owners, public, _ = shared_out
    ledger = Ledger()
    ledger.set_budget("digits", unit="record", neighbours="add/remove", epsilon=5.0, delta=2e-5)
    model = FederatedClassifier("plain", privacy=Privacy(**BUDGET), rounds=1)
    spent_at_first = []
    first = PrivateLearner.update

    def update(self, *given):
        spent_at_first.append(len(ledger.spends("digits", "record")))
        return first(self, *given)

    monkeypatch.setattr(PrivateLearner, "update", update)
    model.fit(owners, public=public, ledger=ledger, scope="digits")
    assert set(spent_at_first) == {1}
    assert ledger.spends("digits", "record")[0].loss.epsilon == model.statement_.epsilon
    with pytest.raises(BudgetExceededError):
        model.fit(owners, public=public, ledger=ledger, scope="digits")
    assert len(spent_at_first) == 5


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": 51.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"clip": -1.0}, "clip"),
        ({"unit": "member"}, "clip"),
        ({"colluders": 5}, "collude"),
        ({"drop_outs": 3}, "drop"),
        ({"drop_outs": -1}, "drop"),
    ],
)
def test_wrong_parameters_get_a_sentence(shared_out, wrong, named):
    owners, public, _ = shared_out
    with pytest.raises(InputError, match=named):
        FederatedClassifier("plain", privacy=Privacy(**BUDGET | wrong)).fit(owners, public=public)


def test_a_delta_above_one_over_the_members_hides_nothing(shared_out):
    owners, public, _ = shared_out
    with pytest.raises(PrivacyError, match="delta"):
        FederatedClassifier("plain", privacy=Privacy(epsilon=4.0, delta=0.5, unit="record")).fit(owners, public=public)


@pytest.mark.parametrize(
    ("sums", "named"),
    [
        (Sums(scheme="dphe", options=DpheOptions(minimum_per_position=3, key_bits=2048)), "minimum_per_position"),
        (Sums(share=0.5), "share"),
    ],
    ids=["withheld", "share"],
)
def test_with_noise_every_weight_is_in_every_round(shared_out, sums, named):
    owners, public, _ = shared_out
    with pytest.raises(InputError, match=named):
        FederatedClassifier(sums, privacy=Privacy(**BUDGET)).fit(owners, public=public)


def test_what_noise_does_not_go_with_is_refused(shared_out, tmp_path):
    owners, public, _ = shared_out
    model = FederatedClassifier("plain", privacy=Privacy(**BUDGET))
    with pytest.raises(UnknownNameError, match="photo"):
        Privacy(**BUDGET | {"unit": "photo"})
    with pytest.raises(InputError, match="recorded"):
        model.fit(owners, public=public, record=True)
    with pytest.raises(InputError, match="checkpoint"):
        model.fit(owners, public=public, checkpoint=tmp_path)
    with pytest.raises(InputError, match="scope"):
        model.fit(owners, public=public, ledger=Ledger())
    with pytest.raises(InputError, match="ledger"):
        FederatedClassifier("plain").fit(owners, public=public, ledger=Ledger(), scope="x")
    with pytest.raises(InputError, match="several members"):
        model.fit(public[0], public[1])
    with pytest.raises(InputError, match="numbers"):
        model.fit({**owners, "a": (public[0][:, :5], public[1])}, public=public)


def test_the_public_space_is_whitened_and_maps_back(shared_out):
    made = learner(shared_out)
    public = made.standardiser.apply(shared_out[1][0])
    rows = made.space.rows(public)
    assert np.linalg.norm(rows[:, :-1], axis=1) == pytest.approx(np.ones(len(rows)))
    inner = np.random.default_rng(0).standard_normal((10, made.space.size))
    weights = made.space.weights(inner)
    scores = public @ weights[:, :-1].T
    direct = public @ made.space.matrix @ inner[:, :-1].T / made.space.length
    assert scores == pytest.approx(direct, rel=1e-3, abs=1e-4)


def test_attributes_and_two_classes_have_signs():
    assert targets(Attributes(2), np.array([[1, 0], [-1, 1]])).tolist() == [[1, -1], [0, 1]]
    assert targets(Classes(np.array(["no", "yes"])), np.array(["yes", "no", "?"])).tolist() == [[1], [-1], [0]]
    slopes = residuals(Attributes(1), np.array([[0.0], [0.0], [0.0]]), np.array([[1.0], [-1.0], [0.0]]))
    assert slopes.tolist() == [[-0.5], [0.5], [0.0]]


def test_more_noise_gives_shorter_steps(shared_out):
    steps = [learner(shared_out, epsilon=epsilon).step for epsilon in (0.1, 1.0, 8.0)]
    assert steps == sorted(steps)
    assert steps[0] < steps[1]
    assert math.isfinite(steps[2])
    assert private.MOST_COMPONENTS >= 64
