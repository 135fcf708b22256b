"""All lines of the figure: selective sharing and what it is compared with, at equal uploads and at equal bytes."""

import math
from collections.abc import Sequence
from dataclasses import replace

from blindsight.selective.noise import calibrate_participant, calibrate_record
from blindsight.selective.protection import Sharing
from blindsight.selective.timeline.averaging import FederatedAveraging
from blindsight.selective.timeline.dayplan import DayPlan
from blindsight.selective.timeline.line import Line
from blindsight.selective.timeline.selectiveline import SelectiveLine
from blindsight.selective.timeline.unshared import Centralised, LocalOnly, NeverUpdated

OURS = "selective sharing"


def unproven_lines(ours: SelectiveLine, *, server_rate: float = 1.0) -> Sequence[Line]:
    """Return this line and those without noise to compare it with; the dense ones upload as often, or as many bytes."""
    plain = _plain(ours.sharing)
    return (
        Centralised(),
        NeverUpdated(),
        LocalOnly(),
        ours,
        SelectiveLine("top-k with residuals", replace(plain, residual=True), download=ours.download),
        FederatedAveraging("FedAvg, equal uploads", server_rate=server_rate),
        FederatedAveraging("FedAvg, equal bytes", as_bytes_of=ours.name, server_rate=server_rate),
    )


def honest_lines(
    plan: DayPlan,
    sharing: Sharing,
    *,
    epsilon: float,
    delta: float,
    clip: float,
    upload_clip: float | None = None,
    batch: int = 32,
    steps: int = 1,
    server_rate: float = 1.0,
    as_bytes_of: str = OURS,
) -> Sequence[Line]:
    """Return lines with noise that is proven, each of which may spend `epsilon` at `delta` over all days of the plan.

    They protect a photo, whose gradient in each of `steps` steps has a length of at most `clip`; or a participant, each
    of whose uploads has one of at most `upload_clip` (None: the same). Shares, residuals and rounding are those of
    `sharing`.
    """
    uploads = max(1, plan.uploads(batch))
    seldom = min(len(plan.days), 1 + math.ceil(uploads * min(1.0, 1.3 * sharing.share)))  # places take bytes as well
    photo = calibrate_record(epsilon=epsilon, delta=delta, steps=steps, clip=clip)
    each, rare = (
        calibrate_participant(epsilon=epsilon, delta=delta, uploads=count, clip=upload_clip or clip)
        for count in (uploads, seldom)
    )
    plain, spent = _plain(sharing), f"eps {epsilon:g}"
    return (
        SelectiveLine(f"noise per photo, {spent}", replace(plain, noise=photo), budget=epsilon),
        SelectiveLine(f"noise per participant, {spent}", replace(plain, select="random", noise=each), budget=epsilon),
        FederatedAveraging(f"DP-FedAvg, equal uploads, {spent}", server_rate=server_rate, noise=each, budget=epsilon),
        FederatedAveraging(
            f"DP-FedAvg, equal bytes, {spent}",
            as_bytes_of=as_bytes_of,
            server_rate=server_rate,
            noise=rare,
            budget=epsilon,
        ),
    )


def _plain(sharing: Sharing) -> Sharing:
    """Return a sharing of as much, the largest of it, with neither bound nor noise."""
    return replace(sharing, select="largest", threshold=None, bound=None, noise=None)
