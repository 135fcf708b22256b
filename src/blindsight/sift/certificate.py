"""A certificate against every attacker, present or future: the release is one of m symbols, and symbols can be counted.

*The guarantee.* With the stated confidence, no function of the symbol, whatever it costs, guesses the private attribute
with a balanced accuracy above 1/2 + `bound`. It holds for rows drawn independently from the population that the
verification set stands for, labelled by the same hand, and counted once; and for a release that does not depend on
them: neither the sift nor what is done to its input may be fitted to rows that are counted.

*Proof.* An attacker says yes on some set A of symbols; its PrivLoss is D(A) / 2 with D(A) = P1(A) - P0(A), where P1, P0
are the distributions of the symbol with and without the attribute. The best attacker has D(A*) = TV(P1, P0), the total
variation distance. Counting gives an estimate D^(A) for every A, and TV^ = max D^(A). A* does not depend on the counts,
so one fixed inequality is enough: with probability 1 - alpha

    TV = D(A*) <= U(A*) <= max over A of U(A),

where U(A) is any upper limit that holds with probability 1 - alpha for a single, fixed A. No union over the 2^m
attackers is needed, so neither m nor unseen symbols cost confidence (they do raise TV^, which is biased upwards by
about sqrt(m / n): hence a small alphabet). With Hoeffding's limit

    PrivLoss <= (TV^ + sqrt(ln(1/alpha) (1/n1 + 1/n0) / 2)) / 2.

Up to `EXACT_SYMBOLS` symbols U is the exact binomial limit of `metrics.balanced_accuracy_interval`, about a third
closer. It grows with both recalls, so only those A are looked at that no other beats in both.

*Several pictures of a person.* Persons are independent, their pictures are not. The certificate speaks of a person
drawn at random and of one of their pictures drawn at random. So before any symbol is looked at, one picture of each
person is drawn; its class is the person's, and given the classes persons are independent. A person with hundreds of
pictures counts no more than one with a single picture. Two limits hold together, and the smaller one is taken:

- the exact binomial limit of the pictures drawn, at 1 - `BETS` of the error;
- at `BETS` of it a *betting* limit of the persons' averages over all of their pictures in that class, a_i in [0, 1] of
  mean P1(A), b_j of mean P0(A), which is closer where pictures of a person differ. For any bets l_i, k_j in [0, 1/2]
  that depend on earlier persons only, prod (1 - l_i (a_i - p)) prod (1 + k_j (b_j - q)) has mean 1 at the true p and q,
  and exceeds 1/a with probability at most a (Waudby-Smith & Ramdas, JRSS B 2024). The largest p - q with a smaller
  product is the limit. Its logarithm is concave in (p, q), so on a box the maximum lies on an edge; the box is
  Chernoff's, at a fifth of this error.

*Rare symbols.* An average may hide a symbol that gives a few people away surely. `exposed` bounds the share of people,
with the attribute or without it, whose symbol makes a guess surer than `surest` (given even odds): those in the set E
of symbols whose likelihood ratio is above r = surest / (1 - surest). E is one fixed set with P1(E) > r P0(E). A set A
is cleared where the upper limit of P1(A) is at most r times the lower limit of P0(A), at alpha / 4 each; `exposed` is
the largest upper limit of P1(A), at alpha / 2, over all A that are not cleared. Either E was cleared, which happens
with probability alpha / 2 at most, or P1(E) is below `exposed`, but for alpha / 2. Limits invert the Chernoff bound
exp(-N kl(p^, p)), which holds for means over persons, too (Hoeffding 1963). No set A with P1^(A) = c has a smaller
P0^(A) than the likeliest symbols cut at c, so the sets are a curve, not 2^m. The empty set is never cleared: it stands
for symbols that nobody has seen yet.

*Several private attributes.* `certify` bounds each by itself. `certify_joint` takes every combination of them as one
class and bounds the largest distance between any two: that bounds every attacker on every yes-or-no question about the
private attributes, whatever their prevalences, as either answer is a mixture of classes. The best pair is again one
fixed pair, so it costs no confidence either. Its `exposed` is the largest of those of every ordered pair of classes
(who knows all but one of somebody's attributes has the last one to tell) and of both sides of every joint question
about two attributes: do they differ, is somebody in this cell. Each is bounded at the same alpha, that of a single
attribute. What must be bounded is the largest of their true shares, which one fixed question has, whatever the counts;
the limit is below it only if that question's own limit is. Of any other question with u classes on one side and v on
the other, the share is at most u v times as large: a symbol in its E is, from the likeliest class of one side to the
least likely of the other, in the E of a pair.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, permutations
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from blindsight.errors import InputError
from blindsight.metrics.classification import recalls_limit
from blindsight.rng import science
from blindsight.sift.labels import check_labels, joint_questions
from blindsight.statement import PrivacyStatement

EXACT_SYMBOLS = 8
ROWS_PER_SYMBOL = 10
SUREST = 0.9
SMALLEST_EXACT = 1e-10
"""Below this error Hoeffding's limit is taken: binomial tails lose their digits."""
BETS = 0.2

