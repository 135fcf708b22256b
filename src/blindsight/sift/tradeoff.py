"""Telling more or hiding more: losses of one policy against the numbers let out and the weight of privacy.

Enev et al., "SensorSift", ACSAC 2012, Figure 3: accuracies of public and private attributes as K grows, for one lambda.
PPLS finds its directions one after the other, so the sift of K numbers is the first K columns of any longer one: one
fit per lambda is enough.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.sift.labels import Labelled
from blindsight.sift.learner import FewerComponentsWarning
from blindsight.sift.lossbench import QUICK_VERIFIER, LossBench
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import Features, LinearSift
from blindsight.sift.verdict import Verdict
from blindsight.sift.verify import Verifier


@dataclass(frozen=True)
class TradeOffPoint:
    """What a sift of `components` numbers costs and leaks at one `privacy`, the paper's K and lambda."""

    components: int
    privacy: float
    accuracies: Mapping[str, float]
    """Of the best classifier on each public attribute."""
    pub_loss: float
    priv_loss: float
    bound: float
    verdict: Verdict


@dataclass(frozen=True)
class TradeOff:
    """All points of one policy; sifts that do not exist, because the features hold fewer components, are missing."""

    policy: Policy
    raw: Mapping[str, float]
    """Of the best classifier on each public attribute, from raw features: the dashed line of Figure 3."""
    points: tuple[TradeOffPoint, ...]
    problems: Mapping[float, str]
    """Why there is no sift at all at some lambda, in a sentence."""

    def curve(self, privacy: float) -> tuple[TradeOffPoint, ...]:
        """Return the points of one lambda in order of K: one panel of Figure 3."""
        return tuple(point for point in self.points if point.privacy == privacy)

    @property
    def best(self) -> TradeOffPoint | None:
        """The accepted sift that costs least, or None if none was accepted."""
        accepted = [point for point in self.points if point.verdict == "accept"]
        return min(accepted, key=lambda point: (point.pub_loss, point.components), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for strict JSON; an infinite lambda is the text "inf"."""
        points = [asdict(point) | {"privacy": _plain(point.privacy)} for point in self.points]
        problems = [{"privacy": _plain(privacy), "problem": problem} for privacy, problem in self.problems.items()]
        names = {"public": list(self.policy.public), "private": list(self.policy.private)}
        return names | {"raw": dict(self.raw), "points": points, "problems": problems}


def trade_off(
    X: Features,
    labels: Labelled,
    policy: Policy,
    *,
    components: Sequence[int] = (1, 2, 5, 10, 15),
    privacies: Sequence[float] = (0.0, 0.1, 1.0, 10.0, math.inf),
    method: PPLS | None = None,
    verifier: Verifier = QUICK_VERIFIER,
    persons: ArrayLike | None = None,
    progress: Progress = silent,
) -> TradeOff:
    """Measure PPLS for every K in `components` and every lambda in `privacies`; `method` holds its other settings."""
    if not components or not privacies or min(components) < 1:
        raise InputError(f"name at least one lambda and one number of components, 1 or more; got {list(components)}.")
    bench = LossBench(X, labels, policy.public + policy.private, verifier=verifier, persons=persons)
    settings = {} if method is None else method.get_params()
    points: list[TradeOffPoint] = []
    problems: dict[float, str] = {}
    for done, privacy in enumerate(privacies):
        progress("trade-off", done, len(privacies))
        learner = PPLS(**settings | {"n_components": max(components), "privacy": privacy})
        try:
            sift = _longest(bench, policy, learner)
        except InputError as error:
            problems[privacy] = str(error)
            continue
        counts = sorted({count for count in components if count <= sift.width})
        sifts = (replace(sift, matrix=sift.matrix[:, :count]) for count in counts)
        points += [_point(bench, policy, privacy, shorter) for shorter in sifts]
    progress("trade-off", len(privacies), len(privacies))
    raw = {name: bench.raw_accuracy(name) for name in policy.public}
    return TradeOff(policy, raw, tuple(points), problems)


def _longest(bench: LossBench, policy: Policy, learner: PPLS) -> LinearSift:
    """Return the sift of as many numbers as there are, up to those asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerComponentsWarning)
        sift = bench.fit(learner, policy)
    assert isinstance(sift, LinearSift)
    return sift


def _point(bench: LossBench, policy: Policy, privacy: float, sift: LinearSift) -> TradeOffPoint:
    losses = bench.losses(sift, policy)
    found = losses.verification
    return TradeOffPoint(
        sift.width, privacy, losses.accuracies, losses.pub_loss, losses.priv_loss, found.bound, found.verdict
    )


def _plain(number: float) -> float | str:
    return "inf" if math.isinf(number) else number
