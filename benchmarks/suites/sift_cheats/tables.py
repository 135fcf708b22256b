"""The cheats before and after: what verifiers read and say, what the app decodes, and what becomes of it."""

from collections.abc import Mapping, Sequence

from benchmarks.results import Result
from benchmarks.suites.sift_cheats.platform import LEVELS, NUMBERS
from benchmarks.suites.sift_matrix.scores import THRESHOLD
from benchmarks.table import Cell, Grid

Values = tuple[float, ...]

CHEATS = {
    "honest": "honest PPLS, K = 5",
    "collinear_pair": "collinear pair",
    "low_digits": "low digits",
    "xor_hash": "XOR with a hash",
    "few_symbols": "XOR with a hash, 16 symbols",
}
EARLIER = {
    "honest": (".060", "-"),
    "collinear_pair": (".061", ".327"),
    "low_digits": (".059", ".327"),
    "xor_hash": (".043", ".327"),
}
"""What the paper's verifier read and the app decoded in an earlier measurement by other code, on other photographs."""


def sections(results: Sequence[Result]) -> list[Grid]:
    """Show the cheats before and after, collection by collection."""
    tables = []
    for dataset in dict.fromkeys(result.dataset for result in results):
        if dataset == "holes":
            tables.append(_holes([result.score for result in results if result.dataset == dataset]))
            continue
        runs = {cheat: [r for r in results if (r.dataset, r.method) == (dataset, cheat)] for cheat in CHEATS}
        tables += [_before(dataset, runs), _after(dataset, runs)]
    return tables


def verdict(low: float, limit: float) -> str:
    """Return what a verifier says."""
    if low > THRESHOLD:
        return "reject"
    return "accept" if limit <= THRESHOLD else "inconclusive"


def _before(dataset: str, runs: dict[str, list[Result]]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for cheat, said in CHEATS.items():
        found, (read, decoded) = runs[cheat], EARLIER.get(cheat, ("-", "-"))
        published, everybody = ((_values(found, f"{kind}/reads"), _says(found, kind)) for kind in ("paper", "all"))
        app = (_values(found, "serves"), decoded, _values(found, "decoded"))
        rows.append((said, *app, read, *published, *everybody))
    columns: tuple[str, ...] = ("app", "public accuracy", "app decodes, earlier", "app decodes")
    columns += ("paper's five read, earlier", "paper's five read", "and say", "all read", "and say")
    note = "As the app wrote it. What is read or decoded is PrivLoss; the public accuracy is balanced."
    return Grid(f"Before, {dataset}", columns, tuple(rows), note)


def _after(dataset: str, runs: dict[str, list[Result]]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for cheat, said in CHEATS.items():
        found = runs[cheat]
        own = (_count(found, "hardened/numbers"), _values(found, "hardened/serves"), _values(found, "hardened/decoded"))
        attacked = (_values(found, "hardened/reads"), _says(found, "hardened"))
        counted = (_count(found, "symbols/count"), _values(found, "symbols/estimate"), _values(found, "symbols/bound"))
        rows.append((said, *own, *attacked, *counted, _fate(found)))
    columns: tuple[str, ...] = ("app", "hardened: numbers", "public accuracy", "app decodes", "all read", "and say")
    columns += ("as symbols: how many", "best attacker", "certified", "fate as symbols")
    note = (
        f"Hardened: the platform's own version. As symbols: {LEVELS} levels of each of the first {NUMBERS} hardened "
        "numbers, or the app's own. Where a number is gone, so is what the app would decode it from."
    )
    return Grid(f"After, {dataset}", columns, tuple(rows), note)


def _holes(scores: Sequence[Mapping[str, float]]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(figure.rpartition("/")[0] for score in scores for figure in score):
        read = tuple(score[f"{name}/read"] for score in scores)
        fates = (
            "let out" if any(score[f"{name}/{when}"] for score in scores) else "kept in" for when in ("before", "now")
        )
        rows.append((name, read, *fates))
    note = "PrivLoss of whoever made it, if it is let out (.10 is allowed); by an earlier rule, and now."
    return Grid("Eight ways around a verdict", ("way", "read", "before", "now"), tuple(rows), note)


def _fate(results: Sequence[Result]) -> str:
    limits = _values(results, "symbols/bound")
    if not results or limits:
        return "-" if not limits else "accept" if max(limits) <= THRESHOLD else "refuse"
    return "refused unseen: code, not a sift"


def _values(results: Sequence[Result], figure: str) -> Values:
    return tuple(result.score[figure] for result in results if figure in result.score)


def _count(results: Sequence[Result], figure: str) -> str:
    return ", ".join(dict.fromkeys(f"{value:g}" for value in _values(results, figure))) or "-"


def _says(results: Sequence[Result], kind: str) -> str:
    limits = zip(_values(results, f"{kind}/low"), _values(results, f"{kind}/limit"), strict=True)
    return ", ".join(dict.fromkeys(verdict(*pair) for pair in limits)) or "-"
