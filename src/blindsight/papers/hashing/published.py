"""PHashing and PITQ as published, and what they hide: less than they say, or nothing.

Wang, Lu and Zhang, "Searching privately by imperceptible lying", MM 2020.

*PHashing* (Algorithm 2): learn any hash function, then flip the bits of the codes. H(Y, S) is `learner` (S, the
similarity of records, is 1 where their labels are equal), h is `function_`, U' is `codes_`, beta is e^-epsilon; queries
are not flipped. *Proven* with a function learned from the same records: nothing per record, for the function is
released without noise, and exchanging one record moves the codes of others too. With a function learned from public
data (`public_function=True`) a record loses bits * |ln((1 - beta) / beta)|, at the paper's epsilon = 1 and 48 bits
26.0. Theorem 6 rests on Theorem 4, which is about one bit (see `flipping`) and false even for a bit if
epsilon < 0.4812; and on post-processing, which does not cover h. Below ln 2 more than half of the bits are flipped, so
that a search finds what is *least* like the query.

*PITQ* (Algorithm 3): iterative quantisation with flipped bits inside every iteration. Y, W, R, U, E are `X` (centred
here), the `principal_directions`, the rotation, the codes and `iterations`; beta = e^(-epsilon / E). *No finite epsilon
holds*: the released codes are the true ones, the flips only disturb how R is found. With mean mu and W public, the
record 2 mu - y has, for every R, the complementary code of y, because sign(-(y - mu) W R) = -sign((y - mu) W R): what
is released of the two never coincides. Theorem 8's composition is about the flipped codes of the iterations, which
nobody gets. At epsilon 1 and 50 iterations beta is 0.98, which flips nearly all bits: the rotation is found for -U, and
the result is that of ITQ up to signs. That, not privacy at no cost, is why the paper's Table 2 equals ITQ.

*Step 5* prints "U'(YW) = N Omega N', R = N N'". A matrix that is not symmetric has two different orthogonal factors.
``step="published"`` takes their product in the printed order: U'V = S Omega T', R = S T'. The minimum of ||U - V R|| is
its transpose, ``step="procrustes"``; the former's codes find somewhat less.
"""

import hashlib
import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from blindsight.dp.accounting import BoundedLoss, check_positive
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.papers.hashing.flipping import (
    SMALLEST_PAPER_EPSILON,
    bit_loss,
    flip,
    grid_beta,
    paper_beta,
    record_loss,
)
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.search.codes import Codes, pack, unpack
from blindsight.search.function import Classes, Floats, HashFunction, HashLearner, LinearHash
from blindsight.search.itq import nearest_rotation, principal_directions, project
from blindsight.statement import Claim, PrivacyStatement, randomness_of

PAPER = "private hashing (Theorem 6)"


