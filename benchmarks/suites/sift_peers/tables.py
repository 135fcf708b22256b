"""Who keeps most of the public attribute under the cap, beside a reference, and whether the targets are reached."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.results import Result, argument_text
from benchmarks.suites.sift_matrix.scores import THRESHOLD, by_policy
from benchmarks.suites.sift_peers.cases import TARGETED
from benchmarks.table import Cell, Grid

Values = tuple[float, ...]

MOST_PUB_LOSS = 0.03


@dataclass(frozen=True)
class Peer:
    """A maker by method, arguments and, where it answers with several, kind; PubLoss and PrivLoss of the reference."""

    said: str
    method: str
    arguments: str
    kind: str = ""
    reference: tuple[str, str] = ("-", "-")


PEERS = (
    Peer("PLS, K = 5", "pls", "components=5,privacy=0", reference=("-.003", ".248")),
    Peer("PPLS, K = 5, lambda 1", "ppls", "components=5,privacy=1", reference=("-.004", ".162")),
    Peer("PPLS, K = 5, lambda infinity", "ppls", "components=5,privacy=inf", reference=(".004", ".152")),
    Peer("PPLS, K = 1, lambda infinity", "ppls", "components=1,privacy=inf", reference=(".095", ".063")),
    Peer("LEACE and PLS, K = 5", "leace", "components=5", reference=(".004", ".185")),
    Peer("INLP, 15 rounds, and PLS, K = 5", "inlp", "components=5,rounds=15", reference=(".015", ".160")),
    Peer("CorrelationRemover and PLS, K = 5", "correlation-remover", "components=5", reference=("-.002", ".290")),
    Peer("adversarial encoder, K = 5", "adversarial", "components=5", reference=(".017", ".059")),
    Peer("adversarial encoder, K = 1", "adversarial", "components=1", reference=(".007", ".044")),
    Peer("public label, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "label", ("-.018", ".064")),
    Peer("capped symbol, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "capped"),
    Peer("parity symbol, 1 bit", "symbols", "kinds=%22label%20capped%20parity%22", "parity", ("-.013", ".059")),
)


@dataclass(frozen=True)
class Measured:
    """All runs of one peer: by policy, its figures."""

    runs: tuple[dict[str, dict[str, float]], ...]

    @classmethod
    def of(cls, results: Sequence[Result], peer: Peer) -> "Measured":
        """Keep the runs of this peer and kind."""
        chosen = [r for r in results if r.method == peer.method and argument_text(r.arguments) == peer.arguments]
        return cls(tuple(_of_kind(by_policy(result.score), peer.kind) for result in chosen))

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that were answered."""
        return tuple(dict.fromkeys(policy for run in self.runs for policy in run))

    def means(self, figure: str) -> Values:
        """Return the mean over policies, run by run; nothing where it was not measured."""
        runs = [[figures[figure] for figures in run.values() if figure in figures] for run in self.runs]
        return tuple(statistics.fmean(found) for found in runs if found)

    def by_published(self, figure: str) -> Values:
        """Return the mean by the paper's five; on symbols a table stands for them, as for everybody."""
        return self.means(f"paper/{figure}") or self.means(figure)

    def of_policy(self, policy: str, figure: str) -> Values:
        """Return a figure of one policy, run by run."""
        return tuple(run[policy][figure] for run in self.runs if figure in run.get(policy, {}))

    def passing(self, figure: str) -> str:
        """Return how many policies have at most the threshold, of how many that were answered, on average."""
        if not self.runs:
            return "-"
        passed = statistics.fmean(sum(f[figure] <= THRESHOLD for f in run.values()) for run in self.runs)
        return f"{passed:g} of {statistics.fmean(map(len, self.runs)):g}"


def _of_kind(found: dict[str, dict[str, float]], kind: str) -> dict[str, dict[str, float]]:
    pairs = ((name.partition(":"), figures) for name, figures in found.items())
    return {policy: figures for (policy, _, sort), figures in pairs if sort == kind}


def sections(results: Sequence[Result]) -> list[Grid]:
    """Return the targets, the means over policies, and every policy by itself."""
    measured = {peer: Measured.of(results, peer) for peer in PEERS}
    policies = dict.fromkeys(policy for found in measured.values() for policy in found.policies)
    return [_targets(measured), _means(measured), *(_one(measured, policy) for policy in policies)]


def _targets(measured: dict[Peer, Measured]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for policy in map("/".join, TARGETED):
        for peer, found in measured.items():
            cost, strict, bound = (found.of_policy(policy, f) for f in ("pub_loss", "strict_pub_loss", "certified"))
            if bound:
                rows.append((policy, peer.said, cost, strict, bound, _reached(cost, strict, bound)))
    columns = ("public/private", "certified sift", "PubLoss", "strict PubLoss", "certified PrivLoss", "target")
    title = f"Targets: PubLoss <= {MOST_PUB_LOSS:g} at certified PrivLoss <= {THRESHOLD:g} (95%)"
    return Grid(title, columns, tuple(rows))


def _reached(cost: Values, strict: Values, bound: Values) -> str:
    """Judge the worst run, with the stricter of the two losses."""
    within = max(bound) <= THRESHOLD
    if within and max(strict) <= MOST_PUB_LOSS:
        return "reached"
    return "reached, but for the strict PubLoss" if within and max(cost) <= MOST_PUB_LOSS else "missed"


def _means(measured: dict[Peer, Measured]) -> Grid:
    rows: list[tuple[Cell, ...]] = []
    for peer, found in measured.items():
        costs = (found.by_published("pub_loss"), found.means("pub_loss"), found.means("strict_pub_loss"))
        leaks = (found.by_published("priv_loss"), found.means("priv_loss"), found.means("certified"))
        passes = (found.passing("priv_loss"), found.passing("bound"))
        rows.append((peer.said, peer.reference[0], *costs, peer.reference[1], *leaks, *passes))
    columns = (
        "sift",
        "PubLoss, reference",
        "PubLoss, paper's five",
        "PubLoss, all",
        "strict PubLoss, all",
        "PrivLoss, reference",
        "PrivLoss, paper's five",
        "PrivLoss, all",
        "certified",
        "pass",
        "accepted",
    )
    return Grid("Means over the policies", columns, tuple(rows))


def _one(measured: dict[Peer, Measured], policy: str) -> Grid:
    figures = ("pub_loss", "strict_pub_loss", "priv_loss", "bound")
    rows: list[tuple[Cell, ...]] = [
        (peer.said, *(found.of_policy(policy, figure) for figure in figures))
        for peer, found in measured.items()
        if policy in found.policies
    ]
    columns = ("sift", "PubLoss", "strict PubLoss", "PrivLoss, all", "upper limit")
    return Grid(f"Public {policy.replace('/', ', private ')}", columns, tuple(rows))
