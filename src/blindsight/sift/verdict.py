"""Verdicts on attacks: accept, reject, or not enough evidence, recorded with all they rest on.

| verdict | when |
| --- | --- |
| `accept` | every planned attacker's reach is within the threshold; certified: anybody's limit, and few are exposed |
| `reject` | some attacker's lower end, in intervals that hold together, is above the threshold |
| `inconclusive` | neither; `needed` is about how many rows would decide, if accuracies stay what they are |

Either decision is wrong with probability at most 1 - confidence. (Enev et al., "SensorSift", ACSAC 2012, compare bare
accuracies with the threshold: a sift at the threshold is accepted or rejected by the toss of the split.) The threshold
is on PrivLoss: .10 allows guesses that are right in 60% of cases, were having and lacking it equally likely.

Decisions rest on balanced accuracy, for which a blind guess scores 1/2 whatever the prevalence: PrivLoss is what lies
above. The paper's own figure (Eq. 5, a mean of precisions) is `mean_precision`. Three kinds of bound; the first two are
right with the stated confidence:

- `interval`: the intervals of *all* planned attackers on all private attributes hold together (Bonferroni). A lower end
  above the threshold proves a leak.
- `limit`: one-sided, for this attacker alone. The largest limit bounds the best attacker without any correction,
  because the best attacker, whichever it is, is one fixed attacker, and the bound fails only if its own limit does
  (Berger, Technometrics 1982).
- `reach`: where the limit leads along a learning curve, as an app may hold any number of rows. Acceptance asks every
  reach to be below the threshold. A discriminant that estimates the means of two classes a distance D apart, of unit
  variance in d dimensions, from n1 and n0 rows, is right with probability Phi(u),
  u^2 = D^4 / (4 (D^2 + d (1/n1 + 1/n0))) (Raudys & Jain, IEEE PAMI 13, 1991). The limit gives u, u gives D, and
  Phi(D / 2) is where the curve ends. A release of K numbers has d = K (K + 3) / 2 features of first and second order:
  so wide releases need many rows. This is a model, not a proof: only a certificate speaks of all attackers.

Several pictures of one person are not independent. Where persons are known, each counts once, and the bounds are those
of `certificate`: exact for one picture of each, drawn beforehand, and betting limits for their averages.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from blindsight.errors import InputError
from blindsight.metrics import Interval, mean_precision, priv_loss
from blindsight.sift.attackers import PublicClassifier, View
from blindsight.sift.certificate import Certificate, Sample, certified_statement
from blindsight.statement import Claim, PrivacyStatement, facts_table


@dataclass(frozen=True)
class AttackResult:
    """One attacker against one private attribute; `positives` and `negatives` count the rows it was judged by."""

    attribute: str
    attacker: str
    view: View
    tuned: bool
    balanced_accuracy: float
    interval: Interval
    limit: float
    mean_precision: float
    positives: int
    negatives: int
    reach: float = 1.0  # 1 where no learning curve was asked for
    folds: int = 1  # above 1 it was cross-fitted in this many parts: its bounds are approximate, and prove no leak
    seconds: float = field(compare=False, default=0.0)

    @property
    def priv_loss(self) -> float:
        return priv_loss(self.balanced_accuracy)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"interval": list(self.interval), "priv_loss": self.priv_loss}


@dataclass(frozen=True)
class Confidence:
    """How sure bounds must be: `level` for all of `planned` intervals together, and for the largest limit."""

    level: float
    planned: int
    share: float = 1.0
    """Part of the error of a limit that this one of several tries on the same rows may use (`adaptive`)."""

    def bounds(self, truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any] | None) -> tuple[Interval, float]:
        right, wrong = (Sample.of(said, truth.astype(np.int64), persons, 2) for said in (guess, 1 - guess))
        each = (1 - self.level) / (2 * self.planned)
        interval = Interval(1 - wrong.limit(each), right.limit(each))
        return interval, right.limit((1 - self.level) * self.share)


def measure(truth: NDArray[Any], guess: NDArray[Any], persons: NDArray[Any] | None, sure: Confidence) -> dict[str, Any]:
    interval, limit = sure.bounds(truth, guess, persons)
    return {
        "balanced_accuracy": Sample.of(guess, truth.astype(np.int64), persons, 2).accuracy,
        "interval": interval,
        "limit": limit,
        "mean_precision": mean_precision(truth, guess),
        "positives": int((truth == 1).sum()),
        "negatives": int((truth == 0).sum()),
    }


def features_of(width: int) -> int:
    """The number of features of first and second order.

    >>> features_of(1), features_of(5), features_of(200)
    (2, 20, 20300)
    """
    return width * (width + 3) // 2


def with_all_rows(accuracy: float, features: int, learned: tuple[int, int]) -> float:
    """Return what the attacker would reach with any number of rows instead of (n1, n0), by the learning curve.

    >>> round(with_all_rows(0.599, features_of(31), (650, 650)), 3)
    0.67
    """
    u = max(0.0, float(ndtri(min(accuracy, 1 - 1e-12))))
    apart = 2 * u * (u + math.sqrt(u * u + features * sum(1 / max(count, 1) for count in learned)))  # D^2
    return max(accuracy, float(ndtr(math.sqrt(apart) / 2)))


def supported_width(learned: int, judged: int, *, threshold: float, confidence: float) -> int:
    """Return the widest release that can be accepted without a certificate when nobody reads anything from it, for
    `learned` and `judged` rows. The largest limit of a score of blind attackers is about two deviations above that of
    one.
    """
    limit = 0.5 + (float(ndtri(confidence)) + 2) / (2 * math.sqrt(judged))
    halves, width = (learned // 2, learned - learned // 2), 0
    while with_all_rows(limit, features_of(width + 1), halves) <= 0.5 + threshold:
        width += 1
    return width


Verdict = Literal["accept", "reject", "inconclusive"]
Ending = Literal["complete", "sure reject", "cancelled"]

SCHEMA, VERSION = "blindsight/sift-verification", 1
ROWS_PER_NUMBER = 200
"""Rows that attackers must have learned from for each number of a release that is accepted without a certificate."""
_BALANCED = ", if having and lacking it were equally likely"


@dataclass(frozen=True)
class Setting:
    """What was verified, how and with what: enough to do it again."""

    threshold: float
    confidence: float
    random_state: int
    planned: int
    rows: int
    train: int
    test: int
    persons: int | None
    width: int
    verification_set: str  # SHA-256 of features (or released numbers), labels and persons
    sift: str | None
    software: Mapping[str, str]
    share: float = 1.0  # part of the error that this one of all tries on these rows may use (`adaptive`)
    rows_per_number: int = 0
    """Rows that attackers must have learned from for each number that is let out without a certificate."""
    exempt: float = 1.0  # share of people whose symbol may make a guess surer than a certificate's `surest`


@dataclass(frozen=True)
class Verification:
    """The verdict and its evidence. `results` are in the order of the attacks, `ending` tells whether all were made."""

    setting: Setting
    results: tuple[AttackResult, ...]
    ending: Ending
    certificates: tuple[Certificate, ...] = ()
    public: Mapping[str, PublicClassifier] | None = None

    @property
    def certified(self) -> bool:
        return bool(self.certificates)

    @property
    def verdict(self) -> Verdict:
        """What may be done with the sift: only an accepted one may be released."""
        threshold = self.setting.threshold
        if any(result.interval.low - 0.5 > threshold for result in self.results if result.folds == 1):
            return "reject"
        small = self.bound <= threshold and self.exposed <= self.setting.exempt
        if self.ending == "complete" and small and not self.too_wide:
            return "accept"
        return "inconclusive"

    @property
    def too_wide(self) -> bool:
        """Whether more numbers are let out than attackers could learn from these rows. Their failure proves nothing
        then: an app with more data reads more. Only a certificate will do.
        """
        needed = self.setting.rows_per_number
        return not self.certificates and self.setting.width * needed > max(self.setting.train, needed)

    @property
    def best(self) -> AttackResult:
        if not self.results:
            raise InputError("verification was cancelled before the first attack: there is no best attacker.")
        return max(self.results, key=lambda result: result.balanced_accuracy)

    @property
    def priv_loss(self) -> float:
        return self.best.priv_loss

    @property
    def bound(self) -> float:
        """The upper limit of PrivLoss: of every attacker where certified, else of those tried, given an app's rows."""
        if self.certificates:
            return max(certificate.bound for certificate in self.certificates)
        return max((result.reach for result in self.results), default=1.0) - 0.5

    @property
    def exposed(self) -> float:
        """Upper limit of the share of people whom a rare symbol may give away; 0 where nothing is certified."""
        return max((certificate.exposed for certificate in self.certificates), default=0.0)

    @property
    def needed(self) -> int | None:
        """About how many verification rows would decide; None where it is decided, or could never be."""
        if self.verdict != "inconclusive" or self.ending == "cancelled" or self.bound <= self.setting.threshold:
            return None
        factor = _growth(self._gaps(), self.setting.threshold)
        return None if math.isinf(factor) else math.ceil(self.setting.rows * factor)

    def _repr_html_(self) -> str:
        setting = self.setting
        attackers = sorted(self.results, key=lambda result: -result.balanced_accuracy)[:5]
        facts: dict[str, object] = {"verdict": self.sentence}
        facts |= {f"certificate: {one.attribute}": one.sentence for one in self.certificates}
        facts |= {
            f"{one.attribute}: {one.attacker}": f"{one.balanced_accuracy:.3f} ({one.interval.low:.3f} to "
            f"{one.interval.high:.3f})"
            for one in attackers
        }
        rows = f"{setting.train:,} rows to learn from, {setting.test:,} to be judged by"
        return facts_table(f"{self.verdict.capitalize()}: {setting.width} numbers, {rows}", facts)

    @property
    def sentence(self) -> str:
        """The verdict in one line for a person."""
        if not self.results:
            return "Inconclusive: cancelled before the first attack."
        allowed = f"{0.5 + self.setting.threshold:.0%} is allowed"
        if self.verdict == "reject":
            proof = max(self.results, key=lambda result: (result.folds == 1, result.interval.low))
            low = math.floor(1e3 * proof.interval.low) / 10
            guesses = f"{proof.attacker} guesses {proof.attribute} right in {proof.balanced_accuracy:.1%} of cases"
            line = f"Reject: {guesses}{_BALANCED} (at least {low:.1f}%; {allowed})."
        else:
            high = f"at most {50 + math.ceil(1e3 * self.bound) / 10:.1f}%, {self.setting.confidence:.0%} sure"
            line = f"{self.verdict.capitalize()}: {self._reached}{_BALANCED} ({high}; 50% is blind; {allowed})."
        if self.too_wide:
            line += (
                f" {self.setting.width} numbers are too many for attackers who learn from {self.setting.train:,} rows: "
                f"{self.setting.rows_per_number} a number are needed, or few symbols and a certificate."
            )
        if self.exposed > self.setting.exempt:
            surest = next(one.surest for one in self.certificates if one.exposed == self.exposed)
            line += (
                f" Rare symbols may give up to {math.ceil(1e3 * self.exposed) / 10:.1f}% of people away with over "
                f"{surest:.0%} certainty; {self.setting.exempt:.0%} is allowed."
            )
        if self.ending == "cancelled":
            return f"{line} Cancelled after {len(self.results)} of {self.setting.planned} attacks."
        needed = self.needed
        return (
            line if needed is None else f"{line} About {needed:,} rows would decide, instead of {self.setting.rows:,}."
        )

    @property
    def statement(self) -> PrivacyStatement:
        if self.certified:
            return certified_statement(self.certificates)
        return _measured_statement(self)

    def to_dict(self) -> dict[str, Any]:
        public = {name: classifier.summary() for name, classifier in (self.public or {}).items()}
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "ending": self.ending,
            "priv_loss": self.priv_loss if self.results else None,
            "bound": self.bound,
            "needed": self.needed,
            "setting": {**vars(self.setting), "software": dict(self.setting.software)},
            "results": [result.to_dict() for result in self.results],
            "certificates": [certificate.to_dict() for certificate in self.certificates],
            "public": public,
            "statement": self.statement.to_dict(),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False, indent=2)

    @property
    def _reached(self) -> str:
        if not self.certificates:
            best = self.best
            return f"the best known guess of {best.attribute} is right in {best.balanced_accuracy:.1%} of cases"
        worst = max(self.certificates, key=lambda certificate: certificate.bound)
        return f"anybody's guess of {worst.attribute} is right in {0.5 + worst.estimate:.1%} of cases"

    def _gaps(self) -> list[tuple[float, float, float]]:
        """(estimate, distance to the lower end, distance to the upper limit) of everything that must decide."""
        gaps = [
            (r.priv_loss, r.balanced_accuracy - r.interval.low, r.reach - r.balanced_accuracy) for r in self.results
        ]
        if not self.certificates:
            return gaps
        upper = [(c.estimate, math.inf, c.bound - c.estimate) for c in self.certificates]
        return [(estimate, low, 0.0) for estimate, low, _ in gaps] + upper


