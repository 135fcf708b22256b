"""Drawings of the chapter on sifting: attackers before and after, trade-offs, matrices of policies, image regions."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import contact_sheet
from blindsight.metrics import Interval
from blindsight.report.plots import GRID, INK, SERIES, drawing, to_svg
from blindsight.sift.policymatrix import PolicyMatrix
from blindsight.sift.regions import PixelRegions
from blindsight.sift.tradeoff import TradeOff


class Guess(NamedTuple):
    """Who guesses what is private, how often that is right, and how sure this is."""

    who: str
    accuracy: float
    interval: Interval


Guesses = Sequence[tuple[str, Sequence[Guess]]]
"""Groups of guesses: what the attackers were given, and what each achieved."""

_BESIDE = 6  # attributes of matrices that stand side by side; larger ones stand below each other
_SIDE = 160  # pixels of one map of regions
_HEAT = np.array([214, 72, 20])


def words(attribute: str) -> str:
    """Return an attribute's name as people write it."""
    return attribute.replace("_", " ")


def attackers_plot(groups: Guesses, threshold: float) -> str:
    """Draw the balanced accuracy of every attacker with its interval, group by group, beside what is allowed."""
    rows = sum(len(guesses) + 1 for _, guesses in groups)
    with drawing(7.2, 0.3 * rows + 0.8) as (figure, axes):
        axes.grid(visible=False, axis="y")
        names: dict[float, str] = {}
        headings: list[float] = []
        place = 0.0
        for colour, (given, guesses) in zip((SERIES[5], *SERIES), groups, strict=False):
            names[place] = _plain(given)
            headings.append(place)
            for guess in guesses:
                place += 1
                _bar(axes, place, guess, colour)
                names[place] = _plain(guess.who)
            place += 1.3
        axes.axvline(0.5, color=INK, linewidth=1.2)
        axes.axvline(0.5 + threshold, color=SERIES[4], linewidth=1.4, linestyle="--")
        axes.annotate("allowed", (0.5 + threshold, -0.6), textcoords="offset points", xytext=(5, 0), color=SERIES[4])
        axes.annotate("blind", (0.5, -0.6), textcoords="offset points", xytext=(-5, 0), ha="right")
        axes.set_yticks(list(names), list(names.values()))
        for label, at in zip(axes.get_yticklabels(), names, strict=True):
            label.set_fontweight("bold" if at in headings else "normal")
        axes.set_ylim(place - 0.4, -1.2)
        axes.set_xlim(0.45, 1.0)
        axes.set_xlabel("balanced accuracy of guessing what is private")
        return to_svg(figure)


def trade_off_plot(trade_off: TradeOff, threshold: float) -> str:
    """Draw what an app and what the best attacker reads against the numbers let out, a line per lambda."""
    privacies = sorted({point.privacy for point in trade_off.points})
    with drawing(7.2, 3.4) as (figure, axes):
        axes.remove()
        told, hidden = figure.subplots(1, 2, sharex=True, sharey=True)
        for colour, privacy in zip(SERIES, privacies, strict=False):
            curve = trade_off.curve(privacy)
            numbers = [point.components for point in curve]
            told.plot(numbers, [np.mean(list(p.accuracies.values())) for p in curve], "o-", color=colour, markersize=4)
            name = "no privacy" if privacy == 0 else "infinity" if np.isinf(privacy) else f"{privacy:g}"
            hidden.plot(numbers, [0.5 + p.priv_loss for p in curve], "o-", color=colour, markersize=4, label=name)
        _level(told, float(np.mean(list(trade_off.raw.values()))), "raw features", INK, (0.02, "bottom"))
        _level(hidden, 0.5 + threshold, "allowed", SERIES[4], (1.01, "center"))
        told.set_title(f"the app reads {_listed(trade_off.policy.public)}", fontsize=11)
        hidden.set_title(f"an attacker reads {_listed(trade_off.policy.private)}", fontsize=11)
        told.set_ylabel("balanced accuracy")
        told.set_ylim(0.48, 1.0)
        for panel in (told, hidden):
            panel.set_xlabel("numbers let out, K")
            panel.set_xticks(sorted({point.components for point in trade_off.points}))
        hidden.legend(title="lambda", loc="upper right", fontsize=9, title_fontsize=9)
        return to_svg(figure)


