"""The report's chapters on learning together: by encrypted rounds, and by sharing a little of what was learned."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import contact_sheet
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.comparison import ComparisonRow, compare
from blindsight.learn.recording import RoleView
from blindsight.report import page
from blindsight.rounds import RoundReport
from blindsight.selective.accounting import SharingCost
from blindsight.selective.study import OURS, WEEK, SharingResult
from blindsight.selective.timeline import MethodResult
from blindsight.statement import PrivacyStatement, rounded_up
from blindsight.sums.engine import Cost

_SIDE = 220  # pixels of one view
_STYLES, _MARKERS = ("-", "--", ":"), "osD"


@dataclass(frozen=True)
class LearningResult:
    """What one run of learning together found; `measure` names the score."""

    owners: int
    weights: int
    measure: str
    public_score: float
    history: Sequence[RoundReport]
    statement: PrivacyStatement
    views: Sequence[RoleView]
    costs: Sequence[ComparisonRow]

    @classmethod
    def of(cls, learner: FederatedClassifier, *, owners: int, costs: Mapping[str, Cost]) -> Self:
        """Gather what a fitted classifier tells; it must have been fitted with validation data."""
        assert learner.public_score_ is not None
        return cls(
            owners=owners,
            weights=learner.model_.weights.size,
            measure="accuracy over attributes" if learner.multilabel else "accuracy over classes",
            public_score=learner.public_score_,
            history=learner.history_,
            statement=learner.statement_,
            views=learner.views_,
            costs=compare(costs) if costs else (),
        )


def learning_chapter(result: LearningResult) -> page.Chapter:
    last = result.history[-1]
    assert last.score is not None
    blocks: list[page.Block] = [
        page.Plot(
            _rounds_plot(result),
            caption=f"{result.measure.capitalize()} on pictures that nobody trained on. Round 0 is the public model.",
            alt=f"{result.measure} rises from {result.public_score:.3f} to {last.score:.3f}.",
        ),
        _rounds_table(result),
    ]
    if result.views:
        blocks.append(_views_picture(result.views))
    if result.costs:
        blocks += _costs_tables(result.costs)
    return page.Chapter(
        title="Learning together, unseen" if _encrypted(result) else "Learning together, in the open",
        lead=f"{result.owners} owners train one classifier of {result.weights:,} weights; {result.measure} goes from "
        f"{result.public_score:.1%} to {last.score:.1%}. {_secrecy(result)}",
        blocks=(*blocks, page.StatementBlock(result.statement)),
    )


def _encrypted(result: LearningResult) -> bool:
    return result.statement.guarantee == "cryptographic"


def _secrecy(result: LearningResult) -> str:
    if not _encrypted(result):
        return "Nothing is hidden: the aggregator reads every update."
    return "Updates are added up unseen; only their sum is opened, and what the sum itself tells is not hidden."


def _rounds_plot(result: LearningResult) -> str:
    scores = [result.public_score, *(np.nan if report.score is None else report.score for report in result.history)]
    with page.drawing(7.2, 3.2) as (figure, axes):
        axes.plot(range(len(scores)), scores, marker="o", color=page.SERIES[0])
        axes.axhline(result.public_score, color=page.INK, linewidth=1, linestyle="--")
        axes.annotate("public model", (len(scores) - 1, result.public_score), ha="right", va="bottom", fontsize=10)
        axes.set_xlabel("round")
        axes.set_ylabel(result.measure)
        axes.set_xticks(range(0, len(scores), max(1, len(scores) // 10)))
        return page.to_svg(figure)


def _rounds_table(result: LearningResult) -> page.Table:
    rows = tuple(
        (
            str(report.round),
            f"{report.score:.3f}",
            "-" if report.sparsity is None else f"{report.sparsity:.1%}",
            f"{report.sent['members'] / len(report.contributors) / 1e3:.1f} kB",
            *(f"{report.seconds[role]:.2f} s" for role in ("training", "members", "aggregator", "key generator")),
        )
        for report in result.history
    )
    return page.Table(
        ("round", "accuracy", "kept back", "per owner", "training", "owners", "aggregator", "key generator"),
        rows,
        caption="What an owner sent, the share of weights it kept back, and CPU seconds by role (owners together).",
    )


def _views_picture(views: Sequence[RoleView]) -> page.Picture:
    return page.Picture(
        contact_sheet(
            np.stack([view_picture(view.picture) for view in views]),
            columns=len(views),
            captions=[view.role for view in views],
            scale=1,
        ),
        caption="Who sees what, from the real messages of one round: "
        + "; ".join(f"{view.role}: {view.holds}" for view in views)
        + ". Blue weights are positive, orange ones negative; bytes are grey. The first picture is "
        "one owner's real update, shown for demonstration only.",
        alt="Panels, one for each of: " + ", ".join(view.role for view in views) + ".",
    )


def view_picture(view: NDArray[np.float64] | NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a view as an RGB square: bytes as grey levels, weights from orange (negative) over white to blue."""
    if view.dtype == np.uint8:
        rgb = np.repeat(view[:, :, None], 3, axis=2).astype(np.uint8)
    else:
        strength = view / max(float(np.abs(view).max()), 1e-12)
        strength = np.sign(strength) * np.sqrt(np.abs(strength))
        blue, orange = np.array([31, 95, 139]), np.array([194, 87, 26])
        ends = np.where(strength[:, :, None] > 0, blue, orange)
        rgb = np.rint(255 + (ends - 255) * np.abs(strength)[:, :, None]).astype(np.uint8)
    return np.asarray(Image.fromarray(rgb).resize((_SIDE, _SIDE), Image.Resampling.NEAREST))


