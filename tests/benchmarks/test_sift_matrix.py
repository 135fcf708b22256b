"""All policies: what makers may see, how sifts are judged, and how figures stand beside the paper's."""

import numpy as np
import pytest

from benchmarks.methods import sifts
from benchmarks.methods.sifts import SiftingData, released_by_each
from benchmarks.pictures import People, drawn_numbers
from benchmarks.results import Result
from benchmarks.suites import sift_matrix
from benchmarks.suites.sift_matrix import BENCHMARK, Judge
from blindsight.errors import InputError
from blindsight.sift.attackers import PAPER
from blindsight.sift.ppls import PPLS
from blindsight.sift.trial import QUICK
from tests.benchmarks.conftest import tables

LINEAR = (PAPER[0], QUICK[0])


def test_makers_see_no_label_of_the_judged():
    people = drawn_numbers(0)
    given = sift_matrix.developer_data(people, (("male", "smiling"),))
    assert len(given.features) == people.developers
    assert len(given.features) + len(given.judged) == len(people.features)
    assert {len(column) for column in given.labels.values()} == {people.developers}
    assert not given.told
    told = sift_matrix.developer_data(people, (("male", "smiling"),), told=True).told
    assert np.array_equal(told["smiling"], people.labels["smiling"][people.developers :])
    other = drawn_numbers(1)
    assert not np.array_equal(people.features[: people.developers], other.features[: other.developers])


def test_releases_are_judged_by_what_they_tell():
    people = drawn_numbers(0)
    public, private = (people.labels[name][people.developers :] for name in ("male", "smiling"))
    noise = np.random.default_rng(0).standard_normal((len(public), 1))
    judge = Judge(people, LINEAR, LINEAR, strict=True)
    scores = judge({"male/smiling": public[:, None] + 0.1 * noise, "male/smiling:given_away": private[:, None]})
    names = ("male/smiling", "male/smiling:given_away")
    honest, given_away = (
        {name.removeprefix(f"{about}/"): value for name, value in scores.items() if name.startswith(f"{about}/")}
        for about in names
    )
    assert honest["pub_loss"] <= 0  # nobody reads it better than off itself
    assert honest["strict_pub_loss"] <= 0
    assert honest["priv_loss"] < 0.2  # one in ten of the labels agree by construction
    assert {"paper/priv_loss", "paper/priv_loss_eq5", "paper/pub_loss", "paper/pub_loss_eq5"} <= honest.keys()
    assert given_away["priv_loss"] == given_away["certified"] == 0.5
    assert given_away["pub_loss"] > 0.3
    with pytest.raises(InputError, match="540"):
        judge({"male/smiling": np.zeros((3, 1))})
    scores = Judge(people, LINEAR, LINEAR, entangled=True)({})
    labels = people.labels["male"], people.labels["smiling"]
    assert scores["male/smiling/correlation"] == pytest.approx(np.corrcoef(*labels)[0, 1])
    assert max(value for name, value in scores.items() if name.endswith("overlap")) == 1


def test_policies_that_no_sift_can_serve_get_no_answer():
    people = drawn_numbers(0)
    labels = {"male": people.labels["male"], "again": people.labels["male"], "outdoors": people.labels["outdoors"]}
    twins = People(people.features, labels, people.developers, scale=True)
    given = sift_matrix.developer_data(twins, (("male", "again"), ("male", "outdoors")))
    assert set(released_by_each(given, lambda: PPLS(2, float("inf")))) == {"male/outdoors"}
    assert isinstance(given, SiftingData)


def test_symbols_are_named_by_kind_only_where_there_are_several(monkeypatch):
    monkeypatch.setattr("blindsight.sift.symbols._STEPS", 10)
    given = sift_matrix.developer_data(drawn_numbers(0), (("male", "smiling"),))
    assert set(sifts.symbols(given, seed=0, kinds="capped")) == {"male/smiling"}
    both = sifts.symbols(given, seed=0, kinds="label parity")
    assert set(both) == {"male/smiling:label", "male/smiling:parity"}
    assert all(set(np.unique(symbols)) <= {0, 1} for symbols in both.values())


def result(dataset, method, leaks, *, correlations=(0.1, 0.1, 0.3, 0.05)):
    """A run with the PrivLoss of four policies; its upper limit is .02 above, its PubLoss and overlap half."""
    score = {}
    for number, (leak, correlation) in enumerate(zip(leaks, correlations, strict=True)):
        figures = {"priv_loss": leak, "bound": leak + 0.02, "pub_loss": leak / 2, "correlation": correlation}
        figures |= {"overlap": 0.2 + 0.1 * number**2, "paper/priv_loss": 0.05, "paper/priv_loss_eq5": 0.04}
        score |= {f"a/b{number}/{figure}": value for figure, value in figures.items()}
    return Result("sift-matrix", dataset, method, {}, 0, score=score)


def test_pairs_without_an_accepted_sift_are_named():
    results = [
        result("faces", "ppls", (0.05, 0.2, 0.2, 0.09)),
        result("faces-tuned", "symbol", (0.2, 0.2, 0.01, 0.01)),
        result("faces-everybody", "ppls", (0.06, 0.25, 0.25, 0.1)),
    ]
    expected, leaks, passing, regressions, everybody, matrix = tables(BENCHMARK, results).values()
    assert expected == {"drawn faces": ("3", "1", "-", "1", "2", "a/b1")}  # a/b2 is too correlated to count
    assert passing["PPLS, K = 5, lambda = 1"][2:] == ("4 of 4", "4 of 4", "2 of 4", "1 of 4")
    assert passing["PPLS, K = 5, lambda = infinity"] == ((), (), "-", "-", "-", "-")
    assert leaks["PrivLoss, Eq. 5, the paper's (abstract)"] == ("7.50", pytest.approx((4,)), "-3.50")
    assert leaks["PrivLoss, balanced accuracy, tuned ones too"] == ("-", pytest.approx((13.5,)), "-")
    assert regressions["PubLoss: share of correlation, the rest overlap's (per cent)"][0] == "63.0"
    assert everybody["a/b0"] == ((0.05,), (0.07,), (0.06,), (0.08,))
    assert list(matrix) == ["a"]
