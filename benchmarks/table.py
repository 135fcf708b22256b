"""Tables from recorded results, declared by each suite: figures crosswise (`Table`), what was claimed of them
(`Claims`), or any function of what was found. Means, spreads, verdicts and the paper's column are made here alone.
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from benchmarks.results import Result, argument_text

if TYPE_CHECKING:
    from benchmarks.harness import Benchmark, Task

Values = tuple[float, ...]
"""A figure in every run."""

Cell = str | Values
Rows = list[Sequence[Cell]]
Figure = str | tuple[str, ...] | Callable[[Result], float]
"""A score by its name, the sum of several, or whatever is computed from a result."""

Ask = Mapping[str, Any]
"""What a cell shows. Which results: `dataset`, `method` (patterns of the shell's), `exactly` (all arguments), or any
argument by its name. Which figure of them: `figure` times `scale`, in whatever `form`, or `values`, a function of them
all. Or a `text`, by the name of the row. In names "{about}" stands for what the row or the column is `about`."""


Names = str | Collection[str]
"""A pattern of the shell's, or several."""


def cpu(result: Result) -> float:
    """The figure that every result has."""
    return result.cpu_seconds


class Found(tuple[Result, ...]):
    """Results to choose from and to ask for figures."""

    __slots__ = ()

    def __call__(
        self, dataset: Names = "*", method: Names = "*", exactly: Ask | str | None = None, **some: Any
    ) -> "Found":
        """Keep the results of these datasets and methods that have some arguments (None: lack), or exactly these."""
        text = exactly if exactly is None or isinstance(exactly, str) else argument_text(exactly)
        return Found(
            result
            for result in self
            if _named(result.dataset, dataset)
            and _named(result.method, method)
            and (text is None or text == argument_text(result.arguments))
            and all(result.arguments.get(name) == value for name, value in some.items())
        )

    def names(self, *kinds: str) -> list[tuple[Any, ...]]:
        """Return what there is of datasets, methods or arguments, or of their combinations, as they come."""
        known = ({"dataset": r.dataset, "method": r.method, "exactly": argument_text(r.arguments)} for r in self)
        found = ({**names, **r.arguments} for names, r in zip(known, self, strict=True))
        return list(dict.fromkeys(tuple(each.get(kind) for kind in kinds) for each in found))

    def parts(self, name: str, depth: int = 1) -> "Found":
        """Take results apart: what their scores are of, up to the slash of this `depth`, becomes an argument."""
        found: dict[tuple[int, str], Result] = {}
        for place, result in enumerate(self):
            for score, value in result.score.items():
                about, figure = "/".join(score.split("/")[:depth]), "/".join(score.split("/")[depth:])
                blank = replace(result, arguments={**result.arguments, name: about}, score={})
                cast(dict[str, float], found.setdefault((place, about), blank).score)[figure] = value
        return Found(found.values())

    def adding(self, more: Callable[[Result], Mapping[str, float]]) -> "Found":
        """Add figures that follow from a result to its scores."""
        return Found(replace(r, score={**r.score, **more(r)}) for r in self)

    def runs(self, figure: Figure, scale: float = 1.0, *, timed: bool = False) -> dict[Any, float]:
        """Return a figure by seed; times are compared only within one call of the harness, so by seed and session.

        Where a run has several, their mean counts.
        """
        found: dict[Any, list[float]] = {}
        for r in self:
            if (value := _figure(r, figure)) is not None:
                found.setdefault((r.seed, r.session) if timed else r.seed, []).append(scale * value)
        return {run: statistics.fmean(values) for run, values in found.items()}

    def of(self, figure: Figure, scale: float = 1.0) -> Values:
        """Return a figure of every result that has it."""
        return tuple(scale * value for r in self if (value := _figure(r, figure)) is not None)


def _named(name: str, patterns: Names) -> bool:
    return any(fnmatchcase(name, one) for one in ([patterns] if isinstance(patterns, str) else patterns))


def _figure(result: Result, figure: Figure) -> float | None:
    if callable(figure):
        return figure(result)
    names = (figure,) if isinstance(figure, str) else figure
    return sum(result.score[name] for name in names) if all(name in result.score for name in names) else None


def leads(first: Found, second: Found, figure: Figure, scale: float = 1.0) -> Values:
    """Return by how much the first is ahead of the second, in every run that has both."""
    ours, theirs = first.runs(figure, scale), second.runs(figure, scale)
    return tuple(ours[run] - theirs[run] for run in ours if run in theirs)


def ratios(above: Found, below: Found, figure: Figure = cpu, of: Figure | None = None) -> Values:
    """Return how many times the second's figure the first's is, in every call of the harness that measured both."""
    top, bottom = above.runs(figure, timed=True), below.runs(of or figure, timed=True)
    return tuple(top[run] / bottom[run] for run in top if run in bottom)


@dataclass(frozen=True)
class Grid:
    """A table as it is shown; names of columns may have bars between them. Figures have so many digits, or three that
    count.
    """

    title: str
    columns: str | Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    digits: int | None = None


@dataclass(frozen=True)
class Table:
    """Figures crosswise: a row, a column and what is `common` to all say together what a cell shows.

    Rows are an `Ask` by name, or a list of cells that stands for itself; or names of what there is ("method dataset"),
    each combination a row. Columns are names with bars between them, the first that of the rows: "AUC = auc" is the
    figure `auc`, "MB = bytes * 1e-6" a multiple, `cpu_seconds` what every result has; `more` of them follow by name.
    Names of rows may have bars, too. Without columns there is one figure, and the `paper`'s. With `each`, a kind of
    names, there is a table for each; with `across`, an argument, a column for each of its values, in all of which
    results without it stand. What is shown is `of` the results; rows may be left out where nothing was `measured`.
    """

    title: str
    rows: Mapping[str, Ask | list[Cell]] | str
    columns: str = ""
    note: str = ""
    digits: int | None = None
    more: Mapping[str, Ask] = field(default_factory=dict)
    common: Ask = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)
    each: str = ""
    across: str = ""
    of: Callable[[Found], Found] = Found
    measured: bool = False

    def __call__(self, found: Found) -> Iterator[Grid]:
        found = self.of(found)
        for (name,) in found.names(self.each) if self.each else [("",)]:
            yield self._grid(self.title.format(name), found(**{self.each: name}) if self.each else found)

    def _grid(self, title: str, found: Found) -> Grid:
        rows = self._rows(found)
        columns = _columns(self.columns) + [{"said": said, **ask} for said, ask in self.more.items()]
        for (value,) in found.names(self.across) if self.across else ():
            columns += [{"said": f"{self.across} {value}", "across": (self.across, value)}] if value is not None else []
        if columns:
            cells: Rows = [
                [*names, *row]
                if isinstance(row, list)
                else [
                    *names,
                    *(_cell(found, {**self.common, **row, **c}, " ".join(names)) for c in columns if len(c) > 1),
                ]
                for names, row in rows
            ]
            if self.measured:
                cells = [row for row, (names, _) in zip(cells, rows, strict=True) if {*row[len(names) :]} - {"-", ()}]
            return Grid(title, [str(column["said"]) for column in columns], cells, self.note, self.digits)
        ours = {
            names[0]: _cell(found, {**self.common, **row}, names[0]) for names, row in rows if isinstance(row, Mapping)
        }
        if not self.paper:
            return Grid(title, " | measured", list(ours.items()), self.note, self.digits)
        pairs = [(name, *beside(self.paper.get(name), cell, self.digits)) for name, cell in ours.items()]
        return Grid(title, " | paper | ours | difference", pairs, self.note, self.digits)

    def _rows(self, found: Found) -> list[tuple[tuple[str, ...], Ask | list[Cell]]]:
        if not isinstance(self.rows, str):
            return [(tuple(name.split(" | ")), row) for name, row in self.rows.items()]
        kinds = self.rows.split()
        return [
            (tuple("" if name is None else f"{name}" for name in names), dict(zip(kinds, names, strict=True)))
            for names in found.names(*kinds)
        ]


