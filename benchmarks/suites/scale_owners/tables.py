"""The tables: whether the targets are met, what a round costs, what was predicted, and the plan for more owners."""

from collections.abc import Sequence

from benchmarks.results import Result
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.suites.scale_owners.cases import OWNERS, PLANNED, Case, full_cases, quick_cases
from benchmarks.table import Cell, Grid
from blindsight.federated.costmodel import FIGURES

MOST_MEGABYTES, MOST_GROWTH = 4000.0, 1.25
PER_OWNER = ("encrypt", "read", "add")
_SECONDS = ("encrypt", "read", "add", "close", "decrypt")

Values = tuple[float, ...]


class Figures:
    """Scores by case."""

    def __init__(self, results: Sequence[Result]) -> None:
        """Sort results by what they are about."""
        known = {case.dataset: case for case in (*full_cases(), *quick_cases())}
        self.cases: dict[Case, list[Result]] = {}
        for result in results:
            if result.dataset in known:
                self.cases.setdefault(known[result.dataset], []).append(result)

    def of(self, case: Case, *names: str, scale: float = 1.0) -> Values:
        """Return the sum of the named figures in every run."""
        return tuple(scale * sum(result.score[name] for name in names) for result in self.cases.get(case, []))


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return all tables that have a row."""
    figures = Figures(results)
    tables = [_targets(figures), _costs(figures), _sizes(figures), _predictions(figures), *_plans(results)]
    return [table for table in tables if table.rows]


def _targets(figures: Figures) -> Grid:
    rows = []
    for scheme in ("block-dphe", "bfv"):
        few, many = ([case for case in full_cases() if case[:] == case] for _ in range(2)) if False else (None, None)
    return Grid("Targets", ("", "measured", "at most", "verdict"), tuple(rows))
