"""Noise inside a sum: every member adds a share of discrete Gaussian noise, so that the opened sum is private.

*The guarantee.* n members contribute integer vectors to T sums. What anybody sees of these sums, and all that is made
of them, is (epsilon, delta)-differentially private for one *unit*: a record of one member, or all that one member
contributes. Neighbours are runs in which the unit counts or has zero in its place (add/remove; how many units there
are is public). It holds against the server together with c members that tell it their shares, and for every choice of
up to d members that drop out of a sum, since m = n - d - c other shares are in each. (Under two waves a server that
lies can open sums of m = h honest members, and d is n - c - h: `uncounted`.) (Where the server sees sums of
groups of members, m counts those in the smallest group.) It takes that members never open a
sum of fewer than n - d contributions, open each round once, and that the way to the sum shows nothing but the sum. So
a member compares a plan with the terms that it signs (`NoisePlan.check`) before it contributes.

*The mechanism* is that of P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML 2021.

| paper | here |
| --- | --- |
| clipping threshold c, granularity gamma | `clip`, 1 / `scale` |
| sigma / gamma, the noise of one client in steps | `sigma`, a whole number |
| n, d, T | `honest` (those that are counted on), `dimension`, `rounds` |
| Delta_2, the L2 sensitivity of the rounded sum | `sensitivity`, in steps |
| tau = 10 sum_{k<n} exp(-2 pi^2 sigma^2 k / (k + 1)) | `tau` |
| modulus m | `largest`: no member sends more, so no sum leaves its range |

A unit is cut to a length of at most `clip`, what a member has of them is added up and rounded to the nearest whole
number of steps, cut to +-`limit` in every place, and gets the share. Rounding to the nearest moves each place of a sum
by at most half a step: Delta = clip scale + sqrt(d) for a record (two roundings differ), + sqrt(d) / 2 for a member
(zero needs none). Cutting a vector to a box brings no two vectors further apart. The paper rounds at random until the
length is right, which is for ranges of 16 bits; steps here are so fine that sqrt(d) costs a 64th of the noise at most.

*Proof.* Let s^2 = m sigma^2, Z the sum of m shares, P the discrete Gaussian of parameter s on Z^d.

1. *Two shares* (their Proposition 10). With 1/v = 1/a^2 + 1/b^2 the law of N_Z(a^2) + N_Z(b^2) divided by that of
   N_Z(a^2 + b^2) at z is, up to a constant, f(z') = sum_x exp(-(x - z')^2 / 2v) for some z'. By Poisson summation f is
   within 1 +- y of a constant, y = 2 sum_k exp(-2 pi^2 v k^2), and both laws sum to one: the logarithm of the
   quotient is at most ln((1 + y)/(1 - y)) <= 5 exp(-2 pi^2 v) if a^2, b^2 >= 1/2. Share after share, in every place:
   |ln(law of Z / P)| <= d tau / 2.
2. *Rényi divergence* (their Proposition 14). P and its shift by a whole vector D differ by a factor whose logarithm is
   linear in x, and E exp(t.Z) <= exp(s^2 |t|^2 / 2). With step 1 for the laws outside of the expectation,
   D_alpha(Z | Z + D) <= alpha |D|^2 / 2 s^2 + tau d, which at every alpha > 1 is at most that of Gaussian noise of
   multiplier (Delta^2 / s^2 + 2 tau d)^-1/2. T rounds add up (accountant "rdp").
3. *The same by trade-off functions*, which is tighter. Let R be continuous Gaussian noise rounded to whole numbers:
   post-processing of the textbook mechanism. Integrating over the cell of k, -1/24 s^2 <= ln(R(k)/P(k)) <= k^2 / 24 s^4
   + y', y' <= 3 exp(-2 pi^2 s^2). |Z|^2 / s^2 <= 2 d + 210 outside of an event of probability exp(-70) (Laurent and
   Massart 2000, for all that is sub-Gaussian), and then |Z + D|^2 / s^2 <= 4 d + 420 + 2 Delta^2 / s^2. So with
   h = d (tau + y') + (5 d + 420 + 2 Delta^2 / s^2) / 24 s^2 the sums of T rounds, chosen one after the other, are
   (epsilon + T h, exp(T h) delta + T exp(-70))-private if T Gaussian releases of multiplier s / Delta are
   (epsilon, delta)-private, which is known exactly (Balle and Wang 2018): accountant "gaussian".
4. *Shares are cut* at `tail` = 16 sigma, so that nothing ever wraps around. All that are added in the run are cut with
   probability t <= 2 n d T exp(-128), which adds (1 + exp(epsilon)) t to delta.

The smaller of 2 and 3 is the proven epsilon, at (1 - 1e-6) delta; the rest of delta pays for T exp(-70) and t.

*As computed.* Lengths and sums are float64. Units are cut to (1 - 2^-20) of `clip`; a sum of at most `MOST_UNITS` of
them (a part) is off by less than 2^-28 of it, and parts are rounded on their own and added up as integers.
A unit that is not finite counts as zero and never as an error.

*No amplification by sampling* is used: with every record in every round a linear model needs less noise for the
same epsilon, and members that choose the sample would have to be trusted to keep it secret.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from blindsight.dp.accounting import (
    BoundedLoss,
    GaussianLoss,
    check_positive,
    epsilon_of,
    gaussian_epsilon,
    gaussian_sigma,
)
from blindsight.dp.sampling import MAX_SCALE, discrete_gaussian
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.rng import ByteSource, system_bytes
from blindsight.statement import PrivacyStatement, line_id, randomness_of
from blindsight.sums.dphe import layout_of
from blindsight.sums.masks import colluders as colluders_of
from blindsight.sums.scheme import find_scheme
from blindsight.sums.statements import HIDDEN_BY_NOISE, line, lines
from blindsight.sums.terms import Terms
from blindsight.sums.twowave import TwoWaveOptions, cohort_parameters

Array = NDArray[np.float64]
NoiseUnit = Literal["record", "member"]
"""What is protected: one record of a member, or everything a member contributes."""

MOST_UNITS = 4096
"""How many units may be added up in floating point before the sum is rounded."""

SCHEMA, VERSION = "blindsight/noise-plan", 1

LARGEST_EPSILON = 50.0
"""A larger one is no privacy, and what pays for cutting shares would not be negligible."""

_MARGIN = 2.0**-20  # of `clip`, left for rounding errors
_TAIL = 16  # deviations at which a share is cut
_FINEST, _COARSEST = 2.0**14, 2.0**6  # `clip` in steps, times what rounding adds to the sensitivity
_MOST_STEPS = 2**40
_SPARE = 1e-6  # of delta, for events that never happen
_GROWTH = 1e-7  # of the noise at first, where the closed form is not quite enough


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """What every member of a run cuts, rounds and adds, and what that proves; see the module for the symbols.

    >>> plan = NoisePlan.calibrated(epsilon=1.0, delta=1e-6, unit="record", clip=1.0, members=5, drop_outs=1,
    ...                             colluders=1, dimension=100, rounds=10, largest=2**28, reach=1000)
    >>> plan.honest, round(plan.noise_multiplier, 2), round(plan.epsilon(1e-6), 6)
    (3, 13.36, 1.0)
    """

    unit: NoiseUnit
    clip: float
    members: int
    drop_outs: int
    colluders: int
    dimension: int
    rounds: int
    scale: float
    sigma: int
    largest: int
    groups: int = 1

    def __post_init__(self) -> None:
        _check_terms(self.unit, self.members, self.drop_outs, self.colluders, self.groups, self.dimension, self.rounds)
        check_positive("clip", self.clip)
        check_positive("scale", self.scale)
        _check_whole("sigma", self.sigma, 1, MAX_SCALE)
        _check_whole("largest", self.largest, 1, _MOST_STEPS)
        if self.limit < 1:
            raise InputError(
                f"noise shares of up to {self.tail} steps leave no room for values in +-{self.largest}. Use a smaller "
                "scale, fewer members or wider slots."
            )

    @classmethod
    def calibrated(
        cls,
        *,
        epsilon: float,
        delta: float,
        unit: NoiseUnit,
        clip: float,
        members: int,
        drop_outs: int,
        colluders: int,
        dimension: int,
        rounds: int,
        largest: int,
        reach: float,
        groups: int = 1,
    ) -> Self:
        """Return the plan with the least noise that makes all rounds together (epsilon, delta)-private.

        `largest` is the most that a member may send in one place (`terms.max_integer` of the session), `reach` how
        many times `clip` a member's sum may come to in one place before it is cut to fit: the number of its records, or
        1 for a member. Steps are as fine as this allows. `groups` is in how many parts the server sees a sum.
        """
        _check_terms(unit, members, drop_outs, colluders, groups, dimension, rounds)
        check_positive("clip", clip)
        check_positive("reach", reach)
        _check_whole("largest", largest, 1, _MOST_STEPS)
        _check_budget(epsilon, delta)
        least = gaussian_sigma(epsilon=epsilon, delta=delta, sensitivity=1.0) * math.sqrt(rounds)
        growth = 0.0
        while growth < 1:
            multiplier = least * (1 + growth)
            honest = _honest(members, drop_outs, colluders, groups)
            scale = _finest_scale(multiplier / math.sqrt(honest), unit, clip, dimension, largest, reach)
            length = clip * scale + _rounding(unit, dimension)
            plan = cls(
                unit=unit,
                clip=clip,
                members=members,
                drop_outs=drop_outs,
                colluders=colluders,
                dimension=dimension,
                rounds=rounds,
                scale=scale,
                sigma=math.ceil(multiplier * length / math.sqrt(honest)),
                largest=largest,
                groups=groups,
            )
            if plan.epsilon(delta) <= epsilon:
                return plan
            growth = 2 * growth or _GROWTH
        raise InputError(
            f"{rounds} sums of {dimension} numbers by {members} members do not reach epsilon = {epsilon:g} at delta = "
            f"{delta:g} within +-{largest}. Ask for fewer rounds or wider slots."
        )

    @property
    def honest(self) -> int:
        """m: how many shares of noise are counted on, in the smallest group."""
        return _honest(self.members, self.drop_outs, self.colluders, self.groups)

    @property
    def sensitivity(self) -> float:
        """Delta: how far, in steps, one unit moves the sum."""
        return self.clip * self.scale + _rounding(self.unit, self.dimension)

    @property
    def noise_multiplier(self) -> float:
        """The deviation of the noise that is counted on, s, divided by the sensitivity."""
        return self.sigma * math.sqrt(self.honest) / self.sensitivity

    @property
    def deviation(self) -> float:
        """The deviation of the noise in a sum of all members, in the unit of `clip`."""
        return self.sigma * math.sqrt(self.members) / self.scale

    @property
    def tail(self) -> int:
        """Where a share is cut, in steps."""
        return _TAIL * self.sigma

    @property
    def limit(self) -> int:
        """Where what a member adds up is cut before its share is added, in steps."""
        return self.largest - self.tail

    @property
    def tau(self) -> float:
        """How far, in each place, a sum of discrete Gaussians is from one discrete Gaussian."""
        return sum_distance(self.sigma, self.honest)

    @property
    def rho(self) -> float:
        """The zero-concentrated privacy of all rounds: D_alpha <= rho alpha for every alpha > 1."""
        return self.rounds * (0.5 / self.noise_multiplier**2 + self.tau * self.dimension)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that is proven for all rounds at this delta."""
        return min(self._epsilons(delta).values())

    def accountant(self, delta: float) -> str:
        """Return which of the two proofs gives the epsilon: "gaussian" or "rdp"."""
        found = self._epsilons(delta)
        return min(found, key=lambda name: found[name])

    def loss(self, delta: float) -> BoundedLoss:
        """Return what the run costs a unit, for a ledger."""
        return BoundedLoss(self.epsilon(delta), delta)

    def under(self, terms: Terms) -> Self:
        """Return the noise that a run on these terms really has: `epsilon` of it is what its members can count on.

        Raises PrivacyError if nobody's share is left to count on, or if the values do not fit.
        """
        try:
            return replace(
                self,
                members=len(terms.members),
                drop_outs=uncounted(terms, most := max(self.colluders, withstood(terms))),
                colluders=most,
                groups=len(terms.group_sizes),
                dimension=terms.dimension,
                largest=terms.max_integer,
            )
        except InputError as error:
            raise PrivacyError(f"the terms of this run leave no noise to count on: {error}") from None

    def check(self, terms: Terms, delta: float, *, colluders: int | None = None) -> None:
        """Refuse terms under which the sums do not carry the noise that was planned, or noise that hides nothing.

        `colluders` is the least number that the plan must count on; None is what the scheme withstands (`withstood`).
        """
        differ = {
            "members": (self.members, len(terms.members)),
            "groups": (self.groups, len(terms.group_sizes)),
            "dimension": (self.dimension, terms.dimension),
            "largest": (self.largest, terms.max_integer),
            "fraction_bits": (0, terms.fraction_bits),
            "sample": (0, terms.sample),
            "whole": (0, terms.whole),
        }
        wrong = [f"{name} is {found}, planned {want}" for name, (want, found) in differ.items() if want != found]
        try:
            least = len(terms.members) - uncounted(terms, max(self.colluders, withstood(terms)))
        except InputError as error:
            raise PrivacyError(f"the noise of this run proves nothing: {error}") from None
        if least < (planned := self.members - self.drop_outs):
            wrong.append(f"sums of {least} are opened, planned {planned}")
        if isinstance(terms.options, TwoWaveOptions) and terms.options.rounds > self.rounds:
            wrong.append(f"rounds is {terms.options.rounds}, planned {self.rounds}")
        if terms.sparse and layout_of(terms).counting:
            wrong.append("a part of a sum can be withheld, which tells of contributions without noise")
        if self.colluders < (least := withstood(terms) if colluders is None else colluders):
            wrong.append(f"{least} members may collude, planned {self.colluders}")
        if wrong:
            raise PrivacyError(f"the noise of this run is made for other terms: {'; '.join(wrong)}.")
        try:
            epsilon, most = self.under(terms).epsilon(delta), 1 / len(terms.members)
        except InputError as error:
            raise PrivacyError(f"the noise of this run proves nothing: {error}") from None
        if not (epsilon <= LARGEST_EPSILON and delta <= most):
            raise PrivacyError(
                f"the noise of this run hides nothing: epsilon = {epsilon:.3g} at delta = {delta:g}; at most "
                f"{LARGEST_EPSILON:g} at {most:.3g} (one over the members)."
            )

    def _epsilons(self, delta: float) -> dict[str, float]:
        _check_delta(delta)
        left, rare = (1 - _SPARE) * delta, self.rounds * math.exp(-70)
        excess = self.rounds * self._excess
        proven = {
            "gaussian": math.inf,
            "rdp": epsilon_of([GaussianLoss(1 / math.sqrt(2 * self.rho))], delta=left, accountant="rdp"),
        }
        if excess < 1:
            multiplier = self.noise_multiplier / math.sqrt(self.rounds)
            proven["gaussian"] = gaussian_epsilon(multiplier, left * math.exp(-excess)) + excess
        cut = 2.0 * self.members * self.dimension * self.rounds * math.exp(-(_TAIL**2) / 2)
        return {
            name: epsilon if rare + (1 + math.exp(min(epsilon, 500))) * cut <= _SPARE * delta else math.inf
            for name, epsilon in proven.items()
        }

    @property
    def _excess(self) -> float:
        """Return h, what one round loses beyond the textbook mechanism at most."""
        s2, places = self.sigma**2 * self.honest, self.dimension
        apart = places * (self.tau + 3 * math.exp(-min(2 * math.pi**2 * s2, 700)))
        return apart + (5 * places + 420 + 2 / self.noise_multiplier**2) / (24 * s2)

    def contribution(self, parts: Iterable[Array], source: ByteSource = system_bytes) -> NDArray[np.int64]:
        """Return what a member sends: the parts rounded, added up and cut, with its share of the noise.

        Each part is a sum of at most `MOST_UNITS` clipped units (`clipped`, `clip_factors`); no parts stand for zero.
        """
        total = np.zeros(self.dimension, dtype=np.int64)
        for part in parts:
            steps = np.rint(part * self.scale)
            total += np.clip(np.nan_to_num(steps), -(2.0**52), 2.0**52).astype(np.int64)
        share = discrete_gaussian(self.sigma, self.dimension, source)
        return np.clip(total, -self.limit, self.limit) + np.clip(share, -self.tail, self.tail)

    def values(self, total: NDArray[np.int64]) -> Array:
        """Return the real numbers that a sum of contributions stands for."""
        return total / self.scale

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "version": VERSION} | asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        if data.get("schema") != SCHEMA or data.get("version") != VERSION:
            raise InputError(f"not a plan of noise of version {VERSION}; got {data.get('schema')!r}.")
        try:
            return cls(**{one.name: data[one.name] for one in fields(cls)})
        except (KeyError, TypeError) as error:
            raise InputError(f"a plan of noise has missing or ill-typed fields: {error}.") from None

    def __str__(self) -> str:
        return (
            f"distributed discrete Gaussian noise (Kairouz, Liu & Steinke 2021) in each of {self.rounds} sums: every "
            f"{self.unit} cut to a Euclidean length of {self.clip:g}, shares of deviation "
            f"{self.sigma / self.scale:.6g} by {self.members} members, {self.honest} of which are counted on"
            + (f" in each of {self.groups} groups" if self.groups > 1 else "")
        )