def beside(paper: float | None, ours: Cell, digits: int | None) -> tuple[Cell, Cell, Cell]:
    """Return the paper's figure, ours and the difference, as far as they are known."""
    if paper is None or not ours or isinstance(ours, str):
        return "-" if paper is None else f"{paper:.{digits}f}", ours, "-"
    return f"{paper:.{digits}f}", ours, f"{statistics.fmean(ours) - paper:+.{digits}f}"


def _columns(text: str) -> list[Ask]:
    """Read columns; those without a figure are for the names of rows.

    >>> _columns("attack | AUC = auc | MB = bytes * 1e-6")[1:]
    [{'said': 'AUC', 'figure': 'auc', 'scale': 1.0}, {'said': 'MB', 'figure': 'bytes', 'scale': 1e-06}]
    """
    found: list[Ask] = []
    for column in text.split("|") if text else ():
        said, _, figure = map(str.strip, column.partition(" = "))
        name, _, scale = figure.partition(" * ")
        figures = {"figure": cpu if name == "cpu_seconds" else name, "scale": float(scale or 1)}
        found.append({"said": said, **(figures if figure else {})})
    return found


def _cell(found: Found, ask: Ask, name: str) -> Cell:
    if "text" in ask:
        return str(ask["text"].get(name, "-"))
    if "about" in ask:
        ask = {k: v.format(about=ask["about"]) if isinstance(v, str) else v for k, v in ask.items()}
    chosen = found(**{name: ask[name] for name in ask if name not in _SHOWN})
    if "across" in ask:
        name, value = ask["across"]
        chosen = Found(r for r in chosen if r.arguments.get(name, value) == value)
    shown: Callable[[Any], Cell] = ask.get("values") or ask.get("form", tuple)
    return shown(chosen if "values" in ask else chosen.of(ask["figure"], ask.get("scale", 1.0)))


_SHOWN = ("said", "figure", "scale", "form", "values", "about", "across")  # all else chooses results


