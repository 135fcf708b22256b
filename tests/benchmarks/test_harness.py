"""The harness with a toy benchmark: guess ten hidden bits. Methods live in this file and are named like any adapter."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.command import main, suite_names
from benchmarks.harness import Benchmark, Method, Problem, Settings, Task, never, recorded, run
from benchmarks.machine import commit, measured
from benchmarks.results import Result, argument_text, parse_arguments, read_result, result_path, write_result
from benchmarks.table import Claim, Claims, Found, Grid, Table, leads, listed, ratios, render, shown, verdict
from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.metrics import accuracy

ROOT = Path(__file__).resolve().parents[2]
calls = []


def answer(given, *, seed, flips=0):
    calls.append(("answer", seed))
    bits = given["hint"].copy()
    bits[:flips] ^= 1
    return bits


def boast(given, *, seed):
    return {"score": 1.0, "bits": given["hint"]}


def vandal(given, *, seed):
    given["hint"][:] ^= 1
    return given["hint"]


def broken(given, *, seed):
    calls.append(("broken", seed))
    raise RuntimeError("out of\nluck")


def interrupted(given, *, seed):
    raise KeyboardInterrupt


def pose(bits, seed):
    hidden = np.random.default_rng(seed).integers(0, 2, bits)
    return Problem({"hint": hidden.copy()}, lambda guess: {"accuracy": accuracy(hidden, guess)})


def tasks(settings):
    bits = 4 if settings.quick else 10
    return [Task(f"bits-{bits}", f"{bits} hidden bits.", partial(pose, bits))]


GUESSING = Table(
    "Guessing",
    {"bits": {"method": "answer", "figure": "accuracy", "scale": 100}},
    digits=1,
    paper={"bits": 75.0},
)


def method(name, **arguments):
    return Method(name, f"{__name__}:{name}", arguments)


def benchmark(*methods):
    return Benchmark(
        "toy", "A toy", tasks, methods or (method("answer", flips=2),), (GUESSING,), ("Nothing is hidden.",), runs=2
    )


@pytest.fixture(autouse=True)
def _forget_calls():
    calls.clear()


def test_the_path_names_what_was_measured(tmp_path):
    run(benchmark(method("answer", flips=2)), Settings(), tmp_path, seeds=[7])
    path = tmp_path / "toy" / "bits-10" / "answer" / "flips=2.seed7.json"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]
    record = json.loads(path.read_text())
    assert record["arguments"] == {"flips": 2}
    assert record["seed"] == 7
    assert record["score"] == {"accuracy": 0.8}
    assert record["output"]["shape"] == [10]
    assert len(record["output"]["sha256"]) == 64
    assert record["cpu_seconds"] >= 0
    assert record["peak_memory_bytes"] > 10**7
    assert record["machine"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record["packages"]["numpy"] == np.__version__


def test_recorded_results_are_reused_unless_forced(tmp_path):
    first = run(benchmark(), Settings(), tmp_path, seeds=[0, 1])
    assert calls == [("answer", 0), ("answer", 1)]
    assert run(benchmark(), Settings(), tmp_path, seeds=[0, 1]) == first
    assert len(calls) == 2
    run(benchmark(), Settings(), tmp_path, seeds=[1, 2])
    assert calls[2:] == [("answer", 2)]
    run(benchmark(), Settings(), tmp_path, seeds=[0], keep=never)
    assert calls[3:] == [("answer", 0)]


def test_a_failed_method_is_recorded_stops_nobody_and_is_tried_again(tmp_path):
    toy = benchmark(method("broken"), method("missing"), method("answer"))
    results = run(toy, Settings(), tmp_path, seeds=[0])
    assert [r.ok for r in results] == [False, False, True]
    assert results[0].error == "RuntimeError: out of"
    assert results[1].error.startswith("AttributeError: ")
    assert read_result(result_path(tmp_path, results[0])) == results[0]
    run(toy, Settings(), tmp_path, seeds=[0])
    assert calls == [("broken", 0), ("answer", 0), ("broken", 0)]


def test_a_method_cannot_score_itself_nor_spoil_the_problem_for_others(tmp_path):
    toy = benchmark(method("boast"), method("vandal"), method("answer"))
    boaster, spoiler, honest = run(toy, Settings(), tmp_path, seeds=[3])
    assert "InputError" in boaster.error
    assert [boaster.score, spoiler.score, honest.score] == [{}, {"accuracy": 0}, {"accuracy": 1}]

    def unscored(settings):
        return [Task("b", "", lambda seed: Problem({"hint": np.zeros(1, int)}, lambda guess: {"f1": float("nan")}))]

    (result,) = run(replace(benchmark(), tasks=unscored), Settings(), tmp_path, seeds=[0])
    assert "'f1' is nan" in result.error


def test_an_interrupt_keeps_what_was_written(tmp_path):
    toy = benchmark(method("answer"), method("interrupted"))
    with pytest.raises(KeyboardInterrupt):
        run(toy, Settings(), tmp_path, seeds=[0, 1])
    assert [r.method for r in recorded(toy, Settings(), tmp_path)] == ["answer"]
    assert [p.suffix for p in tmp_path.rglob("*") if p.is_file()] == [".json"]


def test_a_result_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    write_result(path, Result("toy", "d", "m", {}, 0, score={"accuracy": 0.5}))

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk is full"):
        write_result(path, Result("toy", "d", "m", {}, 0, score={"accuracy": 0.9}))
    assert read_result(path).score == {"accuracy": 0.5}
    assert list(tmp_path.iterdir()) == [path]
    path.write_text("{}")
    with pytest.raises(CorruptFileError, match="--force"):
        read_result(path)


def test_recorded_takes_every_seed_of_exactly_these_arguments_and_no_quick_ones(tmp_path):
    many = benchmark(method("answer", flips=1), method("answer", flips=10), method("answer"))
    run(many, Settings(), tmp_path, seeds=[0, 2, 10])
    found = list(recorded(benchmark(method("answer", flips=1)), Settings(), tmp_path))
    assert [(r.arguments, r.seed) for r in found] == [({"flips": 1}, 0), ({"flips": 1}, 2), ({"flips": 1}, 10)]
    run(benchmark(), Settings(quick=True), tmp_path, seeds=[0])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy", "toy-quick"]
    assert {r.dataset for r in recorded(many, Settings(), tmp_path)} == {"bits-10"}


def test_a_task_or_a_person_may_ask_some_methods_only(tmp_path):
    def picky(settings):
        return [replace(task, methods=("answer",)) for task in tasks(settings)]

    everyone = benchmark(method("answer"), method("broken"))
    toy = replace(everyone, tasks=picky)
    assert [r.method for r in run(toy, Settings(), tmp_path, seeds=[0])] == ["answer"]
    assert [r.method for r in recorded(toy, Settings(), tmp_path)] == ["answer"]
    assert run(toy, Settings(), tmp_path, seeds=[0], only="broken") == []
    assert [r.method for r in run(everyone, Settings(), tmp_path, seeds=[0], only="answer")] == ["answer"]
    with pytest.raises(UnknownNameError, match="'answer'"):
        run(everyone, Settings(), tmp_path, seeds=[0], only="anser")


values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
argument_sets = st.dictionaries(names, values, max_size=4)


@settings(deadline=None, max_examples=50)
@given(argument_sets)
@example({"a": "1"})
@example({"a": 1})
@example({"a": 1.0})
@example({"a": True, "b": "true"})
@example({"a": "x,b=y"})
@example({"a": "../../b"})
@example({"a": "NaN", "b": "Infinity", "c": "-Infinity"})
def test_arguments_in_a_path_can_be_read_back(arguments):
    text = argument_text(arguments)
    assert len(text) <= 150
    assert "/" not in text
    if text.startswith("sha256-"):
        with pytest.raises(InputError, match="file"):
            parse_arguments(text)
    else:
        back = parse_arguments(text)
        assert back == arguments
        assert {name: type(value) for name, value in back.items()} == {n: type(v) for n, v in arguments.items()}


def test_names_are_different_and_stay_in_their_folder(tmp_path):
    texts = {argument_text({"note": "x" * 200 + end}) for end in "ab"}
    assert len(texts) == 2
    assert all(text.startswith("sha256-") for text in texts)
    assert argument_text({"b": 1, "a": 2}) == argument_text({"a": 2, "b": 1})
    for arguments in ({"../x": 1}, {"privacy": float("inf")}):
        with pytest.raises(InputError):
            argument_text(arguments)
    for name in ("..", "", "a/b", ".hidden", "a b"):
        with pytest.raises(InputError):
            result_path(tmp_path, Result("toy", name, "m", {}, 0))


def test_the_table_says_everything():
    def result(seed, accuracy, error=None):
        score = {} if error else {"accuracy": accuracy}
        return Result(
            *("toy", "bits-10", "answer", {"flips": 2}, seed, error, score),
            cpu_seconds=1.25,
            peak_memory_bytes=64 * 2**20,
            machine={"cpu": "Abacus", "cores": "2"},
            packages={"numpy": "2.4"},
            commit="abc",
        )

    results = [result(0, 0.8), result(1, 0.7), result(2, 0, error="RuntimeError: no luck")]
    assert render(benchmark(), tasks(Settings()), results) == (
        "# A toy\n\n"
        "## Guessing\n\n"
        "|  | paper | ours | difference |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| bits | 75.0 | 75.0 ± 7.1 | +0.0 |\n\n"
        "Means over 2 runs (seeds 0, 1) ± their standard deviation.\n\n"
        "## What differs from the paper\n\n- Nothing is hidden.\n\n"
        "## Data\n\n- `bits-10`: 10 hidden bits.\n\n"
        "## Failed\n\n- answer (flips=2) on bits-10, seed 2: RuntimeError: no luck\n\n"
        "## Methods\n\n- bits-10, answer (flips=2): 1.25 CPU s a run, peak 64 MiB\n\n"
        "## Machine and versions\n\n- machine: cpu Abacus, cores 2\n- commit: abc\n- packages: numpy 2.4\n"
    )


def test_the_table_warns_of_results_from_different_machines():
    blank = Result("toy", "bits-10", "answer", {}, 0, score={"accuracy": 1.0}, machine={"cpu": "Abacus"})
    same = replace(blank, seed=1, packages={"scipy": "1.17"})
    assert "different" not in render(benchmark(), tasks(Settings()), [blank, same])
    page = render(benchmark(), tasks(Settings()), [blank, replace(blank, seed=1, machine={"cpu": "Rule"})])
    assert "- machine: cpu Abacus\n- machine: cpu Rule\n- commit: unknown\n" in page
    assert "different machines" in page


def test_columns_without_figures_of_a_paper_and_grids_of_three_significant_digits():
    plain = Grid("Speed", " | measured", (("fast", (1.0,)), ("never ran", ())), digits=0)
    cells = ("big", (12345.6,)), ("small", (0.00123, 0.00126)), ("none", ()), ("zero", (0.0,)), ("text", "yes")
    page = render(replace(benchmark(), tables=(lambda _: [plain, Grid("Costs", ["", "s"], cells)],)), [], [])
    assert "|  | measured |\n| --- | ---: |\n| fast | 1 |\n| never ran | - |\n" in page
    assert "No results yet." in page
    lines = "| big | 12346 |", "| small | 0.00125 ± 0.00002 |", "| none | - |", "| zero | 0 |", "| text | yes |"
    assert "## Costs\n\n|  | s |\n| --- | ---: |\n" + "\n".join(lines) + "\n" in page


def found(*rows):
    """Results of the toy: dataset, method, arguments, seed, session, score."""
    made = (Result("toy", d, m, a, seed, score=score, session=s, cpu_seconds=1.0) for d, m, a, seed, s, score in rows)
    return Found(made)


PLAYED = found(
    ("easy", "ours", {"bits": 8}, 0, "monday", {"a/x": 4.0, "time": 3.0}),
    ("easy", "ours", {"bits": 8}, 1, "monday", {"a/x": 6.0, "time": 5.0}),
    ("easy", "peer", {}, 0, "monday", {"a/x": 1.0, "b/x": 2.0, "time": 6.0}),
    ("easy", "peer", {}, 1, "tuesday", {"a/x": 2.0, "time": 10.0}),
    ("hard", "ours", {"bits": 8, "half": True}, 0, "monday", {"time": 7.0}),
)


def test_results_are_chosen_by_what_they_are_and_compared_within_runs():
    assert PLAYED(method="o*").of("time") == (3, 5, 7)
    assert PLAYED(exactly={"bits": 8}).of("time", 2) == PLAYED("easy", bits=8).of("time", 2) == (6, 10)
    assert PLAYED.names("dataset", "method") == [("easy", "ours"), ("easy", "peer"), ("hard", "ours")]
    ours, peer = PLAYED("easy", "ours"), PLAYED(method="peer")
    assert leads(ours, peer, "a/x", 10) == (30, 40)
    assert ratios(peer, ours, "time") == (2,)  # times of another call of the harness are not compared
    assert ratios(peer, ours) == (1,)
    parts = PLAYED(method="peer").parts("about")
    assert [(r.arguments["about"], r.seed, r.score["x"]) for r in parts if "x" in r.score] == [
        ("a", 0, 1.0),
        ("b", 0, 2.0),
        ("a", 1, 2.0),
    ]
    assert parts.runs("x") == {0: 1.5, 1: 2.0}  # the mean of a run that has several


def test_a_declared_table_crosses_rows_with_columns():
    (grid,) = Table(
        "T",
        {"ours": {"method": "ours"}, "peer": {"method": "peer"}, "known": ["1", "2", "3", "4"]},
        "who | s = time | ms = time * 1e3",
        more={"bits": {"values": lambda some: str(len(some))}, "earlier": {"text": {"peer": ".5"}}},
        common={"dataset": "easy"},
    )(PLAYED)
    assert list(grid.columns) == ["who", "s", "ms", "bits", "earlier"]
    assert [list(row) for row in grid.rows] == [
        ["ours", (3, 5), (3000, 5000), "2", "-"],
        ["peer", (6, 10), (6000, 10000), "2", ".5"],
        ["known", "1", "2", "3", "4"],
    ]
    each = Table("on {}", "method", "who | CPU s = cpu_seconds", each="dataset")
    assert [(grid.title, len(grid.rows)) for grid in each(PLAYED)] == [("on easy", 2), ("on hard", 1)]
    (beside,) = Table("P", {"ours": {"method": "ours", "figure": "a/x"}}, digits=1, paper={"ours": 4.0})(PLAYED)
    assert beside.rows == [("ours", "4.0", (4, 6), "+1.0")]
    assert shown(replace(benchmark(), tables=(lambda some: Grid("empty", "a | b", []),)), []) == []


def test_a_declared_table_may_be_of_parts_about_something_and_across_an_argument():
    (grid,) = Table(
        "T",
        {"ours | a": {"method": "ours", "about": "a"}, "peer | b": {"about": "b"}, "nobody | z": {"about": "z"}},
        "who | what | x = {about}/x",
        more={"runs": {"figure": "{about}/x", "form": listed}},
        common={"dataset": ("easy", "other")},
        measured=True,
    )(PLAYED)
    assert [list(row) for row in grid.rows] == [["ours", "a", (4, 6), "4, 6"], ["peer", "b", (2,), "2"]]
    twice = Table("D", "method", " | s = twice", of=lambda some: some.adding(lambda r: {"twice": 2 * r.score["time"]}))
    assert next(twice(PLAYED)).rows[0] == ["ours", (6, 10, 14)]
    (grid,) = Table("A", "method half", "who | half", common={"figure": "time"}, across="bits")(PLAYED)
    assert list(grid.columns) == ["who", "half", "bits 8"]
    assert [list(row) for row in grid.rows] == [["ours", "", (3, 5)], ["peer", "", (6, 10)], ["ours", "True", (7,)]]


def test_claims_are_judged_and_undecided_where_the_spread_covers_the_bound():
    assert verdict((), 0) == "not measured"
    assert verdict((0.1,), 0) == verdict((0.1, 0.11), 0) == "reached"
    assert verdict((0.1, -0.3), 0) == "undecided"
    assert verdict((-0.2, -0.21), 0, words=("confirmed", "refuted")) == "refuted"
    assert [verdict((value,), most=1.2) for value in (1.2, 1.3)] == ["reached", "missed"]
    claims = [Claim("fast", lambda some: some(method="ours").of("time"), most=4), Claim("slow", (9.0,), 8)]
    claims.append(Claim("asked", {"method": "peer", "figure": "time", "scale": 2}, most=40))
    fast, slow, asked = Claims("C", claims)(PLAYED("easy")).rows
    assert fast == ("fast", (3, 5), "at most 4", "undecided")
    assert slow == ("slow", (9,), "at least 8", "confirmed")
    assert asked == ("asked", (12, 20), "at most 40", "confirmed")


def test_a_method_over_several_values_is_one_for_each_combination():
    made = Method.over("m", "a:b", bits=(8, 16), kind=("x", "y"), k=1)
    assert [argument_text(one.arguments) for one in made][1] == "bits=8,k=1,kind=y"
    assert len(made) == 4


def test_the_command_runs_a_suite_and_writes_its_table(tmp_path, monkeypatch, capsys):
    toy = benchmark(method("answer", flips=5), method("broken"))
    monkeypatch.setattr("benchmarks.command.load_suite", lambda name: toy)
    assert main(["toy", "--output", str(tmp_path), "--seed", "5"]) == 1
    assert {p.stem for p in tmp_path.rglob("*.json")} == {
        f"{a}.seed{k}" for a in ("flips=5", "default") for k in (5, 6)
    }
    page = (tmp_path / "tables" / "toy.md").read_text()
    assert "| bits | 75.0 | 50.0 ± 0.0 | -25.0 |" in page
    assert "broken (default) on bits-10, seed 5: RuntimeError: out of" in page
    assert "bits-10 broken default seed 5: failed, RuntimeError: out of" in capsys.readouterr().err
    assert main(["toy", "--output", str(tmp_path), "--seed", "5", "--only", "answer"]) == 0


def test_the_command_explains_itself(tmp_path, monkeypatch, capsys):
    assert main(["--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == suite_names()
    assert {"attributes", "dphe-round", "noise"} <= set(listed)
    assert main(["atributes"]) == 2
    assert "Did you mean 'attributes'?" in capsys.readouterr().err
    assert main(["noise", "--runs", "0"]) == 2
    assert "--runs must be >= 1" in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.command.load_suite", lambda name: benchmark(method("interrupted")))
    assert main(["toy", "--output", str(tmp_path)]) == 130
    assert "every result so far is kept" in capsys.readouterr().err


def test_the_script_starts_from_any_folder(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    script = [sys.executable, "-W", "error", str(ROOT / "benchmarks" / "run.py"), "noise", "--runs", "0"]
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--runs" in done.stderr


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system cannot forget a memory peak")
def test_the_cost_is_that_of_the_block_alone(tmp_path, monkeypatch):
    np.ones(10**7).sum()  # 80 MB, held and released before
    with measured() as little:
        pass
    with measured() as much:
        np.ones(10**7).sum()
        subprocess.run([sys.executable, "-S", "-c", "sum(range(10**6))"], check=True)
    assert much.peak_memory_bytes - little.peak_memory_bytes >= 70_000_000
    assert much.cpu_seconds > little.cpu_seconds
    assert much.wall_seconds > little.wall_seconds > 0
    with pytest.raises(ValueError, match="no"), measured() as cost:
        raise ValueError("no")
    assert cost.wall_seconds > 0  # known even if the block fails
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit(tmp_path) is None  # code outside git


def test_a_task_is_posed_as_often_as_it_says_and_else_as_the_benchmark_says(tmp_path: Path) -> None:
    def tasks(settings: Settings) -> list[Task]:
        (task,) = benchmark().tasks(settings)
        return [replace(task, dataset="once", runs=1), replace(task, dataset="often")]

    toy = replace(benchmark(), tasks=tasks, runs=2)
    assert [(r.dataset, r.seed) for r in run(toy, Settings(), tmp_path)] == [("once", 0), ("often", 0), ("often", 1)]
    assert {r.seed for r in run(toy, Settings(), tmp_path, seeds=[4, 5])} == {4, 5}