def _costs_tables(rows: Sequence[ComparisonRow]) -> tuple[page.Table, page.Table]:
    numbers = tuple(
        (
            row.scheme,
            f"{row.encrypt_seconds:.3f} s",
            f"{row.aggregate_seconds:.3f} s",
            f"{row.decrypt_seconds:.3f} s",
            f"{row.megabytes_sent:.3f} MB",
        )
        for row in rows
    )
    meaning = tuple((row.scheme, row.who_learns, row.drop_out) for row in rows)
    return (
        page.Table(
            ("scheme", "encrypt (one owner)", "aggregate", "decrypt", "sent per owner"),
            numbers,
            caption="CPU time of one round of a model of this size with every scheme installed, measured in this run.",
        ),
        page.Table(
            ("scheme", "who learns what", "a drop-out"), meaning, caption="What each scheme means for the parties."
        ),
    )


def sharing_chapter(result: SharingResult) -> page.Chapter:
    ours = result.timeline.method(OURS)
    share = result.cost.sharing.share
    blocks: list[page.Block] = [
        page.Plot(
            _days_plot(result),
            caption="Accuracy on each day's new photos, told apart with the model of the day before. All methods see "
            "the same photos; of methods that differ in their epsilon alone, the largest is drawn.",
            alt=_days_alt(result),
        ),
        _methods_table(result),
        page.Plot(
            _bytes_plot(result),
            caption=f"Accuracy over the last {min(WEEK, result.days)} days against all that was uploaded.",
            alt=_points_alt(result, result.timeline.methods, lambda method: f"{method.bytes_up[-1] / 1e6:.3g} MB"),
        ),
    ]
    if result.families:
        proven = [method for methods in result.families.values() for method in methods]
        blocks.append(
            page.Plot(
                _epsilon_plot(result),
                caption="The same against the epsilon that is proven over all days, of a photo or of a participant. "
                "Dashed and black: top-k with residuals, without noise.",
                alt=_points_alt(result, proven, lambda method: f"epsilon {rounded_up(method.epsilon or 0)}"),
            )
        )
    blocks += [_cost_table(result.cost), page.Text(result.cost.sentence()), page.StatementBlock(ours.statement)]
    first, last = ours.accuracy[0], ours.accuracy[-1]
    return page.Chapter(
        title="Sharing a little of what was learned",
        lead=f"{result.participants} participants keep their photos and upload {100 * share:.3g}% of what training "
        f"changed in {result.cost.dimension:,} parameters. From day 1 to day {result.days} the accuracy on new photos "
        f"goes from {first:.1%} to {last:.1%}; never updated, the model ends at "
        f"{result.timeline.method('never updated').accuracy[-1]:.1%}.",
        blocks=tuple(blocks),
    )