def listed(values: Values) -> str:
    """Write whole numbers run by run; a number that all runs share once."""
    return ", ".join(dict.fromkeys(f"{value:g}" for value in values)) or "-"


@dataclass(frozen=True)
class Claim:
    """What is said of a figure: at least, or at most, so much. It is an `Ask`, or a function of what was found."""

    said: str
    values: Ask | Callable[[Found], Values] | Values
    least: float | None = None
    most: float | None = None

    def measured(self, found: Found) -> Values:
        if isinstance(self.values, Mapping):
            return cast(Values, _cell(found, self.values, self.said))
        return self.values(found) if callable(self.values) else self.values

    @property
    def bound(self) -> str:
        return f"at most {self.most:g}" if self.least is None else f"at least {self.least:g}"


@dataclass(frozen=True)
class Claims:
    """Claims, what was measured, and the verdicts."""

    title: str
    claims: Sequence[Claim] | Callable[[Found], Sequence[Claim]]
    words: tuple[str, str] = ("confirmed", "refuted")
    note: str = ""
    digits: int | None = None

    def __call__(self, found: Found) -> Grid:
        claims = self.claims(found) if callable(self.claims) else self.claims
        rows = []
        for claim in claims:
            values = claim.measured(found)
            rows.append((claim.said, values, claim.bound, verdict(values, claim.least, claim.most, self.words)))
        return Grid(self.title, " | measured | bound | verdict", rows, self.note, self.digits)


Show = Callable[[Found], Grid | Iterable[Grid]]


def verdict(
    values: Sequence[float],
    least: float | None = None,
    most: float | None = None,
    words: tuple[str, str] = ("reached", "missed"),
) -> str:
    """Compare the mean with the bound; undecided where the spread of the runs covers it."""
    if not values:
        return "not measured"
    margin = (most or 0.0) - statistics.fmean(values) if least is None else statistics.fmean(values) - least
    if len(values) > 1 and abs(margin) < statistics.stdev(values):
        return "undecided"
    return words[0] if margin >= 0 else words[1]


def spread(values: Values, digits: int | None = None) -> str:
    """Write the mean of all runs with so many digits, or three that count, and their deviation if there are several."""
    if not values:
        return "-"
    mean = statistics.fmean(values)
    if digits is None:
        digits = max(0, 2 - math.floor(math.log10(abs(mean)))) if mean else 0
    return f"{mean:.{digits}f}" + (f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else "")


def shown(benchmark: "Benchmark", results: Sequence[Result]) -> list[Grid]:
    """Return the benchmark's tables that have a row."""
    grids: list[Grid] = []
    for show in benchmark.tables:
        made = show(Found(results))
        grids += [made] if isinstance(made, Grid) else made
    return [grid for grid in grids if grid.rows]


def render(benchmark: "Benchmark", tasks: Sequence["Task"], results: Sequence[Result]) -> str:
    """Return the whole page as Markdown; the same results give the same page."""
    good = [result for result in results if result.ok]
    grids, seeds = shown(benchmark, good), sorted({result.seed for result in good})
    blocks = [f"# {benchmark.title}"]
    for grid in grids:
        columns = grid.columns if isinstance(grid.columns, str) else " | ".join(grid.columns)
        rule = " | ".join(["---", *["---:"] * columns.count("|")])
        rows = (" | ".join(c if isinstance(c, str) else spread(c, grid.digits) for c in row) for row in grid.rows)
        lines = [f"| {line} |" for line in (columns, rule, *rows)]
        blocks += [f"## {grid.title}", "\n".join(lines), *filter(None, [grid.note])]
    if len(seeds) > 1:
        blocks.append(f"Means over {len(seeds)} runs (seeds {', '.join(map(str, seeds))}) ± their standard deviation.")
    else:
        blocks.append(f"One run, seed {seeds[0]}." if seeds else "No results yet.")
    papers = any(" | paper | " in grid.columns for grid in grids)
    lists = {
        "What differs from the paper" if papers else "Notes": benchmark.notes,
        "Data": [f"`{task.dataset}`: {task.description}" for task in tasks],
        "Failed": [f"{_where(r)} on {r.dataset}, seed {r.seed}: {r.error}" for r in results if not r.ok],
        "Methods": _costs(good),
        "Machine and versions": _circumstances(good),
    }
    blocks += [f"## {title}\n\n" + "\n".join(f"- {line}" for line in lines) for title, lines in lists.items() if lines]
    return "\n\n".join(blocks) + "\n"


def _where(result: Result) -> str:
    return f"{result.method} ({argument_text(result.arguments)})"


def _costs(results: Sequence[Result]) -> list[str]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(f"{result.dataset}, {_where(result)}", []).append(result)
    return [
        f"{name}: {statistics.fmean(r.cpu_seconds for r in group):.2f} CPU s a run, "
        f"peak {max(r.peak_memory_bytes for r in group) / 2**20:.0f} MiB"
        for name, group in groups.items()
    ]


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
