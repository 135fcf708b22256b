"""The report's chapter on learning together by encrypted rounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from blindsight.data import contact_sheet
from blindsight.learn.classifier import FederatedClassifier
from blindsight.learn.recording import RoleView
from blindsight.report import page
from blindsight.rounds import RoundReport
from blindsight.statement import PrivacyStatement

_SIDE = 220  # pixels of one view


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

    @classmethod
    def of(cls, learner: FederatedClassifier, *, owners: int) -> Self:
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
