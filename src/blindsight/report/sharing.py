"""The report's chapter on selective sharing: accuracy day by day, what it cost in bytes, and what is proven."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from blindsight.learn.selective.accounting import SharingCost, figure
from blindsight.learn.timeline.figurelines import OURS
from blindsight.learn.timeline.timeline import PlayedLine, Timeline
from blindsight.report.blocks import Block, Chapter, Plot, StatementBlock, Table, Text
from blindsight.report.plots import INK, SERIES, drawing, to_svg

_WEEK = 7  # days at the end over which lines are compared
_STYLES = ("-", "--", ":")
_MARKERS = "osD"


@dataclass(frozen=True)
class SharingResult:
    """What one study found: all lines, and what the shared one costs in privacy."""

    timeline: Timeline
    cost: SharingCost
    participants: int

    @property
    def days(self) -> int:
        """How many days were played."""
        return len(self.timeline.photos)

    @property
    def families(self) -> dict[str, list[PlayedLine]]:
        """Lines with proven noise that differ in their epsilon alone, the smallest first."""
        found: dict[str, list[PlayedLine]] = {}
        for line in self.timeline.lines:
            if line.epsilon:
                found.setdefault(line.name.partition(", eps ")[0], []).append(line)
        return {name: sorted(lines, key=lambda line: line.epsilon or 0.0) for name, lines in found.items()}

    @property
    def principal(self) -> list[PlayedLine]:
        """The lines to draw: of each family that with the most epsilon, which has the least noise."""
        weaker = {line.name for lines in self.families.values() for line in lines[:-1]}
        return [line for line in self.timeline.lines if line.name not in weaker]

    def settled(self, line: PlayedLine) -> float:
        """Return a line's accuracy over the photos of the last week."""
        return self.timeline.mean_accuracy(line.name, max(1, self.days - _WEEK + 1))


def sharing_chapter(result: SharingResult) -> Chapter:
    """Show a study: the figure of the paper, accuracy against bytes and against epsilon, what composes to what."""
    ours = result.timeline.line(OURS)
    share = result.cost.sharing.share
    blocks: list[Block] = [
        Plot(
            _days_plot(result),
            caption="Accuracy on each day's new photos, told apart with the model of the day before. All lines see the "
            "same photos; of lines that differ in their epsilon alone, the largest is drawn.",
            alt=_days_alt(result),
        ),
        _lines_table(result),
        Plot(
            _bytes_plot(result),
            caption=f"Accuracy over the last {min(_WEEK, result.days)} days against all that was uploaded.",
            alt=_points_alt(result, result.timeline.lines, lambda line: f"{line.bytes_up[-1] / 1e6:.3g} MB"),
        ),
    ]
    if result.families:
        proven = [line for lines in result.families.values() for line in lines]
        blocks.append(
            Plot(
                _epsilon_plot(result),
                caption="The same against the epsilon that is proven over all days, of a photo or of a participant. "
                "Dashed: top-k with residuals, without noise.",
                alt=_points_alt(result, proven, lambda line: f"epsilon {figure(line.epsilon or 0)}"),
            )
        )
    blocks += [_cost_table(result.cost), Text(result.cost.sentence()), StatementBlock(ours.statement)]
    first, last = ours.accuracy[0], ours.accuracy[-1]
    return Chapter(
        title="Sharing a little of what was learned",
        lead=f"{result.participants} participants keep their photos and upload {100 * share:.3g}% of what training "
        f"changed in {result.cost.dimension:,} parameters. From day 1 to day {result.days} the accuracy on new photos "
        f"goes from {first:.1%} to {last:.1%}; never updated, the model ends at "
        f"{result.timeline.line('never updated').accuracy[-1]:.1%}.",
        blocks=tuple(blocks),
    )


def _days_plot(result: SharingResult) -> str:
    days = range(1, result.days + 1)
    with drawing(7.6, 4.4) as (figure_, axes):
        for number, line in enumerate(result.principal):
            axes.plot(
                days,
                line.accuracy,
                label=line.name,
                color=SERIES[number % len(SERIES)],
                linestyle=_STYLES[number // len(SERIES) % len(_STYLES)],
                linewidth=3 if line.name == OURS else 1.6,
            )
        axes.set_xlabel("day")
        axes.set_ylabel("accuracy on new photos")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
        return to_svg(figure_)


def _bytes_plot(result: SharingResult) -> str:
    with drawing(7.6, 3.6) as (figure_, axes):
        for number, line in enumerate(line for line in result.principal if line.bytes_up[-1]):
            colour, marker = SERIES[number % len(SERIES)], _MARKERS[number // len(SERIES) % len(_MARKERS)]
            megabytes = line.bytes_up[-1] / 1e6
            axes.scatter([megabytes], [result.settled(line)], color=colour, marker=marker, s=60, label=line.name)
        _logarithmic(axes)
        axes.set_xlabel("megabytes uploaded by all participants in all days")
        axes.set_ylabel("accuracy")
        return to_svg(figure_)


def _epsilon_plot(result: SharingResult) -> str:
    with drawing(7.6, 3.6) as (figure_, axes):
        for number, (name, lines) in enumerate(result.families.items()):
            epsilons = [line.epsilon or math.inf for line in lines]
            scores = [result.settled(line) for line in lines]
            axes.plot(epsilons, scores, color=SERIES[number % len(SERIES)], marker="o", label=name)
        axes.axhline(
            result.settled(result.timeline.line("top-k with residuals")), color=INK, linewidth=1, linestyle="--"
        )
        _logarithmic(axes)
        axes.set_xlabel("epsilon proven over all days")
        axes.set_ylabel("accuracy")
        return to_svg(figure_)


def _logarithmic(axes: Axes) -> None:
    """Scale the x axis by its logarithm, with plain numbers on it and the legend beside."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)


def _days_alt(result: SharingResult) -> str:
    ends = "; ".join(
        f"{line.name} from {line.accuracy[0]:.3f} to {line.accuracy[-1]:.3f}" for line in result.timeline.lines
    )
    return f"Accuracy per day: {ends}."


def _points_alt(result: SharingResult, lines: Sequence[PlayedLine], where: Callable[[PlayedLine], str]) -> str:
    return "; ".join(f"{line.name}: {result.settled(line):.3f} at {where(line)}" for line in lines) + "."


def _lines_table(result: SharingResult) -> Table:
    days = sorted({1, (result.days + 1) // 2, result.days})
    rows = tuple(
        (
            row.name,
            *(f"{accuracy:.3f}" for accuracy in row.accuracy),
            f"{row.mean:.3f}",
            f"{row.uploads:,}",
            f"{row.megabytes_up:.3f}",
            "-" if row.epsilon is None else figure(row.epsilon),
            row.against,
        )
        for row in result.timeline.rows(days)
    )
    return Table(
        ("line", *(f"day {day}" for day in days), "all days", "uploads", "MB up", "proven epsilon", "against whom"),
        rows,
        caption="Accuracy, uploads and bytes of all participants; epsilon as proven over all days, per unit of the "
        "line's own statement, and from whom that protects: everybody is also the server. A dash: nothing is proven.",
    )


def _cost_table(cost: SharingCost) -> Table:
    rows = tuple((row.what, figure(row.basic), figure(row.composed), row.accountant) for row in cost.rows())
    proof = "These figures are proven." if cost.proven else "They would hold at best; nothing is proven."
    return Table(
        ("what is counted", "epsilon, added up", f"epsilon at delta = {cost.delta:g}", "accountant"),
        rows,
        caption=f"What the shared line costs, from one parameter of one upload to a participant's whole run. {proof}",
    )
