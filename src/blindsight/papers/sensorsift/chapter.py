"""The chapters on SensorSift: one policy with its trade-off and maps (Figures 3 and 5), and all policies (Figure 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import contact_sheet
from blindsight.papers.sensorsift.analysis import PixelRegions, PolicyMatrix
from blindsight.papers.sensorsift.compare import TradeOff
from blindsight.papers.sensorsift.study import PolicyStudy
from blindsight.report import page
from blindsight.report.sifting import sift_chapter
from blindsight.sift.fit import words

FEWEST_POLICIES = 6  # below this a regression over policies says nothing

_PAPER_PUB_LOSS, _PAPER_PRIV_LOSS = 0.053, 0.075  # averages of its abstract
_BESIDE = 6  # attributes of matrices that stand side by side; larger ones stand below each other
_SIDE = 160  # pixels of one map of regions
_HEAT = np.array([214, 72, 20])


def policy_chapter(study: PolicyStudy) -> page.Chapter:
    """Show one policy as the library does, with the trade-off of PPLS and where attributes are seen."""
    chapter, more = sift_chapter(study.result), list[page.Block]()
    if study.trade_off is not None and study.trade_off.curves:
        more.append(_trade_off(study.trade_off, study.result.threshold))
    if study.regions and study.average is not None:
        more.append(_regions(study.regions, study.average))
    return replace(chapter, blocks=(*chapter.blocks, *more))


def matrix_chapter(matrix: PolicyMatrix, *, threshold: float) -> page.Chapter:
    """Show every attribute against every other."""
    return page.Chapter(
        title="What can be told without what",
        lead=f"{matrix.accepted} of {len(matrix.cells)} policies pass verification: an app gets one attribute, and "
        f"nobody who was tried guesses the other better than {0.5 + threshold:.0%}, where 50% is blind.",
        blocks=tuple(_matrix_blocks(matrix, threshold)),
    )


def _trade_off(found: TradeOff, threshold: float) -> page.Plot:
    best = found.best
    told = "none is accepted" if best is None else f"the best accepted one has K = {best[1].numbers}"
    return page.Plot(
        _trade_off_plot(found, threshold),
        caption="More numbers tell the app more, and attackers too; a larger lambda hides more (PPLS; Figure 3 of the "
        f"paper). Of these, {told}.",
        alt="Balanced accuracy of the app and of the best attacker against the numbers let out, one line per lambda.",
    )


def _regions(regions: Mapping[str, PixelRegions], average: NDArray[np.uint8]) -> page.Picture:
    return page.Picture(
        _regions_sheet(regions, average),
        caption="Where attributes are seen: how strongly each pixel's colours and edges covary with them (Figure 5 of "
        "the paper), and where a sift looks. What is seen in the same place is hard to tell apart.",
        alt=f"Heat maps over a face for {', '.join(map(words, regions))}.",
    )


def _matrix_blocks(matrix: PolicyMatrix, threshold: float) -> list[page.Block]:
    blocks: list[page.Block] = [
        page.Plot(
            _matrices_plot(matrix, threshold),
            caption="Rows are told, columns hidden (Figure 4 of the paper). Correlation of labels and overlap of "
            "features (Eq. 6, the largest is 1) say which policies must fail; the losses say which do.",
            alt=f"Four matrices over {', '.join(map(words, matrix.names))}.",
        ),
        page.Table(
            ("average of", f"{len(matrix.cells)} policies here", "90 policies of the paper"),
            (
                ("PubLoss", f"{matrix.average('pub_loss'):.3f}", f"{_PAPER_PUB_LOSS:.3f}"),
                ("PrivLoss", f"{matrix.average('priv_loss'):.3f}", f"{_PAPER_PRIV_LOSS:.3f}"),
                ("policies that pass", f"{matrix.accepted} of {len(matrix.cells)}", "-"),
            ),
            caption="Ours are balanced accuracies under tuned attackers on drawn or given pictures, the paper's are "
            "means of precisions of unweighted ones on photographs: beside each other, not comparable digit by digit.",
        ),
    ]
    explained = _regression(matrix)
    return [*blocks, page.Text(explained)] if explained else blocks


def _regression(matrix: PolicyMatrix) -> str:
    """Return in a sentence how far correlation and overlap explain PrivLoss; "" where that cannot be said."""
    if len(matrix.cells) - len(matrix.problems) < FEWEST_POLICIES:
        return ""
    found = matrix.regression("priv_loss")
    return (
        f"Correlation and overlap together explain {found.r_squared:.0%} of the variance of PrivLoss over these "
        f"policies; of that, {found.correlation_share:.0%} is correlation's (the paper: 67%)."
    )


def _trade_off_plot(trade_off: TradeOff, threshold: float) -> str:
    with page.drawing(7.2, 3.4) as (figure, axes):
        axes.remove()
        told, hidden = figure.subplots(1, 2, sharex=True, sharey=True)
        for colour, (privacy, curve) in zip(page.SERIES, sorted(trade_off.curves.items()), strict=False):
            numbers = [one.numbers for one in curve]
            told.plot(numbers, [one.told for one in curve], "o-", color=colour, markersize=4)
            name = "no privacy" if privacy == 0 else "infinity" if np.isinf(privacy) else f"{privacy:g}"
            hidden.plot(numbers, [0.5 + one.priv_loss for one in curve], "o-", color=colour, markersize=4, label=name)
        _level(told, float(np.mean(list(trade_off.raw.values()))), "raw features", page.INK, (0.02, "bottom"))
        _level(hidden, 0.5 + threshold, "allowed", page.SERIES[4], (1.01, "center"))
        told.set_title(f"the app reads {_listed(trade_off.policy.public)}", fontsize=11)
        hidden.set_title(f"an attacker reads {_listed(trade_off.policy.private)}", fontsize=11)
        told.set_ylabel("balanced accuracy")
        told.set_ylim(0.48, 1.0)
        for panel in (told, hidden):
            panel.set_xlabel("numbers let out, K")
            panel.set_xticks(sorted({one.numbers or 0 for curve in trade_off.curves.values() for one in curve}))
        hidden.legend(title="lambda", loc="upper right", fontsize=9, title_fontsize=9)
        return page.to_svg(figure)


def _matrices_plot(matrix: PolicyMatrix, threshold: float) -> str:
    """Draw the four matrices of Figure 4: correlation, overlap, PubLoss and PrivLoss; rows public, columns private."""
    names = [words(name) for name in matrix.names]
    beside = len(names) <= _BESIDE
    entangled = matrix.entanglement
    panels = (
        ("correlation of labels", entangled.correlation, 0.5, np.inf),
        ("overlap of features", entangled.overlap, 1.0, np.inf),
        ("PubLoss: what the app loses", matrix.figures("pub_loss"), 2 * threshold, threshold),
        ("PrivLoss: what an attacker gains", matrix.figures("priv_loss"), 2 * threshold, threshold),
    )
    size = 0.42 * len(names)
    with page.drawing(*((9.6, 2 * size + 3.6) if beside else (7.2, 4 * (size + 1.6)))) as (figure, axes):
        axes.remove()
        figure.set_layout_engine("constrained", hspace=0.12)
        grid = figure.subplots(*((2, 2) if beside else (4, 1)))
        for panel, (title, values, strongest, limit) in zip(grid.flat, panels, strict=True):
            page.heat_map(panel, values, names, strongest=strongest, limit=limit)
            panel.set_title(title, fontsize=11, fontweight="bold")
        return page.to_svg(figure)


def _regions_sheet(regions: Mapping[str, PixelRegions], face: NDArray[np.uint8]) -> Image.Image:
    grey = face.astype(np.float64).mean(axis=2, keepdims=True)
    pale = 150 + 0.4 * np.repeat(grey, 3, axis=2)
    maps = [_heated(pale, region.energy) for region in regions.values()]
    return contact_sheet(np.stack(maps), columns=len(maps), captions=[words(name) for name in regions], scale=1)


def _level(axes: Axes, height: float, name: str, colour: str, where: tuple[float, str]) -> None:
    axes.axhline(height, color=colour, linewidth=1.2, linestyle="--")
    left, beside = where
    axes.annotate(name, (left, height), xycoords=("axes fraction", "data"), va=beside, fontsize=9, color=colour)


def _heated(pale: NDArray[np.float64], energy: NDArray[np.float64]) -> NDArray[np.uint8]:
    share = (0.9 * np.clip(energy, 0, 1))[:, :, None]
    picture = np.rint(pale * (1 - share) + _HEAT * share).astype(np.uint8)
    return np.asarray(Image.fromarray(picture).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC))


def _listed(names: Sequence[str]) -> str:
    return page.plain_text(" and ".join(words(name) for name in names))
