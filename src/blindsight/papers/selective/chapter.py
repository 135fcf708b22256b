"""The chapter of a report on PPDL's case study: Figure 4 and what epsilon = 1 comes to."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from blindsight.papers.selective.cost import SharingCost
from blindsight.papers.selective.days import MethodResult
from blindsight.papers.selective.study import OURS, WEEK, SharingResult
from blindsight.report import page
from blindsight.statement import rounded_up

_STYLES, _MARKERS = ("-", "--", ":"), "osD"


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
