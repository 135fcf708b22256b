"""Policies: what may be written, what labels say of them, and the bound no sift can beat, against a linear program."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from blindsight.data.dataset import Dataset
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.policy import Policy, public_ceiling, public_ceiling_of_many

printable = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), max_size=12)
names = st.lists(printable.filter(str.strip), min_size=2, max_size=6, unique=True)


def labels(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    male = rng.integers(0, 2, n)
    return {
        "male": male,
        "beard": male * (rng.random(n) < 0.9),
        "smiling": rng.integers(0, 2, n),
        "young": rng.integers(0, 2, n),
    }


@settings(deadline=None)
@given(names=names, cut=st.integers(1, 5), name=printable)
def test_policies_survive_yaml_and_json(names, cut, name):
    cut = min(cut, len(names) - 1)
    policy = Policy(tuple(names[:cut]), tuple(names[cut:]), name)
    assert Policy.from_json(policy.to_json()) == policy
    assert Policy.from_yaml(policy.to_yaml()) == policy


def test_a_policy_is_written_by_hand():
    policy = Policy.from_yaml("public: smiling\nprivate: [male, young]\n")
    assert policy == Policy(("smiling",), ("male", "young"))
    assert str(policy) == "smiling without male + young"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("public: [a, b]\nprivate: [b]", "both"),
        ("public: []\nprivate: [b]", "public"),
        ("public: [a]\nprivate: [b, b]", "twice"),
        ("public: [no]\nprivate: [b]", "quotes"),
        ("public: [' ']\nprivate: [b]", "name"),
        ('public: ["a\\tb"]\nprivate: [b]', "name"),
        ("public: 3\nprivate: [b]", "list"),
        ("public: [a]", "private"),
        ("[a, b]", "private"),
        ("public: [a]\nprivate: [b]\nlambda: 1", "'lambda'"),
        ("name: 3\npublic: [a]\nprivate: [b]", "text"),
        ("public: [a", "YAML"),
        ("!!python/object/apply:os.getcwd []", "YAML"),
    ],
)
def test_bad_policies_are_refused(text, named):
    with pytest.raises(InputError, match=named):
        Policy.from_yaml(text)
    with pytest.raises(InputError, match="JSON"):
        Policy.from_json("{public")


def test_a_fair_policy_has_neither_problems_nor_warnings():
    report = Policy(("smiling",), ("male",)).check(labels())
    assert not report.problems
    assert not report.warnings
    assert not report.hopeless
    report.require_usable()
    (pair,) = report.pairs
    truth = labels()
    assert pair.correlation == pytest.approx(np.corrcoef(truth["smiling"], truth["male"])[0, 1])
    shared = np.sum(truth["smiling"] & truth["male"])
    assert pair.overlap == pytest.approx(shared / np.sum(truth["smiling"] | truth["male"]))
    assert pair.cosine == pytest.approx(shared / np.sqrt(truth["smiling"].sum() * truth["male"].sum()))
    assert report.ceilings["smiling"] == pytest.approx(pair.ceiling)


def test_a_hopeless_policy_is_named_before_training():
    report = Policy(("beard", "smiling"), ("male", "young")).check(labels(), leak_cap=0.05)
    (warning,) = report.warnings
    assert report.hopeless
    assert "beard" in warning
    assert "male" in warning
    assert report.ceilings["beard"] < 0.75 < report.ceilings["smiling"]
    assert not Policy(("beard",), ("male",)).check(labels(), leak_cap=0.4).hopeless


def test_private_attributes_that_only_together_are_hopeless_are_blamed_together():
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 2, (8000, 6))
    public = (hidden.sum(axis=1) + rng.integers(0, 2, 8000) > 3).astype(int)
    known = {"seen": public} | {f"h{i}": hidden[:, i] for i in range(6)}
    report = Policy(("seen",), tuple(f"h{i}" for i in range(6))).check(known, leak_cap=0.0, useful=0.80)
    assert all(pair.ceiling > 0.80 for pair in report.pairs)
    (warning,) = report.warnings
    assert "h0 and h1" in warning


def test_attributes_without_usable_labels_are_problems_that_name_them():
    policy = Policy(("smiling",), ("male",))
    for wrong, named in ((Policy(("smiling",), ("males",)), "'male'"), (Policy(("smile",), ("male",)), "'smiling'")):
        with pytest.raises(UnknownNameError, match=named):
            wrong.check(labels())
    for column, named in (
        (np.full(1000, -1), "protected"),
        (np.arange(1000) < 0, "no for every"),
        (np.arange(1000) < 3, "3 positive"),
        (np.arange(1000) < 997, "3 negative"),
    ):
        report = policy.check(labels() | {"male": column.astype(int)})
        assert report.problems
        with pytest.raises(InputError, match=named):
            report.require_usable()
    for column in (np.full(1000, 2), np.ones(10)):
        with pytest.raises(InputError):
            policy.check(labels() | {"male": column})


def test_missing_labels_are_counted_and_left_out_of_the_pairs():
    known = labels()
    gappy = known["male"].copy()
    gappy[:100] = -1
    report = Policy(("smiling",), ("male",)).check(known | {"male": gappy})
    private = report.attributes[1]
    assert (private.missing, private.positives + private.negatives) == (100, 900)
    assert report.pairs[0].samples == 900
    assert report.pairs[0].correlation == pytest.approx(np.corrcoef(known["smiling"][100:], gappy[100:])[0, 1])


def test_labels_come_from_a_dataset_too():
    columns, features = np.column_stack(list(labels().values())).astype(np.int8), np.zeros((1000, 2), np.float32)
    about = {"name": "d", "licence": "none", "source": "made up", "attribute_names": tuple(labels())}
    policy = Policy(("smiling",), ("male",))
    assert policy.check(Dataset(features=features, attributes=columns, **about)) == policy.check(labels())


# --- the policy bound ---


def ceiling_by_linear_program(table, cap, symbols=3):
    """Maximise public accuracy over channels P(u | y+, y-) with `symbols` outputs and an app that reads u in any way.

    Independent of the proof: the leak is the total variation over all symbols, one slack variable per symbol.
    """
    p = np.asarray(table, dtype=float) / np.sum(table)
    public, private = p.sum(axis=1), p.sum(axis=0)
    best = 0.0
    for guess in product((0, 1), repeat=symbols - 1):  # what the app says on seeing each symbol
        guess = (*guess, 1)  # symbols have no order
        channel = np.zeros((2, 2, symbols))
        for i in (0, 1):
            channel[i] = (p[i] / public[i] / 2)[:, None] * (np.array(guess) == i)
        size = channel.size
        cost = np.concatenate([-channel.ravel(), np.zeros(symbols)])
        above = np.zeros((2 * symbols + 1, size + symbols))
        for u in range(symbols):
            gap = np.zeros((2, 2, symbols))
            gap[:, 1, u], gap[:, 0, u] = p[:, 1] / private[1], -p[:, 0] / private[0]
            above[u, :size], above[symbols + u, :size] = gap.ravel(), -gap.ravel()
            above[[u, symbols + u], size + u] = -1  # |gap of u| <= slack of u
        above[-1, size:] = 1  # sum of slacks = 2 TV <= 4 cap
        limits = np.concatenate([np.zeros(2 * symbols), [4 * cap]])
        whole = np.kron(np.eye(4), np.ones(symbols))
        equal = np.hstack([whole, np.zeros((4, symbols))])
        found = linprog(cost, above, limits, equal, np.ones(4), bounds=(0, None))
        best = max(best, -found.fun)
    return best


@pytest.mark.parametrize("cap", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("table", [[[40, 10], [10, 40]], [[10, 60], [20, 10]], [[1, 3], [5, 91]], [[50, 0], [0, 50]]])
def test_the_closed_form_is_what_the_linear_program_over_all_channels_finds(table, cap):
    assert public_ceiling(table, cap) == pytest.approx(ceiling_by_linear_program(table, cap), abs=1e-7)


@settings(deadline=None, max_examples=20)
@given(
    table=st.lists(st.integers(1, 1000), min_size=4, max_size=4).map(lambda c: np.reshape(c, (2, 2))),
    cap=st.floats(0, 0.5),
)
def test_the_closed_form_holds_for_any_table(table, cap):
    ceiling = public_ceiling(table, cap)
    assert ceiling == pytest.approx(ceiling_by_linear_program(table, cap, symbols=2), abs=1e-7)
    labels = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], table.ravel(), axis=0)
    assert public_ceiling_of_many(labels[:, 0], labels[:, 1:], cap) == pytest.approx(ceiling, abs=1e-7)


def test_several_private_attributes_cost_at_least_as_much_as_the_dearest():
    rng = np.random.default_rng(0)
    public = rng.integers(0, 2, 4000)
    first = np.where(rng.random(4000) < 0.8, public, 1 - public)
    second = np.where(rng.random(4000) < 0.3, public, 1 - public)
    both = public_ceiling_of_many(public, np.column_stack([first, second]), 0.1)
    single = [public_ceiling_of_many(public, y[:, None], 0.1) for y in (first, second)]
    assert both <= min(single) + 1e-7
    assert both == pytest.approx(min(single), abs=0.2)
    assert 0.5 <= both < 0.95


def test_a_random_sift_never_beats_the_ceiling():
    rng = np.random.default_rng(1)
    table = np.array([[30.0, 15], [10, 45]])
    p = table / table.sum()
    for channel in rng.random((2000, 2, 2)):  # P(u = 1 | y+, y-)
        public = [(p[i] * channel[i]).sum() / p[i].sum() for i in (0, 1)]
        private = [(p[:, j] * channel[:, j]).sum() / p[:, j].sum() for j in (0, 1)]
        accuracy, leak = 0.5 + (public[1] - public[0]) / 2, abs(private[1] - private[0]) / 2
        assert accuracy <= public_ceiling(table, leak) + 1e-9


@pytest.mark.parametrize(
    ("table", "cap", "named"),
    [
        ([[1, 1], [0, 0]], 0.1, "constant"),
        ([[1, 1, 1], [1, 1, 1]], 0.1, "2 x 2"),
        ([[1, -1], [1, 1]], 0.1, "2 x 2"),
        *(([[1, 1], [1, 1]], cap, "0.5") for cap in (0.6, float("nan"))),
    ],
)
def test_bad_tables_and_caps_are_refused(table, cap, named):
    with pytest.raises(InputError, match=named):
        public_ceiling(table, cap)
    with pytest.raises(InputError, match="both"):
        public_ceiling_of_many([0, 1, 1], [[1], [1], [1]], 0.1)
