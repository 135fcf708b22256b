"""Ways to keep a model up to date day by day: each answers with its curve, what it sent, and the epsilon it proves.

Noise with a proof is calibrated to an epsilon over all days at `DELTA`. Lines "at equal bytes" are played beside the
line whose bytes they may use, which is part of their time.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import UnknownNameError
from blindsight.selective.methods import Centralised, FederatedAveraging, LocalOnly, NeverUpdated, SelectiveMethod
from blindsight.selective.noise import Laplace, PublishedLaplace, calibrate_participant
from blindsight.selective.protection import Sharing
from blindsight.selective.study import PhotoStudy, proven_methods
from blindsight.selective.timeline import Method, Schedule

Curve = dict[str, NDArray[np.float64]]

DELTA = 1e-5
GAMMA = 0.1  # the paper's bound
PAPER_EPSILON = 1.0  # per parameter and upload
BATCH = 32
_REFERENCE = "whose bytes"
_HONEST = ("photo", "participant", "dp-fedavg", "dp-fedavg-bytes")


def run(given: PhotoStudy, *, seed: int, kind: str, **arguments: float) -> Curve:
    """Play one kind of line over all days; see `lines` for the arguments."""
    timeline = given.simulate(lines(given.schedule, kind, **arguments), delta=DELTA)
    line = timeline.methods[-1]
    return {
        "accuracy": np.array(line.accuracy),
        "uploads": np.array(line.uploads, dtype=np.float64),
        "bytes up": np.array(line.bytes_up, dtype=np.float64),
        "bytes down": np.array(line.bytes_down, dtype=np.float64),
        "epsilon": np.array([math.inf if line.epsilon is None else line.epsilon]),
    }


def lines(
    plan: Schedule,
    kind: str,
    *,
    share: float = 0.1,
    epsilon: float = PAPER_EPSILON,
    clip: float = 1.0,
    server_rate: float = 1.0,
    step: float = 1.0,
) -> Sequence[Method]:
    """Return the line of this kind last, after those it needs beside it.

    With `step`, a learning rate, the paper's noise is made for gradients before they are multiplied by it.
    """
    reference = SelectiveMethod(_REFERENCE, Sharing(share))
    if kind in _HONEST:
        honest = proven_methods(
            plan,
            Sharing(share),
            epsilon=epsilon,
            delta=DELTA,
            clip=clip,
            server_rate=server_rate,
            as_bytes_of=_REFERENCE,
        )
        line = honest[_HONEST.index(kind)]
        return [reference, line] if kind == "dp-fedavg-bytes" else [line]
    if kind == "masks":
        return [_added_up(plan, epsilon, clip)]
    known: dict[str, Sequence[Method]] = {
        "centralised": [Centralised()],
        "never": [NeverUpdated()],
        "local": [LocalOnly()],
        "largest": [SelectiveMethod(kind, Sharing(share))],
        "random": [SelectiveMethod(kind, Sharing(share, "random"))],
        "residuals": [SelectiveMethod(kind, Sharing(share, residual=True))],
        "published": [SelectiveMethod(kind, published(share, step))],
        "laplace": [SelectiveMethod(kind, laplace(share))],
        "fedavg": [FederatedAveraging(kind, server_rate=server_rate)],
        "fedavg-bytes": [reference, FederatedAveraging(kind, as_bytes_of=_REFERENCE, server_rate=server_rate)],
    }
    if kind not in known:
        raise UnknownNameError("line", kind, [*known, *_HONEST, "masks"])
    return known[kind]


def published(share: float, step: float = 1.0) -> Sharing:
    """Return the paper's sharing with noise."""
    return Sharing(share, "random", bound=GAMMA * step, noise=PublishedLaplace(PAPER_EPSILON))


def laplace(share: float) -> Sharing:
    """Return the same with changes that are cut before the noise, so that it is proven."""
    return Sharing(share, "random", bound=GAMMA, noise=Laplace(PAPER_EPSILON))


def _added_up(plan: Schedule, epsilon: float, clip: float) -> SelectiveMethod:
    """Return the line of which the server sees sums only, in which all participants share the noise."""
    noise = calibrate_participant(
        epsilon=epsilon, delta=DELTA, uploads=plan.turns(BATCH), clip=clip, among=len(plan.participants)
    )
    return SelectiveMethod("masks", Sharing(1.0, noise=noise), encrypted="masks", budget=epsilon)
