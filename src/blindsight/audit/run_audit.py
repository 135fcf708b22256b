"""The audit of a run: its aggregator's view, the sum that everybody got, the final model.

Attacks are made on the round that was recorded, with the truth beside it. What coalitions and hostile servers read is
the same in every run of a scheme: that is in the table of SECURITY.md.

A run's own updates are made from many pictures at once, and no decoder draws a single one from them. So for pictures
each owner sends one step on one of its own, through the scheme of the run. The sift beside it, which a run does not
have, is made from public rows: one number that tells the first answer of the classifier and hides the second.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from blindsight.audit.checks import Check, Evidence, Plan, check_fields, moved_pictures, read_json, read_statement
from blindsight.audit.inversion import four_pictures, seconds_to_learn
from blindsight.audit.membership import (
    Game,
    Trainer,
    audit_members,
    federated_trainer,
    linear_trainer,
    margin_fit,
    of_exchange,
)
from blindsight.audit.recovery import single_findings
from blindsight.audit.subject import RUNS, audit_subjects, planned_noise
from blindsight.audit.views import attack_view, view_finding
from blindsight.crypto.encoding import FixedPoint, SlotPacking
from blindsight.crypto.wire import decode
from blindsight.data import FeaturePipeline, load, pipeline
from blindsight.data.dataset import Dataset
from blindsight.data.features import Standardiser, reading_side
from blindsight.data.partition import Division
from blindsight.data.pixels import PixelFeatures
from blindsight.data.sites import Sites, Study, divide
from blindsight.errors import BlindsightError, CorruptFileError, DataError, InputError, MessageError
from blindsight.files import cache_folder
from blindsight.learn.linear import LARGEST_WEIGHT
from blindsight.learn.model import Classes, LinearModel
from blindsight.learn.recording import RecordedRound
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds.task import fraction_bits
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift
from blindsight.statement import PrivacyStatement
from blindsight.sums.dphe import Shards
from blindsight.sums.messages import Reply
from blindsight.sums.noise import NoisePlan
from blindsight.sums.scheme import find_scheme
from blindsight.sums.terms import AGGREGATOR

_FALSE_ALARM = 0.01

HOW_TO_RECORD = (
    "this run has no recorded round, so its updates cannot be attacked: learn again with `blindsight learn classifier "
    "--record`."
)

NOT_RECORDED = (
    "a run with noise inside its sums is not recorded, as that would show every owner's own noise; what its epsilon "
    "promises of updates is attacked in the noise."
)

ABOUT_RUN, RUN_SCHEMA, RUN_VERSION = "run.json", "blindsight/run", 1
RECORDING, NOISE, STATEMENT = "recorded-round.npz", "noise.json", "statement.json"
_NOISE, _LESS, _UPDATES = "noise inside the sums", "half of that noise", "updates"
_PROBES = 24


@dataclass(frozen=True, eq=False)
class RebuiltRun:
    """What `learn classifier` wrote: the model, and a recorded round if there is one; data are read when asked for.

    `noise` is the plan of the noise inside its sums, with the delta at which it was stated.
    """

    about: dict[str, Any]
    model: LinearModel
    recorded: RecordedRound | None
    noise: tuple[NoisePlan, float] | None
    statement: PrivacyStatement | None = None
    given: Dataset | None = None
    progress: Progress = field(default=silent, repr=False)

    @classmethod
    def load(cls, folder: Path, *, data: Dataset | None = None, progress: Progress = silent) -> Self:
        """Read a run; `data` stand for its collection where that cannot be read from where it was."""
        about, recording = read_run(folder), folder / RECORDING
        if data is not None and "sites" in about:
            raise InputError(
                "this run's owners had collections of their own. It is audited where these lie: no --data."
            )
        recorded = RecordedRound.load(recording) if recording.exists() else None
        model, stated, planned = LinearModel.load(folder / "model.npz"), folder / STATEMENT, folder / NOISE
        statement, noise = read_statement(stated) if stated.exists() else None, _read_noise(planned)
        if noise is None and statement is not None and statement.guarantee == "differential privacy":
            raise CorruptFileError(f"{planned} is missing: what {STATEMENT} promises cannot be attacked. Learn again.")
        return cls(about, model, recorded, noise, statement, data, progress)

    @property
    def name(self) -> str:
        """The run in a few words."""
        by = f" by {self.scheme}" if self.scheme else ""
        return f"the run of {self.about['owners']} owners of {self.about['data']}{by}"

    @property
    def scheme(self) -> str:
        """How its sums were hidden; "" where that is not told."""
        return str(self.about.get("scheme", "")) if self.recorded is None else self.recorded.scheme

    @cached_property
    def _sites(self) -> tuple[Dataset, Division]:
        """The owners' own collections, put together as the run did."""
        return Sites(**self.about["sites"]).read(
            self._attributes, side=reading_side(self.features), random_state=self.about["seed"], progress=self.progress
        )

    @property
    def _attributes(self) -> list[str]:
        return [name.strip() for name in self.about["attributes"].split(",") if name.strip()]

    @cached_property
    def dataset(self) -> Dataset:
        """The collection, as the run read it."""
        if self.given is not None:
            return self.given
        about = self.about
        if "sites" in about:
            return self._sites[0]
        path = None if about["path"] is None else Path(about["path"])
        asked = {"path": path, "count": about["count"], "random_state": about["seed"], "progress": self.progress}
        with moved_pictures():
            return load(str(about["data"]), **asked)

    @cached_property
    def division(self) -> Division:
        """Whose rows were whose."""
        about = self.about
        if "sites" in about:
            return self._sites[1]
        return divide(
            self.dataset,
            owners=about["owners"],
            attributes=self._attributes,
            sharing=about["sharing"],
            random_state=about["seed"],
        )

    @cached_property
    def features(self) -> FeaturePipeline:
        """The pipeline of the run; once `study` was made it is fitted."""
        return pipeline(self.about["features"], components=self.about["components"], random_state=self.about["seed"])

    @cached_property
    def study(self) -> Study:
        """Everybody's features, checked to be those that the model was standardised by."""
        study = Study.prepare(self.dataset, self.division, self.features, cache=cache_folder(), progress=self.progress)
        mine, theirs = Standardiser.fit(study.public[0]), self.model.standardiser
        if mine.scale.shape != theirs.scale.shape or not np.allclose(mine.scale, theirs.scale, rtol=1e-3):
            raise DataError(f"{self.dataset.name} is not what this run was learned from: its public part has changed.")
        return study

    @property
    def classifier(self) -> LinearModel:
        """The part of the model that members are looked for in: all of it, or the first of its attributes."""
        if isinstance(self.model.labels, Classes):
            return self.model
        return LinearModel(self.model.weights[:1], self.model.standardiser, Classes(np.array([0, 1])))

    @property
    def shadow_trainer(self) -> Trainer:
        """How shadows are trained: by the run's protocol, or where it is not told on all rows at once."""
        classes = np.unique(self.game.y)
        if "protocol" not in self.about:
            return linear_trainer(classes=classes, standardiser=self.classifier.standardiser)
        X, answers = self.study.public
        y = answers[:, 0] if self.study.multilabel else answers
        public = X[y >= 0], y[y >= 0]
        return federated_trainer(self.about["protocol"], owners=self.about["owners"], public=public, classes=classes)

    @property
    def game(self) -> Game:
        """Owners' rows are members; test rows are not. Rows of which the answer is unknown are left out."""
        pairs = [*self.study.owners.values(), self.study.test]
        X, y = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        answers = y[:, 0] if self.study.multilabel else y
        member, known = np.arange(len(X)) < len(X) - len(self.study.test[0]), answers >= 0
        return Game(X[known], answers[known], member[known])


