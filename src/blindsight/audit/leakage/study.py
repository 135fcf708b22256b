"""What sums tell, and all attacks on updates in one go: what leaks in the clear, and what schemes stop.

What the averaged model tells one of its users about the others, with no help from anyone.

A user knows the average of N updates and its own, so it knows the sum of the other N - 1. With N = 2 that *is* the
other's update, to the last bit, and every attack on plain updates applies. With N = 3 it is the sum of two, at a cosine
of 1 / sqrt(2) to each if the two have nothing in common, and at more if they have: pictures of one kind do. Yonetani et
al. (2017, section 2.5 and supplement, Theorem 8) ask for N >= 3 because then nobody "can identify" an update; that is
true of its exact value, and not of what it looks like. All schemes here refuse N = 2; only noise helps beyond it.

Where one owner alone changed a weight, the sum of all owners is that owner's weight.

For N owners who each change a weight with probability q = 1 - sparsity, independently, the share of the touched weights
that a single one changed is

    N q (1 - q)^(N - 1) / (1 - (1 - q)^N)

(`sums.statements.single_contributor_share`), 91% at the sparsity of 95.6% and N = 5 that Yonetani et al. (2017)
report: DPHE hides *whose* these weights are, and publishes what they are. `open_session(..., minimum_per_position=m)`
withholds weights that fewer than m owners changed.

That protects against whoever sees only the sum. An owner subtracts its own update first, so for it every count is one
less: with m = 2 it still reads the other's weight wherever the two of them were alone. m = 3 is needed against members.

In block DPHE the rule counts who changed the *block*. Owners that send whole blocks, as `learn.sparsity.top_blocks`
makes them, are protected alike; a weight that one owner alone changed in a block of several is shown.

Attacks on updates in one go: what leaks in the clear, what the schemes stop, and what they cannot stop.

Gradients of small batches, which are attacked with torch, are a study of their own (`networks`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Interval, Verdict, rate
from blindsight.audit.leakage.recovery import (
    RECOVERED,
    Loss,
    UnknownSettingsLeak,
    Vector,
    attack_unknown_settings,
    cosine,
    gradient_step,
    mean_interval,
    recover_from_hinge_step,
    unknown_settings_findings,
)
from blindsight.audit.leakage.schemes import Case, SchemeLeak, attack_schemes, leaky_cases, scheme_findings
from blindsight.crypto.encoding import FixedPoint
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.sums.session import open_session
from blindsight.sums.statements import single_contributor_share
from blindsight.sums.terms import SPARSE_SCHEMES

_FIXED = FixedPoint(20)  # as `open_session` rounds by default


@dataclass(frozen=True, eq=False)
class AverageLeak:
    """What a user learned of another from the average of `users` updates, one figure per victim.

    `update_cosines` are between the sum of the others and the victim's update, `sample_cosines` (without sign) between
    the sample recovered from that sum and the victim's. The `blind_` figures are those of a user that takes its own
    update and sample for the victim's: samples of one kind resemble each other. `sample` is the last one recovered.
    """

    users: int
    case: str
    update_cosines: Vector = field(repr=False)
    blind_update_cosines: Vector = field(repr=False)
    sample_cosines: Vector = field(repr=False)
    blind_sample_cosines: Vector = field(repr=False)
    sample: Vector = field(repr=False)

    @property
    def gain(self) -> Interval:
        """How much closer the average brings a user to another's update than its own is, on average over victims."""
        return mean_interval(self.update_cosines - self.blind_update_cosines)


def others_sum(average: ArrayLike, own: ArrayLike, users: int) -> Vector:
    """Return the sum of everybody else's updates, as each user computes it from the average.

    >>> others_sum([2.0, 1.0], own=[3.0, 0.0], users=2).tolist()
    [1.0, 2.0]
    """
    if users < 2:
        raise InputError(f"an average tells about others if there are any; got {users} users.")
    difference: Vector = users * np.asarray(average, dtype=np.float64) - np.asarray(own, dtype=np.float64)
    return difference


