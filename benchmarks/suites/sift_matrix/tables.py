"""What the sifts of all policies cost and leak, beside the paper's averages; which pass, which do not, and why."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import Result
from benchmarks.suites.sift_matrix.scores import THRESHOLD, by_policy
from benchmarks.table import Cell, Grid, Row, Section
from blindsight.sift.analysis import LossRegression, regress

Values = tuple[float, ...]
Figures = dict[str, float]

UNCORRELATED = 0.2
COLLECTIONS = {"faces": "drawn faces", "utkface": "UTKFace"}
MAKERS = {
    "ppls": "PPLS, K = 5, lambda = 1",
    "ppls-infinite": "PPLS, K = 5, lambda = infinity",
    "symbol": "one symbol under a cap of .10, certified",
}
PAPER_AVERAGES = {"pub": (("abstract", 5.3), ("section 7", 6.49)), "priv": (("abstract", 7.5), ("section 7", 5.17))}
PAPER_SHARES = {"pub_loss": 63.0, "priv_loss": 67.0}
PAPER_ALONE = 315.0
PASSES = {
    "paper/priv_loss_eq5": "the paper's five, Eq. 5",
    "paper/priv_loss": "the paper's five, balanced",
    "priv_loss": "all asked, balanced",
    "bound": "accepted (upper limit, 95%)",
}


_KINDS = (("paper/", "_eq5"), ("paper/", ""), ("", ""))  # around "pub_loss" and "priv_loss"
_BOTH = ("priv_loss", "bound")


@dataclass(frozen=True)
class Measured:
    """All runs of one maker on one collection: by policy, its figures."""

    runs: tuple[dict[str, Figures], ...]

    @classmethod
    def of(cls, results: Sequence[Result], collection: str, maker: str, *, everybody: bool = False) -> "Measured":
        """Keep the runs of this maker; those attacked by everybody, or the others."""
        names = (f"{collection}-everybody",) if everybody else (collection, f"{collection}-tuned")
        return cls(tuple(by_policy(r.score) for r in results if r.dataset in names and r.method == maker))

    def means(self, figure: str) -> Values:
        """Return the mean over all policies that have a sift, run by run."""
        return tuple(
            statistics.fmean(found)
            for run in self.runs
            if (found := [figures[figure] for figures in run.values() if figure in figures])
        )

    def of_policy(self, policy: str, figure: str) -> Values:
        """Return a figure of one policy, run by run."""
        return tuple(run[policy][figure] for run in self.runs if figure in run.get(policy, {}))

    def passing(self, leak: str) -> str:
        """Return how many policies have at most the threshold, of how many that have a sift, on average."""
        leaks = [[figures[leak] for figures in _sifted(run).values() if leak in figures] for run in self.runs]
        if not any(leaks):
            return "-"
        passed = statistics.fmean(sum(value <= THRESHOLD for value in found) for found in leaks)
        return f"{passed:g} of {statistics.fmean(map(len, leaks)):g}"


def _sifted(run: dict[str, Figures]) -> dict[str, Figures]:
    return {policy: figures for policy, figures in run.items() if "bound" in figures}


def _accepted(run: dict[str, Figures]) -> set[str]:
    return {policy for policy, figures in _sifted(run).items() if figures["bound"] <= THRESHOLD}


def sections(results: Sequence[Result]) -> list[Section | Grid]:
    """Return the expectation, then every collection's tables."""
    shown = [name for name in COLLECTIONS if Measured.of(results, name, "ppls").runs]
    tables: list[Section | Grid] = [_expectation(results, shown)]
    for name in shown:
        ppls = Measured.of(results, name, "ppls")
        tables += [_averages(name, ppls), _passing(name, results), _regressions(name, ppls)]
        tables += [_everybody(name, results), _matrix(name, ppls)]
    return tables


def _expectation(results: Sequence[Result], collections: Sequence[str]) -> Grid:
    """Count the pairs of small correlation that have an accepted sift, and name the others."""
    rows: list[tuple[Cell, ...]] = []
    for name in collections:
        first = {maker: found.runs[0] for maker in MAKERS if (found := Measured.of(results, name, maker)).runs}
        pairs = {pair for pair, figures in first["ppls"].items() if abs(figures["correlation"]) < UNCORRELATED}
        accepted = {maker: pairs & _accepted(run) for maker, run in first.items()}
        together = set().union(*accepted.values())
        counts = [str(len(accepted[maker])) if maker in accepted else "-" for maker in MAKERS]
        without = ", ".join(sorted(pairs - together)) or "none"
        rows.append((COLLECTIONS[name], str(len(pairs)), *counts, str(len(together)), without))
    columns = ("", "pairs", "PPLS, lambda 1", "PPLS, lambda infinity", "symbol", "any of them", "without")
    title = f"Pairs with |correlation| < {UNCORRELATED:g} that have an accepted sift"
    return Grid(title, columns, tuple(rows), "The first run's. Expected on drawn faces: all of them.")