def _fraction_bits(recorded: RecordedRound) -> int:
    """Return the fixed point at which classifiers of so many owners are added up."""
    return fraction_bits(len(recorded.sent), LARGEST_WEIGHT)


def _key_bits(recorded: RecordedRound) -> int | None:
    """Return the length of a DPHE round's key, which its messages show to everybody; None of another scheme."""
    for message in recorded.messages.get(AGGREGATOR, ()):
        try:
            shards = decode(decode(message, Reply).body, Shards)
        except MessageError:
            continue  # of another kind
        return int(shards.ciphertexts.shape[-1]) * 4  # a ciphertext is twice as long as the key
    return None


def plan_run(folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent) -> Plan:
    """Return the checks of the run in a folder."""
    return plan_rebuilt(RebuiltRun.load(folder, data=data, progress=progress), random_state=random_state)


def plan_rebuilt(run: RebuiltRun, *, random_state: int) -> Plan:
    """Return the checks of a run; one without a recording is told how to get one, and its model is still attacked."""
    members = Check(
        "membership in the model", _seconds_of_shadows(run), lambda effort: _members(run, effort, random_state)
    )
    if run.noise is not None:
        shares = {_NOISE: 1.0, _LESS: 0.5}
        sums = (Check(name, 3, partial(_noisy_sums, run.noise, share)) for name, share in shares.items())
        unrecorded = Check(_UPDATES, 0, partial(_unrecorded, NOT_RECORDED))
        return Plan(run.name, (*sums, unrecorded, members), statement=run.statement)
    if run.recorded is None:
        unrecorded = Check(_UPDATES, 0, partial(_unrecorded, HOW_TO_RECORD))
        return Plan(run.name, (unrecorded, members), statement=run.statement)
    attack = _RoundAttack(run.recorded, random_state)
    drawing = 4 + seconds_to_learn(run.features)
    checks = (
        Check("the aggregator's recorded view", attack.seconds_to_read, attack.recorded_view),
        Check("weights of single owners in the sum", 0.5, attack.singles),
        members,
        Check("pictures from updates", 0, lambda effort: draw_owners(run, random_state), fixed=drawing),
    )
    return Plan(run.name, checks, statement=run.statement)