_HALVINGS = 30

Counts = NDArray[np.int64]
Method = Literal["exact binomial", "betting", "Hoeffding"]


@dataclass(frozen=True)
class Certificate:
    """No attacker gains more than `bound` over a blind guess, with this confidence; `estimate` is TV^ / 2. n1 and n0
    count the persons (or rows, where nobody is there twice) of the two classes, of a joint certificate those told apart
    best.
    """

    attribute: str
    estimate: float
    bound: float
    confidence: float
    symbols: int
    n1: int
    n0: int
    method: Method
    surest: float = 1.0
    exposed: float = 0.0
    """Upper limit of the share of people whose symbol makes a guess surer than `surest`."""
    share: float = 1.0
    """Part of the error 1 - confidence, common to all tries on these rows (`adaptive`), that this one used."""

    @property
    def most(self) -> str:
        return f"{50 + math.ceil(self.bound * 1e3) / 10:.1f}%"  # never rounded down

    @property
    def sentence(self) -> str:
        return (
            f"anyone who sees the symbol guesses {self.attribute} right in at most {self.most} of cases, if having and "
            f"lacking it were equally likely (50% is blind; {self.confidence:.0%} confidence; every attacker, present "
            "or future)"
        )

    @property
    def statement(self) -> PrivacyStatement:
        return certified_statement((self,))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence}


def certify(
    symbols: ArrayLike,
    private: ArrayLike,
    *,
    confidence: float,
    attribute: str = "the private attribute",
    persons: ArrayLike | None = None,
    surest: float = SUREST,
    share: float = 1.0,
) -> Certificate:
    """Bound every attacker on one private attribute (1 yes, 0 no, -1 unknown) from the symbols released of its rows.

    `symbols` is one whole number per row, or levels (n, K), whose combinations are the symbols. The rows must not have
    been used to make the sift, nor its support. Alphabets too large for the rows are refused. `share` is the part of
    the error that this certificate may use, where several on the same rows must hold together (`adaptive.share`).

    >>> label, hidden = np.repeat([0, 1, 0, 1], [1600, 1400, 1350, 1650]), np.repeat([0, 1], 3000)
    >>> certificate = certify(label, hidden, confidence=0.95)
    >>> round(certificate.estimate, 3), round(certificate.bound, 3)
    (0.042, 0.053)
    """
    labels = check_labels(private, name="private labels")[:, 0]
    sample = Sample.of(symbols, labels.astype(np.int64), persons)
    if len(sample.rows) < 2 or not sample.rows.all():
        raise InputError(f"{attribute} is the same, or unknown, in all rows: there is nothing to certify.")
    found = sample.certificate(1, 0, attribute, confidence, share)
    _check_surest(surest)
    return replace(found, surest=surest, exposed=sample.most_exposed(surest, (1 - confidence) * share))


