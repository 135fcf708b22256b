"""The report's chapter on sifting: one attribute is told, another hidden, and attackers show how well that works."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import contact_sheet
from blindsight.report import page
from blindsight.sift.analysis import PixelRegions, PolicyMatrix
from blindsight.sift.study import Guess, Released, SiftResult, best_guess, guesses, words
from blindsight.sift.trial import Sifted, TradeOff

FEWEST_POLICIES = 6  # below this a regression over policies says nothing

_PAPER_PUB_LOSS, _PAPER_PRIV_LOSS = 0.053, 0.075  # averages of its abstract
_WIDE = 192  # pixels of a face with what the app receives
_BESIDE = 6  # attributes of matrices that stand side by side; larger ones stand below each other
_SIDE = 160  # pixels of one map of regions
_HEAT = np.array([214, 72, 20])


def sift_chapter(result: SiftResult) -> page.Chapter:
    blocks: list[page.Block] = [_policy_table(result), _attackers(result), _sifts_table(result)]
    blocks += [page.Text(f"What a person reads ({one.name}): “{result.consent(one)}”") for one in result.sifted]
    if result.faces is not None:
        blocks.append(_received(result, result.faces))
    if result.trade_off is not None and result.trade_off.curves:
        blocks.append(_trade_off(result.trade_off, result.threshold))
    if result.regions and result.average is not None:
        blocks.append(_regions(result.regions, result.average))
    if result.matrix is not None:
        blocks += _matrix_blocks(result.matrix, result.threshold)
    blocks += [page.StatementBlock(one.found.statement) for one in result.sifted]
    return page.Chapter(title="Showing one thing and hiding another", lead=_lead(result), blocks=tuple(blocks))


def matrix_chapter(matrix: PolicyMatrix, *, threshold: float) -> page.Chapter:
    return page.Chapter(
        title="What can be told without what",
        lead=f"{matrix.accepted} of {len(matrix.cells)} policies pass verification: an app gets one attribute, and "
        f"nobody who was tried guesses the other better than {0.5 + threshold:.0%}, where 50% is blind.",
        blocks=tuple(_matrix_blocks(matrix, threshold)),
    )


def _lead(result: SiftResult) -> str:
    best = min(result.sifted, key=lambda one: (one.found.verdict != "accept", one.pub_loss))
    told, hidden = (" and ".join(map(words, side)) for side in (result.policy.public, result.policy.private))
    kept = best.told
    left = best_guess(best.found)
    return (
        f"An app asks for “{told}”, a person hides “{hidden}”. From raw features a classifier reads them with "
        f"{np.mean(list(result.raw.values())):.0%} and {result.before.best.balanced_accuracy:.0%} balanced accuracy; "
        f"what is left after sifting gives {kept:.0%} and {left:.0%}, where 50% is blind."
    )


def _policy_table(result: SiftResult) -> page.Table:
    rows = tuple(
        (
            f"{words(pair.public)} without {words(pair.private)}",
            f"{pair.samples:,}",
            f"{pair.correlation:+.2f}",
            f"{pair.ceiling:.3f}",
        )
        for pair in result.check.pairs
    )
    return page.Table(
        ("policy", "pictures", "correlation", "best possible"),
        rows,
        caption="What the labels say before anything is trained. Best possible: the public balanced accuracy that no "
        f"sift of any kind can exceed while every guess of what is private stays within {result.threshold:g} of blind.",
    )


def _attackers(result: SiftResult) -> page.Plot:
    several = len(result.policy.private) > 1
    groups = [("raw features", guesses(result.before, several=several))]
    groups += [(one.name, guesses(one.found, several=several)) for one in result.sifted]
    spoken = "; ".join(f"{name}: {max(guess.accuracy for guess in found):.2f}" for name, found in groups)
    return page.Plot(
        _attackers_plot(groups, result.threshold),
        caption=f"How well {' and '.join(map(words, result.policy.private))} can be guessed, before and after "
        f"sifting, on pictures of people that nobody learned from; intervals hold together with "
        f"{result.before.setting.confidence:.0%} confidence. A sift is accepted when it is sure that no guess exceeds "
        "the dashed line.",
        alt=f"Best guess of {' and '.join(map(words, result.policy.private))} by balanced accuracy: {spoken}.",
    )


def _sifts_table(result: SiftResult) -> page.Table:
    rows = tuple(
        (
            one.name,
            one.lets_out,
            f"{one.told:.3f}",
            f"{one.pub_loss:.3f}",
            f"{best_guess(one.found):.3f}",
            f"{0.5 + _ceil(one.found.bound):.3f}",
            one.found.verdict,
        )
        for one in result.sifted
    )
    return page.Table(
        ("sift", "lets out", "public accuracy", "PubLoss", "best guess", "at most", "verdict"),
        rows,
        caption="Balanced accuracies on people that neither sift nor classifiers learned from. PubLoss: what the app "
        "loses against raw features. At most: upper limit of the best guess; of anybody's where it is certified.",
    )


def _ceil(bound: float) -> float:
    return math.ceil(1e3 * bound) / 1e3


def _received(result: SiftResult, faces: NDArray[np.uint8]) -> page.Picture:
    captions = [
        _caption(row, result.policy.public, one)
        for one, numbers in zip(result.sifted, result.received, strict=True)
        for row in numbers
    ]
    told, hidden = words(result.policy.public[0]), words(result.policy.private[0])
    return page.Picture(
        contact_sheet(
            np.concatenate([faces] * len(result.sifted)),
            columns=len(faces),
            titles=[f"{one.name}: {one.lets_out}" for one in result.sifted],
            captions=captions,
            scale=max(1, _WIDE // faces.shape[2]),
        ),
        caption="What the app receives of a picture is the line below it, and nothing else; errors are the "
        f"sift's own. From the left: {told} and {hidden}, only {told}, only {hidden}, neither.",
        alt=f"{len(faces)} faces with and without {told}, below each what each sift lets out.",
    )


def _caption(released: Released, public: Sequence[str], one: Sifted) -> str:
    if one.sift is not None and one.sift.levels == (2,) * len(public):
        answers = zip(map(words, public), released, strict=True)
        return ", ".join(name if yes else f"not {name}" for name, yes in answers)
    if released.dtype.kind == "i":
        return " ".join(map(str, released))
    return " ".join(f"{number:z.1f}" for number in released)


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


def _attackers_plot(groups: Sequence[tuple[str, Sequence[Guess]]], threshold: float) -> str:
    rows = sum(len(guesses) + 1 for _, guesses in groups)
    with page.drawing(7.2, 0.3 * rows + 0.8) as (figure, axes):
        axes.grid(visible=False, axis="y")
        names: dict[float, str] = {}
        headings: list[float] = []
        place = 0.0
        for colour, (given, guesses) in zip((page.SERIES[5], *page.SERIES), groups, strict=False):
            names[place] = page.plain_text(given)
            headings.append(place)
            for guess in guesses:
                place += 1
                _bar(axes, place, guess, colour)
                names[place] = page.plain_text(guess.who)
            place += 1.3
        axes.axvline(0.5, color=page.INK, linewidth=1.2)
        axes.axvline(0.5 + threshold, color=page.SERIES[4], linewidth=1.4, linestyle="--")
        axes.annotate(
            "allowed", (0.5 + threshold, -0.6), textcoords="offset points", xytext=(5, 0), color=page.SERIES[4]
        )
        axes.annotate("blind", (0.5, -0.6), textcoords="offset points", xytext=(-5, 0), ha="right")
        axes.set_yticks(list(names), list(names.values()))
        for label, at in zip(axes.get_yticklabels(), names, strict=True):
            label.set_fontweight("bold" if at in headings else "normal")
        axes.set_ylim(place - 0.4, -1.2)
        axes.set_xlim(0.45, 1.0)
        axes.set_xlabel("balanced accuracy of guessing what is private")
        return page.to_svg(figure)


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


def _bar(axes: Axes, place: float, guess: Guess, colour: str) -> None:
    axes.barh(place, guess.accuracy - 0.5, left=0.5, height=0.62, color=colour)
    reach = np.abs([[guess.accuracy - guess.interval.low], [guess.interval.high - guess.accuracy]])
    axes.errorbar(guess.accuracy, place, xerr=reach, fmt="none", ecolor=page.INK, elinewidth=1.2, capsize=3)


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