@dataclass(eq=False, repr=False)
class PHashing(BaseEstimator):  # type: ignore[misc]
    """Algorithm 2 around any learner: `function_`, the flipped `codes_` of the fitted records, and what is proven."""

    learner: HashLearner  # any; it is not changed
    epsilon: float  # the paper's, which is neither that of a record nor, below 0.4812, that of a bit
    _: KW_ONLY
    force: bool = False  # allow an epsilon below 0.4812
    public_function: bool = False  # take the function that the learner was fitted with before, to data that is public
    source: ByteSource = system_bytes

    def fit(self, Y: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the function from records (and labels), unless it is public, and release their flipped codes."""
        check_positive("epsilon", self.epsilon)
        if self.epsilon < SMALLEST_PAPER_EPSILON and not self.force:
            raise PrivacyError(
                f"epsilon = {self.epsilon:g} is below {SMALLEST_PAPER_EPSILON:.4f}, where the paper's flips hide less "
                "than it claims even of a single bit, and below ln 2 rankings turn around. Raise epsilon, take "
                "PrivateHasher, or say force=True to see for yourself."
            )
        function = self._function(Y, y)
        codes = flip(function(Y), function.bits, paper_beta(self.epsilon), source=self.source)
        self.function_, self.codes_ = function, codes
        self.statement_ = self._statement()
        return self

    def transform(self, X: ArrayLike) -> Codes:
        """Return the codes of queries, which the paper does not flip."""
        check_is_fitted(self, "function_")
        return self.function_(X)

    def release(self, X: ArrayLike, *, source: ByteSource | None = None) -> Codes:
        """Return freshly flipped codes of further records. A record released twice has lost twice: see `releases`."""
        flips = source if source is not None else self.source
        return flip(self.transform(X), self.function_.bits, paper_beta(self.epsilon), source=flips)

    def basis(self, X: ArrayLike) -> Codes:
        """Return what a release depends on: the unflipped codes, which stay with the owner."""
        return self.transform(X)

    @property
    def loss(self) -> BoundedLoss:
        """What one release costs a record: infinite unless the function is public."""
        check_is_fitted(self, "function_")
        return BoundedLoss(self._record_loss if self.public_function else math.inf)

    @property
    def digest(self) -> str:
        """SHA-256 of what decides the distribution of a release."""
        check_is_fitted(self, "function_")
        return hashlib.sha256(f"phashing {self.epsilon!r} {self.function_.digest}".encode()).hexdigest()

    def _function(self, Y: ArrayLike, y: ArrayLike | None) -> HashFunction:
        if not self.public_function:
            learned: HashFunction = clone(self.learner).fit(Y, y).function_
            return learned
        if not hasattr(self.learner, "function_"):
            raise InputError("a public function must have been learned before: fit the learner to public data first.")
        return self.learner.function_

    @property
    def _record_loss(self) -> float:
        return record_loss(grid_beta(paper_beta(self.epsilon)), self.function_.bits)

    def _statement(self) -> PrivacyStatement:
        beta, bits, public = grid_beta(paper_beta(self.epsilon)), self.function_.bits, self.public_function
        per_bit, per_record = bit_loss(beta), self._record_loss
        proven: dict[str, Any] = {"guarantee": "none", "epsilon": math.inf, "delta": None, "neighbours": "replace"}
        learned, holds = "all records, without noise", "holds" if per_bit <= self.epsilon else "fails too"
        reasons = [
            f"its epsilon is that of one bit (exactly {per_bit:.4g}: there the claim {holds}), and a record has "
            f"{bits}: {per_record:.4g}"
        ]
        not_protected = [
            "queries: their codes are not flipped",
            "a record as a whole: long codes tell similar records apart in spite of the flips",
            "that a record is in the index",
        ]
        if public:
            learned, accountant = "public data", "exact: the ratio of probabilities for complementary codes"
            proven |= {"guarantee": "differential privacy", "epsilon": per_record, "delta": 0.0}
            proven |= {"accountant": accountant, "assumptions": _ASSUMPTIONS}
        else:
            reasons.append(
                "the hash function is learned from the same records and released without noise: exchanging one record "
                "changes the codes of others, so not even that is proven"
            )
            not_protected.append(
                "the records from which the function was learned, against anyone who studies the function"
            )
        if self.epsilon < math.log(2):
            reasons.append("more than half of the bits are flipped, so that a smaller epsilon hides less")
        return PrivacyStatement(
            mechanism=f"Random Flipping of {bits} bits with probability {beta:.6g}: epsilon = {per_bit:.4g} per bit, "
            f"{per_record:.4g} per record if the function were independent of the records",
            unit="record",
            randomness=randomness_of(self.source),
            who_sees={
                "holder of the index": f"the flipped codes, the hash function (learned from {learned}), and the "
                "unflipped code of every query",
                "owner of a record": "its features and its code",
            },
            not_protected=tuple(not_protected),
            claim=Claim(PAPER, f"epsilon = {self.epsilon:g}", "; ".join(reasons)),
            **proven,
        )


_ASSUMPTIONS = (
    "the hash function was learned from public data that has none of these records in it",
    "each record is released once",
)

Step = Literal["published", "procrustes"]


@dataclass(eq=False, repr=False)
class PITQ(HashLearner):
    """Algorithm 3: as good as ITQ, and no more private. `codes_` are those of the fitted records, as released.

    The paper's `epsilon` says nothing about the privacy of the result: its claim fails at every epsilon, so any
    positive one is taken (`PHashing` refuses those below 0.4812, where its claim fails even for a bit).
    """

    bits: int
    epsilon: float
    iterations: int = 50  # E, how often codes, flips and rotation are made
    _: KW_ONLY
    step: Step = "published"  # how the rotation is found from the codes; see above
    random_state: int = 0  # decides the rotation at the start
    source: ByteSource = system_bytes

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
        why = (
            "the released codes carry no noise: the record 2 mu - y has the complementary code of y under every "
            "rotation, so what is released of the two never coincides and no finite epsilon holds; the flips stay "
            f"inside (one iteration's would cost {bit_loss(self.beta):.3g} per bit, not "
            f"{self.epsilon / self.iterations:g})"
        )
        return PrivacyStatement(
            guarantee="none",
            mechanism=f"iterative quantisation of {self.bits} bits; in each of {self.iterations} iterations bits are "
            f"flipped with probability {self.beta:.6g}, but the released codes are not",
            unit="record",
            epsilon=math.inf,
            delta=None,
            randomness=randomness_of(self.source),
            who_sees={
                "holder of the index": "the true code of every record, and the hash function, learned from all",
                "owner of a record": "its features and its code",
            },
            not_protected=(
                "anything that a code tells of its record: released codes are the true codes",
                "the mean and the directions, which are learned without any noise",
            ),
            claim=Claim("private hashing (Theorem 8)", f"epsilon = {self.epsilon:g}", why),
        )
