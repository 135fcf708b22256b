"""The audit of a run: its aggregator's view, the sum that everybody got, coalitions, members of the final model.

Attacks are made on the round that was recorded, with the truth beside it. What no recording holds (keys, permutations)
is drawn anew by parties made for the audit, who play the round of the same updates again.
"""

from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from blindsight.audit import membership
from blindsight.audit.checks import Check, Evidence
from blindsight.audit.collusion import coalitions
from blindsight.audit.collusion.played import PlayedRound, play
from blindsight.audit.finding import Verdict
from blindsight.audit.fits import linear_trainer, margin_fit
from blindsight.audit.leakage.cases import Case
from blindsight.audit.leakage.recovery import Candidate, Recovery, Vector
from blindsight.audit.leakage.schemes import attack_schemes, scheme_findings
from blindsight.audit.leakage.singles import SinglesLeak, count_singles, single_findings
from blindsight.audit.rebuiltrun import EncodedRound, PaillierSize, RebuiltRun
from blindsight.audit.recordedview import attack_view, view_finding
from blindsight.audit.roc import LOW_FPRS, fewest_others
from blindsight.audit.rundrawings import draw_owners, seconds_to_draw
from blindsight.audit.shadow import FEWEST_SHADOWS, likelihood_ratio
from blindsight.audit.targets import Plan
from blindsight.crypto.encoding import SlotPacking
from blindsight.data.dataset import Dataset
from blindsight.errors import BlindsightError
from blindsight.learn.aggregation import SPARSE_SCHEMES
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.recording import RecordedRound
from blindsight.progress import Progress, silent

_SHADOWS = 16
_FALSE_ALARM = 0.01

HOW_TO_RECORD = (
    "this run has no recorded round, so its updates cannot be attacked: learn again with `blindsight learn encrypted "
    "--record`."
)


def plan_run(folder: Path, *, random_state: int, data: Dataset | None = None, progress: Progress = silent) -> Plan:
    """Return the checks of a run; one without a recording is told how to get one, and its model is still attacked."""
    run = RebuiltRun.load(folder, data=data, progress=progress)
    members = Check(
        "membership in the model", _seconds_of_shadows(run), lambda effort: _members(run, effort, random_state)
    )
    if run.recorded is None:
        return Plan(run.name, (members,), (HOW_TO_RECORD,))
    attack = _RoundAttack(run.recorded, random_state, progress)
    checks = [
        Check("the aggregator's recorded view", attack.seconds_to_read, attack.recorded_view),
        Check("weights of single owners in the sum", 0.5, attack.singles),
        Check("coalitions", attack.seconds_to_play, attack.coalitions),
        members,
        Check("pictures from updates", 0, lambda effort: draw_owners(run, random_state), fixed=seconds_to_draw(run)),
    ]
    if attack.sparse:
        checks.insert(1, Check("the aggregator's view with its set-up", attack.seconds_to_play, attack.view_with_setup))
    return Plan(run.name, tuple(checks))


