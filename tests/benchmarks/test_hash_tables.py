"""The tables of private hashing: what is asked, how it is judged, the paper's figures and what holds between them."""

from math import exp, inf

import numpy as np
import pytest

from benchmarks import pictures
from benchmarks.command import main
from benchmarks.harness import Settings
from benchmarks.methods import hashing
from benchmarks.methods.hashing import CLAIMED_EPSILONS, by_codes, by_symbols
from benchmarks.results import Result
from benchmarks.suites import hash_tables
from benchmarks.suites.hash_tables import (
    CORRECTED,
    EVERYTHING,
    LENGTHS,
    PAPER,
    PITQ_EPSILONS,
    RELATIONS,
    by_run,
    claims,
    score,
)
from benchmarks.table import Found, verdict
from blindsight.data.catalogue import CatalogueEntry
from blindsight.errors import InputError
from blindsight.papers.hashing.published import PHashing
from blindsight.search.codes import hamming, pack
from tests.benchmarks.conftest import posed, tables


def test_the_database_is_the_training_split_and_queries_and_labels_keep_to_their_sides():
    features, _ = pictures.pictures(Settings(quick=True), "cifar10")
    given = posed(hash_tables.tasks, "cifar10").given
    assert np.array_equal(given.database, features[:600])
    known, classes = given.labelled
    assert np.bincount(classes).tolist() == [10] * 10

    def rows(part):
        return {row.tobytes() for row in part}

    assert rows(known) <= rows(features[:600])
    assert rows(given.queries) == rows(features[600:])
    full = posed(hash_tables.tasks, "cifar10", full=True)
    assert len(full.given.queries) == 120
    assert not np.array_equal(given.queries, posed(hash_tables.tasks, "cifar10", seed=1).given.queries)


def test_flips_are_those_of_phashing():
    given = posed(hash_tables.tasks, "cifar10").given
    found = hashing.phashing(given, seed=3, learner="ITQ", bits=48)
    published = PHashing(hashing.ITQ(48, random_state=3), 1.0).fit(given.database)
    assert np.array_equal(found["inf"]["items"], published.function_(given.database))
    assert np.array_equal(found["1"]["queries"], published.transform(given.queries))
    for epsilon in CLAIMED_EPSILONS:
        flipped = np.bitwise_count(found["inf"]["items"] ^ found[str(epsilon)]["items"]).sum() / (600 * 48)
        deviation = np.sqrt(exp(-epsilon) * (1 - exp(-epsilon)) / (600 * 48))
        assert abs(flipped - exp(-epsilon)) < 6.5 * deviation  # false alarm below 1e-6 for all three


def test_codes_and_symbols_are_judged_alike():
    rng = np.random.default_rng(0)
    classes, asked = rng.integers(0, 3, 200), rng.integers(0, 3, 20)
    codebook = pack(rng.random((6, 12)) < 0.5)
    queries, symbols = pack(rng.random((20, 12)) < 0.5), rng.integers(0, 6, 200)
    answer = {
        "codes": by_codes(queries, codebook[symbols]),
        "symbols": by_symbols(-hamming(queries, codebook).astype(np.float64), symbols),
    }
    found = score(asked, classes, answer)
    assert found["codes"] == pytest.approx(found["symbols"], abs=1e-9)
    assert found["codes"] != pytest.approx(1 / 3, abs=1e-3)
    # The relevant item comes first for the first query, and with one other item for the second: (1 + 3/4) / 2.
    symbols = by_symbols(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0, 1]))
    assert score(np.array([7, 7]), np.array([7, 8]), {"x": symbols}) == {"x": pytest.approx(0.875)}


def test_the_papers_figures_are_those_printed():
    assert len(PAPER) == 4 * (9 * 4 + 4)
    assert set(EVERYTHING) == set(hashing.LEARNERS)
    for (learner, epsilon), printed in {
        ("ITQ", inf): [0.1544, 0.1607, 0.1630, 0.1656],
        ("HashNet", 1): [0.2206, 0.3139, 0.3917, 0.4925],
        ("ADSH", 2): [0.5119, 0.6969, 0.7260, 0.7432],
        ("PITQ", 0.25): [0.1543, 0.1608, 0.1625, 0.1655],
    }.items():
        assert [PAPER[learner, epsilon, bits] for bits in LENGTHS] == printed
    assert (PAPER["SH", 4, 48], PAPER["DSH", inf, 12], PAPER["KSH", 1, 24]) == (0.1259, 0.7230, 0.1320)