def _averages(name: str, ppls: Measured) -> Section:
    rows = []
    for side, said in (("pub", "PubLoss"), ("priv", "PrivLoss")):
        eq5, balanced, best = (ppls.means(f"{kind}{side}_loss{by}") for kind, by in _KINDS)
        for where, known in PAPER_AVERAGES[side]:
            rows.append(Row(f"{said}, Eq. 5, the paper's ({where})", _hundred(eq5), known))
        rows.append(Row(f"{said}, balanced accuracy, the paper's", _hundred(balanced)))
        rows.append(Row(f"{said}, balanced accuracy, tuned ones too", _hundred(best)))
    return Section(f"Averages on {COLLECTIONS[name]}, {MAKERS['ppls']} (points)", tuple(rows))


def _passing(name: str, results: Sequence[Result]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for maker, said in MAKERS.items():
        found = Measured.of(results, name, maker)
        losses = (found.means("pub_loss"), found.means("priv_loss"))
        rows.append((said, *losses, *(found.passing(leak) for leak in PASSES)))
    columns = ("sift", "PubLoss", "PrivLoss", *PASSES.values())
    note = (
        "PrivLoss by all that were asked: the paper's five and three tuned ones at lambda = 1, the tuned ones alone at "
        "infinity, a table on symbols, where the limit is the certificate's."
    )
    return Grid(f"How many pass at .10 on {COLLECTIONS[name]}", columns, tuple(rows), note)


def _regressions(name: str, ppls: Measured) -> Section:
    rows = []
    for figure, said in (("pub_loss", "PubLoss"), ("priv_loss", "PrivLoss")):
        fits = [_regression(run, figure) for run in ppls.runs]
        shares = tuple(100 * fit.correlation_share for fit in fits)
        alone = tuple(100 * fit.correlation_alone for fit in fits)
        rows += [
            Row(f"{said}: share of correlation, the rest overlap's (per cent)", shares, PAPER_SHARES[figure]),
            Row(f"{said}: squared error larger with correlation alone (per cent)", alone, PAPER_ALONE),
            Row(f"{said}: variance explained by both (per cent)", tuple(100 * fit.r_squared for fit in fits)),
        ]
    return Section(f"Losses explained by correlation and overlap on {COLLECTIONS[name]}", tuple(rows), digits=1)


def _regression(run: dict[str, Figures], figure: str) -> LossRegression:
    sifted = _sifted(run).values()
    return regress(*([figures[each] for figures in sifted] for each in (figure, "correlation", "overlap")))


def _everybody(name: str, results: Sequence[Result]) -> Grid:
    """Set what all of the verifier's attackers read beside what the few read, for a handful of policies."""
    few, all_of_them = (Measured.of(results, name, "ppls", everybody=wider) for wider in (False, True))
    asked = [policy for run in all_of_them.runs[:1] for policy in _sifted(run)]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (policy, *(found.of_policy(policy, figure) for found in (few, all_of_them) for figure in _BOTH))
        for policy in asked
    )
    columns = ("public/private", "paper's and tuned", "upper limit", "all", "upper limit of all")
    title = f"PrivLoss of a handful of policies on {COLLECTIONS[name]}, attacked by everybody, {MAKERS['ppls']}"
    return Grid(title, columns, rows)


def _matrix(name: str, ppls: Measured) -> Grid:
    """Show PubLoss and PrivLoss of every policy (Figure 4), means over runs."""
    attributes = list(dict.fromkeys(policy.split("/")[0] for run in ppls.runs for policy in run))
    rows = tuple((a, *(_losses(ppls, f"{a}/{b}") for b in attributes)) for a in attributes)
    columns = ("public, below; private, right", *attributes)
    return Grid(f"PubLoss and PrivLoss on {COLLECTIONS[name]}, {MAKERS['ppls']} (points)", columns, rows)


def _losses(ppls: Measured, policy: str) -> str:
    runs = [run[policy] for run in ppls.runs if "bound" in run.get(policy, {})]
    if not runs:
        return "-"
    costs, leaks = (100 * statistics.fmean(run[figure] for run in runs) for figure in ("pub_loss", "priv_loss"))
    return f"{costs:z.0f} {leaks:z.0f}"


def _hundred(values: Values) -> Values:
    return tuple(100 * value for value in values)
