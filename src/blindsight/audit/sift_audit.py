"""The audit of a sift, on pictures it was not made from: verified anew, looked through for hiding places, pooled.

What is audited is what an app would receive: the version that a platform accepted, where there is one, else the sift
as it was fitted. It is held to the threshold it was verified with, else to the usual one.

*Apps that talk to each other, and one that looks again and again.* A sift is accepted for one release; its statement
says that several releases about one person may tell more. How much more is measured here with the verifier's own
attackers: two apps that put their numbers about the same picture side by side, and one app that averages many frames of
a person. (What the platform does about it is `sift.union` and the `ReleaseBudget` of `sift.stream`: it verifies all of
it together, before any of it is released.)

*Hiding places.* An app that writes its own sift can put the private attribute where a verifier does not look. Here one
attacker looks in every such place: at the numbers in each view of `sift.attackers` (as they come, standardised,
whitened, quantised), and at their digits behind the decimal point alone. What is scrambled with a hash is found by no
list of places; few symbols under a certificate leave no place for it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.checks import Check, Evidence, Plan, Target, moved_pictures
from blindsight.audit.finding import Finding, Interval, Verdict
from blindsight.audit.inversion import four_pictures, seconds_to_learn
from blindsight.data.dataset import Dataset
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import cache_folder, storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.attackers import VIEWS, Attacker
from blindsight.sift.fitted import EVIDENCE, VERIFIED, FittedSift, fingerprint
from blindsight.sift.harden import hardened
from blindsight.sift.labels import FEWEST_OF_EITHER, FEWEST_ROWS, Labels, label_columns
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import Sift
from blindsight.sift.stream import FRAMES, leak_over_frames, windows
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import AttackResult, Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.statement import PrivacyStatement

_USUAL_THRESHOLD = 0.10
_MODERN_FROM = 0.5  # effort
_PROBES = 24
_SCHEME = "block-dphe"
DIGITS = "digits"

NEEDS_DATA = (
    "this sift does not say which collection it was made from: name one with labels of what it hides (--data, --path, "
    "and -n for how many)."
)


def plan_sift(target: Target, *, random_state: int, data: Dataset | None, progress: Progress = silent) -> Plan:
    """Return the checks of a sift on a labelled collection, by default the one it was made from: its other pictures."""
    given = FittedSift.load(target.file or target.folder, verified=True)
    if data is None:
        if given.collection is None:
            raise InputError(NEEDS_DATA)
        with moved_pictures():
            data = given.collection.load(progress=progress)
    label_columns(data, given.policy.private)  # an unknown attribute is named before any work is done
    accepted = (target.file or target.folder / VERIFIED).name == VERIFIED and (target.folder / VERIFIED).exists()
    threshold, statement = _accepted(target.folder) if accepted else (_USUAL_THRESHOLD, None)
    audit = SiftAudit(given, data, accepted, threshold, random_state, progress)
    rows = len(audit.unseen)
    checks = [
        Check("verification", 1e-3 * rows, audit.verification, fixed=1),
        Check("hiding places", 0, audit.hiding_places, fixed=0.2 + 1e-4 * rows),
        Check("two apps together", 0, audit.pooled, fixed=0.2 + 5e-4 * rows),
        Check("several frames of a person", 0, audit.frames, fixed=0.5 + 5e-4 * rows),
    ]
    if data.images is not None:
        checks.append(Check("pictures from a sift", 0, audit.drawings, fixed=5 + seconds_to_learn(given.pipeline)))
    state = "accepted" if accepted else "not verified"
    return Plan(
        f"the sift {given.policy} ({state}) on {rows:,} pictures of {data.name}", tuple(checks), statement=statement
    )


@dataclass(frozen=True, eq=False)
class SiftAudit:
    """A sift, and the rows of a collection that neither it nor anybody on its pictures was made from."""

    given: FittedSift
    data: Dataset
    accepted: bool
    threshold: float
    seed: int
    progress: Progress

    @cached_property
    def unseen(self) -> Dataset:
        """The pictures that may speak about this sift."""
        return self.data.take(self.given.unseen(self.data))

    @cached_property
    def rows(self) -> VerificationSet:
        """Their features and labels, without those that a hardened version was fitted to (`verify_fitted`)."""
        unseen = self.unseen
        features = self.given.extract(unseen, cache=cache_folder(), progress=self.progress)
        labels = {name: unseen.attribute(name) for name in unseen.attribute_names}
        rows = VerificationSet(features, labels, unseen.persons, fingerprint(unseen, self.given.pipeline))
        return rows.with_reference() if hardened(self.given.sift) else rows

    @property
    def private(self) -> dict[str, Labels]:
        """What the policy hides, on these rows."""
        return self.rows.private(self.given.policy.private)

    def verification(self, effort: float) -> Evidence:
        """Attack it anew, with all attackers or, in a hurry, with the quick ones."""
        found = self._verifier(effort).verify(
            (self.given.sift, self.rows.features), self.private, persons=self.rows.persons, progress=self.progress
        )
        return Evidence(
            (self._verdict(found), *(_certificate_finding(found, i) for i in range(len(found.certificates))))
        )

    def hiding_places(self, effort: float) -> Evidence:
        """Look where a cheat would hide something."""
        row = search_hiding_places(
            self.given.sift.apply(self.rows.features),
            self.private,
            self._verifier(effort),
            QUICK[0],
            policy=str(self.given.policy),
            persons=self.rows.persons,
            progress=self.progress,
        )
        return Evidence((row,))

    def pooled(self, effort: float) -> Evidence:
        """Let a second app, whose developer has other pictures, make a sift for the same policy, and pool both."""
        developer, judged = self.rows.divide(random_state=self.seed)
        policy, sift = self.given.policy, self.given.sift
        sides = (label_columns(developer.labels, side) for side in (policy.public, policy.private))
        scale = not isinstance(self.given.pipeline, PixelFeatures)
        other = PPLS(max(1, min(sift.width, 5)), scale=scale).fit(developer.features, *sides).sift_
        apps = [sift, replace(other, pipeline=sift.pipeline)]
        quick = replace(self._verifier(effort), attackers=QUICK)
        return Evidence((pool_sifts(apps, policy.private, judged, quick, progress=self.progress),))

    def frames(self, effort: float) -> Evidence:
        """Let an app put several frames of a person together."""
        persons = self.rows.persons
        lengths = [] if persons is None else [frames for frames in (2, 5, FRAMES) if self._enough(persons, frames)]
        if persons is None or not lengths:
            raise InputError(
                f"{self.data.name} has too few persons with 2 pictures or more that the sift was not made from: "
                f"{FEWEST_ROWS} pairs of frames are needed. Name a collection with several pictures of each person."
            )
        rows = average_frames(
            self.given.sift.apply(self.rows.features),
            self.private,
            persons,
            replace(self._verifier(effort), attackers=QUICK),
            frames=(1, *lengths),
            progress=self.progress,
        )
        return Evidence(rows)

    def drawings(self, effort: float) -> Evidence:
        """Draw pictures from what the sift lets out; a plain update and an aggregator's view are there to compare."""
        shown, others = self._apart()
        drawn = four_pictures(
            self.unseen.take(shown),
            self.unseen.take(others),
            pipeline=self.given.pipeline,
            sift=self.given.sift,
            scheme=_SCHEME,
            random_state=self.seed,
            progress=self.progress,
        )
        return drawn.evidence(("sift",))

    def _apart(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of pictures to draw, and those of all other persons, from which decoders learn how."""
        rows = np.arange(len(self.unseen))
        persons = rows if self.unseen.persons is None else self.unseen.persons
        shown = science(self.seed).permutation(rows)[:_PROBES]
        others = rows[~np.isin(persons, persons[shown])]
        if len(others) < _PROBES:
            raise InputError(
                f"{len(shown)} pictures are drawn, and {_PROBES} or more of other people must teach how; got "
                f"{len(others)}."
            )
        return shown, others

    def _enough(self, persons: NDArray[Any], frames: int) -> bool:
        """Tell whether windows of so many frames are enough for a verifier."""
        if np.unique(persons, return_counts=True)[1].max() < frames:
            return False
        cut = windows(persons, frames)
        kinds = [[int(np.sum(cut.labels(column) == value)) for value in (0, 1)] for column in self.private.values()]
        return all(min(kind) >= FEWEST_OF_EITHER and sum(kind) >= FEWEST_ROWS for kind in kinds)

    def _verifier(self, effort: float) -> Verifier:
        verifier = Verifier("modern", self.threshold, random_state=self.seed, stop_early=False)
        return verifier if effort >= _MODERN_FROM else replace(verifier, attackers=QUICK)

    def _verdict(self, found: Verification) -> Finding:
        """Hold the best attacker against what was said: of an accepted sift, that none beats the threshold."""
        return loss_finding(
            found,
            beyond="refuted" if self.accepted else "leaks",
            claim=f"{self.given.policy}: nobody reads what is private {self.threshold:g} better than a blind guess",
            source="its verification" if self.accepted else "nobody: it was not verified",
            proven="by certificate, with its confidence" if found.certified else "nothing: it is measured",
            attack=f"{telling(found).attacker}, on {found.setting.rows:,} rows it was not made from",
            details={"sentence": found.sentence, "limit": found.bound},
        )


def loss_finding(
    found: Verification, *, beyond: Verdict = "leaks", place: str = "best of the attackers", **words: Any
) -> Finding:
    """Return a row about the threshold of a verification; `beyond` is what it means that it is exceeded."""
    best = telling(found)
    low, high = best.interval
    setting, why = found.setting, ""
    if found.verdict == "inconclusive" and high - 0.5 <= setting.threshold:  # the interval alone does not say why
        why = f"; with an app's rows perhaps {found.bound:.3g}"
        if found.exposed > setting.exempt:
            why = f"; rare symbols may give {found.exposed:.1%} of people away"
        if found.too_wide:
            why = f"; {setting.width} numbers are too many for attackers who learn from {setting.train:,} rows"
    verdicts: dict[str, Verdict] = {"reject": beyond, "accept": "not refuted", "inconclusive": "undecided"}
    return Finding(
        measure=f"PrivLoss of {best.attribute}, {place} (allowed: {setting.threshold:g}){why}",
        measured=Interval(best.priv_loss, low - 0.5, high - 0.5, setting.confidence),
        verdict=verdicts[found.verdict],
        **words | {"details": {"verdict of the verifier": found.verdict} | words.get("details", {})},
    )


def telling(found: Verification) -> AttackResult:
    """Return the attack that tells most: of a sift that is rejected, the one that is surest of it."""
    if found.verdict != "reject":
        return found.best
    return max((one for one in found.results if one.folds == 1), key=lambda one: one.interval.low)


def _certificate_finding(found: Verification, number: int) -> Finding:
    """Return what a certificate says, which is about every attacker there can be."""
    certificate, allowed = found.certificates[number], found.setting.threshold
    return Finding(
        claim=f"nobody, now or later, reads {certificate.attribute} {allowed:g} better than a blind guess",
        source="a certificate made for this audit",
        proven=certificate.sentence,
        measure=f"upper bound on PrivLoss of {certificate.attribute} from {certificate.symbols} symbols",
        measured=Interval(certificate.estimate, 0.0, certificate.bound, certificate.confidence),
        verdict="not refuted" if certificate.bound <= allowed else "undecided",
        attack=f"every attacker ({certificate.method})",
        details={
            "within the threshold": certificate.bound <= allowed,
            f"share of people whom a symbol gives away with more than {certificate.surest:.0%}": certificate.exposed,
        },
    )


def _accepted(folder: Path) -> tuple[float, PrivacyStatement | None]:
    """Return the threshold that an accepted sift was verified with, and what was stated then."""
    path = folder / EVIDENCE
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        evidence = json.loads(text)
        stated = evidence.get("statement")
        statement = None if stated is None else PrivacyStatement.from_dict(stated)
        return float(evidence["setting"]["threshold"]), statement
    except (ValueError, KeyError, TypeError, AttributeError, InputError):
        raise CorruptFileError(
            f"{path} does not say by which threshold the sift was accepted. Verify it again."
        ) from None


def pool_sifts(
    sifts: Sequence[Sift],
    private: Iterable[str],
    data: VerificationSet,
    verifier: Verifier,
    *,
    progress: Progress = silent,
) -> Finding:
    """Attack the releases of several apps one by one and side by side, with every attacker of the verifier."""
    if len(sifts) < 2:
        raise InputError(f"apps pool two sifts or more; got {len(sifts)}.")
    labels, thorough = data.private(private), replace(verifier, stop_early=False)
    released = [sift.apply(data.features) for sift in sifts]
    found = []
    for done, numbers in enumerate([*released, np.hstack(released)]):
        progress("attacking pooled sifts", done, len(sifts) + 1)
        found.append(thorough.verify(numbers, labels, persons=data.persons, certified=False))
    progress("attacking pooled sifts", len(sifts) + 1, len(sifts) + 1)
    *alone, together = found
    accepted = all(one.verdict == "accept" for one in alone)
    return _several(
        together,
        f"{len(alone)} sifts, {'each' if accepted else 'not each'} accepted by itself, together",
        accepted,
        "apps that put their releases side by side",
        {"PrivLoss of each alone": ", ".join(f"{one.priv_loss:.3f} ({one.verdict})" for one in alone)},
    )


def average_frames(
    released: ArrayLike,
    private: Mapping[str, ArrayLike],
    persons: ArrayLike,
    verifier: Verifier,
    *,
    frames: Sequence[int] = (1, 2, 5, FRAMES),
    progress: Progress = silent,
) -> tuple[Finding, ...]:
    """Attack what an app makes of so many frames of each person, concatenated and averaged; see `leak_over_frames`.

    There is a row per window that is longer than a frame.
    """
    thorough = replace(verifier, stop_early=False)
    leaks = leak_over_frames(released, private, persons, verifier=thorough, frames=frames, progress=progress)
    single = next((leak.verification for leak in leaks if leak.frames == 1), None)
    before = {} if single is None else {"PrivLoss of one frame": f"{single.priv_loss:.3f} ({single.verdict})"}
    accepted = single is not None and single.verdict == "accept"
    return tuple(
        _several(
            leak.verification,
            f"{leak.frames} frames of a person through a sift that is {'' if accepted else 'not '}accepted for one",
            accepted,
            f"an app with {leak.frames} frames of a person, {leak.reading}",
            before | {"windows": str(leak.windows)},
        )
        for leak in leaks
        if leak.frames > 1
    )


def _several(found: Verification, whose: str, accepted: bool, attack: str, details: dict[str, str]) -> Finding:
    """Judge several releases by the verifier's threshold.

    Statements of accepted sifts admit that they may be beyond it; a sift that was not accepted has none.
    """
    return loss_finding(
        found,
        beyond="as stated" if accepted else "leaks",
        claim=f"{whose}: nobody reads what is private {found.setting.threshold:g} better than a blind guess",
        source="nobody",
        proven="nothing: a sift's statement excepts several releases about one person",
        attack=attack,
        details=details | {"attacker": telling(found).attacker},
    )


def search_hiding_places(
    released: NDArray[Any],
    private: Mapping[str, ArrayLike],
    verifier: Verifier,
    attacker: Attacker,
    *,
    policy: str,
    persons: ArrayLike | None = None,
    progress: Progress = silent,
) -> Finding:
    """Let one attacker look at released numbers (n, K) in every place, and return the one that tells most.

    The places share the verifier's confidence: a sift within its threshold is called a leak at most at 1 - confidence.
    """
    numbers = np.asarray(released, dtype=np.float64)
    places: dict[str, tuple[NDArray[Any], Attacker]] = {view: (numbers, replace(attacker, view=view)) for view in VIEWS}
    behind = numbers - np.rint(numbers)
    if behind.any():
        places[DIGITS] = (behind, replace(attacker, view="standardised"))
    confidence = 1 - (1 - verifier.confidence) / len(places)
    found: dict[str, Verification] = {}
    for done, (place, (shown, who)) in enumerate(places.items()):
        progress("looking for hiding places", done, len(places))
        alone = replace(verifier, attackers=(who,), confidence=confidence, stop_early=False)
        found[place] = alone.verify(shown, private, persons=persons, certified=False)
    progress("looking for hiding places", len(places), len(places))
    worst = max(found, key=lambda place: (found[place].verdict == "reject", found[place].priv_loss))
    return loss_finding(
        found[worst],
        place="in the place that tells most",
        claim=f"{policy}: nothing is hidden in other units, differences or digits of what is released",
        source="nobody",
        proven="nothing, unless hardened or certified",
        attack=f"{telling(found[worst]).attacker}: {worst}",
        details={name: round(one.priv_loss, 4) for name, one in found.items()},
    )