def matrices_plot(matrix: PolicyMatrix, threshold: float) -> str:
    """Draw the four matrices of Figure 4: correlation, overlap, PubLoss and PrivLoss; rows public, columns private."""
    names = [_plain(words(name)) for name in matrix.names]
    beside = len(names) <= _BESIDE
    entangled = matrix.entanglement
    panels = (
        ("correlation of labels", entangled.correlation, 0.5, np.inf),
        ("overlap of features", entangled.overlap, 1.0, np.inf),
        ("PubLoss: what the app loses", matrix.figures("pub_loss"), 2 * threshold, threshold),
        ("PrivLoss: what an attacker gains", matrix.figures("priv_loss"), 2 * threshold, threshold),
    )
    size = 0.42 * len(names)
    with drawing(*((9.6, 2 * size + 3.6) if beside else (7.2, 4 * (size + 1.6)))) as (figure, axes):
        axes.remove()
        grid = figure.subplots(*((2, 2) if beside else (4, 1)))
        for panel, (title, values, strongest, limit) in zip(grid.flat, panels, strict=True):
            _heat_map(panel, values, names, strongest, limit)
            panel.set_title(title, fontsize=11, fontweight="bold")
        return to_svg(figure)


def regions_sheet(regions: Mapping[str, PixelRegions], face: NDArray[np.uint8]) -> Image.Image:
    """Show where attributes are seen: heat over a pale average face."""
    grey = face.astype(np.float64).mean(axis=2, keepdims=True)
    pale = 150 + 0.4 * np.repeat(grey, 3, axis=2)
    maps = [_heated(pale, region.energy) for region in regions.values()]
    return contact_sheet(np.stack(maps), columns=len(maps), captions=[words(name) for name in regions], scale=1)


def _bar(axes: Axes, place: float, guess: Guess, colour: str) -> None:
    axes.barh(place, guess.accuracy - 0.5, left=0.5, height=0.62, color=colour)
    reach = np.abs([[guess.accuracy - guess.interval.low], [guess.interval.high - guess.accuracy]])
    axes.errorbar(guess.accuracy, place, xerr=reach, fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)


def _level(axes: Axes, height: float, name: str, colour: str, where: tuple[float, str]) -> None:
    """Draw a line and its name, so far from the left edge and above or beside the line."""
    axes.axhline(height, color=colour, linewidth=1.2, linestyle="--")
    left, beside = where
    axes.annotate(name, (left, height), xycoords=("axes fraction", "data"), va=beside, fontsize=9, color=colour)


def _heat_map(axes: Axes, values: NDArray[np.float64], names: Sequence[str], strongest: float, limit: float) -> None:
    """Draw a number in every cell off the diagonal: blue, orange where it is negative, red above the limit."""
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(values):
        if row == column:
            continue
        if np.isnan(value):
            axes.text(column, row, "none", ha="center", va="center", fontsize=8)
            continue
        tint = 0.06 + 0.54 * min(1.0, abs(value) / strongest)
        colour = SERIES[4] if value > limit else SERIES[0] if value > 0 else SERIES[1]
        axes.add_patch(Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, color=colour, alpha=tint, linewidth=0))
        axes.text(column, row, _short(value), ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def _short(value: float) -> str:
    """Return two decimals without the zero before the point.

    >>> _short(0.123), _short(-0.05), _short(0.001), _short(1.0)
    ('.12', '-.05', '.00', '1.00')
    """
    text = f"{value:z.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def _heated(pale: NDArray[np.float64], energy: NDArray[np.float64]) -> NDArray[np.uint8]:
    share = (0.9 * np.clip(energy, 0, 1))[:, :, None]
    picture = np.rint(pale * (1 - share) + _HEAT * share).astype(np.uint8)
    return np.asarray(Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))


def _listed(names: Sequence[str]) -> str:
    return _plain(" and ".join(words(name) for name in names))


def _plain(text: str) -> str:
    """Return text that matplotlib draws as it is: dollars would begin a formula."""
    return text.replace("$", r"\$")
