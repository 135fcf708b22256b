"""The report's chapter on sifting: one attribute is told, another hidden, and attackers show how well that works."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from blindsight.data import contact_sheet
from blindsight.report import page
from blindsight.sift.fit import Guess, Released, SiftResult, best_guess, guesses, words
from blindsight.sift.trial import Sifted

_WIDE = 192  # pixels of a face with what the app receives


def sift_chapter(result: SiftResult) -> page.Chapter:
    """Show one policy: what attackers read before and after sifting, what an app receives, what is proven."""
    blocks: list[page.Block] = [_policy_table(result), _attackers(result), _sifts_table(result)]
    blocks += [page.Text(f"What a person reads ({one.name}): “{result.consent(one)}”") for one in result.sifted]
    if result.faces is not None:
        blocks.append(_received(result, result.faces))
    blocks += [page.StatementBlock(one.found.statement) for one in result.sifted]
    return page.Chapter(title="Showing one thing and hiding another", lead=_lead(result), blocks=tuple(blocks))


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


def _bar(axes: Axes, place: float, guess: Guess, colour: str) -> None:
    axes.barh(place, guess.accuracy - 0.5, left=0.5, height=0.62, color=colour)
    reach = np.abs([[guess.accuracy - guess.interval.low], [guess.interval.high - guess.accuracy]])
    axes.errorbar(guess.accuracy, place, xerr=reach, fmt="none", ecolor=page.INK, elinewidth=1.2, capsize=3)
