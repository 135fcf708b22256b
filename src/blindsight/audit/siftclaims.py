"""SensorSift's promise put to the test: apps that cheat its verifier, stronger attackers, apps that talk, many frames.

The paper (Enev et al., ACSAC 2012) accepts a sift when five classifiers read the private attribute less than 10% above
chance from what it releases. Each check here asks what somebody reads who does not stop there, on drawn faces whose
persons are known. `holes` tries eight ways around the verdicts of this library's own platform, on rows whose
truth is known: what an earlier rule let through, and what becomes of it now.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.finding import Finding, Interval, Verdict, exactly
from blindsight.audit.sift_audit import average_frames, loss_finding, pool_sifts, telling
from blindsight.data.dataset import Dataset
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import PrivacyError
from blindsight.metrics import balanced_accuracy, balanced_accuracy_interval
from blindsight.progress import Progress, silent
from blindsight.sift.adaptive import Tries
from blindsight.sift.attackers import PAPER
from blindsight.sift.cheats import Cheat, Segments, answers_followed, collinear_pair, low_digits, xor_hash
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift, Quantiser
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

PAPER_SOURCE = "Enev et al. 2012"
SIDE = 16  # of the grey pictures that cheats are tried on: whole numbers, since one of them lives behind the point
COMPONENTS = 60
CHEATS: tuple[Callable[..., Cheat], ...] = (collinear_pair, low_digits, xor_hash)

_CONFIDENCE, _THRESHOLD = 0.95, 0.10


Parts = tuple[VerificationSet, VerificationSet]
"""Of a labelled collection: the app makes sifts from the first, everything is judged on the second."""


def parts_of(dataset: Dataset, features: NDArray[Any], public: str, private: str, random_state: int) -> Parts:
    """Divide a collection by persons."""
    labels = {name: dataset.attribute(name) for name in (public, private)}
    whole = VerificationSet(np.asarray(features, dtype=np.float32), labels, dataset.persons)
    return whole.divide(0.4, random_state=random_state)


def cheat_findings(
    dataset: Dataset, *, public: str, private: str, random_state: int = 0, progress: Progress = silent
) -> tuple[Finding, ...]:
    """Let an app smuggle the private attribute past the paper's five attackers, and decode it."""
    developer, judged = parts_of(dataset, grey_pixels(dataset), public, private, random_state)
    verifier, found = Verifier(PAPER, random_state=random_state, stop_early=False, cross_fitted=0), []
    for done, make in enumerate(CHEATS):
        progress("apps that cheat the verifier", done, len(CHEATS))
        cheat = make(developer.features, developer.labels[public], developer.labels[private])
        released = cheat.release(judged.features)
        verification = verifier.verify(released, judged.private([private]), persons=judged.persons, certified=False)
        found.append(_cheat_finding(cheat, released, verification, private, judged.labels[private]))
    return tuple(found)


def published_sift_findings(
    dataset: Dataset, *, public: str, private: str, random_state: int = 0, progress: Progress = silent
) -> tuple[Finding, ...]:
    """Attack PPLS as published with stronger attackers, two apps' sifts together, and many frames of a person."""
    pixels = PixelFeatures(max_components=COMPONENTS, random_state=random_state)
    assert dataset.images is not None
    features = pixels.fit(dataset.images).transform(dataset.images)
    developer, data = parts_of(dataset, features, public, private, random_state)

    def fitted(learner: PPLS, part: VerificationSet) -> LinearSift:
        sift: LinearSift = learner.fit(part.features, part.labels[public], part.labels[private]).sift_
        return sift

    verifier = Verifier(random_state=random_state, stop_early=False, cross_fitted=0)
    sift, hidden = fitted(PPLS(5, 1.0, scale=False), developer), data.private([private])
    progress("stronger attackers", 0, None)
    stronger = verifier.verify(sift.apply(data.features), hidden, persons=data.persons, certified=False)
    progress("two apps together", 0, None)
    halves = developer.divide(0.5, random_state=random_state)
    apps = [fitted(PPLS(1, np.inf, scale=False), half) for half in halves]
    pooled = pool_sifts(apps, [private], data, verifier)
    progress("many frames", 0, None)
    assert data.persons is not None
    frames = average_frames(sift.apply(data.features), hidden, data.persons, verifier, frames=(1, 5))
    return (_ppls_finding(stronger), pooled, *frames)


def grey_pixels(dataset: Dataset) -> NDArray[np.float32]:
    """Return square pictures as means of blocks, rounded to whole numbers, one row each."""
    assert dataset.images is not None
    block = dataset.images.shape[1] // SIDE
    images = dataset.images[:, : block * SIDE, : block * SIDE]
    grey = images.mean(axis=3, dtype=np.float32).reshape(len(images), SIDE, block, SIDE, block)
    return np.asarray(np.rint(grey.mean(axis=(2, 4))), dtype=np.float32).reshape(len(images), -1)


def _cheat_finding(
    cheat: Cheat, released: NDArray[Any], verification: Verification, private: str, truth: NDArray[Any]
) -> Finding:
    """Judge the paper's rule, five estimates within a threshold: refuted where it accepts what an app reads."""
    known = truth >= 0
    told = truth[known], cheat.decode(released)[known]
    read = balanced_accuracy_interval(*told, confidence=_CONFIDENCE)
    threshold = verification.setting.threshold
    accepted = verification.best.priv_loss <= threshold
    fooled = accepted and read.low - 0.5 > threshold
    return Finding(
        claim=f"what five classifiers read less than {threshold:g} above chance gives little away ({cheat.name})",
        source=PAPER_SOURCE,
        proven="nothing",
        measure=f"PrivLoss of {private}, read by the app that made the sift",
        measured=Interval(balanced_accuracy(*told) - 0.5, read.low - 0.5, read.high - 0.5, _CONFIDENCE),
        verdict="refuted" if fooled else "not refuted",
        attack=f"{cheat.name}: the app hides the attribute where the verifier does not look",
        details={
            "PrivLoss the verifier finds": verification.best.priv_loss,
            "verdict of the paper's verifier": "accept" if accepted else "reject",
        },
    )


def _ppls_finding(verification: Verification) -> Finding:
    """Judge PPLS where the paper did not: nobody claimed anything about these faces and these attackers."""
    return loss_finding(
        verification,
        place=f"best of {len(verification.results)} attackers",
        claim="PPLS, five components, lambda 1, on drawn faces: attackers beyond the paper's read the private "
        f"attribute less than {verification.setting.threshold:g} better than a blind guess",
        source=f"after {PAPER_SOURCE}",
        proven="nothing",
        attack=f"attackers beyond the paper's five; the best is {telling(verification).attacker}",
    )


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
