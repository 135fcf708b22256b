"""PPLS, privacy partial least squares: a few numbers that tell of public attributes and, linearly, not of private ones.

Guarantee: each released number has exactly the covariance with each private attribute that `private_covariance_`
states for the training data, and with privacy = infinity that covariance is zero: no *linear* guess of a private
attribute from the released numbers beats a constant on the training data. Non-linear attackers may well read more;
only verification tells.

Enev et al., "SensorSift", ACSAC 2012, section 4 (Algorithm 1, Eq. 3) and section 7 (complex policies); the steps are in
`learner`. Features are scaled to unit variance, attributes always.

| paper | here |
| --- | --- |
| K | `n_components` |
| lambda | `privacy` |
| cov(Xw, Y+), cov(Xw, Y-) | `public_covariance_`, `private_covariance_` |

For complex policies the paper squares the *average* covariance, avg(cov(Xw, Y1), cov(Xw, Y2), ...)^2. Covariances of
opposite sign cancel there: a number that tells much of two private attributes counts as harmless, and the answer
changes when a label is recoded from yes to no. `combine="mean-of-squares"` takes avg(cov^2), which cannot cancel;
`combine="paper"` is the formula as printed. With one attribute a side they are the same.
"""

import math

import numpy as np

from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.learner import Array, Covariances, LinearSiftLearner, privacy_components

_COMBINE = ("mean-of-squares", "paper")


class PPLS(LinearSiftLearner):
    """Fits a `LinearSift` of `n_components` numbers; `privacy` weighs hiding against telling, `math.inf` hides all.

    `scale=False` divides all features by one common factor, for features that are already of one kind (principal
    components: scaled each by itself they would be whitened, and only d+ + d- components would exist).
    """

    def __init__(
        self,
        n_components: int = 5,
        privacy: float = 1.0,
        *,
        scale: bool = True,
        combine: str = "mean-of-squares",
        pipeline: str = "",
    ) -> None:
        self.n_components = n_components
        self.privacy = privacy
        self.scale = scale
        self.combine = combine
        self.pipeline = pipeline

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.privacy >= 0:
            raise InputError(f"privacy must be 0 or more, math.inf to hide all covariance; got {self.privacy}.")
        if self.combine not in _COMBINE:
            raise UnknownNameError("way to combine attributes", self.combine, _COMBINE)

    def _directions(self, covariances: Covariances) -> Array:
        public, private = self._combined(covariances.public), self._combined(covariances.private)
        size = float(np.linalg.norm(public))
        return privacy_components(public, private, covariances.loading, self.n_components, self.privacy, size=size)

    def _combined(self, covariances: Array) -> Array:
        """Return columns whose squares add up to the objective of section 7."""
        if self.combine == "paper":
            return np.asarray(covariances.mean(axis=1, keepdims=True))
        return covariances / math.sqrt(covariances.shape[1])