class _RoundAttack:
    """Attacks on one recorded round."""

    def __init__(self, recorded: RecordedRound, seed: int, progress: Progress) -> None:
        self._recorded, self._seed, self._progress = recorded, seed, progress
        self._size = PaillierSize.of(recorded)

    @property
    def sparse(self) -> bool:
        """Whether the aggregator was told secrets at set-up, which a recording leaves out."""
        return self._recorded.scheme in SPARSE_SCHEMES

    @property
    def seconds_to_read(self) -> float:
        """About what it takes to test all guesses of all owners' updates."""
        owners = len(self._recorded.sent)
        return 0.5 + 2e-8 * self._recorded.total.size * owners**2 / _FALSE_ALARM

    @property
    def seconds_to_play(self) -> float:
        """About what a round with every coalition takes; ciphertexts of Paillier decide."""
        if self._size is None:
            return 1.0
        ciphertexts = self._size.ciphertexts * len(self._recorded.sent)
        return 2.0 + 0.015 * ciphertexts * float((self._size.key_bits / 2048) ** 2.5)

    def recorded_view(self, effort: float) -> Evidence:
        """Read the messages as they came."""
        recorded = self._recorded
        received = recorded.messages.get(AGGREGATOR, ())
        leaks = attack_view(received, recorded.sent, false_alarm=_FALSE_ALARM, random_state=self._seed)
        tested = [leak.owner for leak in leaks]
        untested = [owner for owner, update in recorded.sent.items() if update.any() and owner not in tested]
        note = f"the aggregator's view was not searched for the updates of {', '.join(untested)}: no other's compares."
        finding = view_finding(leaks, recorded.scheme, "the aggregator's recorded view")
        return Evidence((finding,), notes=(note,) if untested else ())

    def view_with_setup(self, effort: float) -> Evidence:
        """Send the updates again, in disguise, to an aggregator whose set-up is known."""
        recorded, size = self._recorded, self._size
        case = Case("the recorded updates, sent again", recorded.sent, recorded.sent, _as_it_is)
        leaks = attack_schemes(
            [case],
            schemes=[recorded.scheme],
            key_bits=3072 if size is None else size.key_bits,
            insecure=size is not None and size.key_bits < 2048,
            false_alarm=_FALSE_ALARM,
            random_state=self._seed,
            progress=self._progress,
        )
        return Evidence(scheme_findings(leaks))

    def singles(self, effort: float) -> Evidence:
        """Look for weights of the sum that one owner alone changed."""
        recorded, encoded = self._recorded, EncodedRound.of(self._recorded)
        leak = SinglesLeak(
            scheme=recorded.scheme,
            users=len(recorded.sent),
            sparsity=float(np.mean(encoded.updates == 0)),
            minimum=recorded.minimum_per_position,
            scattered=recorded.scheme == "block-dphe" and _scattered(encoded.updates, self._block),
            **count_singles(encoded.updates, encoded.total),
        )
        rows = single_findings([leak])
        if not rows:
            return Evidence((), notes=("no weight of the recorded sum was changed by one owner alone, or by two.",))
        if not self.sparse:  # the theorem is about DPHE; everybody else's sum shows as much, and nobody denies it
            rows = tuple(replace(row, source="nobody", verdict=_unclaimed(row.verdict)) for row in rows)
        return Evidence(rows)

    def coalitions(self, effort: float) -> Evidence:
        """Let every coalition attack every owner."""
        results = coalitions.attack_round(self._played, random_state=self._seed, progress=self._progress)
        return Evidence(coalitions.findings(results))

    @property
    def _block(self) -> int:
        """How many weights share a ciphertext."""
        if self._recorded.scheme != "block-dphe" or self._size is None:
            return 1
        counting = int(self._recorded.minimum_per_position > 1)
        return SlotPacking.for_key(self._size.key_bits, slot_bits=32).slots - counting

    @cached_property
    def _played(self) -> PlayedRound:
        """The recorded updates in a round between parties made for the audit."""
        recorded, size = self._recorded, self._size
        self._progress("playing the recorded round again", 0, None)
        fixed_point = EncodedRound.of(recorded).terms.fraction_bits
        if size is None:
            return play(recorded.scheme, recorded.sent, fraction_bits=fixed_point)
        return play(
            recorded.scheme,
            recorded.sent,
            fraction_bits=fixed_point,
            minimum_per_position=recorded.minimum_per_position,
            capacity=min(recorded.total.size, size.ciphertexts * self._block),
            key_bits=size.key_bits,
            insecure=size.key_bits < 2048,
        )


def _as_it_is(update: Vector) -> Recovery:
    """Take an update for what is to be recovered."""
    return Recovery((Candidate(update, None, 1.0),))


def _unclaimed(verdict: Verdict) -> Verdict:
    return verdict if verdict == "not refuted" else "leaks"


def _scattered(updates: NDArray[np.int64], block: int) -> bool:
    """Tell whether an owner changed a part of a block only."""
    starts = np.arange(0, updates.shape[1], block)
    changed = np.add.reduceat((updates != 0).astype(np.int64), starts, axis=1)
    whole = np.diff(np.append(starts, updates.shape[1]))
    return bool(((changed > 0) & (changed < whole)).any())


def _members(run: RebuiltRun, effort: float, seed: int) -> Evidence:
    """Ask the final model, and shadows of it, who was trained on."""
    game, classifier = run.game, run.classifier
    scorer, fprs = margin_fit(classifier), usable_fprs(int((~game.member).sum()))
    by_loss = membership.loss_threshold(scorer, game, fprs=fprs)
    by_ratio = likelihood_ratio(
        scorer,
        game,
        linear_trainer(classes=np.unique(game.y), standardiser=classifier.standardiser),
        shadows=shadows_for(effort),
        fprs=fprs,
        random_state=seed,
        progress=run.progress,
    )
    target = f"the model of {run.study.answers[0]}" if run.study.multilabel else "the model"
    return Evidence(
        tuple(row for found in (by_loss, by_ratio) for row in membership.findings(found, target, source="nobody"))
    )


def _seconds_of_shadows(run: RebuiltRun) -> float:
    """Return about what the shadow models take; where there are no data to train them, that comes out soon enough."""
    try:
        rows = len(run.dataset)
    except BlindsightError:
        rows = 0
    return 1.0 + 1e-8 * _SHADOWS * rows * run.model.weights.size


def usable_fprs(others: int) -> tuple[float, ...]:
    """Return the false-positive rates that so many non-members can show; the largest, if none, so that it is said."""
    return tuple(fpr for fpr in LOW_FPRS if others >= fewest_others(fpr)) or LOW_FPRS[-1:]


def shadows_for(effort: float) -> int:
    """Return how many shadow models to train: an even number that grows with the effort."""
    return max(FEWEST_SHADOWS, 2 * round(_SHADOWS * effort / 2))