def certify_joint(
    symbols: ArrayLike,
    private: Mapping[str, ArrayLike],
    *,
    confidence: float,
    persons: ArrayLike | None = None,
    surest: float = SUREST,
    share: float = 1.0,
) -> Certificate:
    """Bound every attacker on every yes-or-no question about the private attributes together. Rows where one of them is
    unknown are left out; combinations that no row has are not covered. `exposed` is a share of those in one cell of the
    table, or on one side of a question about two attributes.
    """
    columns = np.stack([check_labels(labels, name=name)[:, 0] for name, labels in private.items()], axis=1)
    known = (columns >= 0).all(axis=1)
    classes = np.full(len(columns), -1, dtype=np.int64)
    classes[known] = np.unique(columns[known], axis=0, return_inverse=True)[1].reshape(-1)
    sample, name = Sample.of(symbols, classes, persons), "anything about " + " and ".join(private)
    if len(sample.rows) < 2:
        raise InputError(f"{name} is the same, or unknown, in all rows: there is nothing to certify.")
    pairs = combinations(range(len(sample.rows)), 2)
    found = max((sample.certificate(*pair, name, confidence, share) for pair in pairs), key=lambda one: one.bound)
    _check_surest(surest)
    labels = dict(zip(private, columns.T, strict=True))
    asked = (
        Sample.of(symbols, one.astype(np.int64), persons) for one in joint_questions(labels, [tuple(labels)]).values()
    )
    samples = [sample, *(one for one in asked if len(one.rows) == 2 and one.rows.all())]
    exposed = max(one.most_exposed(surest, (1 - confidence) * share) for one in samples)
    return replace(found, surest=surest, exposed=exposed)


def _check_surest(surest: float) -> None:
    if not 0.5 < surest < 1:
        raise InputError(f"how sure a guess may be must be in (0.5, 1); got {surest}. Write 90% as 0.9.")


def fewest_rows(private: Mapping[str, NDArray[np.int8]], groups: Sequence[Sequence[str]] | None = None) -> int:
    """Return the rows of the smallest class to be certified: of an attribute, or of combinations in `groups` (or of
    all).

    >>> fewest_rows({"a": np.array([0, 1, 0, 1], np.int8), "b": np.array([0, 1, 1, -1], np.int8)})
    1
    """
    single = min(int((column == value).sum()) for column in private.values() for value in (0, 1))
    for group in [tuple(private)] if groups is None else groups:
        columns = np.stack([private[name] for name in group], axis=1)
        together = np.unique(columns[(columns >= 0).all(axis=1)], axis=0, return_counts=True)[1]
        single = min(single, int(together.min())) if together.size else 0
    return single


