"""Accuracy by how much is shared and how it is chosen, beside a reference, and what should hold."""

from collections.abc import Mapping, Sequence

from benchmarks.methods.shared_epochs import SHARES
from benchmarks.results import Argument, Result
from benchmarks.suites.hash_tables.relations import verdict
from benchmarks.table import Cell, Grid

Values = tuple[float, ...]

TITLES = {"digits": "Digits, a network of 13,706 parameters", "photos": "CIFAR-10, a head of 5,124 parameters"}
WAYS = tuple((select, residual) for select in ("largest", "random", "threshold") for residual in (False, True))
REFERENCE: Mapping[str, Mapping[float, str]] = {
    "largest": {0.1: ".971", 0.01: ".929"},
    "largest with residuals": {0.1: ".976", 0.01: ".973"},
    "random": {0.1: ".934", 0.01: ".202"},
}


def arguments(share: float, select: str, residual: bool) -> dict[str, Argument]:
    """Return the arguments of one way to share; where everything is shared there is nothing to select."""
    return {"share": share, "select": select, "residual": residual}


def measured_ways() -> list[dict[str, Argument]]:
    """Return all that are measured: the threshold, which few changes reach, only below a half."""
    ways = [arguments(1.0, "largest", residual=False)]
    ways += [arguments(s, select, r) for s in SHARES if s < 1 for select, r in WAYS if select != "threshold" or s < 0.5]
    return ways


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return a table for each collection, then the relations."""
    tables = [_shares(results, name) for name in TITLES if any(r.dataset == name for r in results)]
    return [*tables, _relations(results)]


def _values(results: Sequence[Result], dataset: str, **wanted: Argument) -> dict[int, float]:
    chosen = (r for r in results if r.dataset == dataset and r.arguments == wanted)
    return {result.seed: result.score["accuracy"] for result in chosen}


def _way(results: Sequence[Result], dataset: str, share: float, select: str, residual: bool) -> dict[int, float]:
    if share == 1:
        select, residual = "largest", False
    return _values(results, dataset, **arguments(share, select, residual))


def _shares(results: Sequence[Result], dataset: str) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for select, residual in WAYS:
        said = f"{select}{' with residuals' if residual else ''}"
        cells = [
            "-"
            if select == "threshold" and share == 1
            else tuple(_way(results, dataset, share, select, residual).values())
            for share in SHARES
        ]
        rows.append((said, *cells))
        if dataset == "digits" and said in REFERENCE:
            rows.append((f"{said}, reference", *(REFERENCE[said].get(share, "-") for share in SHARES)))
    dashes = ("-",) * (len(SHARES) - 1)
    for line, known in (("centralised", ".979"), ("alone", ".818")):
        beside = f" (reference {known})" if dataset == "digits" else ""
        rows.append((f"{line}{beside}", tuple(_values(results, dataset, line=line).values()), *dashes))
    columns = ("selection", *(f"share {share:g}" for share in SHARES))
    return Grid(TITLES[dataset], columns, tuple(rows), "Fraction of the test photos told rightly.")


def _relations(results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for dataset in TITLES:
        central = _values(results, dataset, line="centralised")

        def way(share: float, select: str, residual: bool, dataset: str = dataset) -> dict[int, float]:
            return _way(results, dataset, share, select, residual)

        asked = [
            ("largest 0.1 within 1 point of centralised", _points(way(0.1, "largest", False), central), -1.0),
            (
                "residuals rescue 0.01: within 1 point of centralised",
                _points(way(0.01, "largest", True), central),
                -1.0,
            ),
            (
                "residuals rescue 0.01: with and without, largest",
                _points(way(0.01, "largest", True), way(0.01, "largest", False)),
                0.0,
            ),
            ("largest above random, 0.1", _points(way(0.1, "largest", False), way(0.1, "random", False)), 0.0),
            ("largest above random, 0.01", _points(way(0.01, "largest", False), way(0.01, "random", False)), 0.0),
            (
                "sharing 0.01 at random is better than learning alone",
                _points(way(0.01, "random", False), _values(results, dataset, line="alone")),
                0.0,
            ),
        ]
        rows += [(f"{dataset}: {said}", values, f"{least:+g}", verdict(values, least)) for said, values, least in asked]
    return Grid("Relations", ("relation", "points measured", "at least", "verdict"), tuple(rows))


def _points(first: Mapping[int, float], second: Mapping[int, float]) -> Values:
    return tuple(100 * (first[seed] - second[seed]) for seed in first if seed in second)
