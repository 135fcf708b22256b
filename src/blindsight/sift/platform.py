"""The trusted side: it knows what people hide, verifies what apps ask, and lets nothing else out.

*The guarantee.* An app gets numbers about a person only through a live grant. A grant exists only where the very sift
that is applied, over as many frames as it may release, was accepted against everything this person hides, alone and
beside all that other grants let out about the person, and where the person allowed it. Everything else is refused:
unknown people and apps, attributes without labels, sifts of another pipeline, verdicts that are not clear, more frames
than were verified. Every decision and release is on disk before anybody learns of it (`register`); a platform that was
killed goes on where it was, and refuses whatever it cannot be sure of.

Enev et al., "SensorSift", ACSAC 2012, section 3 and Figure 1: in *included* mode the platform's own sift and classifier
give the app a label; in *unincluded* mode the app brings a sift, which is data, and which the platform turns into a
version of its own (`prepare`). Section 9 leaves collusion open; here

- all apps of a person are verified together (`union`), with what revoked grants have told before, because it cannot be
  taken back. Only grants that were revoked *because* they leak too much are left out, else nothing could ever be
  granted again; the odometer counts them too;
- apps that try sift after sift, and learn from the answers, would get a bad one accepted in the end. So every question
  that is judged on the verification rows, whoever asks, takes its share of the error 1 - confidence; the shares of all
  questions that answers could ever lead to sum to one (`adaptive` has the proof). An app is told accept or no; the
  figures (`Proposal.to_dict`) are for the operator and the person. On the same rows the platform refuses in the end.

An app's sift as the platform will apply it: of the right pipeline, with nowhere to hide anything, or not at all.

Included mode: the platform's own sift and classifier, folded into one sift that lets out a label per attribute.

Enev et al., "SensorSift", ACSAC 2012, section 3: for attributes the platform knows, an app gets the classifier's
judgement instead of numbers. The sift is linear and so is the classifier; together they are one `LinearSift` whose
numbers have two levels: data that can be saved, hashed and certified like any other.
"""

import copy
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.files import AnyPath, as_path
from blindsight.progress import Progress, silent
from blindsight.sift.adaptive import RowPrints
from blindsight.sift.attackers import Attacker, chosen_attackers
from blindsight.sift.consent import Odometer, Proposal
from blindsight.sift.harden import harden, with_few_levels
from blindsight.sift.labels import Labels, enough_of_either, label_columns
from blindsight.sift.personal import PersonalSift
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.publicclassifier import train_public_classifier
from blindsight.sift.register import Grant, Mode, Register, SiftStore, Witness, verifier_name
from blindsight.sift.sift import Features, LayeredSift, LinearSift, Quantiser, Sift, SymbolSift, without_negligible
from blindsight.sift.stream import ReleaseBudget, Then
from blindsight.sift.trial import SiftLearner
from blindsight.sift.union import Part, certifiable
from blindsight.sift.verdict import Verdict
from blindsight.sift.verificationset import VerificationSet
from blindsight.sift.verify import Verifier
from blindsight.sift.watch import Released, Review, Wanted, Watch, release_all

_FEW_NUMBERS = 3


def prepare(sift: Sift, private: Mapping[str, Labels], data: VerificationSet) -> Sift:
    """Return what may be verified of an app's sift: its symbols if they are few, else its hardened version.

    Symbols are few if those of a single frame can be certified. Refused: sifts of another pipeline, sifts that read
    what never varies, and releases that are neither linear nor of few symbols, because nobody can tell where such a
    sift hides things. More frames of a sift that is not linear, and such a sift beside others, are certified or refused
    by `union`.
    """
    check_fits(sift, data)
    if isinstance(sift, PersonalSift):
        return PersonalSift(prepare(sift.certain, private, data), sift.epsilon)
    if certifiable([sift.alphabet], private):
        _refuse_unseen(sift, data)
        return sift
    if isinstance(sift, LinearSift):
        return harden(sift, data.through(data.pipeline))
    raise PrivacyError(
        f"a sift of kind {sift.kind!r} is verified by certificate only, and its alphabet is too large for that. "
        "Release fewer symbols, or a linear sift."
    )


def check_fits(sift: Sift, data: VerificationSet) -> None:
    """Refuse a sift of another pipeline or dimension: what anybody can know without looking at verification rows."""
    if sift.pipeline != data.pipeline:
        raise InputError(
            f"this sift belongs to feature pipeline {sift.pipeline!r}, the platform's features come from "
            f"{data.pipeline!r}. Fit it to the platform's features and name their pipeline."
        )
    if sift.dimension != data.dimension:
        raise InputError(f"this sift takes {sift.dimension} features; the platform has {data.dimension}.")


