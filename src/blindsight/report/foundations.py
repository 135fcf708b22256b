"""The report's first chapters: the pictures, what plain features give away, and a census that protects people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blindsight.data import Dataset, attribute_sheet, contact_sheet
from blindsight.dp import Census
from blindsight.metrics import Interval
from blindsight.report import page
from blindsight.sift.fit import words


@dataclass(frozen=True)
class Reading:
    """How well a plain classifier reads one attribute from raw features."""

    attribute: str
    balanced_accuracy: float
    interval: Interval
    mean_precision: float


def pictures_chapter(dataset: Dataset, shown: Sequence[str]) -> page.Chapter:
    assert dataset.images is not None
    assert dataset.persons is not None
    persons = len(np.unique(dataset.persons))
    return page.Chapter(
        title="The pictures",
        lead=f"{len(dataset):,} portraits of {persons:,} people who do not exist, drawn with "
        f"{len(dataset.attribute_names)} attributes whose true relations are known.",
        blocks=(
            page.Picture(
                contact_sheet(dataset.images[:32], columns=8),
                caption="Several pictures of each person: pose, light, mood, place and clothes change, the face stays.",
                alt="A sheet of 32 drawn portraits, several of each person, before indoor and outdoor backgrounds.",
            ),
            page.Picture(
                attribute_sheet(dataset, shown, per_side=4),
                caption="Pictures with (left) and without (right) an attribute.",
                alt=f"Rows of portraits with and without {', '.join(shown)}.",
            ),
            page.Plot(
                _correlation_plot(dataset),
                caption="Correlation between attributes in these pictures. Showing one attribute of a strongly "
                "correlated pair shows the other too.",
                alt=f"A matrix of correlations; the strongest is between {_strongest_pair(dataset)}.",
            ),
            page.Text(f"Terms: {dataset.licence}. Source: {dataset.source}."),
        ),
    )


def features_chapter(
    readings: Sequence[Reading], *, dimensions: int, raw: int, energy: float, tested: int
) -> page.Chapter:
    rows = tuple(
        (
            words(r.attribute),
            f"{r.balanced_accuracy:.3f}",
            f"{r.interval.low:.3f} to {r.interval.high:.3f}",
            f"{r.mean_precision:.3f}",
        )
        for r in readings
    )
    best = max(readings, key=lambda r: r.balanced_accuracy)
    return page.Chapter(
        title="What raw features give away",
        lead=f"Who holds the features holds the attributes: a logistic regression reads “{words(best.attribute)}” "
        f"of people it never saw with {best.balanced_accuracy:.0%} balanced accuracy, where guessing gives 50%.",
        blocks=(
            page.Text(
                f"Each picture becomes {raw:,} numbers (colour, intensity, edge orientation and edge magnitude, each "
                f"normalised per picture), then {dimensions} principal components with {energy:.1%} of the energy. "
                f"Classifiers are trained on some people and tested on {tested:,} pictures of others."
            ),
            page.Plot(
                _readings_plot(readings),
                caption="Balanced accuracy with simultaneous 95% intervals over all attributes; 0.5 is blind guessing.",
                alt="Bars of balanced accuracy for each attribute; all stand well above one half.",
            ),
            page.Table(
                columns=("attribute", "balanced accuracy", "95% interval", "mean of precisions"),
                rows=rows,
                caption="The mean of precisions is what SensorSift (Eq. 5) calls class average accuracy. It can be "
                "high for a classifier that finds almost nobody; decisions here are made on balanced accuracy.",
            ),
        ),
    )


def census_chapter(result: Census, truth: Mapping[str, float], spent: page.Table) -> page.Chapter:
    worst = max(abs(result.share(name) - truth[name]) for name in truth)
    return page.Chapter(
        title="A census that protects people",
        lead=f"How common is each attribute? The answer leaves with noise that hides every single person: off by at "
        f"most {100 * worst:.1f} points here, with epsilon = {result.statement.epsilon:g} per person.",
        blocks=(
            page.Plot(
                _census_plot(result, truth),
                caption="Released shares with 95% intervals of the noise; the true shares would stay with the owner.",
                alt="For each attribute the released share, its interval, and the true share close to it.",
            ),
            page.StatementBlock(result.statement),
            spent,
        ),
    )


def _correlations(dataset: Dataset) -> NDArray[np.float64]:
    assert dataset.attributes is not None
    matrix: NDArray[np.float64] = np.corrcoef(dataset.attributes.T.astype(float))
    return matrix


def _strongest_pair(dataset: Dataset) -> str:
    matrix = _correlations(dataset)
    off_diagonal = matrix - np.eye(len(matrix))
    row, column = np.unravel_index(np.abs(off_diagonal).argmax(), matrix.shape)
    names = dataset.attribute_names
    return f"{words(names[row])} and {words(names[column])} ({matrix[row, column]:+.2f})"


def _correlation_plot(dataset: Dataset) -> str:
    with page.drawing(7.2, 5.6) as (figure, axes):
        names = [words(name) for name in dataset.attribute_names]
        page.heat_map(axes, _correlations(dataset), names, strongest=0.6, least=0.05)
        return page.to_svg(figure)


def _readings_plot(readings: Sequence[Reading]) -> str:
    ordered = sorted(readings, key=lambda r: r.balanced_accuracy)
    heights = np.array([r.balanced_accuracy for r in ordered])
    reach = np.abs(np.array([[r.interval.low, r.interval.high] for r in ordered]).T - heights)
    with page.drawing(7.2, 0.32 * len(ordered) + 0.9) as (figure, axes):
        axes.grid(visible=False, axis="y")
        axes.barh([words(r.attribute) for r in ordered], heights - 0.5, left=0.5, height=0.62, color=page.SERIES[0])
        axes.errorbar(heights, range(len(ordered)), xerr=reach, fmt="none", ecolor=page.INK, elinewidth=1.2, capsize=3)
        axes.axvline(0.5, color=page.INK, linewidth=1.2)
        axes.set_xlim(0.48, 1.0)
        axes.set_xlabel("balanced accuracy")
        return page.to_svg(figure)


def _census_plot(result: Census, truth: Mapping[str, float]) -> str:
    names = list(truth)
    with page.drawing(7.2, 0.34 * len(names) + 1.1) as (figure, axes):
        axes.grid(visible=False, axis="y")
        rows = np.arange(len(names))[::-1]
        shares = np.array([result.share(name) for name in names])
        axes.errorbar(
            shares,
            rows,
            xerr=result.margin,
            fmt="o",
            color=page.SERIES[0],
            ecolor=page.SERIES[0],
            capsize=3,
            label="released",
        )
        axes.scatter(
            [truth[name] for name in names], rows, marker="|", s=160, color=page.SERIES[1], label="true", zorder=3
        )
        axes.set_xlim(left=0)
        axes.set_yticks(rows, [words(name) for name in names])
        axes.set_xlabel("share of people with the attribute")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0)
        return page.to_svg(figure)