def _unrecorded(reason: str, effort: float) -> Evidence:
    raise InputError(reason)


def read_run(folder: Path) -> dict[str, Any]:
    """Return how a run was made, or say that it is damaged or of another version."""
    path = folder / ABOUT_RUN
    about = read_json(path, "Learn again.")
    schema, version = about.get("schema"), about.get("version")
    if schema != RUN_SCHEMA:
        raise CorruptFileError(f"{path} holds a {schema!r}; a {RUN_SCHEMA!r} was expected.")
    if version != RUN_VERSION:
        raise CorruptFileError(
            f"{path} is of version {version}; this Blindsight reads version {RUN_VERSION}. Learn again, or audit it by "
            "the Blindsight that wrote it."
        )
    texts, numbers = dict.fromkeys(("data", "features", "attributes"), str), dict.fromkeys(("seed", "components"), int)
    check_fields(path, about, **texts, **numbers, owners=int, path=str | None, count=int | None, sharing=str | None)
    return about


def _read_noise(path: Path) -> tuple[NoisePlan, float] | None:
    if not path.exists():
        return None
    data = read_json(path, "Learn again.")
    try:
        return NoisePlan.from_dict(data), float(data["delta"])
    except (InputError, ValueError, KeyError, TypeError, AttributeError):
        raise CorruptFileError(f"{path} is damaged, or of another version. Learn again.") from None


def _noisy_sums(noise: tuple[NoisePlan, float], share: float, effort: float) -> Evidence:
    """Look for a unit in sums with the run's noise, or with a `share` of it, to see whether that would be noticed."""
    subject = planned_noise(*noise, noise_share=share)
    (audit,) = audit_subjects([subject], runs=round(RUNS * effort))
    row = audit.finding() if share == 1 else audit.self_test(planted=True)
    return Evidence((row,), claims=share == 1)


