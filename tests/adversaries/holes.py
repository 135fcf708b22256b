"""Eight ways around the verdict of our own platform on a sift, on rows whose truth is known.

Each shows what an earlier rule let through, and what becomes of it now. `answers_followed` is an app that learns from
answers which sift looks harmless on the rows that judge; `Segments` are such rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Verdict, exactly
from blindsight.errors import PrivacyError
from blindsight.metrics import balanced_accuracy
from blindsight.sift.adaptive import Tries
from blindsight.sift.attackers import PAPER
from blindsight.sift.sift import LinearSift, Quantiser
from blindsight.sift.trial import QUICK
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows of many segments, with a bit in each that is right about the hidden attribute in 75% of cases. A sift that
    lets the bit out in some segments, and nothing elsewhere, leaks a quarter of their share: the true leak is known.
    """

    groups: int
    bits: NDArray[np.bool_]
    hidden: NDArray[np.int8]  # which rows have a bit, (rows, groups), and the attribute

    @classmethod
    def draw(cls, rows: int, groups: int = 250, *, random_state: int) -> "Segments":
        rng = np.random.default_rng(random_state)
        hidden = rng.integers(0, 2, rows).astype(np.int8)
        told = np.where(rng.random(rows) < 0.75, hidden, 1 - hidden) == 1
        bits = np.zeros((rows, groups), dtype=bool)
        bits[np.arange(rows), rng.integers(0, groups, rows)] = told
        return cls(groups, bits, hidden)

    def leak(self, chosen: NDArray[Any]) -> float:
        return 0.25 * len(chosen) / self.groups

    def accepts(self, chosen: NDArray[Any], alpha: float, threshold: float = 0.10) -> bool:
        """Judge by a certificate (Hoeffding's) at the error alpha."""
        yes = np.asarray(self.bits[:, chosen].any(axis=1))
        counts = np.bincount(self.hidden, minlength=2)
        gap = yes[self.hidden == 1].mean() - yes[self.hidden == 0].mean()
        return bool(abs(gap) + np.sqrt(-np.log(alpha) * float((1 / counts).sum()) / 2) <= 2 * threshold)