def withstood(terms: Terms) -> int:
    """Return how many members may collude with the server in the smallest group, by the statement of the scheme."""
    return min(map(colluders_of, terms.group_sizes)) if terms.traits.threshold else 0


def uncounted(terms: Terms, colluders: int) -> int:
    """Return how many members' shares of noise may be missing from a sum, besides those of so many colluders.

    Under two waves a lying server can open sums of h honest members: fewer than drop-outs alone would leave.
    """
    members = len(terms.members)
    if not terms.traits.cohorts:
        return members - terms.minimum
    found = [replace(cohort_parameters(terms, size), colluders=colluders) for size in terms.group_sizes]
    smallest = min(terms.group_sizes)
    return members - (min(one.honest for one in found) + colluders) * members // smallest


def sum_distance(sigma: float, shares: int) -> float:
    """Return tau = 10 sum_{k=1}^{m-1} exp(-2 pi^2 sigma^2 k / (k + 1)) of Kairouz et al., Theorem 1.

    >>> sum_distance(10.0, 5), round(sum_distance(1.0, 2), 7)
    (0.0, 0.0005172)
    """
    if not 0.5 <= sigma**2 < math.inf or shares < 1:
        raise InputError(f"the bound needs sigma^2 >= 1/2 and at least one share; got {sigma} and {shares}.")
    exponents = 2 * math.pi**2 * sigma**2 * np.arange(1, shares) / np.arange(2, shares + 1)
    return 10 * float(np.exp(-exponents).sum())  # what underflows is far below the slack of every epsilon