def coarser(sift: Sift, reference: VerificationSet) -> Sift:
    """Return a sift that tells less: one bit per number, of three numbers at most; then one number fewer."""
    if not isinstance(sift, LinearSift) or (sift.width == 1 and sift.levels == (2,)):
        raise PrivacyError("there are no fewer details than these. Allow or refuse.")
    bits = sift.levels == (2,) * sift.width
    kept = min(_FEW_NUMBERS, sift.width - 1 if bits else sift.width)
    fewer = replace(sift, matrix=sift.matrix[:, :kept], quantiser=None)
    return with_few_levels(fewer, reference.features, 2)


def _refuse_unseen(sift: Sift, data: VerificationSet) -> None:
    """Refuse a sift that reads what never varies on the verification rows: no certificate speaks of that."""
    if isinstance(sift, LinearSift):
        weights = sift.matrix
    elif isinstance(sift, LayeredSift | SymbolSift):
        weights = sift.layers.weights[0]
    else:
        raise PrivacyError(f"nobody can tell which features a sift of kind {sift.kind!r} reads. Bring another kind.")
    constant = data.features.min(axis=0) == data.features.max(axis=0)
    if np.any(weights[constant] != 0):
        raise PrivacyError("this sift reads features that never vary on the verification rows. Give them weight zero.")


def included_sift(learner: SiftLearner, policy: Policy, development: VerificationSet) -> Sift:
    """Return a sift that lets out 1 or 0 for each public attribute of the policy.

    `development` must be other rows than those the sift will be verified on. A learner whose sift has few levels
    already is taken as it is.
    """
    for name in policy.public:
        if name not in development.labels:
            raise UnknownNameError("public attribute", name, development.labels)
    sides = (label_columns(development.labels, side) for side in (policy.public, policy.private))
    sift: Sift = copy.deepcopy(learner).fit(development.features, *sides).sift_
    if not isinstance(sift, LinearSift) or sift.levels is not None:
        return sift
    released = sift.project(development.features)
    classifiers = [train_public_classifier(released, development.labels[name]) for name in policy.public]
    weights = np.stack([classifier.weights for classifier in classifiers], axis=1)
    edges = [classifier.threshold + classifier.mean @ classifier.weights for classifier in classifiers]
    return LinearSift(
        sift.mean,
        sift.scale,
        without_negligible(sift.matrix.astype(np.float64) @ weights).astype(np.float32),
        Quantiser(np.array(edges, dtype=np.float32)[:, None]),
        development.pipeline,
        name=str(policy),
    )


