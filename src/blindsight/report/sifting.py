"""The report's chapter on sifting: one attribute is told, another hidden, and attackers show how well that works."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from blindsight.data import contact_sheet
from blindsight.metrics import Interval
from blindsight.report.blocks import Block, Chapter, Picture, Plot, StatementBlock, Table, Text
from blindsight.report.siftplots import (
    Guess,
    attackers_plot,
    matrices_plot,
    regions_sheet,
    trade_off_plot,
    words,
)
from blindsight.report.siftresult import Released, SiftResult
from blindsight.sift.consent import consent_sentence
from blindsight.sift.odometer import readings
from blindsight.sift.policymatrix import PolicyMatrix
from blindsight.sift.regions import PixelRegions
from blindsight.sift.tradeoff import TradeOff
from blindsight.sift.trial import Sifted
from blindsight.sift.verdict import Verification

FEWEST_POLICIES = 6
"""Below this a regression over policies says nothing."""

_PAPER_PUB_LOSS, _PAPER_PRIV_LOSS = 0.053, 0.075  # averages of its abstract
_WIDE = 192  # pixels of a face with what the app receives


def sift_chapter(result: SiftResult) -> Chapter:
    """Show a policy, the attackers before and after, what is paid for it, and what an app and a person get to see."""
    blocks: list[Block] = [_policy_table(result), _attackers(result), _sifts_table(result)]
    blocks += [Text(f"What a person reads ({one.name}): “{consent(result, one)}”") for one in result.sifted]
    if result.faces is not None:
        blocks.append(_received(result, result.faces))
    if result.trade_off is not None and result.trade_off.points:
        blocks.append(_trade_off(result.trade_off, result.threshold))
    if result.regions and result.average is not None:
        blocks.append(_regions(result.regions, result.average))
    if result.matrix is not None:
        blocks += _matrix_blocks(result.matrix, result.threshold)
    blocks += [StatementBlock(one.losses.verification.statement) for one in result.sifted]
    return Chapter(title="Showing one thing and hiding another", lead=_lead(result), blocks=tuple(blocks))


def matrix_chapter(matrix: PolicyMatrix, *, threshold: float) -> Chapter:
    """Show every attribute against every other: which can be told without which."""
    return Chapter(
        title="What can be told without what",
        lead=f"{matrix.accepted} of {len(matrix.cells)} policies pass verification: an app gets one attribute, and "
        f"nobody who was tried guesses the other better than {0.5 + threshold:.0%}, where 50% is blind.",
        blocks=tuple(_matrix_blocks(matrix, threshold)),
    )


def _lead(result: SiftResult) -> str:
    best = min(result.sifted, key=lambda one: (one.losses.verification.verdict != "accept", one.losses.pub_loss))
    told, hidden = (" and ".join(map(words, side)) for side in (result.policy.public, result.policy.private))
    kept = np.mean(list(best.losses.accuracies.values()))
    left = best_guess(best.losses.verification)
    return (
        f"An app asks for “{told}”, a person hides “{hidden}”. From raw features a classifier reads them with "
        f"{np.mean(list(result.raw.values())):.0%} and {result.before.best.balanced_accuracy:.0%} balanced accuracy; "
        f"what is left after sifting gives {kept:.0%} and {left:.0%}, where 50% is blind."
    )


def _policy_table(result: SiftResult) -> Table:
    rows = tuple(
        (
            f"{words(pair.public)} without {words(pair.private)}",
            f"{pair.samples:,}",
            f"{pair.correlation:+.2f}",
            f"{pair.ceiling:.3f}",
        )
        for pair in result.check.pairs
    )
    return Table(
        ("policy", "pictures", "correlation", "best possible"),
        rows,
        caption="What the labels say before anything is trained. Best possible: the public balanced accuracy that no "
        f"sift of any kind can exceed while every guess of what is private stays within {result.threshold:g} of blind.",
    )


def _attackers(result: SiftResult) -> Plot:
    several = len(result.policy.private) > 1
    groups = [("raw features", guesses(result.before, several))]
    groups += [(one.name, guesses(one.losses.verification, several)) for one in result.sifted]
    spoken = "; ".join(f"{name}: {max(guess.accuracy for guess in found):.2f}" for name, found in groups)
    return Plot(
        attackers_plot(groups, result.threshold),
        caption=f"How well {' and '.join(map(words, result.policy.private))} can be guessed, before and after "
        f"sifting, on pictures of people that nobody learned from; intervals hold together with "
        f"{result.before.setting.confidence:.0%} confidence. A sift is accepted when it is sure that no guess exceeds "
        "the dashed line.",
        alt=f"Best guess of {' and '.join(map(words, result.policy.private))} by balanced accuracy: {spoken}.",
    )


def guesses(found: Verification, several: bool) -> list[Guess]:
    """Return a row per attacker, and one for every attacker there can be where that is certified."""
    rows = [
        Guess(f"{r.attacker}: {words(r.attribute)}" if several else r.attacker, r.balanced_accuracy, r.interval)
        for r in found.results
    ]
    for one in found.certificates:
        name = f"anybody: {words(one.attribute)}" if several else "anybody, certified"
        rows.append(Guess(name, 0.5 + one.estimate, Interval(0.5 + one.estimate, 0.5 + one.bound)))
    return rows


def _sifts_table(result: SiftResult) -> Table:
    rows = tuple(
        (
            one.name,
            lets_out(one),
            f"{np.mean(list(one.losses.accuracies.values())):.3f}",
            f"{one.losses.pub_loss:.3f}",
            f"{best_guess(one.losses.verification):.3f}",
            f"{0.5 + _ceil(one.losses.verification.bound):.3f}",
            one.losses.verification.verdict,
        )
        for one in result.sifted
    )
    return Table(
        ("sift", "lets out", "public accuracy", "PubLoss", "best guess", "at most", "verdict"),
        rows,
        caption="Balanced accuracies on people that neither sift nor classifiers learned from. PubLoss: what the app "
        "loses against raw features. At most: upper limit of the best guess; of anybody's where it is certified.",
    )


def lets_out(one: Sifted) -> str:
    """Return in words what an app receives of a picture."""
    if one.sift.alphabet is not None and one.sift.alphabet <= 256:
        return f"one of {one.sift.alphabet} symbols"
    return f"{one.sift.width} number{'s' * (one.sift.width > 1)}"


def best_guess(found: Verification) -> float:
    """Return the best guess: of those that were tried, or of anybody where that could be counted."""
    return 0.5 + max([found.priv_loss, *(one.estimate for one in found.certificates)])


def _ceil(bound: float) -> float:
    return math.ceil(1e3 * bound) / 1e3


def consent(result: SiftResult, one: Sifted) -> str:
    """Return the sentence that a person would read about one of the sifts."""
    found = one.losses.verification
    return consent_sentence(
        result.policy.name or "X",
        [words(name) for name in result.policy.public],
        [words(name) for name in result.policy.private],
        readings(found),
        (),
        (),
        verdict=found.verdict,
        confidence=found.setting.confidence,
    )


def _received(result: SiftResult, faces: NDArray[np.uint8]) -> Picture:
    captions = [
        _caption(row, result.policy.public, one)
        for one, numbers in zip(result.sifted, result.received, strict=True)
        for row in numbers
    ]
    told, hidden = words(result.policy.public[0]), words(result.policy.private[0])
    return Picture(
        contact_sheet(
            np.concatenate([faces] * len(result.sifted)),
            columns=len(faces),
            titles=[f"{one.name}: {lets_out(one)}" for one in result.sifted],
            captions=captions,
            scale=max(1, _WIDE // faces.shape[2]),
        ),
        caption="What the app receives of a picture is the line below it, and nothing else; errors are the "
        f"sift's own. From the left: {told} and {hidden}, only {told}, only {hidden}, neither.",
        alt=f"{len(faces)} faces with and without {told}, below each what each sift lets out.",
    )


def _caption(released: Released, public: Sequence[str], one: Sifted) -> str:
    if one.sift.levels == (2,) * len(public):
        answers = zip(map(words, public), released, strict=True)
        return ", ".join(name if yes else f"not {name}" for name, yes in answers)
    if released.dtype.kind == "i":
        return " ".join(map(str, released))
    return " ".join(f"{number:z.1f}" for number in released)


def _trade_off(found: TradeOff, threshold: float) -> Plot:
    best = found.best
    told = "none is accepted" if best is None else f"the best accepted one has K = {best.components}"
    return Plot(
        trade_off_plot(found, threshold),
        caption="More numbers tell the app more, and attackers too; a larger lambda hides more (PPLS; Figure 3 of the "
        f"paper). Of these, {told}.",
        alt="Balanced accuracy of the app and of the best attacker against the numbers let out, one line per lambda.",
    )


def _regions(regions: Mapping[str, PixelRegions], average: NDArray[np.uint8]) -> Picture:
    return Picture(
        regions_sheet(regions, average),
        caption="Where attributes are seen: how strongly each pixel's colours and edges covary with them (Figure 5 of "
        "the paper), and where a sift looks. What is seen in the same place is hard to tell apart.",
        alt=f"Heat maps over a face for {', '.join(map(words, regions))}.",
    )


def _matrix_blocks(matrix: PolicyMatrix, threshold: float) -> list[Block]:
    blocks: list[Block] = [
        Plot(
            matrices_plot(matrix, threshold),
            caption="Rows are told, columns hidden (Figure 4 of the paper). Correlation of labels and overlap of "
            "features (Eq. 6, the largest is 1) say which policies must fail; the losses say which do.",
            alt=f"Four matrices over {', '.join(map(words, matrix.names))}.",
        ),
        Table(
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
    return [*blocks, Text(explained)] if explained else blocks


def _regression(matrix: PolicyMatrix) -> str:
    """Return in a sentence how far correlation and overlap explain PrivLoss; "" where that cannot be said."""
    if sum(not cell.problem for cell in matrix.cells) < FEWEST_POLICIES:
        return ""
    found = matrix.regression("priv_loss")
    return (
        f"Correlation and overlap together explain {found.r_squared:.0%} of the variance of PrivLoss over these "
        f"policies; of that, {found.correlation_share:.0%} is correlation's (the paper: 67%)."
    )
