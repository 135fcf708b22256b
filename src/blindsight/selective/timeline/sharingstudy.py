"""How much must be shared, and which part: fractions by selections, with and without residuals."""

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from blindsight.selective.protection import Selection, Sharing
from blindsight.selective.sparseupdate import Vector
from blindsight.selective.timeline.dayplan import DayPlan
from blindsight.selective.timeline.line import Line, MakeTrainer
from blindsight.selective.timeline.play import play_days
from blindsight.selective.timeline.selectiveline import SelectiveLine
from blindsight.selective.timeline.timeline import Timeline
from blindsight.selective.timeline.unshared import Centralised, LocalOnly, NeverUpdated

SHARES = (1.0, 0.5, 0.2, 0.1, 0.01)


def sharing_lines(
    shares: Sequence[float] = SHARES,
    selections: Sequence[Selection] = ("largest", "random"),
    *,
    threshold: float | None = None,
    half: bool = False,
) -> Iterator[SelectiveLine]:
    """Yield a line without noise for each share, selection, and without and with residuals.

    `threshold` is for the selection "threshold". Where everything is shared there is nothing to select, so that comes
    only once.

    >>> [line.name for line in sharing_lines([1.0, 0.1], ["largest"])]
    ['everything', 'largest 0.1', 'largest 0.1 with residuals']
    """
    everything = False
    for share in shares:
        for select in selections:
            least = threshold if select == "threshold" else None
            if share == 1 and least is None:
                if not everything:
                    yield SelectiveLine("everything", Sharing(1.0, half=half))
                everything = True
                continue
            for residual in (False, True):
                name = f"{select} {share:g}{' with residuals' if residual else ''}"
                yield SelectiveLine(name, Sharing(share, select, threshold=least, residual=residual, half=half))


def sharing_study(
    plan: DayPlan,
    inputs: NDArray[Any],
    labels: ArrayLike,
    make_trainer: MakeTrainer,
    *,
    initial: Vector,
    delta: float,
    shares: Sequence[float] = SHARES,
    selections: Sequence[Selection] = ("largest", "random"),
    threshold: float | None = None,
    **options: Any,
) -> Timeline:
    """Play `sharing_lines` beside the lines that share nothing or everything; `options` are those of `play_days`."""
    beside: tuple[Line, ...] = (Centralised(), NeverUpdated(), LocalOnly())
    lines = (*beside, *sharing_lines(shares, selections, threshold=threshold))
    return play_days(plan, inputs, labels, lines, make_trainer, initial=initial, delta=delta, **options)