def attack_averages(
    samples: ArrayLike,
    *,
    users: Sequence[int] = (2, 3, 5),
    victims: int = 100,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> tuple[AverageLeak, ...]:
    """Attack one user's update by another's means, for each number of `users` and kind of update, on fresh victims."""
    if victims < 2:
        raise InputError(f"an interval takes two victims or more; got {victims}.")
    generator, leaks = science(random_state), []
    for number in users:
        owners = tuple(f"owner {index}" for index in range(number))
        figures, last = defaultdict(list), dict[str, Vector]()
        for victim in range(victims):
            for case in leaky_cases(samples, random_state=generator, owners=owners):
                found, last[case.name] = _attack(case)
                figures[case.name].append(found)
            progress(f"attacking averages of {number}", victim + 1, victims)
        for name, rows in figures.items():
            update, blind_update, sample, blind_sample = np.array(rows).T
            leaks.append(AverageLeak(number, name, update, blind_update, sample, blind_sample, last[name]))
    return tuple(leaks)


def _attack(case: Case) -> tuple[tuple[float, float, float, float], Vector]:
    """Let the last owner attack the first; return the figures in the order of `AverageLeak`, and the sample."""
    encoded = {owner: _FIXED.encode(update) for owner, update in case.updates.items()}
    curious = list(encoded)[-1]
    total = _FIXED.decode(np.sum(list(encoded.values()), axis=0))
    rest = others_sum(total / len(encoded), _FIXED.decode(encoded[curious]), len(encoded))
    found = case.attack(rest)
    sent = case.updates[case.victim]
    figures = (
        cosine(rest, sent),
        cosine(case.updates[curious], sent),
        found.closest(case.sample),
        abs(cosine(case.samples[curious], case.sample)),
    )
    return figures, found.nearest(case.sample)


def average_findings(leaks: Iterable[AverageLeak]) -> tuple[Finding, ...]:
    """Return one row per number of users and kind of update."""
    return tuple(_average_finding(leak) for leak in leaks)


def _average_finding(leak: AverageLeak) -> Finding:
    two = leak.users == 2
    return Finding(
        claim=f"with N = {leak.users} users nobody identifies another's update from the average",
        source="nobody (the paper asks for N >= 3)" if two else "Yonetani et al. 2017, Theorem 8",
        proven="false: the average minus one's own is the other's" if two else "of exact values, not of resemblance",
        measure="cosine of the sum of the others with another user's update",
        measured=mean_interval(leak.update_cosines),
        verdict="leaks" if leak.gain.low > 0 else "at chance",
        attack=f"{leak.case}: a user subtracts its own update",
        details={
            "users": leak.users,
            "victims": len(leak.update_cosines),
            "blind_update_cosine": float(np.mean(leak.blind_update_cosines)),
            "sample_cosine": float(np.mean(leak.sample_cosines)),
            "blind_sample_cosine": float(np.mean(leak.blind_sample_cosines)),
        },
    )


@dataclass(frozen=True, kw_only=True)
class SinglesLeak:
    """Counts of weights in one round of a sparse scheme.

    Of the `touched` weights one owner alone changed `singles`; of these the sum shows `exposed`, exactly. The last
    owner and one other were alone in `pairs`; in `subtracted` of them it reads the other's weight. `shown` weights of
    the sum are not zero. `scattered` tells that owners changed single weights where the scheme counts blocks.
    """

    scheme: str
    members: int
    sparsity: float
    minimum: int
    scattered: bool
    touched: int
    singles: int
    exposed: int
    shown: int
    pairs: int
    subtracted: int

    @property
    def expected_share(self) -> float:
        """The share of singles that independent supports would have."""
        return single_contributor_share(self.members, 1 - self.sparsity)

    @property
    def share(self) -> float:
        """The measured share of singles among touched weights."""
        return self.singles / max(self.touched, 1)

    @property
    def precision(self) -> float:
        """How often one is right who takes each weight of the sum for that of a single owner."""
        return self.exposed / max(self.shown, 1)


def attack_singles(
    *,
    members: int = 5,
    dimension: int = 1000,
    sparsity: float = 0.956,
    minimum_per_position: int = 1,
    scheme: str = "dphe",
    whole_blocks: bool = True,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    source: ByteSource = system_bytes,
    progress: Progress = silent,
) -> SinglesLeak:
    """Play a round of owners with independent supports and read single owners' weights from its sum.

    In block DPHE each owner changes `whole_blocks` or, if not, single weights.
    """
    if scheme not in SPARSE_SCHEMES:
        raise InputError(f"singles are those of a sparse scheme, {' or '.join(SPARSE_SCHEMES)}; got {scheme!r}.")
    if not 0 < sparsity < 1:
        raise InputError(f"sparsity must be in (0, 1); got {sparsity}.")
    names = tuple(f"owner {number}" for number in range(members))
    session = open_session(
        scheme,
        members=names,
        dimension=dimension,
        minimum_per_position=minimum_per_position,
        key_bits=key_bits,
        insecure=insecure,
        source=source,
    )
    block = session.block if whole_blocks else 1
    updates = _independent_updates((members, dimension), block, sparsity, science(random_state))
    progress("a round of sparse updates", 0, 1)
    total = session.round(dict(zip(names, updates, strict=True)), 0).total
    progress("a round of sparse updates", 1, 1)
    counts = count_singles(np.array([session.terms.integers(update) for update in updates]), total)
    return SinglesLeak(
        scheme=scheme,
        members=members,
        sparsity=sparsity,
        minimum=minimum_per_position,
        scattered=block < session.block,
        **counts,
    )


def _independent_updates(
    shape: tuple[int, int], block: int, sparsity: float, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return one row per owner, who changes each block of so many weights independently."""
    members, dimension = shape
    changed = generator.random((members, -(-dimension // block))) >= sparsity
    return np.where(np.repeat(changed, block, axis=1)[:, :dimension], generator.normal(size=shape), 0.0)


def count_singles(integers: NDArray[np.int64], total: NDArray[np.int64]) -> dict[str, int]:
    """Compare the sum with what everybody sent."""
    contributors = np.count_nonzero(integers, axis=0)
    singles = contributors == 1
    own = integers[-1]
    pairs = (contributors == 2) & (own != 0)
    marks = {
        "touched": contributors > 0,
        "singles": singles,
        "exposed": singles & (total == integers.sum(axis=0)),
        "shown": total != 0,
        "pairs": pairs,
        "subtracted": pairs & (total - own == integers[:-1].sum(axis=0)),
    }
    return {name: int(np.count_nonzero(mark)) for name, mark in marks.items()}


def single_findings(leaks: Iterable[SinglesLeak]) -> tuple[Finding, ...]:
    """Return two rows per round: what the sum shows to everyone, and what it shows to one of the owners.

    A round without such weights has nothing to show.
    """
    return tuple(
        _single_finding(leak, insider=insider)
        for leak in leaks
        for insider in (False, True)
        if (leak.pairs if insider else leak.singles)
    )


def _verdict(leak: SinglesLeak, hits: int, *, insider: bool) -> Verdict:
    """Return what follows if so many weights are read: the theorem admits none, the rule those of fewer contributors.

    Block DPHE makes no promise for weights that owners scatter over blocks.
    """
    if hits == 0:
        return "not refuted"
    if leak.minimum >= (3 if insider else 2):
        return "leaks" if leak.scattered else "refuted"
    return "refuted" if leak.minimum == 1 else "as stated"


def _single_finding(leak: SinglesLeak, *, insider: bool) -> Finding:
    hits, of = (leak.subtracted, leak.pairs) if insider else (leak.exposed, leak.singles)
    enough = leak.minimum >= (3 if insider else 2) and not leak.scattered
    who = "a member cannot read a weight that one other" if insider else "nobody reads from the sum a weight that one"
    return Finding(
        claim=f"{who} owner changed ({leak.scheme}, minimum_per_position = {leak.minimum})",
        source="Yonetani et al. 2017, Theorem 8" if leak.minimum == 1 else "the rule of minimum contributors",
        proven="withheld by the key generator" if enough else "false: there the sum is that owner's weight",
        measure=f"share of {of} such weights that the sum shows exactly",
        measured=rate(hits, of),
        verdict=_verdict(leak, hits, insider=insider),
        attack="a member subtracts its own update" if insider else "reading the sum",
        details={
            "members": leak.members,
            "minimum": leak.minimum,
            "scattered": leak.scattered,
            "single_share": leak.share,
            "expected_single_share": leak.expected_share,
            "precision": leak.precision,
        },
    )


@dataclass(frozen=True, eq=False)
class LeakageStudy:
    """What every attack found."""

    unknown: tuple[UnknownSettingsLeak, ...]
    schemes: tuple[SchemeLeak, ...]
    averages: tuple[AverageLeak, ...]
    singles: tuple[SinglesLeak, ...]

    def findings(self) -> tuple[Finding, ...]:
        """Return all rows, attacks in the clear first."""
        return (
            *unknown_settings_findings(self.unknown),
            *scheme_findings(self.schemes),
            *average_findings(self.averages),
            *single_findings(self.singles),
        )


def study_leakage(
    private: ArrayLike,
    public: ArrayLike,
    *,
    victims: int = 50,
    false_alarm: float = 0.01,
    key_bits: int = 3072,
    insecure: bool = False,
    random_state: int | np.random.Generator | None = None,
    progress: Progress = silent,
) -> LeakageStudy:
    """Run every attack on private samples (one per row), with public ones of the same kind to compare with.

    Cost grows with `victims`, 1 / `false_alarm` and `key_bits`, and with the number of features; a minute is ample for
    64 of them.
    """
    generator = science(random_state)
    schemes = attack_schemes(
        leaky_cases(private, random_state=generator),
        false_alarm=false_alarm,
        key_bits=key_bits,
        insecure=insecure,
        random_state=generator,
        progress=progress,
    )
    singles = [
        attack_singles(
            minimum_per_position=minimum,
            key_bits=key_bits,
            insecure=insecure,
            random_state=generator,
            progress=progress,
        )
        for minimum in (1, 2, 3)
    ]
    return LeakageStudy(
        unknown=_unknown(private, public, victims, generator, progress),
        schemes=schemes,
        averages=attack_averages(private, victims=victims, random_state=generator, progress=progress),
        singles=tuple(singles),
    )


def trained_step_findings(
    samples: ArrayLike, labels: ArrayLike, *, steps: int = 200, random_state: int | np.random.Generator | None = None
) -> tuple[Finding, ...]:
    """Recover samples from hinge steps of a trained model: those beyond the margin send nothing, all others themselves.

    `labels` are -1 or 1. The model is trained on half of the samples; steps are made on the others. Other findings
    begin at weights that have yet to learn, where every sample is within the margin.
    """
    from sklearn.svm import LinearSVC

    rows, signs = np.asarray(samples, dtype=np.float64), np.asarray(labels)
    order = science(random_state).permutation(len(rows))
    known, asked = order[: len(rows) // 2], order[len(rows) // 2 :][:steps]
    model = LinearSVC(loss="hinge", fit_intercept=False, random_state=0, max_iter=20_000).fit(rows[known], signs[known])
    weights = model.coef_[0]
    within = signs[asked] * (rows[asked] @ weights) <= 1
    shown = np.zeros(len(asked), dtype=np.bool_)
    for place, row in enumerate(asked):
        after = gradient_step(weights, rows[row : row + 1], [signs[row]], loss="hinge", learning_rate=0.1)
        shown[place] = recover_from_hinge_step(weights, after, 0.1).closest(rows[row]) >= RECOVERED
    groups = {"within the margin": within, "beyond the margin": ~within}
    return tuple(
        Finding(
            claim=f"a hinge step of a trained model does not show a sample {name} ({group.sum()} of {len(asked)})",
            source="nobody",
            proven="false: the step is the sample" if group is within else "nothing is sent",
            measure="share of samples recovered",
            measured=rate(int(shown[group].sum()), int(group.sum())),
            verdict="leaks" if shown[group].any() else "not refuted",
            attack="a step of SGD on one sample, by a linear SVM trained on others",
            details={"steps": len(asked), "with margins of one at most": int(within.sum())},
        )
        for name, group in groups.items()
        if group.any()
    )


def _unknown(
    private: ArrayLike, public: ArrayLike, victims: int, generator: np.random.Generator, progress: Progress
) -> tuple[UnknownSettingsLeak, ...]:
    return tuple(
        attack_unknown_settings(
            private, public, loss=loss, bias=bias, victims=victims, random_state=generator, progress=progress
        )
        for loss in get_args(Loss)
        for bias in (False, True)
    )
