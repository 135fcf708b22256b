"""A certificate against every attacker, present or future: what is released is one of m symbols, and symbols can be
counted.

*The guarantee.* With the stated confidence, no function of the symbol, however clever and whatever it costs, guesses
the private attribute with a balanced accuracy above 1/2 + `bound`. It holds for rows drawn independently from the
population that the verification set stands for, labelled by the same hand, and counted once.

*Proof.* An attacker says yes on some set A of symbols; its PrivLoss is D(A) / 2 with D(A) = P1(A) - P0(A), where P1, P0
are the distributions of the symbol with and without the attribute. The best attacker has D(A*) = TV(P1, P0), the total
variation distance. Counting gives an estimate D^(A) for every A, and TV^ = max D^(A). A* does not depend on the counts,
so one fixed inequality is enough: with probability 1 - alpha

    TV = D(A*) <= U(A*) <= max over A of U(A),

where U(A) is any upper limit that holds with probability 1 - alpha for a single, fixed A. No union over the 2^m
attackers is needed, so neither m nor symbols that were never seen cost confidence (they do raise TV^, which is
biased upwards by about sqrt(m / n): hence a small alphabet). With Hoeffding's limit

    PrivLoss <= (TV^ + sqrt(ln(1/alpha) (1/n1 + 1/n0) / 2)) / 2.

Up to `EXACT_SYMBOLS` symbols U is the exact binomial limit of `metrics.balanced_accuracy_interval`, about a third
closer; A is skipped where already Hoeffding's limit (at the error that the exact one leaves for its binomial tail, so
that both fail together) cannot exceed the largest U so far.

*Several pictures of a person.* Persons are independent, their pictures are not. So every person counts once in each
class, however many pictures there are of them: P1(A) is the chance that a picture of a person drawn at random, of those
with the attribute, has a symbol in A. D^ is then a mean over persons, N1 of them in one class and N0 in the other; one
of them moves it by at most 1/N1 + 1/N0 (or one of the two), and Hoeffding's (1/n1 + 1/n0) becomes the sum of the
squares of that. One person with hundreds of pictures costs no more than one with a single picture.

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
fixed pair, so it costs no confidence either.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from blindsight.errors import InputError
from blindsight.metrics import balanced_accuracy_interval
from blindsight.sift.labels import check_labels
from blindsight.statement import PrivacyStatement

EXACT_SYMBOLS = 8
ROWS_PER_SYMBOL = 10
SUREST = 0.9
"""How sure a single symbol may make a guess, given even odds, but for a few exposed."""
SMALLEST_EXACT = 1e-10
"""Below this error Hoeffding's limit is taken: binomial tails lose their digits."""
_BINOMIAL_SHARE = 0.997  # of the error: what the exact limit leaves for its tail, see `balanced_accuracy_interval`

Counts = NDArray[np.int64]
Method = Literal["exact binomial", "Hoeffding"]