class _RoundAttack:
    """Attacks on one recorded round."""

    def __init__(self, recorded: RecordedRound, seed: int) -> None:
        self._recorded, self._seed = recorded, seed

    @property
    def seconds_to_read(self) -> float:
        """About what it takes to test all guesses of all owners' updates."""
        owners = len(self._recorded.sent)
        return 0.5 + 2e-8 * self._recorded.total.size * owners**2 / _FALSE_ALARM

    def recorded_view(self, effort: float) -> Evidence:
        """Read the messages as they came."""
        recorded = self._recorded
        received = recorded.messages.get(AGGREGATOR, ())
        sent = {owner: update[recorded.positions] for owner, update in recorded.sent.items()}
        tests = attack_view(received, sent, false_alarm=_FALSE_ALARM, random_state=self._seed)
        untested = [owner for owner, update in recorded.sent.items() if update.any() and owner not in tests]
        note = f"the aggregator's view was not searched for the updates of {', '.join(untested)}: no other's compares."
        finding = view_finding(tests, recorded.scheme, "the aggregator's recorded view")
        return Evidence((finding,), notes=(note,) if untested else ())

    def singles(self, effort: float) -> Evidence:
        """Look for weights of the sum that one owner alone changed."""
        recorded, bits = self._recorded, _fraction_bits(self._recorded)
        updates, total = (
            FixedPoint(bits).encode(numbers) for numbers in (list(recorded.sent.values()), recorded.total)
        )
        scattered = find_scheme(recorded.scheme).packed and _scattered(updates, self._block)
        least = recorded.minimum_per_position
        rows = tuple(single_findings(updates, total, recorded.scheme, least, scattered=scattered))
        if not rows:
            return Evidence((), notes=("no weight of the recorded sum was changed by one owner alone, or by two.",))
        if not find_scheme(recorded.scheme).sparse:
            # the theorem is about DPHE; everybody else's sum shows as much, and nobody denies it
            rows = tuple(replace(row, source="nobody") for row in rows)
            rows = tuple(row if row.verdict == "not refuted" else replace(row, verdict="leaks") for row in rows)
        return Evidence(rows)

    @property
    def _block(self) -> int:
        """How many weights share a ciphertext."""
        bits = _key_bits(self._recorded)
        if bits is None or not find_scheme(self._recorded.scheme).packed:
            return 1
        return SlotPacking.for_key(bits, slot_bits=32).slots - int(self._recorded.minimum_per_position > 1)


def _scattered(updates: NDArray[np.int64], block: int) -> bool:
    """Tell whether an owner changed a part of a block only."""
    starts = np.arange(0, updates.shape[1], block)
    changed = np.add.reduceat((updates != 0).astype(np.int64), starts, axis=1)
    whole = np.diff(np.append(starts, updates.shape[1]))
    return bool(((changed > 0) & (changed < whole)).any())


def _members(run: RebuiltRun, effort: float, seed: int) -> Evidence:
    """Ask the final model, and shadows of it, who was trained on; a proven epsilon bounds what that shows."""
    target = f"the model of {run.study.answers[0]}" if run.study.multilabel else "the model"
    epsilon, delta = of_exchange(run.statement)
    return Evidence(
        audit_members(
            margin_fit(run.classifier),
            run.game,
            run.shadow_trainer,
            target,
            effort=effort,
            seed=seed,
            source="nobody" if epsilon is None else "the statement of the run",
            epsilon=epsilon,
            delta=delta,
            progress=run.progress,
        )
    )


def _seconds_of_shadows(run: RebuiltRun) -> float:
    """Return about what the shadow models take; where there are no data to train them, that comes out soon enough."""
    try:
        rows = len(run.dataset)
    except BlindsightError:
        rows = 0
    return 1.0 + 1.6e-7 * rows * run.model.weights.size


def draw_owners(run: RebuiltRun, random_state: int) -> Evidence:
    """Draw some of the owners' pictures, with decoders trained on the public ones."""
    if run.recorded is None or run.dataset.images is None:
        raise InputError(f"{run.dataset.name} has no pictures, only features: nothing can be drawn.")
    study, generator = run.study, science(random_state)
    try:
        sift = _sift(study, scale=not isinstance(run.features, PixelFeatures))
    except InputError:  # it is there to compare
        sift = None
    private = np.concatenate(run.division.owners)
    probes = run.dataset.take(generator.permutation(private)[:_PROBES])
    drawn = four_pictures(
        probes,
        run.dataset.take(run.division.public),
        pipeline=run.features,
        sift=sift,
        scheme=run.recorded.scheme,
        random_state=generator,
        progress=run.progress,
    ).evidence(("plain", "aggregator"))
    if find_scheme(run.recorded.scheme).hides:
        return drawn
    rows = tuple(replace(row, verdict="leaks") if row.verdict == "refuted" else row for row in drawn.findings)
    return replace(drawn, findings=rows)  # it promises nothing


def _sift(study: Study, *, scale: bool) -> LinearSift:
    """Return a number that tells the first answer and hides the second."""
    features, answers = study.public
    columns = answers if study.multilabel else np.eye(len(study.answers), dtype=np.int64)[answers]
    if columns.shape[1] < 2:
        raise InputError("a sift tells one attribute and hides another; this run learned a single one.")
    sift: LinearSift = PPLS(1, scale=scale).fit(features, columns[:, 0], columns[:, 1]).sift_
    return sift
