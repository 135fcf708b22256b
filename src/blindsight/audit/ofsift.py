"""The audit of a sift, on pictures it was not made from: verified anew, looked through for hiding places, pooled.

What is audited is what an app would receive: the version that a platform accepted, where there is one, else the sift
as it was fitted. It is held to the threshold it was verified with, else to the usual one.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.checks import Check, Evidence
from blindsight.audit.collusion.sifts import average_frames, frames_findings, pool_sifts, pooled_finding
from blindsight.audit.finding import Finding, Interval, of_verifier
from blindsight.audit.inversion import aggregator_samples, four_pictures
from blindsight.audit.inversion.study import seconds_to_learn
from blindsight.audit.smuggling import hiding_finding, search_hiding_places
from blindsight.audit.targets import Plan, Target
from blindsight.data.dataset import Dataset
from blindsight.data.pixels import PixelFeatures
from blindsight.errors import CorruptFileError, InputError
from blindsight.files import cache_folder, storage_errors
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.sift.fitted import EVIDENCE, VERIFIED, FittedSift, fingerprint
from blindsight.sift.labels import FEWEST_OF_EITHER, FEWEST_ROWS, Labels, label_columns
from blindsight.sift.ppls import PPLS
from blindsight.sift.stream import FRAMES, windows
from blindsight.sift.trial import QUICK
from blindsight.sift.verdict import Verification
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier

_USUAL_THRESHOLD = 0.10
_MODERN_FROM = 0.5  # effort
_PROBES, _SHOWN = 24, 3
_SCHEME = "block-dphe"

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
        data = given.collection.load(progress=progress)
    label_columns(data, given.policy.private)  # an unknown attribute is named before any work is done
    accepted = (target.file or target.folder / VERIFIED).name == VERIFIED and (target.folder / VERIFIED).exists()
    threshold = _threshold(target.folder) if accepted else _USUAL_THRESHOLD
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
    return Plan(f"the sift {given.policy} ({state}) on {rows:,} pictures of {data.name}", tuple(checks))


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
        """Their features and labels."""
        unseen = self.unseen
        features = self.given.extract(unseen, cache=cache_folder(), progress=self.progress)
        labels = {name: unseen.attribute(name) for name in unseen.attribute_names}
        return VerificationSet(features, labels, unseen.persons, fingerprint(unseen, self.given.pipeline))

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
        places = search_hiding_places(
            self.given.sift.apply(self.rows.features),
            self.private,
            self._verifier(effort),
            QUICK[0],
            persons=self.rows.persons,
            progress=self.progress,
        )
        return Evidence((hiding_finding(places, str(self.given.policy)),))

    def pooled(self, effort: float) -> Evidence:
        """Let a second app, whose developer has other pictures, make a sift for the same policy, and pool both."""
        developer, judged = self.rows.divide(random_state=self.seed)
        policy, sift = self.given.policy, self.given.sift
        sides = (label_columns(developer.labels, side) for side in (policy.public, policy.private))
        scale = not isinstance(self.given.pipeline, PixelFeatures)
        other = PPLS(max(1, min(sift.width, 5)), scale=scale).fit(developer.features, *sides).sift_
        pooled = pool_sifts(
            [sift, replace(other, pipeline=sift.pipeline)],
            policy.private,
            judged,
            replace(self._verifier(effort), attackers=QUICK),
            progress=self.progress,
        )
        return Evidence((pooled_finding(pooled),))

    def frames(self, effort: float) -> Evidence:
        """Let an app put several frames of a person together."""
        persons = self.rows.persons
        lengths = [] if persons is None else [frames for frames in (2, 5, FRAMES) if self._enough(persons, frames)]
        if persons is None or not lengths:
            raise InputError(
                f"{self.data.name} has too few persons with 2 pictures or more that the sift was not made from: "
                f"{FEWEST_ROWS} pairs of frames are needed. Name a collection with several pictures of each person."
            )
        leaks = average_frames(
            self.given.sift.apply(self.rows.features),
            self.private,
            persons,
            replace(self._verifier(effort), attackers=QUICK),
            frames=(1, *lengths),
            progress=self.progress,
        )
        return Evidence(frames_findings(leaks))

    def drawings(self, effort: float) -> Evidence:
        """Draw pictures from a plain update, from an aggregator's view and from what the sift lets out."""
        shown, others = self._apart()
        probes, public = self.unseen.take(shown), self.unseen.take(others)
        read = aggregator_samples(
            self.rows.features[shown],
            self.rows.features[others],
            scheme=_SCHEME,
            random_state=self.seed,
            progress=self.progress,
        )
        drawn = four_pictures(
            probes,
            public,
            pipeline=self.given.pipeline,
            sift=self.given.sift,
            aggregator=read,
            random_state=self.seed,
            progress=self.progress,
        )
        return Evidence(drawn.findings(), tuple(drawn.row(index) for index in range(min(_SHOWN, len(probes)))))

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
        best = found.best
        low, high = best.interval
        return Finding(
            claim=f"{self.given.policy}: nobody reads what is private {self.threshold:g} better than a blind guess",
            source="its verification" if self.accepted else "nobody: it was not verified",
            proven="by certificate, with its confidence" if found.certified else "nothing: it is measured",
            measure=f"PrivLoss of {best.attribute}, best of the attackers (allowed: {self.threshold:g})",
            measured=Interval(best.priv_loss, low - 0.5, high - 0.5, found.setting.confidence),
            verdict=of_verifier(found.verdict, beyond="refuted" if self.accepted else "leaks"),
            attack=f"{best.attacker}, on {found.setting.rows:,} rows it was not made from",
            details={"verdict of the verifier": found.verdict, "sentence": found.sentence, "limit": found.bound},
        )


def _certificate_finding(found: Verification, number: int) -> Finding:
    """Return what a certificate says, which is about every attacker there can be."""
    certificate, allowed = found.certificates[number], found.setting.threshold
    return Finding(
        claim=f"nobody, now or later, reads {certificate.attribute} {allowed:g} better than a blind guess",
        source="a certificate made for this audit",
        proven=certificate.sentence,
        measure=f"upper bound on PrivLoss of {certificate.attribute} from {certificate.symbols} symbols",
        measured=Interval(certificate.estimate, 0.0, certificate.bound, certificate.confidence),
        verdict="not refuted",
        attack=f"every attacker ({certificate.method})",
        details={
            "within the threshold": certificate.bound <= allowed,
            f"share of people whom a symbol gives away with more than {certificate.surest:.0%}": certificate.exposed,
        },
    )


def _threshold(folder: Path) -> float:
    """Return the threshold that an accepted sift was verified with."""
    path = folder / EVIDENCE
    with storage_errors("read", path):
        text = path.read_bytes()
    try:
        return float(json.loads(text)["setting"]["threshold"])
    except (ValueError, KeyError, TypeError):
        raise CorruptFileError(
            f"{path} does not say by which threshold the sift was accepted. Verify it again."
        ) from None