@dataclass(frozen=True)
class Certificate:
    """No attacker gains more than `bound` over a blind guess, with this confidence; `estimate` is TV^ / 2.

    `attribute` names what is private; n1 and n0 count the rows of the two classes (of a joint certificate: of the pair
    that is told apart best). `method` is how a single attacker is bounded.
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
    """Of the error 1 - confidence, which all tries on these rows have in common (`adaptive`), what this one used."""

    @property
    def sentence(self) -> str:
        """The certificate in one line."""
        share = 50 + math.ceil(self.bound * 1e3) / 10  # never rounded down
        return (
            f"whoever sees the symbol guesses {self.attribute} right in at most {share:.1f}% of cases, if having and "
            f"lacking it were equally likely (50% is blind; {self.confidence:.0%} confidence; every attacker, present "
            "or future)"
        )

    @property
    def statement(self) -> PrivacyStatement:
        """The certificate as a privacy statement."""
        return certified_statement((self,))

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data."""
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
    been used to make the sift. Alphabets too large for the rows are refused. `share` is the part of the error that this
    certificate may use, where several on the same rows must hold together (`adaptive.share`).

    >>> label, hidden = np.repeat([0, 1, 0, 1], [1600, 1400, 1350, 1650]), np.repeat([0, 1], 3000)
    >>> certificate = certify(label, hidden, confidence=0.95)
    >>> round(certificate.estimate, 3), round(certificate.bound, 3)
    (0.042, 0.053)
    """
    labels = check_labels(private, name="private labels")[:, 0]
    sample = _Sample.of(symbols, labels.astype(np.int64), persons)
    if len(sample.sizes) < 2 or not sample.sizes.all():
        raise InputError(f"{attribute} is the same, or unknown, in all rows: there is nothing to certify.")
    found = sample.certificate(1, 0, attribute, confidence, share)
    if not 0.5 < surest < 1:
        raise InputError(f"how sure a guess may be must be in (0.5, 1); got {surest}. Write 90% as 0.9.")
    exposed = max(sample.exposed(*pair, surest, (1 - confidence) * share) for pair in ((1, 0), (0, 1)))
    return replace(found, surest=surest, exposed=exposed)


def certify_joint(
    symbols: ArrayLike,
    private: Mapping[str, ArrayLike],
    *,
    confidence: float,
    persons: ArrayLike | None = None,
    share: float = 1.0,
) -> Certificate:
    """Bound every attacker on every yes-or-no question about the private attributes together.

    Rows where one of them is unknown are left out; combinations that no row has are not covered.
    """
    columns = np.stack([check_labels(labels, name=name)[:, 0] for name, labels in private.items()], axis=1)
    known = (columns >= 0).all(axis=1)
    classes = np.full(len(columns), -1, dtype=np.int64)
    classes[known] = np.unique(columns[known], axis=0, return_inverse=True)[1].reshape(-1)
    sample, name = _Sample.of(symbols, classes, persons), "anything about " + " and ".join(private)
    if len(sample.sizes) < 2:
        raise InputError(f"{name} is the same, or unknown, in all rows: there is nothing to certify.")
    pairs = combinations(range(len(sample.sizes)), 2)
    return max((sample.certificate(*pair, name, confidence, share) for pair in pairs), key=lambda found: found.bound)


def fewest_rows(private: Mapping[str, NDArray[np.int8]], groups: Sequence[Sequence[str]] | None = None) -> int:
    """Return how many rows the smallest class has that must be certified: of an attribute, or of their combinations.

    `groups` name the attributes that are certified together: all of them, unless told.

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
            "they were not used to make the sift, nor to choose it among several",
        ),
        not_protected=(
            "several releases about one person, which may tell more together",
            "attributes that were not certified",
            "what an attacker knows from elsewhere",
        ),
    )