class Platform:
    """Verifies on `data` and, in included mode, fits sifts with `learner` to `development`: rows of other people.

    With a `folder` everything survives a restart, and several processes may share it; without one it lasts as long as
    this object. With a `pace` of so many seconds, proposals are answered after a whole number of them, whatever the
    answer: classifiers take longer on some data than on others, and time is no part of an answer.
    """

    def __init__(
        self,
        data: VerificationSet,
        *,
        verifier: Verifier | None = None,
        development: VerificationSet | None = None,
        learner: SiftLearner | None = None,
        folder: AnyPath | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        pace: float = 0.0,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        if not 0 <= pace < math.inf:
            raise InputError(f"the pace of answers is a number of seconds, 0 for none; got {pace}.")
        self._pace, self._wait = pace, wait
        folder = None if folder is None else as_path(folder)
        self.data = data
        self.verifier = Verifier() if verifier is None else verifier
        self._development = development
        self._learner = PPLS(5, np.inf) if learner is None else learner
        if development is not None:
            development.check_apart_from(data)
        self._register = Register(None if folder is None else folder / "platform.journal", clock)
        self._store = SiftStore(folder)
        self._store.keep_prints(data.digest, RowPrints.of(data.features, data.persons, data.pipeline))

    @property
    def recovered(self) -> str | None:
        """What an interrupted write left behind in the folder and what was done about it, or None."""
        return self._register.recovered

    def attest(self, witness: Witness) -> None:
        """From now on tell `witness` of all records before they take effect; where it raises, nothing happens."""
        self._register.witness = witness

    # --- who is here ---

    def set_preferences(self, person: str, private: Iterable[str], *, progress: Progress = silent) -> Review:
        """Note what a person hides, from now on; all their grants are verified against it anew, or revoked."""
        self.note_preferences(person, private)
        return self.review(person, progress=progress)

    def note_preferences(self, person: str, private: Iterable[str]) -> None:
        """Note what a person hides, from now on; grants not verified against all of it are suspended until `review`."""
        names = _names(private, "private attribute")
        for name, column in self.data.private(names).items():
            enough_of_either(name, column)
        with self._register.current():
            self._register.record("person", name=_name(person, "person"), private=names)

    def preferences(self, person: str) -> tuple[str, ...]:
        """Return what a person hides."""
        with self._register.current():
            return self._register.private_of(person)

    def asked(self, app: str) -> tuple[str, ...]:
        """Return what an app asks for."""
        with self._register.current():
            return self._register.app(app).public

    def add_app(self, app: str, public: Iterable[str]) -> None:
        """Note what an app asks for; where it asked for something else before, its grants are revoked."""
        names = _names(public, "public attribute")
        with self._register.current():
            before = self._register.apps.get(_name(app, "app"))
            if before is not None and before.public == names:
                return
            version = 1 if before is None else before.version + 1
            self._register.record("app", name=app, public=names, version=version)
            for grant in [one for one in self._register.grants.values() if one.app == app and one.live]:
                self._register.revoke(grant, f"app {app} now asks for {' and '.join(names)}", leaks=False)

    def grants(self, person: str | None = None) -> tuple[Grant, ...]:
        """Return all grants (about one person, or about all), oldest first, revoked ones included."""
        with self._register.current():
            if person is not None:
                self._register.private_of(person)
            return tuple(grant for grant in self._register.grants.values() if person in (None, grant.person))

    def holds(self, grant: Grant) -> bool:
        """Tell whether a grant was verified under today's terms; one that is live and does not hold is suspended."""
        with self._register.current():
            return self._watch.holds(grant)

    def released(self, grant: Grant) -> int:
        """Return how many different frames went out through a grant."""
        with self._register.current():
            return self._register.frames[grant.number]

    # --- asking and answering ---

    def propose(
        self,
        person: str,
        app: str,
        sift: Sift | None = None,
        *,
        frames: int = 1,
        then: Then = "refuse",
        personal: float | None = None,
        progress: Progress = silent,
    ) -> Proposal:
        """Verify what an app would get about a person: its own sift's release, or without one the platform's label.

        `frames` counts all frames of this person that the app will ever have got, those of earlier grants included.
        With `personal` every symbol is drawn by randomised response with this epsilon (`PersonalSift`), which bounds
        what it tells about every single person, whatever the picture. Nothing is released by this; the person answers
        with `allow`, `fewer_details` or `refuse`.
        """
        begun = time.monotonic()
        try:
            return self._propose(person, app, sift, ReleaseBudget(frames, then), personal, progress)
        finally:
            if self._pace:
                self._wait(self._pace - (time.monotonic() - begun) % self._pace)

    def _propose(
        self,
        person: str,
        app: str,
        sift: Sift | None,
        budget: ReleaseBudget,
        personal: float | None,
        progress: Progress,
    ) -> Proposal:
        watch, frames = self._watch, budget.frames
        with self._register.current():
            situation = watch.situation(person, app)
            others = watch.parts(watch.beside(person, app))
            used = self._register.frames_to(person, app)
        if frames <= used:
            raise InputError(f"app {app} has got {used} frames of this person already; ask for more than that in all.")
        mode: Mode = "included" if sift is None else "unincluded"
        told = {"person": person, "app": app, "mode": mode, "proposed": "" if sift is None else sift.digest}
        try:
            own = self._proposed(sift, Policy(situation.app.public, situation.private))
            proposed = own if personal is None else PersonalSift(own, personal)
        except (InputError, PrivacyError) as error:
            self._decided(told, "denied", str(error))
            raise
        candidate: list[Sift] = []

        def part() -> Part:
            applied = own if sift is None else prepare(sift, self.data.private(situation.private), self.data)
            candidate.append(applied if personal is None else PersonalSift(applied, personal))
            return Part(candidate[-1], frames - used)

        found = watch.judge(proposed, frames - used, part, others, situation.private, progress, **told)
        confidence = self.verifier.confidence
        sure = 1 - (1 - confidence) * found.alone.setting.share
        return Proposal(person, app, mode, candidate[0], budget, situation, found, sure, confidence)

    def fewer_details(self, proposal: Proposal, *, progress: Progress = silent) -> Proposal:
        """Verify a coarser version of what was proposed: bits instead of numbers, then fewer of them.

        Where the bits begin is chosen on development rows: on verification rows the certificate would not hold.
        """
        if self._development is None:
            raise InputError("this platform has no development rows to choose fewer details on. Allow or refuse.")
        less = coarser(proposal.sift, self._development)
        frames, then = proposal.budget.frames, proposal.budget.then
        return self.propose(proposal.person, proposal.app, less, frames=frames, then=then, progress=progress)

    def allow(self, proposal: Proposal) -> Grant:
        """Grant what was proposed, if it was accepted and nothing it depends on has changed since."""
        if proposal.verdict != "accept":
            raise PrivacyError(proposal.sentence)
        with self._register.current():
            if self._watch.situation(proposal.person, proposal.app) != proposal.situation:
                raise PrivacyError(
                    f"what {proposal.person} hides, what is granted or who verifies has changed since this was "
                    "verified. Propose it again."
                )
            self._store.keep(proposal.sift)
            number = max(self._register.grants, default=0) + 1
            replaces = [one.number for one in self._register.live(proposal.person) if one.app == proposal.app]
            terms = self._watch.terms(proposal.situation.private, proposal.examination)
            self._register.record("grant", replaces=replaces, **proposal.grant(number, terms))
            return self._register.grants[number]

    def refuse(self, proposal: Proposal) -> None:
        """Note that the person said no."""
        told = {"person": proposal.person, "app": proposal.app, "mode": proposal.mode, "proposed": ""}
        self._decided(told, "denied", f"{proposal.person} refused", sift=proposal.sift.digest)

    def release(self, person: str, app: str, X: Features, *, pipeline: str = "") -> NDArray[Any]:
        """Return what the app gets of frames X (n, d) of this person, features of this `pipeline`, or raise.

        Frames beyond the verified number are refused all together, or answered with the last release again.
        """
        (outcome,) = self.release_all([Wanted(person, app, lambda: X, pipeline)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.rows

    def release_all(self, wanted: Sequence[Wanted]) -> list[Released | Exception]:
        """Carry out several releases in this order with one write to the disk; return what each gets, or why nothing.

        What prevents all of them, such as a full disk, is raised.
        """
        with self._register.current():
            return release_all(self._watch, wanted)

    def spent(self, person: str) -> float:
        """Return the epsilon of all that was drawn at random about a person, all apps together."""
        with self._register.current():
            self._register.private_of(person)
            mine = (grant.number for grant in self._register.grants.values() if grant.person == person)
            return float(sum(self._register.epsilons[number] for number in mine))

    def revoke(self, number: int, reason: str) -> Grant:
        """End a grant by hand."""
        with self._register.current():
            grant = self._register.grants.get(number)
            if grant is None or not grant.live:
                raise InputError(f"there is no live grant {number}.")
            return self._register.revoke(grant, _name(reason, "reason"), leaks=False)

    # --- keeping watch ---

    def review(self, person: str | None = None, *, progress: Progress = silent) -> Review:
        """Verify anew all grants (of one person, or of all) that do not hold under today's terms; revoke what fails."""
        with self._register.current():
            people = list(self._register.people) if person is None else [person]
        reviews = [self._watch.review(name, progress) for name in people]
        kept = tuple(grant for review in reviews for grant in review.kept)
        return Review(kept, tuple(grant for review in reviews for grant in review.revoked))

    def add_attacker(self, attacker: Attacker, *, progress: Progress = silent) -> Review:
        """Let one more attacker judge from now on; every grant that does not rest on a certificate is reviewed."""
        self.note_attacker(attacker)
        return self.review(progress=progress)

    def note_attacker(self, attacker: Attacker) -> None:
        """Let one more attacker judge from now on; grants without a certificate are suspended until `review`."""
        verifier = replace(self.verifier, attackers=(*chosen_attackers(self.verifier.attackers), attacker))
        with self._register.current():
            self._register.record("verifier", name=verifier_name(verifier, certified=False))
            self.verifier = verifier

    def odometer(self, person: str, *, progress: Progress = silent) -> Odometer:
        """Return how well each hidden attribute is guessed from all that is granted, or was ever released."""
        return self._watch.odometer(person, progress)

    @property
    def _watch(self) -> Watch:
        return Watch(self.data, self.verifier, self._register, self._store, self._development)

    def _decided(self, told: dict[str, str], verdict: Verdict | Literal["denied"], reason: str, **more: Any) -> None:
        with self._register.current():
            self._register.record("decision", **told, verdict=verdict, reason=reason, **more)

    def _proposed(self, sift: Sift | None, policy: Policy) -> Sift:
        """Return an app's sift, if it fits the platform's features, or the platform's own; no label is looked at."""
        self.data.private(policy.private)
        if sift is not None:
            check_fits(sift, self.data)
            return sift
        if self._development is None:
            raise InputError("this platform has no development rows to fit a sift of its own to. Bring a sift.")
        return included_sift(self._learner, policy, self._development)


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or len(set(names)) < len(names):
        raise InputError(f"name at least one {what}, each once; got {list(names)}.")
    return tuple(_name(name, what) for name in names)


def _name(given: str, what: str) -> str:
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InputError(f"the name of a {what} is one line of printable text; got {given!r}.")
    return given