def clip_factors(lengths: Array, clip: float) -> Array:
    """Return what to multiply vectors of these lengths with so that none is longer than `clip`; not finite: zero."""
    most = clip * (1 - _MARGIN)
    known = np.isfinite(lengths)
    factors: Array = np.where(known, most / np.maximum(np.where(known, lengths, 1.0), most), 0.0)
    return factors


def clipped(vectors: NDArray[np.floating], clip: float) -> Array:
    """Return the rows, each cut to a Euclidean length of at most `clip`; a row that is not finite becomes zero.

    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4], [np.nan, 1.0]]), 1.0).round(5).tolist()
    [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]
    """
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float64))
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    largest = np.abs(rows).max(axis=1, initial=0.0)[:, None]
    directions = rows / np.where(largest > 0, largest, 1.0)  # squares of very long rows would overflow
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    most = clip * (1 - _MARGIN)
    with np.errstate(over="ignore"):
        too_long = largest * lengths > most
    cut: Array = np.where(too_long, directions * (most / np.maximum(lengths, 1.0)), rows)
    return cut


def noised(
    said: PrivacyStatement, plan: NoisePlan, *, delta: float, scheme: str, source: ByteSource = system_bytes
) -> PrivacyStatement:
    """Return the statement of a run with noise in its sums, from what the sums themselves protect (`said`)."""
    traits, epsilon = find_scheme(scheme), plan.epsilon(delta)
    reader = "the server" if traits.threshold else "whoever sees the sums, the aggregator excepted"
    exposed = () if traits.hides else (line("lone-shares", deviation=plan.sigma / plan.scale),)
    return replace(
        said,
        guarantee="differential privacy",
        mechanism=f"{plan}; sums: {said.mechanism}",
        unit="record" if plan.unit == "record" else "person",
        epsilon=epsilon,
        delta=delta,
        neighbours="add/remove",
        accountant=plan.accountant(delta),
        randomness=randomness_of(source),
        claim=None,
        who_sees={**said.who_sees, "anyone who is given the model": "what the noisy sums were made into"},
        not_protected=(
            *exposed,
            line("epsilon", unit=plan.unit, epsilon=epsilon),
            *lines("took-part-records", "general-truth"),
            *(one for one in said.not_protected if line_id(one) not in HIDDEN_BY_NOISE),
        ),
        assumptions=(
            line(
                "noise-shares",
                honest=plan.honest,
                group=plan.members // plan.groups,
                drop_outs=plan.drop_outs,
                colluders=plan.colluders,
                reader=reader,
            ),
            line("noise-minimum", needed=plan.members - plan.drop_outs),
            line("public-shape"),
            *said.assumptions,
        ),
    )