@dataclass(frozen=True, eq=False)
class _Sample:
    """Symbols, classes and persons of the rows that count, each numbered from 0."""

    codes: Counts
    classes: Counts
    persons: Counts | None
    sizes: Counts
    """Rows of each class."""

    @classmethod
    def of(cls, symbols: ArrayLike, classes: Counts, persons: ArrayLike | None) -> Self:
        codes, used = symbol_codes(symbols), classes >= 0
        who = None if persons is None else np.unique(np.asarray(persons), return_inverse=True)[1].astype(np.int64)
        if len(codes) != len(classes) or (who is not None and len(who) != len(codes)):
            raise InputError(f"symbols, labels and persons must have as many rows; got {len(codes)}, {len(classes)}.")
        if who is not None and len(np.unique(who[used])) == used.sum():
            who = None  # nobody is there twice
        seen = np.unique(codes[used], return_inverse=True)[1].astype(np.int64)  # symbols of unknown rows do not count
        return cls(seen, classes[used], None if who is None else who[used], np.bincount(classes[used]))

    def rates(self, c: int) -> tuple[NDArray[np.float64], int]:
        """Return how often each symbol comes in a class, every person counted once, and how many those are."""
        rows, m = self.classes == c, int(self.codes.max()) + 1
        if self.persons is None:
            return np.bincount(self.codes[rows], minlength=m) / self.sizes[c], int(self.sizes[c])
        pictures = np.bincount(self.persons[rows])
        people = int((pictures > 0).sum())
        return np.bincount(self.codes[rows], 1 / pictures[self.persons[rows]], m) / people, people

    def exposed(self, yes: int, no: int, surest: float, alpha: float) -> float:
        """Return an upper limit of the share of class `yes` whose symbol is too telling of it."""
        (first, many), (second, others) = self.rates(yes), self.rates(no)
        order = np.argsort(-first / np.maximum(first + second, 1e-300), kind="stable")
        reached = np.concatenate([[0.0], np.cumsum(first[order])])
        beside = np.concatenate([[0.0], np.cumsum(second[order])])
        if len(first) <= EXACT_SYMBOLS:  # every set A; else the curve that lies below all of them
            sets = (np.arange(1 << len(first))[:, None] >> np.arange(len(first))) & 1
            cuts, least = sets @ first, sets @ second
        else:
            cuts = np.linspace(0.0, 1.0, 2049)
            least = np.interp(cuts, reached, beside)
        ratio, step = surest / (1 - surest), 0.0 if len(first) <= EXACT_SYMBOLS else 1 / 2048
        most = np.minimum(cuts + step, 1.0)  # of all sets between two points of the curve
        cleared = _above(most, many, alpha / 4) <= ratio * (1 - _above(1 - least, others, alpha / 4))
        return float(np.max(_above(most, many, alpha / 2), where=~cleared, initial=0.0))

    def certificate(self, yes: int, no: int, attribute: str, confidence: float, share: float) -> Certificate:
        """Bound every attacker that tells class `yes` from class `no`."""
        if not 0.5 <= confidence < 1:
            raise InputError(f"confidence must be in [0.5, 1); got {confidence}. Write 95% as 0.95.")
        if not 0 < share <= 1:
            raise InputError(f"the share of the error must be in (0, 1]; got {share}.")
        n1, n0 = int(self.sizes[yes]), int(self.sizes[no])
        m = len(np.unique(self.codes))
        if m * ROWS_PER_SYMBOL > min(n1, n0):
            raise InputError(
                f"{m} symbols are too many for {n1} and {n0} rows of {attribute}: {ROWS_PER_SYMBOL} of either kind per "
                "symbol are needed. Release fewer symbols, or label more rows."
            )
        estimate = float(np.abs(self.rates(yes)[0] - self.rates(no)[0]).sum()) / 4  # TV^ / 2: TV^ is half of the sum
        first, second = (np.bincount(self.codes[self.classes == c], minlength=m) for c in (yes, no))
        alpha = (1 - confidence) * share
        exact = m <= EXACT_SYMBOLS and self.persons is None and alpha >= SMALLEST_EXACT
        bound = _exact(first, second, alpha) if exact else estimate + self._reach(yes, no, alpha)
        method: Method = "exact binomial" if exact else "Hoeffding"
        return Certificate(attribute, estimate, min(0.5, bound), confidence, m, n1, n0, method, share)

    def _reach(self, yes: int, no: int, alpha: float) -> float:
        n1, n0 = self.sizes[yes], self.sizes[no]
        if self.persons is None:
            return _hoeffding(1 / n1 + 1 / n0, alpha)
        people = int(self.persons.max()) + 1
        there = [np.bincount(self.persons[self.classes == c], minlength=people) > 0 for c in (yes, no)]
        return _hoeffding(float(np.sum(np.square(sum(one / one.sum() for one in there)))), alpha)


def symbol_codes(symbols: ArrayLike) -> Counts:
    """Number the different symbols from 0: whole numbers, or rows of levels."""
    given = np.asarray(symbols)
    if given.ndim not in (1, 2) or not given.size or given.dtype.kind not in "biu":
        raise InputError(
            f"symbols must be whole numbers, one or one row of levels per picture; got {given.dtype} {given.shape}. "
            "Quantise real numbers to few levels first."
        )
    return np.unique(given, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _hoeffding(spread: float, alpha: float) -> float:
    """Return how far PrivLoss of a fixed attacker lies above its estimate with probability at most alpha."""
    return math.sqrt(-math.log(alpha) * spread / 2) / 2


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
    """Return the largest exact limit over all attackers, given the counts of every symbol in the two classes."""
    m, n1, n0 = len(first), int(first.sum()), int(second.sum())
    says_yes = (np.arange(1 << m)[:, None] >> np.arange(m)) & 1  # every set A of symbols
    caught, spared = says_yes @ first, n0 - says_yes @ second
    estimates = (caught / n1 + spared / n0) / 2 - 0.5  # D^(A) / 2
    skip = _hoeffding(1 / n1 + 1 / n0, _BINOMIAL_SHARE * alpha)
    truth, best = np.repeat([1, 0], [n1, n0]), 0.0
    for attacker in np.argsort(-estimates):
        if estimates[attacker] + skip <= best:
            break  # and all that follow have smaller estimates
        x, z = int(caught[attacker]), int(spared[attacker])
        guess = np.repeat([1, 0, 0, 1], [x, n1 - x, z, n0 - z])
        best = max(best, balanced_accuracy_interval(truth, guess, confidence=1 - 2 * alpha).high - 0.5)
    return best
