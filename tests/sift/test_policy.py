"""Policies: what may be written, what the labels say of them, and that hopeless ones are named."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindsight.data.dataset import Dataset
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.policy import Policy

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
