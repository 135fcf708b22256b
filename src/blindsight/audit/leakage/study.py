"""What sums tell, and all attacks on updates in one go: what leaks in the clear, and what schemes stop.

*Averages.* A user knows the average of N updates and its own, so it knows the sum of the other N - 1. With N = 2 that
*is* the other's update, to the last bit, and every attack on plain updates applies. With N = 3 it is the sum of two, at
a cosine of 1 / sqrt(2) to each if the two have nothing in common, and at more if they have: pictures of one kind do.
Yonetani et al. (2017, section 2.5 and supplement, Theorem 8) ask for N >= 3 because then nobody "can identify" an
update; that is true of its exact value, and not of what it looks like. All schemes here refuse N = 2; only noise helps
beyond it.

*Single owners.* Where one owner alone changed a weight, the sum of all owners is that owner's weight. For N owners who
each change a weight with probability q = 1 - sparsity, independently, the share of the touched weights that a single
one changed is

    N q (1 - q)^(N - 1) / (1 - (1 - q)^N)

(`sums.dphe.single_contributor_share`), 91% at the sparsity of 95.6% and N = 5 that Yonetani et al. (2017)
report: DPHE hides *whose* these weights are, and publishes what they are. `open_session(..., minimum_per_position=m)`
withholds weights that fewer than m owners changed. That protects against whoever sees only the sum. An owner subtracts
its own update first, so for it every count is one less: with m = 2 it still reads the other's weight wherever the two
of them were alone. m = 3 is needed against members. In block DPHE the rule counts who changed the *block*. Owners that
send whole blocks, as `rounds.member.top_blocks` makes them, are protected alike; a weight that one owner alone changed
in a block of several is shown.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blindsight.audit.finding import Finding, Verdict, rate
from blindsight.audit.leakage.recovery import (
    RECOVERED,
    Loss,
    Vector,
    attack_unknown_settings,
    cosine,
    gradient_step,
    mean_interval,
    recover_sample,
)
from blindsight.audit.leakage.schemes import Case, attack_schemes, leaky_cases
from blindsight.crypto.encoding import FixedPoint
from blindsight.errors import InputError
from blindsight.progress import Progress, silent
from blindsight.rng import ByteSource, science, system_bytes
from blindsight.sums.dphe import single_contributor_share
from blindsight.sums.scheme import find_scheme
from blindsight.sums.session import open_session

_FIXED = FixedPoint(20)  # as `open_session` rounds by default


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
) -> tuple[Finding, ...]:
    """Attack one user's update by another's means, for each number of `users` and kind of update, on fresh victims."""
    if victims < 2:
        raise InputError(f"an interval takes two victims or more; got {victims}.")
    generator, found = science(random_state), []
    for number in users:
        owners, figures = tuple(f"owner {index}" for index in range(number)), defaultdict(list)
        for victim in range(victims):
            for case in leaky_cases(samples, random_state=generator, owners=owners):
                figures[case.name].append(_attack(case))
            progress(f"attacking averages of {number}", victim + 1, victims)
        found += [_average_finding(number, name, np.array(rows).T) for name, rows in figures.items()]
    return tuple(found)


def _attack(case: Case) -> tuple[float, float, float, float]:
    """Let the last owner attack the first; return cosines of update and sample with the truth, each with a blind one.

    Blind is a user that takes its own update and sample for the victim's: samples of one kind resemble each other.
    """
    encoded = {owner: _FIXED.encode(update) for owner, update in case.updates.items()}
    curious, sent = list(encoded)[-1], case.updates[case.victim]
    total = _FIXED.decode(np.sum(list(encoded.values()), axis=0))
    rest = others_sum(total / len(encoded), _FIXED.decode(encoded[curious]), len(encoded))
    return (
        cosine(rest, sent),
        cosine(case.updates[curious], sent),
        case.attack(rest).closest(case.sample),
        abs(cosine(case.samples[curious], case.sample)),
    )


def _average_finding(users: int, case: str, figures: Vector) -> Finding:
    update, blind, sample, blind_sample = figures
    gain, two = mean_interval(update - blind), users == 2
    return Finding(
        claim=f"with N = {users} users nobody identifies another's update from the average",
        source="nobody (the paper asks for N >= 3)" if two else "Yonetani et al. 2017, Theorem 8",
        proven="false: the average minus one's own is the other's" if two else "of exact values, not of resemblance",
        measure="cosine of the sum of the others with another user's update",
        measured=mean_interval(update),
        verdict="leaks" if gain.low > 0 else "at chance",
        attack=f"{case}: a user subtracts its own update",
        details={
            "users": users,
            "victims": len(update),
            "least_update_cosine": float(update.min()),
            "blind_update_cosine": float(blind.mean()),
            "gain": gain.value,
            "sample_cosine": float(sample.mean()),
            "least_sample_cosine": float(sample.min()),
            "blind_sample_cosine": float(blind_sample.mean()),
        },
    )


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
) -> tuple[Finding, ...]:
    """Play a round of owners with independent supports and read single owners' weights from its sum.

    In block DPHE each owner changes `whole_blocks` or, if not, single weights.
    """
    if not find_scheme(scheme).sparse:
        raise InputError(f"singles are those of a sparse scheme, dphe or block-dphe; got {scheme!r}.")
    if not 0 < sparsity < 1:
        raise InputError(f"sparsity must be in (0, 1); got {sparsity}.")
    names, generator = tuple(f"owner {number}" for number in range(members)), science(random_state)
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
    changed = np.repeat(generator.random((members, -(-dimension // block))) >= sparsity, block, axis=1)[:, :dimension]
    updates = np.where(changed, generator.normal(size=(members, dimension)), 0.0)
    progress("a round of sparse updates", 0, 1)
    total = session.round(dict(zip(names, updates, strict=True)), 0).total
    progress("a round of sparse updates", 1, 1)
    integers = np.array([session.terms.integers(update) for update in updates])
    return tuple(single_findings(integers, total, scheme, minimum_per_position, scattered=block < session.block))


def single_findings(
    integers: NDArray[np.int64], total: NDArray[np.int64], scheme: str, minimum: int, *, scattered: bool
) -> Iterator[Finding]:
    """Compare a sum with what everybody sent, (owners, weights): what it shows to everyone, and to the last owner.

    A round without weights that one owner alone changed, or the last and one other, has nothing to show. `scattered`
    tells that owners changed single weights where the scheme counts blocks, for which it makes no promise.
    """
    contributors, own = np.count_nonzero(integers, axis=0), integers[-1]
    singles, pairs = contributors == 1, (contributors == 2) & (own != 0)
    exposed, subtracted = singles & (total == integers.sum(axis=0)), pairs & (total - own == integers[:-1].sum(axis=0))
    touched, shown = int(np.count_nonzero(contributors)), int(np.count_nonzero(total))
    who = {
        "nobody reads from the sum a weight that one": (singles, exposed, 2, "reading the sum"),
        "a member cannot read a weight that one other": (pairs, subtracted, 3, "a member subtracts its own update"),
    }
    for claim, (there, read, needed, attack) in who.items():
        hits, of = int(read.sum()), int(there.sum())
        verdict: Verdict = "refuted" if minimum == 1 else "as stated"  # the theorem admits none
        if minimum >= needed:
            verdict = "leaks" if scattered else "refuted"
        if of:
            yield Finding(
                claim=f"{claim} owner changed ({scheme}, minimum_per_position = {minimum})",
                source="Yonetani et al. 2017, Theorem 8" if minimum == 1 else "the rule of minimum contributors",
                proven="withheld by the key generator"
                if minimum >= needed and not scattered
                else "false: there the sum is that owner's weight",
                measure=f"share of {of} such weights that the sum shows exactly",
                measured=rate(hits, of),
                verdict=verdict if hits else "not refuted",
                attack=attack,
                details={
                    "members": len(integers),
                    "minimum": minimum,
                    "scattered": scattered,
                    "touched": touched,
                    "shown": shown,
                    "single_share": int(singles.sum()) / max(touched, 1),
                    "expected_single_share": single_contributor_share(len(integers), float(np.mean(integers != 0))),
                    "precision": int(exposed.sum()) / max(shown, 1),
                },
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
) -> tuple[Finding, ...]:
    """Run every attack on private samples (one per row), with public ones of the same kind to compare with.

    Cost grows with `victims`, 1 / `false_alarm` and `key_bits`, and with the number of features; a minute is ample for
    64 of them. Gradients of small batches, which are attacked with torch, are a study of their own (`networks`).
    """
    generator = science(random_state)
    keys: dict[str, Any] = {"key_bits": key_bits, "insecure": insecure, "progress": progress, "random_state": generator}
    cases = leaky_cases(private, random_state=generator)
    schemes = attack_schemes(cases, false_alarm=false_alarm, **keys)
    singles = [row for least in (1, 2, 3) for row in attack_singles(minimum_per_position=least, **keys)]
    many: dict[str, Any] = {"victims": victims, "random_state": generator, "progress": progress}
    unknown = [
        attack_unknown_settings(private, public, loss=loss, bias=bias, **many)
        for loss in get_args(Loss)
        for bias in (False, True)
    ]
    return (*unknown, *schemes, *attack_averages(private, **many), *singles)


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
        shown[place] = recover_sample(weights, after, 0.1).closest(rows[row]) >= RECOVERED
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