def _style(result: SharingResult, method: MethodResult) -> tuple[str, str, str]:
    """Return colour, method and marker of a method, the same in all plots; those of its family share them."""
    names = [one.name.partition(", eps ")[0] for one in result.principal]
    turns, place = divmod(names.index(method.name.partition(", eps ")[0]), len(page.SERIES))
    return page.SERIES[place], _STYLES[turns % len(_STYLES)], _MARKERS[turns % len(_MARKERS)]


def _days_plot(result: SharingResult) -> str:
    days = range(1, result.days + 1)
    with page.drawing(7.6, 4.4) as (figure_, axes):
        for method in sorted(result.principal, key=lambda one: -one.accuracy[-1]):  # the legend in the curves' order
            colour, style, _ = _style(result, method)
            width = 3 if method.name == OURS else 1.6
            axes.plot(days, method.accuracy, style, color=colour, linewidth=width, label=method.name)
        axes.set_xlabel("day")
        axes.set_ylabel("accuracy on new photos")
        axes.legend(**page.LEGEND)
        return page.to_svg(figure_)


def _bytes_plot(result: SharingResult) -> str:
    with page.drawing(7.6, 3.6) as (figure_, axes):
        sharing = [method for method in result.principal if method.bytes_up[-1]]
        for method in sorted(sharing, key=lambda one: -result.settled(one)):
            colour, _, marker = _style(result, method)
            where = [method.bytes_up[-1] / 1e6], [result.settled(method)]
            axes.scatter(*where, color=colour, marker=marker, s=60, label=method.name)
        _logarithmic(axes)
        axes.set_xlabel("megabytes uploaded by all participants in all days")
        axes.set_ylabel("accuracy")
        return page.to_svg(figure_)


def _epsilon_plot(result: SharingResult) -> str:
    with page.drawing(7.6, 3.6) as (figure_, axes):
        for name, methods in result.families.items():
            epsilons = [method.epsilon or math.inf for method in methods]
            scores = [result.settled(method) for method in methods]
            colour, style, marker = _style(result, methods[-1])
            axes.plot(epsilons, scores, style, color=colour, marker=marker, label=name)
        without = result.settled(result.timeline.method("top-k with residuals"))
        axes.axhline(without, color=page.INK, linewidth=1, linestyle="--", label="no noise: top-k with residuals")
        _logarithmic(axes)
        axes.set_xlabel("epsilon proven over all days")
        axes.set_ylabel("accuracy")
        return page.to_svg(figure_)


def _logarithmic(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(**page.LEGEND)


def _days_alt(result: SharingResult) -> str:
    methods = result.timeline.methods
    ends = "; ".join(f"{one.name} from {one.accuracy[0]:.3f} to {one.accuracy[-1]:.3f}" for one in methods)
    return f"Accuracy per day: {ends}."


def _points_alt(result: SharingResult, methods: Sequence[MethodResult], where: Callable[[MethodResult], str]) -> str:
    return "; ".join(f"{method.name}: {result.settled(method):.3f} at {where(method)}" for method in methods) + "."


def _methods_table(result: SharingResult) -> page.Table:
    days = sorted({1, (result.days + 1) // 2, result.days})
    columns, rows = result.timeline.rows(days)
    return page.Table(
        columns,
        tuple(rows),
        caption="Accuracy, uploads and bytes of all participants; epsilon as proven over all days, per unit of the "
        "method's own statement, and from whom that protects: everybody is also the server. A dash: nothing is proven.",
    )


def _cost_table(cost: SharingCost) -> page.Table:
    rows = tuple((row.what, rounded_up(row.basic), rounded_up(row.composed), row.accountant) for row in cost.rows())
    proof = "These figures are proven." if cost.proven else "They would hold at best; nothing is proven."
    return page.Table(
        ("what is counted", "epsilon, added up", f"epsilon at delta = {cost.delta:g}", "accountant"),
        rows,
        caption=f"What selective sharing costs, from one parameter of one upload to a participant's whole run. {proof}",
    )
