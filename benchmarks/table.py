"""Tables from recorded results: the paper's figure, ours, the difference; then what differs, the data, the machine."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.results import Result, argument_text

if TYPE_CHECKING:
    from benchmarks.harness import Benchmark, Task


@dataclass(frozen=True)
class Row:
    """One figure: our value in every run, and the paper's where it has one, in the same unit."""

    name: str
    ours: tuple[float, ...]
    paper: float | None = None


@dataclass(frozen=True)
class Section:
    """Rows of one kind, all written with `digits` decimals."""

    title: str
    rows: tuple[Row, ...]
    digits: int = 2
    note: str = ""


Cell = str | tuple[float, ...]
"""A text, or a figure's value in every run."""


@dataclass(frozen=True)
class Grid:
    """Rows of several figures, all written with three significant digits."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""


def heads(text: str) -> tuple[str, ...]:
    """Return the columns of a grid, written with bars between them.

    >>> heads("| CPU s | MB")
    ('', 'CPU s', 'MB')
    """
    return tuple(map(str.strip, text.split("|")))


def render(benchmark: "Benchmark", tasks: Sequence["Task"], results: Sequence[Result]) -> str:
    """Return the whole page as Markdown; the same results give the same page."""
    good = [result for result in results if result.ok]
    failed = [result for result in results if not result.ok]
    sections = benchmark.sections(good)
    blocks = [f"# {benchmark.title}"]
    for section in sections:
        lines = _grid(section) if isinstance(section, Grid) else _comparison(section)
        blocks += [f"## {section.title}", _markdown(lines), *filter(None, [section.note])]
    blocks.append(_runs(sorted({result.seed for result in good})))
    lists = {
        "What differs from the paper" if any(map(_has_paper, sections)) else "Notes": benchmark.notes,
        "Data": [f"`{task.dataset}`: {task.description}" for task in tasks],
        "Failed": [_failure(result) for result in failed],
        "Methods": _costs(good),
        "Machine and versions": _circumstances(good),
    }
    blocks += [f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) for title, lines in lists.items() if lines]
    return "\n\n".join(blocks) + "\n"


def verdict(values: Sequence[float], least: float, words: tuple[str, str] = ("confirmed", "refuted")) -> str:
    """Compare the mean with the bound; undecided where the spread of the runs covers it."""
    if not values:
        return "not measured"
    margin = statistics.fmean(values) - least
    if len(values) > 1 and abs(margin) < statistics.stdev(values):
        return "undecided"
    return words[0] if margin >= 0 else words[1]


def _runs(seeds: Sequence[int]) -> str:
    if not seeds:
        return "No results yet."
    if len(seeds) == 1:
        return f"One run, seed {seeds[0]}."
    return f"Means over {len(seeds)} runs (seeds {', '.join(map(str, seeds))}) ± their standard deviation."


def _has_paper(section: Section | Grid) -> bool:
    return isinstance(section, Section) and any(row.paper is not None for row in section.rows)


def _markdown(lines: list[list[str]]) -> str:
    header, *rows = lines
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def _grid(grid: Grid) -> list[list[str]]:
    rows = ([cell if isinstance(cell, str) else _significant(cell) for cell in row] for row in grid.rows)
    return [list(grid.columns), *rows]


def _significant(values: tuple[float, ...]) -> str:
    size = abs(statistics.fmean(values)) if values else 0.0
    return spread(values, max(0, 2 - math.floor(math.log10(size))) if size else 0)


def _comparison(section: Section) -> list[list[str]]:
    with_paper = _has_paper(section)
    header = ["", "paper", "ours", "difference"] if with_paper else ["", "measured"]
    lines = [header]
    for row in section.rows:
        ours = spread(row.ours, section.digits)
        lines.append([row.name, *_beside(row, ours, section.digits)] if with_paper else [row.name, ours])
    return lines


def _beside(row: Row, ours: str, digits: int) -> list[str]:
    paper = "-" if row.paper is None else f"{row.paper:.{digits}f}"
    if row.paper is None or not row.ours:
        return [paper, ours, "-"]
    return [paper, ours, f"{statistics.fmean(row.ours) - row.paper:+.{digits}f}"]


def spread(values: tuple[float, ...], digits: int) -> str:
    """Write the mean of all runs, and their deviation if there are several."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def _failure(result: Result) -> str:
    return (
        f"{result.method} ({argument_text(result.arguments)}) on {result.dataset}, seed {result.seed}: {result.error}"
    )


def _costs(results: Sequence[Result]) -> list[str]:
    lines = []
    for key in dict.fromkeys((r.dataset, r.method, argument_text(r.arguments)) for r in results):
        group = [r for r in results if (r.dataset, r.method, argument_text(r.arguments)) == key]
        cpu = statistics.fmean(r.cpu_seconds for r in group)
        memory = max(r.peak_memory_bytes for r in group) / 2**20
        lines.append(f"{key[0]}, {key[1]} ({key[2]}): {cpu:.2f} CPU s a run, peak {memory:.0f} MiB")
    return lines


def _circumstances(results: Sequence[Result]) -> list[str]:
    """Say where the results come from, and plainly if from more than one place."""
    machines = dict.fromkeys(", ".join(f"{name} {value}" for name, value in r.machine.items()) for r in results)
    commits = dict.fromkeys(r.commit or "unknown" for r in results)
    packages: dict[str, dict[str, None]] = {}
    for name, version in (pair for r in results for pair in r.packages.items()):
        packages.setdefault(name, {})[version] = None
    lines = [f"machine: {text}" for text in machines] + [f"commit: {text}" for text in commits]
    versions = [f"{name} {' or '.join(packages[name])}" for name in sorted(packages)]
    lines.append(f"packages: {', '.join(versions)}")
    if any(len(kinds) > 1 for kinds in (machines, commits, *packages.values())):
        lines.append("These results come from different machines, commits or versions; measure again with --force.")
    return lines if results else []