def judged(run):
    return {claim.said: verdict(claim.values, claim.least, words=hash_tables.WORDS) for claim in claims([run])}


def test_the_papers_own_figures_confirm_all_but_spectral_hashing():
    verdicts = judged(PAPER)
    refuted = [said for said, found in verdicts.items() if found == "refuted"]
    assert refuted == ["longer codes stand flips better: SH, 48 bits against 12, epsilon 1"]
    assert [said for said, found in verdicts.items() if found == "not measured"] == [
        "PITQ as good as ITQ, right rotation: share of ITQ's mAP"
    ]
    assert list(verdicts.values()).count("confirmed") == len(RELATIONS) - 2


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("SDH", inf, 32), 0.16, "supervised above unsupervised"),
        (("LSH", 2, 24), 0.104, "mAP rises with epsilon"),
        (("KSH", 4, 12), 0.2, "PHashing at epsilon 4 close to no privacy"),
        (("PITQ", 0.5, 32), 0.15, "PITQ as good as ITQ, as published"),
    ],
)
def test_one_figure_is_enough_to_refute_a_relation(place, value, said):
    verdicts = judged({**PAPER, place: value})
    assert "refuted" in {found for name, found in verdicts.items() if name.startswith(said)}


def test_answers_of_the_wrong_shape_are_refused():
    for answer in ({"x": by_symbols(np.zeros((1, 4)), np.zeros(3, int))}, {}):
        with pytest.raises(InputError):
            score(np.zeros(2, int), np.zeros(3, int), answer)


def measured(method, bits, score, *, seed=0, dataset="cifar10", cpu=1.0, session="monday"):
    return Result("hash-tables", dataset, method, {"bits": bits}, seed, score=score, cpu_seconds=cpu, session=session)


def test_figures_stand_in_their_row_and_relations_take_runs_that_have_both_sides():
    results = [
        measured("lsh", 12, {"inf": 0.2, "1": 0.1}),
        measured("lsh", 12, {"inf": 0.4, "1": 0.1}, seed=1),
        measured("pitq-right", 48, {"0.25": 0.5}),
    ]
    assert by_run(Found(results))[0] == {("LSH", inf, 12): 0.2, ("LSH", 1.0, 12): 0.1, (CORRECTED, 0.25, 48): 0.5}
    relations, first, second, true, _ = tables(hash_tables.BENCHMARK, results).values()
    assert first["LSH, no privacy"][:3] == ("0.1162", (0.2, 0.4), "0.1215")
    assert len(first) == 4 * len(EVERYTHING)
    assert list(second.values())[len(PITQ_EPSILONS) + 1][-2:] == ("-", (0.5,))
    assert {row[-1] for row in relations.values()} == {"not measured"}
    assert true["1"] == ("0.5", "6.5", "13.0", "17.3", "26.0")


def test_times_are_compared_within_a_run():
    results = [
        measured("itq-blindsight", 64, {"codes": 0.5}, dataset="drawn-50000x512", cpu=3.0),
        measured("itq-faiss", 64, {"codes": 0.4}, dataset="drawn-50000x512", cpu=1.5),
        measured("itq-blindsight", 64, {"codes": 0.5}, dataset="drawn-50000x512", cpu=1.0, seed=1),
        measured("itq-faiss", 64, {"codes": 0.5}, dataset="drawn-50000x512", seed=1, session="tuesday"),
        measured("itq-blindsight", 64, {"codes": 0.54}, dataset="fashion-mnist"),
    ]
    *_, rotations = tables(hash_tables.BENCHMARK, results).values()
    assert rotations["64"] == ((0.54,), (), (3.0, 1.0), (1.5, 1.0), (2.0,), "no")


def test_missing_data_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="cifar10"):
        hash_tables.tasks(Settings())
    assert main(["hash-tables", "--output", str(tmp_path)]) == 2
    assert "error: there are no pictures" in capsys.readouterr().err
    monkeypatch.setattr(CatalogueEntry, "is_here", lambda entry: True)
    monkeypatch.setattr(pictures, "find_spec", lambda name: None)
    for _ in range(2):  # said once
        assert pictures.usable(Settings(), ("cifar10", "fashion-mnist")) == ("fashion-mnist",)
    assert capsys.readouterr().err == (
        "the features of cifar10 need torch (pip install '.[deep]'): its part is not measured.\n"
    )