def answers_followed(
    rows: Segments, accepted: Callable[[NDArray[Any]], bool], tries: int, *, random_state: int
) -> float:
    """Propose `tries` sifts, each after the answers before, then what they taught; return the largest accepted leak."""
    rng = np.random.default_rng(random_state)
    size, score, got = rows.groups // 4, np.zeros(rows.groups), 0.0
    for _ in range(tries):
        chosen = rng.permutation(rows.groups)[:size]
        yes = accepted(chosen)
        score[chosen] += 1 if yes else -1  # about one half of the tries are accepted at the right size
        size = min(rows.groups, size + 1) if yes else max(1, size - 1)
        got = max(got, rows.leak(chosen) if yes else 0.0)
    best = np.argsort(-score)
    for more in range(min(4 * size, rows.groups), 0, -max(1, size // 8)):  # as much as it can, then less
        if accepted(best[:more]):
            return max(got, rows.leak(best[:more]))
    return got


_CONFIDENCE, _THRESHOLD = 0.95, 0.10


@dataclass(frozen=True)
class Hole:
    """A way around a verdict: what is read if it goes out, whether an earlier rule let it out, and whether this one."""

    name: str
    rule: str
    """What keeps it in now."""
    read: float
    """PrivLoss of whoever made it."""
    before: bool
    now: bool

    def finding(self) -> Finding:
        """Return the hole as a line of an audit; where there was nothing to read, nothing was tried."""
        verdict: Verdict = "refuted" if self.now else "not refuted"
        return Finding(
            claim=f"{self.name} is not let out",
            source="this library's platform",
            proven="nothing" if "learning curve" in self.rule else self.rule,
            measure="PrivLoss of whoever made it, if it is let out",
            measured=exactly(self.read if self.now else 0.0),  # of these rows
            verdict=verdict if self.read > _THRESHOLD else "undecided",
            attack=f"{self.name}; kept in by: {self.rule}",
            details={"PrivLoss if it were let out": self.read, "an earlier rule let it out": self.before},
        )


def hole(name: str, rng: np.random.Generator, rows: int) -> Hole:
    """Try one way."""
    rule, attempt = HOLES[name]
    return Hole(name, rule, *attempt(rng, rows))


def holes(random_state: int = 0, *, rows: int = 3000) -> tuple[Hole, ...]:
    """Try all eight ways."""
    rng = np.random.default_rng(random_state)
    return tuple(hole(name, rng, rows) for name in HOLES)


Tried = tuple[float, bool, bool]
"""What is read if it goes out, whether an earlier rule let it out, and whether this one does."""


def _accepts(released: NDArray[Any], labels: dict[str, NDArray[np.int8]], *, certified: bool, **more: Any) -> bool:
    verifier = Verifier((PAPER[0], *QUICK), stop_early=False, cross_fitted=0, **more)
    return verifier.verify(released, labels, certified=certified).verdict == "accept"


def _read(truth: NDArray[Any], guess: NDArray[Any]) -> float:
    return balanced_accuracy(truth, guess.astype(np.int8)) - 0.5


def _bits(rng: np.random.Generator, rows: int) -> NDArray[np.int8]:
    return rng.integers(0, 2, rows).astype(np.int8)


def _wide(rng: np.random.Generator, rows: int) -> Tried:
    """Sixty numbers whose products tell: 1,500 rows teach nobody which, an app's own might."""
    X = rng.standard_normal((rows, 60))
    score = np.sum(X[:, :30] * X[:, 30:], axis=1)
    hidden = {"hidden": (score > 0).astype(np.int8)}
    found = Verifier((PAPER[0], *QUICK), stop_early=False, cross_fitted=0).verify(X, hidden, certified=False)
    before, now = max(result.limit for result in found.results) <= 0.5 + _THRESHOLD, found.verdict == "accept"
    return _read(hidden["hidden"], score > 0), before, now


def _adaptive(rng: np.random.Generator, rows: int) -> Tried:
    """A thousand and more answers teach which sift looks harmless on these rows."""
    drawn, count, tries = Segments.draw(rows, random_state=int(rng.integers(1 << 30))), iter(range(1, 10_000)), Tries()

    def forgetful(chosen: NDArray[Any]) -> bool:
        n = next(count)
        return drawn.accepts(chosen, (1 - _CONFIDENCE) / (n * (n + 1)))

    def careful(chosen: NDArray[Any]) -> bool:
        try:
            part, name = tries.next(["rows"]), str(len(tries))
        except PrivacyError:
            return False
        tries.note(name, "rows", part)
        if not drawn.accepts(chosen, (1 - _CONFIDENCE) * part):
            return False
        tries.accept(name)
        return True

    got, kept = (answers_followed(drawn, rule, 1500, random_state=0) for rule in (forgetful, careful))
    return got, got > _THRESHOLD, kept > _THRESHOLD


def _momentary(rng: np.random.Generator, rows: int) -> Tried:
    """Two frames of a person tell their difference, though each is drowned by an offset of the person."""
    smiles, offset = _bits(rng, rows).reshape(-1, 2), 20 * rng.standard_normal((rows // 2, 1))
    released = offset + smiles + 0.05 * rng.standard_normal(smiles.shape)
    same = np.where(smiles[:, 0] == smiles[:, 1], smiles[:, 0], -1).astype(np.int8)
    before = _accepts(released, {"smiling": same}, certified=False)
    changes = np.where(smiles[:, 0] != smiles[:, 1], smiles[:, 0], -1).astype(np.int8)
    asked = {"in frame 1": smiles[:, 0], "where it changes": changes}
    now = all(_accepts(released, {name: labels}, certified=False) for name, labels in asked.items())
    there = changes >= 0
    return _read(changes[there], released[there, 0] > released[there, 1]), before, now


def _strange(rng: np.random.Generator, rows: int) -> Tried:
    """A sift of one symbol that becomes two where a frame is drawn around the photo."""
    X = rng.standard_normal((rows, 8)).astype(np.float32)
    hidden = (X[:, 0] > 0).astype(np.int8)
    axes = np.eye(8, dtype=np.float32)
    edge = Quantiser(np.full((1, 1), 10, dtype=np.float32))
    trigger = LinearSift(20 * axes[1], np.ones(8, dtype=np.float32), axes[:, :1] + 10 * axes[:, 1:2], edge)
    data = VerificationSet(X, {"hidden": hidden}).with_reference()
    framed = np.where(axes[1] == 1, np.float32(21), X)
    before = _accepts(trigger.apply(X), {"hidden": hidden}, certified=True)
    read, left = (_read(hidden, trigger.apply(seen)[:, 0]) for seen in (framed, data.seen(framed)))
    return read, before, left > _THRESHOLD


def _overflow(rng: np.random.Generator, rows: int) -> Tried:
    """A number that overflows exactly where somebody has the attribute: an error would tell."""
    hidden = _bits(rng, rows)
    X = np.where(hidden[:, None] == 1, 1e30, rng.standard_normal((rows, 2))).astype(np.float32)
    mean, scale, weights = (
        np.full(shape, value, dtype=np.float32) for shape, value in ((2, 0), (2, 1), ((2, 1), 1e11))
    )
    sift = LinearSift(mean, scale, weights)
    with np.errstate(over="ignore"):
        told = ~np.isfinite(X @ sift.matrix)[:, 0]
    released = sift.apply(X)
    silent_now = bool(np.isfinite(released).all())
    now = _accepts((released == 0).astype(np.int64), {"hidden": hidden}, certified=True)
    return _read(hidden, told), bool(told.any()), now or not silent_now


def _jackpot(rng: np.random.Generator, rows: int) -> Tried:
    """A rare symbol gives 4% of those who have the attribute away, and nobody else ever gets it."""
    hidden = _bits(rng, rows)
    rare = (rng.random(rows) < 0.04) & (hidden == 1)
    symbols = np.where(rare, 2, _bits(rng, rows)).astype(np.int64)[:, None]
    before = _accepts(symbols, {"hidden": hidden}, certified=True, exempt=1.0)
    now = _accepts(symbols, {"hidden": hidden}, certified=True)
    surely = float((hidden[rare] == 1).mean()) - 0.5
    return surely, before, now


def _pair(rng: np.random.Generator, rows: int) -> Tried:
    """Whether two attributes differ, and neither by itself."""
    first, second = _bits(rng, rows), _bits(rng, rows)
    told = (first ^ second)[:, None] + 0.2 * rng.standard_normal((rows, 1))
    before = all(_accepts(told, {"one": column}, certified=False) for column in (first, second))
    now = _accepts(told, {"one": first, "other": second}, certified=False)
    return _read(first ^ second, told[:, 0] > 0.5), before, now


def _few_rows(rng: np.random.Generator, rows: int) -> Tried:
    """Symbols of few rows each, in which no list of attackers finds its way."""
    count = int(np.log2(rows / 23)) - 1  # as many symbols as may be certified
    hidden, bits = _bits(rng, rows), _bits(rng, count * rows).reshape(-1, count)
    symbols = np.column_stack([bits, bits.sum(axis=1) % 2 ^ hidden]).astype(np.int64)
    before = (
        Verifier(PAPER[:1], cross_fitted=0).verify(symbols, {"hidden": hidden}, certified=False).verdict == "accept"
    )
    now = _accepts(symbols, {"hidden": hidden}, certified=True)
    return _read(hidden, symbols.sum(axis=1) % 2), before, now


HOLES: dict[str, tuple[str, Callable[[np.random.Generator, int], Tried]]] = {
    "a release too wide for the rows": ("a learning curve", _wide),
    "a sift fitted to answers": ("one error for all tries", _adaptive),
    "the difference of two frames": ("every frame's label, given the window", _momentary),
    "a frame that switches a sift": ("a support, fitted to rows that are not counted", _strange),
    "an overflow as a symbol": ("a fixed release, counted", _overflow),
    "a jackpot symbol": ("a bound on how many a symbol gives away", _jackpot),
    "the XOR of two attributes": ("joint attackers", _pair),
    "symbols of few rows, judged by attackers": ("certificate or refusal", _few_rows),
}
"""The ways around a verdict: what keeps each in now, and an attempt."""