def _rounding(unit: NoiseUnit, dimension: int) -> float:
    """Return by how many steps rounding may lengthen the difference between neighbours."""
    return math.sqrt(dimension) * (1.0 if unit == "record" else 0.5)


def _finest_scale(share: float, unit: NoiseUnit, clip: float, dimension: int, largest: int, reach: float) -> float:
    """Return how many steps a unit of value has; `share` is the deviation of one share in sensitivities."""
    added = _rounding(unit, dimension)
    tail = _TAIL * share
    room = (largest - _TAIL - tail * added - reach) / (reach + tail)  # of `clip`, in steps
    if room < _COARSEST * added:  # sums are cut to what is left rather than rounded more coarsely
        room = _COARSEST * added
        needed = 2 * tail * (room + added)
        if needed > largest:
            raise InputError(
                f"the noise does not fit: sums of {dimension} numbers need a range of +-{needed:.3g} steps; there are "
                f"+-{largest}. Ask for a larger epsilon, fewer rounds, fewer drop-outs and colluders, or wider slots."
            )
    return min(room, _FINEST * added) / clip


def _honest(members: int, drop_outs: int, colluders: int, groups: int) -> int:
    """Return how many shares are in the sum of the smallest group: its part of those who stay, without colluders."""
    group = members // groups
    return -(-(members - drop_outs) * group // members) - colluders


def _check_terms(
    unit: str, members: int, drop_outs: int, colluders: int, groups: int, dimension: int, rounds: int
) -> None:
    if unit not in get_args(NoiseUnit):
        raise UnknownNameError("unit of privacy", str(unit), get_args(NoiseUnit))
    _check_whole("members", members, 1, 10**6)
    _check_whole("drop_outs", drop_outs, 0, members)
    _check_whole("colluders", colluders, 0, members)
    _check_whole("dimension", dimension, 1, 2**32)
    _check_whole("rounds", rounds, 1, 10**6)
    _check_whole("groups", groups, 1, members)
    if _honest(members, drop_outs, colluders, groups) < 1:
        raise InputError(
            f"of {members} members, {drop_outs} may drop out and {colluders} collude: nobody's noise is left to count "
            "on. Name fewer."
        )


def _check_whole(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
        raise InputError(f"{name} must be a whole number in [{least}, {most}]; got {value!r}.")


def _check_budget(epsilon: float, delta: float) -> None:
    if not 1e-6 <= epsilon <= LARGEST_EPSILON:
        raise InputError(f"epsilon must be in [1e-6, {LARGEST_EPSILON:g}]; got {epsilon}. Beyond, nothing is hidden.")
    _check_delta(delta)


def _check_delta(delta: float) -> None:
    if not 1e-15 <= delta < 1:
        raise InputError(f"delta must be in [1e-15, 1); got {delta}. Gaussian noise has no pure form.")
