"""The command line: run one benchmark or all, write results, render tables."""

import argparse
import pkgutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import Benchmark, Settings, label, never, recorded, run
from benchmarks.machine import commit
from benchmarks.results import Result
from benchmarks.suites import SUITES
from benchmarks.table import render
from blindsight.errors import BlindsightError, InputError, UnknownNameError
from blindsight.files import atomic_writer

HERE = Path(__file__).resolve().parent


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words ask; return 0, 1 if a method failed, 2 if the words make no sense, 130 if interrupted."""
    options = _parser().parse_args(words)
    try:
        if options.list or not (options.names or options.all or options.tables):
            for name in suite_names():
                print(f"{name:<16} {load_suite(name).title}")
            return 0
        if options.tables:
            for name in options.names or suite_names():
                for settings in (Settings(recorded=True), Settings(recorded=True, full=True)):
                    benchmark = load_suite(name)
                    if (options.output / "results" / label(benchmark, settings)).exists():
                        _say(f"table: {write_table(benchmark, settings, options.output)}")
            return 0
        if options.all:
            return 0 if _run_all(options) else 1
        settings = Settings(options.data_dir, options.quick, options.full)
        keep = never if options.force else lambda result: True
        answered = [_run(name, settings, options, keep) for name in options.names]
        return 0 if all(answered) else 1
    except KeyboardInterrupt:
        _say("stopped; every result so far is kept, the same command goes on from there.")
        return 130
    except BlindsightError as error:
        _say(f"error: {error}")
        return 2


def suite_names() -> list[str]:
    """Return the names of all benchmarks."""
    return sorted(SUITES)


def load_suite(name: str) -> Benchmark:
    """Return the benchmark of that name."""
    if name not in SUITES:
        raise UnknownNameError("benchmark", name, SUITES)
    suite: Benchmark = pkgutil.resolve_name(f"benchmarks.suites.{SUITES[name]}")
    return suite


def write_table(benchmark: Benchmark, settings: Settings, output: Path) -> Path:
    """Render the table from all recorded results, whenever and wherever they were measured."""
    path = output / "tables" / f"{label(benchmark, settings)}.md"
    results = list(recorded(benchmark, settings, output / "results"))
    with atomic_writer(path) as stream:
        stream.write(render(benchmark, benchmark.tasks(settings), results).encode())
    return path


def _run(name: str, settings: Settings, options: argparse.Namespace, keep: Callable[[Result], bool]) -> bool:
    """Measure one benchmark and write its table; tell whether all methods answered."""
    benchmark = load_suite(name)
    runs = options.runs if options.runs is not None else 1 if settings.quick else benchmark.runs
    if runs < 1 or options.seed < 0:
        raise InputError(f"--runs must be >= 1 and --seed >= 0; got {runs} and {options.seed}.")
    own = options.runs is None and not options.seed and not settings.quick
    seeds = None if own else range(options.seed, options.seed + runs)
    folder = options.output / "results"
    results = run(benchmark, settings, folder, seeds=seeds, only=options.only, keep=keep, say=_say)
    _say(f"table: {write_table(benchmark, settings, options.output)}")
    return all(result.ok for result in results)


def _run_all(options: argparse.Namespace) -> bool:
    """Measure every benchmark, or those named, with this commit, large versions that have a table too; say how long
    each took.

    What this commit measured before is kept, so that an interrupted call goes on; benchmarks whose data are not here
    are named at the end.
    """
    code = commit(HERE)

    def keep(result: Result) -> bool:
        return code is not None and result.commit == code

    done, ok = [], True
    for name, full in ((name, full) for name in options.names or suite_names() for full in (False, True)):
        settings = Settings(options.data_dir, options.quick, full)
        if full and (
            options.quick or not (options.output / "tables" / f"{label(load_suite(name), settings)}.md").exists()
        ):
            continue
        begun, said = time.monotonic(), ""
        try:
            answered = _run(name, settings, options, never if options.force else keep)
            said = "" if answered else ", some methods failed"
        except BlindsightError as error:
            said = f", not measured: {error}"
        ok = ok and not said
        done.append(f"{label(load_suite(name), settings):<24} {time.monotonic() - begun:8.0f} s{said}")
        _say(done[-1])
    print("\n".join(done))
    return ok


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help="a benchmark, or several; without it, all are listed")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--all", action="store_true", help="measure every benchmark, or those named, with this commit")
    parser.add_argument("--tables", action="store_true", help="only write tables anew from what is recorded")
    parser.add_argument("--data-dir", type=Path, help="folder with data that are not shipped")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--runs", type=int, help="how many seeds, one after another (default: the benchmark's own)")
    parser.add_argument(
        "--only", metavar="METHOD", help="measure this method alone, or those whose names match: '*-warm'"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a small version, kept apart from real results")
    size.add_argument("--full", action="store_true", help="a large version where there is one, kept apart as well")
    parser.add_argument("--force", action="store_true", help="measure again what is recorded already")
    parser.add_argument("--output", type=Path, default=HERE, help="where results/ and tables/ go (default: here)")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
