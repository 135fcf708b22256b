"""The 28 days: who is scored on what, which lines are played, and how figures and relations stand in tables."""

from functools import partial

import numpy as np
import pytest

from benchmarks.methods import selective
from benchmarks.results import Result
from benchmarks.suites import ppdl_days
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.protection import RecordGaussian
from tests.benchmarks.conftest import posed, tables


def test_a_curve_is_scored_by_day_and_week():
    plan = posed(ppdl_days.tasks, "head").given.schedule
    accuracy = np.linspace(0.5, 0.9, ppdl_days.DAYS)
    curve = {"accuracy": accuracy, "uploads": [1.0, 30.0], "bytes up": [0.0, 2e6], "epsilon": np.array([np.inf])}
    figures = ppdl_days.score(plan, curve)
    assert figures["day 1"] == 0.5
    assert figures["day 28"] == 0.9
    assert accuracy[-7] < figures["last week"] < accuracy[-1]
    assert (figures["uploads"], figures["megabytes up"]) == (30, 2)
    assert "epsilon" not in figures
    assert ppdl_days.score(plan, {**curve, "epsilon": np.array([2.0])})["epsilon"] == 2
    for wrong in (accuracy[:3], accuracy + 0.2):
        with pytest.raises(InputError, match="28 days"):
            ppdl_days.score(plan, {**curve, "accuracy": wrong})


@pytest.mark.parametrize("kind", ["photo", "participant", "dp-fedavg"])
def test_lines_with_a_proof_spend_what_they_may_over_all_days(kind):
    problem = posed(ppdl_days.tasks, "head")
    figures = problem.score(selective.days(problem.given, seed=0, kind=kind, epsilon=2.0, clip=0.001))
    assert 1.99 < figures["epsilon"] <= 2
    assert figures["uploads"] > 0


def test_lines_are_what_their_arguments_say():
    study, tuning = posed(ppdl_days.tasks, "head").given, posed(ppdl_days.tasks, "head-tuning").given
    assert (len(study.schedule.initial), len(study.schedule.days)) == (ppdl_days.QUICK.public, ppdl_days.DAYS)
    assert not np.array_equal(study.schedule.initial, tuning.schedule.initial)  # a seed's days are not those of tuning
    lines = partial(selective.lines, study.schedule)
    assert lines("largest", share=0.2)[-1].sharing.share == 0.2
    assert lines("published", step=0.5)[-1].sharing.bound == 0.05
    assert isinstance(lines("photo", epsilon=2.0, clip=3.0)[-1].sharing.noise, RecordGaussian)
    assert lines("participant", epsilon=2.0, clip=3.0)[-1].sharing.noise.clip == 3.0
    shared = lines("masks", epsilon=2.0, clip=3.0)[-1]
    assert (shared.scheme, shared.clip, shared.epsilon) == ("masks", 3.0, 2.0)
    assert shared.rounds == study.schedule.turns(selective.BATCH)
    reference, fedavg = lines("fedavg-bytes", server_rate=3.0)
    assert (fedavg.as_bytes_of, fedavg.server_rate) == (reference.name, 3.0)
    with pytest.raises(UnknownNameError, match="line"):
        lines("gossip")


def test_initial_models_answer_without_having_seen_the_classes_of_validation():
    problem = posed(ppdl_days.tasks, "head-initial")
    truth = problem.score.args[0]
    assert problem.score(truth) == {"training": 1, "validation": 1}
    assert problem.score({**truth, "validation": 3 - truth["validation"]}) == {"training": 1, "validation": 0}
    with pytest.raises(InputError, match="40 photos"):
        problem.score({**truth, "validation": truth["training"]})
    for kind, chosen in ppdl_days.CLIPS.items():  # what was chosen was tried
        assert set(chosen) <= set(ppdl_days.TRIED_CLIPS[kind])
    for model, rates in ppdl_days.SERVER_RATES.items():
        assert set(rates.values()) <= set(ppdl_days.TRIED_RATES[model])


def result(arguments, week, *, dataset="head", seed=0, **more):
    score = {f"day {day}": week for day in (1, 14, 28)} | {"last week": week, "uploads": 740, "megabytes up": 1.86}
    score |= more
    return Result("ppdl-days", dataset, dataset, arguments, seed, score=score)


def test_relations_are_judged_run_by_run_and_the_paper_stands_beside_ours():
    results = [result({"kind": "centralised"}, week, seed=seed) for seed, week in enumerate((0.93, 0.90))]
    results += [result({"kind": "largest", "share": 0.1}, week, seed=seed) for seed, week in enumerate((0.925, 0.895))]
    results.append(result({"kind": "published", "share": 0.1}, 0.40))
    adam = {"model": "head", "optimiser": "adam"}
    results.append(
        Result("ppdl-days", "head-initial", "head-initial", adam, 0, score={"training": 0.95, "validation": 0.93})
    )
    results.append(result({"kind": "photo", "epsilon": 2, "clip": 0.3}, 0.89, epsilon=1.9987))
    results.append(result({"kind": "fedavg", "server_rate": 3.0}, 0.9, dataset="head-tuning"))
    figure, relations, composition, table_2, tuning = tables(ppdl_days.BENCHMARK, results).values()
    assert figure["centralised"][:4] == (pytest.approx((93, 90)),) * 4
    assert figure["centralised"][-1] == "-"
    assert figure["noise per photo, largest 10%, epsilon 2"][-1] == "2.00"  # rounded up
    assert tuning == {"head-tuning": ("kind=fedavg,server_rate=3.0", (90,))}
    within = relations["largest 10% within 1 point of centralised"]
    assert within == (pytest.approx((-0.5, -0.5)), "at least -1", "confirmed")
    verdicts = {said: row[-1] for said, row in relations.items()}
    assert verdicts["the paper's noise keeps accuracy: 10% within 1 point of centralised"] == "refuted"
    assert verdicts["largest 20% within 1 point of centralised"] == "not measured"
    assert composition["the paper's noise, 10%"] == ("1", "512", "264", "37,888", "14,616", "14,616", "no")
    assert table_2["frozen backbone, last layer, Adam, validation"] == ("83.5", (93.0,), "+9.5")
