"""PITQ as published: iterative quantisation with flipped bits inside every iteration. It is not private.

*What is proven: nothing; more than that, no finite epsilon holds.* The released codes are the records' true codes:
the flips only disturb how the rotation R is found. Take mean mu and directions W as public. The record 2 mu - y has,
for every R, exactly the complementary code of y, because sign(-(y - mu) W R) = -sign((y - mu) W R). So whatever R was
found, what is released of y and of 2 mu - y never coincides: disjoint supports, epsilon = infinity. Theorem 8's
composition argument is about the flipped codes of the iterations, which nobody gets.

*The paper.* Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020, Algorithm 3: Y, W, R, U, E are
`X` (centred here), the `principal_directions`, the rotation, the codes and `iterations`; beta = e^(-epsilon / E). At
epsilon 1 and 50 iterations beta is 0.98, which turns nearly all codes around: the rotation is found for -U, and the
result is that of ITQ up to signs. That, not privacy at no cost, is why the paper's Table 2 equals ITQ.

*Step 5* prints "U'(YW) = N Omega N', R = N N'". A matrix that is not symmetric has two different orthogonal factors,
and N N' with one of them would be the identity. ``step="published"`` reads it as the product of the two factors in the
printed order: U'V = S Omega T', R = S T'. The minimum of ||U - V R|| is the transpose of that, R = T S':
``step="procrustes"``. With the former the loss goes up and down, and the codes find somewhat less.
"""

import math
from typing import Literal, get_args

import numpy as np

from blindsight.dp.accounting import check_positive
from blindsight.errors import InputError, UnknownNameError
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.search.codes import pack, unpack
from blindsight.search.flipping import bit_loss, flip
from blindsight.search.function import Floats, LinearHash
from blindsight.search.itq import nearest_rotation, principal_directions, project
from blindsight.search.learner import Classes, HashLearner
from blindsight.statement import Claim, PrivacyStatement, randomness_of

Step = Literal["published", "procrustes"]


class PITQ(HashLearner):
    """Algorithm 3: as good as ITQ, and no more private.

    Parameters
    ----------
    bits : length of a code.
    epsilon : the paper's; it says nothing about the privacy of the result. `PHashing` refuses those below 0.4812, where
        its claim fails even for a bit. Here the claim fails at every epsilon, so that any positive one is as good.
    iterations : E, how often codes, flips and rotation are made anew.
    step : how the rotation is found from the codes; see above.
    random_state : decides the rotation at the start.

    Attributes
    ----------
    function_ : the `LinearHash`.
    codes_ : the codes of the fitted records, which the paper releases.
    statement_ : why nothing is proven.
    """

    def __init__(
        self,
        bits: int,
        epsilon: float,
        iterations: int = 50,
        *,
        step: Step = "published",
        random_state: int = 0,
        source: ByteSource = system_bytes,
    ) -> None:
        self.bits = bits
        self.epsilon = epsilon
        self.iterations = iterations
        self.step = step
        self.random_state = random_state
        self.source = source

    @property
    def beta(self) -> float:
        """The probability e^(-epsilon / E) with which each iteration turns a bit around."""
        return math.exp(-self.epsilon / self.iterations)

    def _learn(self, X: Floats, y: Classes | None) -> LinearHash:
        check_positive("epsilon", self.epsilon)
        if self.iterations < 1:
            raise InputError(f"iterations must be >= 1; got {self.iterations}.")
        if self.step not in get_args(Step):
            raise UnknownNameError("step", self.step, get_args(Step))
        mean, W = principal_directions(X, self.bits)  # line 1
        if W.shape[1] < self.bits:
            raise InputError(
                f"PITQ needs a direction per bit; got bits = {self.bits}, but the features vary in only {W.shape[1]} "
                "directions. Ask for fewer bits."
            )
        function = LinearHash(mean, W @ self._rotation(project(X, mean, W)))
        self.codes_ = function(X)  # line 7: no flips
        self.statement_ = self._statement()
        return function

    def _rotation(self, V: Floats) -> Floats:
        R = nearest_rotation(science(self.random_state).standard_normal((self.bits, self.bits)))[0]
        for _ in range(self.iterations):
            flipped = flip(pack(V @ R >= 0), self.bits, self.beta, source=self.source)  # lines 3 and 4
            U = np.where(unpack(flipped, self.bits), np.float32(1), np.float32(-1))
            product = nearest_rotation(U.T @ V)[0]  # line 5: S T' from U'V = S Omega T'
            R = product if self.step == "published" else product.T
        return R

    def _statement(self) -> PrivacyStatement:
        return PrivacyStatement(
            guarantee="none",
            mechanism=f"iterative quantisation of {self.bits} bits; in each of {self.iterations} iterations bits are "
            f"flipped with probability {self.beta:.6g}, but the released codes are not",
            unit="record",
            epsilon=math.inf,
            delta=None,
            randomness=randomness_of(self.source),
            who_sees={
                "whoever has the index": "the true code of every record, and the hash function, learned from all",
                "owner of a record": "its features and its code",
            },
            not_protected=(
                "anything that a code tells of its record: released codes are the true codes",
                "the mean and the directions, which are learned without any noise",
            ),
            claim=Claim("private hashing (Theorem 8)", f"epsilon = {self.epsilon:g}", self._why()),
        )

    def _why(self) -> str:
        share = self.epsilon / self.iterations
        return (
            "the released codes carry no noise: the record 2 mu - y has the complementary code of y under every "
            "rotation, so what is released of the two never coincides and no finite epsilon holds; the flips stay "
            f"inside (one iteration's would cost {bit_loss(self.beta):.3g} per bit, not {share:g})"
        )
