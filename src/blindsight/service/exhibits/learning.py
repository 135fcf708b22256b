"""The tab Learn: five owners learn together, round by round, with what every role holds in each of them.

The views come from real messages of the real protocol. One of them is an owner's plain update, which in a run between
real parties nobody else may ever hold; here all owners' pictures are drawn ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from blindsight.errors import UnknownNameError
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.comparison import ComparisonRow, ContestRow, compare, contest, installed_schemes, round_costs
from blindsight.learn.recording import RoleView
from blindsight.learn.rounds import RoundReport
from blindsight.progress import Progress
from blindsight.report.learning import view_picture
from blindsight.service.exhibits.exhibit import Exhibit, plain
from blindsight.service.exhibits.pictures import png
from blindsight.service.exhibits.stock import OWNERS, Size, Stock
from blindsight.statement import PrivacyStatement
from blindsight.sums import SPARSE_SCHEMES

SPARSITY = 0.7
"""What owners keep back where they choose themselves what they send."""

DEFAULT = "block-dphe"  # the paper's protocol, with a picture of what each of its roles holds
_BASELINES = {"pooled": "all pictures in one place", "local": "everybody alone"}


@dataclass(frozen=True, eq=False)
class SeenRound:
    """A finished round: the report, what each role held in it, the score before the first round, and what is proven."""

    report: RoundReport
    views: tuple[RoleView, ...]
    first_score: float
    statement: PrivacyStatement

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data; views are named, and shown by `picture_name`."""
        report = self.report
        views = [{"role": view.role, "holds": view.holds} for view in self.views]
        return {
            "round": report.round,
            "score": report.score,
            "kept_back": report.sparsity,
            "kilobytes": report.sent["members"] / max(1, len(report.contributors)) / 1e3,
            "seconds": dict(report.seconds),
            "views": [view | {"picture": picture_name(report.round, i)} for i, view in enumerate(views)],
        }

    def pictures(self) -> dict[str, bytes]:
        """Return what each role held, drawn."""
        return {
            picture_name(self.report.round, i): png(view_picture(view.picture)) for i, view in enumerate(self.views)
        }


def picture_name(number: int, view: int) -> str:
    """Return the file name of a view in a round."""
    return f"round-{number}-{view}.png"


def seen_rounds(stock: Stock, scheme: str, rounds: int, progress: Progress) -> Iterator[SeenRound]:
    """Play a run round by round; each goes on where the last one stopped, with new keys and a new witness."""
    if scheme not in (known := installed_schemes()):
        raise UnknownNameError("aggregation scheme", scheme, known)
    progress("preparing five owners", 0, rounds)
    study = stock.study
    with TemporaryDirectory(prefix="blindsight-") as folder:
        for number in range(1, rounds + 1):
            learner = _learner(stock.size, scheme, number)
            learner.fit(
                study.owners, public=study.public, validation=study.test, checkpoint=Path(folder), progress=progress
            )
            assert learner.public_score_ is not None
            yield SeenRound(learner.history_[-1], learner.views_, learner.public_score_, learner.statement_)


def _learner(size: Size, scheme: str, rounds: int) -> FederatedClassifier:
    return FederatedClassifier(
        scheme,
        rounds=rounds,
        sparsity=SPARSITY if scheme in SPARSE_SCHEMES else None,
        key_bits=size.key_bits,
        multilabel=True,
        random_state=size.seed,
        record=True,
    )


def learn_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Play a run by the paper's protocol, and compare all schemes on the same owners."""
    size = stock.size
    seen = list(seen_rounds(stock, DEFAULT, size.rounds, progress))
    schemes = installed_schemes()
    rows = contest(
        stock.study,
        methods=(*schemes, *_BASELINES),
        epsilon=1.0,
        delta=1e-6,
        rounds=size.rounds,
        sparsity=SPARSITY,
        key_bits=size.key_bits,
        random_state=size.seed,
        progress=progress,
    )
    weights = len(stock.study.answers) * (stock.study.public[0].shape[1] + 1)
    costs = round_costs(weights, OWNERS, sparsity=SPARSITY, key_bits=size.key_bits, progress=progress)
    by_scheme = {row.scheme: row for row in compare(costs)}
    pictures = {name: content for one in seen for name, content in one.pictures().items()}
    data = {
        "attributes": list(stock.study.answers),
        "owners": OWNERS,
        "weights": weights,
        "run": run_data(DEFAULT, size.rounds, seen),
        "schemes": [_scheme(row, by_scheme.get(row.method)) for row in rows],
    }
    return Exhibit(plain(data), pictures)


def run_data(scheme: str, rounds: int, seen: list[SeenRound]) -> dict[str, Any]:
    """Return a run, finished or not, as plain data."""
    return {
        "scheme": scheme,
        "rounds": rounds,
        "first_score": seen[0].first_score if seen else None,
        "seen": [one.to_dict() for one in seen],
        "statement": seen[-1].statement.to_dict() if seen else None,
    }


def _scheme(row: ContestRow, cost: ComparisonRow | None) -> dict[str, Any]:
    return {
        "name": row.method,
        "means": _BASELINES.get(row.method, ""),
        "score": row.score,
        "seconds": row.seconds,
        "megabytes": row.megabytes,
        "encrypt": None if cost is None else cost.encrypt_seconds,
        "aggregate": None if cost is None else cost.aggregate_seconds,
        "decrypt": None if cost is None else cost.decrypt_seconds,
        "who_learns": "" if cost is None else cost.who_learns,
        "drop_out": "" if cost is None else cost.drop_out,
    }