def certified_statement(certificates: tuple[Certificate, ...]) -> PrivacyStatement:
    """Return what certificates of one release say together: each bound holds with its own confidence."""
    return PrivacyStatement(
        guarantee="certified",
        summary=", ".join(f"{c.attribute} is guessed right in at most {c.most}" for c in certificates)
        + f" of cases, by anybody ({certificates[0].confidence:.0%} sure; 50% is blind)",
        mechanism=f"a release of one of {max(c.symbols for c in certificates)} symbols per picture",
        unit=None,
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={"app": "the symbol", "platform": "the picture, the symbol and the verification set"},
        evidence="; ".join(certificate.sentence for certificate in certificates),
        assumptions=(
            "the verification rows are drawn independently, person by person, from those the sift will be used on",
            "their labels are right as often as those that matter",
            "they were not used to make the sift or its support, nor to choose it among several",
        ),
        not_protected=(
            "several releases about one person, which may tell more together",
            "attributes that were not certified",
            "what an attacker knows from elsewhere",
        ),
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """One picture of every person, drawn before anybody looked at symbols; classes and symbols are numbered from 0."""

    symbols: Counts
    classes: Counts
    shares: NDArray[np.float64] | None
    """(persons, m): frequency of each symbol on a person's pictures of that class; None if each has one."""
    rows: Counts
    """Pictures of each class."""
    m: int

    @classmethod
    def of(cls, symbols: ArrayLike, classes: Counts, persons: ArrayLike | None, m: int | None = None) -> Self:
        """Draw from rows whose class is not -1; `symbols` are renumbered unless m is given."""
        given, used = symbol_codes(symbols) if m is None else np.asarray(symbols, dtype=np.int64), classes >= 0
        who = None if persons is None else np.asarray(persons)
        if len(given) != len(classes) or (who is not None and len(who) != len(given)):
            raise InputError(f"symbols, labels and persons must have as many rows; got {len(given)}, {len(classes)}.")
        codes, classes = given[used], classes[used]
        if m is None:  # symbols of unknown rows do not count
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            m = int(codes.max(initial=0)) + 1
        rows = np.bincount(classes)
        numbers = None if who is None else np.unique(who[used], return_inverse=True)[1]
        if numbers is None or numbers.max(initial=-1) + 1 == len(codes):
            return cls(codes, classes, None, rows, m)
        order = science(0).permutation(len(codes))
        drawn = order[np.unique(numbers[order], return_index=True)[1]]
        alike = classes == classes[drawn][numbers]
        counts = np.bincount(numbers[alike] * m + codes[alike], minlength=len(drawn) * m).reshape(-1, m)
        return cls(codes[drawn], classes[drawn], counts / counts.sum(axis=1, keepdims=True), rows, m)

    def rates(self, c: int) -> tuple[NDArray[np.float64], int]:
        """Return how often each symbol comes in a class, every person counted once, and the number of persons."""
        mine = self.classes == c
        people = int(mine.sum())
        if self.shares is None:
            return np.bincount(self.symbols[mine], minlength=self.m) / max(1, people), people
        return self.shares[mine].sum(axis=0) / max(1, people), people

    def most_exposed(self, surest: float, alpha: float) -> float:
        """Return the largest of the limits of `exposed` over every ordered pair of classes."""
        return max(self.exposed(*pair, surest, alpha) for pair in permutations(range(len(self.rows)), 2))

    def exposed(self, yes: int, no: int, surest: float, alpha: float) -> float:
        """Return an upper limit of the share of class `yes` whose symbol is too telling of it."""
        (first, many), (second, others) = self.rates(yes), self.rates(no)
        if not many or not others:
            return 1.0
        if len(first) <= EXACT_SYMBOLS:  # every set A; else the curve that lies below all of them
            sets, step = _sets(len(first)), 0.0
            cuts, least = sets @ first, sets @ second
        else:
            step = 1 / 2048
            cuts = np.linspace(0.0, 1.0, 2049)
            order = np.argsort(-first / np.maximum(first + second, 1e-300), kind="stable")
            reached, beside = (np.append(0.0, np.cumsum(rates[order])) for rates in (first, second))
            least = np.interp(cuts, reached, beside)
        most = np.minimum(cuts + step, 1.0)  # of all sets between two points of the curve
        ratio = surest / (1 - surest)
        cleared = _above(most, many, alpha / 4) <= ratio * (1 - _above(1 - least, others, alpha / 4))
        return float(np.max(_above(most, many, alpha / 2), where=~cleared, initial=0.0))

    def certificate(self, yes: int, no: int, attribute: str, confidence: float, share: float) -> Certificate:
        if not 0.5 <= confidence < 1:
            raise InputError(f"confidence must be in [0.5, 1); got {confidence}. Write 95% as 0.95.")
        if not 0 < share <= 1:
            raise InputError(f"the share of the error must be in (0, 1]; got {share}.")
        if self.m * ROWS_PER_SYMBOL > min(self.rows[[yes, no]]):
            raise InputError(
                f"{self.m} symbols are too many for {self.rows[yes]} and {self.rows[no]} rows of {attribute}: "
                f"{ROWS_PER_SYMBOL} of either kind per symbol are needed. Release fewer symbols, or label more rows."
            )
        (first, n1), (second, n0) = self.rates(yes), self.rates(no)
        estimate = float(np.abs(first - second).sum()) / 4  # TV^ / 2: TV^ is half of the sum
        bound, method = self._bound(yes, no, estimate, (1 - confidence) * share)
        return Certificate(attribute, estimate, min(0.5, bound), confidence, self.m, n1, n0, method, share=share)

    def _bound(self, yes: int, no: int, estimate: float, alpha: float) -> tuple[float, Method]:
        first, second = (np.bincount(self.symbols[self.classes == c], minlength=self.m) for c in (yes, no))
        n1, n0 = int(first.sum()), int(second.sum())
        if not n1 or not n0:
            return 0.5, "exact binomial"
        if alpha < SMALLEST_EXACT or self.m > EXACT_SYMBOLS:
            return estimate + math.sqrt(-math.log(alpha) * (1 / n1 + 1 / n0) / 2) / 2, "Hoeffding"
        if self.shares is None:
            return _exact(first, second, alpha), "exact binomial"
        exact = _exact(first, second, alpha * (1 - BETS))
        sets, best = _sets(self.m), 0.0
        averages, others = (self.shares[self.classes == c] @ sets.T for c in (yes, no))
        boxes = _box(averages.mean(axis=0), n1, others.mean(axis=0), n0, alpha * BETS / 20)
        for one in np.argsort(-(boxes[1] - boxes[2])):
            if (boxes[1, one] - boxes[2, one]) / 2 <= best:
                break  # and all that follow have smaller limits
            best = max(best, _betting(averages[:, one], others[:, one], boxes[:, one], 0.8 * alpha * BETS) / 2)
        return (best, "betting") if best < exact else (exact, "exact binomial")

    def limit(self, alpha: float) -> float:
        """Return an upper limit of the balanced accuracy of symbol 1 of two as a guess of class 1."""
        yes, no = self.classes == 1, self.classes == 0
        n1, n0 = int(yes.sum()), int(no.sum())
        if not n1 or not n0:
            return 1.0
        if alpha < SMALLEST_EXACT:
            return min(1.0, self.accuracy + math.sqrt(-math.log(alpha) * (1 / n1 + 1 / n0) / 2) / 2)
        hits = (int(self.symbols[yes].sum()), n0 - int(self.symbols[no].sum()))
        if self.shares is None:
            return recalls_limit(hits, (n1, n0), alpha)
        averages, others = self.shares[yes, 1], self.shares[no, 1]
        box = _box(averages.mean(keepdims=True), n1, others.mean(keepdims=True), n0, alpha * BETS / 20)[:, 0]
        bet = 0.5 + _betting(averages, others, box, 0.8 * alpha * BETS) / 2
        return min(bet, recalls_limit(hits, (n1, n0), alpha * (1 - BETS)))

    @property
    def accuracy(self) -> float:
        return 0.5 + float(self.rates(1)[0][1] - self.rates(0)[0][1]) / 2


def symbol_codes(symbols: ArrayLike) -> Counts:
    given = np.asarray(symbols)
    if given.ndim not in (1, 2) or not given.size or given.dtype.kind not in "biu":
        raise InputError(
            f"symbols must be whole numbers, one or one row of levels per picture; got {given.dtype} {given.shape}. "
            "Quantise real numbers to few levels first."
        )
    return np.unique(given, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _sets(m: int) -> Counts:
    return (np.arange(1 << m)[:, None] >> np.arange(m)) & 1


def _above(rates: NDArray[np.float64], people: int, alpha: float) -> NDArray[np.float64]:
    """Return upper limits of means of numbers in [0, 1] over people: the largest p with N kl(rate, p) <= ln 1/a.

    >>> _above(np.array([0.0, 0.5, 1.0]), 1000, 0.05).round(4).tolist()
    [0.003, 0.5386, 1.0]
    """
    low, high, most = rates.copy(), np.ones_like(rates), -math.log(alpha) / people
    for _ in range(50):
        middle = (low + high) / 2
        near = rel_entr(rates, middle) + rel_entr(1 - rates, 1 - middle) <= most
        low, high = np.where(near, middle, low), np.where(near, high, middle)
    return high


def _exact(first: Counts, second: Counts, alpha: float) -> float:
    m, n1, n0 = len(first), int(first.sum()), int(second.sum())
    caught, spared = _sets(m) @ first, n0 - _sets(m) @ second
    order = np.lexsort((spared, caught))
    caught, spared = caught[order], spared[order]
    beaten = np.append(np.maximum.accumulate(spared[::-1])[::-1][1:], -1) >= spared  # by a set that catches no fewer
    caught, spared = caught[~beaten], spared[~beaten]

    def above(low: int, high: int) -> tuple[float, int, int]:
        """Bound the limits of all sets from `low` to `high`: limits grow with both recalls."""
        return -recalls_limit((int(caught[high]), int(spared[low])), (n1, n0), alpha), low, high

    heap = [above(0, len(caught) - 1)]
    while True:
        limit, low, high = heapq.heappop(heap)
        if low == high:
            return -limit - 0.5
        middle = (low + high) // 2
        heapq.heappush(heap, above(low, middle))
        heapq.heappush(heap, above(middle + 1, high))


def _box(first: NDArray[np.float64], n1: int, second: NDArray[np.float64], n0: int, alpha: float) -> NDArray[Any]:
    return np.stack(
        [
            limit
            for rates, people in ((first, n1), (second, n0))
            for limit in (1 - _above(1 - rates, people, alpha), _above(rates, people, alpha))
        ]
    )


def _betting(first: NDArray[Any], second: NDArray[Any], box: NDArray[Any], alpha: float) -> float:
    """Return the largest difference of the means in the box against which bets do not win 1/alpha. Bets are those that
    would win most for the variances seen so far: a person is worth their class's part of the difference's variance.
    """
    target = -math.log(alpha)
    seen = [_running_variance(values) / len(values) for values in (first, second)]
    sizes = (len(first), len(second))
    bets = []
    for own, other in ((0, 1), (1, 0)):
        beside = seen[other][np.arange(sizes[own]) * sizes[other] // sizes[own]]
        bets.append(np.minimum(np.sqrt(2 * target / (seen[own] + beside)) / sizes[own], 0.5))

    def won(p: float, q: float) -> float:
        return float(np.log1p(-bets[0] * (first - p)).sum() + np.log1p(bets[1] * (second - q)).sum())

    low, high, least, most = box
    edges: list[tuple[Callable[[float], tuple[float, float]], float, float]] = [
        *((lambda q, p=p: (p, q), most, least) for p in (low, high)),
        *((lambda p, q=q: (p, q), low, high) for q in (least, most)),
    ]
    best = -1.0
    for pair, near, far in edges:  # along each edge the difference and what is won grow from near to far
        if won(*pair(near)) > target:
            continue
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            near, far = (middle, far) if won(*pair(middle)) <= target else (near, middle)
        p, q = pair(far)
        best = max(best, p - q)
    return best


def _running_variance(values: NDArray[Any]) -> NDArray[np.float64]:
    """The variance of the values before each one, shrunk to 1/4."""
    count = np.arange(1, len(values) + 1)
    means = (0.5 + np.cumsum(values)) / (count + 1)
    squares = np.cumsum(np.square(values - means))
    return np.asarray(np.concatenate([[0.25], (0.25 + squares[:-1]) / (count[:-1] + 1)]))