def _growth(gaps: Iterable[tuple[float, float, float]], threshold: float) -> float:
    """How many times more rows would decide: every distance shrinks with the root of the rows.

    >>> round(_growth([(0.06, 0.03, 0.08)], threshold=0.10))  # .08 must become .04
    4
    """
    above = [(low / (estimate - threshold)) ** 2 for estimate, low, _ in gaps if estimate > threshold]
    if above:
        return min(above)
    below = [(high / (threshold - estimate)) ** 2 if estimate < threshold else math.inf for estimate, _, high in gaps]
    return max(below)


def _measured_statement(verification: Verification) -> PrivacyStatement:
    setting = verification.setting
    attackers = sorted({result.attacker for result in verification.results})
    evidence = (
        f"{len(attackers)} attackers, {setting.train:,} rows to learn from and {setting.test:,} to be judged by; "
        f"{verification.sentence.removesuffix('.')}"
    )
    return PrivacyStatement(
        guarantee="measured",
        summary=verification.sentence.partition(". ")[0].removesuffix("."),
        mechanism=f"a sift of width {setting.width}: that many numbers are let out of a picture",
        unit=None,
        epsilon=None,
        delta=None,
        randomness="none",
        who_sees={"app": "the released numbers", "platform": "the picture, the numbers and the verification set"},
        evidence=evidence,
        assumptions=(
            "the verification rows resemble those the sift will be used on, and were not used to make or choose it",
            "the sift is data that the platform applies, not code of the app",
        ),
        not_protected=(
            "anything against attackers that were not tried",
            "several releases about one person, which may tell more together",
            "what an attacker knows from elsewhere",
        ),
        claim=Claim(
            "SensorSift (2012)",
            "that a verified sift cannot be used to recognise the private attribute",
            "five classifiers were tried; another, or an app that hides the attribute where they do not look, may do "
            "better",
        ),
    )
